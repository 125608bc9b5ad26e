"""Decisions about tables of any size: Parquet in, Parquet out, on as many processes as there are."""

from transcendent.batch.table import TableDecisions, decide_table

__all__ = ["TableDecisions", "decide_table"]
