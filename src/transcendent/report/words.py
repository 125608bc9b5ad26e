"""What the page says in words, and how it writes names and numbers."""

import math
import re
from collections.abc import Iterable
from typing import Any

from transcendent._utils.text import shorten
from transcendent.report.findings import Findings

UNDEFINED = "–"

_EVALUATORS = {
    "ICE": (
        "InductiveEvaluator",
        "inductive conformal evaluator, calibrated on training objects that were kept from its detector",
    ),
    "CCE": (
        "CrossConformalEvaluator",
        "cross-conformal evaluator, several inductive ones that vote",
    ),
    "TCE": (
        "TransductiveEvaluator",
        "transductive conformal evaluator, calibrated on every training object with detectors fitted "
        "without it",
    ),
}
_F1 = "harmonic mean of precision (how many alarms are right) and recall (how many positives are found)"
_AURC = "area under the risk–coverage curve: mean error of the kept over all rejection rates; 0 is best"
_FEW_ERRORS = 20
_LONGEST_NAME = 48
_LONGEST_TITLE = 160
_LONGEST_MESSAGE = 1_000
_LONGEST_VALUE = 4_000
_ROOM_FOR_MANIFEST = 100_000


def title(f: Findings, given: str | None) -> str:
    """The title that was given, or one that names the first rejector."""
    if given:
        return plain(given, _LONGEST_TITLE)
    first, *others = rejector_names(f)
    and_others = f" and {counted(len(others), 'other rejector')}" if others else ""
    return f"Backtest of {first}{and_others}"


def scope(f: Findings) -> str:
    """What was tested, in one line."""
    parts = [_tested(f)]
    span = [plain(period, 24) for period in (f.periods[0], f.periods[-1])]
    parts.append(" to ".join(span) if len(f.periods) > 1 else span[0])
    new = f", {len(f.new_classes):,} of them new after training" if f.new_classes else ""
    parts.append(counted(f.n_classes, "class") + new)
    if positive := positive_name(f):
        parts.append(f"positive class {positive}")
    if description := (f.manifest.get("rejectors") or {}).get(f.rejectors[0].name):
        parts.append(plain(description, _LONGEST_TITLE))
    if (train := f.manifest.get("train")) is not None:
        parts.append(f"trained on {_training(train)}")
    if retrain := _retraining(f):
        parts.append(f"retrained with {retrain}")
    return " · ".join(parts)


def verdict(f: Findings) -> str:
    """One sentence: how much was rejected, what it caught, against chance, and what it left."""
    o, first, where = f.overall, f.rejectors[0], _tested(f)
    name, errors, rate = plain(first.name), counted(o.errors, "error"), percent(first.rejection_rate)
    if not o.errors:
        rejected = f"{rate} of them for nothing" if o.rejected else "none"
        return (
            f"The detector made no error among {where}: there was nothing to catch, and {name} would "
            f"have rejected {rejected}."
        )
    if not o.rejected:
        left = _undefined(f, "all") if math.isnan(first.all) else f"{f.metric} stays {decimal(first.all, 2)}"
        return (
            f"{name} would have rejected none of {where}, and so caught none of the detector's "
            f"{errors}; {left}."
        )
    if o.rejected == o.objects:
        return (
            f"{name} would have rejected every one of {where}: all of the detector's "
            f"{errors}, but no answer is left, and {f.metric} of the kept is undefined."
        )
    caught = percent(first.errors_caught) if o.errors >= _FEW_ERRORS else str(o.caught)
    chance = {
        "more": f"against {rate} if as many were rejected at random",
        "fewer": f"fewer than the {rate} to be expected if as many were rejected at random",
        "unclear": f"not clearly more than the {rate} to be expected if as many were rejected at random",
    }
    return (
        f"{name} would have rejected {rate} of {where} and caught {caught} of the detector's {errors}, "
        f"{chance[f.versus_chance]}; {_metric_of_kept(f)}."
    )


def glossary(f: Findings) -> list[tuple[str, str]]:
    """Abbreviations that the page uses, and what they stand for."""
    described = f.manifest.get("rejectors") or {}
    evaluators = [
        (short, meaning)
        for short, (kind, meaning) in _EVALUATORS.items()
        if any(
            re.search(rf"\b{short}\b", r.name) and kind in described.get(r.name, kind) for r in f.rejectors
        )
    ]
    which = f"for class {positive_name(f)}" if f.positive else "averaged over the classes"
    return [*evaluators, ("F1", f"{_F1}, {which}; 1 is best"), ("AURC", _AURC)]


