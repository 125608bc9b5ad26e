"""Checks for the biases that make results over time look better than they are (TESSERACT's C1 to C3)."""

import warnings
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.stats import binom, ks_2samp
from sklearn.utils import check_random_state

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    IntArray,
    abbreviate,
    as_labels,
)
from transcendent._utils.dates import first_and_last
from transcendent._utils.digests import row_digests
from transcendent.errors import TemporalBiasError, TemporalBiasWarning
from transcendent.temporal.periods import Periods, TimeSplit

BiasName = Literal["training_after_test", "class_windows", "class_ratio", "duplicates", "few_positives"]

_APART = 0.5
_RATIO_TOLERANCE = 0.25
_DUPLICATES = 0.01
_CHANCE = 0.001
_FEW = 10


class Bias(NamedTuple):
    """A way in which a split would mislead.

    Attributes
    ----------
    name : str
        Which check found it.
    message : str
        What is wrong, in figures, and the way out.
    refuses : bool
        Whether a backtest stops over it, rather than warn.
    """

    name: BiasName
    message: str
    refuses: bool


def find_biases(
    X: Any,
    y: Any,
    split: TimeSplit,
    *,
    pos_label: Any = None,
    class_ratio: Mapping[Any, float] | None = None,
) -> list[Bias]:
    """Find everything about a split that would make its results misleading.

    Parameters
    ----------
    X, y : arrays of n rows
        The data that were split.
    split : TimeSplit
        Which rows train, calibrate and are tested.
    pos_label : label or None
        The positive class; by default the second of two in training. Checks that are about two classes are
        left out when there are more and none is named.
    class_ratio : dict or None
        The share of classes in deployment, such as ``{1: 0.1}``; not checked unless given.

    Returns
    -------
    list of Bias
        ``training_after_test``: a training or calibration row is newer than a test row. ``class_windows``:
        the classes come from different times, so that age gives the class away. ``class_ratio``: the test
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


def report_biases(biases: list[Bias], allow: Collection[str] = (), *, stacklevel: int = 2) -> None:
    """Raise biases that refuse, and warn of the others.

    Parameters
    ----------
    biases : list of Bias
        What `find_biases` found.
    allow : collection of str
        Names of biases to ignore.
    stacklevel : int
        Which caller the warnings point at, counted from this function.
    """
    allow = [allow] if isinstance(allow, str) else allow
    unknown = set(allow) - set(get_args(BiasName))
    if unknown:
        raise ValueError(f"there are no biases named {sorted(unknown)}; the names are {get_args(BiasName)}.")
    reported = [bias for bias in biases if bias.name not in allow]
    for bias in reported:
        if bias.refuses:
            raise TemporalBiasError(
                f"{bias.name}: {bias.message} (allow={[bias.name]!r} continues regardless)"
            )
    for bias in reported:
        warnings.warn(f"{bias.name}: {bias.message}", TemporalBiasWarning, stacklevel=stacklevel + 1)


def downsample(
    y: Any, ratio: Mapping[Any, float], *, groups: Any = None, random_state: Any = None
) -> IntArray:
    """Draw rows to keep, in their order, so that a class has a given share.

    Parameters
    ----------
    y : array of shape (n,)
        Labels.
    ratio : dict of one label
        The class and its share, such as ``{1: 0.1}``. Rows of it are dropped if it has too many, rows of the
        others (all alike) if it has too few.
    groups : Periods, array of shape (n,) or None
        Reach the share within each group, for example each period. A group that has nothing but the class, or
        nothing of it, is kept as it is.
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
        raise ValueError(f"ratio names one class and its share, such as {{1: 0.1}}, not {dict(ratio)!r}.")
    ((label, share),) = ratio.items()
    if not 0 < share < 1:
        raise ValueError(f"a share lies between 0 and 1 (exclusive), not {share!r}.")
    if label not in labels:
        raise ValueError(f"{label!r} is not one of {abbreviate(np.unique(labels))}.")
    generator = check_random_state(random_state)
    parts = np.zeros(len(labels), dtype=np.intp)
    if groups is not None:
        given = groups.codes if isinstance(groups, Periods) else np.asarray(groups)
        if given.shape != labels.shape:
            raise ValueError(f"groups must have one entry per row: {labels.shape}, got {given.shape}.")
        parts = np.unique(given, return_inverse=True)[1]
    kept: list[IntArray] = []
    for part in range(parts.max() + 1):
        of_class = np.flatnonzero((parts == part) & (labels == label))
        others = np.flatnonzero((parts == part) & (labels != label))
        n_class, n_others = _sizes(len(of_class), len(others), share / (1 - share))
        kept += [generator.permutation(of_class)[:n_class], generator.permutation(others)[:n_others]]
    return np.sort(np.concatenate(kept))


