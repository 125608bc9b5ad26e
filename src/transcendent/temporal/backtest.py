"""Rejectors run over past data, period by period."""

import inspect
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils import column_or_1d, indexable

from transcendent._utils import parallel
from transcendent._utils.arrays import (
    AnyArray,
    IntArray,
    as_labels,
    as_slice,
    count_rows,
    take_rows,
    unlabelled_rows,
)
from transcendent._utils.cells import check_names, pointing_into
from transcendent._utils.estimators import seeded
from transcendent._utils.extras import extra
from transcendent._utils.provenance import describe, digest, fingerprint, plain, versions
from transcendent.decisions import Decisions, Rejector
from transcendent.errors import InfeasibleError
from transcendent.rejectors import Traits
from transcendent.temporal.bias import find_biases, positive_label, report_biases
from transcendent.temporal.checkpoints import finished, open_checkpoints, read_period, write_period
from transcendent.temporal.labelling import Retraining, joining
from transcendent.temporal.periods import Calendar, TimeSplit, in_order_of_time, time_split
from transcendent.temporal.result import Backtest, tight


def backtest(
    rejectors: Any,
    X: Any,
    y: Any,
    times: Any,
    *,
    train: Any,
    period: Calendar | None = "month",
    pos_label: Any = None,
    chronological: bool = False,
    retrain: Retraining | None = None,
    class_ratio: Mapping[Any, float] | None = None,
    allow: Collection[str] = (),
    unlabelled: Literal["refuse", "drop"] = "refuse",
    folder: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: bool = True,
) -> Backtest:
    """Fit rejectors on the past and let them decide what came later, period by period.

    Parameters
    ----------
    rejectors : rejector, list or dict of rejectors
        Unfitted evaluators or baselines. They are cloned, not changed. In a dict the keys name them.
    X, y, times : arrays of n rows
        The data: rows, labels, and when each was seen.
    train : time, (time, time) or bool array
        The end of the training window, its start and end, or a mask of its rows. What is not older is tested.
    period : {"year", "quarter", "month", "week", "day"} or None
        How test objects are grouped; None takes ``times`` as the names of periods.
    pos_label : label or None
        The positive class; by default the second of two in training, with more classes none.
    chronological : bool
        Give ``times`` to the rejectors' ``fit``, so that the most recent training rows calibrate; rejectors
        that do not take them are refused. By default a random part of the training rows calibrates.
    retrain : Retraining or None
        Labels a period that join the training rows, and how often to refit; None fits once.
    class_ratio : dict or None
        The share of classes in deployment, checked if given.
    allow : collection of str
        Names of biases to ignore; see `find_biases`. The others are refused or warned about.
    unlabelled : {"refuse", "drop"}
        What to do with rows whose label is missing (None, NaN, NA): an error, or leave them out. The
        manifest counts the rows left out.
    folder : path or None
        Save progress here, so that the same call resumes an interrupted run. The finished result is saved
        here too.
    random_state : int
        Seeds every rejector, detector and judge whose own ``random_state`` is None, and the choice of labels.
    n_jobs : int or None
        How many rejectors run at once, in processes.
    verbose : bool
        Show progress on a terminal or in a notebook.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator, backtest
    >>> from transcendent.baselines import CPReject
    >>> from transcendent.datasets import make_stream
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "CP-Reject": CPReject(LinearSVC())}
    >>> result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-05")
    >>> result.periods[:3], result.table["f1"].shape
    (('2020-05', '2020-06', '2020-07'), (48,))
    """
    named = {name: seeded(r, random_state) for name, r in _named(rejectors, chronological).items()}
    if not isinstance(retrain, Retraining | None):
        raise TypeError(f"retrain is a Retraining such as Retraining(50), not {retrain!r}.")
    check_names(X)
    rows, pointing = _labelled_rows(y, unlabelled), pointing_into(X)
    X, labels, split = _checked(X, y, times, train, period, rows)
    pos_label = positive_label(labels[split.train], pos_label)
    biases = find_biases(X, labels, split, pos_label=pos_label, class_ratio=class_ratio)
    report_biases(biases, allow, stacklevel=2)
    manifest: dict[str, Any] = plain(
        {
            "rejectors": {name: describe(rejector) for name, rejector in named.items()},
            "train": train if np.ndim(train) == 0 or isinstance(train, tuple) else "rows of a mask",
            "period": period,
            "pos_label": pos_label,
            "chronological": chronological,
            "retrain": repr(retrain),
            "random_state": random_state,
            "biases": {bias.name: bias.message for bias in biases},
            "unlabelled": count_rows(y) - len(rows),
            "data": digest(X, labels, split.times, split.train, split.test),
        }
    )
    checkpoints = None
    if folder is not None:
        extra("pyarrow", "frames")
        manifest["fingerprints"] = {name: fingerprint(name, rejector) for name, rejector in named.items()}
        if (done := finished(Path(folder), manifest)) is not None:
            return done
        checkpoints = open_checkpoints(Path(folder), manifest)
    alone = effective_n_jobs(n_jobs) == 1
    run = _Run(X, labels, rows, split, chronological, retrain, random_state, checkpoints, verbose and alone)
    with pointing:  # to rows as they were given, not to those of a period
        outcomes = parallel.run(
            _run_rejector,
            named.items(),
            shared=(run,),
            total=len(named),
            n_jobs=n_jobs,
            label="backtest",
            verbose=verbose and not alone,
        )
    result = _collect(run, dict(zip(named, outcomes, strict=True)), pos_label, manifest)
    if folder is not None:
        result.save(folder)
    return result


