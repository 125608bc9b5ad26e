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

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, take_rows
from transcendent._utils.cells import are_missing, column_in_words, find_cells
from transcendent._utils.estimators import see_through
from transcendent.artifacts import open_artifact
from transcendent.artifacts.sandbox import try_out
from transcendent.decisions import Budget, Decisions, declared
from transcendent.errors import ArtifactError, CalibrationError
from transcendent.gate.cutoff import Rule, sample_ranks
from transcendent.gate.features import Group, ObjectProblem, Parsed, Problems, read_rows
from transcendent.gate.moving import WatchedFeatures
from transcendent.gate.ranges import Ranges
from transcendent.gate.scores import layout_of, read_scores
from transcendent.judging.pvalues import credibility_and_confidence
from transcendent.monitoring import DriftMonitor
from transcendent.tables.answers import ScoreColumns
from transcendent.tables.bad_rows import decide_rows, find_failing, first_line
from transcendent.tables.layout import Layout

_TRIALS = 200  # rows with missing values to try at the start, for dense and for sparse rows
_WINDOW = 2000  # objects with which a RejectionBudget compares, whose periods a gate does not know
_KEEP_GAPS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)


@dataclass(frozen=True)
class Model:
    """A rejector, and what the gate needs to know about it.

    ``needed`` marks the features that are known to be required, in sparse rows (True) and in dense ones
    (False): objects that lack one are refused. The detector decides whether others may be missing. ``rule``
    is that of a budget: the rejector is then the one inside, and a cutoff decides what it rejects. ``ranges``
    are those of the features in the fit. ``scores`` are the columns of a rejector that judges scores.
    ``observer`` decides, and says what a drift monitor needs to know of each object; ``unmonitored`` says why
    there is none. ``watched`` are features that it compares with the fit.
    """

    rejector: Any
    digest: str
    layout: Layout
    classes: list[Any]
    manifest: dict[str, Any]
    needed: dict[bool, BoolArray] = field(default_factory=dict)
    rule: Rule | None = None
    ranges: Ranges | None = None
    scores: ScoreColumns | None = None
    observer: DriftMonitor | None = None
    unmonitored: str | None = None
    watched: WatchedFeatures | None = None
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def read(self, objects: list[Any]) -> Parsed:
        """Return objects as rows to decide."""
        if self.scores is None:
            return read_rows(self.layout, objects)
        return read_scores(self.scores, self.layout, objects)

    def decide(self, rows: Any) -> Decisions:
        """Decide rows, in one thread at a time."""
        if self.scores is not None:
            rows, _ = self.scores.read(rows)
        decide = self.rejector.decide if self.observer is None else self.observer.observe
        with self.lock:
            decisions: Decisions = decide(rows)
        return decisions

    def refuse_missing(self, group: Group, problems: Problems) -> Group:
        """Return the objects that lack no required value, and add the others to ``problems``."""
        is_sparse = sp.issparse(group.rows)
        needed = self.needed.get(is_sparse)
        if needed is None or not needed.any():
            return group
        if self.layout.text:
            rows, columns = np.nonzero(group.rows.isna().to_numpy())
        else:
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


def load_model(
    path: Path,
    trusted: Collection[str] = (),
    public_key: Path | None = None,
    digest: str | None = None,
) -> Model:
    """Load an artifact after a trial in another process, and find the features that its detector requires.

    If ``digest`` is given, an artifact with another one is refused.
    """
    artifact = open_artifact(path, public_key=public_key)
    if digest not in (None, artifact.digest):
        raise ArtifactError(f"{path} is refused: its digest is {artifact.digest}, not {digest}.")
    artifact.check(trusted)
    try_out(artifact, trusted)
    rejector = artifact.rejector(trusted)
    budget = declared(rejector).budget
    if budget is not None:
        rejector = budget.rejector
    scores = artifact.score_columns()
    _check_servable(path, rejector, scores)
    rule = None if budget is None else _rule(path, budget)
    layout = artifact.layout() if scores is None else layout_of(scores)
    _check_columns(path, layout)
    fitted = declared(rejector).fitted
    classes = np.asarray(fitted.classes).tolist()
    given = rejector, artifact.digest, layout, classes, artifact.manifest
    observer, unmonitored = _observer(rejector)
    if scores is not None:
        return Model(*given, rule=rule, scores=scores, observer=observer, unmonitored=unmonitored)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not layout.text:
            _check_decides_numbers(path, rejector, layout)
        needs_all = any(map(_needs_all, fitted.detectors))
        forms = () if layout.documents else (False,) if layout.text else (False, True)
        needed = {is_sparse: _needed(rejector, layout, is_sparse, needs_all) for is_sparse in forms}
    ranges = Ranges(layout, fitted.columns)
    watched = None if observer is None else WatchedFeatures.of(layout, fitted)
    return Model(*given, needed, rule, ranges, observer=observer, unmonitored=unmonitored, watched=watched)


