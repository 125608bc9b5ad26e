"""Promises of thresholds, kept and broken: simulated calibrations of a detector that is known exactly."""

import math
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import binom, norm
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from tables import markdown, run_all

from transcendent import Answers, ExactSearch, GuaranteedSearch, InductiveEvaluator, ScoreEvaluator
from transcendent.errors import InfeasibleError
from transcendent.metrics import RejectionRate

SIMULATED, COMPARED = 2000, 500
CALIBRATION = 5000
DELTA = 0.05
ERRORS = (0.01, 0.05, 0.1)
PRIORS = {2: [0.9, 0.1], 5: [0.6, 0.2, 0.1, 0.06, 0.04]}
SEPARATION = {2: 1.6, 5: 2.5}
COPIES = (1, 2, 5, 10)
LIFETIMES, CALLS, LIFETIME_DELTA = 150, 6, 0.1
_BLOCK = 50
_STEP = 0.01
_GRID = np.arange(-8, 16, _STEP)


@dataclass(frozen=True)
class Problem:
    """Objects of some classes, of which a share has another label than it looks like.

    The rarer a class, the more of its answers are wrong. The shares of the classes, and how far their
    evidence is apart, are the usual ones unless they are given.
    """

    n_classes: int
    flipped: float = 0.0
    shares: tuple[float, ...] | None = None
    apart: float | None = None

    @property
    def prior(self) -> Any:
        """The share of each class."""
        return np.array(self.shares or PRIORS[self.n_classes])

    @property
    def separation(self) -> float:
        """Between the means of the evidence."""
        return self.apart or SEPARATION[self.n_classes]

    def objects(self, generator: np.random.Generator, n: int) -> tuple[Answers, Any]:
        """The detector's answers, and true labels."""
        y = generator.choice(self.n_classes, n, p=self.prior)
        evidence = generator.normal(size=(n, self.n_classes))
        evidence[np.arange(n), y] += self.separation
        ranked = np.sort(evidence, axis=1)
        best_other = np.where(evidence == ranked[:, -1:], ranked[:, -2:-1], ranked[:, -1:])
        if self.flipped:
            others = (y + generator.integers(1, self.n_classes, n)) % self.n_classes
            y = np.where(generator.random(n) < self.flipped, others, y)
        return Answers(evidence.argmax(axis=1), best_other - evidence), y

    def delivered(self, judge: ScoreEvaluator) -> tuple[float, float]:
        """The error among accepted answers, and the share rejected, of all objects there could be."""
        margins = []
        for bag, threshold in zip(judge.calibration_.bags.scores, judge.thresholds_, strict=True):
            above = math.ceil(threshold * len(bag) - 1e-9)  # calibration scores that are as high or higher
            lowest = math.inf if above > len(bag) else -bag[len(bag) - above] if above else 0.0
            margins.append(max(lowest, 0.0))
        return self._shares(margins)

    def error(self) -> float:
        """Of all answers."""
        return self._shares([0.0] * self.n_classes)[0]

    def _shares(self, margins: list[float]) -> tuple[float, float]:
        """The error among answers with at least the margin of their class, and the share of all others."""
        own, other = _accepted(self.n_classes, self.separation)
        hit, miss = (
            float(p @ np.interp(margins, _GRID, share, right=0.0))
            for p, share in ((self.prior, own), (1 - self.prior, other))
        )
        right = (1 - self.flipped) * hit + self.flipped / (self.n_classes - 1) * miss
        accepted = hit + miss
        return (1 - right / accepted if accepted else 0.0), 1 - accepted


@cache
def _accepted(n_classes: int, separation: float) -> tuple[Any, Any]:
    """Chance that a class is answered with at least each margin of the grid: for its objects, and others."""
    below = norm.cdf(_GRID[:, None] - _GRID)  # the best other class is this far below
    far = norm.cdf(_GRID[:, None] - _GRID - separation)
    own = norm.pdf(_GRID - separation) @ below ** (n_classes - 1)
    other = norm.pdf(_GRID) @ (below ** (n_classes - 2) * far)
    return own * _STEP, other * _STEP


def outcome(problem: Problem, judge: ScoreEvaluator, calibration: Any) -> tuple[float, float]:
    """The error delivered and the share rejected; all are rejected if nothing can be proven."""
    try:
        return problem.delivered(judge.fit(*calibration))
    except InfeasibleError:
        return 0.0, 1.0


def judges(error: float) -> dict[str, ScoreEvaluator]:
    """Guaranteed thresholds, and others with the same aim: as few rejected as the error allows."""
    aim = ExactSearch(RejectionRate(), max_rejection=None, constraints=f"error <= {error}")
    return {
        "GuaranteedSearch": ScoreEvaluator(search=GuaranteedSearch(error, delta=DELTA)),
        "ExactSearch": ScoreEvaluator(search=aim),
        "ExactSearch, calibrated as the released code": ScoreEvaluator(search=aim, calibration_label="true"),
    }


