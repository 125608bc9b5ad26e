"""Tables of hostile values and types, decided in parts and row by row in memory.

``python -m tests.batch.fuzz 200`` tries 200 tables and prints what was found; ``... 1 37`` tries the one of
seed 37 again.
"""

import sys
import tempfile
import warnings
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.batch import decide_table

ROWS, WIDTH = 24, 4
NAMES = list("abcd")
DETECTORS = {
    "LinearSVC": lambda: LinearSVC(random_state=0),
    "imputer + LinearSVC": lambda: make_pipeline(SimpleImputer(), LinearSVC(random_state=0)),
    "scaler + logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": lambda: RandomForestClassifier(5, random_state=0),
    "histogram boosting": lambda: HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "neighbours": lambda: KNeighborsClassifier(),
    "LightGBM": lambda: LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1),
}
SPARSE = ("LinearSVC", "forest", "neighbours", "LightGBM")

HUGE = [1e39, -1e39, 1e308, -1.7e308, 3.5e38]
TINY = [5e-324, 1e-310, 0.0, -0.0]
FLOATS = [np.nan, np.inf, -np.inf, None, *HUGE, *TINY]
TEXTS = ["1e3", "inf", "-Infinity", "nan", " 7", "7\n", "", " ", "seven", "1_000", "0x10", "٣", "1e400", None]
TYPES = {
    "float64": (pa.float64(), FLOATS),
    "float32": (pa.float32(), [np.nan, np.inf, -np.inf, None, 3.4e38, 1e-45, 0.0]),
    "float16": (pa.float16(), [np.float16(v) for v in (np.nan, np.inf, -np.inf, 65504, 6e-8)] + [None]),
    "int8": (pa.int8(), [None, -128, 127]),
    "int64": (pa.int64(), [None, 2**62 + 1, -(2**62), 2**53 + 1]),
    "uint64": (pa.uint64(), [None, 2**64 - 1]),
    "bool": (pa.bool_(), [None, True]),
    "decimal": (pa.decimal128(38, 4), [None, Decimal("1e33"), Decimal("-0.0001")]),
    "text": (pa.string(), TEXTS),
    "large text": (pa.large_string(), TEXTS),
    "dictionary of text": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "dictionary of numbers": (pa.dictionary(pa.int8(), pa.float64()), FLOATS),
    "date": (pa.date32(), [None, date(2024, 2, 29)]),
    "timestamp": (pa.timestamp("us"), [None, datetime(2024, 2, 29, 12)]),
    "binary": (pa.binary(), [None, b"7"]),
    "null": (pa.null(), [None]),
}
NUMBERS = ("float64", "float32", "float16", "int8", "int64", "uint64", "bool")
FRAMES = (pd.Float64Dtype(), pd.Int64Dtype(), pd.ArrowDtype(pa.float64()))


@cache
def rejector(name, layout):
    """A rejector fitted on a frame, an array or a sparse matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, WIDTH)) * (rng.random((300, WIDTH)) < 0.8)
    y = (X.sum(axis=1) + rng.normal(scale=0.5, size=300) > 0).astype(int)
    rows = {"frame": pd.DataFrame(X, columns=NAMES), "sparse": sp.csr_matrix(X)}.get(layout, X)
    return InductiveEvaluator(DETECTORS[name](), random_state=0).fit(rows, y)


def column(rng, kind, hostile):
    """A column of a type; a share of it holds the values that are difficult in that type."""
    arrow, difficult = TYPES[kind]
    cells = [_plain_cell(rng, kind) for _ in range(ROWS)]
    for i in np.flatnonzero(rng.random(ROWS) < hostile):
        cells[i] = difficult[rng.integers(len(difficult))]
    if pa.types.is_dictionary(arrow):
        return pa.array(cells, arrow.value_type).dictionary_encode()
    return pa.array(cells, arrow)


def _plain_cell(rng, kind):
    value = float(np.round(rng.normal(), 3))
    plain = {
        "float16": np.float16(value),
        "bool": bool(value > 0),
        "decimal": Decimal(str(value)),
        "date": date(2024, 1, 1),
        "timestamp": datetime(2024, 1, 1),
        "binary": b"1",
        "null": None,
    }
    if kind in plain:
        return plain[kind]
    if "int" in kind:
        return abs(round(value))
    return str(value) if "text" in kind else value


def frame_table(rng, hostile):
    """Columns of any type."""
    kinds = [_kind(rng, TYPES) for _ in NAMES]
    return pa.table({name: column(rng, kind, hostile) for name, kind in zip(NAMES, kinds, strict=True)})


def pandas_table(rng, hostile):
    """A frame of pandas' own types, which it finds again when it reads the file."""
    kind = FRAMES[rng.integers(len(FRAMES))]
    whole = kind == pd.Int64Dtype()
    values = pd.DataFrame({name: rng.normal(size=ROWS) for name in NAMES})
    values[rng.random(values.shape) < hostile / 3] = np.nan
    values = (values.round() if whole else values).astype(kind)
    if not whole:
        values.iloc[rng.integers(ROWS), 0] = np.inf
    return pa.Table.from_pandas(values)


def _kind(rng, among):
    """Mostly one of numbers: of a table that is refused as a whole nothing is learnt."""
    likely = NUMBERS if rng.random() < 0.85 else list(among)
    return likely[rng.integers(len(likely))]


