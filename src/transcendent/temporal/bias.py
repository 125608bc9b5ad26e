"""Checks for biases that make results over time too good (constraints C1 to C3 of TESSERACT)."""

import warnings
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.stats import binom, ks_2samp
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, BoolArray, IntArray, abbreviate, as_labels
from transcendent._utils.dates import first_and_last
from transcendent._utils.digests import row_digests
from transcendent._utils.text import some
from transcendent.decisions import Answers
from transcendent.errors import TemporalBiasError, TemporalBiasWarning
from transcendent.metrics.ratios import second_of_two
from transcendent.temporal.periods import Periods, TimeSplit

BiasName = Literal["training_after_test", "class_windows", "class_ratio", "duplicates", "few_positives"]

_APART = 0.5
_RATIO_TOLERANCE = 0.25
_DUPLICATES = 0.01
_CHANCE = 0.001
_FEW = 10


class Bias(NamedTuple):
    """A reason why results of a split would be misleading.

    Attributes
    ----------
    name : str
        The check that found it.
    message : str
        What is wrong, with numbers, and the way out.
    refuses : bool
        Whether a backtest raises an error rather than a warning.
    """

    name: BiasName
    message: str
    refuses: bool


def find_biases(
    X: Any, y: Any, split: TimeSplit, *, pos_label: Any = None, class_ratio: Mapping[Any, float] | None = None
) -> list[Bias]:
    """Find the biases of a split that would make its results misleading.

    Parameters
    ----------
    X, y : arrays of n rows
        The rows, or a detector's `Answers`, and their labels.
    split : TimeSplit
        The rows that train, calibrate and are tested.
    pos_label : label or None
        The positive class; by default the second of two in training. With more classes and none named, checks
        of two classes are skipped.
    class_ratio : dict or None
        The shares of classes in deployment, such as ``{1: 0.1}``; not checked by default.

    Returns
    -------
    list of Bias
        ``training_after_test``: a training or calibration row is newer than a test row. ``class_windows``:
        the classes come from different times, so a row's age reveals its class. ``class_ratio``: the test
        rows do not have the shares of deployment. ``duplicates``: test rows repeat training rows.
        ``few_positives``: periods with too few positive objects for their metrics to mean much.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.temporal import find_biases, time_split
    >>> months = np.repeat(np.arange("2023-01", "2024-07", dtype="datetime64[M]"), 100)
    >>> X = np.random.default_rng(0).normal(size=(1800, 5))
    >>> y = np.tile([0] * 9 + [1], 180)
    >>> [bias.name for bias in find_biases(X, y, time_split(months, train="2024"))]
    []
    >>> shuffled = np.random.default_rng(0).random(1800) < 0.7
    >>> [bias.name for bias in find_biases(X, y, time_split(months, train=shuffled))]
    ['training_after_test', 'few_positives']
    """
    labels = as_labels(y)
    seen = np.concatenate([split.train, split.calibration])
    classes = np.unique(labels[np.concatenate([seen, split.test])])
    pos_label = positive_label(labels[seen], pos_label)
    is_positive = None if pos_label is None else labels == pos_label
    found = [
        _training_after_test(split.times, seen, split.test),
        _class_windows(split.times, is_positive, seen, "training"),
        _class_windows(split.times, is_positive, split.test, "test"),
        _class_ratio(labels[split.test], classes, class_ratio),
        _duplicates(X, seen, split.test),
        _few_positives(split, is_positive),
    ]
    return [bias for bias in found if bias is not None]


def report_biases(biases: list[Bias], allow: Collection[str] = ()) -> None:
    """Raise the first bias that refuses a backtest, or warn of all; ignore those that are allowed."""
    allow = [allow] if isinstance(allow, str) else allow
    if unknown := set(allow) - set(get_args(BiasName)):
        raise ValueError(f"there are no biases named {sorted(unknown)}; the names are {get_args(BiasName)}.")
    reported = [bias for bias in biases if bias.name not in allow]
    for bias in sorted(reported, key=lambda bias: not bias.refuses):
        text = f"{bias.name}: {bias.message}"
        if bias.refuses:
            raise TemporalBiasError(f"{text} (allow={[bias.name]!r} continues regardless)")
        warnings.warn(text, TemporalBiasWarning, stacklevel=3)  # at the caller of backtest


def downsample(
    y: Any, ratio: Mapping[Any, float], *, groups: Any = None, random_state: Any = None
) -> IntArray:
    """Draw rows so that a class has a given share; return their positions in order.

    Parameters
    ----------
    y : array of shape (n,)
        Labels.
    ratio : dict of one label
        The class and its share, such as ``{1: 0.1}``. If its share is too large, rows of it are dropped;
        otherwise rows of all other classes, with equal chances.
    groups : Periods, array of shape (n,) or None
        Groups, such as the periods of `cut_periods`, that each get the share. A group with only the class, or
        without it, is left as it is.
    random_state : int, RandomState or None
        Seeds the draw.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.temporal import downsample
    >>> y = np.array([0] * 90 + [1] * 60)
    >>> rows = downsample(y, {1: 0.1}, random_state=0)
    >>> len(rows), int(y[rows].sum())
    (100, 10)
    """
    labels = as_labels(y)
    if len(ratio) != 1:
        raise ValueError(f"ratio must be one class and its share, such as {{1: 0.1}}, not {dict(ratio)!r}.")
    ((label, share),) = ratio.items()
    if not 0 < share < 1:
        raise ValueError(f"the share must be between 0 and 1 (exclusive), not {share!r}.")
    if label not in labels:
        raise ValueError(f"{label!r} is not one of {abbreviate(np.unique(labels))}.")
    generator = check_random_state(random_state)
    codes = np.zeros(len(labels), dtype=np.intp)
    if groups is not None:
        given = groups.codes if isinstance(groups, Periods) else np.asarray(groups)
        if given.shape != labels.shape:
            raise ValueError(f"groups must have one entry per row: {labels.shape}, got {given.shape}.")
        codes = np.unique(given, return_inverse=True)[1]
    kept: list[IntArray] = []
    for group in range(codes.max() + 1):
        of_class = np.flatnonzero((codes == group) & (labels == label))
        others = np.flatnonzero((codes == group) & (labels != label))
        n_class, n_others = _sizes(len(of_class), len(others), share / (1 - share))
        kept += [generator.permutation(of_class)[:n_class], generator.permutation(others)[:n_others]]
    return np.sort(np.concatenate(kept))


