"""What a file of objects holds, and whether a split of it would mislead."""

from pathlib import Path
from typing import Any

import numpy as np

from transcendent._utils.text import some
from transcendent.cli import console
from transcendent.cli.experiment import Experiment, boundary, calendar, check_dates
from transcendent.cli.settings import UsageError
from transcendent.cli.tables import Columns, Objects, read_objects
from transcendent.temporal import Bias, TimeSplit, cut_periods, find_biases, time_split


def describe_file(path: Path, *, columns: Columns, train: str | None, period: str) -> dict[str, Any]:
    """Return objects, classes, features and periods of a file, and the biases of a split."""
    if path.suffix == ".toml":
        experiment = Experiment.read(path)
        objects, cut = experiment.objects, experiment.period
        left_out: list[str] = []
        split = experiment.biases() if "train" in experiment.split.values else None
    else:
        try:
            cut = calendar(period)
        except ValueError as error:
            raise UsageError(f"--period: {error}") from None
        objects, left_out = read_objects(path, columns).without_text()
        if cut is not None and objects.times is not None:
            check_dates(objects.times, "--period none")
        split = _biases(objects, train, cut) if train else None
    shape: tuple[int, ...] = getattr(objects.X, "shape", ())
    found: dict[str, Any] = {"file": objects.name, "objects": len(objects)}
    found["features"] = shape[1] if len(shape) == 2 else None
    if left_out:
        found["left_out"] = left_out
    if objects.y is not None:
        known = objects.with_labels()
        if len(known) < len(objects):
            found["unlabelled"] = len(objects) - len(known)
        labels, counts = np.unique(np.asarray(known.y), return_counts=True)
        found["classes"] = [
            {"class": c, "objects": n} for c, n in zip(labels.tolist(), counts.tolist(), strict=True)
        ]
    if objects.times is not None:
        periods = cut_periods(objects.times, cut)
        found["seen"] = objects.period()
        found["periods"] = dict(zip(periods.labels, periods.counts.tolist(), strict=True))
    if split is not None:
        parts, biases = split
        found |= {"training": len(parts.train), "test": len(parts.test)}
        found["biases"] = [bias._asdict() for bias in biases]
    return found


def in_words(found: dict[str, Any]) -> str:
    """Return the same as text for a person."""
    counts = [
        f"{entry['class']}: {entry['objects']:,} ({entry['objects'] / found['objects']:.1%})"
        for entry in found.get("classes", [])
    ]
    text = console.lines(
        objects=f"{found['objects']:,}",
        features=None if found["features"] is None else f"{found['features']:,}",
        left_out=f"{some(found['left_out'])}: no numbers" if "left_out" in found else None,
        classes=some(counts) or None,
        without_label=f"{found['unlabelled']:,} objects, left out" if "unlabelled" in found else None,
        seen=_span(found["seen"], found["periods"]) if "seen" in found else None,
        training=f"{found['training']:,} objects" if "training" in found else None,
        test=f"{found['test']:,} objects" if "test" in found else None,
    )
    if "biases" not in found:
        return text + "\n\nno split to check: --train TIME, or train under [split], makes one"
    biases = [
        f"{'refused' if b['refuses'] else 'warning'}: {b['name']}: {b['message']}" for b in found["biases"]
    ]
    return "\n".join([text, "", *(biases or ["no bias found in the split"])])


def _span(seen: tuple[str, str], periods: dict[str, int]) -> str:
    sizes = periods.values()
    return f"{seen[0]} to {seen[1]}, {len(periods)} periods of {min(sizes):,} to {max(sizes):,} objects"


def _biases(objects: Objects, train: str, cut: Any) -> tuple[TimeSplit, list[Bias]]:
    objects.labelled("name the columns with --label and --time.")
    split = time_split(objects.times, train=boundary(train, objects.times, cut), period=cut)
    return split, find_biases(objects.X, objects.y, split)
