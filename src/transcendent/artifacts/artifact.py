"""Save a fitted rejector to a file, and load it after checking the file."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.files import write_whole
from transcendent._utils.provenance import versions
from transcendent._utils.text import visible
from transcendent.artifacts.boosters import booster_types
from transcendent.artifacts.container import MAX_BYTES, pack, read_sealed, unpack
from transcendent.artifacts.entries import Calibrations, from_entries, read_calibrations, to_entries
from transcendent.artifacts.manifest import (
    MANIFEST,
    check_facts,
    check_sizes,
    facts,
    read_manifest,
    write_manifest,
)
from transcendent.artifacts.signatures import Key, check_signature, required_key
from transcendent.artifacts.types import ALLOWED, check_trusted, expand_packages, find_types_to_trust
from transcendent.artifacts.unpacking import check_unpacked_sizes, max_unpacked
from transcendent.artifacts.versions import VersionDifference, find_differences, in_words
from transcendent.decisions import declared, is_rejector
from transcendent.errors import ArtifactError, ArtifactVersionWarning, MissingExtraError, TranscendentError
from transcendent.evaluators.budget import RejectionBudget, StreamingBudget
from transcendent.tables.answers import ScoreColumns
from transcendent.tables.layout import Layout


def save(
    rejector: Any,
    path: Any,
    *,
    training_period: tuple[Any, Any] | None = None,
    notes: Mapping[str, Any] | None = None,
    feature_names: Sequence[str] | None = None,
    signing_key: Key | None = None,
) -> str:
    """Write a fitted rejector to one file, and return the file's digest.

    The file is a compressed zip archive of a JSON manifest, estimators as skops, calibration objects as
    ``.npz``, and LightGBM and XGBoost models in their own formats. Nothing in it is a pickle.

    Parameters
    ----------
    rejector : fitted rejector
        An evaluator or baseline.
    path : path
        Where to write; an existing file is replaced once the new one is complete.
    training_period : pair of times or None
        When the first and last training rows were seen, for the manifest.
    notes : dict or None
        Further JSON values for the manifest.
    feature_names : sequence of str or None
        The names of columns, such as those of a `Dataset`, if the rows of ``fit`` had none: the gate and
        ``transcendent explain`` show them.
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
    _check_savable(rejector)
    if training_period is not None and (isinstance(training_period, str) or len(training_period) != 2):
        raise ValueError(f"training_period must be a pair of times (start, end), not {training_period!r}.")
    rejector = _without_earlier_fit(rejector)
    try:
        entries = to_entries(rejector)
    except ArtifactError as reason:
        raise ArtifactError(f"this rejector cannot be saved: {reason}") from reason.__cause__
    manifest = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions("skops", "lightgbm", "xgboost"),
        "training_period": None if training_period is None else [str(time) for time in training_period],
        "notes": {**(notes or {}), **_names_in_notes(rejector, feature_names)},
        **facts(rejector),
    }
    packed, digest = pack({MANIFEST: write_manifest(manifest, entries), **entries}, signing_key)
    write_whole(Path(path), packed)
    return digest


def _names_in_notes(rejector: Any, given: Sequence[str] | None) -> dict[str, list[str]]:
    """Return names of columns for the notes; raise if the rejector has other columns."""
    if given is None:
        return {}
    names, fitted = list(map(str, given)), declared(rejector).fitted
    if fitted.feature_names is not None and fitted.feature_names.tolist() != names:
        raise ValueError("feature_names differ from those of the frame in fit: leave them out.")
    if len(names) != fitted.n_features or len(set(names)) < len(names):
        raise ValueError(
            f"there are {len(names):,} feature_names ({len(set(names)):,} different ones) for "
            f"{fitted.n_features or 0:,} columns: pass a name of its own for each."
        )
    return {"feature_names": names}


