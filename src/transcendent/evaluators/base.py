"""What all conformal evaluators share: fitting a detector beside its measure, and deciding."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import assert_all_finite, column_or_1d, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from transcendent import parallel
from transcendent.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    abbreviate,
    as_labels,
    chunks,
    count_rows,
    encode_labels,
    take_rows,
)
from transcendent.cells import check_names, pointing_out
from transcendent.decisions import Decisions
from transcendent.errors import CalibrationError
from transcendent.estimators import see_through, take_on_input, transform
from transcendent.evaluators.calibration import (
    Calibration,
    CalibrationLabel,
    Judgement,
    check_calibration_label,
    judge,
    resolve_search,
    warn_if_coarse,
)
from transcendent.measures.auto import resolve_measure
from transcendent.measures.base import Measure, checked_scores
from transcendent.pvalues import Form, check_form, credibility_and_confidence, draw_uniforms
from transcendent.thresholds import Search, SearchResult


class Detector(NamedTuple):
    """A fitted detector and the measure fitted beside it.

    Attributes
    ----------
    estimator : classifier
        The detector, a pipeline included.
    measure : Measure
        What scores its rows.
    """

    estimator: Any
    measure: Measure

    def answer(self, X: Any) -> tuple[IntArray, FloatArray]:
        """Labels, as positions in the sorted classes, and (n, classes[, parts]) scores in that order.

        A pipeline's rows are transformed once for both.
        """
        transformers, classifier = see_through(self.estimator)
        rows = transform(transformers, X)
        classes = np.asarray(classifier.classes_)
        shape = (count_rows(rows), len(classes))
        scores = checked_scores(self.measure, self.measure.scores(classifier, rows), shape)
        scores = digits_there_are(scores, X, rows)
        codes = self.measure.implied_labels(classifier, scores)
        if codes is None:
            codes = encode_labels(column_or_1d(classifier.predict(rows)), classes, "predict")
        if len(codes) != len(scores):
            raise ValueError(
                f"{type(classifier).__name__} predicts {len(codes)} labels for {len(scores)} rows."
            )
        return in_sorted_order(classes, codes, scores)


@dataclass(frozen=True)
class Training:
    """Labelled rows, and what is to be fitted on some of them."""

    estimator: Any
    measure: Any
    X: Any
    y: AnyArray
    classes: AnyArray
    params: dict[str, Any]

    def fit(self, rows: IntArray) -> Detector:
        """A clone of the detector fitted on the rows (a frozen one stays as it is), and its measure."""
        X, y = take_rows(self.X, rows), self.y[rows]
        model = clone(self.estimator)
        if not isinstance(model, FrozenEstimator):
            model.fit(X, y, **_of_rows(self.params, rows, len(self.y)))
        transformers, classifier = see_through(model)
        _check_classes(classifier, self.classes)
        measure = resolve_measure(self.measure, model)
        if needs_rows(measure):
            measure.fit(classifier, transform(transformers, X), y)
        return Detector(model, measure)


@dataclass(frozen=True)
class CalibratedDetector:
    """A detector with its calibration objects and the thresholds found on them.

    Attributes
    ----------
    detector : Detector
        The fitted classifier and its measure.
    calibration : Calibration
        Scores, labels and p-values of its calibration objects.
    result : SearchResult
        The thresholds and what they promise.
    """

    detector: Detector
    calibration: Calibration
    result: SearchResult

    def judge(self, X: Any, uniforms: FloatArray | None) -> Judgement:
        """Labels, p-values, credibility, confidence, and which labels to accept."""
        return judge(self.calibration, self.result, *self.detector.answer(X), uniforms)


class DetectorWrapper(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """A rejector around one ``estimator``, which takes the rows and classes that one does."""

    estimator: Any

    def __sklearn_tags__(self) -> Any:
        return take_on_input(super().__sklearn_tags__(), self.estimator)


class ConformalEvaluator(DetectorWrapper):
    """Base of the evaluators: a list of calibrated detectors, one or one per fold."""

    measure: Any
    search: Any
    p_value: Form
    calibration_label: CalibrationLabel
    random_state: Any
    n_jobs: int | None
    verbose: bool

    detectors_: list[CalibratedDetector]
    classes_: AnyArray

    def predict(self, X: Any) -> AnyArray:
        """The detector's labels, accepted or not."""
        return self._decide(X).labels.copy()

    def predict_p(self, X: Any) -> FloatArray:
        """(n, classes) p-values; of a cross-conformal evaluator, the mean over its folds."""
        return self._decide(X).p_values.copy()

    def decide(self, X: Any) -> Decisions:
        """Label every object and say which labels to accept."""
        return self._decide(X)

    def rethreshold(self, search: Any) -> Self:
        """Search new thresholds on the stored calibration objects; nothing is refitted.

        Also after a ``fit`` that ended in an `InfeasibleError`: what it fitted is kept. A call that fails
        changes nothing.
        """
        check_is_fitted(self, ["detectors_", "_unthresholded"], all_or_any=any)
        calibrated = self.__dict__.get("_unthresholded") or [
            (each.detector, each.calibration) for each in self.detectors_
        ]
        self._set_thresholds(calibrated, resolve_search(search, len(self.classes_)))
        return self

    @pointing_out
    def recalibrate(self, X: Any, y: Any) -> Self:
        """Replace the calibration objects by new labelled ones; the detector is not refitted.

        The thresholds are searched anew, by the search last used (``search_``). Rows the detector was
        fitted on make p-values too optimistic: give others. A call that fails changes nothing.
        """
        X, y = indexable(self._check_rows(X), as_labels(y))
        detectors = [each.detector for each in self.detectors_]
        calibrated = [(d, self._calibration(d.measure, *d.answer(X), y)) for d in detectors]
        thresholded = _thresholded(calibrated, self.search_)
        warn_if_coarse([calibration for _, calibration in calibrated], stacklevel=4)
        self.detectors_ = thresholded
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata given to ``fit`` goes to the detector's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=mapping)

    def _start_fit(self, X: Any, y: Any, params: dict[str, Any]) -> tuple[Training, IntArray]:
        """What to fit on which rows, checked, and the labels as positions in ``classes_``."""
        for name in ("detectors_", "_unthresholded"):
            self.__dict__.pop(name, None)  # a fit that fails leaves nothing half old, half new
        check_form(self.p_value)
        check_calibration_label(self.calibration_label)
        X, y, codes = checked_training(self, X, y)
        resolve_search(self.search, len(self.classes_))
        routed = self._routed(params)
        return Training(self.estimator, self.measure, X, y, self.classes_, routed), codes

    def _check_rows(self, X: Any) -> Any:
        """New rows, refused if their number or names of columns differ from those of ``fit``."""
        check_is_fitted(self, "detectors_")
        return checked_rows(self, X)

    def _routed(self, params: dict[str, Any]) -> dict[str, Any]:
        """The metadata for the detector's ``fit``."""
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

    def _calibration(self, measure: Measure, codes: IntArray, scores: FloatArray, y: AnyArray) -> Calibration:
        return Calibration(
            classes=self.classes_,
            scores=scores,
            actual=encode_labels(y, self.classes_, "y"),
            predicted=codes,
            form=self.p_value,
            label=self.calibration_label,
            random_state=self.random_state,
            merging=None if measure.n_parts is None else measure.merging,
        )

    def _finish_fit(self, calibrated: list[tuple[Detector, Calibration]]) -> Self:
        self._unthresholded = calibrated  # kept, should no thresholds be found
        self._set_thresholds(calibrated, resolve_search(self.search, len(self.classes_)))
        warn_if_coarse([calibration for _, calibration in calibrated], stacklevel=5)
        return self

    def _set_thresholds(self, calibrated: list[tuple[Detector, Calibration]], search: Search) -> None:
        self.detectors_ = _thresholded(calibrated, search)
        self.search_ = search
        self.__dict__.pop("_unthresholded", None)

    @pointing_out
    def _decide(self, X: Any, quorum: int = 1) -> Decisions:
        (X,) = indexable(self._check_rows(X))
        n, k = count_rows(X), len(self.classes_)
        if n == 0:
            raise ValueError("X has 0 samples; there is nothing to decide.")
        uniforms = draw_uniforms(self.p_value, (n, k), self.random_state, new_objects=True)
        labels = np.empty(n, dtype=self.classes_.dtype)
        votes = np.empty(n, dtype=np.intp if len(self.detectors_) > 1 else bool)
        credibility, confidence, p = np.empty(n), np.empty(n), np.empty((n, k))

        def decide_rows(rows: slice) -> None:
            u = None if uniforms is None else uniforms[rows]
            votes[rows], judged = _vote(self.detectors_, take_rows(X, rows), u)
            labels[rows] = self.classes_[judged.codes]
            credibility[rows], confidence[rows] = judged.credibility, judged.confidence
            p[rows] = judged.p_values

        size = _chunk_size(k)
        parallel.run(
            decide_rows,
            ((rows,) for rows in chunks(n, size)),
            total=-(-n // size),
            n_jobs=self.n_jobs,
            shared_memory=True,
            label="deciding",
            verbose=self.verbose,
        )
        return Decisions(
            labels=labels,
            accepted=votes >= quorum,
            credibility=credibility,
            confidence=confidence,
            p_values=p,
            classes=self.classes_,
            votes=None if votes.dtype == bool else votes,
        )


class FoldedEvaluator(ConformalEvaluator):
    """An evaluator that fits one detector per fold."""

    def __init__(
        self,
        estimator: Any,
        *,
        measure: Any = "auto",
        search: Any = "auto",
        cv: Any = 10,
        p_value: Form = "paper",
        calibration_label: CalibrationLabel = "predicted",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = True,
    ) -> None:
        self.estimator = estimator
        self.measure = measure
        self.search = search
        self.cv = cv
        self.p_value = p_value
        self.calibration_label = calibration_label
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose


class SingleDetectorMixin:
    """Names for what an evaluator around one detector holds."""

    detectors_: list[CalibratedDetector]

    @property
    def _only(self) -> CalibratedDetector:
        check_is_fitted(self, "detectors_")
        return self.detectors_[0]

    @property
    def estimator_(self) -> Any:
        """The fitted detector."""
        return self._only.detector.estimator

    @property
    def measure_(self) -> Measure:
        """The fitted measure; with ``measure="auto"`` this says which was picked."""
        return self._only.detector.measure

    @property
    def calibration_(self) -> Calibration:
        """The calibration objects: scores, labels and p-values."""
        return self._only.calibration

    @property
    def result_(self) -> SearchResult:
        """The thresholds and what they promise."""
        return self._only.result

    @property
    def thresholds_(self) -> FloatArray:
        """Credibility threshold of each class."""
        return self.result_.credibility_thresholds


def checked_training(rejector: Any, X: Any, y: Any) -> tuple[Any, AnyArray, IntArray]:
    """Rows and labels fit to train on, and positions in ``classes_``, which this sets."""
    kind = type(rejector).__name__
    if y is None:
        raise ValueError(f"{kind} requires y to be passed, but the target y is None.")
    check_names(X)
    validate_data(rejector, X, reset=True, skip_check_array=True)
    X, y = indexable(X, as_labels(y))
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
    """New rows, refused if their number or names of columns differ from those of ``fit``."""
    if getattr(X, "ndim", 2) == 1 and hasattr(rejector, "n_features_in_"):
        raise ValueError(
            "Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) is one object."
        )
    check_names(X)
    validate_data(rejector, X, reset=False, skip_check_array=True)
    return X


def in_sorted_order(classes: AnyArray, codes: IntArray, scores: FloatArray) -> tuple[IntArray, FloatArray]:
    """Positions in ``classes`` and columns in their order, turned into those of the sorted classes."""
    order = np.argsort(classes)
    if np.array_equal(order, np.arange(len(classes))):
        return codes, scores
    return np.argsort(order)[codes], scores[:, order]


def digits_there_are(scores: FloatArray, *rows: Any) -> FloatArray:
    """The scores, in single precision if any form of the rows is: they have no more digits than that."""
    if not any(map(_in_single_precision, rows)):
        return scores
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(rounded), rounded, scores)


