"""An experiment in a TOML file: data, a split and rejectors, to fit, backtest and check."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple, get_args

import numpy as np

from transcendent._utils.arrays import AnyArray, missing_rows
from transcendent._utils.cells import locating_bad_value
from transcendent._utils.dates import as_dates
from transcendent._utils.estimators import seeded
from transcendent._utils.text import suggestion
from transcendent.artifacts import save
from transcendent.decisions import Learner, declared
from transcendent.errors import ArgumentError, TranscendentError
from transcendent.experiments.building import LIBRARIES, build_rejectors
from transcendent.experiments.data import Surveyed, notes_on, survey
from transcendent.experiments.describing import describe
from transcendent.experiments.later import in_order_of_columns, labelled_later
from transcendent.experiments.schedule import Schedule, training_end
from transcendent.experiments.scores import check_training, notes_on_scores, score_table
from transcendent.experiments.survey import check_dates, find_problems, in_words, listed
from transcendent.experiments.toml import TomlTable
from transcendent.tables.bad_rows import first_line
from transcendent.tables.frames import Columns
from transcendent.tables.objects import Objects
from transcendent.temporal import backtest, find_biases, time_split
from transcendent.temporal.periods import in_order_of_time, training_rows
from transcendent.temporal.result import Backtest

_TOP = ("title", "data", "split", "detector", "rejectors", "retrain", "monitor", "seed")
_TRAIN = 'objects seen before this time train, the others test: train = "2024-01"'
_LARGEST_SEED = 2**32 - 1
_TIMES = 'for example time = "first_seen" under [data]'


def read(path: Any) -> "Experiment":
    """Read an experiment from a TOML file, and check everything that needs no rows.

    Parameters
    ----------
    path : path
        A TOML file; the page Command line explains its tables and keys.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from transcendent import experiments
    >>> from transcendent.datasets import make_stream
    >>> stream = make_stream(1200, n_periods=6, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table, toml = Path(folder, "objects.csv"), Path(folder, "objects.toml")
    ...     pd.DataFrame(stream.X).assign(label=stream.y, seen=stream.times).to_csv(table, index=False)
    ...     _ = toml.write_text(experiments.propose(table).text)
    ...     result = experiments.read(toml).backtest()
    >>> result.periods
    ('2020-03', '2020-04', '2020-05', '2020-06')
    """
    return interpret(Path(path))


def interpret(path: Path, text: str | None = None) -> "Experiment":
    """Return the experiment that a TOML file describes, given its text if it is not written yet."""
    toml = TomlTable.read(path, text)
    toml.check(_TOP)
    monitor = toml.get("monitor", (int, float))
    if monitor is not None and not monitor > 1:
        raise toml.error("monitor must be the threshold of its alarm, more than 1.", "monitor")
    if not 0 <= (seed := toml.get("seed", int, 0)) <= _LARGEST_SEED:
        raise toml.error(f"seed must be from 0 to {_LARGEST_SEED}.", "seed")
    schedule = Schedule.read(toml.table("split"), toml.table("retrain"), monitor)
    return Experiment(toml, schedule, build_rejectors(toml, of_scores=score_table(toml) is not None), seed)


class FittedRejector(NamedTuple):
    """A rejector that an experiment has fitted.

    ``notes`` say how to read new rows for it. ``n_left_out`` is the number of labelled objects outside the
    training window; ``train=take_all`` would include them.
    """

    name: str
    rejector: Any
    rows: Objects
    notes: dict[str, Any]
    n_left_out: int
    take_all: str | None

    def save(self, path: Any, *, signing_key: Any = None) -> str:
        """Save the rejector as an artifact, and return the digest; see `transcendent.save`."""
        period = self.rows.period()
        return save(self.rejector, path, training_period=period, notes=self.notes, signing_key=signing_key)


class LearntRejector(NamedTuple):
    """A rejector that has learnt, the number of labels it learnt from, and of those left out, by cause."""

    rejector: Any
    n_learnt: int
    left_out: dict[str, int]


@dataclass(frozen=True)
class Experiment:
    """Objects, a split, a detector and rejectors, as a TOML file describes them; `read` makes one.

    Attributes
    ----------
    toml : TomlTable
        The file.
    schedule : Schedule
        Its entries about time.
    rejectors : dict
        Rejectors by name, not fitted.
    seed : int
        The seed of all of them.
    """

    toml: TomlTable
    schedule: Schedule
    rejectors: dict[str, Any]
    seed: int

    def fit(self, rejector: str | None = None, *, train: str | None = None) -> FittedRejector:
        """Fit a rejector on the training rows.

        Parameters
        ----------
        rejector : str or None
            Its name; None if there is only one.
        train : str or None
            Fit on objects seen before this time; by default ``train`` under ``[split]``, or all objects.
        """
        name = self._choose(rejector)
        rows = self._training_rows(train)
        if rows.y is None:
            raise self.data.error('the rows have no labels: name their column, label = "...".')
        self._check_labels(rows.y)
        if self._surveyed.scores is not None:
            check_training(self.toml.table("detector"), self._surveyed.scores, rows.y)
        given = {}
        if self.schedule.chronological:
            times = np.asarray(rows.labelled(_TIMES).times)
            given["times"] = times if self.schedule.period else in_order_of_time(times)
        locating = locating_bad_value(self.objects.X, self.objects.lines)
        with self._naming_detector(), locating, self._naming_columns():
            fitted = seeded(self.rejectors[name], self.seed).fit(rows.X, rows.y, **given)
        notes = notes_on(self.data) | notes_on_scores(self._surveyed.scores)
        if (end := self.schedule.train if train is None else train) is not None:
            notes["train"] = [str(time) for time in end] if isinstance(end, tuple) else str(end)
        if rows.feature_names is not None:
            notes["feature_names"] = list(map(str, rows.feature_names))
        return FittedRejector(name, fitted, rows, notes, *self._left_out(len(rows)))

    def learn(
        self, rejector: Any, labels: Any, *, what: Learner = "judge", train: Any = None
    ) -> LearntRejector:
        """Let a rejector learn from labels that came after its fit.

        Parameters
        ----------
        rejector : fitted rejector
            A rejector that this experiment has fitted.
        labels : path
            A file with every object labelled since the fit: a table with the columns of the experiment, or
            an export of the gate. Objects without a class of the fit, and rows of the fit, are left out.
        what : {"judge", "detector", "both"}
            What learns.
        train : str, pair of str or None
            As for `fit`; an artifact has it among its notes.
        """
        declares = declared(rejector)
        if declares.judges_scores:
            raise ValueError(
                "scores alone leave nothing to learn: there are no models, only calibration objects. Add "
                "later labels, of objects drawn at random, to the table, and fit with a later train."
            )
        if not declares.can_learn:
            raise ValueError(f"a {type(rejector).__name__} cannot learn; fit it again with all rows.")
        if what not in get_args(Learner):
            raise ArgumentError("what", f"must be one of {', '.join(get_args(Learner))}, not {what!r}.")
        if Path(labels).resolve() in [path.resolve() for path in self.files]:
            raise ArgumentError("labels", f"{labels} holds the rows of the fit, not later labels.")
        old = in_order_of_columns(self._training_rows(train), declares.fitted.feature_names)
        if (fitted_on := declares.fitted.n_rows) is not None and len(old) != fitted_on:
            raise ValueError(
                f"the rejector was fitted on {fitted_on:,} rows, but {self.toml.path} has {len(old):,}: use "
                "the same files, and the same end of training, as for fit."
            )
        new, left_out = labelled_later(Path(labels), self._surveyed.columns, old)
        with locating_bad_value(new.X, new.lines):
            learnt = rejector.learn(new.X, new.y, what=what, fitted=(old.X, old.y))
        if copies := declared(learnt).fitted.n_left_out:
            left_out = left_out | {"equals a calibration object, but for the label": copies}
        return LearntRejector(learnt, len(new) - copies, left_out)

    def backtest(self, folder: Any = None, *, n_jobs: int | None = None, fresh: bool = False) -> Backtest:
        """Fit every rejector on the training window, and decide the later objects; see `backtest`.

        Parameters
        ----------
        folder : path or None
            Where to keep the result; an interrupted run is resumed there, and a finished one read.
        n_jobs : int or None
            Number of rejectors that run at once.
        fresh : bool
            Whether to replace another run in the folder.
        """
        schedule = self.schedule
        schedule.split.get("train", object, needed=_TRAIN)
        title, objects = self.title, self._dated_objects()
        labels = objects.with_labels().y
        self._check_labels(labels)
        if self._surveyed.scores is not None:
            check_training(self.toml.table("detector"), self._surveyed.scores, self._training_rows(None).y)
        with self._naming_detector(), self._naming_columns(), schedule.naming_train():
            return backtest(
                self.rejectors,
                objects.X,
                objects.y,
                objects.times,
                train=schedule.train,
                period=schedule.period,
                pos_label=schedule.pos_label(labels),
                chronological=schedule.chronological,
                retrain=schedule.retrain,
                monitor=schedule.monitor,
                class_ratio=schedule.class_ratio(labels),
                allow=schedule.allow,
                unlabelled="drop",  # rows that must not be dropped have raised an error before
                folder=folder,
                fresh=fresh,
                title=title,
                random_state=self.seed,
                n_jobs=n_jobs,
            )

    def check(self) -> dict[str, Any]:
        """Describe the objects, the problems that prevent a fit, and the biases of the split."""
        objects, _, _, problems, left_out, _ = self._surveyed
        known, found = describe(objects, problems, left_out, self.schedule.period)
        if not len(known) or self.schedule.train is None:
            return found
        with self.schedule.naming_train():
            split = time_split(known.times, train=self.schedule.train, period=self.schedule.period)
        label, ratio = self.schedule.pos_label(known.y), self.schedule.class_ratio(known.y)
        biases = find_biases(known.X, known.y, split, pos_label=label, class_ratio=ratio)
        if outside := len(known) - len(split.train) - len(split.test):
            causes = left_out | {"before the training window": outside}
            found |= {"left_out": sum(causes.values()), "left_out_by_cause": causes}
        return found | {"training": len(split.train), "test": len(split.test), "biases": biases}

    @property
    def title(self) -> str:
        """The title of reports: ``title``, or else the name of the file."""
        return str(self.toml.get("title", str, self.toml.path.stem))

    @property
    def data(self) -> TomlTable:
        """The table ``[data]``."""
        return self.toml.table("data")

    @property
    def files(self) -> list[Path]:
        """The files that hold the objects."""
        named = (self.data.values.get(key) for key in ("file", "table"))
        return [self.toml.path.parent / name for name in named if isinstance(name, str)]

    @cached_property
    def objects(self) -> Objects:
        """All objects, if a fit is possible; those that are to be dropped have no label."""
        found = self._surveyed.objects
        if self._surveyed.problems:
            raise ValueError(f"{found.name} cannot be fitted as it is:\n{listed(self._surveyed.problems)}")
        if found.y is not None and len(rows := missing_rows(found.y)):
            causes = in_words(self._surveyed.left_out)
            warnings.warn(
                f"{found.name}: left out {len(rows):,} of {len(found):,} rows: {causes}.", stacklevel=2
            )
        return found

    @cached_property
    def _surveyed(self) -> Surveyed:
        given = [rejector.get_params() for rejector in self.rejectors.values()]
        detectors = [params.get("estimator", params.get("rejector__estimator")) for params in given]
        needed = ["label"] if self.schedule.train is None else ["label", "time"]
        dates = self.schedule.period is not None
        return survey(self.data, detectors, needed, dates=dates, scores=score_table(self.toml))

    def _dated_objects(self) -> Objects:
        """Return all objects; raise if they have no times, or no dates where the calendar needs them."""
        check_dates(self.objects, self.schedule.period)
        return self.objects.labelled(_TIMES)

    def _training_rows(self, train: Any) -> Objects:
        """Return the labelled training rows."""
        schedule = self.schedule
        if train is None and schedule.train is None:
            return self.objects.with_labels()
        objects = self._dated_objects().with_labels()
        if train is None:
            with schedule.naming_train():
                return objects.take(training_rows(objects.times, schedule.train, schedule.period))
        ends = [train] if isinstance(train, str) else train
        found = tuple(training_end(str(end), objects.times, schedule.period) for end in ends)
        window = found if len(found) == 2 else found[0]
        return objects.take(training_rows(objects.times, window, schedule.period))

    def _left_out(self, n_taken: int) -> tuple[int, str | None]:
        """Return the number of labelled objects left out of training, and a time after all objects."""
        objects = self.objects.with_labels()
        if len(objects) == n_taken or objects.times is None or self.schedule.period is None:
            return 0, None
        end = as_dates(objects.times).max().astype("datetime64[D]") + 1
        return len(objects) - n_taken, str(end)

    @contextmanager
    def _naming_columns(self) -> Iterator[None]:
        """Add the columns of bad cells, and the ways out, to errors about text or missing values."""
        try:
            yield
        except ValueError as error:
            about_text = "could not convert string to float" in str(error)
            if not about_text and "contains NaN" not in str(error):
                raise
            takes = self._surveyed.takes._replace(unlabelled=True, undated=True)
            takes = takes._replace(missing=about_text, text=not about_text)
            if problems := find_problems(self.objects, Columns(), takes, dates=False):
                raise ValueError(f"{error}\n{self.objects.name}:\n{listed(problems)}") from error
            raise

    @contextmanager
    def _naming_detector(self) -> Iterator[None]:
        """Raise what a booster says of its parameters, and bugs of detectors, as errors at ``[detector]``."""
        try:
            yield
        except TranscendentError:
            raise
        except Exception as error:
            *_, (innermost, _) = walk_tb(error.__traceback__)
            library = str(innermost.f_globals.get("__name__")).partition(".")[0]
            if library not in LIBRARIES or (library == "sklearn" and isinstance(error, ValueError)):
                raise
            said = f"a detector cannot be fitted, perhaps for a parameter: {first_line(error)}"
            raise self.toml.table("detector").error(said, "class") from error

    def _choose(self, name: str | None) -> str:
        names = list(self.rejectors)
        if name is None and len(names) > 1:
            raise ArgumentError("rejector", f"{self.toml.path} has several; choose {' or '.join(names)}.")
        if name is not None and name not in names:
            raise ArgumentError("rejector", f"{self.toml.path} has no {name!r}{suggestion(name, names)}")
        return name or names[0]

    def _check_labels(self, y: AnyArray | None) -> None:
        """Raise on labels that XGBoost cannot handle; its own error comes late, and names no way out."""
        labels = np.unique(y).tolist() if y is not None else []
        if labels != list(range(len(labels))) and "XGBClassifier" in repr([*self.rejectors.values()]):
            raise self.toml.table("detector").error(
                f"XGBClassifier needs the labels 0, 1, …, not {labels[:3]}. Recode them, or use "
                "lightgbm.LGBMClassifier.",
                "class",
            )
