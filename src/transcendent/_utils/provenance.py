"""Digests of data and rejectors, and versions of libraries, which together identify a run."""

import hashlib
import inspect
import json
import platform
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from transcendent._utils.arrays import IntArray, chunks, column_names, take_column, take_rows

_PACKAGES = ("transcendent", "numpy", "scipy", "scikit-learn", "joblib")
_BLOCK_ROWS = 10_000
_version = cache(version)  # cached because each call reads and parses a file


def digest(*things: Any) -> str:
    """Return the SHA-256 of arrays, sparse matrices, frames or lists."""
    sha = hashlib.sha256()
    for thing in things:
        for piece in _to_bytes(thing):
            sha.update(piece)
    return sha.hexdigest()


def digest_rows(X: Any, rows: IntArray) -> str:
    """Return the SHA-256 of some rows, in their order; a block at a time, so that they are not all copied."""
    return digest([digest(take_rows(X, rows[block])) for block in chunks(len(rows), _BLOCK_ROWS)])


def describe(rejector: Any) -> str:
    """Return a rejector's parameters as text, without memory addresses."""
    text = rejector.__repr__(N_CHAR_MAX=10**6) if isinstance(rejector, BaseEstimator) else repr(rejector)
    return re.sub(r"\s+", " ", re.sub(r" at 0x[0-9a-fA-F]+", "", text))


def fingerprint(name: str, rejector: Any) -> str:
    """Return a digest of a rejector, including its fitted state and the source of the user's own code."""
    params = rejector.get_params(deep=True).values() if isinstance(rejector, BaseEstimator) else []
    try:
        state = joblib.hash(rejector, hash_name="sha1")
    except Exception as error:  # pickling an unsupported value can raise anything
        raise ValueError(
            f"{name} cannot be identified in a folder of results ({error}). Use named functions instead of "
            "lambdas, or run without a folder."
        ) from None
    return digest([str(state), *(_source(thing) for thing in (rejector, *params))])


def versions(*also: str) -> dict[str, str]:
    """Return the versions of Python, of the core dependencies, and of those ``also`` that are imported."""
    imported = {module: sys.modules[module].__version__ for module in also if module in sys.modules}
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}, **imported}


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as they would be after writing and reading JSON."""
    out: dict[str, Any] = json.loads(json.dumps(values, default=_plain))
    return out


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else str(value)


def _source(thing: Any) -> str:
    """Return the source of a function or class, or "" if it is from an installed package."""
    code = thing if inspect.isroutine(thing) or inspect.isclass(thing) else type(thing)
    try:
        installed = "site-packages" in inspect.getfile(code) or code.__module__.startswith("transcendent.")
        return "" if installed else inspect.getsource(code)
    except (TypeError, OSError):
        return ""


def _to_bytes(thing: Any) -> Iterator[Any]:
    if sp.issparse(thing):
        csr = thing.tocsr()
        arrays = [np.array(csr.shape), csr.indptr, csr.indices, csr.data]
    elif (names := column_names(thing)) is not None:
        arrays = [np.array(names), *(take_column(thing, j) for j in range(len(names)))]
    elif isinstance(thing, np.ndarray):
        arrays = [thing]
    else:
        arrays = [np.fromiter(thing, dtype=object, count=len(thing))]
    for array in arrays:
        yield f"{array.shape}{array.dtype}".encode()
        if array.dtype == object:
            yield from (str(item).encode() + b"\0" for item in array.tolist())
        else:
            yield np.ascontiguousarray(array).view(np.uint8).data if array.size else b""
