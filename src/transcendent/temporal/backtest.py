"""What would rejection have given on these data? Rejectors run over the past, period by period."""

import inspect
import platform
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, clone
from sklearn.utils import column_or_1d, indexable

from transcendent import parallel
from transcendent.arrays import AnyArray, IntArray, take_rows
from transcendent.temporal.bias import find_biases, report_biases
from transcendent.temporal.checkpoints import (
    digest,
    finished,
    open_checkpoints,
    read_period,
    write_period,
)
from transcendent.temporal.labelling import Retraining
from transcendent.temporal.periods import Calendar, TimeSplit, time_split
from transcendent.temporal.result import Answers, Backtest, tight

_PACKAGES = ("transcendent", "numpy", "scipy", "scikit-learn", "joblib")


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
    folder: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: bool = True,
) -> Backtest:
    """Fit rejectors on the past and let them decide what came later, period by period.

    Parameters
    ----------
    rejectors : rejector, list or dict of rejectors
        Evaluators or baselines, unfitted; those given are not changed. In a dict the keys name them.
    X, y, times : arrays of n rows
        The data: rows, labels, and when each was seen.
    train : time, (time, time) or bool array
        The end of the training window, its start and end, or a mask of its rows. What is not older is tested.
    period : {"year", "quarter", "month", "week", "day"} or None
        How test objects are grouped; None takes ``times`` as the names of periods.
    pos_label : label or None
        The positive class; by default the second of two, with more classes none.
    chronological : bool
        Give ``times`` to the rejectors' ``fit``, so that the most recent training rows calibrate.
    retrain : Retraining or None
        Labels a period that join the training rows, and how often to refit; None fits once.
    class_ratio : dict or None
        The share of classes in deployment, checked if given.
    allow : collection of str
        Names of biases to pass over; see `find_biases`. The others are refused or warned about.
    folder : path or None
        Keep what is done here, so that the same call takes up an interrupted run; the finished result is
        saved here too.
    random_state : int
        Seeds every rejector, detector and judge whose own ``random_state`` is None, and the choice of labels.
    n_jobs : int or None
        How many rejectors run at once, in processes.
    verbose : bool
        Show progress, if someone is watching.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.baselines import CPReject
    >>> from transcendent.datasets import make_stream
    >>> from transcendent.temporal import backtest
    >>> stream = make_stream(6000, n_periods=12, concept=0.5, random_state=0)
    >>> rejectors = {"ICE": InductiveEvaluator(LinearSVC()), "CP-Reject": CPReject(LinearSVC())}
    >>> result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-05")
    >>> result.periods[:3], result.table["f1"].shape
    (('2020-05', '2020-06', '2020-07'), (48,))
    """
    X, labels = indexable(X, tight(column_or_1d(y, warn=True)))
    if len(times) != len(labels):
        raise ValueError(f"times has {len(times)} entries for {len(labels)} rows.")
    split = time_split(times, train=train, period=period)
    report_biases(
        find_biases(X, labels, times, split, pos_label=pos_label, class_ratio=class_ratio),
        allow,
        stacklevel=2,
    )
    named = {name: _seeded(r, random_state) for name, r in _named(rejectors).items()}
    manifest = {
        "rejectors": {name: _describe(rejector) for name, rejector in named.items()},
        "train": str(train),
        "period": period,
        "pos_label": pos_label,
        "chronological": chronological,
        "retrain": repr(retrain),
        "random_state": random_state,
        "data": digest(X, labels, np.asarray(times), split.train, split.test),
    }
    checkpoints = None
    if folder is not None:
        if (done := finished(Path(folder), manifest)) is not None:
            return done
        checkpoints = open_checkpoints(Path(folder), manifest)
    alone = effective_n_jobs(n_jobs) == 1
    run = _Run(
        X,
        labels,
        np.asarray(times) if chronological else None,
        split,
        retrain,
        random_state,
        checkpoints,
        verbose and alone,
    )
    outcomes = parallel.run(
        _run_rejector,
        ((run, name, rejector) for name, rejector in named.items()),
        total=len(named),
        n_jobs=n_jobs,
        label="backtest",
        verbose=verbose and not alone,
    )
    in_order = split.test[np.concatenate(split.periods.rows)]
    result = Backtest(
        periods=split.periods.labels,
        period=np.sort(split.periods.codes),
        rows=in_order,
        y=labels[in_order],
        answers={name: outcome.answers for name, outcome in zip(named, outcomes, strict=True)},
        classes=np.unique(labels[np.concatenate([split.train, split.test])]),
        pos_label=pos_label,
        manifest=manifest | _provenance(named, outcomes),
    )
    if folder is not None:
        result.save(folder)
    return result


@dataclass(frozen=True)
class _Run:
    """What the run of every rejector has in common."""

    X: Any
    y: AnyArray
    times: Any
    split: TimeSplit
    retrain: Retraining | None
    random_state: int
    checkpoints: Path | None
    verbose: bool

    def fit(self, rejector: Any, rows: IntArray) -> Any:
        fitted = clone(rejector, safe=False)
        takes_times = self.times is not None and "times" in inspect.signature(fitted.fit).parameters
        given = {"times": self.times[rows]} if takes_times else {}
        return fitted.fit(take_rows(self.X, rows), self.y[rows], **given)

    def rows(self, period: int) -> IntArray:
        return self.split.test[self.split.periods.rows[period]]


