"""Backtests: rejectors run over past data, period by period."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Required, TypedDict, Unpack, overload

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import indexable

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, IntArray, as_labels, count_rows, take_rows, unlabelled_rows
from transcendent._utils.cells import check_names, locating_bad_value
from transcendent._utils.estimators import has_own_seed, seeded
from transcendent._utils.extras import extra
from transcendent._utils.provenance import describe, digest, digest_rows, fingerprint, plain, versions
from transcendent._utils.text import some
from transcendent.decisions import Answers, declared, is_rejector
from transcendent.temporal import checkpoints
from transcendent.temporal.bias import find_biases, positive_label, report_biases
from transcendent.temporal.labelling import Retraining
from transcendent.temporal.periods import Calendar, TimeSplit, time_split
from transcendent.temporal.repeated import RepeatedBacktest, repeat
from transcendent.temporal.result import Backtest, as_text_array
from transcendent.temporal.running import Outcome, Run, run_rejector


class _Options(TypedDict, total=False):
    """The keyword parameters of `backtest`, without its seed."""

    train: Required[Any]
    period: Calendar | None
    pos_label: Any
    chronological: bool
    retrain: Retraining | None
    monitor: float | None
    class_ratio: Mapping[Any, float] | None
    allow: Collection[str]
    unlabelled: Literal["refuse", "drop"]
    folder: Any
    fresh: bool
    title: str | None
    n_jobs: int | None
    verbose: bool


_Seeds = Sequence[int] | IntArray


@overload
def backtest(
    rejectors: Any, X: Any, y: Any, times: Any, *, random_state: int = 0, **options: Unpack[_Options]
) -> Backtest: ...
@overload
def backtest(
    rejectors: Any, X: Any, y: Any, times: Any, *, random_state: _Seeds, **options: Unpack[_Options]
) -> RepeatedBacktest: ...
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
    monitor: float | None = None,
    class_ratio: Mapping[Any, float] | None = None,
    allow: Collection[str] = (),
    unlabelled: Literal["refuse", "drop"] = "refuse",
    folder: Any = None,
    fresh: bool = False,
    title: str | None = None,
    random_state: int | _Seeds = 0,
    n_jobs: int | None = None,
    verbose: bool = True,
) -> Backtest | RepeatedBacktest:
    """Fit rejectors on the past, and decide with them on what came later, period by period.

    Parameters
    ----------
    rejectors : rejector, list or dict of rejectors
        Unfitted evaluators or baselines, which are cloned. In a dict the keys name them.
    X, y, times : arrays of n rows
        The rows, their labels, and when each was seen. They are matched by position; the index of a frame or
        series is ignored. For rejectors that judge scores, such as `ScoreEvaluator`, X is the detector's
        `Answers`.
    train : time, (time, time) or bool array
        The end of the training window, its start and end, or a mask of its rows. Later rows are tested; with
        a mask, all others.
    period : {"year", "quarter", "month", "week", "day"} or None
        Length of a test period; None takes ``times`` as the names of periods.
    pos_label : label or None
        The positive class; by default the second of two classes in training, or none of more.
    chronological : bool
        Pass ``times`` to ``fit``, so that the most recent training rows calibrate; raises if a rejector does
        not accept them. By default a random part of the training rows calibrates.
    retrain : Retraining or None
        Number of labels per period that join the training rows, and how often to refit; None fits once.
    monitor : float or None
        Threshold of a `DriftMonitor` of every `InductiveEvaluator` and `ScoreEvaluator`, in a budget too. It
        restarts whenever the rejector learns. Its evidence and alarms are in ``monitors`` of the result.
    class_ratio : dict or None
        The shares of classes in deployment, to be compared with those of the test rows.
    allow : collection of str
        Names of biases to ignore; see `find_biases`. The others raise or warn.
    unlabelled : {"refuse", "drop"}
        Whether rows without a label (None, NaN, NA) raise an error or are left out. The manifest has the
        number of rows left out.
    folder : path or None
        Folder for progress and the result. The same call resumes an interrupted run, and reads a finished
        one.
    fresh : bool
        Remove the backtest in the folder, if any, and start again.
    title : str or None
        The title of its report.
    random_state : int or sequence of int
        Seeds every rejector, detector and judge whose own ``random_state`` is None, and the choice of labels.
        Several seeds give one run each, in ``seed-0``, ``seed-1``, … of the folder, and a `RepeatedBacktest`.
    n_jobs : int or None
        Number of rejectors that run at once, in processes.
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
    named = _named(rejectors, chronological, isinstance(X, Answers))
    if not isinstance(retrain, Retraining | None):
        raise TypeError(f"retrain must be a Retraining such as Retraining(50), not {retrain!r}.")
    if retrain is not None:
        _check_learning(named, retrain)
    if monitor is not None:
        _check_monitor(named, monitor)
    check_names(X)
    n_rows, rows, locating = count_rows(y), _labelled_rows(y, unlabelled), locating_bad_value(X)
    X, y, split = _checked(X, y, times, train, period, rows)
    pos_label = positive_label(y[split.train], pos_label)
    biases = find_biases(X, y, split, pos_label=pos_label, class_ratio=class_ratio)
    report_biases(biases, allow)
    held = (X.labels, X.scores) if isinstance(X, Answers) else (X,)
    manifest = {
        "rejectors": {},
        "train": train if np.ndim(train) == 0 or isinstance(train, tuple) else "rows of a mask",
        "period": period,
        "pos_label": pos_label,
        "chronological": chronological,
        "retrain": describe(retrain),
        "random_state": 0,
        "biases": {bias.name: bias.message for bias in biases},
        "unlabelled": n_rows - len(rows),
        "data": digest(*held, y, split.times, split.train, split.test, rows),
    }
    if monitor is not None:
        manifest["monitor"] = float(monitor)
    run = Run(X, y, rows, split, chronological, retrain, monitor, pos_label, manifest)
    run_seed = partial(_run_seed, run, named, fresh=fresh, title=title, n_jobs=n_jobs, verbose=verbose)
    with locating:  # here, so that errors name rows of X rather than rows of a period
        if isinstance(random_state, Sequence | np.ndarray):
            if own := [name for name, rejector in named.items() if has_own_seed(rejector)]:
                warnings.warn(
                    f"{some(own)}: a random_state that is set is the same in every run, so the intervals do "
                    "not cover its effect. Leave it at None.",
                    stacklevel=2,
                )
            return repeat(partial(run_seed, several=True), random_state, folder)
        return run_seed(random_state, folder)


