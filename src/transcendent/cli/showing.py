"""The output of commands, for people or as JSON."""

import json
import math
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from transcendent._utils.text import WIDTH, some, visible

if TYPE_CHECKING:
    from transcendent.artifacts import Artifact
    from transcendent.artifacts.versions import VersionDifference
    from transcendent.monitoring import DriftMonitor
    from transcendent.report.checking import Checked
    from transcendent.temporal import Backtest, RepeatedBacktest


def show(text: str, data: dict[str, Any], as_json: bool) -> None:
    """Print text, or data as JSON."""
    sys.stdout.write((json.dumps(_plain(data), indent=2) if as_json else visible(text, keep="\n")) + "\n")


def lines(**entries: Any) -> str:
    """Return names and values in aligned lines; None is left out."""
    shown = {name.replace("_", " "): value for name, value in entries.items() if value is not None}
    width = max(map(len, shown))
    return "\n".join(f"{name.ljust(width)}  {visible(str(value))}" for name, value in shown.items())


def percents(low: float, high: float, digits: int) -> str:
    """Return an interval of shares; once if both ends are shown alike."""
    first, last = f"{low:.{digits}%}", f"{high:.{digits}%}"
    return first if first == last else f"{first} to {last}"


def signature(artifact: "Artifact") -> str:
    """Return whether an artifact is signed, and what that proves."""
    if artifact.signature_checked:
        return "It is signed by the owner of the key."
    if artifact.signed:
        return "It is signed (signer not verified; pass --public-key)."
    return "It is not signed: its author is unknown, and a crafted file can pass every other check."


def versions(differences: "list[VersionDifference]") -> str:
    """Return whether an artifact was written with other versions."""
    from transcendent.artifacts.versions import in_words

    return in_words(differences) if differences else "It was written with the installed versions."


def facts(artifact: "Artifact") -> dict[str, Any]:
    """Return the facts about an artifact that need no loading."""
    return {
        "path": artifact.path,
        "sha256": artifact.digest,
        "signed": artifact.signed,
        "types_to_trust": artifact.types_to_trust(),
        **{key: value for key, value in artifact.manifest.items() if key != "files"},
        "files": {name: len(content) for name, content in artifact.entries.items()},
    }


def artifact(artifact: "Artifact") -> str:
    """Describe an artifact in lines, with its thresholds."""
    said = artifact.manifest
    features = said["features"]
    known = artifact.layout().names_to_show if features["count"] else None
    names = f": {some(list(map(str, known)), 4)}" if known else ""
    calibration = [entry["objects"] for entry in said["calibration"]]
    repeated = f", {said['repeated']:,} of them equal to training rows" if said.get("repeated") else ""
    scores = said["notes"].get("scores")
    judged = scores.get("scores") if isinstance(scores, dict) else None
    text = lines(
        rejector=said["description"],
        trained_on=" to ".join(said["training_period"]) if said["training_period"] else None,
        learnt_from=said["notes"].get("learnt"),
        classes=some([str(label) for label in said["classes"] or []]) or None,
        scores=some(list(map(str, judged))) if isinstance(judged, list) else None,
        features=None if features["count"] is None else f"{features['count']:,}{names}",
        calibrated_on=f"{some([f'{n:,}' for n in calibration])} objects{repeated}" if calibration else None,
        written=f"{said['created']} by transcendent {said['versions']['transcendent']}, "
        f"scikit-learn {said['versions']['scikit-learn']}, Python {said['versions']['python']}",
        format=said["format"],
        sha256=artifact.digest,
        signed="yes" if artifact.signed else "no",
        to_be_trusted=", ".join(artifact.types_to_trust()) or None,
    )
    if said["thresholds"] and said["classes"] and said["rejector"] != "RejectionBudget":
        text += "\n\n" + thresholds(said["classes"], said["thresholds"])
    return text


def thresholds(classes: list[Any], promises: list[dict[str, Any]]) -> str:
    """Return thresholds in aligned columns, and the rates on calibration objects."""
    from transcendent._utils.listing import Listing

    shown = range(min(len(classes), 12))
    used = [key for key in ("credibility", "confidence") if any(max(p[key]) > 0 for p in promises)]
    head = ["class", *(f"{key} from" for key in used)]
    rows = [[str(classes[c]), *(_span([p[key][c] for p in promises]) for key in used)] for c in shown]
    more = f"\n… and {len(classes) - len(shown)} more classes" if len(classes) > len(shown) else ""
    return f"{Listing(head, rows).as_text()}{more}\n{_promised(promises)}"


