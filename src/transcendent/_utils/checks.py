"""Checks of settings, and of the columns of decisions."""

from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

_KINDS = {  # of NumPy
    "accepted": "b",
    "votes": "iu",
    "doubts": "iu",
    **dict.fromkeys(("credibility", "confidence", "p_values"), "iuf"),
}
_KINDS_IN_WORDS = {"b": "booleans", "iu": "whole numbers", "iuf": "numbers"}


def check_shares(*, ends: Literal["included", "excluded"], **shares: Any) -> None:
    """Raise unless each value is a number between 0 and 1, with or without these ends."""
    for name, share in shares.items():
        number = float(share) if isinstance(share, Real) else float("nan")
        if not (0 <= number <= 1 if ends == "included" else 0 < number < 1):
            where = "between" if ends == "included" else "strictly between"
            raise ValueError(f"{name} must be {where} 0 and 1 (5% is 0.05), not {share!r}.")


def check_choices(literal: Any, **values: Any) -> None:
    """Raise unless each value is one of those that a `Literal` type lists."""
    for name, value in values.items():
        if value not in get_args(literal):
            raise ValueError(f"{name} must be one of {get_args(literal)}, not {value!r}.")


def check_column(name: str, column: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuse a column of decisions with another shape or type, and NaN in what ranks objects."""
    if column.shape != shape:
        raise ValueError(f"{name} of decisions must have shape {shape}, not {column.shape}.")
    kinds = _KINDS.get(name)
    if kinds is not None and column.dtype.kind not in kinds:
        hint = f": pass {name}.astype(bool)" if kinds == "b" and column.dtype.kind in "iuf" else ""
        raise TypeError(f"{name} of decisions must be {_KINDS_IN_WORDS[kinds]}, not {column.dtype}{hint}.")
    # Only NaN differs from itself; this is quicker than isnan, which matters to small requests.
    if name in ("credibility", "confidence") and np.count_nonzero(column != column):
        raise ValueError(
            f"{name} of decisions is NaN in row {np.flatnonzero(np.isnan(column))[0]}, so that the object "
            "cannot be ranked: pass a number below all others for an answer that is not to be trusted."
        )