@dataclass(frozen=True)
class _Run:
    """What the run of every rejector has in common."""

    X: Any
    y: AnyArray
    numbers: IntArray
    split: TimeSplit
    chronological: bool
    retrain: Retraining | None
    random_state: int
    checkpoints: Path | None
    verbose: bool

    def fit(self, rejector: Any, labelled: IntArray) -> Any:
        """Fit a clone on the training rows and on the labelled rows that can join them."""
        train, times = self.split.train, in_order_of_time(self.split.times)
        rows = np.concatenate([train, joining(labelled, self.y, train)])
        rows = rows[np.argsort(times[rows], kind="stable")]
        given = {"times": times[rows]} if self.chronological else {}
        return clone(rejector, safe=False).fit(take_rows(self.X, as_slice(rows)), self.y[rows], **given)

    def rows(self, period: int) -> IntArray:
        return self.split.test[self.split.periods.rows[period]]


@dataclass(frozen=True)
class _Outcome:
    answers: Decisions
    seconds: dict[str, float]
    labelled: int


def _labelled_rows(y: Any, unlabelled: str) -> IntArray:
    """Positions of the rows that have a label; unless they are to be dropped, the others are refused."""
    if unlabelled not in ("refuse", "drop"):
        raise ValueError(f"unlabelled must be 'refuse' or 'drop', not {unlabelled!r}.")
    if unlabelled == "refuse":
        try:
            return np.arange(len(as_labels(y)))
        except ValueError as error:
            raise ValueError(f"{error} Here unlabelled='drop' does that.") from None
    return np.setdiff1d(np.arange(len(y)), unlabelled_rows(y))


def _checked(
    X: Any, y: Any, times: Any, train: Any, period: Calendar | None, rows: IntArray
) -> tuple[Any, AnyArray, TimeSplit]:
    """Some of the rows, their labels, and how time splits them."""
    if times is None:
        raise ValueError("times is None: a backtest needs to know when each row was seen.")
    X, labels = indexable(X, column_or_1d(y, warn=True))
    if len(times) != len(labels):
        raise ValueError(f"times has {len(times)} entries for {len(labels)} rows.")
    if len(rows) < len(labels):
        X, labels, times = take_rows(X, rows), labels[rows], take_rows(times, rows)
        if np.ndim(train) == 1 and not isinstance(train, tuple):
            train = np.asarray(train)[rows]
    labels = tight(labels)
    if labels.dtype == object:
        raise ValueError("y has labels of several types.")
    return X, labels, time_split(times, train=train, period=period)


def _collect(run: _Run, outcomes: dict[str, _Outcome], pos_label: Any, manifest: dict[str, Any]) -> Backtest:
    split = run.split
    in_order = split.test[np.concatenate(split.periods.rows)]
    return Backtest(
        periods=split.periods.labels,
        period=np.sort(split.periods.codes),
        rows=run.numbers[in_order],
        y=run.y[in_order],
        answers={name: outcome.answers for name, outcome in outcomes.items()},
        classes=np.unique(run.y[np.concatenate([split.train, split.test])]),
        pos_label=pos_label,
        manifest=manifest
        | {
            "versions": versions(),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": {name: outcome.seconds for name, outcome in outcomes.items()},
            "labelled": {name: outcome.labelled for name, outcome in outcomes.items()},
        },
    )


