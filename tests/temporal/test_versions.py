"""Results that earlier releases wrote are read, with the same metrics."""

import json

import numpy as np
import pyarrow.parquet as pq

from tests.temporal.write_v1 import V1
from transcendent.temporal import Backtest


def test_a_folder_of_results_is_read():
    result, written = Backtest.load(V1), pq.read_table(V1 / "table.parquet").to_pydict()
    assert result.title == "The first release"
    assert set(result.answers) == set(result.labelled) == {"ice", "cce"}
    assert set(result.monitors) == {"ice"}
    for name, values in written.items():
        values = np.array(values)
        if values.dtype.kind == "f":
            np.testing.assert_allclose(result.table[name], values, rtol=1e-12)
        else:
            np.testing.assert_array_equal(result.table[name], values)
    assert json.loads((V1 / "manifest.json").read_text())["periods"] == list(result.periods)
    assert result.summary()["rejector"].tolist() == ["ice", "cce"]


def test_what_was_labelled_is_read():
    columns = pq.read_table(V1 / "labelled.parquet").to_pydict()
    labelled = Backtest.load(V1).labelled
    assert sum(len(own["row"]) for own in labelled.values()) == len(columns["row"]) > 0
    for own in labelled.values():
        assert set(columns) - {"rejector"} <= set(own)
