"""Searches that try many thresholds: a grid, and random draws."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, FloatArray, chunks
from transcendent.metrics.ratios import Metric
from transcendent.thresholds.base import Codes, ConstrainedSearch, Constraints, Incumbent, On, SearchResult


class GridSearch(ConstrainedSearch):
    """Tries every combination of ``steps`` equally spaced thresholds from 0 to 1 per class.

    The number of combinations is ``steps ** classes`` (squared for ``on="both"``). This search is for
    comparison with earlier work: `ExactSearch` is faster and misses nothing.

    Parameters
    ----------
    objective, max_rejection, constraints
        As for `ExactSearch`; any number of constraints.
    on : {"credibility", "confidence", "both"}
        Which value gets thresholds; use few ``steps`` for both.
    steps : int
        Thresholds per class.
    max_trials : int
        Largest number of combinations; more raise an error.
    """

    def __init__(
        self,
        objective: str | Metric = "f1",
        *,
        max_rejection: float | None = 0.15,
        constraints: Constraints = (),
        on: On = "credibility",
        steps: int = 101,
        max_trials: int = 10_000_000,
    ) -> None:
        super().__init__(objective, max_rejection=max_rejection, constraints=constraints, on=on)
        self.steps = steps
        self.max_trials = max_trials

    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        problem = self._problem(actual, predicted, values, classes)
        shape = values.shape[1], len(classes)
        dimensions = shape[0] * shape[1]
        if self.steps < 2 or self.steps**dimensions > self.max_trials:
            raise ValueError(
                f"{self.steps} steps for {dimensions} thresholds make {self.steps}^{dimensions} trials. "
                f"A grid has at least 2 steps and at most max_trials={self.max_trials:,} trials: change "
                "steps, or use RandomSearch."
            )
        grid = np.linspace(0, 1, self.steps)
        incumbent = Incumbent()
        for trials in chunks(self.steps**dimensions, problem.counts.batch):
            digits = np.unravel_index(np.arange(trials.start, trials.stop), (self.steps,) * dimensions)
            incumbent.consider(problem, grid[np.stack(digits, axis=1)].reshape(-1, *shape))
        return incumbent.result(problem)


class RandomSearch(ConstrainedSearch):
    """Tries thresholds of 0, then random ones, until ``trials`` or ``patience`` runs out.

    Parameters
    ----------
    objective, max_rejection, constraints
        As for `ExactSearch`; any number of constraints.
    on : {"credibility", "confidence", "both"}
        Which value gets thresholds.
    trials : int
        Largest number of draws.
    patience : int or None
        Stop after this number of draws in a row without an improvement; raise it if there are many thresholds
        to find (several classes, or ``on="both"``).
    random_state : int, RandomState or None
        Seed of the draws.
    """

    def __init__(
        self,
        objective: str | Metric = "f1",
        *,
        max_rejection: float | None = 0.15,
        constraints: Constraints = (),
        on: On = "credibility",
        trials: int = 100_000,
        patience: int | None = 3_000,
        random_state: Any = None,
    ) -> None:
        super().__init__(objective, max_rejection=max_rejection, constraints=constraints, on=on)
        self.trials = trials
        self.patience = patience
        self.random_state = random_state

    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        problem = self._problem(actual, predicted, values, classes)
        shape = values.shape[1], len(classes)
        incumbent = Incumbent()
        incumbent.consider(problem, np.zeros((1, *shape)))
        generator, batch = check_random_state(self.random_state), problem.counts.batch
        for trials in chunks(self.trials, min(batch, 1024) if self.patience else batch):
            draws = generator.random_sample((trials.stop - trials.start, *shape))
            if not incumbent.consider(problem, draws, self.patience):
                break
        return incumbent.result(problem)
