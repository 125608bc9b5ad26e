"""What leaves the object before skops writes it: calibration arrays and the boosters of other libraries."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import to_npz
from transcendent._utils.extras import extra
from transcendent.artifacts.archives import read_arrays
from transcendent.artifacts.contents import reachable
from transcendent.errors import ArtifactError
from transcendent.judging.calibration import Calibration
from transcendent.judging.merging import Merging

_BOOSTERS = {"lightgbm.basic.Booster": "lightgbm.txt", "xgboost.core.Booster": "xgboost.json"}
_ARRAYS = ("scores", "actual", "predicted")


@dataclass(frozen=True)
class StoredBooster:
    """Stands where a LightGBM or XGBoost model was."""

    member: str


@dataclass(frozen=True)
class StoredCalibration:
    """Stands where calibration objects were; holds what is not an array of numbers."""

    member: str
    classes: Any
    form: Any
    label: Any
    merging: Any


def take_apart(rejector: Any) -> tuple[Any, dict[str, bytes]]:
    """A copy of the rejector in which parts are replaced by their names, and these parts as files."""
    members: dict[str, bytes] = {}

    def store(thing: Any) -> Any:
        if isinstance(thing, Mapping) and any(isinstance(key, bool) for key in thing):
            raise ArtifactError(f"this rejector cannot be saved: {thing!r:.60} has True or False for a key.")
        if isinstance(thing, Calibration):
            member = f"calibration-{len(members)}.npz"
            members[member] = to_npz({name: getattr(thing, name) for name in _ARRAYS})
            merging = None if thing.merging is None else dict(vars(thing.merging))
            return StoredCalibration(member, thing.classes, thing.form, thing.label, merging)
        if (suffix := _BOOSTERS.get(type_name(thing))) is not None:
            member = f"booster-{len(members)}.{suffix}"
            members[member] = _booster_to_bytes(thing)
            return StoredBooster(member)
        return None

    return _exchange(rejector, store), members


def put_together(
    skeleton: Any, calibrations: Mapping[str, dict[str, Any]], members: Mapping[str, bytes]
) -> Any:
    """The rejector, with what its files hold in place of their names."""

    def restore(thing: Any) -> Any:
        if isinstance(thing, StoredCalibration):
            arrays = calibrations[thing.member]
            if arrays["scores"].shape[1] != len(thing.classes):
                raise ArtifactError(f"{thing.member} in it does not have a column for each class.")
            if (arrays["scores"].ndim == 2) != (thing.merging is None):
                raise ArtifactError(f"{thing.member} in it does not have the parts it is to merge.")
            return Calibration(
                classes=thing.classes,
                **{name: arrays[name] for name in _ARRAYS},
                form=thing.form,
                label=thing.label,
                merging=_merging(thing, arrays["scores"]),
            )
        if isinstance(thing, StoredBooster):
            return _booster_from_bytes(thing.member, members[thing.member])
        return None

    return _exchange(skeleton, restore)


def _merging(stored: StoredCalibration, scores: Any) -> Merging | None:
    if stored.merging is None:
        return None
    try:
        merging = Merging(**stored.merging)
        merging.check_members(scores.shape[2])
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{stored.member} in it cannot be merged: {error}") from None
    return merging


def booster_types(members: Iterable[str]) -> set[str]:
    """The types whose parsers, not written in Python, the members would be given to."""
    return {kind for kind, suffix in _BOOSTERS.items() for member in members if member.endswith(suffix)}


def booster_libraries(members: Iterable[str]) -> list[str]:
    """The libraries whose boosters are among the members."""
    return sorted(kind.partition(".")[0] for kind in booster_types(members))


def read_calibrations(members: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """The arrays of each member that holds calibration objects, checked to belong together."""
    found = {}
    for member, data in members.items():
        if member.startswith("calibration-"):
            arrays = found[member] = read_arrays(member, data)
            if set(arrays) != set(_ARRAYS) or not _belong_together(**arrays):
                raise ArtifactError(f"{member} in it does not hold the arrays of calibration objects.")
    return found


def type_name(thing: Any) -> str:
    """Module and name of a thing's type."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _belong_together(scores: Any, actual: Any, predicted: Any) -> bool:
    n, kinds = len(actual), (scores.dtype.kind, actual.dtype.kind, predicted.dtype.kind)
    if scores.ndim not in (2, 3) or kinds != ("f", "i", "i") or not len(scores) == n == len(predicted) > 0:
        return False
    codes = np.concatenate([actual, predicted], axis=None)
    return bool(np.all((codes >= 0) & (codes < scores.shape[1])) and not np.isnan(scores).any())


def _booster_to_bytes(booster: Any) -> bytes:
    if type(booster).__module__.startswith("lightgbm"):
        text: str = booster.model_to_string(num_iteration=-1)
        return text.encode()
    return bytes(booster.save_raw("json"))


def _booster_from_bytes(member: str, data: bytes) -> Any:
    if member.endswith(_BOOSTERS["lightgbm.basic.Booster"]):
        return extra("lightgbm", "lightgbm").Booster(model_str=data.decode())
    if not member.endswith(_BOOSTERS["xgboost.core.Booster"]):
        raise ArtifactError(f"it takes {member!r:.60} for a model.")
    booster = extra("xgboost", "xgboost").Booster()
    booster.load_model(bytearray(data))
    return booster


def _exchange(root: Any, substitute: Callable[[Any], Any]) -> Any:
    """A copy with some of its parts substituted; arrays and sources of random numbers are not copied."""
    copies: dict[int, Any] = {}
    for thing in reachable(root):
        if _is_data(thing):
            copies[id(thing)] = thing
        elif (other := substitute(thing)) is not None:
            copies[id(thing)] = other
    return deepcopy(root, copies)


def _is_data(thing: Any) -> bool:
    numbers = isinstance(thing, np.ndarray) and thing.dtype != object
    return numbers or isinstance(thing, np.random.RandomState | np.random.Generator) or sp.issparse(thing)
