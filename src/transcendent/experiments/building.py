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
from transcendent.experiments.toml import TomlTable
from transcendent.measures.names import find_measure
from transcendent.metrics.ratios import resolve_metric
from transcendent.thresholds.base import parse_constraint
from transcendent.thresholds.exact import resolve_search

LIBRARIES = ("sklearn", "lightgbm", "xgboost")
_KINDS: dict[Any, tuple[type, ...]] = {
    int: (int,),
    int | None: (int,),
    float: (int, float),
    float | None: (int, float),
    bool: (bool,),
    str: (str,),
}
_OF_REJECTORS = ("type", "detector", "budget", "window")
_SEARCHES = ("ExactSearch", "GuaranteedSearch", "RandomSearch", "GridSearch", "QuartileSearch")


def build_rejectors(toml: TomlTable, *, of_scores: bool = False) -> dict[str, Any]:
    """Return the rejectors under ``[rejectors]``, by name; without that table, an inductive evaluator."""
    table = toml.table("rejectors")
    if not table.values and of_scores:
        return {"ICE": transcendent.ScoreEvaluator()}
    if not table.values:
        return {"ICE": transcendent.InductiveEvaluator(build_detector(toml))}
    return {name: _build_rejector(name, table.table(name), toml, of_scores) for name in table.values}


def build_detector(toml: TomlTable) -> Any:
    """Return the classifier, or pipeline of ``steps``, under ``detector``."""
    table = toml.table("detector")
    if not table.values:
        raise toml.error('there is no [detector]; for example: class = "sklearn.svm.LinearSVC"')
    steps = table.get("steps", list)
    if steps is None:
        return _check_classifier(_build_class(table), table, "class")
    table.check(["steps"])
    tables = [_element(table, "steps", i) for i in range(len(steps))]
    if not steps or "columns" in tables[-1].values:
        raise table.error("the last step must be a classifier of all columns.", "steps")
    from sklearn.pipeline import make_pipeline

    *before, last = _build_steps(tables)
    if not all(hasattr(step, "transform") for step in before):
        raise table.error("the last step must be a classifier, and the others must transform rows.", "steps")
    return make_pipeline(*before, _check_classifier(last, table, "steps"))


def _check_classifier(detector: Any, table: TomlTable, key: str) -> Any:
    from sklearn.base import is_classifier

    if not is_classifier(detector):
        kind = type(detector).__name__
        raise table.error(f"{kind} is not a classifier, so it cannot be a detector or its last step.", key)
    return detector


def _build_steps(tables: list[TomlTable]) -> Iterator[Any]:
    """Yield the steps; adjacent steps with ``columns`` become one, which passes on other columns."""
    from sklearn.compose import ColumnTransformer

    for some_columns, group in groupby(tables, key=lambda table: "columns" in table.values):
        if not some_columns:
            yield from map(_build_class, group)
            continue
        named = []
        for i, table in enumerate(group):
            columns = table.get("columns", list)
            if not all(isinstance(name, str) for name in columns):
                raise table.error("columns must be a list of names.", "columns")
            step = _build_class(replace(table, values=_without(table.values, "columns")))
            named.append((f"{type(step).__name__}-{i}", step, columns))
        yield ColumnTransformer(named, remainder="passthrough", verbose_feature_names_out=False)


def _build_rejector(name: str, table: TomlTable, toml: TomlTable, of_scores: bool) -> Any:
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
    if of_scores:
        _check_type_for_scores(table, kind)
        kinds = {"ICE": (transcendent.ScoreEvaluator, {})}
    if kind not in kinds:
        key = ["type"] if "type" in table.values else []
        raise table.error(f"there is no type {kind!r} of rejector{suggestion(kind, kinds)}", *key)
    if "estimator" in table.values:
        raise table.error("write detector = { class = ... } instead of estimator.", "estimator")
    make, given = kinds[kind]
    given = given | _without(table.values, *_OF_REJECTORS)
    if "measure" in given:
        given["measure"] = _build_measure(table, table.values["measure"], "measure")
    if "search" in given:
        given["search"] = _build_search(table)
    if "judge" in given:
        given["judge"] = _build_class(table.table("judge"))
    if kind != "DroidEvolver" and not of_scores:
        given["estimator"] = build_detector(table if "detector" in table.values else toml)
    budget = _read_budget(table)
    rejector = _call(make, given, table, _OF_REJECTORS)
    if (window := table.get("window", int)) is not None:  # a share of a stream instead of each batch
        if budget is None or "rate" not in budget:
            raise table.error("window is for a budget that is a share, such as budget = 0.15.", "window")
        return transcendent.StreamingBudget(rejector, window=window, **budget)
    return rejector if budget is None else transcendent.RejectionBudget(rejector, **budget)


def _read_budget(table: TomlTable) -> dict[str, Any] | None:
    """Return the budget: a share of each batch, or a whole number of its objects."""
    budget = table.values.get("budget")
    if type(budget) is float and 0 < budget < 1:
        return {"rate": budget}
    if type(budget) is int and budget > 0:
        return {"count": budget}
    if budget is not None:
        said = "budget must be a share between 0 and 1 (5% is 0.05), or a whole number of objects."
        raise table.error(said, "budget")
    return None


def _check_type_for_scores(table: TomlTable, kind: str) -> None:
    """Raise if a rejector of scores would need the detector or its features."""
    key = next((key for key in ("measure", "judge", "detector") if key in table.values), "type")
    if key == "type" and kind == "ICE":
        return
    raise table.error(
        f"{kind if key == 'type' else key} needs features, but [detector] names scores only: they are the "
        'measure of type = "ICE".',
        key,
    )


