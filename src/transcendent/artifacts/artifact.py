"""Save a fitted rejector, and load one after checking the file it is in."""

import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from sklearn.exceptions import InconsistentVersionWarning
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray
from transcendent._utils.estimators import unwrapped
from transcendent._utils.extras import extra
from transcendent._utils.files import write_whole
from transcendent._utils.provenance import versions
from transcendent._utils.text import visible
from transcendent.artifacts.archives import check_unpacked_size
from transcendent.artifacts.container import MOST_BYTES, Key, pack, read_sealed, required_key, unpack
from transcendent.artifacts.contents import check_contents, check_opens_no_files
from transcendent.artifacts.facts import check_facts, check_sizes, facts
from transcendent.artifacts.parts import (
    booster_libraries,
    booster_types,
    put_together,
    read_calibrations,
    take_apart,
)
from transcendent.artifacts.schema import read_schema, type_names
from transcendent.artifacts.types import TYPES
from transcendent.artifacts.versions import VersionDifference, find_differences, in_words
from transcendent.errors import (
    ArtifactError,
    ArtifactVersionWarning,
    MissingExtraError,
    TranscendentError,
)

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
    >>> from transcendent import InductiveEvaluator, load, save
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
    if training_period is not None and (isinstance(training_period, str) or len(training_period) != 2):
        raise ValueError(
            f"training_period is a pair of times, its start and its end, not {training_period!r}."
        )
    if not all(hasattr(judge, "result_") for judge in getattr(unwrapped(rejector), "judges_", ())):
        raise ArtifactError("this rejector cannot be saved: it has no thresholds. rethreshold() finds some.")
    check_is_fitted(rejector)
    try:
        check_opens_no_files(rejector)
    except ArtifactError as reason:
        raise ArtifactError(f"this rejector cannot be saved: {reason}") from None
    skeleton, members = take_apart(rejector)
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


