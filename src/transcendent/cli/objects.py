"""Detectors, measures, searches and rejectors from the tables of a TOML file."""

import inspect
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import groupby
from typing import Any

import transcendent
from transcendent import baselines
from transcendent._utils.text import suggestion
from transcendent.cli.settings import Settings, UsageError, fresh
from transcendent.decisions import check_budget
from transcendent.measures.names import find_measure
from transcendent.metrics.ratios import resolve_metric
from transcendent.thresholds.base import parse_constraint
from transcendent.thresholds.exact import resolve_search

_LIBRARIES = ("sklearn", "lightgbm", "xgboost")
_OF_REJECTORS = ("type", "detector", "budget")
_SEARCHES = ("ExactSearch", "GuaranteedSearch", "RandomSearch", "GridSearch", "QuartileSearch")


def build_rejectors(settings: Settings) -> dict[str, Any]:
    """The rejectors under ``[rejectors]``, by name; without that table, an inductive evaluator."""
    table = settings.table("rejectors")
    if not table.values:
        return {"ICE": transcendent.InductiveEvaluator(build_detector(settings))}
    return {name: _build_rejector(name, table.table(name), settings) for name in table.values}


def build_detector(settings: Settings) -> Any:
    """The classifier, or pipeline of ``steps``, under ``detector``."""
    table = settings.table("detector")
    if not table.values:
        raise settings.error('there is no [detector]; for example: class = "sklearn.svm.LinearSVC"')
    steps = table.get("steps", list)
    if steps is None:
        return _check_classifier(_build_class(table), table, "class")
    table.check(["steps"])
    if not steps or "columns" in _element(table, "steps", len(steps) - 1).values:
        raise table.error("the last of the steps is a classifier of all columns.", "steps")
    from sklearn.pipeline import make_pipeline

    *before, last = _build_steps([_element(table, "steps", i) for i in range(len(steps))])
    if not all(hasattr(step, "transform") for step in before):
        raise table.error("the last of the steps is a classifier, the others transform rows.", "steps")
    return make_pipeline(*before, _check_classifier(last, table, "steps"))


def _check_classifier(detector: Any, table: Settings, key: str) -> Any:
    from sklearn.base import is_classifier

    if not is_classifier(detector):
        kind = type(detector).__name__
        raise table.error(f"{kind} is not a classifier, so it cannot be a detector or its last step.", key)
    return detector


def _build_steps(tables: list[Settings]) -> Iterator[Any]:
    """The steps; neighbours that name their ``columns`` are one step, which lets other columns pass."""
    from sklearn.compose import ColumnTransformer

    for some_columns, group in groupby(tables, key=lambda table: "columns" in table.values):
        if not some_columns:
            yield from map(_build_class, group)
            continue
        parts = []
        for table in group:
            columns = table.get("columns", list)
            if not all(isinstance(name, str) for name in columns):
                raise table.error("columns is a list of names.", "columns")
            rest = replace(table, values=fresh(table.values, "columns"))
            parts.append((f"{rest.values.get('class', '')}".rpartition(".")[2], _build_class(rest), columns))
        named = [(f"{name}-{i}", step, columns) for i, (name, step, columns) in enumerate(parts)]
        yield ColumnTransformer(named, remainder="passthrough", verbose_feature_names_out=False)


def build_search(objective: str, max_rejection: float | None, constraints: list[str]) -> Any:
    """An exact search from what is given on the command line."""
    try:
        resolve_metric(objective)
        parsed = [parse_constraint(text) for text in constraints]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return transcendent.ExactSearch(objective, max_rejection=max_rejection, constraints=parsed)


def _build_rejector(name: str, table: Settings, settings: Settings) -> Any:
    kind = table.get("type", str, name)
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "ICE": (transcendent.InductiveEvaluator, {}),
        "CCE": (transcendent.CrossConformalEvaluator, {}),
        "approx-TCE": (transcendent.TransductiveEvaluator, {}),
        "TCE": (transcendent.TransductiveEvaluator, {"cv": "loo"}),
        "probability": (baselines.ProbabilityThresholds, {}),
        "CP-Reject": (baselines.CPReject, {}),
        "DroidEvolver": (baselines.DroidEvolver, {}),
    }
    if kind not in kinds:
        key = ["type"] if "type" in table.values else []
        raise table.error(f"there is no type {kind!r} of rejector{suggestion(kind, kinds)}", *key)
    if "estimator" in table.values:
        raise table.error("the detector of a rejector is given as detector = { class = ... }.", "estimator")
    make, given = kinds[kind]
    given = given | fresh(table.values, *_OF_REJECTORS)
    if "measure" in given:
        given["measure"] = _build_measure(table, table.values["measure"], "measure")
    if "search" in given:
        given["search"] = _build_search(table)
    if "judge" in given:
        given["judge"] = _build_class(table.table("judge"))
    if kind != "DroidEvolver":
        given["estimator"] = build_detector(table if "detector" in table.values else settings)
    return _within_budget(_call(make, given, table, _OF_REJECTORS), table)


