"""The manifest of an artifact: what it says of the entries and the rejector, and whether that is true."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from transcendent._utils.provenance import describe, plain
from transcendent.artifacts.entries import Calibrations
from transcendent.errors import ArtifactError
from transcendent.rejectors import Traits
from transcendent.thresholds.base import SearchResult

FORMAT = 1
MANIFEST = "manifest.json"


def write_manifest(said: Mapping[str, Any], entries: Mapping[str, bytes]) -> bytes:
    """Return a manifest that also lists the entries, with their sizes and digests."""
    files = {name: {"size": len(data), "sha256": _sha256(data)} for name, data in entries.items()}
    return json.dumps({"format": FORMAT, **said, "files": files}, indent=2, allow_nan=False).encode()


def read_manifest(text: bytes | None, entries: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a manifest, refused unless it is complete and lists exactly these entries."""
    if text is None:
        raise ArtifactError(f"it holds no {MANIFEST}.")
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format"]
        complete = version != FORMAT or _is_complete(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        complete = False
    if not complete:
        raise ArtifactError(f"its {MANIFEST} is not the manifest of an artifact.")
    if type(version) is not int or version < 1:
        raise ArtifactError(f"its {MANIFEST} names the format {version!r:.40}, which does not exist.")
    if version > FORMAT:
        raise ArtifactError(
            f"it has format {version}, and this transcendent reads up to {FORMAT}. Upgrade transcendent."
        )
    _check_files(manifest["files"], entries)
    return manifest


def facts(rejector: Any) -> dict[str, Any]:
    """Return parameters, classes, features, calibration objects and thresholds as JSON can hold them."""
    traits = Traits.of(rejector)
    classes, names = traits.classes, traits.feature_names
    return plain(
        {
            "rejector": type(rejector).__name__,
            "description": describe(rejector),
            "classes": None if classes is None else classes.tolist(),
            "features": {
                "count": traits.n_features,
                "names": None if names is None else names.tolist(),
            },
            "calibration": [
                {"objects": len(c.scores), "per_class": c.counts.tolist()} for c in traits.calibrations
            ],
            "repeated": _count_repeated(rejector),
            "thresholds": [_promise(result) for result in traits.results],
        }
    )


def _count_repeated(rejector: Any) -> int | None:
    """Return the number of calibration objects that equal rows that trained, if it was counted."""
    outer = getattr(rejector, "rejector_", rejector)
    found: int | None = getattr(getattr(outer, "evaluator_", outer), "n_repeated_", None)
    return found


def check_sizes(manifest: Mapping[str, Any], calibrations: Calibrations) -> None:
    """Refuse a manifest that counts other calibration objects than there are."""
    stated = sorted(entry["objects"] for entry in manifest["calibration"])
    found = sorted(len(arrays["actual"]) for arrays in calibrations.values())
    if stated != found:
        raise ArtifactError(f"its manifest counts {stated!r:.120} calibration objects; there are {found}.")


def check_facts(manifest: Mapping[str, Any], rejector: Any) -> None:
    """Refuse a manifest that is not true of the rejector."""
    found = facts(rejector)
    for key in ("rejector", "classes", "features", "calibration", "thresholds"):
        if manifest[key] != found[key]:
            raise ArtifactError(
                f"its manifest says of {key} {manifest[key]!r:.120}; it holds {found[key]!r:.120}."
            )


def _is_complete(manifest: dict[str, Any]) -> bool:
    """Return whether everything that is read from the manifest later is there, and of its kind."""
    features, classes, period = (manifest[key] for key in ("features", "classes", "training_period"))
    return (
        all(isinstance(manifest[key], str) for key in ("created", "rejector", "description"))
        and isinstance(manifest["notes"], dict)
        and {"python", "transcendent", "scikit-learn"} <= set(manifest["versions"])
        and all(isinstance(version, str) for version in manifest["versions"].values())
        and isinstance(classes, list | None)
        and (period is None or (isinstance(period, list) and all(isinstance(time, str) for time in period)))
        and isinstance(features["count"], int | None)
        and isinstance(features["names"], list | None)
        and all(isinstance(entry["objects"], int) for entry in manifest["calibration"])
        and isinstance(manifest.get("repeated"), int | None)
        and all(_is_promise(entry, len(classes or [])) for entry in manifest["thresholds"])
        and all({"size", "sha256"} <= set(file) for file in manifest["files"].values())
    )


def _is_promise(entry: dict[str, Any], n_classes: int) -> bool:
    numbers = [*entry["credibility"], *entry["confidence"], entry["rejection_rate"], entry["value"] or 0]
    return (
        len(entry["credibility"]) == len(entry["confidence"]) == n_classes
        and all(isinstance(number, int | float) for number in numbers)
        and isinstance(entry["objective"], str | None)
        and isinstance(entry["certified"], bool)
    )


def _check_files(files: Mapping[str, Any], entries: Mapping[str, bytes]) -> None:
    if odd := sorted(set(files) ^ set(entries)):
        raise ArtifactError(f"{odd[0]!r:.80} is in its manifest or among its files, but not in both.")
    for name, data in entries.items():
        if files[name]["size"] != len(data):
            size = files[name]["size"]
            raise ArtifactError(f"its manifest says {name} has {size!r:.40} bytes; it has {len(data)}.")
        if files[name]["sha256"] != _sha256(data):
            raise ArtifactError(f"{name} in it does not have the digest its manifest gives.")


def _promise(result: SearchResult) -> dict[str, Any]:
    return {
        "credibility": result.credibility_thresholds.tolist(),
        "confidence": result.confidence_thresholds.tolist(),
        "objective": None if result.objective is None else str(result.objective),
        "value": None if math.isnan(result.value) else result.value,
        "rejection_rate": result.rejection_rate,
        "certified": result.certified,
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
