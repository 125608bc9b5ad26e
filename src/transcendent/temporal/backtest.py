"""Rejectors run over past data, period by period."""

import inspect
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils import indexable

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
from transcendent._utils.estimators import has_own_seed, seeded
from transcendent._utils.extras import extra
from transcendent._utils.provenance import describe, digest, fingerprint, plain, versions
from transcendent._utils.text import some
from transcendent.decisions import Decisions, Rejector
from transcendent.errors import InfeasibleError
from transcendent.rejectors import Traits
from transcendent.temporal.bias import find_biases, positive_label, report_biases
from transcendent.temporal.checkpoints import (
    check_place,
    discard,
    finished,
    open_checkpoints,
    read_period,
    remove_checkpoints,
    write_period,
)
from transcendent.temporal.labelling import Retraining, joining
from transcendent.temporal.periods import Calendar, TimeSplit, in_order_of_time, time_split
from transcendent.temporal.repeated import RepeatedBacktest, repeat
from transcendent.temporal.result import Backtest, tight


class _Options(TypedDict, total=False):
    """The optional parameters of `backtest`, without its seed."""

    labels: Any
    period: Calendar | None
    pos_label: Any
    chronological: bool
    retrain: Retraining | None
    class_ratio: Mapping[Any, float] | None
    allow: Collection[str]
    unlabelled: Literal["refuse", "drop"]
    folder: Any
    fresh: bool
    n_jobs: int | None
    verbose: bool


_Seeds = Sequence[int] | IntArray


@overload
def backtest(
    rejectors: Any,
    X: Any,
    y: Any,
    times: Any,
    *,
    train: Any,
    random_state: int = 0,
    **options: Unpack[_Options],
) -> Backtest: ...
@overload
def backtest(
    rejectors: Any,
    X: Any,
    y: Any,
    times: Any,
    *,
    train: Any,
    random_state: _Seeds,
    **options: Unpack[_Options],
) -> RepeatedBacktest: ...
def backtest(
    rejectors: Any,
    X: Any,
    y: Any,
    times: Any,
    *,
    train: Any,
    labels: Any = None,
    period: Calendar | None = "month",
    pos_label: Any = None,
    chronological: bool = False,
    retrain: Retraining | None = None,
    class_ratio: Mapping[Any, float] | None = None,
    allow: Collection[str] = (),
    unlabelled: Literal["refuse", "drop"] = "refuse",
    folder: Any = None,
    fresh: bool = False,
    random_state: int | _Seeds = 0,
    n_jobs: int | None = None,
    verbose: bool = True,
) -> Backtest | RepeatedBacktest:
    """Fit rejectors on the past and let them decide what came later, period by period.

    Parameters
    ----------
    rejectors : rejector, list or dict of rejectors
        Unfitted evaluators or baselines. They are cloned, not changed. In a dict the keys name them.
    X, y, times : arrays of n rows
        The data: rows, labels, and when each was seen. They are matched by position; the index of a frame or
        series is not consulted.
    train : time, (time, time) or bool array
        The end of the training window, its start and end, or a mask of its rows. What is not older is tested.
    labels : array of n rows or None
        The detector's answers, for rejectors that judge scores: ``X`` then holds scores, as `ScoreEvaluator`
        takes them, and the training window calibrates.
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
        here too, and read by the same call instead of being computed again.
    fresh : bool
        Remove the backtest that the folder holds, if any, and start anew.
    random_state : int or sequence of int
        Seeds every rejector, detector and judge whose own ``random_state`` is None, and the choice of labels.
        Several seeds give one run each, in ``seed-0``, ``seed-1``, … of the folder, and a `RepeatedBacktest`.
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
    named = _named(rejectors, chronological, labels is not None)
    if not isinstance(retrain, Retraining | None):
        raise TypeError(f"retrain is a Retraining such as Retraining(50), not {retrain!r}.")
    check_names(X)
    n_rows, rows, pointing = count_rows(y), _labelled_rows(y, unlabelled), pointing_into(X)
    X, y, split = _checked(X, y, times, train, period, rows)
    answers = None if labels is None else _checked_answers(labels, rows, n_rows)
    pos_label = positive_label(y[split.train], pos_label)
    biases = find_biases(X, y, split, pos_label=pos_label, class_ratio=class_ratio)
    report_biases(biases, allow, stacklevel=2)
    manifest = {
        "rejectors": {},
        "train": train if np.ndim(train) == 0 or isinstance(train, tuple) else "rows of a mask",
        "period": period,
        "pos_label": pos_label,
        "chronological": chronological,
        "retrain": repr(retrain),
        "random_state": 0,
        "biases": {bias.name: bias.message for bias in biases},
        "unlabelled": n_rows - len(rows),
        "data": digest(X, y, split.times, split.train, split.test, rows, [] if answers is None else answers),
    }
    run = _Run(X, y, answers, rows, split, chronological, retrain, pos_label, manifest)
    run_seed = partial(_run_seed, run, named, fresh=fresh, n_jobs=n_jobs, verbose=verbose)
    with pointing:  # to rows as they were given, not to those of a period
        if isinstance(random_state, Sequence | np.ndarray):
            _warn_of_own_seeds(named)
            return repeat(partial(run_seed, several=True), random_state, folder)
        return run_seed(random_state, folder)


@dataclass(frozen=True)
class _Run:
    """What the run of every rejector has in common."""

    X: Any
    y: AnyArray
    answers: AnyArray | None
    numbers: IntArray
    split: TimeSplit
    chronological: bool
    retrain: Retraining | None
    pos_label: Any
    manifest: dict[str, Any]
    random_state: int = 0
    checkpoints: Path | None = None
    verbose: bool = False
    note: str = ""

    def fit(self, rejector: Any, labelled: IntArray) -> Any:
        """Fit a clone on the training rows and on the labelled rows that can join them."""
        train, times = self.split.train, in_order_of_time(self.split.times)
        rows = np.concatenate([train, joining(labelled, self.y, train)])
        rows = rows[np.argsort(times[rows], kind="stable")]
        given = {"times": times[rows]} if self.chronological else {}
        if self.answers is not None:
            given["labels"] = self.answers[rows]
        return clone(rejector, safe=False).fit(take_rows(self.X, as_slice(rows)), self.y[rows], **given)

    def rows(self, period: int) -> IntArray:
        return self.split.test[self.split.periods.rows[period]]

    def decide(self, fitted: Any, rows: IntArray) -> Decisions:
        """Decide some rows: as they are, or as scores with the detector's answers."""
        answers = () if self.answers is None else (self.answers[rows],)
        decisions: Decisions = fitted.decide(take_rows(self.X, as_slice(rows)), *answers)
        return decisions


