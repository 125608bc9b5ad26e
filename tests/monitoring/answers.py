"""Answers of a detector, for tests and benchmarks of monitors."""

import numpy as np

from transcendent import Answers
from transcendent._utils.arrays import IntArray


def objects(rng: np.random.Generator, n: int, shift: float = 0.0) -> tuple[Answers, IntArray]:
    """Answers of a detector that errs, with a rare class, and true labels."""
    y = (rng.random(n) < 0.2).astype(int)
    suspicion = np.where(y == 1, 0.8, -0.8) + rng.normal(size=n) + shift
    return Answers((suspicion > 0).astype(int), np.column_stack([suspicion, -suspicion])), y