def _in_single_precision(X: Any) -> bool:
    kinds = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", ()))
    return bool(kinds) and all(kind in (np.float32, np.float16) for kind in kinds)


def needs_rows(measure: Measure) -> bool:
    """Whether the measure still has to learn from rows."""
    return measure.needs_rows and not isinstance(measure, FrozenEstimator)


def _thresholded(calibrated: list[tuple[Detector, Calibration]], search: Search) -> list[CalibratedDetector]:
    """Return the detectors with the thresholds that the search finds for each."""
    return [
        CalibratedDetector(detector, calibration, calibration.search(search))
        for detector, calibration in calibrated
    ]


def _of_rows(params: dict[str, Any], rows: IntArray, n: int) -> dict[str, Any]:
    """Metadata with one entry per row is cut to the rows; the rest is passed on."""
    return {
        name: take_rows(value, rows) if hasattr(value, "__len__") and len(value) == n else value
        for name, value in params.items()
    }


def _check_classes(classifier: Any, classes: AnyArray) -> None:
    known = getattr(classifier, "classes_", None)
    if known is None:
        raise ValueError(f"{type(classifier).__name__} is not a fitted classifier: it has no classes_.")
    if np.array_equal(known, classes):
        return
    unknown = np.setdiff1d(classes, known).tolist()
    if unknown:
        raise CalibrationError(
            f"y has the label {unknown[0]!r}, which the detector does not know; it was fitted on "
            f"{abbreviate(np.asarray(known))}."
        )
    unseen = np.setdiff1d(known, classes).tolist()
    if unseen:
        raise CalibrationError(
            f"the detector can answer {unseen[0]!r}, but y has no object of that class to calibrate on."
        )


def _vote(
    detectors: list[CalibratedDetector], X: Any, uniforms: FloatArray | None
) -> tuple[AnyArray, Judgement]:
    """How many detectors both predict the plurality label and accept it; and what they say on average."""
    each = [detector.judge(X, uniforms) for detector in detectors]
    if len(each) == 1:
        return each[0].accepted, each[0]
    shape = each[0].p_values.shape
    rows = np.arange(shape[0])
    ballots, credibility, p = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for judged in each:
        ballots[rows, judged.codes] += 1
        credibility[rows, judged.codes] += judged.credibility
        p += judged.p_values
    p /= len(each)
    leading = ballots == ballots.max(axis=1, keepdims=True)
    # Rounded, since equal credibilities summed in another order differ in the last bit.
    label = np.argmax(np.where(leading, credibility.round(9), -1.0), axis=1)
    votes = np.sum([(judged.codes == label) & judged.accepted for judged in each], axis=0)
    return votes, Judgement(label, p, *credibility_and_confidence(p, label), votes > 0)


def _chunk_size(n_classes: int) -> int:
    """Rows judged at once: few enough that temporaries stay at some tens of megabytes."""
    return max(1024, min(1 << 17, (1 << 22) // n_classes))
