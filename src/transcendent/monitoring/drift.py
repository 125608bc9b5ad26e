"""Drift without labels: are new objects still like the calibration objects?"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, take_rows
from transcendent._utils.checks import check_choices
from transcendent._utils.extras import extra
from transcendent._utils.provenance import digest
from transcendent.decisions import Answers, Decisions, declared, index_of
from transcendent.judging.judge import ScoreEvaluator
from transcendent.monitoring.alarms import Alarm
from transcendent.monitoring.evidence import Evidence, JointEvidence, Rule
from transcendent.monitoring.history import History
from transcendent.monitoring.martingales import Betting
from transcendent.monitoring.movers import Features, Movers
from transcendent.monitoring.rejections import Rejections
from transcendent.monitoring.state import reading
from transcendent.monitoring.streams import N_LEVELS, PValueStream, to_levels
from transcendent.thresholds.guaranteed import held_out_mask

FORMAT = 1
_SALT = 34  # an order is not drawn by the random numbers that made data with the same seed


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ObservedDecisions(Decisions):
    """Decisions, and all that a `DriftMonitor` needs to know of each object, as one integer.

    Attributes
    ----------
    cells : int array of shape (n,)
        (position of the label in the classes × 1001 + level) × 2, and 1 more for an object that the
        evaluator's own thresholds reject. The level, 0 to 1000, is the object's credibility among 30% of the
        calibration objects. Count the cells of a period, in any number of processes, and pass the sum to
        `DriftMonitor.update_counts`.
    """

    cells: IntArray

    def columns(self) -> dict[str, AnyArray]:
        """Return the arrays with one entry or row per object, by name."""
        return {**super().columns(), "cells": self.cells}


class Settings(NamedTuple):
    """The settings of a monitor."""

    betting: Betting
    rule: Rule
    threshold: float
    random_state: int

    def checked(self) -> "Settings":
        """Return the settings with plain numbers; raise on unknown ones."""
        check_choices(Betting, betting=self.betting)
        check_choices(Rule, rule=self.rule)
        if not isinstance(self.threshold, int | float | np.number) or not 1 < self.threshold < math.inf:
            raise ValueError(f"threshold must be a finite number of more than 1, not {self.threshold!r}.")
        if not isinstance(self.random_state, int | np.integer):
            raise ValueError(f"random_state must be an integer, not {self.random_state!r}.")
        return self._replace(threshold=float(self.threshold), random_state=int(self.random_state))


class DriftMonitor:
    """Watches a stream of unlabelled objects, and raises an alarm when they are unlike calibration objects.

    It collects evidence against "nothing has changed"; 100 means that a false alarm is at most 1% likely. If
    objects are exchangeable with the calibration objects, P(ever a false alarm) ≤ 1 / ``threshold`` (with
    ``rule="ville"``). No alarm does not mean no drift, and drift does not mean worse answers: for those, see
    `HarmMonitor`.

    Credibility is not uniform even without drift, so the monitor computes p-values of its own. An object's
    credibility among 30% of the calibration objects is ranked among the other 70% and all earlier objects
    with the same predicted label. Ties are broken at random.

    Create one by `DriftMonitor.of`. Of a budget it watches the evaluator inside; ``rejections`` then counts
    what the evaluator's own thresholds would reject, since the budget fixes what is rejected.

    Attributes
    ----------
    rejections : Rejections
        A test of whether the rejection rate is higher than in calibration: the numbers ``n`` and
        ``rejected``, their ``rate``, the rate ``calibrated``, the highest rate ``expected`` without drift,
        and the first ``alarm``.
    history : History
        Lists of ``log_value`` and of the number ``rejected`` in ``columns``, after the numbers of objects in
        ``at``; at most 512 points.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from transcendent import InductiveEvaluator
    >>> from transcendent.monitoring import DriftMonitor
    >>> X, y = make_classification(6000, random_state=0)
    >>> ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:2000], y[:2000])
    >>> monitor = DriftMonitor.of(ice)
    >>> decisions = monitor.update(X[2000:4000])
    >>> monitor.alarm is None
    True
    >>> decisions = monitor.update(X[4000:] * 0.5)
    >>> monitor.alarm is None
    False
    """

    rejections: Rejections
    history: History

    def __init__(self, rejector: Any, settings: Settings) -> None:
        self.rejector = rejector
        self.settings = settings.checked()
        self._evaluator = declared(rejector).without_budget
        self._judge = judge_of(rejector)
        calibration, seed = self._judge.calibration_, self.settings.random_state
        self._watched = self._judge, calibration, self._judge.result_
        self._reference = replace(calibration, held_out_seed=seed, p_value="paper")
        self._reference.check_bags("a monitor")
        ranked = held_out_mask(len(calibration.actual), seed)
        codes = calibration.predicted[ranked]
        levels = to_levels(self._reference.p_values[ranked, codes])
        self._stream = PValueStream.of(codes, levels, len(calibration.classes), seed)
        self._evidence = JointEvidence.of(len(calibration.classes), *self.settings[:3])
        self.rejections = Rejections.of(calibration, self._judge.result_, self.settings.threshold)
        self._features: Features | None = None
        self.history = History()

    @classmethod
    def of(
        cls,
        rejector: Any,
        *,
        betting: Betting = "jumper",
        rule: Rule = "ville",
        threshold: float = 100.0,
        X: Any = None,
        random_state: int = 0,
    ) -> Self:
        """Create a monitor of a fitted rejector.

        Parameters
        ----------
        rejector : InductiveEvaluator or ScoreEvaluator, or a budget of one
            The rejector.
        betting : {"jumper", "mixture"}
            How to bet against "nothing has changed": the simple jumper, which adapts, or the mixture of all
            powers.
        rule : {"ville", "cusum", "shiryaev-roberts"}
            When to raise an alarm. With ``"ville"``, P(ever a false alarm) ≤ 1 / threshold. With the others,
            the mean number of objects to a false alarm is at least the threshold.
        threshold : float
            The evidence that raises an alarm.
        X : array, sparse matrix or frame, or None
            The training rows, or rows like them, with which `movers` compares features.
        random_state : int
            Seeds the split of the calibration objects, and the breaking of ties.
        """
        monitor = cls(rejector, Settings(betting, rule, threshold, random_state))
        if X is not None:
            if monitor._evaluator.judges_scores:
                raise ValueError("a rejector that judges scores has no features to compare: leave out X.")
            monitor._evaluator.answer(take_rows(X, slice(0, 1)))  # raises if the columns are not those of fit
            monitor._features = Features.of(X)
        return monitor

    def update(self, X: Any) -> Decisions:
        """Decide on objects, in order of arrival, and add them to the evidence.

        Each call is one period of a `RejectionBudget`.

        Parameters
        ----------
        X : array, sparse matrix or frame, or Answers
            The rows, or the detector's answers for them; a `ScoreEvaluator` needs answers.
        """
        self._check_same()
        observed = self.observe(X)
        made = declared(self.rejector).within_budget(observed)  # first, since it may refuse a small period
        if self._features is not None and not isinstance(X, Answers):
            self._features.update(X)
        self._add(observed.cells)
        return Decisions(**{each.name: getattr(made, each.name) for each in fields(Decisions)})

    def observe(self, X: Any) -> ObservedDecisions:
        """Decide on objects without a budget, and add nothing to the evidence.

        The rejector must be the same as when the monitor started: this is not checked here.

        Parameters
        ----------
        X : array, sparse matrix or frame, or Answers
            As for `update`.
        """
        if isinstance(X, Answers) or self._evaluator.judges_scores:
            columns, index = self._observe(*self._judge.check(X)), X.index
        else:
            columns, index = self._evaluator.judge_by(self._observe, X), index_of(X)
        return ObservedDecisions(**columns, classes=self.classes, index=index)

    def _observe(self, codes: IntArray, scores: FloatArray) -> dict[str, Any]:
        """Return the columns of `ObservedDecisions`."""
        made = self._judge.judge(codes, scores)
        levels = to_levels(self._reference.credibility(codes, scores))
        return {**made.columns(), "cells": 2 * (codes * N_LEVELS + levels) + made.rejected}

    def update_counts(self, counts: Mapping[int, int], *, seed: int) -> None:
        """Add objects that are known by their counts, in an order that is drawn at random.

        This is as valid as the order of arrival, since it looks at no object: if objects are exchangeable,
        so are they in this order. Counts of several processes add up, so the evidence does not depend on
        which process decided an object.

        Parameters
        ----------
        counts : mapping of int to int
            The number of objects in each cell of `ObservedDecisions`.
        seed : int
            Draws the order, together with ``random_state``: one for each call, such as the number of a
            minute.
        """
        self._check_same()
        cells = np.array(sorted(counts), dtype=np.int64)
        numbers = np.array([counts[cell] for cell in cells.tolist()], dtype=np.int64)
        n_cells = 2 * N_LEVELS * len(self.classes)
        if len(cells) and (cells[0] < 0 or cells[-1] >= n_cells or numbers.min() < 0):
            raise ValueError(f"counts must be numbers of objects in cells from 0 to {n_cells - 1}.")
        generator = np.random.default_rng([_SALT, self.settings.random_state, seed])
        if numbers.any():
            self._add(generator.permutation(np.repeat(cells, numbers)))

    def _add(self, cells: IntArray) -> None:
        """Add objects to the evidence, in order of arrival."""
        codes, rest = np.divmod(cells, 2 * N_LEVELS)
        levels, is_rejected = np.divmod(rest, 2)
        rejected = is_rejected == 1
        values = self._evidence.update(codes, self._stream.update(codes, levels))
        self.history.update(log_value=values, rejected=self.rejections.rejected + np.cumsum(rejected))
        self.rejections.update(rejected)

    def _check_same(self) -> None:
        """Raise if the rejector has changed since the monitor started."""
        judge = judge_of(self.rejector)
        current = judge, judge.calibration_, judge.result_
        if any(now is not then for now, then in zip(current, self._watched, strict=True)):
            raise ValueError(
                "the rejector has changed since the monitor started (it learnt, or has new thresholds or "
                "calibration objects): start a new one by DriftMonitor.of."
            )

    @property
    def watches_budget(self) -> bool:
        """Whether a budget decides, and ``rejections`` counts what the thresholds would reject."""
        return self._evaluator is not self.rejector

    @property
    def n(self) -> int:
        """Number of objects so far."""
        return self._evidence.n

    @property
    def classes(self) -> AnyArray:
        """The labels that the rejector knows."""
        return self._judge.classes_

    @property
    def log_value(self) -> float:
        """Logarithm of the evidence: the mean over all objects together and over each predicted label."""
        return self._evidence.log_value

    @property
    def log_values(self) -> dict[Any, float]:
        """Logarithm of the evidence of each predicted label alone."""
        return {label: evidence.log_value for label, evidence in self._by_label()}

    @property
    def alarm(self) -> Alarm | None:
        """The first alarm."""
        return self._evidence.alarm

    @property
    def alarms(self) -> dict[Any, Alarm]:
        """The first alarm of each predicted label alone; ``at`` counts the answers with that label.

        The bound on false alarms holds for each label separately.
        """
        return {label: evidence.alarm for label, evidence in self._by_label() if evidence.alarm is not None}

    def _by_label(self) -> Iterator[tuple[Any, Evidence]]:
        return zip(self.classes.tolist(), self._evidence.members, strict=False)  # the last is of all labels

    def movers(self, n: int = 10) -> Movers:
        """Return the n features whose means moved most since training, the farthest first.

        The columns are ``names`` (or positions), ``effect``, the means in ``training`` and ``now``, and
        ``p_values``. The effect is the difference of the means in standard deviations (Cohen's d). A p-value
        is the probability of such a difference without drift (normal approximation) times the number of
        features.
        """
        if self._features is None:
            raise ValueError(
                "the monitor has no training rows: start it by DriftMonitor.of(rejector, X=rows)."
            )
        if self.n == 0:
            raise ValueError("the monitor has no objects yet: call update first.")
        return self._features.movers(n)

    def to_json(self) -> str:
        """Return the whole state as text, from which `from_json` resumes exactly."""
        state = {
            "kind": "DriftMonitor",
            "format": FORMAT,
            "settings": self.settings._asdict(),
            "calibration": self._fingerprint(),
            "counts": self._stream.counts.tolist(),
            "evidence": self._evidence.to_json(),
            "rejections": asdict(self.rejections),
            "features": None if self._features is None else self._features.to_json(),
            "history": asdict(self.history),
        }
        return json.dumps(state, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, rejector: Any) -> Self:
        """Return the monitor with this state, given the rejector that it watched."""
        with reading(text, "DriftMonitor", FORMAT) as state:
            monitor = cls(rejector, Settings(**state["settings"]))
            if state["calibration"] != monitor._fingerprint():
                raise ValueError(
                    "this state belongs to another rejector: calibration objects or thresholds differ. Start "
                    "a new monitor by DriftMonitor.of after learn, recalibrate or rethreshold."
                )
            n_labels, rules = len(monitor.classes), monitor.settings[:3]
            monitor._evidence = JointEvidence.of(n_labels, *rules, state["evidence"])
            monitor._stream = monitor._stream.resumed(state["counts"], monitor.n)
            monitor.rejections = monitor.rejections.resumed(state["rejections"], monitor.n)
            monitor.history = History.from_json(state["history"], monitor.n, "log_value", "rejected")
            if state["features"] is not None:
                monitor._features = Features.from_json(state["features"])
        return monitor

    def _fingerprint(self) -> str:
        calibration, result = self._judge.calibration_, self._judge.result_
        text = repr((calibration.classes.tolist(), calibration.merging))
        objects = calibration.scores, calibration.actual, calibration.predicted
        return digest([text], *objects, result.credibility_thresholds, result.confidence_thresholds)

    def plot(self, harm: Any = None, *, ax: Any = None) -> Any:
        """Draw evidence and rejections over time; return the `MonitorDisplay`.

        Parameters
        ----------
        harm : HarmMonitor or None
            The error among accepted answers to draw below.
        ax : matplotlib Axes or None
            Where to draw; by default a new figure.
        """
        display = extra("transcendent.plots", "plots").MonitorDisplay
        return display.from_monitors(self, harm).plot(ax)

    def __repr__(self) -> str:
        alarm = "no alarm" if self.alarm is None else f"ALARM of drift at object {self.alarm.at:,}"
        if (more := self.rejections.alarm) is not None:
            alarm = f"{'' if self.alarm is None else f'{alarm}, '}ALARM of rejections at object {more.at:,}"
        return (
            f"DriftMonitor: {self.n:,} objects, {alarm}\n"
            f"  evidence e^{self.log_value:.1f}, alarm at e^{math.log(self.settings.threshold):.1f} "
            f"({self.settings.rule}, {self.settings.betting})\n"
            f"  {'without the budget: ' if self.watches_budget else ''}{self.rejections!r}"
        )


def judge_of(rejector: Any) -> ScoreEvaluator:
    """Return the judge of a rejector that can be monitored."""
    if not declared(rejector).can_be_monitored:
        raise ValueError(
            "a monitor watches an InductiveEvaluator or a ScoreEvaluator, alone or in a budget, not "
            f"{type(declared(rejector).without_budget).__name__}: it needs calibration objects that the "
            "detector has not seen, and an unchanged decide."
        )
    check_is_fitted(rejector)
    (judge,) = declared(rejector).fitted.judges
    return cast("ScoreEvaluator", judge)