def _run_seed(
    run: Run,
    rejectors: dict[str, Any],
    seed: int,
    folder: Any,
    *,
    fresh: bool,
    title: str | None,
    n_jobs: int | None,
    verbose: bool,
    several: bool = False,
) -> Backtest:
    """Run every rejector with one seed; resume or read the run if the folder has it."""
    named = {name: seeded(rejector, seed) for name, rejector in rejectors.items()}
    described = {name: describe(rejector) for name, rejector in named.items()}
    manifest = plain(run.manifest | {"rejectors": described, "random_state": seed})
    alone, note = effective_n_jobs(n_jobs) == 1, f", seed {seed}" if several else ""
    run = replace(run, manifest=manifest, random_state=seed, verbose=verbose and alone, note=note)
    if folder is not None:
        extra("pyarrow", "frames")
        place = Path(folder)
        checkpoints.check_place(place)
        own = {} if run.retrain is None else run.retrain.functions
        identified = named | {f"{name} of retrain": function for name, function in own.items()}
        manifest["fingerprints"] = {name: fingerprint(name, thing) for name, thing in identified.items()}
        if fresh:
            checkpoints.discard(place)
        if (done := checkpoints.finished(place, manifest)) is not None:
            return _entitled(done, title, folder)
        run = replace(run, checkpoints=checkpoints.open_checkpoints(place, manifest))
    outcomes = parallel.run(
        run_rejector,
        named.items(),
        shared=(run,),
        total=len(named),
        n_jobs=n_jobs,
        label=f"backtest{note}",
        verbose=verbose and not alone,
    )
    result = _collect(run, dict(zip(named, outcomes, strict=True)))
    n_classes = len(np.unique(run.y[run.split.train]))
    result.manifest["in_words"] = {
        name: in_words._asdict()
        for name, rejector in named.items()
        if (in_words := declared(rejector).in_words(n_classes)) is not None
    }
    if title is not None:
        result.manifest["title"] = title
    if folder is not None:
        result.save(folder)
        checkpoints.remove_checkpoints(Path(folder))
    return result


def _entitled(result: Backtest, title: str | None, folder: Any) -> Backtest:
    """Return a finished backtest with a new title, if one is given, also in its folder."""
    if title is None or result.manifest.get("title") == title:
        return result
    renamed = replace(result, manifest=result.manifest | {"title": title})
    renamed.save(folder)
    return renamed


