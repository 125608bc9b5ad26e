"""Checks of settings."""

from numbers import Real
from typing import Any, Literal, get_args


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
