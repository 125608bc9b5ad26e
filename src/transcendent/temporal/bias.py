"""Checks for the biases that make results over time look better than they are (TESSERACT's C1 to C3)."""

import warnings
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from scipy.stats import binom, ks_2samp
from sklearn.utils import check_random_state, column_or_1d

from transcendent.arrays import AnyArray, BoolArray, IntArray, abbreviate, group_equal_rows
from transcendent.errors import TemporalBiasError, TemporalBiasWarning
from transcendent.metrics.performance import position_of
from transcendent.temporal.periods import TimeSplit

BiasName = Literal["training_after_test", "class_windows", "class_ratio", "duplicates", "few_positives"]

_APART = 0.5
_RATIO_TOLERANCE = 0.25
_DUPLICATES = 0.01


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
    times: Any,
    split: TimeSplit,
    *,
    pos_label: Any = None,
    class_ratio: Mapping[Any, float] | None = None,
    few: int = 10,
) -> list[Bias]:
    """Everything about a split that would make its results misleading.

    Parameters
    ----------
    X, y, times : arrays of n rows
        The data that were split.
    split : TimeSplit
        Which rows train, calibrate and are tested.
    pos_label : label or None
        The positive class; by default the second of two. Checks that are about two classes are left out when
        there are more and none is named.
    class_ratio : dict or None
        The share of classes in deployment, such as ``{1: 0.1}``; not checked unless given.
    few : int
        A period with fewer positive objects (objects, if no class is positive) is named.

    Returns
    -------
    list of Bias
        ``training_after_test``: a training or calibration row is newer than a test row. ``class_windows``:
        the classes come from different times, so that age gives the class away. ``class_ratio``: the test
        rows do not have the shares of deployment. ``duplicates``: test rows repeat training rows.
        ``few_positives``: periods whose metrics rest on next to nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.temporal import find_biases, time_split
    >>> months = np.repeat(np.arange("2023-01", "2024-07", dtype="datetime64[M]"), 100)
    >>> X = np.random.default_rng(0).normal(size=(1800, 5))
    >>> y = np.tile([0] * 9 + [1], 180)
    >>> [bias.name for bias in find_biases(X, y, months, time_split(months, train="2024"))]
    []
    >>> shuffled = np.random.default_rng(0).random(1800) < 0.7
    >>> [bias.name for bias in find_biases(X, y, months, time_split(months, train=shuffled))]
    ['training_after_test', 'few_positives']
    """
    labels = column_or_1d(y)
    when = np.unique(np.asarray(times), return_inverse=True)[1]
    seen = np.concatenate([split.train, split.calibration])
    classes = np.unique(labels)
    positive = position_of(pos_label, classes)
    is_positive = None if positive is None else labels == classes[positive]
    found = [
        _training_after_test(np.asarray(times), when, seen, split.test),
        None if is_positive is None else _class_windows(when, is_positive, seen, "training"),
        None if is_positive is None else _class_windows(when, is_positive, split.test, "test"),
        _class_ratio(labels[split.test], classes, class_ratio),
        _duplicates(X, seen, split.test),
        _few_positives(split, is_positive, few),
    ]
    return [bias for bias in found if bias is not None]


def report_biases(biases: list[Bias], allow: Collection[str] = (), *, stacklevel: int = 2) -> None:
    """Raise the biases that refuse, warn of the others; those named in ``allow`` are passed over."""
    unknown = set(allow) - set(get_args(BiasName))
    if unknown:
        raise ValueError(f"there are no biases named {sorted(unknown)}; the names are {get_args(BiasName)}.")
    reported = [bias for bias in biases if bias.name not in allow]
    for bias in reported:
        if bias.refuses:
            raise TemporalBiasError(f"{bias.name}: {bias.message} (allow={[bias.name]!r} goes on regardless)")
    for bias in reported:
        warnings.warn(f"{bias.name}: {bias.message}", TemporalBiasWarning, stacklevel=stacklevel + 1)