def _build_measure(table: TomlTable, value: Any, key: str) -> Any:
    """Return a measure from its name, or from a table with its class, parameters and list of members."""
    if value == "auto":
        return value
    if isinstance(value, str):
        with table.at(key):
            make = find_measure(value)
        return _call(make, {}, table)
    inner = table.table(key) if isinstance(table.values.get(key), dict) else table
    with inner.at("class"):
        make = find_measure(inner.get("class", str, needed='for example class = "NeighbourRatio"'))
    given = {one: _value(inner, one) for one in _without(inner.values, "class", "measures")}
    if "measures" in inner.values:
        given["measures"] = [
            _build_measure(inner, one, "measures")
            if isinstance(one, str)
            else _build_measure(_element(inner, "measures", i), one, "class")
            for i, one in enumerate(inner.get("measures", list))
        ]
    return _call(make, given, inner)


def _build_search(table: TomlTable) -> Any:
    """Return a search from a table with its class and parameters, or the name of an objective."""
    if isinstance(table.values["search"], str):
        with table.at("search"):
            resolve_search(table.values["search"], 2)
        return table.values["search"]
    inner = table.table("search")
    name, given = inner.get("class", str, "ExactSearch"), _without(inner.values, "class")
    if name not in _SEARCHES:
        raise inner.error(f"there is no search {name!r}{suggestion(name, _SEARCHES)}", "class")
    if not 0 <= inner.get("max_rejection", (int, float), 0) <= 1:
        raise inner.error("max_rejection must be between 0 and 1.", "max_rejection")
    with inner.at("objective"):
        resolve_metric(given.get("objective", "f1"))
    if "constraints" in given:
        texts = inner.get("constraints", (list, str))
        with inner.at("constraints"):
            given["constraints"] = [
                parse_constraint(one) for one in ([texts] if isinstance(texts, str) else texts)
            ]
    return _call(getattr(transcendent, name), given, inner)


def _build_class(table: TomlTable) -> Any:
    """Return an estimator of scikit-learn, LightGBM or XGBoost; the table's other keys are its parameters."""
    path = table.get("class", str, needed='for example class = "sklearn.svm.LinearSVC"')
    library, _, _ = path.partition(".")
    module, _, name = path.rpartition(".")
    if library not in LIBRARIES or not module:
        raise table.error(
            f"class = {path!r} must be the full name of a class of {', '.join(LIBRARIES)}, such as "
            "sklearn.svm.LinearSVC.",
            "class",
        )
    try:
        make = getattr(import_module(module), name)
    except ImportError as error:  # of this library, or of another one that the class needs
        package = "scikit-learn" if library == "sklearn" else library
        hint = f"; to install it: pip install {package}" if isinstance(error, ModuleNotFoundError) else ""
        raise table.error(f"{path} cannot be imported: {error}{hint}", "class") from None
    except AttributeError:
        known = [one for one in dir(import_module(module)) if one[0].isupper()]
        raise table.error(f"{module} has no {name}{suggestion(name, known)}", "class") from None
    if not inspect.isclass(make) or not hasattr(make, "fit"):
        raise table.error(f"{path} is not a detector or a step of a pipeline.", "class")
    return _call(make, {key: _value(table, key) for key in _without(table.values, "class")}, table)


def _value(table: TomlTable, key: str) -> Any:
    """Return a parameter; tables with a class become estimators, alone or in a list, with names or without.

    ``[["svm", { class = ... }]]`` is a list of named estimators, such as a voting classifier needs.
    """
    inner = replace(table, keys=(*table.keys, key))

    def built(value: Any) -> Any:
        if isinstance(value, dict) and "class" in value:
            return _build_class(replace(inner, values=value))
        if isinstance(value, list):
            made = [built(one) for one in value]
            named = len(value) > 1 and isinstance(value[0], str) and isinstance(value[1], dict)
            return tuple(made) if named else made
        return value

    return built(table.values[key])


def _element(table: TomlTable, key: str, i: int) -> TomlTable:
    values = table.values[key][i]
    if not isinstance(values, dict):
        raise table.error(f"{key} must be a list of tables, each with a class, not {values!r:.60}.", key)
    return TomlTable(table.path, table.text, values, (*table.keys, key), i)


def _call(make: Any, given: dict[str, Any], table: TomlTable, known: Collection[str] = ()) -> Any:
    parameters = inspect.signature(make).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key, value in given.items():
        if key not in parameters and not takes_any:
            words = [*known, *(name for name in parameters if name != "estimator")]
            raise table.error(f"{make.__name__} has no parameter {key!r}{suggestion(key, words)}", key)
        if key in table.values and key in parameters and parameters[key].annotation in _KINDS:
            table.get(key, _KINDS[parameters[key].annotation])  # fit would raise, without the line
        if isinstance(value, list) and key in parameters and isinstance(parameters[key].default, tuple):
            given = given | {key: tuple(value)}  # TOML has no tuples
    try:
        made = make(**given)
        if hasattr(made, "_parameter_constraints"):
            made._validate_params()  # scikit-learn would check only in fit
    except (ValueError, TypeError) as error:
        wrong = next((key for key in given if f"'{key}'" in str(error)), None)
        raise table.error(f"{make.__name__}: {error}", *([wrong] if wrong else [])) from None
    return made


def _without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}
