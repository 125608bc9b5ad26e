"""A file, and the folder that holds it, are decided to the same columns and values."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from transcendent import CrossConformalEvaluator, InductiveEvaluator
from transcendent.artifacts import save
from transcendent.cli.app import app

pytestmark = pytest.mark.usefixtures("tried_here")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(900, 2)), columns=["a", "b"])
LABELS = np.where(FRAME.sum(axis=1) + RNG.normal(size=900) > 0, "good", "bad")
P_VALUES = ["p_value[bad]", "p_value[good]"]


@pytest.mark.parametrize(
    ("evaluator", "named", "given", "columns"),
    [
        (InductiveEvaluator(LogisticRegression(), random_state=0), True, [], ["id", *P_VALUES]),
        (
            CrossConformalEvaluator(LogisticRegression(), cv=3, random_state=0, verbose=False),
            False,
            [],
            ["file", "row", "votes", *P_VALUES],
        ),
        (
            InductiveEvaluator(LogisticRegression(), random_state=0),
            False,
            ["--no-p-values"],
            ["file", "row"],
        ),
    ],
)
def test_a_file_and_its_folder_have_the_same_decisions(
    evaluator, named, given, columns, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    digest = save(evaluator.fit(FRAME, LABELS), "x.transcendent")
    (tmp_path / "folder").mkdir()
    table = pa.table({"name": [f"object {i}" for i in range(900)], **FRAME})
    pq.write_table(table, "folder/new.parquet", row_group_size=200)
    given = [*(["--id", "name"] if named else []), *given]
    for place, out in (
        ("folder/new.parquet", "d.parquet"),
        ("folder/new.parquet", "d.csv"),
        ("folder", "out"),
    ):
        workers = ["-w", "1"] if place == "folder" else []
        done = CliRunner().invoke(app, ["decide", "x.transcendent", place, "-o", out, *workers, *given])
        assert done.exit_code == 0, done.output
    of_file, of_folder = pq.read_table("d.parquet"), pq.read_table("out")
    assert of_file.schema == of_folder.schema
    assert of_file.to_pylist() == of_folder.to_pylist()
    shared = ["label", "accepted", "credibility", "confidence", "model"]
    assert sorted(of_file.column_names) == sorted([*columns, *shared])
    assert set(of_file["model"].to_pylist()) == {digest}
    assert pyarrow.csv.read_csv("d.csv").to_pylist() == of_file.to_pylist()
