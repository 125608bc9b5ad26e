"""Numbers and names as people read them."""

import math
from collections.abc import Iterable
from typing import Any

from transcendent.plots.base import shorten
from transcendent.temporal.result import Backtest

UNDEFINED = "–"

_LONGEST_NAME = 48


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; 0% and 100% only where it is exactly that."""
    if math.isnan(share):
        return UNDEFINED
    if share in (0, 1):
        return f"{share:.0%}"
    digits = max(digits, 1) if share < 0.1 or share > 0.99 else digits
    least = 0.1**digits / 100
    if share < least / 2:
        return f"<{least:.{digits}%}"
    if share > 1 - least / 2:
        return f">{1 - least:.{digits}%}"
    return f"{share:.{digits}%}"


def decimal(value: float, digits: int = 3) -> str:
    """A metric."""
    return UNDEFINED if math.isnan(value) else f"{value:.{digits}f}"


def two_decimals(first: float, second: float) -> tuple[str, str]:
    """Two metrics side by side: with two decimals, or three if they are equal with two."""
    digits = 3 if f"{first:.2f}" == f"{second:.2f}" and first != second else 2
    return decimal(first, digits), decimal(second, digits)


def counted(n: int, noun: str) -> str:
    """1 month, 72 months."""
    plural = noun + ("es" if noun.endswith("ss") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def plain(text: Any, length: int = _LONGEST_NAME) -> str:
    """Anyone's text on one line, without control characters, its middle left out if it is long."""
    line = " ".join(str(text).split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return shorten(shown, length) or "(no name)"


def distinct(names: Iterable[Any]) -> list[str]:
    """Names as `plain` shows them; those it makes equal are numbered."""
    seen: dict[str, int] = {}
    shown = []
    for name in map(plain, names):
        seen[name] = seen.get(name, 0) + 1
        shown.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return shown


def joined(parts: list[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def unit_of(result: Backtest) -> str:
    """What a period is called."""
    return str(result.manifest.get("period") or "period")


def positive_name(result: Backtest) -> str:
    """The positive class by name, empty if there is none."""
    return "" if result.positive is None else plain(result.classes[result.positive])
