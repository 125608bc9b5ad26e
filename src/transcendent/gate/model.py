"""The rejector that a gate serves: loaded from an artifact, and asked about objects."""

import warnings
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import get_tags

from transcendent._utils.arrays import AnyArray, BoolArray, take_rows
from transcendent._utils.estimators import see_through
from transcendent.artifacts import open_artifact
from transcendent.artifacts.trial import try_out
from transcendent.decisions import Decisions
from transcendent.errors import ArtifactError
from transcendent.gate.features import Group, Layout, Problem
from transcendent.rejectors import Traits

_TRIALS = 200  # rows with missing values that are tried at the start, dense ones and again sparse ones
_KEEP_GAPS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)


@dataclass(frozen=True)
class Model:
    """A rejector, and what the gate needs to know of it.

    ``needed`` says which features are known to be needed, in sparse rows and in others: objects that lack one
    are refused. Whether others may be missing is left to the detector.
    """

    rejector: Any
    digest: str
    layout: Layout
    classes: list[Any]
    manifest: dict[str, Any]
    needed: dict[bool, BoolArray] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def decide(self, rows: Any) -> Decisions:
        """Decide rows, for one thread at a time."""
        with self.lock:
            decisions: Decisions = self.rejector.decide(rows)
        return decisions

    def refuse_missing(self, group: Group, problems: dict[int, Problem]) -> Group:
        """Return the objects without those that lack a value which the detector needs: these are problems."""
        needed = self.needed.get(sp.issparse(group.rows))
        if needed is None or not needed.any():
            return group
        rows, columns = _gaps(group.rows)
        bad = needed[columns]
        if not bad.any():
            return group
        lacking, first = np.unique(rows[bad], return_index=True)
        for row, column in zip(lacking.tolist(), columns[bad][first].tolist(), strict=True):
            name = repr(self.layout.names[column]) if self.layout.names else str(column)
            said = f"feature {name:.80} is missing (null), which the detector cannot handle."
            problems[int(group.places[row])] = Problem("", said)
        return _part_of(group, np.setdiff1d(np.arange(len(group.places)), lacking))

    def search(self, group: Group, problems: dict[int, Problem]) -> list[tuple[Group, Decisions]]:
        """Decide objects of which some may fail: these are problems, and the others are decided in parts.

        Each part that fails is halved, the largest first. The number of calls is limited, so that a request
        costs at most a small multiple of deciding it: what is left then is not decided.
        """
        parts, found = deque([group]), []
        for _ in range(_calls_to_search(len(group.places))):
            if not parts:
                break
            part = parts.popleft()
            n = len(part.places)
            try:
                found.append((part, self.decide(part.rows)))
            except (ValueError, TypeError) as error:
                if n == 1:
                    said = f"the detector cannot handle it: {_first_line(error)}"
                    problems[int(part.places[0])] = Problem("", said)
                else:
                    parts += [_part_of(part, half) for half in np.array_split(np.arange(n), 2)]
        for part in parts:
            problems.update(dict.fromkeys(part.places.tolist(), _NOT_FOUND))
        return found


_NOT_FOUND = Problem(
    "",
    "not decided: the detector failed on this object or on others beside it, and on too many to find out "
    "which: send it again in a request of its own.",
)


def _calls_to_search(n: int) -> int:
    """Enough for two bad objects among any number of good ones."""
    return 1 + 4 * (n - 1).bit_length()


def _part_of(group: Group, rows: AnyArray) -> Group:
    return Group(group.places[rows], take_rows(group.rows, rows))


def _gaps(rows: Any) -> tuple[AnyArray, AnyArray]:
    """Return rows and columns of missing values."""
    if not sp.issparse(rows):
        where = np.nonzero(np.isnan(np.asarray(rows, dtype=np.float64)))
        return where[0], where[1]
    places = np.flatnonzero(np.isnan(rows.data))
    return np.searchsorted(rows.indptr, places, side="right") - 1, rows.indices[places]


