"""What a skops file holds where an entry belongs.

Files hold the names of this module, its types and their attributes: renaming one breaks the format.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StoredBooster:
    """Replaces a LightGBM or XGBoost model; ``member`` is the name of its entry."""

    member: str


@dataclass(frozen=True)
class StoredCalibration:
    """Replaces calibration objects, and holds everything about them but the arrays of the entry."""

    member: str
    classes: Any
    form: Any
    label: Any
    merging: Any
    apart: Any = None
