"""The base of all conformal evaluators: detectors, their judges, and decisions in chunks of rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import assert_all_finite, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from transcendent._utils import parallel
from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    abbreviate,
    canonical_rows,
    chunks,
    count_rows,
    encode_labels,
    labels_to_fit,
    of_kind,
    take_rows,
    warn_of_other_order,
)
from transcendent._utils.cells import check_names, pointing_out
from transcendent._utils.estimators import check_detector, take_on_input
from transcendent.decisions import Decisions, index_of, p_values_of
from transcendent.evaluators.cancellation import settle_precision
from transcendent.evaluators.known import KnownRows, Roles
from transcendent.evaluators.training import (
    Learner,
    Training,
    check_added_classes,
    check_learning,
    in_known_type,
    learn_fold,
    warn_if_not_independent,
    warn_of_copies,
)
from transcendent.judging.calibration import (
    Calibration,
    CalibrationLabel,
    check_calibration_label,
    warn_if_coarse,
    warn_if_reversed,
)
from transcendent.judging.judge import ScoreEvaluator
from transcendent.judging.pvalues import Form, check_form
from transcendent.measures.base import Measure
from transcendent.measures.detector import Answer, Detector
from transcendent.measures.names import from_name
from transcendent.rejectors import Traits
from transcendent.thresholds import Search, SearchResult
from transcendent.thresholds.base import check_promises_nothing
from transcendent.thresholds.exact import resolve_search


class DetectorWrapper(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A rejector around one ``estimator``, with the same input tags."""

    estimator: Any

    def __sklearn_tags__(self) -> Any:
        return take_on_input(super().__sklearn_tags__(), self.estimator)


