"""The run of one rejector over past data: it decides period by period, and learns on schedule."""

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
from transcendent.decisions import Answers, Decisions, declared
from transcendent.errors import CopiesWarning, InfeasibleError
from transcendent.monitoring.drift import DriftMonitor
from transcendent.monitoring.labels import LabelPlan
from transcendent.temporal.checkpoints import read_period, write_period
from transcendent.temporal.labelling import Candidates, Chosen, Labels, Retraining, joining
from transcendent.temporal.periods import TimeSplit, in_order_of_time
from transcendent.temporal.result import as_text_array


@dataclass(frozen=True)
class Run:
    """The data and settings that the runs of all rejectors share."""

    X: Any
    y: AnyArray
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

    def fit(self, rejector: Any, stages: list[Labels]) -> Any:
        """Fit a clone on the training rows; labelled rows that can join are fitted too, or learnt.

        ``stages`` has what was known at each time to learn.
        """
        times = in_order_of_time(self.split.times)
        fresh = clone(rejector, safe=False)
        what = self.what_learns(fresh)
        rows, y = self._joined(stages[-1] if what == "anew" and stages else self.no_labels())
        order = np.argsort(times[rows], kind="stable")
        given = {"times": times[rows[order]]} if self.chronological else {}
        fitted = fresh.fit(self.take(rows[order]), y[order], **given)
        for labels in self._to_repeat(stages) if what != "anew" else ():
            fitted = self.learn(fitted, labels)
        return fitted

    def no_labels(self) -> Labels:
        """Return no labels yet."""
        none = np.empty(0, dtype=np.intp)
        return Labels(none, self.y[:0], none)

    def _joined(self, labels: Labels) -> tuple[IntArray, AnyArray]:
        """Return the training rows and the labelled ones that can join them, with their labels."""
        known = self.y[self.split.train]
        joined = joining(labels, known)
        return np.concatenate([self.split.train, joined.rows]), np.concatenate([known, joined.given])

    def _to_repeat(self, stages: list[Labels]) -> list[Labels]:
        """Return the stages to learn: the last, which has all labels, or each one if classes are new."""
        known = self.y[self.split.train]
        # Which objects of a new class calibrate depends on the stage at which they came.
        new_classes = any(not np.isin(labels.given, known).all() for labels in stages)
        return [labels for labels in (stages if new_classes else stages[-1:]) if len(labels.rows)]

    def what_learns(self, rejector: Any) -> Any:
        """Return what learns: "nothing", "anew" for a refit, or what `Retraining.what` names."""
        return "nothing" if self.retrain is None else declared(rejector).what_learns(self.retrain.what)

    def learn(self, fitted: Any, labels: Labels) -> Any:
        """Teach a rejector the labelled rows that can join the training rows."""
        what = self.what_learns(fitted)
        if what == "nothing":
            return fitted
        if what == "judge":
            labels = labels.of(np.isin(labels.given, self.y[self.split.train]))
        rows, y = self._joined(labels)
        with warnings.catch_warnings():
            # It would come in every period; find_biases reports copies.
            warnings.simplefilter("ignore", CopiesWarning)
            return fitted.learn(take_rows(self.X, rows), y, what=what)

    def take(self, rows: IntArray) -> Any:
        """Return some of the rows, or of the answers if the rejectors judge scores."""
        return take_rows(self.X, as_slice(rows))

    def watch(self, fitted: Any, state: str | None) -> DriftMonitor | None:
        """Return a monitor, new or with an earlier state; None if the rejector is not monitored."""
        if self.monitor is None or not declared(fitted).can_be_monitored:
            return None
        if state is not None:
            return DriftMonitor.from_json(state, fitted)
        return DriftMonitor.of(fitted, threshold=self.monitor, random_state=self.random_state)


@dataclass(frozen=True)
class Outcome:
    """Decisions of a rejector, its seconds, the objects labelled for it, and its monitor's evidence."""

    answers: Decisions
    seconds: dict[str, float]
    labelled: dict[str, AnyArray]
    watched: dict[str, Any]


def run_rejector(run: Run, name: str, rejector: Any) -> Outcome:
    """Decide period by period and learn on schedule; read periods that are already on disk."""
    seconds = {"fit": 0.0, "decide": 0.0}
    fitted: Any = None
    learner: Any = None
    monitor: DriftMonitor | None = None
    state: str | None = None
    watched: dict[str, Any] = {}
    labels = run.no_labels()
    stages: list[Labels] = []
    unlearnt = False  # whether no objects came since the last stage, so that the next one replaces it
    since_fit: list[IntArray] = []
    decided: list[dict[str, AnyArray]] = []
    periods, done, label = run.split.periods, 0, f"backtest of {name}{run.note}"
    with parallel.Progress(label, len(run.split.test), verbose=run.verbose, unit="object") as progress:
        for i in range(len(periods)):
            rows = run.split.test[periods.rows[i]]
            if run.retrain is not None and i > 0 and i % run.retrain.every == 0:
                learner = learner if fitted is None else fitted
                fitted, since_fit = None, []
                if unlearnt:
                    stages.pop()
                stages.append(labels.known(i))
                unlearnt = True
                state = state if run.what_learns(rejector) == "nothing" else None
            done += len(rows)
            unlearnt = unlearnt and not len(rows)
            columns = read_period(run.checkpoints, name, i)
            if columns is not None:
                fitted = learner = None  # a rejector that evolves has to decide this period first
                progress.skip(done)
            elif len(rows):
                if fitted is None:
                    try:
                        with nullcontext() if seconds["fit"] else progress.pause():
                            fitted = _fit_up_to_now(run, rejector, learner, stages, since_fit, seconds)
                    except InfeasibleError as error:
                        raise InfeasibleError(f"{name}: {error}") from None
                    monitor = run.watch(fitted, state)
                columns = _decide_period(run, name, fitted, monitor, rows, i, seconds)
                write_period(run.checkpoints, name, i, columns)
            if columns is not None:
                decided.append(columns)
                since_fit.append(rows)
                labels = labels.joined(Labels(columns["labelled"], columns["given"], columns["known"]))
                if "monitor" in columns:
                    state = columns.pop("monitor").item()
                    watched[periods.labels[i]] = columns.pop("watched").tolist()
            progress.show(done, periods.labels[i])
    return _outcome(run, decided, seconds, watched)


