"""The report page of a backtest."""

import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from transcendent._utils import parallel
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent.report import words
from transcendent.report.figures import draw_figures
from transcendent.report.findings import MAX_DRAWN, find
from transcendent.report.hindsight import campaign_results, campaign_sentences, look_back
from transcendent.report.results import (
    alarm_results,
    class_results,
    difference_results,
    period_results,
    staffing_results,
    summary_results,
)
from transcendent.report.workload import broken_promise, paid_by, workload, workload_tile
from transcendent.temporal.repeated import RepeatedBacktest
from transcendent.temporal.result import Backtest


def render_report(
    result: Backtest | RepeatedBacktest,
    *,
    X: Any = None,
    names: Any = None,
    title: str | None = None,
    minutes: float = 5.0,
    lead: Sequence[tuple[str, str]] = (),
) -> str:
    """Return one self-contained HTML page about a finished backtest.

    It opens with a sentence about the first rejector, and with the objects a month that people have to look
    at. The page loads nothing, has no scripts, stays below 3 MB, and states what it leaves out.

    Parameters
    ----------
    result : Backtest or RepeatedBacktest
        The result of `backtest` or `Backtest.load`; of several seeds, means are reported, with ±.
    X : rows or None
        The X of the backtest, for a section on the campaigns among the newest rejected objects.
    names : array of shape (features,) or None
        The names of the columns of X; by default those of a frame.
    title : str or None
        Title of the page; by default that of the backtest, or one that names the first rejector.
    minutes : float
        Minutes to look at one object, for the hours that rejected objects take.
    lead : sequence of pairs of str
        Headings and sentences to open the page with.

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
    if not isinstance(result, Backtest | RepeatedBacktest):
        raise TypeError(f"result must be a Backtest or a RepeatedBacktest, not {type(result).__name__}.")
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be the time to look at one object, more than 0, not {minutes!r}.")
    jinja = extra("jinja2", "report")
    environment = jinja.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined
    )
    source = files("transcendent.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    f = find(result, minutes)
    hindsight = None if X is None else look_back(result, X, names)
    page: str = environment.from_string(source).render(
        title=words.title(f, title),
        lead=lead,
        scope=words.scope(f),
        verdict=words.verdict(f),
        sentences=words.sentences(f)[:MAX_DRAWN],
        at_same_rate=words.at_same_rate(f),
        others_at_same_rate=words.others_at_same_rate(f),
        uneven=words.uneven(f),
        tiles=words.tiles(f),
        glossary=words.glossary(f),
        biases=words.biases(f),
        checked="biases" in f.manifest,
        limits=words.limits(f),
        manifest=words.manifest(f),
        workload=workload(f),
        to_look_at=workload_tile(f),
        paid_by=paid_by(f),
        broken_promise=broken_promise(f),
        not_drawn=len(f.rejectors) - len(f.over_time),
        by_looks=staffing_results(f),
        summary=summary_results(f),
        differences=difference_results(f) if f.differences else None,
        by_class=class_results(f),
        by_period=period_results(f),
        alarms=alarm_results(f) if f.monitors else None,
        campaigns=None if hindsight is None else campaign_results(hindsight),
        on_campaigns=[] if hindsight is None else campaign_sentences(hindsight),
        **draw_figures(f),
    )
    return page


def write_report(
    result: Backtest | RepeatedBacktest,
    path: Any,
    *,
    X: Any = None,
    names: Any = None,
    title: str | None = None,
    minutes: float = 5.0,
    lead: Sequence[tuple[str, str]] = (),
    verbose: bool = True,
) -> Path:
    """Write the page of `render_report` to a file, completely or not at all; return its path.

    Parameters
    ----------
    result, X, names, title, minutes, lead
        As for `render_report`.
    path : path
        The file. An existing file is replaced, and a missing folder is created.
    verbose : bool
        Whether to show the elapsed time on a terminal or in a notebook.
    """
    target = Path(path)
    with parallel.working("writing the page", verbose=verbose):
        page = render_report(result, X=X, names=names, title=title, minutes=minutes, lead=lead)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page.encode())
    return target
