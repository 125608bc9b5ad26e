"""The page: what a backtest says, in the order a reader asks."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from transcendent._utils import parallel
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent.report import words
from transcendent.report.figures import draw_figures
from transcendent.report.findings import find
from transcendent.report.tables import Table, alarm_table, class_table, period_table, summary_table
from transcendent.temporal.result import Backtest


def render_report(result: Backtest, *, title: str | None = None) -> str:
    """One self-contained HTML page about a finished backtest.

    It opens with a sentence about the rejector that was listed first. The page asks for nothing from
    elsewhere, has no scripts, stays below 3 MB, and says where it leaves something out.

    Parameters
    ----------
    result : Backtest
        What `backtest` returned, or `Backtest.load` read.
    title : str or None
        The page's title; by default it names the first rejector.

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
            f"a page is about one Backtest, not {type(result).__name__}; of several seeds give one, "
            "repeated.results[seed]."
        )
    jinja = extra("jinja2", "report")
    environment = jinja.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined
    )
    source = files("transcendent.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    f = find(result)
    said = {
        "title": words.title(f, title),
        "scope": words.scope(f),
        "verdict": words.verdict(f),
        "at_same_rate": words.at_same_rate(f),
        "others_at_same_rate": words.against_others(f),
        "uneven": words.uneven(f),
        "tiles": words.tiles(f),
        "glossary": words.glossary(f),
        "biases": words.biases(f),
        "checked": "biases" in f.manifest,
        "limits": words.limits(f),
        "manifest": words.manifest(f),
        "not_drawn": words.not_drawn(f),
    }
    tables: dict[str, Table | None] = {
        "summary": summary_table(f),
        "by_class": class_table(f),
        "by_period": period_table(f),
    }
    tables["alarms"] = alarm_table(f) if f.monitors else None
    page: str = environment.from_string(source).render(**said, **tables, **draw_figures(f))
    return page


def write_report(result: Backtest, path: Any, *, title: str | None = None, verbose: bool = True) -> Path:
    """Write `render_report` to a file, at once or not at all.

    Parameters
    ----------
    result, title
        As for `render_report`.
    path : path
        The file; it is replaced if it exists, and its folder is made if it does not.
    verbose : bool
        Show on a terminal or in a notebook that the page is being written, and since when.

    Returns
    -------
    Path
        The file.
    """
    target = Path(path)
    with parallel.working("writing the page", verbose=verbose):
        page = render_report(result, title=title)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page.encode())
    return target