def load(
    path: Any,
    *,
    trusted: Collection[str] = (),
    public_key: Key | None = None,
    strict: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Return the rejector in a file, or raise an `ArtifactError` that names the check the file fails.

    The digest, and the signature if a key is required, are checked before anything in the file is parsed. All
    types are checked to be trusted before anything is built. The digest guards against damage. Only a
    signature says who made the file: without one, a crafted file can crash the process, or decide as its
    author wants.

    Parameters
    ----------
    path : path
        A file that `save` wrote.
    trusted : collection of str
        Names of types to allow besides those of scikit-learn and Transcendent, as listed by the error: your
        own classes and functions, and tree models.
    public_key : path, bytes or None
        Require a signature that matches this public Ed25519 key (PEM). By default the key file named by the
        environment variable ``TRANSCENDENT_PUBLIC_KEY``; if it is not set, signatures are not checked.
    strict : bool
        Refuse a file that was written under any other version of Python, Transcendent, NumPy, SciPy,
        scikit-learn or the boosters in it. Otherwise, another major or minor version of a library with models
        raises an `ArtifactVersionWarning`.
    max_bytes : int
        Refuse files that are larger, or would unpack to more; by default over 4 GiB.
    """
    return open_artifact(path, public_key=public_key, max_bytes=max_bytes).rejector(trusted, strict=strict)


def open_artifact(path: Any, *, public_key: Key | None = None, max_bytes: int = MAX_BYTES) -> "Artifact":
    """Check a file's digest, signature and sizes, and read its manifest, without loading the rejector.

    Parameters
    ----------
    path, public_key, max_bytes
        As for `load`.
    """
    with _refusing(path):
        key = required_key(public_key)
    return read_artifact(path, key, max_bytes)


def read_artifact(path: Any, key: Key | None = None, max_bytes: int = MAX_BYTES) -> "Artifact":
    """Open an artifact as `open_artifact` does, but ignore the key in the environment."""
    with _refusing(path, FileNotFoundError):
        data, digest, signature = read_sealed(Path(path), max_bytes)
        if key is not None:
            check_signature(digest, signature, key)
        limit = min(max_bytes, max_unpacked(len(data)))
        entries = unpack(data, limit)
        manifest = read_manifest(entries.pop(MANIFEST, None), entries)
        check_unpacked_sizes(entries, limit)
        return Artifact(str(path), manifest, entries, digest, signature is not None, key is not None)


@dataclass(frozen=True, repr=False)
class Artifact:
    """A checked file and its manifest, not loaded yet.

    Attributes
    ----------
    path : str
        The file it was read from.
    manifest : dict
        Format, versions, classes, features, training period, calibration objects, thresholds.
    entries : dict of bytes
        The content of the other entries, by name.
    digest : str
        SHA-256 of the content.
    signed : bool
        Whether it has a signature, which anyone can make.
    signature_checked : bool
        Whether the signature matches a key that was given.
    """

    path: str
    manifest: dict[str, Any]
    entries: dict[str, bytes]
    digest: str
    signed: bool
    signature_checked: bool

    def __repr__(self) -> str:
        return visible(f"{self.path}: {self.manifest['rejector']}, sha256 {self.digest}")

    @property
    def versions(self) -> dict[str, str]:
        """Versions of Python and of the libraries when it was written, by name."""
        return dict(self.manifest["versions"])

    def version_differences(self) -> list[VersionDifference]:
        """Return the versions that differ from the installed ones, those that matter to its models first."""
        boosters = sorted(kind.partition(".")[0] for kind in booster_types(self.entries))
        return find_differences(self.versions, boosters)

    def version_hint(self) -> str:
        """Return a space and a sentence about versions that may make its models fail, or ""."""
        found = [difference for difference in self.version_differences() if difference.matters]
        return f" {in_words(found)}" if found else ""

    def types_to_trust(self) -> list[str]:
        """Return the names of its types that `load` allows only if ``trusted`` lists them."""
        with _refusing(self.path):
            return self._types_to_trust

    def layout(self) -> Layout:
        """Return the columns of the fit, with the names to show if they are those of all columns."""
        layout, names = (
            Layout.described(self.manifest["features"]),
            self.manifest["notes"].get("feature_names"),
        )
        fits = isinstance(names, list) and len(names) == layout.width and layout.names is None
        return replace(layout, shown_names=names) if fits and all(map(_is_text, names)) else layout

    def score_columns(self) -> ScoreColumns | None:
        """Return the columns that a judge of scores reads; None if it decides by features."""
        if not self.manifest.get("judges_scores"):
            return None
        if "scores" not in self.manifest["notes"]:
            raise ArtifactError(
                f"{self.path} judges scores, and does not name their columns: load it in Python, and call "
                "decide(Answers(labels, scores)); or fit it by the command line, from a TOML file."
            )
        try:
            return ScoreColumns.from_json(self.manifest["notes"]["scores"])
        except ValueError as error:
            raise ArtifactError(f"{self.path} is refused: {error}") from None

    def check(self, trusted: Collection[str] = (), *, strict: bool = False) -> None:
        """Refuse it if a type is not trusted, or its manifest has a wrong number of calibration objects.

        If ``strict``, also refuse it if it was written under other versions.
        """
        names = expand_packages(trusted)
        with _refusing(self.path):
            self._checked(names, strict)

    def rejector(self, trusted: Collection[str] = (), *, strict: bool = False) -> Any:
        """Check it and return its rejector; warn if it was written under other versions that matter."""
        names = expand_packages(trusted)
        with _refusing(self.path, hint=self.version_hint):
            calibrations = self._checked(names, strict)
            built = from_entries(self.entries, calibrations, [*ALLOWED, *names])
            if not hasattr(built, "decide"):
                raise ArtifactError(f"it holds a {type(built).__name__}, which is not a rejector.")
            check_facts(self.manifest, built)
        if hint := self.version_hint():
            warnings.warn(
                f"{self.path}:{hint} Its decisions may differ, or fail. Fit it again under the installed "
                "versions, or install those it was written under.",
                ArtifactVersionWarning,
                stacklevel=3,
            )
        return built

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Turn errors of its rejector inside the block into an `ArtifactError`, except errors about the rows.

        If versions that matter to its models differ, every error may be due to them.
        """
        try:
            yield
        except Exception as error:
            about_rows = isinstance(error, ValueError | OSError | MemoryError | TranscendentError)
            if about_rows and not self.version_hint():
                raise
            self.refuse_failure(error)

    def refuse_failure(self, error: Exception) -> NoReturn:
        """Raise an `ArtifactError` for an error that its rejector raised on rows."""
        message = visible(f"{self.path} cannot decide these rows ({type(error).__name__}: {error!s:.300}).")
        raise ArtifactError(message + self.version_hint()) from error

    @cached_property
    def _types_to_trust(self) -> list[str]:
        return find_types_to_trust(self.entries)

    def _checked(self, trusted: list[str], strict: bool) -> Calibrations:
        if strict and (differences := self.version_differences()):
            raise ArtifactError(f"{in_words(differences)} strict requires equal versions.")
        check_trusted(self._types_to_trust, trusted)
        calibrations = read_calibrations(self.entries)
        check_sizes(self.manifest, calibrations)
        return calibrations


@contextmanager
def _refusing(
    path: Any, passing: type[Exception] = MissingExtraError, hint: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Turn errors that a malformed file raises inside the block into an `ArtifactError`."""
    try:
        yield
    except (MissingExtraError, passing):
        raise
    except ArtifactError as reason:
        raise ArtifactError(visible(f"{path} is refused: {reason}")) from None
    except MemoryError:
        raise ArtifactError(visible(f"{path} is refused: there is not enough memory to read it.")) from None
    except Exception as error:
        message = f"it cannot be read ({type(error).__name__}: {error}"
        raise ArtifactError(visible(f"{path} is refused: {message:.300}).") + hint()) from error


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _without_earlier_fit(rejector: Any) -> Any:
    """Return a budget whose parameter is not fitted: it decides with a fitted copy of it."""
    if not isinstance(rejector, RejectionBudget | StreamingBudget):
        return rejector
    copied = copy(rejector)
    copied.rejector = clone(rejector.rejector)
    return copied


def _check_savable(rejector: Any) -> None:
    if not is_rejector(rejector):
        kind = type(rejector).__name__
        raise TypeError(f"{kind} is not a rejector: wrap a detector in one, as InductiveEvaluator(detector).")
    if not hasattr(rejector, "__sklearn_tags__"):
        raise ArtifactError(
            f"{type(rejector).__name__} cannot be saved: derive its class from sklearn.base.BaseEstimator."
        )
    if declared(rejector).fitted.lacks_thresholds:
        raise ArtifactError("this rejector cannot be saved without thresholds: call rethreshold() first.")
    check_is_fitted(rejector)