def _observer(rejector: Any) -> tuple[DriftMonitor | None, str | None]:
    """Return a monitor that only observes, or the reason why there is none."""
    try:
        return DriftMonitor.of(rejector), None
    except (ValueError, CalibrationError) as error:
        return None, str(error)


def _rule(path: Path, budget: Budget) -> Rule:
    if budget.rate is None or not 0 < budget.rate < 1:
        raise ArtifactError(
            f"{path} cannot be served: a gate has no periods, so its budget must be a share of the traffic "
            "between 0 and 1. Fit RejectionBudget(rate=0.15), or write budget = 0.15 in the TOML file."
        )
    return Rule(budget.rate, budget.window or _WINDOW, calibration_ranks(budget.rejector))


def with_budget(model: Model, rate: float) -> Rule:
    """Return the rule that rejects a share of the traffic, in place of the model's own rule or thresholds."""
    if model.rule is not None:
        return model.rule._replace(rate=rate)
    return Rule(rate, _WINDOW, calibration_ranks(model.rejector))


def calibration_ranks(rejector: Any) -> FloatArray:
    """Return credibility and confidence of a sample of the calibration objects, none if there are none."""
    declares = declared(rejector)
    judges = declares.fitted.judges if declares.has_p_values else []
    calibrations = [judge.calibration_ for judge in judges]
    pairs = [credibility_and_confidence(each.p_values, each.predicted) for each in calibrations]
    ranks = np.concatenate([np.empty((0, 2)), *map(np.column_stack, pairs)])
    return sample_ranks(ranks[np.isfinite(ranks).all(axis=1)])


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
        "on text, fit it again on a frame, and save it: the file then says which columns hold text."
    )


def _check_columns(path: Path, layout: Layout) -> None:
    """Raise if a column cannot be sent as JSON, or has a name that an export uses."""
    for name in layout.names or ():
        if layout.kinds.get(name) not in (None, "number", "boolean", "text"):
            raise ArtifactError(
                f"{path} cannot be served: its column {name!r} holds {layout.dtypes[name]}, which JSON does "
                "not have. Make it a number or text before the fit."
            )
        if name.startswith("gate_"):
            raise ArtifactError(
                f"{path} cannot be served: its column {name!r} begins with gate_, as the columns do that the "
                "gate adds to an export. Rename it before the fit."
            )


def _needed(rejector: Any, layout: Layout, is_sparse: bool, needs_all: bool) -> BoolArray:
    """Return which features are known to be required: a row that lacks only one of them cannot be decided.

    A pipeline may impute some features and require others. So groups of features are tried, and a failing
    group is halved. The limit is a number of trials, not a time, so that all gates find the same. If the
    detector declares that it requires all, one trial confirms it.
    """

    def decides(value: float, columns: AnyArray) -> bool:
        row = np.full((1, layout.width), value, dtype=object if layout.text else float)
        row[0, [name in layout.text for name in layout.names or ()]] = str(value)
        row[0, columns] = None if layout.text else np.nan
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


def _check_servable(path: Path, rejector: Any, scores: ScoreColumns | None) -> None:
    declares, kind = declared(rejector), type(rejector).__name__
    if declares.judges_scores != (scores is not None):
        raise ArtifactError(f"{path} is refused: its manifest contradicts its {kind} about judging scores.")
    if scores is not None and not np.array_equal(
        np.unique(scores.classes), np.asarray(declares.fitted.classes)
    ):
        raise ArtifactError(f"{path} is refused: its columns of scores are of other classes.")
    if declares.depends_on_others:
        raise ArtifactError(
            f"{path} holds a {kind}, whose decision about an object depends on other objects. Save a "
            "rejector that decides each object by itself, such as an InductiveEvaluator, within a budget or "
            "not."
        )
