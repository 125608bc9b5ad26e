"""The manifest of an artifact: facts about its entries and its rejector, and checks that they are true."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from transcendent._utils.provenance import describe, plain
from transcendent.artifacts.entries import Calibrations
from transcendent.decisions import Fitted, declared
from transcendent.errors import ArtifactError
from transcendent.thresholds.base import SearchResult

FORMAT = 2  # in format 1, entries were not compressed
MANIFEST = "manifest.json"


def write_manifest(content: Mapping[str, Any], entries: Mapping[str, bytes]) -> bytes:
    """Return a manifest with this content and a list of the entries, their sizes and digests."""
    files = {name: {"size": len(data), "sha256": _sha256(data)} for name, data in entries.items()}
    return json.dumps({"format": FORMAT, **content, "files": files}, indent=2, allow_nan=False).encode()


def read_manifest(text: bytes | None, entries: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a manifest; refuse it unless it is complete and lists exactly these entries."""
    if text is None:
        raise ArtifactError(f"it has no {MANIFEST}.")
    try:
        manifest: dict[str, Any] = json.loads(text)
        version = manifest["format"]
        complete = version not in (1, FORMAT) or _is_complete(manifest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        complete = False
    if not complete:
        raise ArtifactError(f"its {MANIFEST} is not a valid manifest.")
    if type(version) is not int or version < 1:
        raise ArtifactError(f"its {MANIFEST} names an unknown format: {version!r:.40}.")
    if version > FORMAT:
        raise ArtifactError(
            f"it has format {version}, but this version reads up to {FORMAT}. Upgrade transcendent."
        )
    _check_files(manifest["files"], entries)
    return manifest


def facts(rejector: Any) -> dict[str, Any]:
    """Return parameters, classes, features, calibration objects and thresholds as JSON values."""
    fitted = declared(rejector).fitted
    classes, names = fitted.classes, fitted.feature_names
    return plain(
        {
            "rejector": type(rejector).__name__,
            "description": describe(rejector),
            "judges_scores": declared(rejector).judges_scores,
            "classes": None if classes is None else classes.tolist(),
            "features": {
                "count": fitted.n_features,
                "names": None if names is None else names.tolist(),
                **_column_types(fitted),
            },
            "calibration": [
                {"objects": len(judge.calibration_.scores), "per_class": judge.calibration_.counts.tolist()}
                for judge in fitted.judges
            ],
            "repeated": fitted.n_repeated,
            "thresholds": [_promise(result) for result in fitted.results],
        }
    )


def _column_types(fitted: Fitted) -> dict[str, list[str]]:
    """Return the kinds and types of the columns of a frame, nothing if there are none."""
    columns = fitted.columns
    if columns is None or fitted.feature_names is None or not columns.kinds:
        return {}
    return {"kinds": columns.kinds, "dtypes": columns.dtypes}


def check_sizes(manifest: Mapping[str, Any], calibrations: Calibrations) -> None:
    """Refuse a manifest with a wrong number of calibration objects."""
    stated = sorted(entry["objects"] for entry in manifest["calibration"])
    found = sorted(len(arrays["actual"]) for arrays in calibrations.values())
    if stated != found:
        raise ArtifactError(f"its manifest counts {stated!r:.120} calibration objects, but it has {found}.")


def check_facts(manifest: Mapping[str, Any], rejector: Any) -> None:
    """Refuse a manifest that does not match the rejector."""
    found = facts(rejector)
    for key in ("rejector", "classes", "features", "calibration", "thresholds"):
        if manifest[key] != found[key]:
            stated, actual = f"{manifest[key]!r:.120}", f"{found[key]!r:.120}"
            raise ArtifactError(f"its manifest has {key} {stated}, but its rejector has {actual}.")


def _is_complete(manifest: dict[str, Any]) -> bool:
    """Return whether all values that are read later exist and have the right type."""
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
        and all(_are_texts(features.get(key), features) for key in ("kinds", "dtypes"))
        and all(isinstance(entry["objects"], int) for entry in manifest["calibration"])
        and isinstance(manifest.get("repeated"), int | None)
        and all(_is_promise(entry, len(classes or [])) for entry in manifest["thresholds"])
        and all({"size", "sha256"} <= set(file) for file in manifest["files"].values())
    )


def _are_texts(given: Any, features: dict[str, Any]) -> bool:
    """Return whether a value is missing, or a list with a text for each feature name."""
    if given is None:
        return True
    return len(given) == len(features["names"]) and all(isinstance(each, str) for each in given)


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
        raise ArtifactError(f"{odd[0]!r:.80} is in its manifest or among its entries, but not in both.")
    for name, data in entries.items():
        if (size := files[name]["size"]) != len(data):
            raise ArtifactError(f"its manifest gives {name} {size!r:.40} bytes, but it has {len(data)}.")
        if files[name]["sha256"] != _sha256(data):
            raise ArtifactError(f"its {name} does not match the digest in its manifest.")


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
