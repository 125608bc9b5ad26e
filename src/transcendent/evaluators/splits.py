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
    """Split rows at random: a ``share`` of every class, at least one row, calibrates."""
    check_class_sizes(codes, classes, 2, "to train and calibrate")
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
    for rows, purpose in ((train, "train on, before"), (calibration, "calibrate on, after")):
        if missing := _missing_classes(codes[rows], classes):
            raise CalibrationError(
                f"class {missing[0]!r} has no row to {purpose} the cut at {when[order[cut]]}. "
                "Change calibration_size, or leave times out for a random split."
            )
    return train, calibration


def folds(cv: Any, codes: IntArray, classes: AnyArray, generator: Any) -> tuple[Iterator[Split], int]:
    """Return the splits that ``cv`` describes, and their number."""
    n = len(codes)
    if isinstance(cv, str):
        if cv != "loo":
            raise ValueError(f"cv must be 'loo', a number of folds or a splitter, not {cv!r}.")
        return LeaveOneOut().split(codes), n
    if hasattr(cv, "split") or isinstance(cv, Iterable):
        splitter, y = check_cv(cv), classes[codes]
        splits = enumerate(splitter.split(codes, y))
        return (_checked_fold(k, split, n) for k, split in splits), splitter.get_n_splits(codes, y)
    if not isinstance(cv, int | np.integer) or not 2 <= cv <= n:
        raise ValueError(f"cv={cv!r}: the number of folds must be an integer between 2 and the {n} rows.")
    # Deal the rows of each class out in turn: folds and their classes differ by at most one in size.
    shuffled = generator.permutation(n)
    dealt = shuffled[np.argsort(codes[shuffled], kind="stable")]
    fold = np.empty(n, dtype=np.intp)
    fold[dealt] = np.arange(n) % cv
    return ((np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(cv)), int(cv)


def _checked_fold(k: int, split: tuple[Any, Any], n: int) -> Split:
    """Return a splitter's fold; refuse invalid row positions, and rows on both sides."""
    for name, rows in zip(("training", "test"), map(np.asarray, split), strict=True):
        where = f"the {name} set of fold {k} of cv"
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise CalibrationError(
                f"{where} must be positions of rows, not {rows.dtype} of shape {rows.shape}; instead of a "
                "mask, pass numpy.flatnonzero(mask)."
            )
        if len(rows) == 0:
            raise CalibrationError(f"{where} has no rows.")
        if len(wrong := rows[(rows < 0) | (rows >= n)]):
            raise CalibrationError(f"{where} names row {wrong[0]}, but there are {n}.")
    train, test = (np.asarray(rows, dtype=np.intp) for rows in split)
    tested, counts = np.unique(test, return_counts=True)
    if counts.max() > 1:
        raise CalibrationError(f"the test set of fold {k} of cv has row {tested[counts.argmax()]} twice.")
    if np.any(both := np.isin(tested, train)):
        raise CalibrationError(
            f"fold {k} of cv trains on {int(both.sum()):,} of the {len(tested):,} rows it calibrates on, "
            f"such as row {tested[both][0]}: their scores would be those of rows the detector has seen."
        )
    return train, test


def check_every_fold_can_calibrate(splits: list[Split], codes: IntArray, classes: AnyArray) -> None:
    """Refuse folds that lack a class: each fold trains and calibrates on its own."""
    check_class_sizes(codes, classes, len(splits), f"for each of {len(splits)} folds to calibrate on")
    for k, split in enumerate(splits):
        for rows, purpose in zip(split, ("train", "calibrate"), strict=True):
            if missing := _missing_classes(codes[rows], classes):
                raise CalibrationError(f"fold {k} of cv has no row of class {missing[0]!r} to {purpose} on.")


def _missing_classes(codes: IntArray, classes: AnyArray) -> list[Any]:
    return list(classes[np.bincount(codes, minlength=len(classes)) == 0].tolist())


def check_class_sizes(codes: IntArray, classes: AnyArray, min_rows: int, purpose: str) -> None:
    """Refuse classes with fewer than ``min_rows`` rows."""
    counts = np.bincount(codes, minlength=len(classes))
    if np.any(counts < min_rows):
        worst = int(np.argmin(counts))
        raise CalibrationError(
            f"class {classes.tolist()[worst]!r} has {counts[worst]} row(s), but {min_rows} are needed "
            f"{purpose}. Pass more rows of it, or drop it; fewer folds need fewer rows."
        )
