"""The page: what a backtest says, in the order a reader asks."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent.report.figures import (
    MOST_REJECTORS,
    merge_periods,
    performance_figure,
    risk_coverage_figure,
)
from transcendent.report.tables import class_table, period_table, summary_table
from transcendent.report.verdict import Outcome, against_others, at_same_rate, outcome_of, uneven, verdict
from transcendent.report.words import (
    counted,
    decimal,
    distinct,
    joined,
    percent,
    plain,
    positive_name,
    unit_of,
)
from transcendent.temporal.result import Backtest

_LONGEST_TITLE = 160
_LONGEST_MESSAGE = 1_000
_LONGEST_VALUE = 4_000
_ROOM_FOR_MANIFEST = 100_000


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
    jinja = extra("jinja2", "report")
    environment = jinja.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja.StrictUndefined
    )
    source = files("transcendent.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    page: str = environment.from_string(source).render(_content(result, title))
    return page


def write_report(result: Backtest, path: Any, *, title: str | None = None) -> Path:
    """Write `render_report` to a file, at once or not at all.

    Parameters
    ----------
    result, title
        As for `render_report`.
    path : path
        The file; it is replaced if it exists, and its folder is made if it does not.

    Returns
    -------
    Path
        The file.
    """
    target = Path(path)
    page = render_report(result, title=title)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, page.encode())
    return target


def _content(result: Backtest, title: str | None) -> dict[str, Any]:
    names = list(result.answers)
    labels = distinct(names)
    summary = result.summary()
    outcome = outcome_of(result, names[0], summary)
    merged, step = merge_periods(result)
    drawn = [
        performance_figure(merged, step, name, label, f"over-time-{i}")
        for i, (name, label) in enumerate(zip(names[:MOST_REJECTORS], labels, strict=False))
    ]
    biases = result.manifest.get("biases") or {}
    return {
        "title": plain(title, _LONGEST_TITLE) if title else _title(names),
        "scope": _scope(result),
        "verdict": verdict(outcome),
        "at_same_rate": at_same_rate(outcome),
        "others_at_same_rate": against_others(result, outcome, summary),
        "uneven": uneven(result, names[0]),
        "tiles": _tiles(result, outcome, float(summary["positives_rejected"][0])),
        "over_time": drawn[0],
        "others": drawn[1:],
        "not_drawn": counted(len(names) - len(drawn), "more rejector") if len(names) > len(drawn) else "",
        "risk": risk_coverage_figure(result),
        "summary": summary_table(result, summary),
        "by_class": class_table(result, names[0]),
        "by_period": period_table(merged, result, step, names[0]),
        "biases": [(_heading(name), plain(message, _LONGEST_MESSAGE)) for name, message in biases.items()],
        "checked": "biases" in result.manifest,
        "limits": _limits(result, outcome),
        "manifest": _manifest(result.manifest),
    }


def _title(names: list[str]) -> str:
    others = f" and {counted(len(names) - 1, 'other rejector')}" if len(names) > 1 else ""
    return f"Backtest of {plain(names[0])}{others}"


def _scope(result: Backtest) -> str:
    """What was tested, in one line."""
    unit, periods = unit_of(result), result.periods
    parts = [f"{counted(len(result.y), 'object')} in {counted(len(periods), unit)}"]
    span = [plain(period, 24) for period in (periods[0], periods[-1])]
    parts.append(" to ".join(span) if len(periods) > 1 else span[0])
    parts.append(counted(len(result.classes), "class"))
    if positive := positive_name(result):
        parts.append(f"positive class {positive}")
    first = next(iter(result.answers))
    if description := (result.manifest.get("rejectors") or {}).get(first):
        parts.append(plain(description, _LONGEST_TITLE))
    if (train := result.manifest.get("train")) is not None:
        parts.append(f"trained on {_training(train)}")
    if retrain := _retraining(result):
        parts.append(f"retrained with {retrain}")
    return " · ".join(parts)


def _training(train: Any) -> str:
    if isinstance(train, list | tuple):
        return " up to ".join(plain(time, 24) for time in train)
    return plain(train) if str(train).startswith("rows") else f"what is older than {plain(train, 24)}"


def _retraining(result: Backtest) -> str:
    retrain = str(result.manifest.get("retrain"))
    return "" if retrain == "None" else plain(retrain, 120)


def _tiles(result: Backtest, o: Outcome, positives_rejected: float) -> list[tuple[str, str, str]]:
    """Label, value, and what to set it against."""
    kept, right = o.objects - o.rejected, o.rejected - o.caught
    missed = o.errors - o.caught
    tiles = [
        ("rejected", percent(o.rejection_rate, 1), f"{o.rejected:,} of {counted(o.objects, 'object')}"),
        (
            "of the errors caught",
            percent(o.share_caught, 1),
            f"{o.caught:,} of {o.errors:,}; at random {percent(o.rejection_rate, 1)}"
            if o.errors
            else "undefined: there are no errors",
        ),
        (
            "of the kept are wrong",
            percent(missed / kept, 1) if kept else "–",
            f"{percent(o.errors / o.objects, 1)} of all" if kept else "undefined: nothing is kept",
        ),
        (
            f"{o.metric} of the kept",
            decimal(o.kept),
            f"{decimal(o.all)} of all" if o.kept == o.kept else "undefined: see above",
        ),
        (
            "of the rejected were right",
            percent(right / o.rejected, 1) if o.rejected else "–",
            f"{right:,} of {o.rejected:,} rejected" if o.rejected else "undefined: nothing is rejected",
        ),
    ]
    if o.positive:
        positives = int((result.y == result.classes[result.positive]).sum())
        note = "undefined: there are none"
        if positives:
            note = f"{round(positives_rejected * positives):,} of {positives:,}"
        tiles.append((f"of class {plain(o.positive, 20)} rejected", percent(positives_rejected, 1), note))
    return tiles


def _heading(name: Any) -> str:
    text = plain(str(name).replace("_", " "))
    return text[:1].upper() + text[1:]


def _limits(result: Backtest, o: Outcome) -> list[str]:
    missed, kept = o.errors - o.caught, o.objects - o.rejected
    calibrated = "Thresholds were set on calibration objects from training"
    if retrain := _retraining(result):
        follows = f"{calibrated}, anew at each refit ({retrain}). In between they do not follow drift."
    else:
        follows = (
            f"{calibrated} and then left alone. Under drift both the share that is rejected and the "
            "quality of what is kept move; nothing holds them where they were."
        )
    return [
        "This is the past. What comes next may drift faster, or elsewhere.",
        follows,
        "Labels are taken as true. Where they are wrong or came late, so are these figures.",
        f"Not every rejected answer is wrong ({o.rejected - o.caught:,} of {o.rejected:,} were right), "
        f"and not every kept one is right ({missed:,} of {kept:,} were wrong).",
        "Figures of the kept leave out what was rejected. Somebody has to look at that, or do without: "
        f"{o.rejected / o.periods:,.0f} objects a {o.unit} on average.",
        "Credibility is not the probability that an answer is right.",
        "Rejectors are comparable only where they reject the same share. Small differences can be chance: "
        "repeat the backtest with other seeds.",
        "With one measure that orders objects as the detector's own score does, thresholds on that score "
        "would have picked the same objects.",
    ]


def _manifest(manifest: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Headings, with names and values; without the biases, which the page already has."""
    groups: dict[str, dict[str, Any]] = {"Run": {}}
    for key, value in manifest.items():
        if isinstance(value, dict):
            groups[_heading(key)] = value
        else:
            groups["Run"]["SHA-256 of the data" if key == "data" else _heading(key)] = value
    groups.pop("Biases", None)
    sections = []
    room = _ROOM_FOR_MANIFEST
    for heading, values in groups.items():
        unit = "s" if heading == "Seconds" else ""
        entries = [(plain(name), _value(value, unit)) for name, value in values.items()]
        room -= sum(len(name) + len(text) for name, text in entries)
        sections.append((heading, entries if room > 0 else [("", "left out, as it is too long")]))
    return sections


def _value(value: Any, unit: str) -> str:
    if isinstance(value, dict):
        return joined([f"{plain(name)} {_value(one, unit)}" for name, one in value.items()])
    if isinstance(value, float):
        return f"{value:,.2f} {unit}".strip()
    text = str(value)
    shown = plain(text, _LONGEST_VALUE)
    return shown if len(text) <= _LONGEST_VALUE else f"{shown} ({len(text):,} characters, shortened)"
