"""Checks of what skops built, before compiled code follows numbers in it without checking them.

They refuse what is known to crash a process or to open files. They cannot show that a file is harmless: only
a signature says who made it.
"""

from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.cluster._kmeans import _BaseKMeans
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, _VectorizerMixin
from sklearn.neighbors._base import NeighborsBase
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder
from sklearn.tree._tree import Tree
from sklearn.utils._param_validation import validate_parameter_constraints

from transcendent._utils.arrays import check_sparse
from transcendent.errors import ArtifactError

_MERSENNE_TWISTER_SIZE = 624
_PHILOX_SIZE = 4
_MOST_JOBS = 1024


def check_contents(root: Any) -> None:
    """Refuse indices outside of what they point into, and parameters that are invalid or open files."""
    for thing in reachable(root):
        if sp.issparse(thing):
            _check_sparse(thing)
        elif isinstance(thing, np.random.RandomState):
            _check_position(thing._bit_generator.state)
        elif isinstance(thing, np.random.Generator):
            _check_position(thing.bit_generator.state)
        elif isinstance(thing, BaseEstimator):
            _check_estimator(thing)
    check_opens_no_files(root)


def check_opens_no_files(root: Any) -> None:
    """Refuse estimators that would open files that rows or parameters name."""
    for thing in reachable(root):
        if isinstance(thing, _VectorizerMixin) and thing.input != "content":
            _refuse(thing, f"takes rows for files to open (input={thing.input!r:.40}); use input='content'")
        if _of_sklearn(thing) and (memory := vars(thing).get("memory")) is not None:
            _refuse(thing, f"would write to a folder (memory={memory!r:.80}); use memory=None")


def reachable(root: Any) -> Iterator[Any]:
    """Yield everything that can be reached from the root, itself included, each once."""
    seen, waiting = set(), [root]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | None):
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, Mapping):
            waiting.extend(thing.keys())
            waiting.extend(thing.values())
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting.extend(thing)
        elif isinstance(thing, np.ndarray) and thing.dtype == object:
            waiting.extend(np.asarray(thing).ravel().tolist())
        if not isinstance(thing, type | FunctionType | ModuleType):
            waiting.extend(getattr(thing, "__dict__", {}).values())


def _of_sklearn(thing: Any) -> bool:
    own = type(thing).__module__.startswith("sklearn.")
    return isinstance(thing, Pipeline) or (own and isinstance(thing, BaseEstimator))


def _refuse(thing: Any, reason: str) -> None:
    raise ArtifactError(f"its {type(thing).__name__} {reason}.")


def _check_sparse(matrix: Any) -> None:
    if matrix.format in ("csr", "csc", "bsr"):
        check_sparse(matrix, "a matrix in it")
    elif matrix.format == "coo":
        for indices, size in zip(matrix.coords, matrix.shape, strict=True):
            if not _within(indices, size):
                _refuse(matrix, "has indices outside of it")
    else:
        _refuse(matrix, "is of a format that no rejector holds")


def _check_position(state: Mapping[str, Any]) -> None:
    """Refuse a source of random numbers that would read outside of its state."""
    in_twister, in_buffer = state["state"].get("pos", 0), state.get("buffer_pos", 0)
    if not (0 <= in_twister <= _MERSENNE_TWISTER_SIZE and 0 <= in_buffer <= _PHILOX_SIZE):
        raise ArtifactError("it holds a source of random numbers with a position outside of its state.")


def _check_estimator(estimator: Any) -> None:
    held = vars(estimator)
    if _of_sklearn(estimator):
        constraints = getattr(type(estimator), "_parameter_constraints", {})
        given = {name: held[name] for name in constraints if name in held}
        validate_parameter_constraints(constraints, given, type(estimator).__name__)
    if isinstance(jobs := held.get("n_jobs"), int | np.integer) and jobs > _MOST_JOBS:
        _refuse(estimator, f"would start {jobs:,} processes or threads (n_jobs)")
    for attribute, kind, check in _CHECKS:
        if attribute in held and isinstance(estimator, kind):
            check(estimator)


def _check_vocabulary(vectorizer: Any) -> None:
    columns = vectorizer.vocabulary_
    if not _within(list(columns.values()), len(columns)):
        _refuse(vectorizer, "has a vocabulary with columns that do not exist")


def _check_distinct(binarizer: Any) -> None:
    if len(set(binarizer.classes_)) < len(binarizer.classes_):
        _refuse(binarizer, "has a class twice")


def _check_trees(boosting: Any) -> None:
    """Refuse anything but a tree where gradient boosting expects one without checking."""
    for estimator in boosting.estimators_.ravel():
        if not isinstance(estimator.tree_, Tree):
            _refuse(boosting, f"has a {type(estimator.tree_).__name__} for a tree")


def _check_neighbours(estimator: Any) -> None:
    shape = (estimator.n_samples_fit_, estimator.n_features_in_)
    n = estimator._fit_X.shape[0]
    if estimator._fit_X.shape != shape:
        _refuse(estimator, f"counts {shape!r:.60} rows and columns; it holds {estimator._fit_X.shape}")
    if "classes_" not in vars(estimator):
        return
    classes = estimator.classes_ if estimator.outputs_2d_ else [estimator.classes_]
    codes = np.asarray(estimator._y).reshape(n, -1)
    if codes.shape[1] != len(classes) or not all(map(_within, codes.T, map(len, classes))):
        _refuse(estimator, "has labels that are none of its classes")


def _check_centres(estimator: Any) -> None:
    centres = estimator.cluster_centers_
    if np.ndim(centres) != 2 or centres.shape[1] != estimator.n_features_in_:
        _refuse(estimator, "has centres of another width than its rows")
    if getattr(estimator, "_n_threads", 1) < 1:
        _refuse(estimator, f"would run on {estimator._n_threads!r:.40} threads")


def _check_one_hot(encoder: Any) -> None:
    """Refuse codes of categories that have no column; where a category is dropped, there is one code more."""
    none = [None] * len(encoder.categories_)
    dropped = encoder._drop_idx_after_grouping
    groups = getattr(encoder, "_default_to_infrequent_mappings", none)
    rare = getattr(encoder, "_infrequent_indices", none)
    dropped = none if dropped is None else dropped
    of_each = (encoder.categories_, encoder._n_features_outs, dropped, groups, rare)
    for categories, width, drop, group, infrequent in zip(*of_each, strict=True):
        codes = np.arange(len(categories)) if group is None else group
        if not _within(codes, width + (drop is not None)) or drop not in (None, *codes):
            _refuse(encoder, "has categories without a column")
        known = infrequent is None or _within(infrequent, len(categories))
        if (group is None) != (infrequent is None) or not known:
            _refuse(encoder, "has infrequent categories that do not exist")


def _within(indices: Any, size: int) -> bool:
    """Return whether all indices are integers from 0 to size - 1."""
    found = np.asarray(indices)
    if found.size == 0:
        return True
    return found.dtype.kind in "iu" and bool(found.min() >= 0 and found.max() < size)


_CHECKS: tuple[tuple[str, Any, Callable[[Any], None]], ...] = (
    ("estimators_", (GradientBoostingClassifier, GradientBoostingRegressor), _check_trees),
    ("n_samples_fit_", NeighborsBase, _check_neighbours),
    ("cluster_centers_", _BaseKMeans, _check_centres),
    ("vocabulary_", (CountVectorizer, DictVectorizer), _check_vocabulary),
    ("categories_", OneHotEncoder, _check_one_hot),
    ("classes_", MultiLabelBinarizer, _check_distinct),
)
