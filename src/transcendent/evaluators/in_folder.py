"""Calibration objects too many for memory: what is kept of them is in memory-mapped files of one folder."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from transcendent.arrays import AnyArray, BoolArray, FloatArray, IntArray, chunks, encode_labels
from transcendent.evaluators.calibration import Calibration
from transcendent.files import new_npy
from transcendent.parallel import run
from transcendent.pvalues import ScoreTable, credibility_and_confidence, draw_uniforms

_ROWS = 1 << 20


@dataclass(frozen=True)
class CalibrationInFolder(Calibration):
    """A `Calibration` whose table, credibility and confidence are in files, written and read in chunks.

    The scores are kept as they were given, memory-mapped if they were. The rest of what a `Calibration`
    offers, such as all its p-values, is made in memory when it is asked for.
    """

    folder: Path = field(kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        """With all that is in files, which are not written again."""
        return vars(self)

    @cached_property
    def table(self) -> ScoreTable:
        """The sorted scores new objects are compared with, in ``bag-0.npy``, ``bag-1.npy``, …"""
        return ScoreTable.in_folder(self.scores, self.actual, self.classes, self.folder)

    def credibility_and_confidence(self) -> tuple[FloatArray, FloatArray]:
        """Of the calibration objects, for the label that ``label`` names; in files of these names."""
        return self._judged

    @cached_property
    def _judged(self) -> tuple[FloatArray, FloatArray]:
        n, table = len(self.actual), self.table
        paths = [self.folder / "credibility.npy", self.folder / "confidence.npy"]
        with ExitStack() as files:
            credibility, confidence = (files.enter_context(new_npy(path, np.float64, n)) for path in paths)

            def judge_rows(rows: slice, uniforms: FloatArray | None) -> None:
                part, actual = np.asarray(self.scores[rows], dtype=np.float64), self.actual[rows]
                p = table.left_out_p_values(part, actual, self.form, uniforms)
                codes = self.predicted[rows] if self.label == "predicted" else actual
                credibility[rows], confidence[rows] = credibility_and_confidence(p, codes)

            run(judge_rows, self._draws(), total=-(-n // _ROWS), shared_memory=True)
        return np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r")

    def _draws(self) -> Iterator[tuple[slice, FloatArray | None]]:
        """Chunks of rows with the draws of the smoothed form: the same as if drawn at once."""
        generator = check_random_state(self.random_state)
        for rows in chunks(len(self.actual), _ROWS):
            shape = (rows.stop - rows.start, len(self.classes))
            yield rows, draw_uniforms(self.form, shape, generator)

    def reversed_columns(self) -> BoolArray:
        """Of each class, whether its own members look the stranger ones: than most of the others."""
        medians = np.array([bag[(len(bag) - 1) // 2] / 2 + bag[len(bag) // 2] / 2 for bag in self.table.bags])
        n_below = np.zeros(len(medians), dtype=np.intp)
        for rows in chunks(len(self.actual), _ROWS):
            below = self.scores[rows] < medians
            below[np.arange(len(below)), self.actual[rows]] = False
            n_below += below.sum(axis=0)
        return np.asarray(2 * n_below > len(self.actual) - self.counts)


def store_codes(path: Path, labels: AnyArray, classes: AnyArray, name: str) -> IntArray:
    """Positions of ``labels`` in ``classes``, in a memory-mapped file of as few bytes as they need."""
    with new_npy(path, np.min_scalar_type(-len(classes)), len(labels)) as codes:
        for rows in chunks(len(labels), _ROWS):
            codes[rows] = encode_labels(labels[rows], classes, name)
    stored: IntArray = np.load(path, mmap_mode="r")
    return stored