def _sizes(n_class: int, n_others: int, odds: float) -> tuple[int, int]:
    """How many of each to keep, so that there are ``odds`` times as many of the class."""
    if n_class == 0 or n_others == 0:
        return n_class, n_others
    if n_class > n_others * odds:
        return min(n_class, max(1, round(n_others * odds))), n_others
    return n_class, min(n_others, max(1, round(n_class / odds)))


def positive_label(trained: AnyArray, pos_label: Any) -> Any:
    """The positive class: the one named, else the second of two that were trained on, else None."""
    classes = np.unique(trained)
    if pos_label is None:
        return classes[1].item() if len(classes) == 2 else None
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
        f"to {end}, testing begins at {start}. "
        "Train on rows that are all older.",
        refuses=True,
    )


def _class_windows(times: AnyArray, is_positive: BoolArray | None, rows: IntArray, part: str) -> Bias | None:
    if is_positive is None:
        return None
    when = np.unique(times[rows], return_inverse=True)[1]
    ours, others = when[is_positive[rows]], when[~is_positive[rows]]
    if len(ours) == 0 or len(others) == 0:
        return None
    test = ks_2samp(ours, others, method="asymp")
    apart = float(test.statistic)
    if apart < _APART or test.pvalue > _CHANCE:
        return None
    return Bias(
        "class_windows",
        f"the classes of the {part} rows come from different times: their distributions over time are "
        f"{apart:.2f} apart (0 same, 1 disjoint), so that a row's age gives its class away. Take the classes "
        "from the same window.",
        refuses=apart == 1.0,
    )


def _class_ratio(labels: AnyArray, classes: AnyArray, ratio: Mapping[Any, float] | None) -> Bias | None:
    """Beyond what chance allows, and by more than a quarter of the rarer side."""
    if not isinstance(ratio, Mapping | None):
        raise TypeError(f"class_ratio is a dict such as {{1: 0.1}}, not {ratio!r}.")
    for label, share in (ratio or {}).items():
        if label not in classes:
            raise ValueError(f"class_ratio names {label!r}, which is not one of {abbreviate(classes)}.")
        if not 0 < share < 1:
            raise ValueError(f"class_ratio has shares between 0 and 1 (exclusive), not {share!r}.")
        n, count = len(labels), int(np.sum(labels == label))
        unlikely = min(binom.cdf(count, n, share), binom.sf(count - 1, n, share)) < _CHANCE
        if unlikely and abs(count / n - share) > _RATIO_TOLERANCE * min(share, 1 - share):
            return Bias(
                "class_ratio",
                f"{count / n:.1%} of the test rows are {label!r}, but {share:.1%} are in deployment; "
                "precision and F1 depend on it. Use downsample.",
                refuses=False,
            )
    return None


def _duplicates(X: Any, seen: IntArray, test: IntArray) -> Bias | None:
    keys = row_digests(X)
    repeated = np.isin(keys[test], keys[seen])
    share = float(repeated.mean())
    if share <= _DUPLICATES:
        return None
    return Bias(
        "duplicates",
        f"{int(repeated.sum()):,} of {len(test):,} test rows ({share:.1%}) equal a training row; they test "
        "memory. Report results without them too.",
        refuses=False,
    )


def _few_positives(split: TimeSplit, is_positive: BoolArray | None) -> Bias | None:
    counted = np.ones(len(split.test), dtype=bool) if is_positive is None else is_positive[split.test]
    counts = np.bincount(split.periods.codes[counted], minlength=len(split.periods))
    short = np.flatnonzero((counts < _FEW) & (split.periods.counts > 0))
    if len(short) == 0:
        return None
    named = ", ".join(f"{split.periods.labels[i]} ({counts[i]})" for i in short[:6])
    more = f" and {len(short) - 6} more" if len(short) > 6 else ""
    what = "objects" if is_positive is None else "positive objects"
    return Bias(
        "few_positives",
        f"fewer than {_FEW} {what} in {named}{more}: figures of such periods are mostly chance. "
        "Use longer periods.",
        refuses=False,
    )
