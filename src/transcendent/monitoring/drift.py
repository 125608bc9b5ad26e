"""A monitor of drift: is what arrives still like what was calibrated on? It needs no labels."""

import hashlib
import json
import math
from dataclasses import replace
from typing import Any, NamedTuple, Self, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray, chunks, count_rows, take_rows
from transcendent._utils.cells import pointing_out
from transcendent._utils.extras import extra
from transcendent.decisions import Decisions, index_of
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.judging.judge import ScoreEvaluator
from transcendent.monitoring.alarms import Alarm, JointEvidence, Rule
from transcendent.monitoring.history import History
from transcendent.monitoring.martingales import Betting
from transcendent.monitoring.movers import Features, Movers
from transcendent.monitoring.rejections import Rejections
from transcendent.monitoring.state import reading
from transcendent.monitoring.streams import PValueStream, to_levels
from transcendent.thresholds.guaranteed import drawn_apart

FORMAT = 1
_ROWS = 1 << 16


class Settings(NamedTuple):
    """What a monitor was started with."""

    betting: Betting
    rule: Rule
    threshold: float
    random_state: int

    def check(self) -> None:
        """Refuse what there is not."""
        known = {"betting": get_args(Betting), "rule": get_args(Rule)}
        for name, words in known.items():
            if getattr(self, name) not in words:
                raise ValueError(f"{name} is one of {words}, not {getattr(self, name)!r}.")
        if not 1 < self.threshold < math.inf:
            raise ValueError(f"threshold must be more than 1, not {self.threshold!r}.")


