"""Convert a rejector to the entries of an artifact, and back.

Calibration objects become ``.npz`` entries. Boosters become entries in their libraries' own formats. skops
writes the rest of the rejector.
"""

import importlib
import io
import warnings
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import InconsistentVersionWarning

from transcendent._utils.arrays import AnyArray, from_npz, to_npz
from transcendent._utils.extras import extra
from transcendent.artifacts import boosters
from transcendent.artifacts.contents import check_contents, check_opens_no_files, reachable
from transcendent.artifacts.rejectors import check_rejector
from transcendent.errors import ArtifactError
from transcendent.judging.calibration import Calibration
from transcendent.merging import Merging

SKOPS = "rejector.skops"

_ARRAYS = ("scores", "actual", "predicted")

Calibrations = dict[str, dict[str, AnyArray]]


# skops files hold the names of the next two types and of their attributes: renaming one breaks the format.
@dataclass(frozen=True)
class StoredBooster:
    """A placeholder for a LightGBM or XGBoost model in another entry."""

    entry: str


@dataclass(frozen=True)
class StoredCalibration:
    """A placeholder for calibration objects whose arrays are in another entry."""

    entry: str
    classes: Any
    p_value: Any
    label: Any
    merging: Any
    held_out_seed: Any


def to_entries(rejector: Any) -> dict[str, bytes]:
    """Return the entries of a rejector by name; raise an `ArtifactError` if it cannot be saved."""
    things = reachable(rejector)
    check_opens_no_files(things)
    entries: dict[str, bytes] = {}

    def store(thing: Any) -> Any:
        if isinstance(thing, Mapping) and any(isinstance(key, bool) for key in thing):
            raise ArtifactError(f"{thing!r:.60} has True or False as a key, which JSON cannot hold.")
        if isinstance(thing, Calibration):
            name = f"calibration-{len(entries)}.npz"
            entries[name] = to_npz({array: getattr(thing, array) for array in _ARRAYS})
            merging = None if thing.merging is None else dict(vars(thing.merging))
            return StoredCalibration(
                name, thing.classes, thing.p_value, thing.label, merging, thing.held_out_seed
            )
        if suffix := boosters.suffix_of(thing):
            name = f"booster-{len(entries)}.{suffix}"
            entries[name] = boosters.to_bytes(thing)
            boosters.check(name, entries[name])  # a model that would be refused by load is not saved
            return StoredBooster(name)
        return None

    try:
        skeleton = _substituted(rejector, things, store)
    except TypeError as error:
        raise ArtifactError(
            f"it holds a value that cannot be copied, such as a lock or an open file: {error}."
        ) from error
    return entries | {SKOPS: _to_skops(skeleton)}


def from_entries(entries: Mapping[str, bytes], calibrations: Calibrations, trusted: Collection[str]) -> Any:
    """Build the rejector, and check it before it is used."""

    def restore(thing: Any) -> Any:
        if isinstance(thing, StoredCalibration):
            return _restored(thing, calibrations[thing.entry])
        if isinstance(thing, StoredBooster):
            return boosters.from_bytes(thing.entry, entries[thing.entry])
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # the caller warns once for all
        skeleton = extra("skops.io", "artifacts").loads(entries[SKOPS], trusted=trusted)
        things = reachable(skeleton)
        check_contents(things)
        built = _substituted(skeleton, things, restore)
    check_rejector(built)
    return built


def read_calibrations(entries: Mapping[str, bytes]) -> Calibrations:
    """Return the arrays of calibration objects by entry; refuse arrays that do not match each other."""
    found = {}
    for name, data in entries.items():
        if name.startswith("calibration-"):
            arrays = found[name] = from_npz(io.BytesIO(data))
            if set(arrays) != set(_ARRAYS) or not _are_calibration_objects(**arrays):
                raise ArtifactError(f"its {name} does not hold valid calibration objects.")
    return found


def _substituted(root: Any, things: list[Any], substitute: Callable[[Any], Any]) -> Any:
    """Return a copy with substitutes; arrays and random number generators are shared, not copied."""
    copies: dict[int, Any] = {}
    for thing in things:
        is_array = (isinstance(thing, np.ndarray) and thing.dtype != object) or sp.issparse(thing)
        if is_array or isinstance(thing, np.random.RandomState | np.random.Generator):
            copies[id(thing)] = thing
        elif (other := substitute(thing)) is not None:
            copies[id(thing)] = other
    return deepcopy(root, copies)


def _to_skops(skeleton: Any) -> bytes:
    skops = extra("skops.io", "artifacts")
    try:
        data: bytes = skops.dumps(skeleton)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArtifactError(str(error)) from error
    for name in skops.get_untrusted_types(data=data):
        module, _, attribute = name.rpartition(".")
        if module == "__main__":
            raise ArtifactError(
                f"{attribute} is defined in a notebook or script, so it cannot be imported where the file is "
                "loaded. Move it to a module and import it from there."
            )
        if not _can_be_imported(module, attribute):
            raise ArtifactError(
                f"{name} cannot be imported by name. Use a function or class of a module, not a lambda."
            )
    return data


def _can_be_imported(module: str, attribute: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def _restored(stored: StoredCalibration, arrays: dict[str, AnyArray]) -> Calibration:
    shape = arrays["scores"].shape
    if shape[1] != len(stored.classes):
        raise ArtifactError(f"its {stored.entry} does not have a column for each class.")
    if (len(shape) == 2) != (stored.merging is None):
        raise ArtifactError(f"its {stored.entry} does not have the scores of all members to merge.")
    merging = None
    if stored.merging is not None:
        try:
            merging = Merging(**stored.merging)
            merging.check_members(shape[2])
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"the scores in its {stored.entry} cannot be merged: {error}") from None
    if not isinstance(stored.held_out_seed, int | None):
        raise ArtifactError(f"its {stored.entry} has an invalid seed for the split of test objects.")
    return Calibration(
        classes=stored.classes,
        **arrays,
        p_value=stored.p_value,
        label=stored.label,
        merging=merging,
        held_out_seed=stored.held_out_seed,
    )


def _are_calibration_objects(scores: AnyArray, actual: AnyArray, predicted: AnyArray) -> bool:
    n, kinds = len(actual), (scores.dtype.kind, actual.dtype.kind, predicted.dtype.kind)
    if scores.ndim not in (2, 3) or kinds != ("f", "i", "i") or not len(scores) == n == len(predicted) > 0:
        return False
    codes = np.concatenate([actual, predicted], axis=None)
    return bool(np.all((codes >= 0) & (codes < scores.shape[1])) and not np.isnan(scores).any())