def objects(found: dict[str, Any]) -> str:
    """Describe objects and their split, with the problems to solve before a fit."""
    from transcendent.experiments.survey import in_words, listed

    classes = found.get("classes", [])
    labelled = sum(entry["objects"] for entry in classes)
    counts = [f"{c['class']}: {c['objects']:,} ({c['objects'] / labelled:.1%})" for c in classes]
    seen = None
    if "seen" in found:
        (first, last), sizes = found["seen"], found["periods"].values()
        seen = f"{first} to {last}, {len(sizes)} periods of {min(sizes):,} to {max(sizes):,} objects"
    text = lines(
        objects=f"{found['objects']:,}",
        features=None if found["features"] is None else f"{found['features']:,}",
        left_out=f"{found['left_out']:,}: {in_words(found['left_out_by_cause'])}"
        if "left_out" in found
        else None,
        classes=some(counts) or None,
        seen=seen,
        training=f"{found['training']:,} objects" if "training" in found else None,
        test=f"{found['test']:,} objects" if "test" in found else None,
    )
    if found["problems"]:
        text += f"\n\nto solve in the TOML file before a fit\n{listed(found['problems'])}"
        text += "" if found["toml"] else f"\n\ntranscendent init {found['file']} writes one"
    if "biases" not in found:
        return text + "\n\nno split to check: set --train TIME, or train under [split]"
    biases = [
        f"{'refused' if bias.refuses else 'warning'}: {bias.name}: {bias.message}" for bias in found["biases"]
    ]
    return "\n".join([text, "", *(biases or ["no bias found in the split"])])


def answers(found: "Checked") -> str:
    """Return what past answers show: the objects tested, then a paragraph for each heading."""
    from transcendent.temporal.result import headline

    width = max(len(heading) for heading, _ in found.lead) + 2
    paragraphs = [
        textwrap.fill(heading.ljust(width) + text, WIDTH, subsequent_indent=" " * width)
        for heading, text in found.lead
    ]
    return "\n".join([headline(found.result), "", *paragraphs])


def alarms(monitor: "DriftMonitor") -> dict[str, Any]:
    """Return the state of a monitor's alarms."""
    rejections = monitor.rejections
    return {
        "objects": monitor.n,
        "threshold": monitor.settings.threshold,
        "alarm_at": None if monitor.alarm is None else monitor.alarm.at,
        "log_value": monitor.log_value,
        "alarms_at": {label: alarm.at for label, alarm in monitor.alarms.items()},
        "log_values": monitor.log_values,
        "rejected": rejections.rate,
        "calibrated": rejections.calibrated,
        "explained": rejections.expected,
        "rejection_alarm_at": None if rejections.alarm is None else rejections.alarm.at,
    }


def results(result: "Backtest | RepeatedBacktest") -> dict[str, Any]:
    """Return the results of a backtest; of several seeds, the seeds and their means."""
    from transcendent.temporal import RepeatedBacktest

    if isinstance(result, RepeatedBacktest):
        return {"seeds": list(result.results), "summary": result.summary()}
    return {
        "objects": len(result.y),
        "periods": list(result.periods),
        "pos_label": result.pos_label,
        "summary": result.summary(),
        "biases": result.manifest["biases"],
        "monitors": result.monitors,
    }


def _promised(promises: list[dict[str, Any]]) -> str:
    objective = promises[0]["objective"]
    rejected = (
        f"rejects {_span([100 * p['rejection_rate'] for p in promises], 1)}% of the calibration objects"
    )
    if objective is None or promises[0]["value"] is None:
        return rejected
    proven = " (proven best of thresholds from 0 to 1)" if all(p["certified"] for p in promises) else ""
    objective = objective.removesuffix("()")
    return f"{rejected}; {objective} there is {_span([p['value'] for p in promises])}{proven}"


def _span(values: list[float], digits: int = 4) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low}–{high}"


def _plain(value: Any) -> Any:
    """Return a value as JSON types; NaN and infinity become null."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)
