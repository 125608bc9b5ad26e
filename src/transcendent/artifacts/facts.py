"""What the manifest says of a rejector, and whether that is true of what was loaded."""

import math
from collections.abc import Mapping
from typing import Any

from transcendent._utils.arrays import AnyArray
from transcendent._utils.estimators import unwrapped
from transcendent._utils.provenance import describe, plain
from transcendent.errors import ArtifactError
from transcendent.judging.calibration import Calibration
from transcendent.thresholds.base import SearchResult


def facts(rejector: Any) -> dict[str, Any]:
    """Its parameters, classes, features, calibration objects and thresholds, as JSON can hold them."""
    classes = getattr(rejector, "classes_", None)
    names = getattr(rejector, "feature_names_in_", None)
    calibrations, results = _evidence(rejector)
    return plain(
        {
            "rejector": type(rejector).__name__,
            "description": describe(rejector),
            "classes": None if classes is None else classes.tolist(),
            "features": {
                "count": getattr(rejector, "n_features_in_", None),
                "names": None if names is None else names.tolist(),
            },
            "calibration": [{"objects": len(c.scores), "per_class": c.counts.tolist()} for c in calibrations],
            "thresholds": [_promise(result) for result in results],
        }
    )


def check_sizes(manifest: Mapping[str, Any], calibrations: Mapping[str, Mapping[str, AnyArray]]) -> None:
    """Refuse a manifest that counts other calibration objects than there are."""
    stated = manifest.get("calibration")
    found = [len(arrays["actual"]) for arrays in calibrations.values()]
    if not isinstance(stated, list) or sorted(_objects(entry) for entry in stated) != sorted(found):
        raise ArtifactError(
            f"its manifest says {stated!r:.120} of its calibration objects; they are {found}."
        )


def check_facts(manifest: Mapping[str, Any], rejector: Any) -> None:
    """Refuse a manifest that says other things of the rejector than are true."""
    found = facts(rejector)
    for key in ("rejector", "classes", "features", "calibration", "thresholds"):
        if manifest.get(key) != found[key]:
            raise ArtifactError(
                f"its manifest says of {key} {manifest.get(key)!r:.120}; it holds {found[key]!r:.120}."
            )


def _objects(entry: Any) -> int:
    count = entry.get("objects") if isinstance(entry, dict) else None
    return count if isinstance(count, int) else -1


def _evidence(rejector: Any) -> tuple[list[Calibration], list[SearchResult]]:
    """Calibration objects and thresholds of whatever kind of rejector this is."""
    rejector = unwrapped(rejector)
    inner = getattr(rejector, "evaluator_", rejector)
    judges = getattr(inner, "judges_", [inner])
    calibrations = [judge.calibration_ for judge in judges if hasattr(judge, "calibration_")]
    results = [judge.result_ for judge in judges if hasattr(judge, "result_")]
    if inner is not rejector:
        results = [rejector.result_] if hasattr(rejector, "result_") else []
    return calibrations, results


def _promise(result: SearchResult) -> dict[str, Any]:
    return {
        "credibility": result.credibility_thresholds.tolist(),
        "confidence": result.confidence_thresholds.tolist(),
        "objective": None if result.objective is None else str(result.objective),
        "value": None if math.isnan(result.value) else result.value,
        "rejection_rate": result.rejection_rate,
        "certified": result.certified,
    }
