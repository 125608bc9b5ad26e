"""Sentences of the page, and how it writes names and numbers."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from transcendent._utils.arrays import FloatArray
from transcendent._utils.listing import figure
from transcendent._utils.text import counted, shorten
from transcendent.report.findings import Findings

UNDEFINED = "–"
FEW_OBJECTS = 20

_F1 = "harmonic mean of precision (share of alarms that are right) and recall (share of positives found)"
_CREDIBILITY = "how well an object fits the class of its answer, among calibration objects; low is strange"
_AURC = "area under the risk–coverage curve: mean error of the kept over all rejection rates; 0 is best"
_DIGESTS = {"data": "SHA-256 of the data", "tested": "SHA-256 of the rows that were tested"}
_FEW_ERRORS = 20
_MAX_CLASSES_NAMED = 3
_MAX_NAME = 48
_MAX_TITLE = 160
_MAX_SENTENCE = 500
_MAX_MESSAGE = 1_000
_MAX_VALUE = 4_000
_MAX_MANIFEST = 100_000


def title(f: Findings, given: str | None) -> str:
    """Return the given title, that of the backtest, or one that names the first rejector."""
    if given or f.title:
        return plain(given or f.title, _MAX_TITLE)
    first, *others = rejector_names(f)
    and_others = f" and {counted(len(others), 'other rejector')}" if others else ""
    return f"Backtest of {first}{and_others}"


def scope(f: Findings) -> str:
    """Return one line on what was tested."""
    span = dict.fromkeys((f.periods[0], f.periods[-1]))
    new = f", {len(f.new_classes):,} of them new after training" if f.new_classes else ""
    facts = [
        _tested(f),
        " to ".join(plain(period, 24) for period in span),
        counted(f.n_classes, "class") + new,
    ]
    if positive := positive_name(f):
        facts.append(f"positive class {positive}")
    if (train := f.manifest.get("train")) is not None:
        recent = ", the most recent of which calibrate" if f.manifest.get("chronological") else ""
        facts.append(f"trained on {_training(train)}{recent}")
    if retrain := _retraining(f):
        facts.append(f"retrained with {retrain}")
    if len(f.seeds) > 1:
        facts.append(f"means over {len(f.seeds)} seeds")
    return " · ".join(facts)


def sentences(f: Findings) -> list[tuple[str, str]]:
    """Return the name of each rejector, and what it does."""
    described = f.manifest.get("rejectors") or {}
    out = []
    for name, rejector in zip(rejector_names(f), f.rejectors, strict=True):
        said = f.in_words.get(rejector.name)
        if said is not None:
            told = f"{said['judges']}, and rejects {said['rejects']}".replace("each period", f"each {f.unit}")
        elif rejector.name in described:
            told = f"is {described[rejector.name]}"
        else:
            continue
        out.append((name, plain(told, _MAX_SENTENCE)))
    return out


def verdict(f: Findings) -> str:
    """Return one sentence on the share rejected, the errors caught, chance, and the metric of the kept."""
    means = f"On average over {len(f.seeds)} seeds: " if len(f.seeds) > 1 else ""
    return means + _verdict(f)


def _verdict(f: Findings) -> str:
    o, first, where = f.overall, f.rejectors[0], _tested(f)
    name, errors, rate = plain(first.name), counted(o.errors, "error"), percent(first.rejection_rate)
    if not o.errors:
        rejected = f"{rate} of them for nothing" if o.rejected else "none"
        return (
            f"The detector made no error among {where}: there was nothing to catch, and {name} would "
            f"have rejected {rejected}."
        )
    if not o.rejected:
        left = _undefined(f, "all") if math.isnan(first.all) else f"{f.metric} stays {figure(first.all, 2)}"
        return (
            f"{name} would have rejected none of {where}, and so caught none of the detector's "
            f"{errors}; {left}."
        )
    if o.rejected == o.objects:
        return (
            f"{name} would have rejected all of {where}, and with them all of the detector's {errors}; no "
            f"answer is left, and {f.metric} of the kept is undefined."
        )
    caught = percent(first.errors_caught) if o.errors >= _FEW_ERRORS else str(o.caught)
    chance = {
        "more": f"against {rate} if as many were rejected at random",
        "fewer": f"fewer than the {rate} expected if as many were rejected at random",
        "unclear": f"not clearly more than the {rate} expected if as many were rejected at random",
    }
    return (
        f"{name} would have rejected {rate} of {where} ({of_classes(f, first.of_classes)}) and caught "
        f"{caught} of the detector's {errors}, {chance[f.versus_chance]}; {_metric_of_kept(f)}."
    )


def glossary(f: Findings) -> list[tuple[str, str]]:
    """Return the abbreviations on the page with their meanings."""
    which = f"for class {positive_name(f)}" if f.positive else "averaged over the classes"
    said = any("credibility" in sentence for _, sentence in sentences(f))
    credibility = [("Credibility", _CREDIBILITY)] if said else []
    return [*credibility, ("F1", f"{_F1}, {which}; 1 is best"), ("AURC", _AURC)]


def new_classes(f: Findings) -> str:
    """Return what new classes mean, and how many there are."""
    until = " until later labels joined" if _retraining(f) else ", so every answer about it is wrong"
    return f"no training object had this class{until} ({len(f.new_classes):,} of {f.n_classes:,} classes)"


def at_same_rate(f: Findings) -> str:
    """Return what the first rejector gives at 15% rejected per period, where rejectors can be compared."""
    first = f.rejectors[0]
    errors = f"{percent(first.caught_at_15)} of the errors caught"
    caught = errors if f.overall.errors else "no errors to catch"
    kept = f"{f.metric} of the kept answers {figure(first.kept_at_15, 2)}"
    if math.isnan(first.kept_at_15):
        kept = _undefined(f, "kept")
    return (
        f"At 15% rejected in every {f.unit} ({of_classes(f, first.of_classes_at_15)}), where rejectors can "
        f"be compared: {caught}, {kept}."
    )


def others_at_same_rate(f: Findings) -> str:
    """Return what the other rejectors give at the same rate, empty if there are none."""
    caught = [r.caught_at_15 for r in f.rejectors[1:] if not math.isnan(r.caught_at_15)]
    defined = [r for r in f.rejectors[1:] if not math.isnan(r.kept_at_15)]
    if not caught or not defined:
        return ""
    least, most = percent(min(caught)), percent(max(caught))
    span = most if least == most else f"{least} to {most}"
    best = max(defined, key=lambda r: r.kept_at_15)
    name, kept = plain(best.name), figure(best.kept_at_15, 2)
    rejected = of_classes(f, best.of_classes_at_15)
    if len(f.rejectors) == 2:
        return (
            f"At that rate {name} catches {most} of the errors, with {f.metric} {kept} (it rejects "
            f"{rejected})."
        )
    return (
        f"At that rate the {len(f.rejectors) - 1} others catch {span} of the errors; "
        f"their best {f.metric} is {kept} ({name}, which rejects {rejected})."
    )


def uneven(f: Findings) -> str:
    """Return a sentence on periods in which far more was rejected than in others, empty if there are none."""
    u = f.unevenness
    if u is None:
        return ""
    return (
        f"Not evenly: in {u.periods:,} of {counted(u.of_periods, f.unit)} it would have rejected "
        f"{percent(u.limit)} or more, up to {percent(u.highest)} in {plain(u.highest_in)}, while in a "
        f"quarter of the {f.unit}s it rejected {percent(u.quiet)} or less."
    )


def tiles(f: Findings) -> list[tuple[str, str, str]]:
    """Return labels, values, and what to compare them with."""
    o, first = f.overall, f.rejectors[0]
    right, rate = o.rejected - o.caught, percent(first.rejection_rate, 1)
    caught = (
        f"{o.caught:,} of {o.errors:,}; at random {rate}" if o.errors else "undefined: there are no errors"
    )
    wrong, metric = f"{percent(first.error_baseline, 1)} of all", f"{figure(first.all, 3)} of all"
    if o.rejected == o.objects:
        wrong = "undefined: nothing is kept"
    if math.isnan(first.kept):
        metric = "undefined: see above"
    were_right = f"{right:,} of {o.rejected:,} rejected" if o.rejected else "undefined: nothing is rejected"
    tiles = [
        ("rejected", rate, _half(f, "rejection_rate") + f"{o.rejected:,} of {counted(o.objects, 'object')}"),
        ("of the errors caught", percent(first.errors_caught, 1), _half(f, "errors_caught") + caught),
        ("of the kept are wrong", percent(first.error_kept, 1), _half(f, "error_kept") + wrong),
        (f"{f.metric} of the kept", figure(first.kept, 3), _half(f, "kept", figure) + metric),
        ("of the rejected were right", percent(ratio(right, o.rejected), 1), were_right),
    ]
    for c in positive_first(f) if f.n_classes == 2 else positions(f):
        n = int(f.class_sizes[c])
        note = f"{round(n * first.of_classes[c]):,} of {n:,}" if n else "undefined: there are none"
        half = f"± {points(f.halves[0].of_classes[c])}; " if f.halves else ""
        name = plain(f.classes[c], 20)
        tiles.append((f"of class {name} rejected", percent(first.of_classes[c], 1), half + note))
    return tiles


def biases(f: Findings) -> list[tuple[str, str]]:
    """Return names and messages of the checks for bias that fired."""
    found = f.manifest.get("biases") or {}
    return [(_heading(name), plain(message, _MAX_MESSAGE)) for name, message in found.items()]


def limits(f: Findings) -> list[str]:
    """Return what the numbers do not promise."""
    o = f.overall
    first = f.in_words.get(f.rejectors[0].name, {})
    under_drift = [first["under_drift"]] if first.get("under_drift") else []
    if retrain := _retraining(f):
        under_drift.append(f"It learns from labels ({retrain}); between two times it does not follow drift.")
    return [
        "This is the past. Future objects may drift faster, or in other ways.",
        *under_drift,
        "Labels are taken as true. Wrong or late labels make these figures wrong, too.",
        f"Not every rejected answer is wrong ({o.rejected - o.caught:,} of {o.rejected:,} were right), and "
        f"not every kept one is right ({o.errors - o.caught:,} of {o.objects - o.rejected:,} were wrong).",
        "Figures of the kept leave out the rejected. Someone has to review those, or they stay unanswered: "
        f"{o.rejected / len(f.periods):,.0f} objects per {f.unit} on average.",
        "Credibility is not the probability that an answer is right.",
        "Rejectors are comparable only where they reject the same share. Small differences can be chance: "
        + (
            "± is half of the 95% interval of the mean over seeds, which covers chance in fitting and "
            "calibrating, and not in the objects that were tested."
            if len(f.seeds) > 1
            else "repeat the backtest with other seeds."
        ),
        "If the measure orders objects as the detector's own score does, thresholds on that score would "
        "have rejected the same objects.",
    ]


def manifest(f: Findings) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return headings with names and values; biases are elsewhere on the page."""
    groups: dict[str, dict[str, Any]] = {"Run": {}}
    for key, value in f.manifest.items():
        if isinstance(value, dict):
            groups[_heading(key)] = value
        else:
            groups["Run"][_DIGESTS.get(key) or _heading(key)] = value
    groups.pop("Biases", None)
    sections, room = [], _MAX_MANIFEST
    for heading, values in groups.items():
        unit = "s" if heading == "Seconds" else ""
        entries = [(plain(name), _value(value, unit)) for name, value in values.items()]
        room -= sum(len(name) + len(text) for name, text in entries)
        sections.append((heading, entries if room > 0 else [("", "too long to show")]))
    return sections


