"""Where a guaranteed search starts to test: one way was chosen by this comparison."""

import warnings
from typing import Any

import numpy as np
from guarantees import DELTA, Problem, outcome
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from tables import markdown, run_all

from transcendent import GuaranteedSearch, InductiveEvaluator, ScoreEvaluator
from transcendent.errors import InfeasibleError
from transcendent.thresholds.guaranteed import Proof

DRAWS = 50
PROBLEMS = 4
SEEDS = range(20)
_SURE = 0.9


class BagsAlone(GuaranteedSearch):
    """Start where a test is likeliest to pass if new objects err as often as those in the bags."""

    def _chances(self, objects: Any, aim: Any, thresholds: Any, delta: float) -> Any:
        answers, wrong = (objects.accepted(m & objects.bagged, thresholds) for m in (aim.about, aim.wrong))
        tested = np.round(answers * (objects.tested.sum() / objects.bagged.sum()))
        allowed = binom.ppf(delta, tested, self.error)
        allowed -= binom.cdf(allowed, tested, self.error) > delta
        return np.asarray(binom.cdf(allowed, tested, (wrong + 1) / (answers + 2)))


class Strictest(BagsAlone):
    """Start at the strictest step that should pass."""

    def _chances(self, objects: Any, aim: Any, thresholds: Any, delta: float) -> Any:
        chances = super()._chances(objects, aim, thresholds, delta)
        return chances >= _SURE if (chances >= _SURE).any() else chances


class Spread(GuaranteedSearch):
    """Start where some multiple of the fewest objects that could prove anything are expected to be tested."""

    multiple = 1.0

    def _chances(self, objects: Any, aim: Any, thresholds: Any, delta: float) -> Any:
        tested = objects.accepted(aim.about & objects.bagged, thresholds) * (
            objects.tested.sum() / objects.bagged.sum()
        )
        enough = tested >= self.multiple * np.log(delta) / np.log1p(-self.error)
        return enough if enough.any() else tested


class Several(GuaranteedSearch):
    """Start several times with an equal part of delta each, and take the least rejecting proven result."""

    starts: tuple[type[GuaranteedSearch], ...] = (Strictest, GuaranteedSearch)

    def _prove(self, objects: Any, aim: Any, delta: float) -> Proof:
        part = delta / len(self.starts)
        proofs = [start(self.error)._prove(objects, aim, part) for start in self.starts]
        proofs = [proof._replace(p_values=proof.p_values * len(self.starts)) for proof in proofs]
        return max(proofs, key=lambda proof: proof.answers[proof.p_values <= delta].max(initial=-1))


class FourStarts(Several):
    """Four of them, spread over the path."""

    starts = tuple(type(f"Spread{m}", (Spread,), {"multiple": 2 ** (m + 0.5)}) for m in range(4))


WAYS: dict[str, type[GuaranteedSearch]] = {
    "the strictest step that should pass (chance .9)": Strictest,
    "the likeliest step, errors as in the bags": BagsAlone,
    "the likeliest step, with errors that the bags hide": GuaranteedSearch,
    "two starts, the first and the third, delta / 2 each": Several,
    "four starts spread over the path, delta / 4 each": FourStarts,
}
Row = tuple[str, int, float, bool]


def simulated(n_classes: int, flipped: float, n: int, aim: float, seed: int) -> list[Row]:
    """For each way: infeasible, rejected and broken, of one calibration."""
    problem = Problem(n_classes, flipped)
    error = aim * problem.error()
    generator = np.random.default_rng([n_classes, round(100 * flipped), n, round(100 * aim), seed])
    calibration, found = problem.objects(generator, n), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, way in WAYS.items():
            judge = ScoreEvaluator(search=way(error, delta=DELTA))
            delivered, rejected = outcome(problem, judge, calibration)
            found.append((name, int(rejected == 1), rejected, delivered > error))
    return found


def fitted(state: int, seed: int) -> list[Row]:
    """The same, of a detector fitted on `make_classification`, with half of its error aimed at."""
    X, y = make_classification(40_000, flip_y=0.05, random_state=state)
    order = np.random.default_rng(seed).permutation(len(y))
    past, later = order[:20_000], order[20_000:]
    ice = InductiveEvaluator(LogisticRegression(), search="accuracy", random_state=seed, verbose=False)
    ice.fit(X[past], y[past])
    error, found = float(np.mean(ice.predict(X[later]) != y[later])) / 2, []
    for name, way in WAYS.items():
        try:
            decisions = ice.rethreshold(way(error, delta=DELTA)).decide(X[later])
        except InfeasibleError:
            found.append((name, 1, 1.0, False))
            continue
        wrong = (decisions.labels != y[later])[decisions.accepted].mean()
        found.append((name, 0, float(decisions.rejected.mean()), bool(wrong > error)))
    return found


def starts() -> str:
    """Every way to start, on simulated problems and on fitted detectors."""
    settings = [
        (n_classes, flipped, n, aim)
        for n_classes in (2, 5)
        for flipped in (0.0, 0.05)
        for n in (1000, 3000, 10_000)
        for aim in ((0.25, 0.5) if flipped == 0 else (0.6, 0.8))
    ]
    found = run_all(simulated, settings, range(DRAWS))
    groups: list[list[list[Row]]] = [
        [draw for (k, *_), draws in found.items() for draw in draws if k == n_classes] for n_classes in (2, 5)
    ]
    fits = run_all(fitted, [(state,) for state in range(PROBLEMS)], SEEDS)
    groups.append([draw for draws in fits.values() for draw in draws])
    rows = []
    for i, name in enumerate(WAYS):
        cells = []
        for group in groups:
            _, infeasible, rejected, broken = zip(*(draw[i] for draw in group), strict=True)
            cells += [f"{sum(infeasible)}", f"{np.mean(rejected):.3f}", f"{sum(broken)}"]
        rows.append([name, *cells])
    sizes = [f"{len(group):,}" for group in groups]
    names = [f"two classes, {sizes[0]} draws", f"five classes, {sizes[1]}", f"fitted detectors, {sizes[2]}"]
    head = [f"{name}: {cell}" if cell == "infeasible" else cell for name in names for cell in _CELLS]
    return markdown(["tests start at", *head], rows)


_CELLS = ("infeasible", "rejected", "broken")
