"""Thresholds with a guarantee: some calibration objects order the thresholds, the others test them."""

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import binom
from sklearn.isotonic import isotonic_regression

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, abbreviate
from transcendent._utils.checks import check_choices, check_shares
from transcendent._utils.text import as_percent
from transcendent.errors import CalibrationWarning, InfeasibleError
from transcendent.metrics.ratios import position_of
from transcendent.thresholds.base import Codes, On, Search, SearchResult

Promise = Literal["error", "class_error", "precision", "fnr"]

_TESTED = 0.7  # share of the calibration objects that only test
_STRICTER = np.arange(0.05, 1, 0.05)  # steps before the first that accepts all without errors
_BETWEEN = 8  # steps from one threshold to the next
_MOST_NEEDED = 10**9
NOTHING = 2.0  # a threshold that no credibility reaches
_SALT = 2022  # so that the draw does not depend on data made with the same seed


class Proof(NamedTuple):
    """The (steps, classes) thresholds that were tested, strictest first, up to the first that failed.

    ``answers`` and ``wrong`` count the accepted test objects that the promise is about. A p-value is the
    chance of at most that many wrong ones if the promise were broken.
    """

    thresholds: FloatArray
    answers: IntArray
    wrong: IntArray
    p_values: FloatArray


@dataclass(frozen=True, repr=False)
class GuaranteedResult(SearchResult):
    """Thresholds with a proven promise.

    A class whose answers are all rejected has the threshold 2, which no credibility reaches.

    Attributes
    ----------
    credibility_thresholds, confidence_thresholds : arrays of shape (classes,)
        Per predicted class; those on confidence are 0.
    objective, value, bound : None, NaN and None
        Nothing was optimised.
    rejection_rate : float
        Share of the calibration set that is rejected.
    trials : int
        Number of tests.
    promise : str
        The share that is promised to be at most ``error``.
    error, delta : float
        The largest share, and the chance that the promise is broken.
    proofs : tuple
        The tests, once or for each class. A proof has the ``thresholds`` of its steps, the numbers of
        ``answers`` accepted and of those ``wrong``, and the ``p_values`` of the tests.
    """

    promise: str = ""
    error: float = math.nan
    delta: float = math.nan
    proofs: tuple[Proof, ...] = ()

    def _promise(self) -> str:
        return (
            f"{self.promise} at most {self.error:.3g} with probability {1 - self.delta:.3g}, "
            f"{self.rejection_rate:.1%} rejected in calibration"
        )