@dataclass(frozen=True)
class _Outcome:
    answers: Decisions
    seconds: dict[str, float]
    labelled: int


def _run_seed(
    run: _Run,
    rejectors: dict[str, Any],
    seed: int,
    folder: Any,
    *,
    fresh: bool,
    n_jobs: int | None,
    verbose: bool,
    several: bool = False,
) -> Backtest:
    """Run every rejector with one seed, or read what a folder holds of that run."""
    named = {name: seeded(rejector, seed) for name, rejector in rejectors.items()}
    described = {name: describe(rejector) for name, rejector in named.items()}
    manifest = plain(run.manifest | {"rejectors": described, "random_state": seed})
    checkpoints = None
    if folder is not None:
        extra("pyarrow", "frames")
        check_place(Path(folder))
        manifest["fingerprints"] = {name: fingerprint(name, rejector) for name, rejector in named.items()}
        if fresh:
            discard(Path(folder))
        if (done := finished(Path(folder), manifest)) is not None:
            return done
        checkpoints = open_checkpoints(Path(folder), manifest)
    alone = effective_n_jobs(n_jobs) == 1
    note = f", seed {seed}" if several else ""
    run = replace(
        run,
        manifest=manifest,
        random_state=seed,
        checkpoints=checkpoints,
        verbose=verbose and alone,
        note=note,
    )
    outcomes = parallel.run(
        _run_rejector,
        named.items(),
        shared=(run,),
        total=len(named),
        n_jobs=n_jobs,
        label=f"backtest{note}",
        verbose=verbose and not alone,
    )
    result = _collect(run, dict(zip(named, outcomes, strict=True)))
    if folder is not None:
        result.save(folder)
        remove_checkpoints(Path(folder))
    return result


def _warn_of_own_seeds(rejectors: dict[str, Any]) -> None:
    if own := [name for name, rejector in rejectors.items() if has_own_seed(rejector)]:
        warnings.warn(
            f"{some(own)}: a random_state that is set stays the same with every seed, and the intervals "
            "leave out the chance in it. Leave it at None.",
            stacklevel=3,
        )


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
    n_rows = count_rows(y)
    X, y = indexable(X, y)
    if len(times) != n_rows:
        raise ValueError(f"times has {len(times)} entries for {n_rows} rows.")
    if len(rows) < n_rows:
        X, y, times = (take_rows(values, rows) for values in (X, y, times))
        if np.ndim(train) == 1 and not isinstance(train, tuple):
            train = np.asarray(train)[rows]
    labels = tight(as_labels(y))
    if labels.dtype == object:
        raise ValueError("y has labels of several types.")
    try:
        return X, labels, time_split(times, train=train, period=period)
    except ValueError as error:
        if "row " not in str(error) or len(rows) == n_rows:
            raise
        raise ValueError(f"{error} (Rows are counted without those that have no label.)") from None


