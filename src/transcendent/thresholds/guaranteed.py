"""Thresholds with a guarantee: one part of the calibration objects orders them, the other tests them."""

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.stats import binom
from sklearn.isotonic import isotonic_regression

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, abbreviate, check_shares
from transcendent.errors import CalibrationWarning, InfeasibleError
from transcendent.metrics.ratios import position_of
from transcendent.thresholds.base import On, Search, SearchResult

Promise = Literal["error", "class_error", "precision", "fnr"]

_TESTED = 0.7
_STRICTER = np.arange(0.05, 1, 0.05)
_MOST_NEEDED = 10**9
_BETWEEN = 8
NOTHING = 2.0  # a threshold that no credibility reaches
_SALT = 2022  # so that the draw does not depend on data made with the same seed


class Proof(NamedTuple):
    """The thresholds that were tested, strictest first, up to the first that could not be proven.

    Attributes
    ----------
    thresholds : array of shape (steps, classes)
        The thresholds of each step.
    answers, wrong : int arrays of shape (steps,)
        Number of tested objects in question that the step accepts, and of the wrong ones of them.
    p_values : array of shape (steps,)
        Chance of so few wrong ones if more than the promised share were.
    """

    thresholds: FloatArray
    answers: IntArray
    wrong: IntArray
    p_values: FloatArray


