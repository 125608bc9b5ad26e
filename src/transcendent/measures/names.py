"""Measures by name, as in evaluators, TOML files and the command line."""

import re
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from transcendent._utils.estimators import seeded
from transcendent._utils.text import suggestion
from transcendent.errors import MeasureError
from transcendent.measures.base import Measure


def find_measure(name: str) -> Callable[..., Measure]:
    """Return the class or function of a name: ``"neighbour_ratio"``, ``"NeighbourRatio"`` or ``"drift"``."""
    measures = import_module("transcendent.measures")  # imported late, since it imports this module
    classes = {
        own: kind for own, kind in vars(measures).items() if isinstance(kind, type) and kind != Measure
    }
    words = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", own).lower(): kind for own, kind in classes.items()}
    words["drift"] = measures.drift_measure
    makers: dict[str, Callable[..., Measure]] = classes | words | {"drift_measure": measures.drift_measure}
    if name not in makers:
        known = (*classes, "drift") if name[:1].isupper() else ("auto", *words)
        raise MeasureError(f"there is no measure {name!r}{suggestion(name, known)}")
    return makers[name]


def from_name(measure: Any, random_state: Any = None) -> Any:
    """Return the measure that a name stands for, seeded; ``"auto"`` and anything else unchanged."""
    if not isinstance(measure, str) or measure == "auto":
        return measure
    make = find_measure(measure)
    parameters = signature(make).parameters.items()
    if required := [name for name, parameter in parameters if parameter.default is parameter.empty]:
        raise MeasureError(
            f"the measure {measure!r} cannot be given by its name alone, since it needs "
            f"{' and '.join(required)}: pass a {make.__name__}."
        )
    return make() if random_state is None else seeded(make(), random_state)
