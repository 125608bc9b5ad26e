"""Metrics of all, the kept and the rejected objects, from their confusion matrices alone."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    as_labels,
    chunks,
    divide,
    encode_labels,
    mean_of_defined,
)
from transcendent.decisions import Decisions
from transcendent.metrics.ratios import (
    F1,
    ErrorRate,
    Precision,
    Recall,
    Sums,
    Tally,
    position_of,
    second_of_two,
)

Subset = Literal["baseline", "kept", "rejected"]
SUBSETS: tuple[Subset, ...] = get_args(Subset)

_BATCH_CELLS = 1 << 22


def rejection_metrics(y: Any, decisions: Decisions, *, pos_label: Any = None) -> dict[str, dict[str, float]]:
    """Return metrics of all objects (``"baseline"``), the ``"kept"`` ones and the ``"rejected"`` ones.

    Parameters
    ----------
    y : array of shape (n,)
        True labels. Answers about classes that the detector does not know count as wrong.
    decisions : Decisions
        A rejector's decisions about the same objects.
    pos_label : label or None
        The positive class of F1, precision, recall, FPR and FNR. By default the second of two classes; with
        more classes, the mean over those for which the metric is defined.

    Returns
    -------
    dict of dict
        For each subset the columns of `performance`, its ``share`` of the objects (for the rejected ones,
        the rejection rate) and its ``share_of_errors`` (for the rejected ones, the errors caught). 0/0 is
        NaN.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.metrics import rejection_metrics
    >>> X, y = make_classification(2000, flip_y=0.1, random_state=0)
    >>> ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:1000], y[:1000])
    >>> for subset, m in rejection_metrics(y[1000:], ice.decide(X[1000:])).items():
    ...     print(f"{subset:8} {m['objects']:4.0f} objects, {m['error']:.1%} wrong, F1 {m['f1']:.3f}")
    baseline 1000 objects, 5.2% wrong, F1 0.948
    kept      851 objects, 4.2% wrong, F1 0.961
    rejected  149 objects, 10.7% wrong, F1 0.810
    """
    actual = as_labels(y)
    if len(actual) != len(decisions):
        raise ValueError(f"y has {len(actual)} labels for {len(decisions)} decisions: pass one per decision.")
    classes = np.union1d(actual, decisions.classes)
    counts = confusions(
        encode_labels(actual, classes, "y"),
        encode_labels(decisions.labels, classes, "labels"),
        decisions.accepted,
        len(classes),
    )
    if pos_label is None and len(decisions.classes) == 2:
        pos_label = decisions.classes[second_of_two(decisions.classes)]
    return by_subset(subset_metrics(counts, position_of(pos_label, classes)))


def performance(confusion: IntArray, positive: int | None = None) -> dict[str, FloatArray]:
    """Return metrics of (..., classes, classes) confusion matrices, true class by row, predicted by column.

    Parameters
    ----------
    confusion : int array of shape (..., classes, classes)
        Counts; the results have the leading dimensions.
    positive : int or None
        Position of the positive class; None for the mean over classes.

    Returns
    -------
    dict of arrays
        ``objects``, ``errors``, ``error`` (their ratio), ``f1``, ``precision``, ``recall``, ``fpr`` and
        ``fnr``. 0/0 is NaN; a mean is over the classes for which the metric is defined.

    Examples
    --------
    >>> from transcendent.metrics import performance
    >>> {name: round(float(value), 3) for name, value in performance([[8, 2], [1, 4]], positive=1).items()}
    {'objects': 15.0, 'errors': 3.0, 'error': 0.2, 'f1': 0.727, 'precision': 0.667, 'recall': 0.8,
     'fpr': 0.2, 'fnr': 0.2}
    """
    tally = Tally.of(np.asarray(confusion))
    errors, objects = ErrorRate.ratio(tally)
    of_class = {name: divide(*ratio(tally)) for name, ratio in _OF_CLASS.items()}
    return {
        "objects": objects.astype(float),
        "errors": errors.astype(float),
        "error": divide(errors, objects),
        **{k: mean_of_defined(v) if positive is None else v[..., positive] for k, v in of_class.items()},
    }


def confusions(actual: IntArray, predicted: IntArray, kept: AnyArray, n_classes: int) -> AnyArray:
    """Return (2, classes, classes) counts of the kept and the rejected objects; ``kept`` may be shares."""
    cells = actual * n_classes + predicted
    both = [np.bincount(cells, weights, minlength=n_classes**2) for weights in (kept, 1 - np.asarray(kept))]
    counts = np.stack(both).reshape(2, n_classes, n_classes)
    return counts.astype(np.intp) if np.asarray(kept).dtype == bool else counts


def by_subset(columns: dict[str, FloatArray]) -> dict[str, dict[str, float]]:
    """Return the (3,) columns of `subset_metrics` by subset."""
    return {s: {name: float(column[i]) for name, column in columns.items()} for i, s in enumerate(SUBSETS)}


def subset_metrics(counts: IntArray, positive: int | None) -> dict[str, FloatArray]:
    """Return `performance` of (..., 2, classes, classes) counts as (..., 3) columns, with shares."""
    three = np.concatenate([counts.sum(axis=-3, keepdims=True), counts], axis=-3)
    columns = performance(three, positive)
    columns["share"] = divide(columns["objects"], columns["objects"][..., :1])
    columns["share_of_errors"] = divide(columns["errors"], columns["errors"][..., :1])
    return columns


def review_metrics(counts: AnyArray, positive: int | None) -> dict[str, FloatArray]:
    """Return what review gains and costs, from (..., 2, classes, classes) counts, as (...) columns.

    ``f1_reviewed`` is the F1 of all objects if the rejected are given their true labels. With a positive
    class, three columns are shares of it: ``positives_rejected``, ``detections_rejected`` (rejected although
    called positive, so that they wait), and ``positives_missed`` (kept and called something else).
    """
    kept, rejected = counts[..., 0, :, :], counts[..., 1, :, :]
    right = rejected.sum(axis=-1)[..., None] * np.eye(counts.shape[-1])
    columns = {"f1_reviewed": performance(kept + right, positive)["f1"]}
    if positive is not None:
        of_class = counts[..., positive, :].sum(axis=-1)  # kept and rejected
        missed = of_class[..., 0] - kept[..., positive, positive]
        columns["positives_rejected"] = divide(of_class[..., 1], of_class.sum(axis=-1))
        columns["detections_rejected"] = divide(rejected[..., positive, positive], of_class.sum(axis=-1))
        columns["positives_missed"] = divide(missed, of_class.sum(axis=-1))
    return columns


def resample(counts: IntArray, n_resamples: int, generator: np.random.Generator) -> Any:
    """Yield batches of bootstrap samples, (b, ..., 2, classes, classes) counts.

    Drawing n objects with replacement and counting them is one multinomial draw over the cells.
    """
    flat = counts.reshape(-1, int(np.prod(counts.shape[-3:])))
    batch = max(1, _BATCH_CELLS // flat.size)
    for some in chunks(n_resamples, batch):
        size = some.stop - some.start
        drawn = np.zeros((size, *flat.shape), dtype=np.intp)
        for i, cells in enumerate(flat):
            there, n = np.flatnonzero(cells), cells.sum()
            if n:
                drawn[:, i, there] = generator.multinomial(n, cells[there] / n, size=size)
        yield drawn.reshape(size, *counts.shape)


_OF_CLASS: dict[str, Callable[[Tally], Sums]] = {
    "f1": F1.ratio,
    "precision": Precision.ratio,
    "recall": Recall.ratio,
    "fpr": lambda t: (t.predicted - t.correct, t.actual.sum(axis=-1, keepdims=True) - t.actual),
    "fnr": lambda t: (t.actual - t.correct, t.actual),
}
