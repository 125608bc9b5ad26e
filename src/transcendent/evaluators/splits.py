"""Splits into training and calibration rows, with every class on both sides."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneOut, check_cv

from transcendent._utils.arrays import AnyArray, IntArray
from transcendent._utils.dates import as_times
from transcendent.errors import CalibrationError

Split = tuple[IntArray, IntArray]


def stratified_split(codes: IntArray, classes: AnyArray, share: float, generator: Any) -> Split:
    """Split rows at random: a ``share`` of every class, one row at least, calibrates."""
    _check_members(codes, classes, 2, "to train and calibrate")
    calibrates = np.zeros(len(codes), dtype=bool)
    for c in range(len(classes)):
        rows = generator.permutation(np.flatnonzero(codes == c))
        size = min(max(round(share * len(rows)), 1), len(rows) - 1)
        calibrates[rows[:size]] = True
    return np.flatnonzero(~calibrates), np.flatnonzero(calibrates)


def chronological_split(codes: IntArray, classes: AnyArray, share: float, times: Any) -> Split:
    """Return training and calibration rows; the most recent ``share`` of all rows calibrates."""
    when = as_times(times, len(codes))
    order = np.argsort(when, kind="stable")
    if when[order[0]] == when[order[-1]]:
        raise CalibrationError(f"all times are {when[0]}: no row is more recent than another.")
    cut = len(order) - min(max(round(share * len(order)), 1), len(order) - 1)
    train, calibration = np.sort(order[:cut]), np.sort(order[cut:])
    for rows, part in ((train, "train on, before"), (calibration, "calibrate on, after")):
        missing = classes[np.bincount(codes[rows], minlength=len(classes)) == 0]
        if len(missing):
            raise CalibrationError(
                f"class {missing.tolist()[0]!r} has no row to {part} the cut at {when[order[cut]]}. "
                "Change calibration_size, or leave times out for a random split."
            )
    return train, calibration


def folds(cv: Any, codes: IntArray, classes: AnyArray, generator: Any) -> tuple[Iterator[Split], int]:
    """Return splits and their number: ``"loo"``, stratified folds, or those of a scikit-learn splitter."""
    n = len(codes)
    if isinstance(cv, str):
        if cv != "loo":
            raise ValueError(f"cv must be 'loo', a number of folds or a splitter, not {cv!r}.")
        return LeaveOneOut().split(codes), n
    if hasattr(cv, "split") or isinstance(cv, Iterable):
        splitter = check_cv(cv)
        splits = enumerate(splitter.split(codes, classes[codes]))
        return (_checked_fold(k, parts, n) for k, parts in splits), splitter.get_n_splits(
            codes, classes[codes]
        )
    if not isinstance(cv, int | np.integer) or not 2 <= cv <= n:
        raise ValueError(f"cv={cv!r}: the number of folds must be an integer between 2 and the {n} rows.")
    # Deal the rows of each class out in turn: folds and their classes differ by at most one in size.
    shuffled = generator.permutation(n)
    dealt = shuffled[np.argsort(codes[shuffled], kind="stable")]
    fold = np.empty(n, dtype=np.intp)
    fold[dealt] = np.arange(n) % cv
    return ((np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(cv)), int(cv)


def _checked_fold(k: int, split: tuple[Any, Any], n: int) -> Split:
    """Return a splitter's fold; refuse anything but positions of rows, none of them on both sides."""
    parts = []
    for name, rows in zip(("training", "test"), map(np.asarray, split), strict=True):
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise CalibrationError(
                f"the {name} part of fold {k} of cv must be positions of rows, not {rows.dtype} of shape "
                f"{rows.shape}; of a mask, give numpy.flatnonzero(mask)."
            )
        if len(rows) == 0:
            raise CalibrationError(f"the {name} part of fold {k} of cv has no rows.")
        if rows.min() < 0 or rows.max() >= n:
            wrong = rows[(rows < 0) | (rows >= n)][0]
            raise CalibrationError(f"the {name} part of fold {k} of cv names row {wrong}, but there are {n}.")
        parts.append(rows.astype(np.intp))
    tested, counts = np.unique(parts[1], return_counts=True)
    if counts.max() > 1:
        raise CalibrationError(f"the test part of fold {k} of cv has row {tested[counts.argmax()]} twice.")
    if np.any(both := np.isin(tested, parts[0])):
        raise CalibrationError(
            f"fold {k} of cv trains on {int(both.sum()):,} of the {len(tested):,} rows it calibrates on, "
            f"such as row {tested[both][0]}: their scores would be those of rows the detector has seen."
        )
    return parts[0], parts[1]


def check_every_fold_can_calibrate(splits: list[Split], codes: IntArray, classes: AnyArray) -> None:
    """Refuse folds that lack a class: each trains and calibrates on its own."""
    _check_members(codes, classes, len(splits), f"for each of {len(splits)} folds to calibrate on")
    for k, parts in enumerate(splits):
        for rows, purpose in zip(parts, ("train", "calibrate"), strict=True):
            missing = classes[np.bincount(codes[rows], minlength=len(classes)) == 0].tolist()
            if missing:
                raise CalibrationError(f"fold {k} of cv has no row of class {missing[0]!r} to {purpose} on.")


def check_every_row_is_left_out(codes: IntArray, classes: AnyArray) -> None:
    """Refuse classes of one row: a model without it would not know the class."""
    _check_members(codes, classes, 2, "so that a model without one of them still knows the class")


def _check_members(codes: IntArray, classes: AnyArray, least: int, purpose: str) -> None:
    counts = np.bincount(codes, minlength=len(classes))
    if np.any(counts < least):
        worst = int(np.argmin(counts))
        raise CalibrationError(
            f"class {classes.tolist()[worst]!r} has {counts[worst]} row(s), but {least} are needed "
            f"{purpose}. Give more rows of it, drop it, or split less."
        )


def check_share(share: Any) -> None:
    """Refuse a share that is not between 0 and 1."""
    if not isinstance(share, float | np.floating) or not 0 < share < 1:
        raise ValueError(f"calibration_size is a share between 0 and 1 (exclusive), not {share!r}.")
