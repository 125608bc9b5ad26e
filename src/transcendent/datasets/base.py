"""The type that every loader returns."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, as_labels, count_rows, take_rows
from transcendent._utils.text import visible

_MAX_CLASSES = 3


@dataclass(frozen=True, repr=False, eq=False)
class Dataset:
    """Labelled objects, sorted by time; objects with equal times keep their order.

    Attributes
    ----------
    X : array, sparse matrix, frame or list of n rows
        The objects.
    y : array of shape (n,)
        Their labels.
    times : datetime64 array of shape (n,)
        Their times, ascending.
    extra : dict of arrays of shape (n,)
        Other columns, such as the family of each object.
    feature_names : array of shape (features,) or None
        Names of the columns of X.
    name : str
        Name of the data set.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.datasets import Dataset
    >>> times = np.array(["2020-02", "2020-01", "2020-03"], dtype="datetime64[M]")
    >>> mail = Dataset(np.eye(3), np.array(["ham", "spam", "ham"]), times, name="mail")
    >>> mail
    mail: 3 objects (ham: 2, spam: 1), 3 columns, 2020-01..2020-03
    >>> mail[mail.times < np.datetime64("2020-03")].y.tolist()
    ['spam', 'ham']
    """

    X: Any
    y: AnyArray
    times: AnyArray
    extra: dict[str, AnyArray] = field(default_factory=dict)
    feature_names: AnyArray | None = None
    name: str = "dataset"

    def __post_init__(self) -> None:
        extra = {name: np.asarray(values) for name, values in self.extra.items()}
        self._set(y=as_labels(self.y), times=np.asarray(self.times), extra=extra)
        self._check()
        if np.any(self.times[1:] < self.times[:-1]):
            self._set(**self._take(np.argsort(self.times, kind="stable")))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Self:
        """Select objects by a slice, a mask or positions, and keep them in order of time."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            chosen = slice(start, max(start, stop)) if step == 1 else np.sort(np.arange(start, stop, step))
        else:
            chosen = np.sort(np.arange(len(self))[rows], axis=None)
        return type(self)(feature_names=self.feature_names, name=self.name, **self._take(chosen))

    def __repr__(self) -> str:
        columns = f", {self.X.shape[1]:,} columns" if len(getattr(self.X, "shape", ())) == 2 else ""
        span = f", {self.times[0]}..{self.times[-1]}" if len(self) else ""
        return f"{self.name}: {len(self):,} objects{self._class_counts()}{columns}{span}"

    def _class_counts(self) -> str:
        classes, counts = np.unique(self.y, return_counts=True)
        largest = np.argsort(-counts, kind="stable")[:_MAX_CLASSES]
        shown = [f"{visible(str(classes[i]))}: {counts[i]:,}" for i in sorted(largest)]
        if len(classes) > _MAX_CLASSES:
            shown.append(f"{len(classes) - _MAX_CLASSES} more classes")
        return f" ({', '.join(shown)})" if shown else ""

    def _take(self, rows: IntArray | slice) -> dict[str, Any]:
        extra = {name: values[rows] for name, values in self.extra.items()}
        return {"X": take_rows(self.X, rows), "y": self.y[rows], "times": self.times[rows], "extra": extra}

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        for name, array in {"y": self.y, "times": self.times, **self.extra}.items():
            if array.shape != (count_rows(self.X),):
                raise ValueError(f"X has {count_rows(self.X)} rows, but {name} has shape {array.shape}.")
        if self.times.dtype.kind != "M":
            raise ValueError(f"times must be datetime64, got {self.times.dtype}.")
        if np.isnat(self.times).any():
            raise ValueError(
                f"times has {int(np.isnat(self.times).sum())} missing values (NaT): drop these objects."
            )


def check_file(path: str | Path) -> Path:
    """Return the path of a file, or raise if it does not exist."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {path}.")
    return Path(path)
