"""The base class of conformal evaluators: detectors, their judges, and decisions in chunks of rows."""

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
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
from transcendent._utils.cells import check_names, locate_bad_value
from transcendent._utils.checks import check_choices
from transcendent._utils.estimators import check_detector, copy_input_tags, detector_in_words
from transcendent.decisions import Answers, Decisions, Fitted, InWords, Rejector, index_of, p_values_of
from transcendent.errors import CopiesWarning
from transcendent.evaluators.cancellation import settle_precision
from transcendent.evaluators.columns import FittedColumns
from transcendent.evaluators.known import KnownRows
from transcendent.evaluators.training import Fold, Training, cast_labels
from transcendent.judging.calibration import CalibrationLabel, warn_if_coarse, warn_if_reversed
from transcendent.judging.judge import ScoreEvaluator
from transcendent.judging.pvalues import Form
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure
from transcendent.measures.detector import CodedAnswers, Detector
from transcendent.measures.names import from_name
from transcendent.thresholds import Search, SearchLike
from transcendent.thresholds.base import refuse_guaranteed_search
from transcendent.thresholds.exact import resolve_search

Columns = Mapping[str, AnyArray]

_MAX_COPIES = 0.1
_MIN_CHUNK, _MAX_CHUNK = 1 << 10, 1 << 17