class DriftMonitor:
    """Watches a stream of objects without labels, and raises an alarm when it is unlike calibration.

    If objects are exchangeable with the calibration objects, P(ever a false alarm) ≤ 1 / ``threshold`` (with
    ``rule="ville"``). No alarm does not mean no drift, and drift does not mean that answers got worse: for
    that, see `HarmMonitor`.

    Credibility is not uniform even without drift, so the monitor makes p-values of its own: 30% of the
    calibration objects say how strange an object is for its predicted label, and that is ranked among the
    other 70% and all earlier objects that were answered alike, with ties broken at random.

    Create one by `DriftMonitor.of`.

    Attributes
    ----------
    n : int
        Number of objects so far.
    log_value : float
        Logarithm of the evidence against "like calibration": the mean of that of all objects together and
        that of each predicted label, so that a change in a rare one is seen.
    log_values : dict
        That of each predicted label alone.
    alarm : Alarm or None
        The first alarm.
    alarms : dict
        The first alarm of each predicted label alone, each with its own chance of being false.
    rejections : Rejections
        How many objects were rejected, and whether that is more than calibration explains.
    history : History
        ``log_value`` and the number ``rejected`` over time, at most some hundred points.

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

    def __init__(self, rejector: Any, settings: "Settings", features: Features | None = None) -> None:
        self.rejector = rejector
        self.settings = settings
        settings.check()
        self._judge = judge_of(rejector)
        calibration, seed = self._judge.calibration_, settings.random_state
        self._watched = self._parts()
        self._reference = replace(calibration, apart=seed, form="paper")
        self._reference.check_bags("a monitor")
        ranked = drawn_apart(len(calibration.actual), seed)
        codes = calibration.predicted[ranked]
        levels = to_levels(self._reference.p_values[ranked, codes])
        self._stream = PValueStream.of(codes, levels, len(calibration.classes), seed)
        self._evidence = JointEvidence.start(len(calibration.classes), *settings[:3])
        self._rejections = Rejections.of(calibration, self._judge.result_, settings.threshold)
        self._features = features
        self._history = History()

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
        """Start to monitor a fitted rejector.

        Parameters
        ----------
        rejector : InductiveEvaluator or ScoreEvaluator
            The rejector.
        betting : {"jumper", "mixture"}
            How to bet against objects like calibration: the simple jumper, which adapts, or the mixture of
            all powers.
        rule : {"ville", "cusum", "shiryaev-roberts"}
            When the evidence is enough: ``"ville"`` holds P(ever a false alarm) to 1 / threshold, the
            others the mean number of objects to a false alarm to at least the threshold.
        threshold : float
            How much evidence is enough.
        X : array, sparse matrix or frame, or None
            Rows such as those trained on; if given, `movers` compares features with them.
        random_state : int
            Seeds which calibration objects do what, and how ties are broken.
        """
        for name, value in {"random_state": random_state, "threshold": threshold}.items():
            kinds = int | np.integer if name == "random_state" else int | float | np.number
            if not isinstance(value, kinds):
                raise ValueError(f"{name} is a number, not {value!r}.")
        if X is not None and isinstance(rejector, InductiveEvaluator):
            rejector._check_rows(X)
        features = None if X is None else Features.of(X)
        return cls(rejector, Settings(betting, rule, float(threshold), int(random_state)), features)

    @pointing_out
    def update(self, X: Any) -> Decisions:
        """Decide about objects, in order of arrival, and take them in."""
        if not isinstance(self.rejector, InductiveEvaluator):
            raise ValueError("a rejector of scores has no rows to decide about: call update_scores.")
        rows = self.rejector._check_rows(X)
        if count_rows(rows) == 0:
            raise ValueError("X has 0 samples; there is nothing to decide.")
        self._check_same()
        detector = self.rejector.detectors_[0]
        answers = [detector.answer(take_rows(rows, part)) for part in chunks(count_rows(rows), _ROWS)]
        codes, scores = (np.concatenate(arrays) for arrays in zip(*answers, strict=True))
        if self._features is not None:
            self._features.update(rows)
        return replace(self._take_in(codes, scores), index=index_of(X))

    def update_scores(self, scores: Any, labels: Any) -> Decisions:
        """Decide about objects, given their scores and answers as for `ScoreEvaluator`, and take them in."""
        self._check_same()
        return self._take_in(*self._judge.check(scores, labels))

    def _parts(self) -> tuple[Any, ...]:
        judge = judge_of(self.rejector)
        return judge, judge.calibration_, judge.result_

    def _check_same(self) -> None:
        """Refuse a rejector that has learnt or has other thresholds since the monitor started."""
        if any(now is not then for now, then in zip(self._parts(), self._watched, strict=True)):
            raise ValueError(
                "the rejector has learnt, or has other thresholds or calibration objects than when the "
                "monitor started: start a new one by DriftMonitor.of."
            )

    def _take_in(self, codes: IntArray, scores: FloatArray) -> Decisions:
        decisions = self._judge.judge(codes, scores)
        levels = to_levels(self._reference.credibility(codes, scores))
        p = self._stream.update(codes, levels)
        values = self._evidence.update(codes, p)
        self.history.update(
            log_value=values, rejected=self.rejections.rejected + np.cumsum(decisions.rejected)
        )
        self.rejections.update(decisions.rejected)
        return decisions

    @property
    def n(self) -> int:
        """Number of objects so far."""
        return self._evidence.n

    @property
    def rejections(self) -> Rejections:
        """How many objects were rejected, and whether that is more than calibration explains."""
        return self._rejections

    @property
    def history(self) -> History:
        """The evidence and the number rejected over time."""
        return self._history

    @property
    def classes(self) -> AnyArray:
        """The labels there are."""
        return self._judge.classes_

    @property
    def log_value(self) -> float:
        """Logarithm of the evidence against "like calibration"."""
        return self._evidence.log_value

    @property
    def log_values(self) -> dict[Any, float]:
        """The same for each predicted label alone."""
        parts = zip(self.classes.tolist(), self._evidence.parts, strict=False)
        return {label: part.log_value for label, part in parts}

    @property
    def alarm(self) -> Alarm | None:
        """The first alarm."""
        return self._evidence.alarm

    @property
    def alarms(self) -> dict[Any, Alarm]:
        """The first alarm of each predicted label that has one; ``at`` counts the answers with that label."""
        parts = zip(self.classes.tolist(), self._evidence.parts, strict=False)
        return {label: part.alarm for label, part in parts if part.alarm is not None}

    def movers(self, n: int = 10) -> Movers:
        """Return the features whose means moved most since training, in standard deviations."""
        if self._features is None:
            raise ValueError("there is nothing to compare features with: DriftMonitor.of(rejector, X=rows).")
        if self.n == 0:
            raise ValueError("the monitor has seen no objects yet.")
        return self._features.movers(n)

    def to_json(self) -> str:
        """Return the whole state as text: `from_json` goes on as if nothing had happened."""
        state = {
            "kind": "DriftMonitor",
            "format": FORMAT,
            "settings": self.settings._asdict(),
            "calibration": self._fingerprint(),
            "stream": self._stream.to_json(),
            "evidence": self._evidence.to_json(),
            "rejections": self.rejections.to_json(),
            "features": None if self._features is None else self._features.to_json(),
            "history": self.history.to_json(),
        }
        return json.dumps(state, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, rejector: Any) -> Self:
        """Return the monitor that had this state; the rejector is the one it watched."""
        with reading(text, "DriftMonitor", FORMAT) as state:
            settings = Settings(**state["settings"])
            monitor = cls(rejector, settings)
            if state["calibration"] != monitor._fingerprint():
                raise ValueError(
                    "this state belongs to another rejector: calibration objects or thresholds differ. After "
                    "learning, recalibration or rethresholding start a new monitor by DriftMonitor.of."
                )
            n_labels = len(monitor.classes)
            monitor._evidence = JointEvidence.from_json(state["evidence"], n_labels, *settings[:3])
            monitor._stream = monitor._stream.resumed(state["stream"], monitor.n)
            monitor._rejections = monitor._rejections.resumed(state["rejections"], monitor.n)
            monitor._history = History.from_json(state["history"], monitor.n, "log_value", "rejected")
            if state["features"] is not None:
                monitor._features = Features.from_json(state["features"])
        return monitor

    def _fingerprint(self) -> str:
        calibration, result = self._judge.calibration_, self._judge.result_
        digest = hashlib.sha256(repr((calibration.classes.tolist(), calibration.merging)).encode())
        for array in (
            *(calibration.scores, calibration.actual, calibration.predicted),
            *(result.credibility_thresholds, result.confidence_thresholds),
        ):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def plot(self, harm: Any = None, *, ax: Any = None) -> Any:
        """Draw evidence and rejections over time as a `MonitorDisplay`, which is returned.

        Parameters
        ----------
        harm : HarmMonitor or None
            Whose error of accepted answers to draw below.
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
            f"  {self.rejections!r}"
        )


def can_be_monitored(rejector: Any) -> bool:
    """Whether a rejector has one set of calibration objects, which its detector has not seen."""
    known = (InductiveEvaluator, ScoreEvaluator)
    return isinstance(rejector, known) and type(rejector).decide in [kind.decide for kind in known]


def judge_of(rejector: Any) -> ScoreEvaluator:
    """Return what judges the answers of a rejector that can be monitored."""
    if not can_be_monitored(rejector):
        raise ValueError(
            f"a monitor watches an InductiveEvaluator or a ScoreEvaluator, not {type(rejector).__name__}: "
            "it needs calibration objects that the detector has not seen, and decides as these do."
        )
    check_is_fitted(rejector)
    judge: ScoreEvaluator = getattr(rejector, "judges_", [rejector])[0]
    return judge
