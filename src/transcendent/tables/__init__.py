"""Rows from files: Parquet, CSV, npz and libsvm."""

from transcendent.tables.objects import Objects
from transcendent.tables.reading import read_table

__all__ = ["Objects", "read_table"]
