"""A few of the tables of ``tests.batch.fuzz``: decided in parts as row by row in memory, bit for bit."""

import pytest

from tests.batch.fuzz import check


@pytest.mark.parametrize("seed", range(15))
def test_hostile_tables_are_decided_as_in_memory(seed, tmp_path):
    check(seed, tmp_path)
