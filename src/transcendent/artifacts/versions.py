"""Versions of libraries when an artifact was written, compared with the installed ones."""

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from transcendent._utils.provenance import versions

_COMPARED = ("transcendent", "scikit-learn", "numpy", "scipy", "python")
_HOLD_MODELS = ("transcendent", "scikit-learn", "lightgbm", "xgboost")


class VersionDifference(NamedTuple):
    """A library, its version when the artifact was written, and the installed one (None if there is none)."""

    library: str
    written: str
    here: str | None

    @property
    def matters(self) -> bool:
        """Whether models may behave differently: their library has another major or minor version."""
        return self.library in _HOLD_MODELS and _minor(self.written) != _minor(self.here)


def find_differences(written: Mapping[str, str], boosters: Iterable[str]) -> list[VersionDifference]:
    """Return the differences, those that matter first; ``boosters`` are libraries to compare as well."""
    here: dict[str, str | None] = {**versions(), **{name: _version(name) for name in boosters}}
    found = [
        VersionDifference(name, written[name], here[name])
        for name in (*_COMPARED, *boosters)
        if name in written and written[name] != here[name]
    ]
    return sorted(found, key=lambda difference: not difference.matters)


def in_words(differences: Iterable[VersionDifference]) -> str:
    """Return a sentence that names both versions of each library."""
    here = ((f"{d.library} {d.written}", f"under {d.here}" if d.here else "without it") for d in differences)
    return f"It was written under {'; under '.join(f'{old} and is read {new}' for old, new in here)}."


def _minor(version: str | None) -> list[str]:
    return re.findall(r"\d+", version or "")[:2]


def _version(module: str) -> str | None:
    try:
        return str(import_module(module).__version__)
    except ImportError:
        return None
