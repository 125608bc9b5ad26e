"""Everything about time in a TOML file: the end of training, periods, retraining, and the alarm."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np

from transcendent._utils.arrays import AnyArray
from transcendent._utils.dates import is_date
from transcendent._utils.text import suggestion
from transcendent.errors import ArgumentError
from transcendent.experiments.toml import TomlTable
from transcendent.temporal import Retraining
from transcendent.temporal.periods import Calendar

PERIODS: dict[str, Calendar | None] = {**{name: name for name in get_args(Calendar)}, "none": None}
_KEYS = ("train", "period", "chronological", "pos_label", "class_ratio", "allow")


@dataclass(frozen=True)
class Schedule:
    """The tables ``[split]`` and ``[retrain]``, and the alarm's threshold.

    ``train`` is None if there is no split; ``period`` is None if times are names or numbers of periods.
    """

    split: TomlTable
    train: Any
    period: Calendar | None
    chronological: bool
    allow: list[str]
    retrain: Retraining | None
    monitor: float | None

    @classmethod
    def read(cls, split: TomlTable, retrain: TomlTable, monitor: float | None) -> "Schedule":
        """Read the tables, and check everything that needs no rows."""
        split.check(_KEYS)
        name = split.get("period", str, "month")
        if name not in PERIODS:
            raise split.error(f"there is no period {name!r}{suggestion(name, PERIODS)}", "period")
        period = PERIODS[name]
        train = split.values.get("train")
        if isinstance(train, list) and len(train) != 2:
            raise split.error("train must be a time, or a list of the window's start and end.", "train")
        for time in () if train is None else train if isinstance(train, list) else [train]:
            if period is not None and not is_date(time):
                raise split.error(f"{time!r} is not a date such as 2024-09-01 or 2024-09.", "train")
        return cls(
            split,
            tuple(train) if isinstance(train, list) else train,
            period,
            split.get("chronological", bool, False),
            [str(name) for name in split.get("allow", list, [])],
            _retraining(retrain),
            monitor,
        )

    @contextmanager
    def naming_train(self) -> Iterator[None]:
        """Raise errors about ``train`` as errors at its line."""
        try:
            yield
        except ArgumentError as error:
            if error.argument != "train":
                raise
            raise self.split.error(error.message, "train") from None

    def pos_label(self, y: AnyArray | None) -> Any:
        """Return the positive label with the type of ``y``; None if the file does not set it."""
        wanted = self.split.values.get("pos_label")
        return None if wanted is None else self._find_label(str(wanted), y, "pos_label")

    def class_ratio(self, y: AnyArray | None) -> dict[Any, float] | None:
        """Return the expected share of labels, with the type of ``y``; None if the file does not set it."""
        shares = self.split.table("class_ratio").values
        if not all(isinstance(share, float | int) for share in shares.values()):
            raise self.split.error("class_ratio must hold shares: { malicious = 0.1 }.", "class_ratio")
        return {self._find_label(name, y, "class_ratio"): share for name, share in shares.items()} or None

    def _find_label(self, name: str, y: AnyArray | None, key: str) -> Any:
        """Return the label with this text, since keys of a TOML table are always text."""
        labels = {str(label): label for label in np.unique(y).tolist()} if y is not None else {}
        if name not in labels:
            raise self.split.error(f"no row has the label {name!r}{suggestion(name, labels)}", key)
        return labels[name]


def _retraining(table: TomlTable) -> Retraining | None:
    table.check([field.name for field in fields(Retraining)])
    if not table.values:
        return None
    table.get("labels", int, needed="the number of objects to label per period: labels = 50")
    with table.at():
        return Retraining(**table.values)


def training_end(train: str, times: Any, period: Calendar | None) -> Any:
    """Return the end of training, given as text: a date, a number, or the name of a period."""
    if period is not None and not is_date(train):
        raise ArgumentError("train", f"{train!r} is not a date such as 2024-09-01 or 2024-09.")
    if period is None and np.asarray(times).dtype.kind in "iuf":
        try:
            return float(train)
        except ValueError:
            raise ArgumentError("train", f"{train!r} is not a number, but the times are.") from None
    return train
