"""The error among accepted answers from a random audit, with an alarm when it exceeds a promise.

Let m be the mean probability that an audited answer is wrong. For every λ, a bettor's capital
exp(λ · wrong) / (1 + m (exp λ − 1))^labels does not grow on average. This holds even if the probability
changes from batch to batch, since the logarithm is concave, and for draws without replacement, which vary
less. The mean of such capitals ever reaches c with probability at most 1 / c (Ville's inequality). The
interval has all values of m for which that mean is below 1 / delta.
"""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.isotonic import IsotonicRegression

from transcendent._utils.arrays import FloatArray, encode_labels, missing_rows
from transcendent._utils.checks import check_shares
from transcendent.decisions import Decisions
from transcendent.monitoring.alarms import Alarm
from transcendent.monitoring.audit import AuditEstimate
from transcendent.monitoring.drift import judge_of
from transcendent.monitoring.history import History
from transcendent.monitoring.state import (
    as_numbers,
    check,
    check_counts,
    check_fields,
    check_numbers,
    reading,
)

FORMAT = 1
_BETS = np.geomspace(0.02, 6.0, 24)
_SMALL_BETS = np.geomspace(0.005, 0.95, 24)
_PENALTIES = -np.log1p(-_SMALL_BETS) - _SMALL_BETS


