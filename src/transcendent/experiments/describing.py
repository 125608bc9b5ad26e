"""A description of objects, and the biases of a split."""

from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.text import suggestion
from transcendent.errors import ArgumentError
from transcendent.experiments.schedule import PERIODS, training_end
from transcendent.experiments.survey import Obstacle, Takes, check_dates, find_problems
from transcendent.tables.frames import Columns
from transcendent.tables.objects import Objects
from transcendent.tables.reading import read_objects
from transcendent.temporal import cut_periods, find_biases, time_split
from transcendent.temporal.periods import Calendar


def describe_file(path: Path, columns: Columns, *, train: str | None, period: str) -> dict[str, Any]:
    """Describe the objects of a file; if ``train`` says where training ends, also the split there."""
    if period not in PERIODS:
        raise ArgumentError("period", f"there is no period {period!r}{suggestion(period, PERIODS)}")
    cut = PERIODS[period]
    objects = read_objects(path, columns)
    objects = objects if cut is None else objects.with_iso_dates()
    problems = find_problems(objects, columns, Takes(), dates=cut is not None)
    known, found = describe(objects, problems, objects.left_out(cut is not None), cut)
    if not len(known) or train is None:
        return found
    known.labelled("pass the names of their columns as label and time.")
    split = time_split(known.times, train=training_end(train, known.times, cut), period=cut)
    biases = find_biases(known.X, known.y, split)
    return found | {"training": len(split.train), "test": len(split.test), "biases": biases}


def describe(
    objects: Objects, problems: list[Obstacle], left_out: dict[str, int], period: Calendar | None
) -> tuple[Objects, dict[str, Any]]:
    """Return the objects that have a label and a time, and the counts of objects, classes and periods.

    ``left_out`` are the numbers of the others, by cause.
    """
    check_dates(objects, period)
    known = objects.complete(period is not None)
    shape: tuple[int, ...] = getattr(objects.X, "shape", ())
    found: dict[str, Any] = {
        "file": objects.name,
        "objects": len(objects),
        "features": shape[1] if len(shape) == 2 else None,
        "problems": problems,
    }
    if known.y is not None:
        labels, counts = np.unique(np.asarray(known.y), return_counts=True)
        found["classes"] = [
            {"class": c, "objects": n} for c, n in zip(labels.tolist(), counts.tolist(), strict=True)
        ]
    if left_out:
        found |= {"left_out": sum(left_out.values()), "left_out_by_cause": left_out}
    if known.times is not None and len(known):
        periods = cut_periods(known.times, period)
        found["seen"] = known.period()
        found["periods"] = dict(zip(periods.labels, periods.counts.tolist(), strict=True))
    return known, found