def downsample(
    y: Any, ratio: Mapping[Any, float], *, groups: Any = None, random_state: Any = None
) -> IntArray:
    """Rows to keep, drawn at random and in their order, so that a class has the share asked for.

    Parameters
    ----------
    y : array of shape (n,)
        Labels.
    ratio : dict of one label
        The class and its share, such as ``{1: 0.1}``. Rows of it are dropped if it has too many, rows of the
        others (all alike) if it has too few.
    groups : array of shape (n,) or None
        Reach the share within each group, for example each period.
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
    labels = column_or_1d(y)
    if len(ratio) != 1:
        raise ValueError(f"ratio names one class and its share, such as {{1: 0.1}}, not {dict(ratio)!r}.")
    ((label, share),) = ratio.items()
    if not 0 < share < 1:
        raise ValueError(f"a share lies between 0 and 1 (exclusive), not {share!r}.")
    if label not in labels:
        raise ValueError(f"{label!r} is not one of {abbreviate(np.unique(labels))}.")
    generator = check_random_state(random_state)
    parts = (
        np.zeros(len(labels), dtype=np.intp) if groups is None else np.unique(groups, return_inverse=True)[1]
    )
    kept: list[IntArray] = []
    for part in range(parts.max() + 1):
        of_class = np.flatnonzero((parts == part) & (labels == label))
        others = np.flatnonzero((parts == part) & (labels != label))
        odds = share / (1 - share)
        n_class, n_others = len(of_class), len(others)
        if n_class > n_others * odds:
            n_class = min(n_class, max(1, round(n_others * odds)))
        else:
            n_others = min(n_others, max(1, round(n_class / odds)))
        kept += [generator.permutation(of_class)[:n_class], generator.permutation(others)[:n_others]]
    return np.sort(np.concatenate(kept))


def _training_after_test(times: AnyArray, when: IntArray, seen: IntArray, test: IntArray) -> Bias | None:
    first = when[test].min()
    late = seen[when[seen] > first]
    if len(late) == 0:
        return None
    return Bias(
        "training_after_test",
        f"{len(late):,} of {len(seen):,} training rows are newer than the oldest test row: training goes up "
        f"to {times[seen[np.argmax(when[seen])]]}, testing begins at {times[test[np.argmin(when[test])]]}. "
        "Train on rows that are all older.",
        refuses=True,
    )


def _class_windows(when: IntArray, is_positive: BoolArray, rows: IntArray, part: str) -> Bias | None:
    ours, others = when[rows][is_positive[rows]], when[rows][~is_positive[rows]]
    if len(ours) == 0 or len(others) == 0:
        return None
    apart = float(ks_2samp(ours, others, method="asymp").statistic)
    if apart < _APART:
        return None
    return Bias(
        "class_windows",
        f"the classes of the {part} rows come from different times: their distributions over time are "
        f"{apart:.2f} apart (0 same, 1 disjoint), so that a row's age gives its class away. Take the classes "
        "from the same window.",
        refuses=apart == 1.0,
    )


def _class_ratio(labels: AnyArray, classes: AnyArray, ratio: Mapping[Any, float] | None) -> Bias | None:
    """Beyond what chance allows (one in a thousand either way), and by more than a quarter."""
    for label, share in (ratio or {}).items():
        if label not in classes:
            raise ValueError(f"class_ratio names {label!r}, which is not one of {abbreviate(classes)}.")
        n, count = len(labels), int(np.sum(labels == label))
        unlikely = min(binom.cdf(count, n, share), binom.sf(count - 1, n, share)) < 0.001
        if unlikely and abs(count / n - share) > _RATIO_TOLERANCE * share:
            return Bias(
                "class_ratio",
                f"{count / n:.1%} of the test rows are {label!r}, but {share:.1%} are in deployment; "
                "precision and F1 depend on it. Use downsample.",
                refuses=False,
            )
    return None


def _duplicates(X: Any, seen: IntArray, test: IntArray) -> Bias | None:
    groups = _groups(X)
    repeated = np.isin(groups[test], groups[seen])
    share = float(repeated.mean())
    if share <= _DUPLICATES:
        return None
    return Bias(
        "duplicates",
        f"{int(repeated.sum()):,} of {len(test):,} test rows ({share:.1%}) equal a training row; they test "
        "memory. Report results without them too.",
        refuses=False,
    )


def _groups(X: Any) -> IntArray:
    """Equal rows have equal numbers, whether X is an array, a sparse matrix, a frame or a list."""
    if sp.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf"):
        return group_equal_rows(X.astype(np.float64))[0]
    rows = (
        X.itertuples(index=False, name=None)
        if hasattr(X, "itertuples")
        else X.rows()
        if hasattr(X, "rows")
        else X
    )
    numbers: dict[Any, int] = {}
    keys = (row if isinstance(row, str | bytes | tuple) else tuple(row) for row in rows)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _few_positives(split: TimeSplit, is_positive: BoolArray | None, few: int) -> Bias | None:
    counted = np.ones(len(split.test), dtype=bool) if is_positive is None else is_positive[split.test]
    counts = np.bincount(split.periods.codes[counted], minlength=len(split.periods))
    short = np.flatnonzero((counts < few) & (split.periods.counts > 0))
    if len(short) == 0:
        return None
    named = ", ".join(f"{split.periods.labels[i]} ({counts[i]})" for i in short[:6])
    more = f" and {len(short) - 6} more" if len(short) > 6 else ""
    what = "objects" if is_positive is None else "positive objects"
    return Bias(
        "few_positives",
        f"fewer than {few} {what} in {named}{more}: figures of such periods are mostly chance. "
        "Use longer periods.",
        refuses=False,
    )
