"""A rejector as the entries of an artifact, and back.

Calibration objects become ``.npz`` entries, boosters entries in their libraries' own formats. The rest of the
rejector is written by skops.
"""

import importlib
import io
import warnings
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import InconsistentVersionWarning

from transcendent._utils.arrays import AnyArray, from_npz, to_npz
from transcendent._utils.extras import extra
from transcendent.artifacts import boosters
from transcendent.artifacts.contents import check_contents, check_opens_no_files, reachable
from transcendent.artifacts.parts import StoredBooster, StoredCalibration
from transcendent.artifacts.rejectors import check_rejector
from transcendent.artifacts.unpacking import check_unpacked_size
from transcendent.errors import ArtifactError
from transcendent.judging.calibration import Calibration
from transcendent.judging.merging import Merging

SKOPS = "rejector.skops"

_ARRAYS = ("scores", "actual", "predicted")

Calibrations = dict[str, dict[str, AnyArray]]


def to_entries(rejector: Any) -> dict[str, bytes]:
    """Return the entries of a rejector by name, or raise an `ArtifactError` that says why it has none."""
    check_opens_no_files(rejector)
    entries: dict[str, bytes] = {}

    def store(thing: Any) -> Any:
        if isinstance(thing, Mapping) and any(isinstance(key, bool) for key in thing):
            raise ArtifactError(f"{thing!r:.60} has True or False for a key.")
        if isinstance(thing, Calibration):
            name = f"calibration-{len(entries)}.npz"
            entries[name] = to_npz({array: getattr(thing, array) for array in _ARRAYS})
            merging = None if thing.merging is None else dict(vars(thing.merging))
            return StoredCalibration(name, thing.classes, thing.form, thing.label, merging, thing.apart)
        if suffix := boosters.suffix_of(thing):
            name = f"booster-{len(entries)}.{suffix}"
            entries[name] = boosters.to_bytes(thing)
            boosters.check(name, entries[name])  # what would not be loaded is not saved
            return StoredBooster(name)
        return None

    try:
        skeleton = _exchange(rejector, store)
    except TypeError as error:
        raise ArtifactError(f"it holds something that lives in this process only: {error}.") from error
    return entries | {SKOPS: _to_skops(skeleton)}


def from_entries(entries: Mapping[str, bytes], calibrations: Calibrations, trusted: Collection[str]) -> Any:
    """Build the rejector, and check what was built before any of it is used."""

    def restore(thing: Any) -> Any:
        if isinstance(thing, StoredCalibration):
            return _restored(thing, calibrations[thing.member])
        if isinstance(thing, StoredBooster):
            return boosters.from_bytes(thing.member, entries[thing.member])
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # one for each estimator
        skeleton = extra("skops.io", "artifacts").loads(entries[SKOPS], trusted=trusted)
        check_contents(skeleton)
        built = _exchange(skeleton, restore)
    check_rejector(built)
    return built


def read_calibrations(entries: Mapping[str, bytes]) -> Calibrations:
    """Return the arrays of each entry that holds calibration objects, checked to belong together."""
    found = {}
    for name, data in entries.items():
        if name.startswith("calibration-"):
            check_unpacked_size(name, data)
            arrays = found[name] = from_npz(io.BytesIO(data))
            if set(arrays) != set(_ARRAYS) or not _belong_together(**arrays):
                raise ArtifactError(f"{name} in it does not hold the arrays of calibration objects.")
    return found


def _exchange(root: Any, substitute: Callable[[Any], Any]) -> Any:
    """Return a copy with some things substituted; arrays and sources of random numbers are not copied."""
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
                "loaded. Put it into a module, and import it from there."
            )
        if not _can_be_imported(module, attribute):
            raise ArtifactError(
                f"{name} cannot be imported by its name. Use a function or class of a module, not a lambda."
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
        raise ArtifactError(f"{stored.member} in it does not have a column for each class.")
    if (len(shape) == 2) != (stored.merging is None):
        raise ArtifactError(f"{stored.member} in it does not have the scores it is to merge.")
    merging = None
    if stored.merging is not None:
        try:
            merging = Merging(**stored.merging)
            merging.check_members(shape[2])
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"{stored.member} in it cannot be merged: {error}") from None
    if not isinstance(stored.apart, int | None):
        raise ArtifactError(f"{stored.member} in it has no seed of objects that only test.")
    return Calibration(
        classes=stored.classes,
        **arrays,
        form=stored.form,
        label=stored.label,
        merging=merging,
        apart=stored.apart,
    )


def _belong_together(scores: AnyArray, actual: AnyArray, predicted: AnyArray) -> bool:
    n, kinds = len(actual), (scores.dtype.kind, actual.dtype.kind, predicted.dtype.kind)
    if scores.ndim not in (2, 3) or kinds != ("f", "i", "i") or not len(scores) == n == len(predicted) > 0:
        return False
    codes = np.concatenate([actual, predicted], axis=None)
    return bool(np.all((codes >= 0) & (codes < scores.shape[1])) and not np.isnan(scores).any())