class GuaranteedSearch(Search):
    """Finds thresholds that reject little and provably accept few wrong answers.

    With probability at least ``1 - delta`` over the draw of the calibration objects, at most a share
    ``error`` of the accepted answers is wrong. This holds for new objects drawn independently from the same
    source as the calibration objects; nothing is promised about others. Repeated rows and campaigns are not
    independent: they count as more evidence than they are, and promises break more often than ``delta``.
    ``calibration_.repeated`` is the number of test objects that equal an earlier one. A `CopiesWarning` is
    issued if more than a tenth of the calibration rows equal another row of ``fit``.

    ``delta`` is for one search. Each further search, after ``learn`` or with other settings, may break its
    promise with probability ``delta``: the chance that one of k promises is broken is up to k times that.
    A search that ends in an `InfeasibleError` counts as a promise kept. If most searches end so, the promises
    of the others break more often than ``delta``.

    A random 30% of the calibration objects form the bags that p-values compare with. They also order
    thresholds from strict to loose by their errors, and give the start: the thresholds most likely to be
    proven. From there the other 70% test one step after the other by exact binomial tails, until one fails
    (fixed-sequence testing). New objects are compared with the same 30%, so the tested thresholds are the
    ones that decide.

    Parameters
    ----------
    error : float
        The largest share of wrong answers.
    delta : float
        The chance that the promise is broken.
    promise : {"error", "class_error", "precision", "fnr"}
        Which share is at most ``error``: that of wrong answers among all accepted ones; among the accepted
        answers of each class (all answers of a class without a proof are rejected); among the accepted
        positive answers (1 - precision); or that of negative answers among the accepted positive objects.
    pos_label : label or None
        The positive class of ``"precision"`` and ``"fnr"``; by default the second of two.
    random_state : int
        Seed that draws the test objects.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Answers, GuaranteedSearch, ScoreEvaluator
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=4000)
    >>> suspicion = np.where(y == 1, 1.5, -1.5) + rng.normal(size=4000)
    >>> answers = Answers((suspicion > 0).astype(int), np.column_stack([suspicion, -suspicion]))
    >>> judge = ScoreEvaluator(search=GuaranteedSearch(error=0.02)).fit(answers, y)
    >>> judge.result_.promise, round(judge.result_.rejection_rate, 3)
    ('error of accepted answers', 0.215)
    """

    on: On = "credibility"

    def __init__(
        self,
        error: float = 0.01,
        *,
        delta: float = 0.05,
        promise: Promise = "error",
        pos_label: Any = None,
        random_state: int = 0,
    ) -> None:
        self.error = error
        self.delta = delta
        self.promise = promise
        self.pos_label = pos_label
        self.random_state = random_state

    @property
    def held_out_seed(self) -> int:
        """Seed that draws the objects which only test."""
        return int(self.random_state)

    @property
    def in_words(self) -> str:
        """Which answers are rejected, as the end of a sentence."""
        return (
            "answers whose credibility is below thresholds that are proven on calibration objects: "
            f"{self._promised}"
        )

    @property
    def under_drift(self) -> str:
        """What drift does to the promise."""
        return (
            f"The guarantee ({self._promised}) is about objects like those of calibration, and about no "
            "others: under drift nothing is promised."
        )

    @property
    def promised_error(self) -> float | None:
        """The share of accepted answers that is guaranteed to be wrong at most, if that is the promise."""
        return self.error if self.promise in ("error", "class_error") else None

    @property
    def _promised(self) -> str:
        what = {
            "error": "accepted answers are wrong",
            "class_error": "accepted answers of each class are wrong",
            "precision": "accepted positive answers are wrong",
            "fnr": "accepted positive objects are answered otherwise",
        }[self.promise]
        probability = as_percent(1 - self.delta)
        return f"at most {as_percent(self.error)} of the {what}, with probability {probability}"

    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        self._check()
        tested, known = held_out_mask(len(actual), self.held_out_seed), ~np.isnan(values[:, 0])
        objects = _Separated(values[:, 0], predicted, tested & known, ~tested & known, len(classes))
        aims = self._aims(actual, predicted, classes)
        if not objects.bagged.any() or not objects.tested.any():
            raise InfeasibleError(f"{len(actual):,} calibration objects prove nothing; pass more of them.")
        delta = self.delta / len(aims)
        proofs = [self._prove(objects, aim, delta) for aim in aims]
        proven = [p.thresholds[np.sum(p.p_values <= delta) - 1] for p in proofs if p.p_values[0] <= delta]
        if not proven:
            raise self._infeasible(objects, aims[0], delta)
        thresholds = np.max(proven, axis=0)
        failed = [c for c, proof in enumerate(proofs) if proof.p_values[0] > delta]
        if failed:
            thresholds[failed] = NOTHING
            warnings.warn(
                f"nothing can be proven about answers {abbreviate(classes[failed])}: all are rejected.",
                CalibrationWarning,
                stacklevel=6,
            )
        return GuaranteedResult(
            credibility_thresholds=thresholds,
            confidence_thresholds=np.zeros(len(classes)),
            objective=None,
            value=math.nan,
            bound=None,
            rejection_rate=float(np.mean(values[:, 0] < thresholds[predicted])),
            trials=sum(len(proof.p_values) for proof in proofs),
            promise=aims[0].name if len(aims) == 1 else "error of accepted answers of each class",
            error=self.error,
            delta=self.delta,
            proofs=tuple(proofs),
        )

    def _check(self) -> None:
        check_shares(ends="excluded", error=self.error, delta=self.delta)
        if not isinstance(self.random_state, int):
            raise ValueError(f"random_state must be a whole number (int), not {self.random_state!r}.")
        check_choices(Promise, promise=self.promise)

    def _aims(self, actual: IntArray, predicted: IntArray, classes: AnyArray) -> list["_Aim"]:
        """Return the aim of the promise, or one for each class."""
        wrong = actual != predicted
        if self.promise == "error":
            return [_Aim("error of accepted answers", wrong, np.ones_like(wrong))]
        if self.promise == "class_error":
            names = [f"error of accepted answers with label {label!r}" for label in classes.tolist()]
            return [_Aim(name, wrong & (predicted == c), predicted == c) for c, name in enumerate(names)]
        positive = position_of(self.pos_label, classes)
        if positive is None:
            raise ValueError(f"promise={self.promise!r} needs a pos_label, one of {abbreviate(classes)}.")
        if self.promise == "precision":
            about = predicted == positive
            return [_Aim("error of accepted positive answers (1 - precision)", wrong & about, about)]
        about = actual == positive
        return [_Aim("false negative rate of accepted objects", wrong & about, about)]

    def _prove(self, objects: "_Separated", aim: "_Aim", delta: float) -> Proof:
        """Test thresholds from the step that is most likely to pass to looser ones, until one fails.

        Only the bags determine the steps, their order and the first one. So the promise is broken only if the
        first step with too many errors passes its test, which has probability at most delta.
        """
        thresholds = objects.path(aim.wrong)
        thresholds = thresholds[np.argmax(self._chances(objects, aim, thresholds, delta)) :]
        answers, wrong = (objects.accepted(m & objects.tested, thresholds) for m in (aim.about, aim.wrong))
        p = binom.cdf(wrong, answers, self.error)
        steps = slice(int(np.argmax(p > delta)) + 1 if (p > delta).any() else len(p))
        return Proof(thresholds[steps], answers[steps], wrong[steps], p[steps])

    def _chances(
        self, objects: "_Separated", aim: "_Aim", thresholds: FloatArray, delta: float
    ) -> FloatArray:
        """Estimate the chance of each step to pass its test from the bags.

        The steps were made from the bags, which therefore show too few errors. Where a step accepts all
        answers above the highest error of each class, new objects have about one more error per class than
        the bags. Stricter steps have fewer: errors become rare towards the top.
        """
        answers, wrong = (objects.accepted(m & objects.bagged, thresholds) for m in (aim.about, aim.wrong))
        tested = np.round(answers * (objects.tested.sum() / objects.bagged.sum()))
        allowed = binom.ppf(delta, tested, self.error)
        allowed -= binom.cdf(allowed, tested, self.error) > delta
        classes = len(np.unique(objects.predicted[aim.wrong & objects.bagged]))
        free = answers[wrong == 0].max(initial=1)
        hidden = np.maximum(1, classes * np.minimum(1, answers / free) ** 3)
        return np.asarray(binom.cdf(allowed, tested, (wrong + hidden) / (answers + hidden + 1)))

    def _infeasible(self, objects: "_Separated", aim: "_Aim", delta: float) -> InfeasibleError:
        failed = (
            f"no thresholds can be proven to hold the {aim.name} to {self.error:.3g} with probability "
            f"{1 - self.delta:.3g}"
        )
        n, all_bagged = len(objects.values), objects._replace(bagged=objects.bagged | objects.tested)
        n_tests = int(np.sum(aim.about & objects.tested))
        least = math.ceil(math.log(delta) / math.log1p(-self.error))
        if n_tests < least:
            in_all = f" (at this share at least about {_rounded(least / n_tests * n):,})" if n_tests else ""
            return InfeasibleError(
                f"{failed}: of {n:,} calibration objects, the promise is about {n_tests:,} test objects, and "
                f"even without an error it takes {least:,}. Pass more calibration objects{in_all}, or raise "
                "error or delta."
            )
        thresholds = all_bagged.path(aim.wrong)
        accepted, errors = (objects.accepted(m, thresholds) for m in (aim.about, aim.wrong))
        needed = _needed((errors + 1) / (accepted + 2), self.error, delta)
        about = needed * n / (_TESTED * np.maximum(accepted, 1))
        step = int(np.argmin(about))
        if about[step] == math.inf:
            return InfeasibleError(
                f"{failed}: with these {n:,} calibration objects no thresholds come close. Even without "
                f"an error, {least:,} test objects would have to be accepted. Raise error, or use a measure "
                "that ranks errors lower."
            )
        if about[step] <= n:
            return InfeasibleError(
                f"{failed} by the test objects that GuaranteedSearch(random_state={self.random_state}) draws "
                f"from {n:,} calibration objects; other draws could. Pass more calibration objects, or raise "
                "error or delta. Do not change a random_state instead: that would be a second try, which the "
                "probability does not cover."
            )
        return InfeasibleError(
            f"{failed}: {n:,} calibration objects are too few. Thresholds that accept {accepted[step]:,} of "
            f"them with {errors[step]:,} errors would need about {_rounded(about[step]):,} calibration "
            "objects. Pass more, or raise error or delta."
        )