def load(
    path: Any,
    *,
    trusted: Collection[str] = (),
    public_key: Key | None = None,
    strict: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Any:
    """Return the rejector in a file, or raise an `ArtifactError` that says which check the file fails.

    Nothing in the file is interpreted before its digest, and its signature if a key is required, have been
    checked; nothing is built before all types in it have been found to be trusted. The digest guards against
    damage. Only a signature says who made the file: a crafted one without can crash the process, or decide
    as its maker likes.

    Parameters
    ----------
    path : path
        What `save` wrote.
    trusted : collection of str
        Names of types to allow beside those of scikit-learn and Transcendent, as the error lists them: your
        own classes and functions, and tree models.
    public_key : path, bytes or None
        The public Ed25519 key (PEM) that files have to be signed with. By default the file that the
        environment variable ``TRANSCENDENT_PUBLIC_KEY`` names; if it is not set, signatures are not checked.
    strict : bool
        Refuse a file that was written under any other version of Python, Transcendent, NumPy, SciPy,
        scikit-learn or the boosters it holds. Otherwise another major or minor version of a library that
        models come from is an `ArtifactVersionWarning`.
    most_bytes : int
        Refuse larger files; by default those over 4 GiB.
    """
    artifact = open_artifact(path, public_key=public_key, most_bytes=most_bytes)
    return artifact.rejector(trusted, strict=strict)


def open_artifact(path: Any, *, public_key: Key | None = None, most_bytes: int = MOST_BYTES) -> "Artifact":
    """Check a file's digest, signature and sizes, and read its manifest, without loading what is in it.

    The arguments are those of `load`.
    """
    with _refusing(path):
        key = required_key(public_key)
    return read_artifact(path, key, most_bytes)


def read_artifact(path: Any, key: Key | None = None, most_bytes: int = MOST_BYTES) -> "Artifact":
    """Open an artifact as `open_artifact` does, but with no other key than the one given."""
    with _refusing(path, FileNotFoundError):
        return Artifact(str(path), *unpack(read_sealed(Path(path), most_bytes), key))


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
        Whether it has a signature, which anyone can make.
    signature_checked : bool
        Whether there was a key, and the signature was found to be made by its owner.
    """

    path: str
    manifest: dict[str, Any]
    members: dict[str, bytes]
    digest: str
    signed: bool
    signature_checked: bool

    def __repr__(self) -> str:
        return visible(f"{self.path}: {self.manifest.get('rejector')}, sha256 {self.digest}")

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Python and of the libraries it was written under, by name."""
        return dict(self.manifest["versions"])

    def version_differences(self) -> list[VersionDifference]:
        """Versions that are others here than where it was written, those first that matter to its models."""
        return find_differences(self.versions, booster_libraries(self.members))

    def types_to_trust(self) -> list[str]:
        """Names of the types in it that `load` has to be told to trust, beside those it knows."""
        with _refusing(self.path):
            return self._unknown_types

    def check(self, trusted: Collection[str] = (), *, strict: bool = False) -> None:
        """Refuse it if it holds types that are not trusted, or its manifest lies about its size.

        Strictly, refuse it too if it was written under other versions.
        """
        names = _names(trusted)
        with _refusing(self.path):
            self._checked(names, strict)

    def rejector(self, trusted: Collection[str] = (), *, strict: bool = False) -> Any:
        """Check it, and build what is in it; warn if it was written under versions that matter."""
        names = _names(trusted)
        with _refusing(self.path, hint=self._hint):
            built = self._built(names, strict)
        if hint := self._hint():
            warnings.warn(
                f"{self.path}:{hint} What it decides may differ, or fail. Fit it again under the versions "
                "that are here, or install those it was written under.",
                ArtifactVersionWarning,
                stacklevel=3,
            )
        return built

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Turn failures of its rejector in here into an `ArtifactError`, but for what is wrong with the rows.

        Under other versions that matter to its models, any failure may be theirs.
        """
        try:
            yield
        except Exception as error:
            about_rows = isinstance(error, ValueError | OSError | MemoryError | TranscendentError)
            if about_rows and not self.of_other_models():
                raise
            self.refuse_failure(error)

    def refuse_failure(self, error: Exception) -> NoReturn:
        """Raise an `ArtifactError` for what its rejector raised on rows."""
        said = visible(f"{self.path} cannot decide these rows ({type(error).__name__}: {error!s:.300}).")
        raise ArtifactError(said + self._hint()) from error

    def of_other_models(self) -> bool:
        """Whether it was written under another version that matters to its models."""
        return any(difference.matters for difference in self.version_differences())

    def _hint(self) -> str:
        """Which versions may be why it fails, as a sentence after a blank; nothing if none may."""
        found = [difference for difference in self.version_differences() if difference.matters]
        return f" {in_words(found)}" if found else ""

    @cached_property
    def _unknown_types(self) -> list[str]:
        data = self.members[_SKOPS]
        check_unpacked_size(_SKOPS, data)
        schema = read_schema(_SKOPS, data)
        found = extra("skops.io", "artifacts").get_untrusted_types(data=data)
        compiled = type_names(schema) & _COMPILED
        return sorted((set(found) - TYPES) | compiled | booster_types(self.members))

    def _checked(self, trusted: Collection[str], strict: bool) -> dict[str, dict[str, AnyArray]]:
        if strict and (differences := self.version_differences()):
            raise ArtifactError(f"{in_words(differences)} Strictly, only the same versions read it.")
        unknown = [name for name in self._unknown_types if name not in set(trusted)]
        if unknown:
            raise ArtifactError(_untrusted(unknown))
        calibrations = read_calibrations(self.members)
        check_sizes(self.manifest, calibrations)
        return calibrations

    def _built(self, trusted: Collection[str], strict: bool) -> Any:
        calibrations = self._checked(trusted, strict)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # one for each estimator
            skeleton = extra("skops.io", "artifacts").loads(self.members[_SKOPS], trusted=[*TYPES, *trusted])
            check_contents(skeleton)
            rejector = put_together(skeleton, calibrations, self.members)
        if not hasattr(rejector, "decide"):
            raise ArtifactError(f"it holds a {type(rejector).__name__}, which is not a rejector.")
        check_facts(self.manifest, rejector)
        return rejector


@contextmanager
def _refusing(
    path: Any, passing: type[Exception] = MissingExtraError, hint: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Turn whatever a malformed file raises in here into an `ArtifactError` that says it is refused."""
    try:
        yield
    except (MissingExtraError, passing):
        raise
    except ArtifactError as reason:
        raise ArtifactError(visible(f"{path} is refused: {reason}")) from None
    except MemoryError:
        raise ArtifactError(visible(f"{path} is refused: there is not enough memory to read it.")) from None
    except Exception as error:
        said = f"what it holds cannot be read ({type(error).__name__}: {error}"
        raise ArtifactError(visible(f"{path} is refused: {said:.300}).") + hint()) from error


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