def array_table(rng, hostile):
    kinds = [NUMBERS[rng.integers(len(NUMBERS))]] * WIDTH if rng.random() < 0.3 else None
    kinds = kinds or [NUMBERS[rng.integers(len(NUMBERS))] for _ in NAMES]
    return pa.table({name: column(rng, kind, hostile) for name, kind in zip(NAMES, kinds, strict=True)})


def vector_table(rng, hostile):
    kind = NUMBERS[rng.integers(len(NUMBERS))]
    flat = pa.concat_arrays([column(rng, kind, hostile) for _ in NAMES])
    missing = pa.array(rng.random(ROWS) < hostile / 4)
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(flat, WIDTH, mask=missing)})


def sparse_table(rng, hostile):
    rows, values = [], []
    for _ in range(ROWS):
        at = rng.permutation(WIDTH)[: rng.integers(WIDTH + 1)].tolist()
        beside = [float(value) for value in rng.normal(size=len(at))]
        if at and rng.random() < hostile:
            at[0] = [None, -1, WIDTH, at[-1]][rng.integers(4)]
        if beside and rng.random() < hostile:
            beside[0] = FLOATS[rng.integers(len(FLOATS))]
        if rng.random() < hostile / 4:
            beside.append(1.0)
        rows.append(None if rng.random() < hostile / 4 else at)
        values.append(None if rng.random() < hostile / 4 else beside)
    return pa.table(
        {"x": pa.array(rows, pa.list_(pa.int32())), "v": pa.array(values, pa.list_(pa.float64()))}
    )


TABLES = {"frame": frame_table, "array": array_table, "vector": vector_table, "sparse": sparse_table}
FEATURES = {
    "frame": {},
    "array": {"features": NAMES},
    "vector": {"features": "x"},
    "sparse": {"features": "x", "values": "v"},
}


def rows_in_memory(path, layout):
    """What ``decide`` is given in memory for each row; None for a row of which no array can be made."""
    if layout == "frame":
        frame = pd.read_parquet(path)[NAMES]
        return [frame.iloc[[i]] for i in range(len(frame))]
    table = pq.read_table(path)
    if layout == "sparse":
        return [_sparse_row(*row) for row in zip(table["x"].to_pylist(), table["v"].to_pylist(), strict=True)]
    if layout == "vector":
        rows, kinds = table["x"].to_pylist(), {table.schema.field("x").type.value_type}
    else:
        rows = list(zip(*(table[name].to_pylist() for name in NAMES), strict=True))
        kinds = {table.schema.field(name).type for name in NAMES}
    dtype = np.float32 if kinds == {pa.float32()} else np.float64
    return [None if row is None else np.array([row], dtype=dtype) for row in rows]


def _sparse_row(at, beside):
    if at is None or beside is None or len(at) != len(beside) or len(set(at)) < len(at):
        return None
    if any(i is None or not 0 <= i < WIDTH for i in at):
        return None
    row = np.zeros((1, WIDTH))
    row[0, at] = beside
    return sp.csr_matrix(row)


def decide_alone(fitted, row):
    """The decision about one row; None if it is refused."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return None if row is None else fitted.decide(row)
    except (ValueError, TypeError):
        return None


def check(seed, folder):
    """Decide a table in parts and row by row, and compare; what it was, and how many rows are refused."""
    rng = np.random.default_rng(seed)
    layout = ("frame", "array", "frame", "vector", "sparse")[seed % 5]
    names = SPARSE if layout == "sparse" else list(DETECTORS)
    name = names[seed % len(names)]
    fitted = rejector(name, layout)
    make = pandas_table if seed % 10 == 7 else TABLES[layout]
    table = make(rng, hostile=[0.0, 0.1, 0.5][rng.integers(3)])
    (folder / "in").mkdir(parents=True)
    path = folder / "in" / "t.parquet"
    pq.write_table(table.append_column("id", pa.array(range(ROWS))), path, row_group_size=ROWS // 3)
    decided = decide_table(
        fitted,
        folder / "in",
        folder / "out",
        identifier="id",
        p_values=True,
        rows_per_task=ROWS // 2,
        n_jobs=1,
        verbose=False,
        **FEATURES[layout],
    )
    expected = [decide_alone(fitted, row) for row in rows_in_memory(path, layout)]
    refused = [i for i, one in enumerate(expected) if one is None]
    bad = pq.read_table(folder / "out" / "_bad").sort_by("id").to_pylist() if refused else []
    assert [row["id"] for row in bad] == refused
    assert all(row["reason"] for row in bad)
    assert decided.bad == len(refused)
    found = pq.read_table(folder / "out").sort_by("id").to_pandas()
    taken = {i: one for i, one in enumerate(expected) if one is not None}
    assert found["id"].tolist() == list(taken)
    if taken:
        alone = pd.concat([one.to_pandas() for one in taken.values()], ignore_index=True)
        pd.testing.assert_frame_equal(found[list(alone.columns)], alone, check_exact=True)
    return f"{name}, {layout}", len(refused)


def _say(line):
    sys.stdout.write(line + "\n")


def main(count, first=0):
    warnings.simplefilter("error")
    failed, rows, refused, kinds = [], 0, 0, Counter()
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                kind, bad = check(seed, Path(folder))
            except Exception as error:
                failed.append(seed)
                _say(f"seed {seed}: {type(error).__name__}: {error}")
                continue
        rows, refused = rows + ROWS, refused + bad
        kinds[kind] += 1
    for kind, times in sorted(kinds.items()):
        _say(f"{times:4} tables: {kind}")
    _say(f"{count} tables, {rows:,} rows, {refused:,} refused by both; {len(failed)} tables differ {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:] or ["15"])))
