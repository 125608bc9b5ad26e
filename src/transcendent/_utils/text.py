"""Text for messages and terminals."""

import difflib
from collections.abc import Collection, Sequence
from typing import Any

WIDTH = 100
"""Characters in a terminal line."""


def visible(text: str, keep: str = "") -> str:
    """Escape control characters, except those in ``keep``, so that text cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


_MANY = 30


def some(items: Sequence[str], limit: int = 6) -> str:
    """Return the first items, and the number of the others."""
    return ", ".join(items[:limit]) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: 1 class, 72 classes."""
    plural = noun + ("es" if noun.endswith("ss") else "s")
    return f"{n:,} {noun if n == 1 else plural}"


def _shares_letters(word: str, other: str) -> float:
    """Return how many letters two words share, in any order: typing often swaps two."""
    return difflib.SequenceMatcher(None, sorted(word), sorted(other)).ratio()


def suggestion(word: str, known: Collection[str]) -> str:
    """Return the end of a sentence about an unknown word: the closest known word, or all; five if many."""
    by_lower_case = {one.lower(): one for one in known}
    if close := difflib.get_close_matches(word.lower(), by_lower_case):
        best = max(close, key=lambda one: _shares_letters(word.lower(), one))
        return f"; did you mean {by_lower_case[best]!r}?"
    return f"; choose from {some(sorted(known), len(known) if len(known) <= _MANY else 5)}."


def shorten(label: Any, length: int = 14) -> str:
    """Return a name in at most ``length`` characters, without its middle if it is longer."""
    text = str(label)
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-(length - 1 - half) :]}"


def as_percent(share: float) -> str:
    """Return a share that was chosen, such as 0.15, as a percentage: 15%."""
    return f"{100 * share:.4g}%"
