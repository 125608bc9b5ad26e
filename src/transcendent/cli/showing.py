"""What commands say about artifacts."""

from typing import TYPE_CHECKING, Any

from transcendent._utils.text import columns, some
from transcendent.cli import console

if TYPE_CHECKING:
    from transcendent.artifacts import Artifact
    from transcendent.artifacts.versions import VersionDifference


def signature(artifact: "Artifact") -> str:
    """Say whether an artifact is signed, and what that is worth."""
    if artifact.signature_checked:
        return "It is signed by the owner of the key."
    if artifact.signed:
        return "It is signed (signer not verified; pass --public-key)."
    return "It is not signed: nothing says who made it, and a crafted file can pass every other check."


def versions(differences: "list[VersionDifference]") -> str:
    """Say whether an artifact was written under other versions."""
    from transcendent.artifacts.versions import in_words

    return in_words(differences) if differences else "It was written under the versions that are here."


def facts(artifact: "Artifact") -> dict[str, Any]:
    """Return what is known of an artifact without loading it."""
    facts = {key: value for key, value in artifact.manifest.items() if key != "files"}
    return {
        "path": artifact.path,
        "sha256": artifact.digest,
        "signed": artifact.signed,
        "types_to_trust": artifact.types_to_trust(),
        **facts,
        "files": {name: len(content) for name, content in artifact.entries.items()},
    }


def described(artifact: "Artifact") -> str:
    """Describe an artifact in lines, with its thresholds."""
    said = artifact.manifest
    features = said["features"]
    names = f": {some(list(map(str, features['names'])), 4)}" if features["names"] else ""
    calibration = [entry["objects"] for entry in said["calibration"]]
    repeated = f", {said['repeated']:,} of which equal rows that trained" if said.get("repeated") else ""
    text = console.lines(
        rejector=said["description"],
        trained_on=" to ".join(said["training_period"]) if said["training_period"] else None,
        learnt_from=said["notes"].get("learnt"),
        classes=some([str(label) for label in said["classes"] or []]) or None,
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
        text += "\n\n" + threshold_table(said["classes"], said["thresholds"])
    return text


def threshold_table(classes: list[Any], promises: list[dict[str, Any]]) -> str:
    """Return a table of thresholds, and what they promise."""
    shown = range(min(len(classes), 12))
    used = [key for key in ("credibility", "confidence") if any(max(p[key]) > 0 for p in promises)]
    rows = [["class", *(f"{key} from" for key in used)]]
    rows += [[str(classes[c]), *(_span([p[key][c] for p in promises]) for key in used)] for c in shown]
    more = f"\n… and {len(classes) - len(shown)} more classes" if len(classes) > len(shown) else ""
    return f"{columns(rows)}{more}\n{_promised(promises)}"


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