def load_model(path: Path, trusted: Collection[str] = (), public_key: Path | None = None) -> Model:
    """Load an artifact, tried out in another process, and learn which values its detector needs."""
    artifact = open_artifact(path, public_key=public_key)
    artifact.check(trusted)
    try_out(artifact, trusted)
    rejector = artifact.rejector(trusted)
    _check_servable(path, rejector, artifact.manifest)
    features = artifact.manifest["features"]
    layout = Layout(features["count"], features["names"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check_takes_numbers(path, rejector, layout)
        needs_all = any(map(_needs_all, Traits.of(rejector).detectors))
        needed = {is_sparse: _needed(rejector, layout, is_sparse, needs_all) for is_sparse in (False, True)}
    classes = np.asarray(Traits.of(rejector).classes).tolist()
    return Model(rejector, artifact.digest, layout, classes, artifact.manifest, needed)


def _check_takes_numbers(path: Path, rejector: Any, layout: Layout) -> None:
    """Refuse a detector that decides no numbers, such as one that encodes a column of words."""
    samples = [{"values": [value] * layout.width} for value in (0, 1)]
    samples.append({"positions": [0], "values": [1]})
    for sample in samples:
        try:
            rejector.decide(layout.read([{"id": "0", **sample}]).groups[0].rows)
            return
        except (ValueError, TypeError) as error:
            reason = _first_line(error)
    raise ArtifactError(
        f"{path} cannot be served: its detector decides no rows of numbers ({reason}). If it has columns of "
        "words, encode them as numbers before the fit, or leave them out of it."
    )


def _needed(rejector: Any, layout: Layout, is_sparse: bool, needs_all: bool) -> BoolArray:
    """Return which features are known to be needed: rows that lack one of them alone are not decided.

    A pipeline may impute some features and need others. So parts of the features are tried, and a part that
    fails is halved, in a limited number of trials. The limit is no time, so that all gates know the same. If
    the detector says that it needs all, one trial confirms it.
    """

    def decides(value: float, columns: AnyArray) -> bool:
        row = np.full((1, layout.width), value)
        row[0, columns] = np.nan
        try:
            rejector.decide(sp.csr_matrix(row) if is_sparse else layout.framed(row))
        except (ValueError, TypeError):
            return False
        return True

    every, needed = np.arange(layout.width), np.zeros(layout.width, dtype=bool)
    value = next((value for value in (0.0, 1.0) if decides(value, every[:0])), None)
    if value is None:
        return needed
    if needs_all and not decides(value, every[-1:]):
        return ~needed
    parts = [every]
    for _ in range(_TRIALS):
        if not parts:
            break
        part = parts.pop()
        if decides(value, part):
            continue
        if len(part) == 1:
            needed[part] = True
        else:
            parts += reversed(np.array_split(part, 2))
    return needed


def _needs_all(detector: Any) -> bool:
    """Return whether scikit-learn declares that a detector takes no missing value, in whichever feature.

    False if that is not certain, such as of a detector that has others within it.
    """
    steps, classifier = see_through(detector)
    first = next(step for step in (*steps, classifier) if type(step) not in _KEEP_GAPS)
    if not type(first).__module__.startswith("sklearn."):
        return False
    if any(hasattr(value, "fit") for value in first.get_params().values()):
        return False
    tags = get_tags(first)
    return not (tags.input_tags.allow_nan or tags.no_validation)


def _check_servable(path: Path, rejector: Any, manifest: dict[str, Any]) -> None:
    traits = Traits.of(rejector)
    kind = manifest["rejector"]
    if traits.takes_labels:
        raise ArtifactError(f"{path} judges scores, not objects: a gate needs the detector too.")
    if traits.depends_on_others:
        raise ArtifactError(
            f"{path} holds a {kind}, whose decision about an object depends on other objects. Save a "
            "rejector that decides each object by itself, such as an InductiveEvaluator; for a budget, the "
            "one inside it."
        )
    if manifest["features"]["count"] is None:
        raise ArtifactError(f"{path} takes texts: a gate serves detectors of numbers.")


def _first_line(error: Exception) -> str:
    return f"{str(error).partition(chr(10))[0]:.300}"
