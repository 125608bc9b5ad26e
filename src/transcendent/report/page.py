"""The report page of a backtest."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from transcendent._utils import parallel
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent.report import words
from transcendent.report.figures import draw_figures
from transcendent.report.findings import find
from transcendent.report.results import alarm_results, class_results, period_results, summary_results
from transcendent.temporal.result import Backtest


def render_report(result: Backtest, *, title: str | None = None) -> str:
    """Return one self-contained HTML page about a finished backtest.

    It opens with a sentence about the first rejector. The page loads nothing, has no scripts, stays below
    3 MB, and states what it leaves out.

    Parameters
    ----------
    result : Backtest
        The result of `backtest` or `Backtest.load`.
    title : str or None
        Title of the page; by default it names the first rejector.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.report import render_report
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC())
    >>> result = backtest({"ICE": ice}, stream.X, stream.y, stream.times, train="2020-05")
    >>> render_report(result, title="Spam filter").splitlines()[0]
    '<!doctype html>'
    """
    if not isinstance(result, Backtest):
        raise ValueError(
            f"result must be one Backtest, not {type(result).__name__}; of several seeds pass one, "
            "repeated.results[seed]."
        )
    jinja = extra("jinja2", "report")
    environment = jinja.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined
    )
    source = files("transcendent.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    f = find(result)
    page: str = environment.from_string(source).render(
        title=words.title(f, title),
        scope=words.scope(f),
        verdict=words.verdict(f),
        at_same_rate=words.at_same_rate(f),
        others_at_same_rate=words.others_at_same_rate(f),
        uneven=words.uneven(f),
        tiles=words.tiles(f),
        glossary=words.glossary(f),
        biases=words.biases(f),
        checked="biases" in f.manifest,
        limits=words.limits(f),
        manifest=words.manifest(f),
        not_drawn=len(f.rejectors) - len(f.over_time),
        summary=summary_results(f),
        by_class=class_results(f),
        by_period=period_results(f),
        alarms=alarm_results(f) if f.monitors else None,
        **draw_figures(f),
    )
    return page


def write_report(result: Backtest, path: Any, *, title: str | None = None, verbose: bool = True) -> Path:
    """Write the page of `render_report` to a file, completely or not at all; return its path.

    Parameters
    ----------
    result, title
        As for `render_report`.
    path : path
        The file. An existing file is replaced, and a missing folder is created.
    verbose : bool
        Whether to show the elapsed time on a terminal or in a notebook.
    """
    target = Path(path)
    with parallel.working("writing the page", verbose=verbose):
        page = render_report(result, title=title)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page.encode())
    return target