def _run_rejector(run: _Run, name: str, rejector: Any) -> _Outcome:
    """Decide period after period and refit on schedule; periods already on disk are not decided again."""
    seconds = {"fit": 0.0, "decide": 0.0}
    fitted: Any = None
    labelled = known = np.empty(0, dtype=np.intp)
    since_fit: list[IntArray] = []
    parts: list[dict[str, AnyArray]] = []
    periods = len(run.split.periods)
    with parallel.Progress(f"backtest of {name}", periods, verbose=run.verbose, unit="period") as progress:
        for i in range(periods):
            rows = run.rows(i)
            if run.retrain is not None and i > 0 and i % run.retrain.every == 0:
                fitted, known, since_fit = None, labelled, []
            part = read_period(run.checkpoints, name, i)
            if part is not None:
                fitted = None  # it has not decided this period, from which it might have learnt
            elif len(rows):
                if fitted is None:
                    try:
                        fitted = _fit_up_to_now(run, rejector, known, since_fit, seconds)
                    except InfeasibleError as error:
                        raise InfeasibleError(f"{name}: {error}") from None
                part = _decide_period(run, fitted, rows, i, seconds)
                write_period(run.checkpoints, name, i, part)
            if part is not None:
                parts.append(part)
                since_fit.append(rows)
                labelled = np.concatenate([labelled, part["labelled"]])
            progress.show(i + 1)
    return _Outcome(_join(parts), seconds, len(labelled))


def _fit_up_to_now(
    run: _Run, rejector: Any, labelled: IntArray, since_fit: list[IntArray], seconds: dict[str, float]
) -> Any:
    """The rejector as it is after deciding the periods since its last fit."""
    with _timed(seconds, "fit"):
        fitted = run.fit(rejector, labelled)
    if Traits.of(fitted).evolves:
        for earlier in since_fit:
            fitted.decide(take_rows(run.X, as_slice(earlier)))
    return fitted


def _decide_period(
    run: _Run, fitted: Any, rows: IntArray, period: int, seconds: dict[str, float]
) -> dict[str, AnyArray]:
    X = take_rows(run.X, as_slice(rows))
    with _timed(seconds, "decide"):
        decisions = fitted.decide(X)
    chosen = np.empty(0, dtype=np.intp)
    if run.retrain is not None:
        generator = np.random.default_rng((run.random_state, period))
        chosen = run.retrain.select(fitted, X, decisions, generator)
    columns = {key: tight(column) for key, column in decisions.columns().items() if key != "p_values"}
    return columns | {
        "labelled": rows[chosen],
        "classes": tight(decisions.classes),
        "ranked_by": np.array([decisions.ranked_by]),
    }


def _join(parts: list[dict[str, AnyArray]]) -> Decisions:
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key != "labelled"}
    classes, ranked_by = np.unique(columns.pop("classes")), columns.pop("ranked_by")[0].item()
    return Decisions(**columns, classes=classes, ranked_by=ranked_by)


@contextmanager
def _timed(seconds: dict[str, float], work: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[work] += time.perf_counter() - started


def _named(rejectors: Any, chronological: bool) -> dict[str, Any]:
    if isinstance(rejectors, Mapping):
        pairs = [(str(name), rejector) for name, rejector in rejectors.items()]
    else:
        several = list(rejectors) if isinstance(rejectors, Sequence) else [rejectors]
        pairs = [(type(rejector).__name__, rejector) for rejector in several]
    named = dict(pairs)
    if not named:
        raise ValueError("there are no rejectors to test.")
    if len(named) < len(pairs):
        raise ValueError("several rejectors have one name; give a dict that names them.")
    for name, rejector in named.items():
        if isinstance(rejector, type) or not (isinstance(rejector, Rejector) and hasattr(rejector, "fit")):
            raise TypeError(
                f"{name} is not a rejector but {rejector!r:.60}; a detector is wrapped in one, such as "
                "InductiveEvaluator(detector), and several are given as a dict of names and rejectors."
            )
        if chronological and "times" not in inspect.signature(rejector.fit).parameters:
            raise ValueError(f"chronological: {name} does not calibrate on the most recent rows.")
    return named