def rejector_names(f: Findings) -> list[str]:
    """Return printable and distinct names of the rejectors."""
    return distinct(rejector.name for rejector in f.rejectors)


def positive_name(f: Findings) -> str:
    """Return the name of the positive class, empty if there is none."""
    return "".join(map(plain, f.positive))


def of_classes(f: Findings, shares: FloatArray) -> str:
    """Return the share of each class that is rejected; of many classes, the highest and the lowest."""
    defined = [c for c in positive_first(f) if not math.isnan(shares[c])]
    named = [f"{percent(shares[c])} of class {plain(f.classes[c], 24)}" for c in defined]
    if len(defined) <= _MAX_CLASSES_NAMED:
        return ", ".join(named)
    often = [i for i, c in enumerate(defined) if f.class_sizes[c] >= FEW_OBJECTS] or [*range(len(defined))]
    most, least = (pick(often, key=lambda i: shares[defined[i]]) for pick in (max, min))
    return ", ".join([*named[: len(f.positive)], f"at most {named[most]}, at least {named[least]}"])


def positions(f: Findings) -> list[int]:
    """Return the position of the positive class, if there is one."""
    return [c for c in range(f.n_classes) if f.classes[c] in f.positive]


def positive_first(f: Findings) -> list[int]:
    """Return the positions of all classes, that of the positive one first."""
    return sorted(range(f.n_classes), key=lambda c: c not in positions(f))