def _within_budget(rejector: Any, table: Settings) -> Any:
    """Held to the ``budget``: a share of each batch, or a whole number of its objects."""
    budget = table.get("budget", (int, float))
    if budget is None:
        return rejector
    rate, count = (None, budget) if isinstance(budget, int) else (budget, None)
    with table.at("budget"):
        check_budget(rate, count)
    return transcendent.RejectionBudget(rejector, rate=rate, count=count)


def _build_measure(table: Settings, value: Any, key: str) -> Any:
    """A measure from its name, or from a table with its class and parameters; members are in a list."""
    if value == "auto":
        return value
    if isinstance(value, str):
        with table.at(key):
            make = find_measure(value)
        return _call(make, {}, table)
    inner = table.table(key) if isinstance(table.values.get(key), dict) else table
    with inner.at("class"):
        make = find_measure(inner.require("class", str, 'for example class = "NeighbourRatio"'))
    given = {one: _value(inner, one) for one in fresh(inner.values, "class", "measures")}
    if "measures" in inner.values:
        given["measures"] = [
            _build_measure(inner, one, "measures")
            if isinstance(one, str)
            else _build_measure(_element(inner, "measures", i), one, "class")
            for i, one in enumerate(inner.get("measures", list))
        ]
    return _call(make, given, inner)


def _build_search(table: Settings) -> Any:
    """A search from a table with its class and parameters; the name of an objective stays as it is."""
    if isinstance(table.values["search"], str):
        with table.at("search"):
            resolve_search(table.values["search"], 2)
        return table.values["search"]
    inner = table.table("search")
    name, given = inner.get("class", str, "ExactSearch"), fresh(inner.values, "class")
    if name not in _SEARCHES:
        raise inner.error(f"there is no search {name!r}{suggestion(name, _SEARCHES)}", "class")
    if not 0 <= inner.get("max_rejection", (int, float), 0) <= 1:
        raise inner.error("max_rejection is a share between 0 and 1.", "max_rejection")
    with inner.at("objective"):
        resolve_metric(given.get("objective", "f1"))
    if "constraints" in given:
        texts = inner.get("constraints", (list, str))
        with inner.at("constraints"):
            texts = [texts] if isinstance(texts, str) else texts
            given["constraints"] = [parse_constraint(text) for text in texts]
    return _call(getattr(transcendent, name), given, inner)


def _build_class(table: Settings) -> Any:
    """An object of scikit-learn, LightGBM or XGBoost; the table's other keys are its parameters."""
    path = table.require("class", str, 'for example class = "sklearn.svm.LinearSVC"')
    library, _, _ = path.partition(".")
    module, _, name = path.rpartition(".")
    if library not in _LIBRARIES or not module:
        raise table.error(
            f"class = {path!r} is not a class of {', '.join(_LIBRARIES)} by its full name, such as "
            "sklearn.svm.LinearSVC.",
            "class",
        )
    try:
        make = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package = "scikit-learn" if library == "sklearn" else library
        raise table.error(f"{error}; to install it: pip install {package}", "class") from None
    except AttributeError:
        known = [one for one in dir(import_module(module)) if one[0].isupper()]
        raise table.error(f"{module} has no {name}{suggestion(name, known)}", "class") from None
    if not inspect.isclass(make) or not hasattr(make, "fit"):
        raise table.error(f"{path} is not a detector or a step of a pipeline.", "class")
    parameters = {key: _value(table, key) for key in fresh(table.values, "class")}
    return _call(make, parameters, table)


def _value(table: Settings, key: str) -> Any:
    """A parameter; a table with a class in it is an object again."""
    value = table.values[key]
    return _build_class(table.table(key)) if isinstance(value, dict) and "class" in value else value


def _element(table: Settings, key: str, i: int) -> Settings:
    values = table.values[key][i]
    if not isinstance(values, dict):
        raise table.error(f"{key} is a list of tables, each with a class, not {values!r:.60}.", key)
    return Settings(table.path, table.text, values, (*table.keys, key), i)


def _call(make: Any, given: dict[str, Any], table: Settings, known: Collection[str] = ()) -> Any:
    parameters = inspect.signature(make).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key, value in given.items():
        if key not in parameters and not takes_any:
            words = [*known, *(name for name in parameters if name != "estimator")]
            raise table.error(f"{make.__name__} has no parameter {key!r}{suggestion(key, words)}", key)
        if isinstance(value, list) and key in parameters and isinstance(parameters[key].default, tuple):
            given = given | {key: tuple(value)}  # TOML knows lists only
    try:
        made = make(**given)
        if hasattr(made, "_parameter_constraints"):
            made._validate_params()  # scikit-learn's own check, which it makes in fit
    except (ValueError, TypeError) as error:
        wrong = next((key for key in given if f"'{key}'" in str(error)), None)
        raise table.error(f"{make.__name__}: {error}", *([wrong] if wrong else [])) from None
    return made