def new_classes(f: Findings) -> str:
    """What it means that classes are new, and how many are."""
    later = " before labels of it joined" if _retraining(f) else ", so every answer about it is wrong"
    return f"no object in training had this class{later} ({len(f.new_classes):,} of {f.n_classes:,} classes)"


def at_same_rate(f: Findings) -> str:
    """What it would have given at 15% rejected per period, where rejectors can be compared."""
    first = f.rejectors[0]
    caught = (
        f"{percent(first.caught_at_15)} of the errors caught" if f.overall.errors else "no errors to catch"
    )
    kept = f"{f.metric} of the kept answers {decimal(first.kept_at_15, 2)}"
    if math.isnan(first.kept_at_15):
        kept = _undefined(f, "kept")
    return f"At 15% rejected in every {f.unit}, where rejectors can be compared: {caught}, {kept}."


def against_others(f: Findings) -> str:
    """How the other rejectors do at that same rate; nothing if there are none."""
    if f.others is None:
        return ""
    least, most = percent(f.others.least_caught), percent(f.others.most_caught)
    name, kept = plain(f.others.best.name), decimal(f.others.best.kept_at_15, 2)
    if f.others.number == 1:
        return f"At that rate {name} catches {most} of the errors and keeps {f.metric} {kept}."
    return (
        f"At that rate the {f.others.number} others catch {least} to {most} of the errors; "
        f"the best {f.metric} they keep is {kept} ({name})."
    )


def uneven(f: Findings) -> str:
    """Says so if in some periods far more was rejected than in the quieter ones; else nothing."""
    u = f.unevenness
    if u is None:
        return ""
    return (
        f"Not evenly: in {u.periods:,} of {counted(u.of_periods, f.unit)} it would have rejected "
        f"{percent(u.limit)} or more, up to {percent(u.highest)} in {plain(u.highest_in)}, while in a "
        f"quarter of the {f.unit}s it rejected {percent(u.quiet)} or less."
    )


def tiles(f: Findings) -> list[tuple[str, str, str]]:
    """Label, value, and what to set it against."""
    o, first = f.overall, f.rejectors[0]
    kept, right = o.objects - o.rejected, o.rejected - o.caught
    rate = percent(first.rejection_rate, 1)
    tiles = [
        ("rejected", rate, f"{o.rejected:,} of {counted(o.objects, 'object')}"),
        (
            "of the errors caught",
            percent(first.errors_caught, 1),
            f"{o.caught:,} of {o.errors:,}; at random {rate}"
            if o.errors
            else "undefined: there are no errors",
        ),
        (
            "of the kept are wrong",
            percent(first.error_kept, 1),
            f"{percent(first.error_baseline, 1)} of all" if kept else "undefined: nothing is kept",
        ),
        (
            f"{f.metric} of the kept",
            decimal(first.kept),
            "undefined: see above" if math.isnan(first.kept) else f"{decimal(first.all)} of all",
        ),
        (
            "of the rejected were right",
            percent(ratio(right, o.rejected), 1),
            f"{right:,} of {o.rejected:,} rejected" if o.rejected else "undefined: nothing is rejected",
        ),
    ]
    if f.positives is not None:
        n, rejected = f.positives.objects, f.positives.rejected
        note = f"{rejected:,} of {n:,}" if n else "undefined: there are none"
        name = plain(positive_name(f), 20)
        tiles.append((f"of class {name} rejected", percent(first.positives_rejected, 1), note))
    return tiles


def biases(f: Findings) -> list[tuple[str, str]]:
    """Names and messages of the checks for bias that fired."""
    found = f.manifest.get("biases") or {}
    return [(_heading(name), plain(message, _LONGEST_MESSAGE)) for name, message in found.items()]


def limits(f: Findings) -> list[str]:
    """What the numbers do not promise."""
    o = f.overall
    calibrated = "Thresholds were set on calibration objects from training"
    if retrain := _retraining(f):
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
        f"Not every rejected answer is wrong ({o.rejected - o.caught:,} of {o.rejected:,} were right), and "
        f"not every kept one is right ({o.errors - o.caught:,} of {o.objects - o.rejected:,} were wrong).",
        "Figures of the kept leave out what was rejected. Somebody has to look at that, or do without: "
        f"{o.rejected / len(f.periods):,.0f} objects a {f.unit} on average.",
        "Credibility is not the probability that an answer is right.",
        "Rejectors are comparable only where they reject the same share. Small differences can be chance: "
        "repeat the backtest with other seeds.",
        "With one measure that orders objects as the detector's own score does, thresholds on that score "
        "would have picked the same objects.",
    ]


