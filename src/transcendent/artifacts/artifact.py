"""Save a fitted rejector, and load one without having to trust whoever saved it."""

import importlib
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

from transcendent.arrays import AnyArray
from transcendent.artifacts.archives import check_unpacked_size
from transcendent.artifacts.container import Key, pack, unpack
from transcendent.artifacts.contents import check_contents, check_opens_no_files
from transcendent.artifacts.facts import check_facts, check_sizes, facts
from transcendent.artifacts.parts import (
    booster_types,
    put_together,
    read_calibrations,
    take_apart,
)
from transcendent.artifacts.schema import read_schema, type_names
from transcendent.artifacts.types import TYPES
from transcendent.errors import ArtifactError, MissingExtraError
from transcendent.extras import extra
from transcendent.files import write_whole
from transcendent.temporal.provenance import versions

_SKOPS = "rejector.skops"
_COMPILED = {
    "lightgbm.basic.Booster",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.svm._classes.NuSVC",
    "sklearn.svm._classes.NuSVR",
    "sklearn.svm._classes.OneClassSVM",
    "sklearn.svm._classes.SVC",
    "sklearn.svm._classes.SVR",
    "sklearn.tree._tree.Tree",
    "xgboost.core.Booster",
}

T = TypeVar("T")


def save(
    rejector: Any,
    path: Any,
    *,
    training_period: tuple[Any, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    signing_key: Key | None = None,
) -> str:
    """Write a fitted rejector to one file, and return the file's digest.

    The file is a zip archive with a JSON manifest, the estimators as skops, calibration objects as ``.npz``,
    LightGBM and XGBoost models in these libraries' own formats; nothing in it is a pickle.

    Parameters
    ----------
    rejector : fitted rejector
        An evaluator or baseline.
    path : path
        Where to write; an existing file is replaced once the new one is complete.
    training_period : pair of times or None
        From when to when its training rows were seen, for the manifest.
    notes : dict or None
        Anything else for the manifest that JSON can hold.
    signing_key : path, bytes or None
        A private Ed25519 key (PEM) to sign with.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.artifacts import load, save
    >>> X, y = make_classification(600, random_state=0)
    >>> ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest = save(ice, f"{folder}/ice.transcendent", training_period=("2024-01", "2024-06"))
    ...     loaded = load(f"{folder}/ice.transcendent")
    >>> bool((loaded.decide(X).accepted == ice.decide(X).accepted).all())
    True
    """
    if not hasattr(rejector, "decide"):
        kind = type(rejector).__name__
        raise TypeError(
            f"{kind} is not a rejector; wrap a detector in one, such as InductiveEvaluator(detector)."
        )
    check_is_fitted(rejector)
    try:
        check_opens_no_files(rejector)
    except ArtifactError as reason:
        raise ArtifactError(f"this rejector cannot be saved: {reason}") from None
    skeleton, members = take_apart(_with_thresholds(rejector))
    members[_SKOPS] = _to_skops(skeleton)
    manifest = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions("skops", "lightgbm", "xgboost"),
        "training_period": None if training_period is None else [str(time) for time in training_period],
        "notes": dict(notes or {}),
        **facts(rejector),
    }
    packed, digest = pack(members, manifest, signing_key)
    write_whole(Path(path), packed)
    return digest


def load(path: Any, *, trusted: Collection[str] = (), public_key: Key | None = None) -> Any:
    """The rejector in a file, if the file keeps every promise; otherwise an `ArtifactError` that says which.

    Nothing in the file is interpreted before its digest, and its signature if a key is given, have been
    checked; nothing is built before all types in it have been found to be trusted. The digest guards against
    damage. Only a signature says who made the file.

    Parameters
    ----------
    path : path
        What `save` wrote.
    trusted : collection of str
        Names of types to allow beside those of scikit-learn and Transcendent, as the error lists them: your
        own classes and functions, and tree models.
    public_key : path, bytes or None
        The public Ed25519 key (PEM) of whoever you accept artifacts from; unsigned files are then refused.
    """
    return open_artifact(path, public_key=public_key).rejector(trusted)


def open_artifact(path: Any, *, public_key: Key | None = None) -> "Artifact":
    """Check a file's digest, signature and sizes, and read its manifest, without loading what is in it."""
    try:
        opened = unpack(Path(path).read_bytes(), public_key)
    except ArtifactError as reason:
        raise ArtifactError(f"{path} is refused: {reason}") from None
    return Artifact(str(path), *opened)


