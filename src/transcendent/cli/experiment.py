"""An experiment in a TOML file: data, a split, rejectors; and the library's calls with them."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from transcendent._utils.arrays import AnyArray, missing_rows
from transcendent._utils.cells import pointing_into
from transcendent._utils.dates import as_dates, is_date
from transcendent._utils.estimators import seeded
from transcendent._utils.text import counted, suggestion
from transcendent.cli.objects import build_rejectors
from transcendent.cli.settings import Settings, UsageError
from transcendent.cli.survey import Problem, Takes, columns_of_text, find_problems, listed
from transcendent.cli.tables import ColumnError, Columns, Objects, have, read_objects, read_settings, stacked
from transcendent.evaluators.training import Learner, in_known_type
from transcendent.temporal import Bias, Retraining, TimeSplit, backtest, find_biases, time_split
from transcendent.temporal.checkpoints import is_backtest
from transcendent.temporal.periods import Calendar, in_order_of_time, training_rows
from transcendent.temporal.result import Backtest

_TOP = ("data", "split", "detector", "rejectors", "retrain", "monitor", "seed")
_SPLIT = ("train", "period", "chronological", "pos_label", "class_ratio", "allow")
_TIMES = 'for example time = "first_seen" under [data]'


@dataclass(frozen=True)
class Experiment:
    """An experiment as a TOML file describes it."""

    settings: Settings

    @classmethod
    def read(cls, path: Path) -> "Experiment":
        """Check the keys of the file."""
        settings = Settings.read(path)
        settings.check(_TOP)
        settings.table("split").check(_SPLIT)
        return cls(settings)

    @cached_property
    def rejectors(self) -> dict[str, Any]:
        """Unfitted, by name."""
        return build_rejectors(self.settings)

    @cached_property
    def surveyed(self) -> tuple[Objects, list[Problem]]:
        """All rows of the data, without labels where they are to be dropped, and what is wrong with them."""
        found, columns = self._read
        dates = self.period is not None
        return found.with_times(dates), find_problems(found, columns, self._takes, dates=dates)

    @cached_property
    def _read(self) -> tuple[Objects, Columns]:
        return read_settings(self.settings, self._needed())

    @cached_property
    def _takes(self) -> Takes:
        """What all detectors take."""
        drop = {"unlabelled": self._drops("unlabelled"), "undated": self._drops("undated")}
        each = [Takes.of(detector, **drop) for detector in self._detectors()]
        return Takes(
            **drop,
            missing=all(t.missing for t in each),
            text=all(t.text for t in each),
            encoded=frozenset.intersection(*(t.encoded for t in each)),
        )

    @cached_property
    def objects(self) -> Objects:
        """All rows of the data, if they can be fitted; those that are to be dropped have no label."""
        found, problems = self.surveyed
        if problems:
            raise ValueError(f"{found.name} cannot be fitted as it is:\n{listed(problems)}")
        if found.y is not None and len(rows := missing_rows(found.y)):
            warnings.warn(
                f"{found.name}: {have('no label or no time', rows, len(found))}; left out.", stacklevel=2
            )
        return found

    def _drops(self, key: str) -> bool:
        data = self.settings.table("data")
        chosen = data.get(key, str, "refuse")
        if chosen not in ("refuse", "drop"):
            raise data.error(f'{key} is "refuse" or "drop".', key)
        return bool(chosen == "drop")

    def _detectors(self) -> list[Any]:
        """The detector of each rejector, None if it has none."""
        given = (rejector.get_params() for rejector in self.rejectors.values())
        return [params.get("estimator", params.get("rejector__estimator")) for params in given]

    def _needed(self) -> list[str]:
        return ["label", "time"] if "train" in self.split.values else ["label"]

    @cached_property
    def split(self) -> Settings:
        """The table ``[split]``."""
        return self.settings.table("split")

    @property
    def files(self) -> list[Path]:
        """The files that it reads."""
        data = self.settings.table("data").values
        named = [data[key] for key in ("file", "table") if isinstance(data.get(key), str)]
        return [self.settings.path.parent / name for name in named]

    @property
    def folder(self) -> Path:
        """The default folder of a backtest: beside the file, under its name."""
        return self.settings.path.with_suffix("")

    def fit(self, name: str | None, train: str | None) -> tuple[str, Any, Objects]:
        """One of the rejectors fitted on the training rows, its name, and these rows."""
        chosen = self._choose(name)
        rejector = seeded(self.rejectors[chosen], self._seed)
        rows = self._training_rows(train).with_labels()
        given = {}
        if self.split.get("chronological", bool, False):
            times = np.asarray(rows.labelled(_TIMES).times)
            given["times"] = times if self.period else in_order_of_time(times)
        if rows.y is None:
            raise self.settings.table("data").error(
                'the rows have no labels: label = "..." names their column.'
            )
        self._check_labels(rows.y)
        with pointing_into(self.objects.X), naming_columns(self.objects, self._takes):
            return chosen, rejector.fit(rows.X, rows.y, **given), rows

    def learn(self, rejector: Any, file: Path, what: str, train: str | None) -> tuple[Any, int]:
        """A rejector that was fitted here, with labelled objects of a file learnt, and their number."""
        if not hasattr(rejector, "learn"):
            raise ValueError(f"a {type(rejector).__name__} does not learn; fit it anew with all rows.")
        if what not in get_args(Learner):
            raise UsageError(f"--what {what}: it is one of {', '.join(get_args(Learner))}.")
        old = self._training_rows(train).with_labels()
        fitted_on = getattr(getattr(rejector, "rejector", rejector), "n_rows_", len(old))
        if len(old) != fitted_on:
            raise UsageError(
                f"the gate was fitted on {fitted_on:,} rows, but here are {len(old):,}: give the same "
                "files, and --train as for fit."
            )
        if file.resolve() in [path.resolve() for path in self.files]:
            raise UsageError(f"{file} holds the rows the gate was fitted on, not labels that came later.")
        new = self._later_labels(file, old)
        known = np.asarray(old.y)
        y = np.concatenate([known, in_known_type(new.y, np.unique(known))])
        with pointing_into(new.X):
            return rejector.learn(stacked(old.X, new.X), y, what=what), len(new)

    def _later_labels(self, file: Path, old: Objects) -> Objects:
        """The labelled objects of a file, none of which is among the old ones."""
        columns = replace(self._read[1], time=None, text=tuple(columns_of_text(old.X)))
        if hasattr(old.X, "columns"):
            columns = replace(columns, features=list(old.X.columns), without=())
        width = old.X.shape[1] if np.ndim(old.X) == 2 else None
        try:
            read = read_objects(file, columns, width=width)
        except ColumnError as error:
            if error.key != "id":
                raise
            read = read_objects(file, replace(columns, id=None), width=width)
        new = read.with_labels()
        if new.y is None or not len(new):
            raise ValueError(f"{file} has no labels: they are in the column {columns.label!r}.")
        if len(new) < len(read):
            rows = missing_rows(np.asarray(read.y))
            warnings.warn(f"{file}: {have('no label', rows, len(read))}; left out.", stacklevel=2)
        if old.ids is not None and new.ids is not None:
            again = np.isin(new.ids.astype(str), old.ids.astype(str))
            if again.any():
                first = str(new.ids[again][0])
                raise ValueError(
                    f"{file}: {again.sum():,} of {len(new):,} objects, such as {first!r}, are "
                    "among the rows the gate was fitted on. Leave them out: what it learns came later."
                )
        return new

    def backtest(self, folder: Path, n_jobs: int | None, *, fresh: bool = False) -> Backtest:
        """Every rejector over the test periods; ``fresh`` replaces what the folder holds of another run."""
        train, rejectors, objects = self._train(), self.rejectors, self.dated_objects()
        labels = objects.with_labels().y
        self._check_labels(labels)
        with naming_columns(objects, self._takes):
            return backtest(
                rejectors,
                objects.X,
                objects.y,
                objects.times,
                train=train,
                period=self.period,
                pos_label=self._label(labels),
                chronological=self.split.get("chronological", bool, False),
                retrain=self._retraining(),
                monitor=self._monitor(),
                class_ratio=self._class_ratio(labels),
                allow=[str(name) for name in self.split.get("allow", list, [])],
                unlabelled="drop",  # what is not to be dropped was refused when it was read
                folder=folder,
                fresh=fresh,
                random_state=self._seed,
                n_jobs=n_jobs,
            )

    def biases(self, objects: Objects) -> tuple[TimeSplit, list[Bias]]:
        """The split of labelled objects, and what is wrong with it."""
        train = self._train()
        split = time_split(objects.times, train=train, period=self.period)
        ratio = self._class_ratio(objects.y)
        return split, find_biases(
            objects.X, objects.y, split, pos_label=self._label(objects.y), class_ratio=ratio
        )

    def dated_objects(self) -> Objects:
        """All rows, if they have times, and dates where the calendar cuts them."""
        objects = self.objects.labelled(_TIMES)
        if self.period is not None:
            check_dates(objects, 'period = "none" under [split]')
        return objects

    def _check_labels(self, y: AnyArray | None) -> None:
        """XGBoost's own complaint comes late, and names no way out."""
        labels = np.unique(y).tolist() if y is not None else []
        if labels != list(range(len(labels))) and any(
            "XGBClassifier" in repr(r) for r in self.rejectors.values()
        ):
            raise self.settings.table("detector").error(
                f"XGBClassifier takes the labels 0, 1, …, not {labels[:3]}. Recode them, or take "
                "lightgbm.LGBMClassifier.",
                "class",
            )

    def notes(self) -> dict[str, Any]:
        """What deciding with an artifact needs to know of its rows."""
        data = self.settings.table("data")
        notes = {key: data.values[key] for key in ("id", "features") if isinstance(data.values.get(key), str)}
        text = columns_of_text(self.objects.X)
        return notes | ({"text": text} if text else {})

    def later(self, rows: Objects) -> str | None:
        """A sentence about labelled objects seen after the training rows, and how they are fitted on, too."""
        objects = self.objects.with_labels()
        if (n := len(objects) - len(rows)) == 0 or objects.times is None or self.period is None:
            return None
        end = as_dates(objects.times).max().astype("datetime64[D]") + 1
        return (
            f"{counted(n, 'labelled object')} outside the training window left out; --train {end} takes all"
        )

    def _choose(self, name: str | None) -> str:
        names = list(self.rejectors)
        if name is None and len(names) > 1:
            options = " or ".join(f"--rejector {one}" for one in names)
            raise UsageError(f"{self.settings.path} has several rejectors; name one: {options}.")
        if name is not None and name not in names:
            raise UsageError(f"{self.settings.path} has no rejector {name!r}{suggestion(name, names)}")
        return name or names[0]

    def _training_rows(self, train: str | None) -> Objects:
        if train is None and "train" not in self.split.values:
            return self.objects
        objects = self.dated_objects().with_labels()
        window = self._train() if train is None else boundary(train, objects.times, self.period)
        return objects.take(training_rows(objects.times, window, self.period))

    @property
    def _seed(self) -> int:
        return int(self.settings.get("seed", int, 0))

    @property
    def period(self) -> Any:
        """How test objects are grouped."""
        with self.split.at("period"):
            return calendar(self.split.get("period", str, "month"))

    def _train(self) -> Any:
        hint = 'what was seen before this time trains, the rest is tested: train = "2024-01"'
        train = self.split.require("train", object, hint)
        if isinstance(train, list) and len(train) != 2:
            raise self.split.error("train is a time, or a list of two: the window's start and end.", "train")
        for time in train if isinstance(train, list) else [train]:
            if self.period is not None and not is_date(time):
                raise self.split.error(f"{time!r} is not a date such as 2024-09-01 or 2024-09.", "train")
        return tuple(train) if isinstance(train, list) else train

    def _monitor(self) -> float | None:
        threshold: float | None = self.settings.get("monitor", (int, float))
        if threshold is not None and not threshold > 1:
            raise self.settings.error("monitor is the threshold of its alarm, more than 1.", "monitor")
        return threshold

    def _retraining(self) -> Retraining | None:
        table = self.settings.table("retrain")
        table.check([field.name for field in fields(Retraining)])
        if not table.values:
            return None
        table.require("labels", int, "how many objects of a period are labelled: labels = 50")
        with table.at():
            return Retraining(**table.values)

    def _label(self, y: AnyArray | None) -> Any:
        wanted = self.split.values.get("pos_label")
        return None if wanted is None else self._find_label(str(wanted), y, "pos_label")

    def _class_ratio(self, y: AnyArray | None) -> dict[Any, float] | None:
        shares = self.split.table("class_ratio").values
        if not all(isinstance(share, float | int) for share in shares.values()):
            raise self.split.error("class_ratio has shares: { malicious = 0.1 }.", "class_ratio")
        return {self._find_label(name, y, "class_ratio"): share for name, share in shares.items()} or None

    def _find_label(self, name: str, y: AnyArray | None, key: str) -> Any:
        """The label that is written so: keys of a TOML table are text."""
        labels = {str(label): label for label in np.unique(y).tolist()} if y is not None else {}
        if name not in labels:
            raise self.split.error(f"no row has the label {name!r}{suggestion(name, labels)}", key)
        return labels[name]