def not_drawn(f: Findings) -> str:
    """How many rejectors are not drawn over time; nothing if all are."""
    left_out = len(f.rejectors) - len(f.over_time)
    return counted(left_out, "more rejector") if left_out else ""


def manifest(f: Findings) -> list[tuple[str, list[tuple[str, str]]]]:
    """Headings, with names and values; without the biases, which the page already has."""
    groups: dict[str, dict[str, Any]] = {"Run": {}}
    for key, value in f.manifest.items():
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


def rejector_names(f: Findings) -> list[str]:
    """The rejectors' names, presentable and distinct."""
    return distinct(rejector.name for rejector in f.rejectors)


def positive_name(f: Findings) -> str:
    """The positive class by name, empty if there is none."""
    return "".join(map(plain, f.positive))


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; 0% and 100% only where it is exactly that."""
    if math.isnan(share):
        return UNDEFINED
    if share in (0, 1):
        return f"{share:.0%}"
    digits = max(digits, 1) if share < 0.1 or share > 0.99 else digits
    least = 0.1**digits / 100
    if share < least / 2:
        return f"<{least:.{digits}%}"
    if share > 1 - least / 2:
        return f">{1 - least:.{digits}%}"
    return f"{share:.{digits}%}"


def decimal(value: float, digits: int = 3) -> str:
    """A metric with this many decimals."""
    return UNDEFINED if math.isnan(value) else f"{value:.{digits}f}"


def ratio(part: float, whole: float) -> float:
    """A share of a whole; NaN if there is no whole."""
    return part / whole if whole else math.nan


def counted(n: int, noun: str) -> str:
    """A number and its noun: 1 month, 72 months."""
    plural = noun + ("es" if noun.endswith("ss") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def plain(text: Any, length: int = _LONGEST_NAME) -> str:
    """Any text on one line, without control characters, its middle left out if it is long."""
    line = " ".join(str(text).split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return shorten(line, length) or "(no name)"


def distinct(names: Iterable[Any]) -> list[str]:
    """Names as `plain` shows them; those it makes equal are numbered."""
    seen: dict[str, int] = {}
    shown = []
    for name in map(plain, names):
        seen[name] = seen.get(name, 0) + 1
        shown.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return shown


def _tested(f: Findings) -> str:
    return f"{counted(f.overall.objects, 'object')} in {counted(len(f.periods), f.unit)}"


def _training(train: Any) -> str:
    if isinstance(train, list | tuple):
        return " up to ".join(plain(time, 24) for time in train)
    return plain(train) if str(train).startswith("rows") else f"what is older than {plain(train, 24)}"


def _retraining(f: Findings) -> str:
    retrain = str(f.manifest.get("retrain"))
    return "" if retrain == "None" else plain(retrain, 120)


def _metric_of_kept(f: Findings) -> str:
    first = f.rejectors[0]
    if math.isnan(first.all):
        return _undefined(f, "all")
    if math.isnan(first.kept):
        return f"{_undefined(f, 'kept')}, against {decimal(first.all, 2)} of all"
    equal = decimal(first.kept, 2) == decimal(first.all, 2) and first.kept != first.all
    kept, everything = (decimal(value, 3 if equal else 2) for value in (first.kept, first.all))
    if first.kept > first.all:
        return f"{f.metric} of the kept answers is {kept} against {everything} of all"
    if first.kept < first.all:
        word = "but" if first.errors_caught > first.rejection_rate else "and"
        return f"{word} {f.metric} of the kept answers is {kept}, lower than the {everything} of all"
    return f"{f.metric} of the kept answers is {kept}, the same as of all"


def _undefined(f: Findings, subset: str) -> str:
    if subset == "all":
        return f"F1 is undefined, as class {positive_name(f)} neither occurs nor is predicted"
    return f"F1 of the kept answers is undefined, as none of them is or is called class {positive_name(f)}"


def _heading(name: Any) -> str:
    text = plain(str(name).replace("_", " "))
    return text[:1].upper() + text[1:]


def _value(value: Any, unit: str) -> str:
    if isinstance(value, dict):
        *most, last = [f"{plain(name)} {_value(one, unit)}" for name, one in value.items()] or [""]
        return " and ".join(filter(None, [", ".join(most), last]))
    if isinstance(value, float):
        return f"{value:,.2f} {unit}".strip()
    text = str(value)
    shown = plain(text, _LONGEST_VALUE)
    return shown if len(text) <= _LONGEST_VALUE else f"{shown} ({len(text):,} characters, shortened)"