class ConformalEvaluator(DetectorWrapper, ABC):
    """Base of the evaluators: detectors and their judges, one of each or one of each per fold."""

    measure: Measure | Callable[[Any, Any], Any] | str
    search: Search | str
    p_value: Form
    calibration_label: CalibrationLabel
    random_state: Any
    n_jobs: int | None
    verbose: bool

    detectors_: list[Detector]
    judges_: list[ScoreEvaluator]
    classes_: AnyArray
    calibration_rows_: list[IntArray]
    n_rows_: int
    n_repeated_: int
    n_left_out_: int = 0
    known_rows_: KnownRows
    fit_metadata_: list[str]

    learns_apart = True
    """Whether ``learn`` can leave the detector, or the models of the measure, as they are."""
    guarantees = False
    """Whether what a `GuaranteedSearch` proves holds for its decisions."""

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels, accepted or not."""
        return self.decide(X).labels.copy()

    def predict_p(self, X: Any) -> FloatArray:
        """Return (n, classes) p-values; of a cross-conformal evaluator, the mean over its folds."""
        return p_values_of(self.decide(X)).copy()

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        return self._in_chunks(X, self._judge)

    def rethreshold(self, search: Search | str) -> Self:
        """Search new thresholds on the stored calibration objects; nothing is refitted.

        Also after a ``fit`` that ended in an `InfeasibleError`: what it fitted is kept. A call that fails
        changes nothing.
        """
        if not hasattr(self, "judges_"):
            check_is_fitted(self)
        self._check_search(search)
        self.judges_ = [copy(judge).rethreshold(search) for judge in self.judges_]
        warn_if_not_independent(self, stacklevel=3)
        return self

    @pointing_out
    def recalibrate(self, X: Any, y: Any) -> Self:
        """Replace the calibration objects by new labelled ones; the detector is not refitted.

        The thresholds are searched anew, by the search last used (``search_``). Rows the detector was
        fitted on make p-values too optimistic: give others. A call that fails changes nothing.
        """
        warn_of_other_order(X, y, stacklevel=4)
        X, y = indexable(self._check_rows(X), in_known_type(y, self.classes_))
        judges = [self._judge_of(d, d.answer(X), y) for d in self.detectors_]
        warn_if_reversed([judges[0].calibration_], stacklevel=4)  # all have the same objects
        for judge in judges:
            judge.rethreshold(self.search_)
        warn_if_coarse([judge.calibration_ for judge in judges], stacklevel=4)
        self.judges_ = judges
        for name in ("calibration_rows_", "known_rows_"):
            self.__dict__.pop(name, None)  # no longer calibration rows
        return self

    @pointing_out
    def learn(self, X: Any, y: Any, *, what: Learner = "judge", **params: Any) -> Self:
        """Learn from labels that came later; the rows that calibrated calibrate again.

        New rows only train: labels of objects that were chosen, because they looked strange or for any other
        reason, say nothing about objects as they come, and thresholds found on them would promise nothing.
        The thresholds are searched anew, by the search last used (``search_``) or, for more classes than
        before, that of the constructor. A call that fails changes nothing.

        Rows are recognised by what they hold, not by where they stand: the same rows in any order give the
        same evaluator. (Where rows that are equal have different metadata, order tells them apart.)

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n, features)
            The rows given to ``fit`` and all that were labelled since. A new row that equals one that
            calibrates a detector does not train it; ``n_left_out_`` is the number of such rows.
        y : array of shape (n,)
            Their labels. A class that ``fit`` has not seen needs a detector that learns it; some of its rows
            calibrate, since no others can. They do so in later calls, too.
        what : {"judge", "detector", "both"}
            ``"judge"``: the models of the measure, such as second opinions, are fitted on old and new rows;
            the detector stays as it is. ``"detector"``: the detector is; models that learn from the rows
            alone, not from what the steps of a pipeline make of them, stay as they are.
        **params : dict
            Passed to the detector's ``fit`` through metadata routing, as for ``fit``.
        """
        learning, training, roles = self._start_learning(X, y, what, params)
        learnt = parallel.run(
            learn_fold,
            zip(self.detectors_, roles.train, roles.calibration, strict=True),
            shared=(training, what),
            total=len(self.detectors_),
            n_jobs=self.n_jobs if len(self.detectors_) > 1 else 1,
            label="learning",
            verbose=self.verbose,
        )
        detectors, answers = zip(*learnt, strict=True)
        return self._finish_learning(learning, training, list(detectors), list(answers), roles.calibration)

    def _start_learning(
        self, X: Any, y: Any, what: Learner, params: dict[str, Any]
    ) -> tuple[Self, Training, Roles]:
        """Return a copy that is to learn, what it learns from, and which rows train and calibrate."""
        warn_of_other_order(X, y, stacklevel=5)
        X = self._check_rows(X)
        given = getattr(self, "fit_metadata_", [])
        if what != "judge" and sorted(params) != given:
            raise ValueError(f"fit was given metadata {given}, so that learn needs the same, of all rows.")
        learning = copy(self)
        training, _ = learning._start_fit(X, in_known_type(y, self.classes_), params)
        learning.fit_metadata_ = given  # of the detector, which may stay as it is
        check_learning(self, training, what)
        roles = self.known_rows_.assign(
            training.X, training.y, training.classes, self.calibration_rows_, self._one_in
        )
        check_added_classes(self, training, roles)
        learning.known_rows_, learning.n_left_out_ = roles.known, int(roles.left_out.sum())
        if learning.n_left_out_ > self.n_left_out_:
            warn_of_copies(roles, stacklevel=5)
        return learning, training, roles

    @property
    @abstractmethod
    def _one_in(self) -> int:
        """Return k: one in k rows of a class that ``fit`` has not seen calibrates, the others train."""

    def _finish_learning(
        self,
        learning: Self,
        training: Training,
        detectors: list[Detector],
        answers: list[Answer],
        rows: list[IntArray],
    ) -> Self:
        """Calibrate a copy that has learnt, and adopt its state."""
        search = self.search_ if len(training.classes) == len(self.classes_) else self.search
        learning._calibrate(training, detectors, answers, rows, search)
        self.__dict__.update(learning.__dict__)
        return self

    @property
    def search_(self) -> Search:
        """The search last used."""
        check_is_fitted(self)
        return self.judges_[0].search_

    def get_metadata_routing(self) -> MetadataRouter:
        """Route metadata given to ``fit`` to the detector's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "judges_") and hasattr(self.judges_[0], "result_")

    def _start_fit(self, X: Any, y: Any, params: dict[str, Any]) -> tuple[Training, IntArray]:
        """Check what to fit on which rows; return it, and the labels as positions in ``classes_``."""
        for name in ("detectors_", "judges_"):
            self.__dict__.pop(name, None)  # a fit that fails leaves nothing half old, half new
        check_detector(self.estimator)
        check_form(self.p_value)
        check_calibration_label(self.calibration_label)
        X, y, codes = checked_training(self, X, y)
        self._check_search(self.search)
        routed = self._routed(params)
        self.fit_metadata_ = sorted(params)
        measure = from_name(self.measure, self.random_state)
        return Training(self.estimator, measure, X, y, self.classes_, routed), codes

    def _check_search(self, search: Search | str) -> None:
        found = resolve_search(search, len(self.classes_))
        if not self.guarantees:
            check_promises_nothing(found, self)

    def _finish_fit(
        self, training: Training, detectors: list[Detector], answers: list[Answer], rows: list[IntArray]
    ) -> Self:
        """Calibrate every detector, and remember the rows."""
        self.calibration_rows_, self.n_rows_ = rows, len(training.y)
        codes = np.searchsorted(self.classes_, training.y)
        self.known_rows_ = KnownRows.of(training.X, codes, self.classes_)
        self.n_repeated_, self.n_left_out_ = self._count_repeated(), 0
        self._calibrate(training, detectors, answers, rows, self.search)
        return self

    def _count_repeated(self) -> int:
        return sum(map(self.known_rows_.count_repeated, self.calibration_rows_))

    def _calibrate(
        self,
        training: Training,
        detectors: list[Detector],
        answers: list[Answer],
        rows: list[IntArray],
        search: Search | str,
    ) -> None:
        """Give every detector a judge, calibrated on its answers about some rows."""
        labels = [training.y[own] for own in rows]
        actual = [encode_labels(own, self.classes_, "y") for own in labels]
        given = zip(rows, actual, detectors, answers, strict=True)
        settled = [settle_precision(training.X, *each) for each in given]
        judges = [self._judge_of(*pair, own) for pair, own in zip(settled, labels, strict=True)]
        self.detectors_ = [detector for detector, _ in settled]
        self.judges_ = judges  # kept so that `rethreshold` can retry
        warn_if_reversed([judge.calibration_ for judge in judges], stacklevel=6)
        self.judges_ = [copy(judge).rethreshold(search) for judge in judges]
        warn_if_coarse([judge.calibration_ for judge in self.judges_], stacklevel=6)
        warn_if_not_independent(self, stacklevel=6)

    def _judge_of(self, detector: Detector, answer: Answer, y: AnyArray) -> ScoreEvaluator:
        """Return a judge of the detector's answers, without thresholds yet."""
        codes, scores = answer
        measure = detector.measure
        single = {"absolute": (0,) if measure.absolute else ()}
        merging = single if measure.n_members is None else vars(measure.merging)
        judge = ScoreEvaluator(p_value=self.p_value, calibration_label=self.calibration_label, **merging)
        return judge.calibrate(scores, encode_labels(y, self.classes_, "y"), codes, self.classes_)

    def _check_rows(self, X: Any) -> Any:
        """Return new rows; refuse other columns than those of ``fit``."""
        check_is_fitted(self)
        return checked_rows(self, X)

    def _routed(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata for the detector's ``fit``."""
        if not params:
            return {}
        if not get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"{sorted(params)} can only be passed on to the detector with metadata routing: "
                "sklearn.set_config(enable_metadata_routing=True), and on the detector "
                f"set_fit_request({', '.join(f'{name}=True' for name in sorted(params))})."
            )
        routed: dict[str, Any] = process_routing(self, "fit", **params).estimator.fit
        return routed

    def _judge(self, X: Any) -> Decisions:
        """Decide about checked rows."""
        return self.judges_[0].judge(*self.detectors_[0].answer(X))

    @pointing_out
    def _in_chunks(self, X: Any, judge: Callable[[Any], Decisions]) -> Decisions:
        """Decide about all rows in chunks, so that temporary arrays stay small."""
        index = index_of(X)
        (X,) = indexable(self._check_rows(X))
        n, size = count_rows(X), _chunk_size(len(self.classes_))
        if n == 0:
            raise ValueError("X has 0 samples; there is nothing to decide.")
        if n <= size:
            return replace(judge(X), index=index)
        columns: dict[str, AnyArray] = {}

        def fill(rows: slice) -> None:
            for name, part in judge(take_rows(X, rows)).columns().items():
                columns.setdefault(name, np.empty((n, *part.shape[1:]), part.dtype))[rows] = part

        parallel.run(
            fill,
            ((rows,) for rows in chunks(n, size)),
            total=-(-n // size),
            n_jobs=self.n_jobs,
            shared_memory=True,
            label="deciding",
            verbose=self.verbose,
        )
        return Decisions(**columns, classes=self.classes_, index=index)  # type: ignore[arg-type]  # arrays all


class OneDetectorEvaluator(ConformalEvaluator):
    """An evaluator with one detector and one judge."""

    def _fitting(self) -> AbstractContextManager[None]:
        """Show that the detector is being fitted, if that takes long."""
        label = f"fitting {type(self.estimator).__name__} and its measure"
        return parallel.working(label, verbose=self.verbose)

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        check_is_fitted(self)
        return self.detectors_[0].estimator

    @property
    def measure_(self) -> Measure:
        """The fitted measure; with ``measure="auto"`` this says which was picked."""
        check_is_fitted(self)
        return self.detectors_[0].measure

    @property
    def calibration_(self) -> Calibration:
        """The calibration objects: scores, labels and p-values."""
        check_is_fitted(self)
        return self.judges_[0].calibration_

    @property
    def result_(self) -> SearchResult:
        """The thresholds and what they promise."""
        check_is_fitted(self)
        return self.judges_[0].result_

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds


def checked_training(rejector: Any, X: Any, y: Any) -> tuple[Any, AnyArray, IntArray]:
    """Check rows and labels, set ``classes_``, and return rows, labels and positions in ``classes_``."""
    kind = type(rejector).__name__
    if y is None:
        raise ValueError(f"{kind} requires y to be passed, but the target y is None.")
    check_names(X)
    warn_of_other_order(X, y, stacklevel=6)
    X = canonical_rows(X)
    validate_data(rejector, X, reset=True, skip_check_array=True)
    X, y = indexable(X, labels_to_fit(y))
    rejector.fitted_on_sparse_ = sp.issparse(X)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    rejector.classes_, codes = np.unique(y, return_inverse=True)
    if len(rejector.classes_) < 2:
        raise ValueError(
            f"{kind} needs objects of at least two classes, but y has "
            f"{'one class: ' + abbreviate(rejector.classes_) if len(rejector.classes_) else '0 samples'}."
        )
    return X, y, codes


def checked_rows(rejector: Any, X: Any) -> Any:
    """Return new rows in canonical form, sparse if those of ``fit`` were; refuse other columns."""
    if getattr(X, "ndim", 2) == 1 and Traits.of(rejector).n_features is not None:
        raise ValueError(
            "Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) is one object."
        )
    check_names(X)
    X = canonical_rows(X)
    if not _has_columns_of_fit(rejector, X):
        validate_data(rejector, X, reset=False, skip_check_array=True)
    sparse = getattr(rejector, "fitted_on_sparse_", None)  # None in artifacts of before there was any
    return X if sparse is None else of_kind(X, sparse=sparse)


def _has_columns_of_fit(rejector: Any, X: Any) -> bool:
    """Return whether X is an array as wide as that of ``fit``, both without names of columns.

    scikit-learn finds the same, but to look for names in one row takes it longer than many a detector needs.
    """
    if hasattr(rejector, "feature_names_in_") or not (isinstance(X, np.ndarray) or sp.issparse(X)):
        return False
    return bool(X.ndim == 2 and X.shape[1] == getattr(rejector, "n_features_in_", None))


def _chunk_size(n_classes: int) -> int:
    """Return the number of rows to judge at once: temporary arrays stay at some tens of megabytes."""
    return max(1024, min(1 << 17, (1 << 22) // n_classes))