def _check_learning(rejectors: Mapping[str, Any], retrain: Retraining) -> None:
    """Raise if a rejector cannot learn as ``retrain.what`` says."""
    for name, rejector in rejectors.items():
        try:
            declared(rejector).what_learns(retrain.what)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _check_monitor(rejectors: Mapping[str, Any], threshold: float) -> None:
    if not isinstance(threshold, int | float | np.number) or not threshold > 1:
        raise ValueError(f"monitor must be the threshold of an alarm, more than 1, not {threshold!r}.")
    if not any(declared(rejector).can_be_monitored for rejector in rejectors.values()):
        raise ValueError(
            "monitor needs an InductiveEvaluator or a ScoreEvaluator, in a budget or not, and there is none."
        )


def _labelled_rows(y: Any, unlabelled: str) -> IntArray:
    """Return the positions of the rows with a label; unless "drop", raise if others lack one."""
    if unlabelled not in ("refuse", "drop"):
        raise ValueError(f"unlabelled must be 'refuse' or 'drop', not {unlabelled!r}.")
    if unlabelled == "refuse":
        try:
            return np.arange(len(as_labels(y)))
        except ValueError as error:
            raise ValueError(f"{error} In a backtest, unlabelled='drop' does that.") from None
    return np.setdiff1d(np.arange(len(y)), unlabelled_rows(y))


def _checked(
    X: Any, y: Any, times: Any, train: Any, period: Calendar | None, rows: IntArray
) -> tuple[Any, AnyArray, TimeSplit]:
    """Return the given rows of X, their labels, and their split by time."""
    if times is None:
        raise ValueError("times is None: pass the time at which each row was seen.")
    n_rows = count_rows(y)
    X, y = indexable(X, y)
    if len(times) != n_rows:
        raise ValueError(f"times has {len(times)} entries for {n_rows} rows.")
    if len(rows) < n_rows:
        X, y, times = (take_rows(values, rows) for values in (X, y, times))
        if np.ndim(train) == 1 and not isinstance(train, tuple):
            train = np.asarray(train)[rows]
    labels = as_text_array(as_labels(y))
    if labels.dtype == object:
        raise ValueError("y has labels of several types: convert them to one.")
    try:
        return X, labels, time_split(times, train=train, period=period)
    except ValueError as error:
        if "row " not in str(error) or len(rows) == n_rows:
            raise
        raise ValueError(f"{error} (Rows without a label are not counted.)") from None


def _collect(run: Run, outcomes: dict[str, Outcome]) -> Backtest:
    split = run.split
    tested = split.test[np.concatenate(split.periods.rows)]
    known = {} if isinstance(run.X, Answers) else {"tested": digest_rows(run.X, tested)}
    return Backtest(
        periods=split.periods.labels,
        period=np.sort(split.periods.codes),
        rows=run.numbers[tested],
        y=run.y[tested],
        answers={name: outcome.answers for name, outcome in outcomes.items()},
        classes=np.unique(run.y[np.concatenate([split.train, split.test])]),
        pos_label=run.pos_label,
        manifest=run.manifest
        | known
        | {
            "new_classes": np.setdiff1d(run.y[split.test], run.y[split.train]).tolist(),
            "versions": versions("lightgbm", "xgboost", "torch"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": {name: outcome.seconds for name, outcome in outcomes.items()},
            "labelled": {name: len(outcome.labelled.get("row", ())) for name, outcome in outcomes.items()},
            "monitors": {name: outcome.watched for name, outcome in outcomes.items() if outcome.watched},
        },
        labelled={name: outcome.labelled for name, outcome in outcomes.items()} if run.retrain else {},
    )


def _named(rejectors: Any, chronological: bool, of_answers: bool) -> dict[str, Any]:
    if isinstance(rejectors, Mapping):
        pairs = [(str(name), rejector) for name, rejector in rejectors.items()]
    else:
        several = list(rejectors) if isinstance(rejectors, Sequence) else [rejectors]
        pairs = [(type(rejector).__name__, rejector) for rejector in several]
    named = dict(pairs)
    if not named:
        raise ValueError("there are no rejectors to test: pass at least one.")
    if len(named) < len(pairs):
        raise ValueError("several rejectors have the same name: pass a dict of names and rejectors.")
    for name, rejector in named.items():
        if not is_rejector(rejector) or not hasattr(rejector, "fit"):
            raise TypeError(
                f"{name} is not a rejector but {rejector!r:.60}. Wrap a detector, as in "
                "InductiveEvaluator(detector); pass several rejectors as a dict of names and rejectors."
            )
        if declared(rejector).judges_scores != of_answers:
            raise TypeError(
                f"{name} judges scores, not rows: pass the detector's Answers(labels, scores) as X."
                if not of_answers
                else f"Answers are for rejectors that judge scores, such as ScoreEvaluator; {name} does not."
            )
        if chronological and not declared(rejector).takes_times:
            raise ValueError(f"chronological=True: {name} cannot calibrate on the most recent rows.")
    return named
