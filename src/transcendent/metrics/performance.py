"""Metrics of all, the kept and the rejected objects, from their confusion matrices alone."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from transcendent._utils.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    as_labels,
    divide,
    encode_labels,
    mean_of_defined,
)
from transcendent.decisions import Decisions
from transcendent.metrics.ratios import F1, Error, Parts, Precision, Recall, Tally, position_of

Subset = Literal["baseline", "kept", "rejected"]
SUBSETS: tuple[Subset, ...] = get_args(Subset)

_BATCH_CELLS = 1 << 22


def rejection_metrics(y: Any, decisions: Decisions, *, pos_label: Any = None) -> dict[str, dict[str, float]]:
    """Metrics of all objects (``"baseline"``), of the ``"kept"`` and of the ``"rejected"`` ones.

    Parameters
    ----------
    y : array of shape (n,)
        True labels; they may hold classes the detector does not know, which it then gets wrong.
    decisions : Decisions
        What a rejector decided about the same objects.
    pos_label : label or None
        The class F1, precision, recall, FPR and FNR are about. By default the second of two classes; with
        more classes, the mean over those for which the metric is defined.

    Returns
    -------
    dict of dict
        For each subset the columns `performance` has, its ``share`` of the objects (of the rejected: the
        rejection rate) and its ``share_of_errors`` (of the rejected: the errors caught). A metric that is 0/0
        is NaN.

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
        raise ValueError(f"there are {len(actual)} labels for {len(decisions)} decisions.")
    classes = np.union1d(actual, decisions.classes)
    counts = confusions(
        encode_labels(actual, classes, "y"),
        encode_labels(decisions.labels, classes, "labels"),
        decisions.accepted,
        len(classes),
    )
    if pos_label is None and len(decisions.classes) == 2:
        pos_label = decisions.classes[1]
    return by_subset(subset_metrics(counts, position_of(pos_label, classes)))


def performance(confusion: IntArray, positive: int | None = None) -> dict[str, FloatArray]:
    """Metrics of (..., classes, classes) confusion matrices, true class by row, predicted by column.

    Parameters
    ----------
    confusion : int array of shape (..., classes, classes)
        Counts; leading dimensions are kept.
    positive : int or None
        Position of the class that the metrics are about; None for the mean over classes.

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
    errors, objects = Error.ratio(tally)
    of_class = {name: divide(*ratio(tally)) for name, ratio in _OF_CLASS.items()}
    return {
        "objects": objects.astype(float),
        "errors": errors.astype(float),
        "error": divide(errors, objects),
        **{name: _about(positive, values) for name, values in of_class.items()},
    }


def confusions(actual: IntArray, predicted: IntArray, kept: AnyArray, n_classes: int) -> AnyArray:
    """(2, classes, classes) counts of the kept and of the rejected objects; ``kept`` may be shares."""
    cells, shape = actual * n_classes + predicted, (2, n_classes, n_classes)
    both = [np.bincount(cells, weights, minlength=n_classes**2) for weights in (kept, 1 - np.asarray(kept))]
    counts = np.stack(both).reshape(shape)
    return counts.astype(np.intp) if np.asarray(kept).dtype == bool else counts


def by_subset(table: dict[str, FloatArray]) -> dict[str, dict[str, float]]:
    """The (3,) columns of `subset_metrics` by subset."""
    return {s: {name: float(column[i]) for name, column in table.items()} for i, s in enumerate(SUBSETS)}


def subset_metrics(counts: IntArray, positive: int | None) -> dict[str, FloatArray]:
    """`performance` of (..., 2, classes, classes) counts as (..., 3) arrays, with each subset's shares."""
    three = np.concatenate([counts.sum(axis=-3, keepdims=True), counts], axis=-3)
    table = performance(three, positive)
    table["share"] = divide(table["objects"], table["objects"][..., :1])
    table["share_of_errors"] = divide(table["errors"], table["errors"][..., :1])
    return table


def resample(counts: IntArray, n_resamples: int, generator: np.random.Generator) -> Any:
    """Bootstrap: batches of (b, ..., 2, classes, classes) counts, the objects of each leading cell redrawn.

    Drawing n objects with replacement and counting them is one multinomial draw over the cells.
    """
    flat = counts.reshape(-1, int(np.prod(counts.shape[-3:])))
    batch = max(1, _BATCH_CELLS // flat.size)
    for start in range(0, n_resamples, batch):
        size = min(batch, n_resamples - start)
        drawn = np.zeros((size, *flat.shape), dtype=np.intp)
        for i, cells in enumerate(flat):
            (there,) = np.nonzero(cells)
            if len(there):
                n = cells.sum()
                drawn[:, i, there] = generator.multinomial(n, cells[there] / n, size=size)
        yield drawn.reshape(size, *counts.shape)


def _about(positive: int | None, values: FloatArray) -> FloatArray:
    return mean_of_defined(values) if positive is None else values[..., positive]


def _false_positive_rate(tally: Tally) -> Parts:
    return tally.predicted - tally.correct, tally.actual.sum(axis=-1, keepdims=True) - tally.actual


def _false_negative_rate(tally: Tally) -> Parts:
    return tally.actual - tally.correct, tally.actual


_OF_CLASS: dict[str, Callable[[Tally], Parts]] = {
    "f1": F1.ratio,
    "precision": Precision.ratio,
    "recall": Recall.ratio,
    "fpr": _false_positive_rate,
    "fnr": _false_negative_rate,
}
