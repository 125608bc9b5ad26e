"""The rejector that a gate serves, loaded from an artifact."""

import warnings
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
from transcendent._utils.cells import are_missing, column_in_words, find_cells
from transcendent._utils.estimators import see_through
from transcendent.artifacts import open_artifact
from transcendent.artifacts.sandbox import try_out
from transcendent.decisions import Decisions, declared
from transcendent.errors import ArtifactError
from transcendent.gate.features import Group, ObjectProblem, Problems, read_rows
from transcendent.tables.bad_rows import decide_rows, find_failing, first_line
from transcendent.tables.layout import Layout

_TRIALS = 200  # rows with missing values to try at the start, for dense and for sparse rows
_KEEP_GAPS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)


@dataclass(frozen=True)
class Model:
    """A rejector, and what the gate needs to know about it.

    ``needed`` marks the features that are known to be required, in sparse rows (True) and in dense ones
    (False): objects that lack one are refused. The detector decides whether others may be missing.
    """

    rejector: Any
    digest: str
    layout: Layout
    classes: list[Any]
    manifest: dict[str, Any]
    needed: dict[bool, BoolArray] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def decide(self, rows: Any) -> Decisions:
        """Decide rows, in one thread at a time."""
        with self.lock:
            decisions: Decisions = self.rejector.decide(rows)
        return decisions

    def refuse_missing(self, group: Group, problems: Problems) -> Group:
        """Return the objects that lack no required value, and add the others to ``problems``."""
        is_sparse = sp.issparse(group.rows)
        needed = self.needed.get(is_sparse)
        if needed is None or not needed.any():
            return group
        rows, columns = find_cells(group.rows if is_sparse else np.asarray(group.rows), are_missing)
        bad = needed[columns]
        if not bad.any():
            return group
        lacking, first = np.unique(rows[bad], return_index=True)
        for row, column in zip(lacking.tolist(), columns[bad][first].tolist(), strict=True):
            where = column_in_words(column, self.layout.names)
            message = f"feature {where} is missing (null), which the detector cannot handle."
            problems[int(group.places[row])] = ObjectProblem("", message)
        return _part_of(group, np.setdiff1d(np.arange(len(group.places)), lacking))

    def search(self, group: Group, problems: Problems) -> list[tuple[Group, Decisions]]:
        """Decide objects in parts, and add those that fail to ``problems``.

        The number of calls is limited, so that a request costs at most a small multiple of deciding it.
        Objects that no call has settled by then are not decided.
        """
        # Enough for two bad objects among any number of good ones.
        calls = 1 + 4 * (len(group.places) - 1).bit_length()
        found = decide_rows(self.decide, group.rows, calls, (ValueError, TypeError))
        for row, reason in found.refused.items():
            problems[int(group.places[row])] = ObjectProblem("", f"the detector cannot handle it: {reason}")
        problems.update(dict.fromkeys(group.places[found.unknown].tolist(), _NOT_FOUND))
        return [(_part_of(group, rows), decisions) for rows, decisions in found.decided]


_NOT_FOUND = ObjectProblem(
    "",
    "not decided: the detector failed on too many objects of this request to find out which: send it again "
    "in a request of its own.",
)


def _part_of(group: Group, rows: AnyArray) -> Group:
    return Group(group.places[rows], take_rows(group.rows, rows))


def load_model(path: Path, trusted: Collection[str] = (), public_key: Path | None = None) -> Model:
    """Load an artifact after a trial in another process, and find the features that its detector requires."""
    artifact = open_artifact(path, public_key=public_key)
    artifact.check(trusted)
    try_out(artifact, trusted)
    rejector = artifact.rejector(trusted)
    _check_servable(path, rejector, artifact.manifest)
    features = artifact.manifest["features"]
    layout = Layout(features["count"], features["names"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check_decides_numbers(path, rejector, layout)
        needs_all = any(map(_needs_all, declared(rejector).fitted.detectors))
        needed = {is_sparse: _needed(rejector, layout, is_sparse, needs_all) for is_sparse in (False, True)}
    classes = np.asarray(declared(rejector).fitted.classes).tolist()
    return Model(rejector, artifact.digest, layout, classes, artifact.manifest, needed)


def _check_decides_numbers(path: Path, rejector: Any, layout: Layout) -> None:
    """Raise if the detector cannot decide rows of numbers, such as one that encodes a text column."""
    samples = [{"values": [value] * layout.width} for value in (0, 1)]
    samples.append({"positions": [0], "values": [1]})
    for sample in samples:
        try:
            rejector.decide(read_rows(layout, [{"id": "0", **sample}]).groups[0].rows)
            return
        except (ValueError, TypeError) as error:
            reason = first_line(error)
    raise ArtifactError(
        f"{path} cannot be served: its detector cannot decide rows of numbers ({reason}). If it was fitted "
        "on text columns, encode them as numbers before the fit, or leave them out."
    )


def _needed(rejector: Any, layout: Layout, is_sparse: bool, needs_all: bool) -> BoolArray:
    """Return which features are known to be required: a row that lacks only one of them cannot be decided.

    A pipeline may impute some features and require others. So groups of features are tried, and a failing
    group is halved. The limit is a number of trials, not a time, so that all gates find the same. If the
    detector declares that it requires all, one trial confirms it.
    """

    def decides(value: float, columns: AnyArray) -> bool:
        row = np.full((1, layout.width), value)
        row[0, columns] = np.nan
        try:
            rejector.decide(sp.csr_matrix(row) if is_sparse else layout.rows(row))
        except (ValueError, TypeError):
            return False
        return True

    every, needed = np.arange(layout.width), np.zeros(layout.width, dtype=bool)
    value = next((value for value in (0.0, 1.0) if decides(value, every[:0])), None)
    if value is None:
        return needed
    if needs_all and not decides(value, every[-1:]):
        return ~needed
    failing, _ = find_failing(
        len(every), lambda columns: not decides(value, columns), _TRIALS, largest_first=False
    )
    needed[failing] = True
    return needed


def _needs_all(detector: Any) -> bool:
    """Return whether scikit-learn declares that a detector accepts no missing value in any feature.

    False if that is uncertain, as for a detector that contains others.
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
    declares, kind = declared(rejector), manifest["rejector"]
    if declares.judges_scores:
        raise ArtifactError(f"{path} judges scores, not objects: save an evaluator with its detector.")
    if declares.depends_on_others:
        raise ArtifactError(
            f"{path} holds a {kind}, whose decision about an object depends on other objects. Save a "
            "rejector that decides each object by itself, such as an InductiveEvaluator, or the rejector "
            "inside a budget."
        )
    if manifest["features"]["count"] is None:
        raise ArtifactError(f"{path} was fitted on texts: a gate serves only detectors of numbers.")