@dataclass(frozen=True, repr=False)
class GuaranteedResult(SearchResult):
    """Thresholds that keep a promise, and how it was proven.

    A class whose answers are all rejected has the threshold 2, which no credibility reaches.

    Attributes
    ----------
    credibility_thresholds, confidence_thresholds : arrays of shape (classes,)
        Per predicted class; those on confidence are 0.
    objective : None
        Nothing was optimised.
    value : float
        NaN.
    bound : None
        Nothing is proven to be best.
    rejection_rate : float
        Share of the calibration set that is rejected.
    trials : int
        Number of tests.
    promise : str
        What is promised.
    error, delta : float
        The largest share promised, and the chance that the promise does not hold.
    proofs : tuple of Proof
        What was tested: one path, or one for each class.
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
    """Rejects as little as it can prove that few accepted answers are wrong.

    With probability at least ``1 - delta`` over the draw of the calibration objects, the share of wrong
    answers among accepted ones is at most ``error``, for new objects from where the calibration objects were
    drawn, each independently of the others. Nothing is promised about other objects. Repeated rows and
    campaigns are not independent: they count as more evidence than they are, and promises break more often
    than ``delta``. ``calibration_.repeated`` says how many of the objects that test equal an earlier one,
    and a `CopiesWarning` if more than a tenth of the rows that calibrate equal another row of ``fit``.

    ``delta`` is for one search. If thresholds are searched again, after each ``learn`` or with other
    settings, each search may break its promise with probability ``delta``; of k searches, one of them at
    least with up to k times that.

    The probability is over all draws of calibration objects. A search that ends in an `InfeasibleError`
    counts as a promise kept. Where most draws end so, those that are proven break more often than ``delta``.

    30% of the calibration objects, drawn at random, are what p-values compare with; they also order
    thresholds from strict to loose by the errors that they let pass, and say which is likeliest to be
    proven. From this on the other 70% test one after the other by exact binomial tails, until one fails
    (fixed-sequence testing). New objects are compared with the 30%, too, so that what was tested is what
    decides.

    Parameters
    ----------
    error : float
        The largest share of wrong answers.
    delta : float
        The chance that the promise does not hold.
    promise : {"error", "class_error", "precision", "fnr"}
        What is at most ``error``: the share of wrong answers among all accepted ones; among the accepted
        answers of each class (if nothing can be proven for a class, all its answers are rejected); among the
        accepted positive answers (1 - precision); or the share of the accepted positive objects that are
        answered otherwise.
    pos_label : label or None
        The positive class of the last two; by default the second of two.
    random_state : int
        Seed of the draw of the objects that test.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import GuaranteedSearch, ScoreEvaluator
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=4000)
    >>> suspicion = np.where(y == 1, 1.5, -1.5) + rng.normal(size=4000)
    >>> scores, labels = np.column_stack([suspicion, -suspicion]), (suspicion > 0).astype(int)
    >>> judge = ScoreEvaluator(search=GuaranteedSearch(error=0.02)).fit(scores, y, labels)
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
    def apart(self) -> int:
        """Seed of the draw of the objects that only test."""
        return int(self.random_state)

    def _find(
        self, actual: IntArray, predicted: IntArray, values: FloatArray, classes: AnyArray
    ) -> GuaranteedResult:
        self._check()
        tested, known = drawn_apart(len(actual), self.apart), ~np.isnan(values[:, 0])
        objects = _Objects(values[:, 0], predicted, tested & known, ~tested & known, len(classes))
        aims = self._aims(actual, predicted, classes)
        if not objects.bagged.any() or not objects.tested.any():
            raise InfeasibleError(f"nothing can be proven with {len(actual):,} calibration objects.")
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
        check_shares(error=self.error, delta=self.delta)
        if not isinstance(self.random_state, int):
            raise ValueError(f"random_state is a whole number (int), not {self.random_state!r}.")
        if self.promise not in get_args(Promise):
            raise ValueError(f"promise is one of {get_args(Promise)}, not {self.promise!r}.")

    def _aims(self, actual: IntArray, predicted: IntArray, classes: AnyArray) -> list["_Aim"]:
        """What must be few of what; of each class, one after the other."""
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

    def _prove(self, objects: "_Objects", aim: "_Aim", delta: float) -> Proof:
        """Test thresholds from the step that is likeliest to pass on to looser ones, until one fails.

        The bags alone say which steps there are, where the tests start and in which order they follow. So
        the promise breaks only if the first of them that lets too many errors pass is proven, and that has
        probability at most delta.
        """
        thresholds = objects.path(aim.wrong)
        thresholds = thresholds[np.argmax(self._chances(objects, aim, thresholds, delta)) :]
        answers, wrong = (objects.accepted(some & objects.tested, thresholds) for some in aim.counted)
        p = binom.cdf(wrong, answers, self.error)
        steps = slice(int(np.argmax(p > delta)) + 1 if (p > delta).any() else len(p))
        return Proof(thresholds[steps], answers[steps], wrong[steps], p[steps])

    def _chances(self, objects: "_Objects", aim: "_Aim", thresholds: FloatArray, delta: float) -> FloatArray:
        """Chance of each step to pass its test, by what is in the bags.

        The steps were made from the bags: where a step accepts all that has no errors there, its threshold
        in each class stands just above an error, so new objects have about one more than the bags show. Of
        a part of these objects it is fewer: errors thin out towards the top.
        """
        answers, wrong = (objects.accepted(some & objects.bagged, thresholds) for some in aim.counted)
        tested = np.round(answers * (objects.tested.sum() / objects.bagged.sum()))
        allowed = binom.ppf(delta, tested, self.error)
        allowed -= binom.cdf(allowed, tested, self.error) > delta
        classes = len(np.unique(objects.predicted[aim.wrong & objects.bagged]))
        free = answers[wrong == 0].max(initial=1)
        hidden = np.maximum(1, classes * np.minimum(1, answers / free) ** 3)
        return np.asarray(binom.cdf(allowed, tested, (wrong + hidden) / (answers + hidden + 1)))

    def _infeasible(self, objects: "_Objects", aim: "_Aim", delta: float) -> InfeasibleError:
        failed = (
            f"no thresholds can be proven to hold the {aim.name} to {self.error:.3g} with probability "
            f"{1 - self.delta:.3g}"
        )
        n, everybody = len(objects.values), objects._replace(bagged=objects.bagged | objects.tested)
        there = int(np.sum(aim.about & objects.tested))
        least = math.ceil(math.log(delta) / math.log1p(-self.error))
        if there < least:
            in_all = f", at this share at least about {_rounded(least / there * n):,}" if there else ""
            return InfeasibleError(
                f"{failed}: of {n:,} calibration objects, {there:,} of those that test are in question, and "
                f"even without an error it takes {least:,}. Give more calibration objects{in_all}, or raise "
                "error or delta."
            )
        thresholds = everybody.path(aim.wrong)
        accepted, errors = (objects.accepted(some, thresholds) for some in aim.counted)
        needed = _needed((errors + 1) / (accepted + 2), self.error, delta)
        about = needed * n / (_TESTED * np.maximum(accepted, 1))
        step = int(np.argmin(about))
        if about[step] == math.inf:
            return InfeasibleError(
                f"{failed}: no thresholds of these {n:,} calibration objects come near that. Even without an "
                f"error {least:,} tested objects would have to be accepted. Raise error, or take a measure "
                "that ranks errors lower."
            )
        if about[step] <= n:
            return InfeasibleError(
                f"{failed}: with {n:,} calibration objects other draws of those that test could, but not "
                f"that of GuaranteedSearch(random_state={self.random_state}). Give more, or raise error or "
                "delta; another random_state of the search, or of the evaluator, would be a second try, for "
                "which the probability does not allow."
            )
        return InfeasibleError(
            f"{failed}: with {n:,} calibration objects the evidence is too thin. Thresholds that accept "
            f"{accepted[step]:,} of the objects in question with {errors[step]:,} errors would need about "
            f"{_rounded(about[step]):,} calibration objects; or raise error or delta."
        )