@dataclass
class HarmMonitor:
    """Estimates the error among accepted answers from a random audit; raises an alarm if it is too high.

    Accepted answers are audited in batches, such as one per day: some answers of each batch are drawn at
    random and labelled. Do not pass labels of rejected objects, or of objects chosen in another way: they say
    nothing about accepted answers.

    If the probability of an error never exceeds ``promised``, P(ever an alarm) ≤ ``delta``. The interval is
    for the mean error of the batches, each weighted by its number of audited answers.

    The alarm and, slightly, the interval depend on the batches, since evidence is checked at the end of each
    and harm is assumed to begin with one. The same labels in other batches may raise an alarm sooner, later
    or not at all. So fix the batches before any label is known, such as one per day: trying
    several breaks the bound.

    Parameters
    ----------
    promised : float
        The largest acceptable error among accepted answers.
    delta : float
        Probability that a false alarm is ever raised, and that the interval ever misses the error.

    Attributes
    ----------
    labels, wrong, batches : int
        Numbers of audited answers, of wrong ones among them, and of batches so far.
    alarm : Alarm or None
        The first alarm; ``at`` counts audited answers.
    log_value : float
        Logarithm of the evidence of harm.
    log_starts, adjusted, spread : list of float and floats
        State of the bets.
    history : History
        Lists of the fields of `kept_error` in ``columns``, after the numbers of batches in ``at``; at most
        512 points.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.monitoring import HarmMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = HarmMonitor(promised=0.02)
    >>> for day in range(60):
    ...     monitor.update(rng.random(16) < 0.01)
    >>> monitor
    HarmMonitor: 960 audited answers in 60 batches, no alarm
      1.15% of accepted answers wrong, 0.30% to 2.71% (with probability 0.95 at all times)
      promised: at most 2.00%; evidence of harm e^-1.4, alarm at e^3.0
    >>> for day in range(60):
    ...     monitor.update(rng.random(16) < 0.1)
    >>> monitor.alarm.at
    1024
    """

    promised: float
    delta: float = 0.05
    labels: int = 0
    wrong: int = 0
    batches: int = 0
    alarm: Alarm | None = None
    log_starts: list[float] = field(default_factory=list)
    log_value: float = 0.0
    adjusted: float = 0.0
    spread: float = 0.0
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        check_shares(ends="excluded", promised=self.promised, delta=self.delta)
        self.promised, self.delta = float(self.promised), float(self.delta)

    def update(self, wrong: Any, *, doubt: Any = None, all_doubt: Any = None) -> None:
        """Add a batch of audited answers.

        Parameters
        ----------
        wrong : bool array of shape (audited,)
            Whether each audited answer is wrong.
        doubt, all_doubt : arrays of shape (audited,) and (accepted,), or None
            Estimated probability of an error, as from `expected_errors`, for each audited and for each
            accepted answer of the batch. Good estimates make the interval narrower; with bad ones it is still
            valid.
        """
        array = np.asarray(wrong)
        if array.ndim != 1 or len(missing_rows(array)) or not np.isin(array, (0, 1)).all():
            raise ValueError("wrong must be an array of True or False, one per audited answer.")
        if len(array) == 0:
            return
        errors = array.astype(np.float64)
        self._adjust(errors, doubt, all_doubt)
        before = self._log_capitals()
        self.labels, self.wrong = self.labels + len(errors), self.wrong + int(errors.sum())
        self.batches += 1
        self._bet(before, self._log_capitals())
        self.history.update(**{name: np.array([v]) for name, v in self.kept_error._asdict().items()})

    @property
    def kept_error(self) -> AuditEstimate:
        """The error among accepted answers so far, with its interval."""
        if self.labels == 0:
            return AuditEstimate(math.nan, 0.0, 1.0, 0)
        limit = -math.log(self.delta)
        best = min(max(self.adjusted / self.labels, 0.0), 1.0)
        inside = min((best, self.wrong / self.labels), key=self._log_interval_capital)
        if self._log_interval_capital(inside) > limit:  # the interval is empty; rare if the draw was random
            return AuditEstimate(best, inside, inside, self.labels)
        low, high = 0.0, 1.0
        if self._log_interval_capital(0.0) > limit:
            low = float(brentq(lambda m: self._log_interval_capital(m) - limit, 0.0, inside))
        if self._log_interval_capital(1.0) > limit:
            high = float(brentq(lambda m: self._log_interval_capital(m) - limit, inside, 1.0))
        return AuditEstimate(best, low, high, self.labels)

    def _log_capitals(self) -> FloatArray:
        """Return the log capital of each bet that there are more errors than promised."""
        return np.asarray(_BETS * self.wrong - self.labels * np.log1p(self.promised * np.expm1(_BETS)))

    def _bet(self, before: FloatArray, after: FloatArray) -> None:
        """Split the capital over the batches at which harm can begin; raise the alarm if it is enough."""
        t = self.batches  # batch t gets the share 1 / (t (t + 1)); those of later batches sum to 1 / (t + 1)
        starts = -before - math.log(t * (t + 1))
        if self.log_starts:
            starts = np.logaddexp(self.log_starts, starts)
        self.log_starts = starts.tolist()
        running = float(np.logaddexp.reduce(after + starts)) - math.log(len(_BETS))
        self.log_value = float(np.logaddexp(running, -math.log(t + 1)))
        if self.alarm is None and self.log_value >= -math.log(self.delta):
            self.alarm = Alarm(self.labels, self.log_value)

    def _adjust(self, errors: FloatArray, doubt: Any, all_doubt: Any) -> None:
        """Add the errors, corrected by the difference in doubt between the drawn answers and all of them."""
        if (doubt is None) != (all_doubt is None):
            raise ValueError("doubt and all_doubt are compared with each other: pass both or neither.")
        none = np.zeros(len(errors))
        own, of_all = (none if d is None else np.asarray(d, dtype=np.float64) for d in (doubt, all_doubt))
        valid = all(d.ndim == 1 and ((d >= 0) & (d <= 1)).all() for d in (own, of_all))
        if not valid or len(own) != len(errors):
            raise ValueError(
                "doubt and all_doubt must be probabilities: one per audited, and one per accepted answer."
            )
        if len(of_all) < len(own) or own.max() > of_all.max():
            raise ValueError("all_doubt must have all accepted answers, including the audited ones.")
        mean, highest = float(of_all.mean()), float(of_all.max())
        adjusted = errors - own + mean
        # Bets on adjusted errors are valid with any guess of their mean that does not use their labels, if
        # no adjusted error is more than 1 away from it.
        expected = self.adjusted / self.labels if self.labels else 0.0
        expected = min(max(expected, mean), max(mean, 1 - highest))
        self.adjusted += float(adjusted.sum())
        self.spread += float(((adjusted - expected) ** 2).sum())

    def _log_interval_capital(self, m: float) -> float:
        """Return the log mean capital of bets that the mean error is not m, with and without adjustment."""
        both = np.concatenate([_BETS, -_BETS])
        with np.errstate(divide="ignore"):
            plain = both * self.wrong - self.labels * np.log1p(m * np.expm1(both))
        gain = _SMALL_BETS * (self.adjusted - self.labels * m)
        adjusted = np.concatenate([gain, -gain]) - np.tile(_PENALTIES, 2) * self.spread
        return float(np.logaddexp.reduce(np.concatenate([plain, adjusted]))) - math.log(4 * len(_BETS))

    def to_json(self) -> str:
        """Return the whole state as text, from which `from_json` resumes exactly."""
        return json.dumps({"kind": "HarmMonitor", "format": FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the monitor with this state."""
        with reading(text, "HarmMonitor", FORMAT) as state:
            kept = {key: value for key, value in state.items() if key not in ("kind", "format")}
            check_fields(kept, *(field.name for field in fields(cls)))
            labels, wrong, batches = kept["labels"], kept["wrong"], kept["batches"]
            check_counts(labels=labels, wrong=wrong, right=labels - wrong, batches=batches)
            check_numbers(adjusted=kept["adjusted"], spread=kept["spread"], log_value=kept["log_value"])
            as_numbers(kept["log_starts"], len(_BETS) if batches else 0, "log_starts")
            possible = kept["spread"] >= 0 and -labels <= kept["adjusted"] <= 2 * labels and batches <= labels
            check(possible, "its sums are not those of its labels")
            alarm = Alarm.from_json(kept["alarm"], labels)
            history = History.from_json(kept["history"], batches, *AuditEstimate._fields)
            return cls(**kept | {"alarm": alarm, "history": history})

    def __repr__(self) -> str:
        alarm = "no alarm" if self.alarm is None else f"ALARM at label {self.alarm.at:,}"
        error, low, high, _ = self.kept_error
        known = "nothing known yet"
        if self.labels:
            known = f"{error:.2%} of accepted answers wrong, {low:.2%} to {high:.2%}"
        return (
            f"HarmMonitor: {self.labels:,} audited answers in {self.batches:,} batches, {alarm}\n"
            f"  {known} (with probability {1 - self.delta:.3g} at all times)\n"
            f"  promised: at most {self.promised:.2%}; evidence of harm e^{self.log_value:.1f}, alarm at "
            f"e^{-math.log(self.delta):.1f}"
        )


def expected_errors(rejector: Any, decisions: Decisions) -> FloatArray:
    """Estimate the probability that each answer is wrong, from the calibration objects of its class.

    The share of errors is assumed to fall as credibility rises. Under drift the estimates are wrong, but the
    interval of a `HarmMonitor` that uses them stays valid.

    Parameters
    ----------
    rejector : InductiveEvaluator or ScoreEvaluator
        The rejector.
    decisions : Decisions
        Its decisions.
    """
    calibration = judge_of(rejector).calibration_
    encode_labels(decisions.labels, calibration.classes, "labels")
    credibility = calibration.credibility_and_confidence()[0]
    out = np.empty(len(decisions))
    for c, label in enumerate(calibration.classes):
        rows = (calibration.predicted == c) & ~np.isnan(credibility)
        own = decisions.labels == label
        if not rows.any():
            out[own] = np.mean(calibration.predicted != calibration.actual)
        elif own.any():
            model = IsotonicRegression(increasing=False, out_of_bounds="clip", y_min=0.0, y_max=1.0)
            model.fit(credibility[rows], calibration.actual[rows] != c)
            out[own] = model.predict(decisions.credibility[own])
    return out
