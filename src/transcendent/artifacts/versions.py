"""The versions an artifact was written under, compared with those it is read under."""

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from transcendent._utils.provenance import versions

_COMPARED = ("transcendent", "scikit-learn", "numpy", "scipy", "python")
_HOLD_MODELS = ("transcendent", "scikit-learn", "lightgbm", "xgboost")


class VersionDifference(NamedTuple):
    """A library, the version of it that wrote an artifact, and the one that is here (None: it is not)."""

    library: str
    written: str
    here: str | None

    @property
    def matters(self) -> bool:
        """Whether a library that holds models has another major or minor version: its models may differ."""
        return self.library in _HOLD_MODELS and _minor(self.written) != _minor(self.here)


def find_differences(written: Mapping[str, str], boosters: Iterable[str]) -> list[VersionDifference]:
    """The differences, those that matter first; of boosters (names of libraries) only those in use."""
    here: dict[str, str | None] = {**versions(), **{name: _version(name) for name in boosters}}
    compared = (*_COMPARED, *boosters)
    found = [
        VersionDifference(name, written[name], here[name])
        for name in compared
        if name in written and written[name] != here[name]
    ]
    return sorted(found, key=lambda difference: not difference.matters)


def in_words(differences: Iterable[VersionDifference]) -> str:
    """What an artifact was written under and is read under."""
    said = [f"{d.library} {d.written} and is read under {d.here or 'none'}" for d in differences]
    return f"It was written under {'; under '.join(said)}."


def _minor(version: str | None) -> list[str]:
    return re.findall(r"\d+", version or "")[:2]


def _version(module: str) -> str | None:
    try:
        return str(import_module(module).__version__)
    except ImportError:
        return None