def _checked_answers(labels: Any, rows: IntArray, n: int) -> AnyArray:
    """The detector's answers about some of n rows."""
    if len(labels) != n:
        raise ValueError(f"labels has {len(labels)} entries for {n} rows.")
    return as_labels(take_rows(labels, rows), "labels")


def _collect(run: _Run, outcomes: dict[str, _Outcome]) -> Backtest:
    split = run.split
    in_order = split.test[np.concatenate(split.periods.rows)]
    return Backtest(
        periods=split.periods.labels,
        period=np.sort(split.periods.codes),
        rows=run.numbers[in_order],
        y=run.y[in_order],
        answers={name: outcome.answers for name, outcome in outcomes.items()},
        classes=np.unique(run.y[np.concatenate([split.train, split.test])]),
        pos_label=run.pos_label,
        manifest=run.manifest
        | {
            "new_classes": np.setdiff1d(run.y[split.test], run.y[split.train]).tolist(),
            "versions": versions("lightgbm", "xgboost", "torch"),
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
    periods, done = run.split.periods, 0
    total = len(run.split.test)
    with parallel.Progress(
        f"backtest of {name}{run.note}", total, verbose=run.verbose, unit="object"
    ) as progress:
        for i in range(len(periods)):
            rows = run.rows(i)
            if run.retrain is not None and i > 0 and i % run.retrain.every == 0:
                fitted, known, since_fit = None, labelled, []
            done += len(rows)
            part = read_period(run.checkpoints, name, i)
            if part is not None:
                fitted = None  # it has not decided this period, from which it might have learnt
                progress.skip(done)
            elif len(rows):
                if fitted is None:
                    first = not seconds["fit"]
                    try:
                        with progress.pause() if first else nullcontext():
                            fitted = _fit_up_to_now(run, rejector, known, since_fit, seconds)
                    except InfeasibleError as error:
                        raise InfeasibleError(f"{name}: {error}") from None
                part = _decide_period(run, fitted, rows, i, seconds)
                write_period(run.checkpoints, name, i, part)
            if part is not None:
                parts.append(part)
                since_fit.append(rows)
                labelled = np.concatenate([labelled, part["labelled"]])
            progress.show(done, periods.labels[i])
    return _Outcome(_join(parts), seconds, len(labelled))


def _fit_up_to_now(
    run: _Run, rejector: Any, labelled: IntArray, since_fit: list[IntArray], seconds: dict[str, float]
) -> Any:
    """The rejector as it is after deciding the periods since its last fit."""
    with _timed(seconds, "fit"):
        fitted = run.fit(rejector, labelled)
    if Traits.of(fitted).evolves:
        for earlier in since_fit:
            run.decide(fitted, earlier)
    return fitted


def _decide_period(
    run: _Run, fitted: Any, rows: IntArray, period: int, seconds: dict[str, float]
) -> dict[str, AnyArray]:
    with _timed(seconds, "decide"):
        decisions = run.decide(fitted, rows)
    chosen = np.empty(0, dtype=np.intp)
    if run.retrain is not None:
        generator = np.random.default_rng((run.random_state, period))
        chosen = run.retrain.select(fitted, take_rows(run.X, as_slice(rows)), decisions, generator)
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


def _named(rejectors: Any, chronological: bool, labels_given: bool) -> dict[str, Any]:
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
        judges = hasattr(rejector, "fit") and hasattr(rejector, "decide") and not isinstance(rejector, type)
        if judges and (takes_labels := Traits.of(rejector).takes_labels) != labels_given:
            raise TypeError(
                f"{name} judges scores: give the detector's answers, too: labels=..."
                if takes_labels
                else f"labels are for rejectors that judge scores, such as ScoreEvaluator; {name} does not."
            )
        if not judges or not (takes_labels or isinstance(rejector, Rejector)):
            raise TypeError(
                f"{name} is not a rejector but {rejector!r:.60}; a detector is wrapped in one, such as "
                "InductiveEvaluator(detector), and several are given as a dict of names and rejectors."
            )
        if chronological and "times" not in inspect.signature(rejector.fit).parameters:
            raise ValueError(f"chronological: {name} does not calibrate on the most recent rows.")
    return named
