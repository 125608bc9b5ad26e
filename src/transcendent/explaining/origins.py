"""Columns after transformers, traced back to the columns before them."""

import re
from copy import copy
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from transcendent._utils.arrays import IntArray, column_names

_TOKEN = re.compile(r"⟦(\d+)⟧")


def trace_columns(transformers: list[Any], X: Any) -> IntArray | None:
    """Return, for each column after the transformers, the column of ``X`` that it comes from.

    None if a column comes from several, as in a PCA, or if a transformer does not say.
    """
    origins: IntArray = np.arange(X.shape[1])
    for transformer in transformers:
        step = _origins(transformer, X, len(origins))
        if step is None:
            return None
        origins, X = origins[step], transformer.transform(X)
    return origins


def _origins(transformer: Any, X: Any, width: int) -> IntArray | None:
    """Return the column before a transformer that each column after it comes from."""
    if isinstance(transformer, str):
        return np.arange(width) if transformer == "passthrough" else np.empty(0, dtype=np.intp)
    if isinstance(transformer, FrozenEstimator):
        return _origins(transformer.estimator, X, width)
    if isinstance(transformer, Pipeline):
        steps = [step for _, step in transformer.steps if step not in (None, "passthrough")]
        return trace_columns(steps, X)
    if isinstance(transformer, ColumnTransformer):
        return _of_column_transformer(transformer, X)
    if isinstance(transformer, FeatureUnion):
        kept = [step for _, step in transformer.transformer_list if step != "drop"]
        return _joined([_origins(step, X, width) for step in kept])
    return _by_names(transformer, width)


def _of_column_transformer(transformer: ColumnTransformer, X: Any) -> IntArray | None:
    parts: list[IntArray | None] = []
    # In the order of the columns after it, which is not always that of the transformers.
    starts = {name: cut.start for name, cut in transformer.output_indices_.items()}
    for name, step, columns in sorted(transformer.transformers_, key=lambda each: starts[each[0]]):
        if step == "drop" or transformer.output_indices_[name] == slice(0, 0):
            continue
        taken = _positions(columns, X)
        own = _origins(step, _take(X, taken), len(taken))
        parts.append(None if own is None else taken[own])
    return _joined(parts)


def _positions(columns: Any, X: Any) -> IntArray:
    """Return the positions of columns that a `ColumnTransformer` names in any of its ways."""
    names = column_names(X) or []
    if isinstance(columns, slice):
        ends = [names.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        stop = ends[1] + 1 if isinstance(columns.stop, str) else ends[1]  # the last name is included
        return np.arange(X.shape[1])[ends[0] : stop : columns.step]
    listed = np.atleast_1d(np.asarray(columns, dtype=object)).tolist()
    if listed and all(isinstance(each, bool | np.bool_) for each in listed):
        return np.flatnonzero(listed)
    places = [names.index(each) if isinstance(each, str) else int(each) for each in listed]
    return np.arange(X.shape[1])[places]


def _take(X: Any, columns: IntArray) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[:, columns]
    return X[:, columns]


def _joined(parts: list[IntArray | None]) -> IntArray | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return np.concatenate([np.empty(0, dtype=np.intp), *known])


def _by_names(transformer: Any, width: int) -> IntArray | None:
    """Trace columns by the names that a transformer gives to columns with numbers for names."""
    numbered = np.array([f"⟦{j}⟧" for j in range(width)], dtype=object)
    renamed = copy(transformer)
    if hasattr(renamed, "feature_names_in_"):
        renamed.feature_names_in_ = numbered  # it would refuse other names than those of its fit
    try:
        names = renamed.get_feature_names_out(numbered)
    except (AttributeError, ValueError):
        return None
    found = [_TOKEN.findall(str(name)) for name in names]
    if any(len(set(tokens)) != 1 for tokens in found):
        return None
    return np.array([int(tokens[0]) for tokens in found], dtype=np.intp)