def percent(share: float, digits: int = 0) -> str:
    """Return a share in percent, where only exactly 0 and 1 are 0% and 100%."""
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


def ratio(part: float, whole: float) -> float:
    """Return a share of a whole, NaN if the whole is zero."""
    return part / whole if whole else math.nan


def plain(text: Any, length: int = _MAX_NAME) -> str:
    """Return text on one line, without control characters, and without its middle if it is long."""
    line = " ".join(str(text).split())
    if not line.isprintable():
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return shorten(line, length) or "(no name)"


def distinct(names: Iterable[Any]) -> list[str]:
    """Return names as `plain` shows them, numbered where these are equal."""
    seen: dict[str, int] = {}
    shown = []
    for name in map(plain, names):
        seen[name] = seen.get(name, 0) + 1
        shown.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return shown


def points(share: float) -> str:
    """Return a difference of shares in percentage points, without a unit."""
    return f"{100 * share:.1f}"


def _half(f: Findings, key: str, write: Callable[[float], str] = points) -> str:
    """Return half of the interval over seeds of the first rejector's figure; empty for one seed."""
    return f"± {write(getattr(f.halves[0], key))}; " if f.halves else ""


def _tested(f: Findings) -> str:
    return f"{counted(f.overall.objects, 'object')} in {counted(len(f.periods), f.unit)}"


