"""One rejector over past data: it decides period after period, and learns on schedule."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from transcendent._utils import parallel
from transcendent._utils.arrays import AnyArray, IntArray, as_slice, take_rows
from transcendent.decisions import Decisions
from transcendent.errors import CopiesWarning, InfeasibleError
from transcendent.evaluators.training import what_learns
from transcendent.monitoring.drift import DriftMonitor, can_be_monitored
from transcendent.monitoring.plan import LabelPlan
from transcendent.rejectors import Traits
from transcendent.temporal.checkpoints import read_period, write_period
from transcendent.temporal.labelling import Retraining, joining
from transcendent.temporal.periods import TimeSplit, in_order_of_time
from transcendent.temporal.result import tight


@dataclass(frozen=True)
class Run:
    """What the run of every rejector has in common."""

    X: Any
    y: AnyArray
    answers: AnyArray | None
    numbers: IntArray
    split: TimeSplit
    chronological: bool
    retrain: Retraining | None
    monitor: float | None
    pos_label: Any
    manifest: dict[str, Any]
    random_state: int = 0
    checkpoints: Path | None = None
    verbose: bool = False
    note: str = ""

    def fit(self, rejector: Any, stages: list[IntArray]) -> Any:
        """Fit a clone on the training rows, and on the labelled ones that can join unless it learns them.

        ``stages`` has the rows that were labelled at each time it was due to learn.
        """
        train, times = self.split.train, in_order_of_time(self.split.times)
        fresh = clone(rejector, safe=False)
        what = self.what_learns(fresh)
        joined = [joining(labelled, self.y, train) for labelled in stages[-1:] if what == "anew"]
        rows = np.concatenate([train, *joined])
        rows = rows[np.argsort(times[rows], kind="stable")]
        given = {"times": times[rows]} if self.chronological else {}
        if self.answers is not None:
            given["labels"] = self.answers[rows]
        fitted = fresh.fit(take_rows(self.X, as_slice(rows)), self.y[rows], **given)
        for labelled in self._to_repeat(stages) if what != "anew" else ():
            fitted = self.learn(fitted, labelled)
        return fitted

    def _to_repeat(self, stages: list[IntArray]) -> list[IntArray]:
        """Return the stages that count: the last one, or all if rows of a class came one after the other."""
        known = self.y[self.split.train]
        one_by_one = any(not np.isin(self.y[labelled], known).all() for labelled in stages)
        return [labelled for labelled in (stages if one_by_one else stages[-1:]) if len(labelled)]

    def what_learns(self, rejector: Any) -> Any:
        """What of a rejector learns, if it is not fitted anew."""
        return "nothing" if self.retrain is None else what_learns(rejector, self.retrain.learns)

    def learn(self, fitted: Any, labelled: IntArray) -> Any:
        """Let a rejector learn the labelled rows that can join the training rows."""
        train, what = self.split.train, self.what_learns(fitted)
        if what == "nothing":
            return fitted
        if what == "judge":
            joined = labelled[np.isin(self.y[labelled], self.y[train])]
        else:
            joined = joining(labelled, self.y, train)
        rows = np.concatenate([train, joined])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CopiesWarning)  # period after period; see find_biases
            return fitted.learn(take_rows(self.X, rows), self.y[rows], what=what)

    def rows(self, period: int) -> IntArray:
        """The rows of a period."""
        return self.split.test[self.split.periods.rows[period]]

    def decide(self, fitted: Any, rows: IntArray) -> Decisions:
        """Decide some rows: as they are, or as scores with the detector's answers."""
        answers = () if self.answers is None else (self.answers[rows],)
        decisions: Decisions = fitted.decide(take_rows(self.X, as_slice(rows)), *answers)
        return decisions

    def watch(self, fitted: Any, state: str | None) -> DriftMonitor | None:
        """A monitor of a rejector, new or with an earlier state, if it is to and can be monitored."""
        if self.monitor is None or not can_be_monitored(fitted):
            return None
        if state is not None:
            return DriftMonitor.from_json(state, fitted)
        return DriftMonitor.of(fitted, threshold=self.monitor, random_state=self.random_state)

    def take_in(self, monitor: DriftMonitor, rows: IntArray) -> Decisions:
        """Decide some rows by a monitor, which decides as its rejector does."""
        X = take_rows(self.X, as_slice(rows))
        return monitor.update(X) if self.answers is None else monitor.update_scores(X, self.answers[rows])


@dataclass(frozen=True)
class Outcome:
    """What a rejector answered, the seconds it took, which objects it had labelled, what its monitor said."""

    answers: Decisions
    seconds: dict[str, float]
    labelled: dict[str, AnyArray]
    watched: dict[str, Any]