def _fit_up_to_now(
    run: Run,
    rejector: Any,
    learner: Any,
    stages: list[Labels],
    since_fit: list[IntArray],
    seconds: dict[str, float],
) -> Any:
    """Return the rejector as it is now: fitted, or the earlier one after learning; evolved if it does."""
    with _timed(seconds, "fit"):
        learns = learner is not None and run.what_learns(learner) != "anew"
        fitted = run.learn(learner, stages[-1]) if learns else run.fit(rejector, stages)
    if declared(fitted).evolves:
        for earlier in since_fit:
            fitted.decide(run.take(earlier))
    return fitted


def _decide_period(
    run: Run,
    name: str,
    fitted: Any,
    monitor: DriftMonitor | None,
    rows: IntArray,
    period: int,
    seconds: dict[str, float],
) -> dict[str, AnyArray]:
    with _timed(seconds, "decide"):
        X = run.take(rows)
        decisions = fitted.decide(X) if monitor is None else monitor.update(X)
    chosen, labels = LabelPlan.spend(0, rows[:0], rows[:0], 0), run.no_labels()
    if run.retrain is not None:
        try:
            chosen, labels = _label(run, run.retrain, fitted, X, decisions, rows, period)
        except Exception as error:
            error.add_note(f"This was in labelling for {name}, period {run.split.periods.labels[period]}.")
            raise
    kept = replace(decisions, p_values=None, doubts=None)
    columns = {key: as_text_array(column) for key, column in kept.columns().items()}
    if monitor is not None:
        raised = [
            alarm is not None and alarm.at > monitor.n - len(rows)
            for alarm in (monitor.alarm, monitor.rejections.alarm)
        ]
        columns |= {"monitor": np.array(monitor.to_json()), "watched": np.array([monitor.log_value, *raised])}
    return columns | {
        "labelled": labels.rows,
        "given": labels.given,
        "known": labels.since,
        "probability": chosen.probabilities,
        "audited": chosen.audited,
        "classes": as_text_array(decisions.classes),
        "ranked_by": np.array([decisions.ranked_by]),
    }


def _label(
    run: Run, retrain: Retraining, fitted: Any, X: Any, decisions: Decisions, rows: IntArray, period: int
) -> tuple[LabelPlan, Labels]:
    """Choose objects of a period to label; return the plan, and what they are called."""
    generator = np.random.default_rng((run.random_state, period))
    times, features = run.split.times[rows], features_of(X)
    if retrain.functions and hasattr(features, "copy"):
        features = features.copy()  # a function may write to what it gets, which may be the caller's own
    chosen = retrain.select(Candidates(rows.copy(), features, times, decisions, fitted, generator))
    own = rows[chosen.rows]
    asked = (own, take_rows(features, chosen.rows), run.y[own], times[chosen.rows])
    so_far = [run.split.train, *(run.split.test[each] for each in run.split.periods.rows[: period + 1])]
    classes = np.unique(run.y[np.concatenate(so_far)])
    return chosen, retrain.ask(Chosen(*asked, classes, generator), period, run.random_state)


def _outcome(
    run: Run, decided: list[dict[str, AnyArray]], seconds: dict[str, float], watched: dict[str, Any]
) -> Outcome:
    """Join the columns of all periods."""
    columns = {key: np.concatenate([period[key] for period in decided]) for key in decided[0]}
    labelled = {"row": run.numbers[columns.pop("labelled")], "label": columns.pop("given")}
    labelled |= {key: columns.pop(key) for key in ("known", "probability", "audited")}
    classes, ranked_by = np.unique(columns.pop("classes")), columns.pop("ranked_by")[0].item()
    answers = Decisions(**columns, classes=classes, ranked_by=ranked_by)
    return Outcome(answers, seconds, {} if run.retrain is None else labelled, watched)


def features_of(X: Any) -> Any:
    """Return the rows, or the scores of a detector's answers."""
    return X.scores if isinstance(X, Answers) else X


@contextmanager
def _timed(seconds: dict[str, float], work: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[work] += time.perf_counter() - started