def simulate(n_classes: int, error: float, block: int) -> dict[str, list[tuple[float, float]]]:
    """For some calibrations: the error delivered and the share rejected."""
    problem = Problem(n_classes)
    generator = np.random.default_rng([n_classes, round(1000 * error), block])
    found: dict[str, list[tuple[float, float]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_BLOCK):
            calibration = problem.objects(generator, CALIBRATION)
            for name, judge in judges(error).items():
                if name == "GuaranteedSearch" or block < COMPARED // _BLOCK:
                    found.setdefault(name, []).append(outcome(problem, judge, calibration))
    return found


def guarantees() -> str:
    """How often thresholds broke their promise, and what they reject."""
    tasks = [(n_classes, error) for n_classes in PRIORS for error in ERRORS]
    blocks = run_all(simulate, tasks, range(SIMULATED // _BLOCK))
    bound = int(binom.ppf(0.999, SIMULATED, DELTA))
    rows = []
    for (n_classes, error), found in blocks.items():
        for name in found[0]:
            runs = np.array([run for block in found for run in block.get(name, [])])
            broken, infeasible = runs[:, 0] > error, runs[:, 1] == 1
            rows.append(
                [
                    str(n_classes),
                    f"{error:.2f}",
                    name,
                    f"{np.mean(broken):.4f}",
                    f"{runs[~infeasible, 0].mean():.4f}",
                    f"{runs[~infeasible, 1].mean():z.3f}",
                    f"{np.mean(infeasible):.3f}",
                ]
            )
    head = ["classes", "error promised", "thresholds", "broken", "error, mean", "rejected", "infeasible"]
    return (
        f"{SIMULATED:,} calibrations of {CALIBRATION:,} objects each, the first {COMPARED} of them for "
        f"other searches; delta is {DELTA}: by chance alone (999 times in 1,000) at most "
        f"{bound / SIMULATED:.4f} of the promises break.\n\n" + markdown(head, rows)
    )


def repeat(copies: int, block: int) -> list[bool]:
    """Whether each promise breaks if every calibration object comes several times."""
    problem, error = Problem(2), ERRORS[1]
    generator = np.random.default_rng([copies, block])
    judge, broken = judges(error)["GuaranteedSearch"], []
    for _ in range(_BLOCK):
        answers, y = problem.objects(generator, CALIBRATION // copies)
        often = np.repeat(np.arange(len(y)), copies)
        broken.append(outcome(problem, judge, (answers[often], y[often]))[0] > error)
    return broken


def live(seed: int) -> list[bool]:
    """Whether the thresholds are broken after each call of a detector that learns, where nothing drifts."""
    X, y = make_classification(40_000, n_informative=8, flip_y=0.05, random_state=0)
    error, order = 0.07, np.random.default_rng(seed).permutation(len(y))
    rows, new, broken = 3000, 1000, []
    tested = order[rows + CALLS * new :]
    ice = InductiveEvaluator(
        LogisticRegression(),
        search=GuaranteedSearch(error, delta=LIFETIME_DELTA, random_state=seed),
        random_state=seed,
        verbose=False,
    )
    for call in range(CALLS):
        known = order[: rows + call * new]
        try:
            if call == 0:
                ice.fit(X[known], y[known])
            else:
                ice.learn(X[known], y[known], what="detector")
        except InfeasibleError:
            if not hasattr(ice, "result_"):
                return []
        decisions = ice.decide(X[tested])
        wrong = (decisions.labels != y[tested])[decisions.accepted]
        broken.append(bool(len(wrong)) and float(wrong.mean()) > error)
    return broken


def assumptions() -> str:
    """What breaks a promise that is proven for independent objects and one search."""
    found = run_all(repeat, [(copies,) for copies in COPIES], range(SIMULATED // _BLOCK))
    rows = [[str(copies), f"{np.mean(np.concatenate(runs)):.3f}"] for (copies,), runs in found.items()]
    return (
        f"{SIMULATED:,} calibrations of {CALIBRATION:,} objects, two classes, error {ERRORS[1]}, delta "
        f"{DELTA}:\n\n" + markdown(["times each object comes", "broken"], rows) + f"\n\n{lifetimes()}"
    )


def lifetimes() -> str:
    """How often the promise of one search breaks, and any of a lifetime's."""
    lives = [life for life in run_all(live, [()], range(LIFETIMES))[()] if life]
    calls = int(np.sum([np.sum(life) for life in lives]))
    return (
        f"{len(lives)} lifetimes of `fit` and {CALLS - 1} calls of `learn`, delta {LIFETIME_DELTA}: "
        f"{calls} of {CALLS * len(lives)} searches broke their promise "
        f"({calls / (CALLS * len(lives)):.3f}); {sum(map(any, lives))} lifetimes "
        f"({np.mean(list(map(any, lives))):.3f}) had at least one of them."
    )
