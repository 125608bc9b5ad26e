"""Objects from files, and files that hold none."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from transcendent.cli.console import visible
from transcendent.cli.experiment import Experiment
from transcendent.cli.settings import SettingsError
from transcendent.cli.tables import ColumnError, Columns, read_objects


def test_ids_are_kept_as_they_are_written(tmp_path):
    (tmp_path / "x.csv").write_text("sha,a\n00017,1\n12e5,2\n1e999,3\n")
    found = read_objects(tmp_path / "x.csv", Columns(id="sha"))
    assert found.ids.tolist() == ["00017", "12e5", "1e999"]
    assert found.X["a"].tolist() == [1, 2, 3]


def test_labels_of_every_kind(tmp_path):
    for labels in (["a", "b"], [0, 1], [True, False], [0.5, 1.5]):
        pd.DataFrame({"a": [1.0, 2.0], "y": labels}).to_parquet(tmp_path / "x.parquet")
        found = read_objects(tmp_path / "x.parquet", Columns(label="y"))
        assert found.y.tolist() == labels
        assert found.y.dtype.kind in "Uibf"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,y\n", "has no rows"),
        ("", "cannot be read"),
        ("a,y\n1,\n2,b\n", "1 of 2 rows have no 'y'. Take these rows out"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, said):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=r"x\.csv") as caught:
        read_objects(tmp_path / "x.csv", Columns(label="y"))
    assert said in str(caught.value)


def test_missing_columns_are_counted_and_used_ones_not_suggested(tmp_path):
    (tmp_path / "x.csv").write_text("feature_1,feature_9,other\n1,2,3\n")
    with pytest.raises(ColumnError, match="lacks 2 columns: feature_2, feature_3"):
        read_objects(tmp_path / "x.csv", Columns(features=["feature_1", "feature_2", "feature_3"]))
    with pytest.raises(ColumnError, match="no column 'feature_2'; did you mean 'feature_9'"):
        read_objects(tmp_path / "x.csv", Columns(features=["feature_1", "feature_2"]))


def test_arrays_of_different_lengths(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.zeros((5, 2)), y=np.zeros(6), t=np.zeros(5))
    with pytest.raises(ValueError, match="has 5 rows, but labels of shape"):
        read_objects(tmp_path / "x.npz", Columns("y", "t"))


def test_a_table_beside_of_another_length(tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.csr_array(np.eye(4)))
    (tmp_path / "meta.csv").write_text("y\n1\n0\n")
    with pytest.raises(ValueError, match="has 4 rows, but labels of shape"):
        read_objects(tmp_path / "x.npz", Columns("y"), tmp_path / "meta.csv")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "npy"])
def test_a_damaged_npz_file(tmp_path, damage):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(50, 4)))
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[200] ^= 0xFF
    path.write_bytes({"cut": content[:300], "flipped": content, "empty": b"", "npy": content}[damage])
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="cannot be read"):
        read_objects(path, Columns())


def test_xgboost_is_told_of_labels_it_does_not_take(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": ["good", "bad"], "t": ["2024-01-01", "2024-02-01"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    text = '[data]\nfile = "x.csv"\nlabel = "y"\ntime = "t"\n[detector]\nclass = "xgboost.XGBClassifier"\n'
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises(SettingsError, match="line 6: XGBClassifier takes the labels 0, 1"):
        Experiment.read(tmp_path / "e.toml").fit(None, None)


def test_nothing_steers_the_terminal():
    assert visible("a\x1b[2Jb\n\x9bc…") == "a\\x1b[2Jb\n\\x9bc…"
