"""Decisions about tables of any size: Parquet in, Parquet out, on any number of processes."""

from transcendent.batch.result import TableDecisions
from transcendent.batch.table import decide_table

__all__ = ["TableDecisions", "decide_table"]
