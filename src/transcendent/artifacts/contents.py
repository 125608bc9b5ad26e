"""Checks of what skops built, made before compiled code follows the numbers in it.

They refuse values that are known to crash a process or to open files. They cannot prove that a file is
harmless: only a signature says who made it.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from gc import get_referents
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import _VectorizerMixin
from sklearn.pipeline import Pipeline
from sklearn.tree._tree import Tree
from sklearn.utils._param_validation import validate_parameter_constraints

from transcendent._utils.arrays import check_sparse
from transcendent.artifacts.estimators import (
    SEARCH_TREES,
    check_fitted,
    check_search_tree,
    check_trees,
    refuse,
    within,
)
from transcendent.errors import ArtifactError

_MERSENNE_TWISTER_SIZE = 624
_PHILOX_SIZE = 4
_MAX_JOBS = 1024
_HOLDERS = (defaultdict, partial, BuiltinMethodType, MethodType)  # their values are not in their __dict__


def check_contents(things: list[Any]) -> None:
    """Refuse indices out of range, and parameters that are invalid or open files."""
    estimators = [thing for thing in things if isinstance(thing, BaseEstimator)]
    check_trees([thing for thing in things if isinstance(thing, Tree)], estimators)
    for thing in things:
        if sp.issparse(thing):
            _check_sparse(thing)
        elif isinstance(thing, np.random.RandomState):
            _check_position(thing._bit_generator.state)
        elif isinstance(thing, np.random.Generator):
            _check_position(thing.bit_generator.state)
        elif isinstance(thing, SEARCH_TREES):
            check_search_tree(thing)
    for estimator in estimators:
        _check_parameters(estimator)
    check_opens_no_files(things)
    for estimator in estimators:
        check_fitted(estimator)


def check_opens_no_files(things: list[Any]) -> None:
    """Refuse estimators that would open files that rows or parameters name."""
    for thing in things:
        if isinstance(thing, _VectorizerMixin) and thing.input != "content":
            refuse(thing, f"reads rows as files to open (input={thing.input!r:.40}); use input='content'")
        if _of_sklearn(thing) and (memory := vars(thing).get("memory")) is not None:
            refuse(thing, f"would write to a folder (memory={memory!r:.80}); use memory=None")


def reachable(root: Any) -> list[Any]:
    """Return every value that can be reached from the root, itself included, once each."""
    found: list[Any] = []
    seen, waiting = set(), [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | None):
            continue
        seen.add(id(thing))
        found.append(thing)
        if isinstance(thing, Mapping):
            waiting.extend(thing.keys())
            waiting.extend(thing.values())
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting.extend(thing)
        elif isinstance(thing, np.ndarray) and thing.dtype == object:
            waiting.extend(np.asarray(thing).ravel().tolist())
        if isinstance(thing, _HOLDERS):
            waiting.extend(get_referents(thing))
        if not isinstance(thing, type | FunctionType | ModuleType):
            waiting.extend(getattr(thing, "__dict__", {}).values())
    return found


def _of_sklearn(thing: Any) -> bool:
    own = type(thing).__module__.startswith("sklearn.")
    return isinstance(thing, Pipeline) or (own and isinstance(thing, BaseEstimator))


def _check_sparse(matrix: Any) -> None:
    if matrix.format in ("csr", "csc", "bsr"):
        check_sparse(matrix, "a matrix in it")
    elif matrix.format == "coo":
        for indices, size in zip(matrix.coords, matrix.shape, strict=True):
            if not within(indices, size):
                refuse(matrix, "has indices outside of it")
    else:
        refuse(matrix, "has a sparse format that rejectors do not use")


def _check_position(state: Mapping[str, Any]) -> None:
    """Refuse a random number generator that would read outside of its state."""
    in_twister, in_buffer = state["state"].get("pos", 0), state.get("buffer_pos", 0)
    if not (0 <= in_twister <= _MERSENNE_TWISTER_SIZE and 0 <= in_buffer <= _PHILOX_SIZE):
        raise ArtifactError("it holds a random number generator with a position outside of its state.")


def _check_parameters(estimator: Any) -> None:
    held = vars(estimator)
    if _of_sklearn(estimator):
        constraints = getattr(type(estimator), "_parameter_constraints", {})
        given = {name: held[name] for name in constraints if name in held}
        validate_parameter_constraints(constraints, given, type(estimator).__name__)
    if isinstance(jobs := held.get("n_jobs"), int | np.integer) and jobs > _MAX_JOBS:
        refuse(estimator, f"would start {jobs:,} processes or threads (n_jobs)")