def calendar(period: str) -> Calendar | None:
    """The period of this name; ``"none"`` is None, which takes times as names of periods."""
    known = (*get_args(Calendar), "none")
    if period not in known:
        raise ValueError(f"there is no period {period!r}{suggestion(period, known)}")
    return None if period == "none" else period  # type: ignore[return-value]


def check_dates(objects: Objects, none: str) -> None:
    """Refuse numbers where dates are needed; ``none`` says how they are taken as numbers of periods."""
    if objects.times is not None and objects.times.dtype.kind in "iuf":
        raise ValueError(
            f"{objects.name}: the times are numbers, not dates such as 2024-09-01. Or do they number the "
            f"periods? Then {none}."
        )


@contextmanager
def naming_columns(objects: Objects, takes: Takes) -> Iterator[None]:
    """Name the columns that hold text in an error about text, or missing values in one about them."""
    try:
        yield
    except ValueError as error:
        about_text = "could not convert string to float" in str(error)
        if not hasattr(objects.X, "columns") or not (about_text or "contains NaN" in str(error)):
            raise
        only = takes._replace(unlabelled=True, undated=True, missing=about_text, text=not about_text)
        problems = find_problems(objects, Columns(), only, dates=False)
        if not problems:
            raise
        raise ValueError(f"{error}\n{objects.name}:\n{listed(problems)}") from error


def boundary(train: str, times: Any, period: Calendar | None) -> Any:
    """The end of training that ``--train`` names: a date, or a number or name of a period."""
    if period is not None and not is_date(train):
        raise UsageError(f"--train {train}: that is not a date such as 2024-09-01 or 2024-09.")
    if period is None and np.asarray(times).dtype.kind in "iuf":
        try:
            return float(train)
        except ValueError:
            raise UsageError(f"--train {train}: that is not a number, as the times are.") from None
    return train


def finished_backtest(folder: Path | None) -> tuple[Path, Backtest]:
    """A folder's backtest; without a folder, the one here that finished last."""
    if folder is None:
        here = sorted(Path().glob("*/decisions.parquet"), key=lambda path: path.stat().st_mtime)
        if not here:
            raise ValueError(
                "there is no finished backtest in this folder; name one: transcendent report FOLDER"
            )
        folder = here[-1].parent
    if folder.suffix == ".toml":
        folder = folder.with_suffix("")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}.")
    if not (folder / "manifest.json").is_file() or not is_backtest(folder):
        raise ValueError(
            f"{folder} holds no finished backtest; 'transcendent backtest' makes one, or finishes it."
        )
    return folder, Backtest.load(folder)
