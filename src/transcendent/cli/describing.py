"""What a file of objects holds, and whether a split of it would mislead."""

from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.text import some
from transcendent.cli import console
from transcendent.cli.experiment import Experiment, boundary, calendar, check_dates
from transcendent.cli.settings import UsageError
from transcendent.cli.survey import Problem, Takes, find_problems, listed
from transcendent.cli.tables import Columns, Objects, read_objects
from transcendent.temporal import Bias, TimeSplit, cut_periods, find_biases, time_split


def describe_file(path: Path, *, columns: Columns, train: str | None, period: str) -> dict[str, Any]:
    """Return objects, classes, features and periods of a file, and the biases of a split."""
    if path.suffix == ".toml":
        experiment = Experiment.read(path)
        cut = experiment.period
        objects, problems = experiment.surveyed
        known = _settled(objects, cut, 'period = "none" under [split]')
        split = experiment.biases(known) if len(known) and "train" in experiment.split.values else None
    else:
        try:
            cut = calendar(period)
        except ValueError as error:
            raise UsageError(f"--period: {error}") from None
        objects = read_objects(path, columns)
        problems = find_problems(objects, columns, Takes(), dates=cut is not None)
        known = _settled(objects, cut, "--period none")
        split = _biases(known, train, cut) if len(known) and train else None
    shape: tuple[int, ...] = getattr(objects.X, "shape", ())
    found: dict[str, Any] = {"file": objects.name, "toml": path.suffix == ".toml", "objects": len(objects)}
    found["features"] = shape[1] if len(shape) == 2 else None
    found["problems"] = [problem._asdict() for problem in problems]
    if known.y is not None:
        labels, counts = np.unique(np.asarray(known.y), return_counts=True)
        found["classes"] = [
            {"class": c, "objects": n} for c, n in zip(labels.tolist(), counts.tolist(), strict=True)
        ]
    if len(known) < len(objects):
        found["left_out"] = len(objects) - len(known)
    if known.times is not None and len(known):
        periods = cut_periods(known.times, cut)
        found["seen"] = known.period()
        found["periods"] = dict(zip(periods.labels, periods.counts.tolist(), strict=True))
    if split is not None:
        parts, biases = split
        found |= {"training": len(parts.train), "test": len(parts.test)}
        found["biases"] = [bias._asdict() for bias in biases]
    return found


def in_words(found: dict[str, Any]) -> str:
    """Return the same as text for a person."""
    classes = found.get("classes", [])
    labelled = sum(entry["objects"] for entry in classes)
    counts = [f"{c['class']}: {c['objects']:,} ({c['objects'] / labelled:.1%})" for c in classes]
    text = console.lines(
        objects=f"{found['objects']:,}",
        features=None if found["features"] is None else f"{found['features']:,}",
        left_out=f"{found['left_out']:,} without label or time" if "left_out" in found else None,
        classes=some(counts) or None,
        seen=_span(found["seen"], found["periods"]) if "seen" in found else None,
        training=f"{found['training']:,} objects" if "training" in found else None,
        test=f"{found['test']:,} objects" if "test" in found else None,
    )
    if found["problems"]:
        problems = [Problem(**problem) for problem in found["problems"]]
        text += f"\n\nto settle in an experiment, before a fit\n{listed(problems)}"
        text += "" if found["toml"] else f"\n\ntranscendent init {found['file']} writes one"
    if "biases" not in found:
        return text + "\n\nno split to check: --train TIME, or train under [split], makes one"
    biases = [
        f"{'refused' if b['refuses'] else 'warning'}: {b['name']}: {b['message']}" for b in found["biases"]
    ]
    return "\n".join([text, "", *(biases or ["no bias found in the split"])])


def _settled(objects: Objects, cut: Any, none: str) -> Objects:
    """The objects that have a label and a time, as far as these are known at all."""
    if cut is not None:
        check_dates(objects, none)
    return objects.complete(cut is not None)


def _span(seen: tuple[str, str], periods: dict[str, int]) -> str:
    sizes = periods.values()
    return f"{seen[0]} to {seen[1]}, {len(periods)} periods of {min(sizes):,} to {max(sizes):,} objects"


def _biases(objects: Objects, train: str, cut: Any) -> tuple[TimeSplit, list[Bias]]:
    objects.labelled("name the columns with --label and --time.")
    split = time_split(objects.times, train=boundary(train, objects.times, cut), period=cut)
    return split, find_biases(objects.X, objects.y, split)