@dataclass(frozen=True)
class _Outcome:
    answers: Answers
    seconds: dict[str, float]
    labelled: int


def _run_rejector(run: _Run, name: str, rejector: Any) -> _Outcome:
    """Decide period after period, refitting where asked; periods already on disk are not decided again."""
    clock = _Clock()
    fitted: Any = None
    rows_fitted, labelled = run.split.train, np.empty(0, dtype=np.intp)
    since_fit: list[IntArray] = []
    parts: list[dict[str, AnyArray]] = []
    periods = len(run.split.periods)
    progress = parallel.Progress(f"backtest of {name}", periods, verbose=run.verbose)
    for i in range(periods):
        rows = run.rows(i)
        if run.retrain is not None and i > 0 and i % run.retrain.every == 0:
            rows_fitted = np.sort(np.concatenate([run.split.train, labelled]))
            fitted, since_fit = None, []
        part = read_period(run.checkpoints, name, i)
        if part is not None:
            fitted = None  # it has not decided this period, from which it might have learnt
        elif len(rows):
            if fitted is None:
                fitted = _fit_up_to_now(run, rejector, rows_fitted, since_fit, clock)
            part = _decide_period(run, fitted, rows, i, clock)
            write_period(run.checkpoints, name, i, part)
        if part is not None:
            parts.append(part)
            since_fit.append(rows)
            labelled = np.concatenate([labelled, part["labelled"]])
        progress.show(i + 1)
    progress.close()
    return _Outcome(_join(parts, getattr(rejector, "ranked_by", "credibility")), clock.seconds, len(labelled))


def _fit_up_to_now(
    run: _Run, rejector: Any, rows: IntArray, since_fit: list[IntArray], clock: "_Clock"
) -> Any:
    """The rejector as it is after deciding the periods since its last fit."""
    with clock.of("fit"):
        fitted = run.fit(rejector, rows)
    if getattr(fitted, "evolves", False):
        for earlier in since_fit:
            fitted.decide(take_rows(run.X, earlier))
    return fitted


def _decide_period(
    run: _Run, fitted: Any, rows: IntArray, period: int, clock: "_Clock"
) -> dict[str, AnyArray]:
    X = take_rows(run.X, _as_slice(rows))
    with clock.of("decide"):
        decisions = fitted.decide(X)
    chosen = np.empty(0, dtype=np.intp)
    if run.retrain is not None:
        generator = np.random.default_rng((run.random_state, period))
        chosen = run.retrain.select(fitted, X, decisions, generator)
    part = {
        "labels": decisions.labels,
        "accepted": decisions.accepted,
        "credibility": decisions.credibility,
        "confidence": decisions.confidence,
        "labelled": rows[chosen],
    }
    return part if decisions.votes is None else part | {"votes": decisions.votes}


def _join(parts: list[dict[str, AnyArray]], ranked_by: Any) -> Answers:
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0] if key != "labelled"}
    return Answers(**columns, ranked_by=ranked_by)


class _Clock:
    """Seconds spent on each kind of work."""

    def __init__(self) -> None:
        self.seconds = {"fit": 0.0, "decide": 0.0}

    def of(self, kind: str) -> "_Clock":
        self.kind = kind
        return self

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.kind] += time.perf_counter() - self.started


def _as_slice(rows: IntArray) -> IntArray | slice:
    """Consecutive rows as a slice, which copies nothing."""
    if rows[-1] - rows[0] + 1 == len(rows) and np.all(np.diff(rows) == 1):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _named(rejectors: Any) -> dict[str, Any]:
    if isinstance(rejectors, Mapping):
        named = {str(name): rejector for name, rejector in rejectors.items()}
    else:
        several = list(rejectors) if isinstance(rejectors, Sequence) else [rejectors]
        named = {type(rejector).__name__: rejector for rejector in several}
        if len(named) < len(several):
            raise ValueError("several rejectors are of one type; give a dict that names them.")
    if not named:
        raise ValueError("there are no rejectors to test.")
    for name, rejector in named.items():
        if not (hasattr(rejector, "fit") and hasattr(rejector, "decide")):
            raise TypeError(f"{name} is not a rejector: {type(rejector).__name__} lacks fit or decide.")
    return named


def _seeded(rejector: Any, seed: int) -> Any:
    """A clone with every ``random_state`` that is None, also of what it holds, set to the seed."""
    if not isinstance(rejector, BaseEstimator):
        return rejector
    copy = clone(rejector)
    params = copy.get_params(deep=True)
    unset = [name for name in params if name.split("__")[-1] == "random_state" and params[name] is None]
    return copy.set_params(**dict.fromkeys(unset, seed))


def _describe(rejector: Any) -> str:
    text = rejector.__repr__(N_CHAR_MAX=10**6) if isinstance(rejector, BaseEstimator) else repr(rejector)
    return re.sub(r"\s+", " ", re.sub(r" at 0x[0-9a-f]+", "", text))


def _provenance(named: dict[str, Any], outcomes: list[_Outcome]) -> dict[str, Any]:
    return {
        "versions": {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": {name: outcome.seconds for name, outcome in zip(named, outcomes, strict=True)},
        "labelled": {name: outcome.labelled for name, outcome in zip(named, outcomes, strict=True)},
    }