@dataclass(frozen=True, repr=False)
class Artifact:
    """A checked file and its manifest, not loaded yet.

    Attributes
    ----------
    path : str
        Where it was read from.
    manifest : dict
        Format, versions, classes, features, training period, calibration objects, thresholds.
    members : dict of bytes
        The files in it.
    digest : str
        SHA-256 of its content.
    signed : bool
        Whether it is signed; `open_artifact` has checked by whom if it was given a key.
    """

    path: str
    manifest: dict[str, Any]
    members: dict[str, bytes]
    digest: str
    signed: bool

    def __repr__(self) -> str:
        return f"{self.path}: {self.manifest.get('rejector')}, sha256 {self.digest}"

    def types_to_trust(self) -> list[str]:
        """Names of the types in it that `load` has to be told to trust, beside those it knows."""
        return self._guarded(lambda: self._unknown_types)

    def check(self, trusted: Collection[str] = ()) -> None:
        """Refuse it if it holds types that are not trusted, or its manifest lies about its size."""
        self._guarded(self._checked, _names(trusted))

    def rejector(self, trusted: Collection[str] = ()) -> Any:
        """Check it, and build what is in it."""
        return self._guarded(self._built, _names(trusted))

    @cached_property
    def _unknown_types(self) -> list[str]:
        data = self.members[_SKOPS]
        check_unpacked_size(_SKOPS, data)
        schema = read_schema(_SKOPS, data)
        found = extra("skops.io", "artifacts").get_untrusted_types(data=data)
        compiled = type_names(schema) & _COMPILED
        return sorted((set(found) - TYPES) | compiled | booster_types(self.members))

    def _checked(self, trusted: Collection[str]) -> dict[str, dict[str, AnyArray]]:
        unknown = [name for name in self._unknown_types if name not in set(trusted)]
        if unknown:
            raise ArtifactError(_untrusted(unknown))
        calibrations = read_calibrations(self.members)
        check_sizes(self.manifest, calibrations)
        return calibrations

    def _built(self, trusted: Collection[str]) -> Any:
        calibrations = self._checked(trusted)
        skeleton = extra("skops.io", "artifacts").loads(self.members[_SKOPS], trusted=[*TYPES, *trusted])
        check_contents(skeleton)
        rejector = put_together(skeleton, calibrations, self.members)
        if not hasattr(rejector, "decide"):
            raise ArtifactError(f"it holds a {type(rejector).__name__}, which is not a rejector.")
        check_facts(self.manifest, rejector)
        return rejector

    def _guarded(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns; whatever a malformed file makes it raise says that it is refused."""
        try:
            return function(*args)
        except MissingExtraError:
            raise
        except ArtifactError as reason:
            raise ArtifactError(f"{self.path} is refused: {reason}") from None
        except Exception as error:
            said = f"what it holds cannot be read ({type(error).__name__}: {error}"
            raise ArtifactError(f"{self.path} is refused: {said:.300}).") from error


def _names(trusted: Collection[str]) -> list[str]:
    if isinstance(trusted, str) or not isinstance(trusted, Collection):
        raise TypeError(f"trusted is a list of names of types, not {trusted!r}.")
    return list(trusted)


def _untrusted(names: list[str]) -> str:
    message = f"it holds types that nobody said to trust: {', '.join(names)}."
    if any(name in _COMPILED for name in names):
        message += (
            " Compiled code follows the indices in trees and kernel machines without checking: crafted ones"
            " can crash the process. If you know where the file comes from,"
        )
    else:
        message += " If you know them and where the file comes from,"
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        return f"{message} look at it again: these are no names of types."
    options = " ".join(f"--trust {name}" for name in names)
    return (
        f"{message} load it with trusted={names!r} (on the command line: {options}; through mlflow.pyfunc: "
        "TRANSCENDENT_TRUSTED in the environment)."
    )


def _with_thresholds(rejector: Any) -> Any:
    """A copy without what a search that failed left behind."""
    if "_unthresholded" not in vars(rejector):
        return rejector
    if not hasattr(rejector, "detectors_"):
        raise ArtifactError("this rejector cannot be saved: it has no thresholds. rethreshold() finds some.")
    clean = copy(rejector)
    del clean._unthresholded
    return clean


def _can_be_found(module: str, attribute: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def _to_skops(skeleton: Any) -> bytes:
    skops = extra("skops.io", "artifacts")
    try:
        data: bytes = skops.dumps(skeleton)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"this rejector cannot be saved: {error}") from error
    for name in skops.get_untrusted_types(data=data):
        module, _, attribute = name.rpartition(".")
        if module == "__main__":
            raise ArtifactError(
                f"this rejector cannot be saved: {attribute} is defined in a notebook or script, where "
                "whoever loads the file will not find it. Put it into a module, and import it from there."
            )
        if not _can_be_found(module, attribute):
            raise ArtifactError(
                f"this rejector cannot be saved: {name} cannot be found again by its name. Use a function or "
                "class of a module, not a lambda."
            )
    return data
