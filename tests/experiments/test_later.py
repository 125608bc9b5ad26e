"""Labels that came after a fit, in whatever form they come, are the rows they were."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from transcendent import experiments
from transcendent.artifacts import open_artifact
from transcendent.datasets import make_stream
from transcendent.experiments.later import labelled_later
from transcendent.tables.frames import Columns
from transcendent.tables.objects import Objects
from transcendent.tables.reading import read_table

TOML = """
[data]
file = "objects.csv"
label = "verdict"
time = "seen"
id = "sha"
[split]
train = "2024-03"
[detector]
[[detector.steps]]
class = "sklearn.preprocessing.OneHotEncoder"
columns = ["packer", "signed"]
handle_unknown = "ignore"
[[detector.steps]]
class = "sklearn.impute.SimpleImputer"
[[detector.steps]]
class = "sklearn.svm.LinearSVC"
[rejectors.ICE]
measure = "drift"
budget = 0.15
"""
N, FITTED = 420, 280


def messy():
    """Numbers, whole numbers, text and booleans, with missing values in each but the whole numbers."""
    stream = make_stream(N, n_features=12, n_periods=6, start="2024-01", random_state=0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(stream.X[:, :6]).add_prefix("f").assign(size=rng.integers(0, 9, N))
    frame["packer"] = rng.choice(["upx", "none", "7", None], N)
    frame["signed"] = rng.choice(np.array([True, False, None], dtype=object), N)
    frame.loc[rng.random(N) < 0.05, "f3"] = np.nan
    frame.loc[N - 5 :, "packer"] = "unseen"
    seen = pd.Series(np.sort(stream.times.astype("datetime64[s]")))
    return frame.assign(sha=[f"{i:04}" for i in range(N)], seen=seen, verdict=np.where(stream.y, 7, -1))


def as_exported(frame, features, labels):
    """A frame of new objects as the gate exports them."""
    now, n = datetime(2026, 11, 1, tzinfo=UTC), len(frame)
    meta = {
        "gate_id": frame["sha"],
        "gate_label": labels,
        "gate_predicted": ["7"] * n,
        "gate_accepted": [False] * n,
        "gate_probability": [1.0] * n,
        "gate_received_at": [now] * n,
        "gate_labelled_at": [now] * n,
        "gate_author": ["ann"] * n,
        "gate_model": ["d" * 64] * n,
        "gate_item": range(n),
    }
    return frame[features].assign(**meta)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    messy().to_csv("objects.csv", index=False)
    Path("objects.toml").write_text(TOML)
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_export_teaches_what_the_original_rows_teach(here):
    experiment = experiments.read("objects.toml")
    end = str(messy()["seen"][FITTED])
    fitted = experiment.fit(train=end)
    fitted.save("objects.transcendent")
    features = list(fitted.rows.X.columns)
    frame = pd.read_csv("objects.csv", dtype={"sha": str})[FITTED - 20 :]
    labels = frame["verdict"].astype(str).to_list()
    labels[25:28] = ["unclear"] * 3
    as_exported(frame, features, labels).sample(frac=1, random_state=0).to_parquet("labelled.parquet")

    saved = open_artifact("objects.transcendent")
    by_hand, again = (saved.rejector(["sklearn.ensemble"]) for _ in range(2))
    assert saved.manifest["notes"]["train"] == end
    learnt = experiment.learn(again, "labelled.parquet", train=end)
    left_out = {"label 'unclear' is not a class": 3, "row of the fit": 20}
    assert (learnt.n_learnt, learnt.left_out) == (N - FITTED - 3, left_out)
    everything = pd.read_csv("objects.csv").drop(index=range(FITTED + 5, FITTED + 8))
    by_hand.learn(everything[features], everything["verdict"])
    expected, got = (one.decide(frame[features]) for one in (by_hand, learnt.rejector))
    for name, column in expected.columns().items():
        np.testing.assert_array_equal(got.columns()[name], column)
    before = fitted.rejector.decide(frame[features])
    assert (before.credibility != got.credibility).any()


def cells(kind):
    values = {
        "number": st.floats(-1e6, 1e6, width=32) | st.none(),
        "whole": st.integers(-(2**40), 2**40),
        "text": st.sampled_from(["a", "b", "7", "1e3", "True", " x"]) | st.none(),
        "boolean": st.booleans(),
        "boolean or missing": st.booleans() | st.none(),
    }
    return st.lists(values[kind], min_size=8, max_size=8)


@settings(max_examples=30, deadline=None)
@given(
    st.fixed_dictionaries(
        {k: cells(k) for k in ("number", "whole", "text", "boolean", "boolean or missing")}
    ),
    st.sampled_from(["parquet", "csv"]),
    st.sampled_from(["parquet", "csv"]),
)
def test_values_and_types_are_those_of_the_fit(tmp_path_factory, columns, of_fit, of_labels):
    folder = tmp_path_factory.mktemp("rows")
    frame = pd.DataFrame(columns).assign(number=pd.array(columns["number"], dtype="float64"))
    frame["verdict"] = ["x", "y"] * 4
    whole, old, new = (folder / name for name in (f"all.{of_fit}", f"old.{of_fit}", f"new.{of_labels}"))
    for part, path in ((frame, whole), (frame[:4], old), (frame[4:], new)):
        (part.to_csv if path.suffix == ".csv" else part.to_parquet)(path, index=False)
    fitted, everything = (read_table(path, label="verdict") for path in (old, whole))
    told = fitted.X.notna().any().all() and fitted.X.dtypes.equals(everything.X.dtypes)
    assume(told)  # else four rows do not tell the types
    assume(not frame[:4].drop(columns="verdict").merge(frame[4:].drop(columns="verdict")).size)
    found = labelled_later(new, Columns(label="verdict"), fitted).objects
    pd.testing.assert_frame_equal(found.X, everything.X[4:].reset_index(drop=True).loc[found.X.index])


@pytest.mark.parametrize("kind", ["sparse", "dense", "frame"])
def test_positions_and_values_are_rows_again(tmp_path, kind):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (40, 9)).astype(np.float32)
    rows = {"sparse": sp.csr_matrix(X), "dense": X, "frame": pd.DataFrame(X).add_prefix("f")}[kind]
    y, new = np.arange(40) % 2, X[30:] + 1
    table = pd.DataFrame(
        {"positions": [np.flatnonzero(row) for row in new], "values": list(new.astype(float))}
    )
    meta = {"gate_label": (y[30:]).astype(str), "gate_width": [8, *[9] * 9]}
    table.assign(**meta).to_parquet(tmp_path / "labelled.parquet")
    old = Objects("objects", rows[:30], y[:30])
    found = labelled_later(tmp_path / "labelled.parquet", Columns(), old)
    assert found.left_out == {"8 features where the fit has 9": 1}
    got = found.objects.X.toarray() if kind == "sparse" else np.asarray(found.objects.X)
    assert type(found.objects.X) is type(old.X)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, new[1:])
    np.testing.assert_array_equal(found.objects.y, y[31:])


def test_whole_texts_are_exported_as_the_column_text(tmp_path):
    old = Objects("objects", np.array(["a b", "c"], dtype=object), np.array(["ham", "spam"]))
    frame = pd.DataFrame({"text": ["d", "a b", "e"], "gate_label": ["ham", "ham", "unclear"]})
    frame.to_parquet(tmp_path / "labelled.parquet")
    found = labelled_later(tmp_path / "labelled.parquet", Columns(label="y", features="body"), old)
    assert (found.objects.X.tolist(), found.objects.y.tolist()) == (["d"], ["ham"])
    assert found.left_out == {"label 'unclear' is not a class": 1, "row of the fit": 1}


@pytest.mark.parametrize(
    ("classes", "labels"),
    [([0, 1], [1.0, "0"]), ([0, 1], [True, 0]), (["0", "1"], [1, "0"]), ([-1.5, 2.0], ["2.0", -1.5])],
)
def test_labels_are_classes_if_they_equal_one_or_its_text(tmp_path, classes, labels):
    old = Objects("objects", np.arange(4.0)[:, None], np.array(classes * 2))
    np.savez(tmp_path / "one.npz", X=[[9.0]], y=np.array(labels[:1]))
    np.savez(tmp_path / "two.npz", X=[[9.0]], y=np.array(labels[1:]))
    columns = Columns(label="y")
    for name, expected in zip(("one", "two"), classes[::-1], strict=True):
        found = labelled_later(tmp_path / f"{name}.npz", columns, old).objects
        assert found.y.tolist() == [expected]
        assert found.y.dtype.kind == old.y.dtype.kind
