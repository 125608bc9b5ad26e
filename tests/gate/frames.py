"""Generated frames of text, numbers and booleans, and a check that a gate treats them as Python does."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from transcendent import InductiveEvaluator, save
from transcendent.artifacts.sandbox import Access
from transcendent.batch.in_memory import decide_file
from transcendent.gate import GateClient, read_labelled
from transcendent.tables.frames import Columns
from transcendent.tables.reading import read_objects

FITTED, SENT = 240, 40
WORDS = ["upx", "none", "é中", "a,b", '"', "1", "true", "nan?", " x "]


def make_frame(seed: int) -> tuple[pd.DataFrame, list[str]]:
    """Return a frame with ids and labels, and its columns of text; later rows have new words and gaps."""
    rng = np.random.default_rng(seed)
    n = FITTED + SENT
    is_new = np.arange(n) >= FITTED
    label = rng.random(n) < 0.5
    frame = pd.DataFrame({"id": [f"{seed}-{i}" for i in range(n)], "label": np.where(label, "bad", "good")})
    text = []
    for j in range(rng.integers(3, 9)):
        kind = rng.choice(["number", "whole", "boolean", "word", "day"]) if j > 1 else ("number", "word")[j]
        if kind == "number":
            values: Any = rng.normal(size=n) + label
            values[rng.random(n) < 0.2] = np.nan
        elif kind == "whole":
            values = rng.integers(0, 40, n)
        elif kind == "boolean":
            values = pd.Series(rng.random(n) < 0.3 + 0.4 * label, dtype=object)
            values[rng.random(n) < (0.1 if rng.random() < 0.5 else 0)] = None
        else:
            days = pd.date_range("2024-01-01", periods=6).strftime("%Y-%m-%d").tolist()
            known = rng.permutation(WORDS if kind == "word" else days)[:4]
            values = pd.Series(known[rng.integers(0, 4, n)], dtype=object)
            values[is_new & (rng.random(n) < 0.2)] = "never seen"
            values[rng.random(n) < 0.15] = None
            text.append(f"{kind}{j}")
        frame[f"{kind}{j}"] = values
    return frame, text


def make_rejector(seed: int, frame: pd.DataFrame, text: list[str]) -> InductiveEvaluator:
    """Return an evaluator whose pipeline encodes text and booleans, and imputes numbers."""
    encoders = [
        OneHotEncoder(handle_unknown="ignore"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
    ]
    numbers = [name for name in frame if name.startswith(("number", "whole"))]
    coded = [*text, *(name for name in frame if name.startswith("boolean"))]
    steps = [("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers)]
    detector = make_pipeline(
        ColumnTransformer([*steps, ("coded", encoders[seed % 2], coded)]), LogisticRegression()
    )
    return InductiveEvaluator(detector, random_state=0)


def read(file: Path, text: list[str]) -> Any:
    """Return the objects of a file as `transcendent fit` and `decide` read them."""
    return read_objects(file, Columns(label="label", id="id", text=tuple(text)))


def prepare(seed: int, folder: Path) -> tuple[InductiveEvaluator, Any, Path]:
    """Write a table in two files, fit on the first, and return the rejector, the other's objects and file."""
    frame, text = make_frame(seed)
    kind = ("csv", "parquet")[seed // 2 % 2]
    files = [folder / f"{name}.{kind}" for name in ("fitted", "sent")]
    for file, rows in zip(files, (frame[:FITTED], frame[FITTED:]), strict=True):
        rows.to_csv(file, index=False) if kind == "csv" else rows.to_parquet(file, index=False)
    fitted, sent = (read(file, text) for file in files)
    rejector = make_rejector(seed, fitted.X, text).fit(fitted.X, fitted.y)
    save(rejector, folder / "artifact", notes={"id": "id"})
    return rejector, sent, files[1]


def check(rejector: Any, sent: Any, file: Path, clients: dict[str, GateClient], artifact: Path) -> int:
    """Check that the gate, `decide` of the file and Python agree, and that the export has the rows sent.

    The gate keeps everything (audit = 1). Returns the number of rejected objects.
    """
    expected = rejector.decide(sent.X)
    got = clients["client"].decide(sent.ids, sent.X)
    columns = {"label": expected.labels, "accepted": expected.accepted, "credibility": expected.credibility}
    for name, values in {**columns, "confidence": expected.confidence}.items():
        assert [each[name] for each in got] == values.tolist(), name
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "values are missing")
        of_file, _ = decide_file(artifact, file, Access())
    np.testing.assert_array_equal(of_file.p_values, expected.p_values)
    while items := clients["analyst"].claim(100)["items"]:
        for item in items:
            clients["analyst"].resolve(item["id"], str(item["classes"][-1]))
    labelled = read_labelled(io.BytesIO(clients["operator"].labelled()), rejector.classes_)
    order = np.argsort([int(each.partition("-")[2]) for each in labelled.table["gate_id"].to_pylist()])
    rows = labelled.X.iloc[order].reset_index(drop=True)
    assert list(rows) == list(sent.X)
    for name in rows:
        gaps = sent.X[name].isna()
        assert rows[name].isna().equals(gaps), name
        pairs = zip(rows[name][~gaps], sent.X[name][~gaps], strict=True)
        assert all(
            a == b and isinstance(a, str | bool | np.bool_) == isinstance(b, str | bool | np.bool_)
            for a, b in pairs
        )
    np.testing.assert_array_equal(rejector.decide(rows).p_values, expected.p_values)
    return int(expected.rejected.sum())