def _training(train: Any) -> str:
    if isinstance(train, list | tuple):
        return " up to ".join(plain(time, 24) for time in train)
    return plain(train) if str(train).startswith("rows") else f"objects older than {plain(train, 24)}"


def _retraining(f: Findings) -> str:
    retrain = str(f.manifest.get("retrain"))
    return "" if retrain == "None" else plain(retrain, 120)


def _metric_of_kept(f: Findings) -> str:
    first = f.rejectors[0]
    if math.isnan(first.all):
        return _undefined(f, "all")
    if math.isnan(first.kept):
        return f"{_undefined(f, 'kept')}, against {figure(first.all, 2)} of all"
    equal = figure(first.kept, 2) == figure(first.all, 2) and first.kept != first.all
    kept, everything = (figure(value, 3 if equal else 2) for value in (first.kept, first.all))
    if first.kept > first.all:
        return f"{f.metric} of the kept answers is {kept} against {everything} of all"
    if first.kept < first.all:
        word = "but" if first.errors_caught > first.rejection_rate else "and"
        return f"{word} {f.metric} of the kept answers is {kept}, lower than the {everything} of all"
    return f"{f.metric} of the kept answers is {kept}, the same as of all"


def _undefined(f: Findings, subset: str) -> str:
    missing = f"since class {positive_name(f)} neither occurs nor is predicted"
    if subset == "all":
        return f"F1 is undefined, {missing}"
    return f"F1 of the kept answers is undefined, {missing} among them"


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
    shown = plain(text, _MAX_VALUE)
    return shown if len(text) <= _MAX_VALUE else f"{shown} ({len(text):,} characters, shortened)"
