"""What pages show of texts, times and numbers that others have sent."""

import math
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup

_LONGEST = 120
_ODD = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # they have no shape, or change that of others
_BLANK = "\u034f\u115f\u1160\u2800\u3164\uffa0"  # letters and signs without a shape
_ABOVE = {"Mn", "Me"}  # drawn over the character before, and over other lines if there are many
_MOST_ABOVE = 4
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,260}")  # with no other, it is read as browsers read it


def visible(given: Any) -> str:
    """Return a text with a mark for each character that cannot be seen, or that reverses or covers others."""
    text = str(given)
    if text.isascii() and text.isprintable():
        return text
    found, above = [], 0
    for each in text:
        kind = unicodedata.category(each)
        above = above + 1 if kind in _ABOVE else 0
        found.append(_mark(each) if kind in _ODD or each in _BLANK or above > _MOST_ABOVE else each)
    return "".join(found)


def _mark(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"⟨{code:04X}⟩"


def shown(given: Any, longest: int = _LONGEST, uncut: int = 0) -> Markup:
    """Return a short text from a sender as markup, apart from the direction of the text around it.

    The first ``uncut`` characters are all shown, even if the text is longer for it.
    """
    whole = visible(given)
    half = longest // 2 - 1
    head = max(half, uncut)
    if len(whole) <= max(longest, head + half):
        return Markup("<bdi>{}</bdi>").format(whole)
    return Markup('<bdi title="{}">{}…{}</bdi>').format(whole[:4000], whole[:head], whole[-half:])


def whole(given: Any, longest: int = 200) -> Markup:
    """Return a text from a sender as markup; the rest of a long one unfolds."""
    text = visible(given)
    if len(text) <= longest:
        return Markup("<bdi>{}</bdi>").format(text)
    opening = Markup("<details><summary><bdi>{}…</bdi> <small>{:,} characters</small></summary>")
    return opening.format(text[:longest], len(text)) + Markup("<bdi>{}</bdi></details>").format(text)


def linked(given: Any) -> Markup:
    """Return a text from a sender as markup, as a link if it is one of http or https."""
    text = str(given)
    if not _is_link(text):
        return whole(given)
    to_path = len("://".join(urlsplit(text)[:2])) + 1
    seen = shown(text, 80, uncut=to_path)
    return Markup('<a href="{}" rel="noreferrer noopener">{}</a>').format(text, seen)


def _is_link(text: str) -> bool:
    """Return whether a text is a link that leads where it seems to lead."""
    plain = len(text) <= 2000 and visible(text) == text and not any(each.isspace() for each in text)
    if not plain or "\\" in text or not text.startswith(("https://", "http://")):
        return False
    try:
        parts = urlsplit(text)
        return parts.port != 0 and _PLAIN_HOST.fullmatch(parts.netloc) is not None
    except ValueError:
        return False


def moment(given: datetime, now: datetime | None = None) -> Markup:
    """Return a time in UTC, such as 2 Nov 14:20."""
    now, utc = now or datetime.now(UTC), given.astimezone(UTC)
    year = "" if utc.year == now.year else f" {utc.year}"
    words = f"{utc.day} {utc:%b}{year} {utc:%H:%M}"
    return Markup('<time datetime="{}">{}</time>').format(f"{utc:%Y-%m-%dT%H:%M:%SZ}", words)


def ago(given: datetime | float, now: datetime | None = None) -> str:
    """Return how long ago a time was, or a number of seconds, in words."""
    now = now or datetime.now(UTC)
    seconds = given if isinstance(given, int | float) else (now - given).total_seconds()
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "min")):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n:,} {name}{'s' if n > 1 and name != 'min' else ''} ago"
    return "just now"


def number(given: Any) -> str:
    """Return a number with at most three digits that matter, other values as a text."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return str(given)
    if isinstance(given, float) and not math.isfinite(given):
        return "–" if math.isnan(given) else str(given)
    if isinstance(given, int) or given == int(given):
        return f"{int(given):,}" if abs(given) < 1e15 else f"{given:.3g}"
    return f"{given:,.1f}" if abs(given) >= 100 else f"{given:.3g}"


def doubt(kind: str) -> str:
    """Return a kind of doubt as pages call it: an object may be like what was labelled after the fit."""
    return "unlike the calibration" if kind == "like nothing known" else kind


FILTERS = {
    "shown": shown, "whole": whole, "linked": linked, "moment": moment, "ago": ago, "number": number,
    "visible": visible, "doubt": doubt,
}  # fmt: skip