class _Aim(NamedTuple):
    """The objects that a promise is about, and those of them with a wrong answer."""

    name: str
    wrong: BoolArray
    about: BoolArray


class _Separated(NamedTuple):
    """Calibration objects: the test objects, and those in the bags."""

    values: FloatArray
    predicted: IntArray
    tested: BoolArray
    bagged: BoolArray
    n_classes: int

    def accepted(self, among: BoolArray, thresholds: FloatArray) -> IntArray:
        """Count the objects that each of (steps, classes) thresholds accepts."""
        counts = np.zeros(len(thresholds), dtype=np.intp)
        for c in range(self.n_classes):
            values = np.sort(self.values[among & (self.predicted == c)])
            counts += len(values) - np.searchsorted(values, thresholds[:, c])
        return counts

    def path(self, wrong: BoolArray) -> FloatArray:
        """Return (steps, classes) thresholds, strictest first.

        Isotonic regression estimates the share of wrong answers at each value of a class, falling with the
        value. A step accepts the values whose share is at most a limit, the same for all classes. Stricter
        steps, which accept only some of the answers without errors, come first.
        """
        rates = [self._rates(c, wrong) for c in range(self.n_classes)]
        shares = np.unique(np.concatenate([share for _, share in rates]))
        steps = np.column_stack([np.append(v, NOTHING)[np.searchsorted(-s, -shares)] for v, s in rates])
        errs = [wrong[self.bagged & (self.predicted == c)].any() for c in range(self.n_classes)]
        stricter = np.where(errs, 1 - _STRICTER[:, None] * (1 - np.minimum(steps[0], 1)), steps[0])
        return _finer(np.vstack([np.where(steps[0] > 1, NOTHING, stricter), steps]))

    def _rates(self, c: int, wrong: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return the values of objects predicted c, and the falling share of wrong answers at each."""
        rows = self.bagged & (self.predicted == c)
        values, at, counts = np.unique(self.values[rows], return_inverse=True, return_counts=True)
        if len(values) == 0:
            return values, values
        observed = np.bincount(at, wrong[rows]) / counts
        share = isotonic_regression(observed, sample_weight=counts, increasing=False)
        values[0] = 0  # the step that accepts all of them accepts any value
        return values, share


def _finer(steps: FloatArray) -> FloatArray:
    """Insert thresholds between each step and the next; those above 1 accept nothing."""
    between = np.arange(_BETWEEN)[:, None] / _BETWEEN
    finer = np.vstack([*(a + between * (b - a) for a, b in pairwise(steps)), steps[-1:]])
    return np.where(finer > 1, NOTHING, finer)


def held_out_mask(n: int, seed: int) -> BoolArray:
    """Return which of n calibration objects only test thresholds and are in no bag."""
    return np.random.default_rng([_SALT, seed]).random(n) < _TESTED


def _rounded(number: float) -> int:
    """Round up to two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


def _needed(rates: FloatArray, error: float, delta: float) -> FloatArray:
    """Return the numbers of test objects with which these error rates are proven to be at most ``error``."""

    def proves(number: FloatArray) -> BoolArray:
        return np.asarray(binom.cdf(np.floor(rates * number), number, error) <= delta)

    low, high = np.zeros(len(rates)), np.ones(len(rates))
    while (more := (rates < error) & (high <= _MOST_NEEDED) & ~proves(high)).any():
        low, high = np.where(more, high, low), np.where(more, 2 * high, high)
    while ((high - low) > 1).any():
        middle = (low + high) // 2
        low, high = np.where(proves(middle), (low, middle), (middle, high))
    return np.where(proves(high), high, math.inf)