def _sizes(n_class: int, n_others: int, odds: float) -> tuple[int, int]:
    """Return the numbers to keep, so that the class has ``odds`` times as many rows as the others."""
    if n_class == 0 or n_others == 0:
        return n_class, n_others
    if n_class > n_others * odds:
        return min(n_class, max(1, round(n_others * odds))), n_others
    return n_class, min(n_others, max(1, round(n_class / odds)))


def positive_label(trained: AnyArray, pos_label: Any) -> Any:
    """Return the positive class: the given one, else the second of two in training, else None."""
    classes = np.unique(trained)
    if pos_label is None:
        return classes[second_of_two(classes)].item() if len(classes) == 2 else None
    if pos_label not in classes:
        raise ValueError(
            f"pos_label {pos_label!r} is not one of {abbreviate(classes)}, the classes in training."
        )
    return pos_label


def _training_after_test(times: AnyArray, seen: IntArray, test: IntArray) -> Bias | None:
    (_, end), (start, _) = first_and_last(times[seen]), first_and_last(times[test])
    late = seen[times[seen] > start]
    if len(late) == 0:
        return None
    return Bias(
        "training_after_test",
        f"{len(late):,} of {len(seen):,} training rows are newer than the oldest test row: training goes up "
        f"to {end}, testing begins at {start}. Train only on rows that are older.",
        refuses=True,
    )


def _class_windows(times: AnyArray, is_positive: BoolArray | None, rows: IntArray, use: str) -> Bias | None:
    if is_positive is None:
        return None
    when = np.unique(times[rows], return_inverse=True)[1]
    positives, others = when[is_positive[rows]], when[~is_positive[rows]]
    if len(positives) == 0 or len(others) == 0:
        return None
    test = ks_2samp(positives, others, method="asymp")
    apart = float(test.statistic)
    if apart < _APART or test.pvalue > _CHANCE:
        return None
    return Bias(
        "class_windows",
        f"the classes of the {use} rows come from different times: their distributions over time are "
        f"{apart:.2f} apart (0 same, 1 disjoint), so a row's age reveals its class. Take the classes "
        "from the same window.",
        refuses=apart == 1.0,
    )


def _class_ratio(labels: AnyArray, classes: AnyArray, ratio: Mapping[Any, float] | None) -> Bias | None:
    """Compare shares; report a difference beyond chance and above a quarter of the rarer side."""
    if not isinstance(ratio, Mapping | None):
        raise TypeError(f"class_ratio must be a dict such as {{1: 0.1}}, not {ratio!r}.")
    for label, share in (ratio or {}).items():
        if label not in classes:
            raise ValueError(f"class_ratio names {label!r}, which is not one of {abbreviate(classes)}.")
        if not 0 < share < 1:
            raise ValueError(f"class_ratio must have shares between 0 and 1 (exclusive), not {share!r}.")
        n, count = len(labels), int(np.sum(labels == label))
        unlikely = min(binom.cdf(count, n, share), binom.sf(count - 1, n, share)) < _CHANCE
        if unlikely and abs(count / n - share) > _RATIO_TOLERANCE * min(share, 1 - share):
            return Bias(
                "class_ratio",
                f"{count / n:.1%} of the test rows are {label!r}, but {share:.1%} in deployment; precision "
                "and F1 depend on this share. Use downsample.",
                refuses=False,
            )
    return None


def _duplicates(X: Any, seen: IntArray, test: IntArray) -> Bias | None:
    if isinstance(X, Answers):  # equal scores do not mean equal objects
        return None
    keys = row_digests(X)
    repeated = np.isin(keys[test], keys[seen])
    share = float(repeated.mean())
    if share <= _DUPLICATES:
        return None
    return Bias(
        "duplicates",
        f"{int(repeated.sum()):,} of {len(test):,} test rows ({share:.1%}) equal a training row: they test "
        "memory. Also report results without them.",
        refuses=False,
    )


def _few_positives(split: TimeSplit, is_positive: BoolArray | None) -> Bias | None:
    counted = np.ones(len(split.test), dtype=bool) if is_positive is None else is_positive[split.test]
    counts = np.bincount(split.periods.codes[counted], minlength=len(split.periods))
    short = np.flatnonzero((counts < _FEW) & (split.periods.counts > 0))
    if len(short) == 0:
        return None
    named = some([f"{split.periods.labels[i]} ({counts[i]})" for i in short])
    what = "objects" if is_positive is None else "positive objects"
    return Bias(
        "few_positives",
        f"fewer than {_FEW} {what} in {named}: metrics of such periods are mostly chance. Use longer ones.",
        refuses=False,
    )
