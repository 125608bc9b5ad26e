"""The columns of decided objects, the same for a file and for a table in parts."""

from dataclasses import replace
from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, encode_labels
from transcendent._utils.extras import extra
from transcendent.decisions import Decisions


def named_by_row(file: str, first: int, n: int) -> dict[str, Any]:
    """Return the columns that name n consecutive rows without ids: their file, and their row number in it."""
    name = file.encode(errors="surrogateescape").decode(errors="replace")  # file names need not be UTF-8
    return {"file": _constant(name, n), "row": np.arange(first, first + n)}


def decision_table(names: dict[str, Any], decisions: Decisions, model: str, p_values: bool) -> Any:
    """Return an Arrow table of names of objects, decisions about them, and the digest of the model."""
    if not p_values:
        decisions = replace(decisions, p_values=None)
    decided: dict[str, Any] = decisions.to_dict()
    if decisions.classes.dtype.kind not in "biuf":
        codes = encode_labels(decisions.labels, decisions.classes, "labels")
        decided["label"] = _repeated(codes, decisions.classes)
    return extra("pyarrow", "dask").table(names | decided | {"model": _constant(model, len(decisions))})


def _constant(text: str, n: int) -> Any:
    return _repeated(np.zeros(n, dtype=np.int32), np.array([text]))


def _repeated(codes: IntArray, values: AnyArray) -> Any:
    arrow = extra("pyarrow", "dask")
    return arrow.DictionaryArray.from_arrays(codes.astype(np.int32, copy=False), values.astype(str))