def run_rejector(run: Run, name: str, rejector: Any) -> Outcome:
    """Decide period after period and refit on schedule; periods already on disk are not decided again."""
    seconds = {"fit": 0.0, "decide": 0.0}
    fitted: Any = None
    learner: Any = None
    monitor: DriftMonitor | None = None
    state: str | None = None
    watched: dict[str, Any] = {}
    labelled = np.empty(0, dtype=np.intp)
    stages: list[IntArray] = []
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
                learner = learner if fitted is None else fitted
                fitted, since_fit = None, []
                stages.append(labelled)
                state = state if run.what_learns(rejector) == "nothing" else None
            done += len(rows)
            part = read_period(run.checkpoints, name, i)
            if part is not None:
                fitted = learner = None  # it has not decided this period, from which it might have learnt
                progress.skip(done)
            elif len(rows):
                if fitted is None:
                    first = not seconds["fit"]
                    try:
                        with progress.pause() if first else nullcontext():
                            fitted = _fit_up_to_now(run, rejector, learner, stages, since_fit, seconds)
                    except InfeasibleError as error:
                        raise InfeasibleError(f"{name}: {error}") from None
                    monitor = run.watch(fitted, state)
                part = _decide_period(run, fitted, monitor, rows, i, seconds)
                write_period(run.checkpoints, name, i, part)
            if part is not None:
                parts.append(part)
                since_fit.append(rows)
                labelled = np.concatenate([labelled, part["labelled"]])
                if "monitor" in part:
                    state = part.pop("monitor").item()
                    watched[periods.labels[i]] = part.pop("watched").tolist()
            progress.show(done, periods.labels[i])
    return Outcome(_join(parts), seconds, {} if run.retrain is None else _labelled(run, parts), watched)


def _fit_up_to_now(
    run: Run,
    rejector: Any,
    learner: Any,
    stages: list[IntArray],
    since_fit: list[IntArray],
    seconds: dict[str, float],
) -> Any:
    """The rejector as it is after deciding the periods since its last fit; an earlier fit may learn."""
    with _timed(seconds, "fit"):
        learns = learner is not None and run.what_learns(learner) != "anew"
        fitted = run.learn(learner, stages[-1]) if learns else run.fit(rejector, stages)
    if Traits.of(fitted).evolves:
        for earlier in since_fit:
            run.decide(fitted, earlier)
    return fitted


def _decide_period(
    run: Run,
    fitted: Any,
    monitor: DriftMonitor | None,
    rows: IntArray,
    period: int,
    seconds: dict[str, float],
) -> dict[str, AnyArray]:
    with _timed(seconds, "decide"):
        decisions = run.decide(fitted, rows) if monitor is None else run.take_in(monitor, rows)
    chosen = LabelPlan.of(rows[:0], rows[:0], 1.0)
    if run.retrain is not None:
        generator = np.random.default_rng((run.random_state, period))
        chosen = run.retrain.select(fitted, take_rows(run.X, as_slice(rows)), decisions, generator)
    kept = replace(decisions, p_values=None, doubts=None)
    columns = {key: tight(column) for key, column in kept.columns().items()}
    if monitor is not None:
        raised = [
            alarm is not None and alarm.at > monitor.n - len(rows)
            for alarm in (monitor.alarm, monitor.rejections.alarm)
        ]
        columns |= {"monitor": np.array(monitor.to_json()), "watched": np.array([monitor.log_value, *raised])}
    return columns | {
        "labelled": rows[chosen.rows],
        "probability": chosen.probabilities,
        "audited": chosen.audited,
        "classes": tight(decisions.classes),
        "ranked_by": np.array([decisions.ranked_by]),
    }


def _join(parts: list[dict[str, AnyArray]]) -> Decisions:
    decided = [key for key in parts[0] if key not in ("labelled", "probability", "audited")]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in decided}
    classes, ranked_by = np.unique(columns.pop("classes")), columns.pop("ranked_by")[0].item()
    return Decisions(**columns, classes=classes, ranked_by=ranked_by)


def _labelled(run: Run, parts: list[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    """The labelled objects of all periods, and how they were chosen."""
    rows, probability, audited = (
        np.concatenate([part[key] for part in parts]) for key in ("labelled", "probability", "audited")
    )
    return {"row": run.numbers[rows], "probability": probability, "audited": audited}


@contextmanager
def _timed(seconds: dict[str, float], work: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[work] += time.perf_counter() - started