class DetectorWrapper(Rejector, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A rejector that wraps one ``estimator`` and has its input tags."""

    estimator: Any

    def __sklearn_tags__(self) -> Any:
        return copy_input_tags(super().__sklearn_tags__(), self.estimator)


class ConformalEvaluator(DetectorWrapper):
    """An evaluator with one detector and one judge, or with one of each per fold."""

    measure: Measure | Callable[[Any, Any], Any] | str
    search: SearchLike
    p_value: Form
    calibration_label: CalibrationLabel
    random_state: Any
    n_jobs: int | None

    detectors_: list[Detector]
    judges_: list[ScoreEvaluator]
    classes_: AnyArray
    calibration_rows_: list[IntArray]
    n_rows_: int
    n_repeated_: int
    n_left_out_: int
    known_rows_: KnownRows
    fit_metadata_: list[str]
    fitted_on_sparse_: bool
    columns_: FittedColumns | None

    can_rethreshold = has_p_values = True
    guarantees = False
    """Whether the guarantees of a `GuaranteedSearch` hold for its decisions."""

    @property
    def tells_doubt(self) -> bool:  # type: ignore[override]
        """Whether its decisions name kinds of doubt."""
        return any(judge.tells_doubt for judge in self.judges_)

    @property
    def fitted(self) -> Fitted:
        """The rows of ``fit``, the detectors and their judges, and the thresholds."""
        found = super().fitted
        if not hasattr(self, "judges_"):
            return found
        results = [judge.result_ for judge in self.judges_ if hasattr(judge, "result_")]
        return replace(
            found,
            n_rows=self.n_rows_,
            detectors=[detector.estimator for detector in self.detectors_],
            judges=self.judges_,
            results=results,
            lacks_thresholds=len(results) < len(self.judges_),
            n_repeated=self.n_repeated_,
            n_left_out=self.n_left_out_,
        )

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels, accepted or not."""
        return self.decide(X).labels.copy()

    def in_words(self, n_classes: int) -> InWords:
        """Return how it judges the detector's answers, and which ones its thresholds reject."""
        search = resolve_search(self.search, n_classes)
        judges = f"judges the answers of {detector_in_words(self.estimator)} by {self._judges_by()}"
        return InWords(judges, search.in_words, search.under_drift, search.promised_error)

    def _judges_by(self) -> str:
        """Return what the answers are judged by, as the end of a sentence."""
        return self._measure_in_words()

    def _measure_in_words(self) -> str:
        if isinstance(self.measure, str) and self.measure != "auto":
            return f"the measure {self.measure}"
        return resolve_measure(self.measure, self.estimator).in_words

    def predict_p(self, X: Any) -> FloatArray:
        """Return (n, classes) p-values; a cross-conformal evaluator returns the means over its folds."""
        return p_values_of(self.decide(X)).copy()

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        return self._decide(X, lambda rows: self.judges_[0].judge(*self.detectors_[0].answer(rows)))

    def answers(self, X: Any) -> list[Answers]:
        """Return the labels and scores of each detector, in the order of ``judges_``."""
        index = index_of(X)
        columns = [self._in_chunks(X, partial(self._answer, one), "answering") for one in self.detectors_]
        return [Answers(**own, index=index) for own in columns]

    def _answer(self, detector: Detector, X: Any) -> Columns:
        codes, scores = detector.answer(X)
        return {"labels": self.classes_[codes], "scores": scores}

    def rethreshold(self, search: SearchLike) -> Self:
        """Search new thresholds on the stored calibration objects; nothing is refitted.

        This also works after ``fit`` raised an `InfeasibleError`. A call that fails changes nothing.
        """
        if not hasattr(self, "judges_"):
            check_is_fitted(self)
        self._check_search(search)
        self.judges_ = [copy(judge).rethreshold(search) for judge in self.judges_]
        self._warn_if_not_independent(stacklevel=3)
        return self

    @locate_bad_value
    def recalibrate(self, X: Any, y: Any) -> Self:
        """Replace the calibration objects by new labelled ones; the detector is not refitted.

        Thresholds are searched again with ``search_``. Do not pass rows the detector was fitted on: they
        make p-values too optimistic. A call that fails changes nothing.
        """
        warn_of_other_order(X, y, stacklevel=4)
        X, y = indexable(self._check_rows(X), cast_labels(y, self.classes_))
        codes = encode_labels(y, self.classes_, "y")
        judges = [self._judge_of(d, d.answer(X), codes) for d in self.detectors_]
        warn_if_reversed([judges[0].calibration_], stacklevel=4)  # all have the same objects
        for judge in judges:
            judge.rethreshold(self.search_)
        warn_if_coarse([judge.calibration_ for judge in judges], stacklevel=4)
        self.judges_ = judges
        for name in ("calibration_rows_", "known_rows_"):
            self.__dict__.pop(name, None)  # no longer calibration rows
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

    def _start_fit(self, X: Any, y: Any, params: dict[str, Any]) -> Training:
        """Check parameters and rows, and return what to fit."""
        for name in ("detectors_", "judges_"):
            self.__dict__.pop(name, None)  # so that a failed fit does not mix old and new state
        check_detector(self.estimator)
        check_choices(Form, p_value=self.p_value)
        check_choices(CalibrationLabel, calibration_label=self.calibration_label)
        X, y = self._check_training(X, y)
        self._check_search(self.search)
        routed = self._routed(params)
        self.fit_metadata_ = sorted(params)
        measure = from_name(self.measure, self.random_state)
        return Training(self.estimator, measure, X, y, self.classes_, routed)

    def _check_search(self, search: SearchLike) -> None:
        found = resolve_search(search, len(self.classes_))
        if not self.guarantees:
            refuse_guaranteed_search(found, self)

    def _finish_fit(self, training: Training, folds: list[Fold]) -> Self:
        """Calibrate every detector, and keep digests of the rows."""
        self.calibration_rows_, self.n_rows_ = [rows for _, _, rows in folds], len(training.y)
        self.known_rows_ = KnownRows.of(training.X, training.codes, self.classes_)
        self.n_repeated_, self.n_left_out_ = self._count_repeated(), 0
        self._calibrate(training, folds, self.search)
        return self

    def _count_repeated(self) -> int:
        return sum(map(self.known_rows_.count_repeated, self.calibration_rows_))

    def _calibrate(self, training: Training, folds: list[Fold], search: SearchLike) -> None:
        """Give every detector a judge, calibrated on its answers about its calibration rows."""
        codes, detectors, judges = training.codes, [], []
        for detector, answer, rows in folds:
            settled = settle_precision(training.X, rows, codes[rows], detector, answer)
            detectors.append(settled[0])
            judges.append(self._judge_of(*settled, codes[rows]))
        self.detectors_, self.judges_ = detectors, judges  # kept so that `rethreshold` can retry
        warn_if_reversed([judge.calibration_ for judge in judges], stacklevel=6)
        self.judges_ = [copy(judge).rethreshold(search) for judge in judges]
        warn_if_coarse([judge.calibration_ for judge in self.judges_], stacklevel=6)
        self._warn_if_not_independent(stacklevel=6)

    def _warn_if_not_independent(self, stacklevel: int) -> None:
        """Warn if a guarantee rests on many rows that equal other rows of ``fit``."""
        if self.search_.held_out_seed is None or not hasattr(self, "known_rows_"):
            return
        (rows,) = self.calibration_rows_  # guarantees exist only with a single detector
        copies = self.known_rows_.copies()[rows]
        if copies.mean() > _MAX_COPIES:
            warnings.warn(
                f"{copies.sum():,} of the {len(rows):,} calibration rows equal another row of fit. Repeated "
                f"rows are not independent: what {type(self.search_).__name__} promises may not hold for "
                "objects that repeat differently. Drop duplicates before fit.",
                CopiesWarning,
                stacklevel=stacklevel,
            )

    def _judge_of(self, detector: Detector, answer: CodedAnswers, actual: IntArray) -> ScoreEvaluator:
        """Return a judge of the detector's answers, without thresholds yet."""
        predicted, scores = answer
        measure = detector.measure
        single = {"absolute": (0,) if measure.absolute else ()}
        merging = single if measure.n_members is None else vars(measure.merging)
        judge = ScoreEvaluator(p_value=self.p_value, calibration_label=self.calibration_label, **merging)
        return judge.calibrate(scores, actual, predicted, self.classes_)

    def _check_training(self, X: Any, y: Any) -> tuple[Any, AnyArray]:
        """Check rows and labels, set ``classes_``, and return rows and labels."""
        kind = type(self).__name__
        if y is None:
            raise ValueError(f"{kind} requires y to be passed, but the target y is None.")
        check_names(X)
        warn_of_other_order(X, y, stacklevel=6)
        X = canonical_rows(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        X, y = indexable(X, labels_to_fit(y))
        self.fitted_on_sparse_, self.columns_ = sp.issparse(X), FittedColumns.of(X)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{kind} needs objects of at least two classes, but y has "
                f"{'one class: ' + abbreviate(self.classes_) if len(self.classes_) else '0 samples'}."
            )
        return X, y

    def _check_rows(self, X: Any) -> Any:
        """Return new rows in canonical form, sparse if those of ``fit`` were; refuse different columns."""
        check_is_fitted(self)
        if getattr(X, "ndim", 2) == 1 and hasattr(self, "n_features_in_"):
            raise ValueError("Expected a 2D array. Reshape your data: X.reshape(1, -1) is one object.")
        check_names(X)
        X = canonical_rows(X)
        # For one row, scikit-learn's check for column names takes longer than many a detector needs.
        unnamed = not hasattr(self, "feature_names_in_") and (isinstance(X, np.ndarray) or sp.issparse(X))
        if not (unnamed and X.ndim == 2 and X.shape[1] == getattr(self, "n_features_in_", None)):
            validate_data(self, X, reset=False, skip_check_array=True)
        return of_kind(X, sparse=self.fitted_on_sparse_)

    def _routed(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata for the detector's ``fit``."""
        if not params:
            return {}
        if not get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"passing {sorted(params)} to the detector needs metadata routing: call "
                "sklearn.set_config(enable_metadata_routing=True), and on the detector "
                f"set_fit_request({', '.join(f'{name}=True' for name in sorted(params))})."
            )
        return dict(process_routing(self, "fit", **params).estimator.fit)

    def _decide(self, X: Any, judge: Callable[[Any], Decisions]) -> Decisions:
        """Decide about all rows in chunks."""
        columns: Any = self._in_chunks(X, lambda rows: judge(rows).columns(), "deciding")
        return Decisions(**columns, classes=self.classes_, index=index_of(X))

    @locate_bad_value
    def _in_chunks(self, X: Any, work: Callable[[Any], Columns], label: str) -> Columns:
        """Return columns with an entry for each row, computed in chunks to limit memory to tens of MB."""
        (X,) = indexable(self._check_rows(X))
        n, size = count_rows(X), max(_MIN_CHUNK, min(_MAX_CHUNK, (1 << 22) // len(self.classes_)))
        if n == 0:
            raise ValueError("X has 0 samples; there is nothing to decide.")
        if n <= size:
            return work(X)
        columns: dict[str, AnyArray] = {}

        def fill(rows: slice) -> None:
            for name, column in work(take_rows(X, rows)).items():
                columns.setdefault(name, np.empty((n, *column.shape[1:]), column.dtype))[rows] = column

        parallel.run(
            fill,
            ((rows,) for rows in chunks(n, size)),
            total=-(-n // size),
            n_jobs=self.n_jobs,
            shared_memory=True,
            label=label,
            verbose=self.verbose,
        )
        return columns


def copy_fitted_attributes(inner: Any, outer: Any) -> None:
    """Copy classes and columns from a fitted rejector to the one that wraps it."""
    for name in ("classes_", "n_features_in_", "feature_names_in_"):
        if hasattr(inner, name):
            setattr(outer, name, getattr(inner, name))
