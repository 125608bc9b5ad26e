"""The result of a backtest as text, in notebooks, in LaTeX and as a figure."""

import html
import re
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.baselines import CPReject
from transcendent.datasets import make_stream
from transcendent.errors import MissingExtraError
from transcendent.plots import PerformanceDisplay
from transcendent.temporal import backtest

mpl.use("Agg")

LONG = "a rejector_with & a <long> name, 50% of it needless " * 4


@pytest.fixture(scope="module")
def result():
    stream = make_stream(3000, n_periods=8, concept=0.5, random_state=0)
    rejectors = {"InductiveEvaluator": InductiveEvaluator(LinearSVC()), LONG: CPReject(LinearSVC())}
    return backtest(rejectors, stream.X, stream.y, stream.times, train="2020-04")


def test_text_fits_a_terminal_whatever_the_names(result):
    assert max(map(len, repr(result).splitlines())) <= 100
    assert re.search(r"^InductiveEvaluator +0\.\d", repr(result), re.MULTILINE)
    gaps = replace(
        result,
        periods=tuple(f"a period with a long name {i}" for i in range(5)),
        period=result.period.clip(max=3),
    )
    assert "no objects in a period with a long name 4" in repr(gaps)
    assert max(map(len, repr(gaps).splitlines())) <= 100


def test_without_a_positive_class_there_is_no_column_about_it(result):
    macro = replace(result, pos_label=None)
    for shown in (str, lambda r: r._repr_html_(), lambda r: r.to_latex()):
        assert "pos" in shown(result).replace("positive is", "")
        assert "pos" not in shown(macro)


def test_latex_has_the_figures_of_the_summary(result):
    text, summary = result.to_latex(), result.summary()
    assert (
        r"\multicolumn{2}{c}{rejected of} & \multicolumn{2}{c}{F1 of} & \multicolumn{3}{c}{error of}" in text
    )
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5} \cmidrule(lr){6-8}" in text
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].splitlines()[1:]
    assert body[0].startswith(f"InductiveEvaluator & {summary['rejection_rate'][0]:.3f} & ")
    assert body[1].startswith(
        r"a rejector\_with \& a \textless{}long\textgreater{} name, 50\% of it needless"
    )
    cells = re.split(r"(?<!\\) & ", body[1].removesuffix(r" \\"))
    assert cells[-1] == f"{summary['aurc'][1]:.{4 if summary['aurc'][1] < 0.1 else 3}f}"
    assert len(cells) == 12


def test_notebooks_show_the_same_figures(result):
    page = result._repr_html_()
    assert html.escape(LONG) in page
    assert "<long>" not in page
    shown = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    written = [cell for line in result.to_latex().splitlines() for cell in re.findall(r"& (\d\.\d+)", line)]
    assert shown == written
    assert len(shown) == 22


def test_plot_draws_the_first_rejector_or_the_one_named(result):
    first = result.plot()
    assert isinstance(first, PerformanceDisplay)
    assert first.rejector == "InductiveEvaluator"
    np.testing.assert_array_equal(first.axes_[0].lines[0].get_ydata(), result.series("InductiveEvaluator"))
    other = result.plot(LONG, "error", intervals=True)
    np.testing.assert_array_equal(other.kept, result.series(LONG, "error"))
    assert other.interval is not None
    ax = mpl.figure.Figure(layout="constrained").add_subplot()
    assert result.plot(ax=ax).figure_ is not first.figure_
    with pytest.raises(ValueError, match="there is no rejector 'ice'"):
        result.plot("ice")


def test_plot_names_the_extra_it_lacks(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib.*transcendent\[plots\]"):
        result.plot()
