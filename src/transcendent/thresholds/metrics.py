"""The path by which artifacts written earlier name metrics, which are in `transcendent.metrics` now."""

# ruff: noqa: F401
from transcendent.metrics import (
    F1,
    Accuracy,
    ClassRejectionRate,
    Constraint,
    Error,
    MacroF1,
    Precision,
    Recall,
    RejectionRate,
)