class _Aim(NamedTuple):
    """Objects that a promise is about, and those of them that are answered wrongly."""

    name: str
    wrong: BoolArray
    about: BoolArray

    @property
    def counted(self) -> tuple[BoolArray, BoolArray]:
        """Objects in question, and the wrong ones of them."""
        return self.about, self.wrong


class _Objects(NamedTuple):
    """Calibration objects: those that only test, and those in the bags."""

    values: FloatArray
    predicted: IntArray
    tested: BoolArray
    bagged: BoolArray
    n_classes: int

    def accepted(self, among: BoolArray, thresholds: FloatArray) -> IntArray:
        """Number of these objects that each of (steps, classes) thresholds accepts."""
        counts = np.zeros(len(thresholds), dtype=np.intp)
        for c in range(self.n_classes):
            values = np.sort(self.values[among & (self.predicted == c)])
            counts += len(values) - np.searchsorted(values, thresholds[:, c])
        return counts

    def path(self, wrong: BoolArray) -> FloatArray:
        """(steps, classes) thresholds, strictest first.

        The share of wrong answers at each value, taken to fall with the value, is estimated in each class. A
        step accepts where it is at most some share, the same for all classes; before these steps come some
        that accept less than what has no errors at all.
        """
        rates = [self._rates(c, wrong) for c in range(self.n_classes)]
        shares = np.unique(np.concatenate([share for _, share in rates]))
        steps = np.column_stack(
            [np.append(v, NOTHING)[np.searchsorted(-share, -shares)] for v, share in rates]
        )
        errs = [wrong[self.bagged & (self.predicted == c)].any() for c in range(self.n_classes)]
        stricter = np.where(errs, 1 - _STRICTER[:, None] * (1 - np.minimum(steps[0], 1)), steps[0])
        return _finer(np.vstack([np.where(steps[0] > 1, NOTHING, stricter), steps]))

    def _rates(self, c: int, wrong: BoolArray) -> tuple[FloatArray, FloatArray]:
        """The values of objects predicted c, ascending, and the falling share of wrong answers at each."""
        rows = self.bagged & (self.predicted == c)
        values, at, counts = np.unique(self.values[rows], return_inverse=True, return_counts=True)
        if len(values) == 0:
            return values, values
        share = isotonic_regression(
            np.bincount(at, wrong[rows]) / counts, sample_weight=counts, increasing=False
        )
        values[0] = 0  # what accepts all of them accepts any
        return values, share


def _finer(steps: FloatArray) -> FloatArray:
    """Put thresholds between those of one step and the next; those above 1 accept nothing."""
    between = np.arange(_BETWEEN)[:, None] / _BETWEEN
    parts = [strict + between * (loose - strict) for strict, loose in pairwise(steps)]
    finer = np.vstack([*parts, steps[-1:]])
    return np.where(finer > 1, NOTHING, finer)


def drawn_apart(n: int, seed: int) -> BoolArray:
    """Which of n calibration objects only test thresholds, and are in no bag."""
    return np.random.default_rng([_SALT, seed]).random(n) < _TESTED


def _rounded(number: float) -> int:
    """Round up to two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit


def _needed(rates: FloatArray, error: float, delta: float) -> FloatArray:
    """Return how many tested objects with these shares of errors prove them to be at most ``error``."""

    def proves(number: FloatArray) -> BoolArray:
        return np.asarray(binom.cdf(np.floor(rates * number), number, error) <= delta)

    low, high = np.zeros(len(rates)), np.ones(len(rates))
    while (more := (rates < error) & (high <= _MOST_NEEDED) & ~proves(high)).any():
        low, high = np.where(more, high, low), np.where(more, 2 * high, high)
    while ((high - low) > 1).any():
        middle = (low + high) // 2
        low, high = np.where(proves(middle), (low, middle), (middle, high))
    return np.where(proves(high), high, math.inf)
