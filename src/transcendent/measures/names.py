"""Measures by their names, as evaluators, TOML files and the command line take them."""

import re
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from transcendent._utils.estimators import seeded
from transcendent._utils.text import suggestion
from transcendent.errors import MeasureError
from transcendent.measures.base import Measure

_CLASSES = (
    "CentroidDistance",
    "CombinedMeasure",
    "Density",
    "HiddenLayerSVM",
    "Margin",
    "NeighbourDistance",
    "NeighbourRatio",
    "NeighbourShare",
    "OneVsRestMeasure",
    "Probability",
    "ProbabilityMargin",
    "SecondOpinion",
    "TreeDisagreement",
)
_WORDS = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): name for name in _CLASSES} | {
    "drift": "drift_measure"
}


def find_measure(name: str) -> Callable[..., Measure]:
    """Return what makes the measure of a name: ``"neighbour_ratio"`` or ``"NeighbourRatio"``, ``"drift"``."""
    found = _WORDS.get(name, name)
    if found not in (*_CLASSES, "drift_measure"):
        known = (*_CLASSES, "drift") if name[:1].isupper() else ("auto", *_WORDS)
        raise MeasureError(f"there is no measure {name!r}{suggestion(name, known)}")
    make: Callable[..., Measure] = getattr(import_module("transcendent.measures"), found)
    return make


def from_name(measure: Any, random_state: Any = None) -> Any:
    """Return the measure that a name stands for, seeded; anything else, and ``"auto"``, as it is."""
    if not isinstance(measure, str) or measure == "auto":
        return measure
    make = find_measure(measure)
    needed = [name for name, given in signature(make).parameters.items() if given.default is given.empty]
    if needed:
        raise MeasureError(
            f"the measure {measure!r} cannot be given by its name alone, since it takes "
            f"{' and '.join(needed)}: pass a {make.__name__}."
        )
    return make() if random_state is None else seeded(make(), random_state)
