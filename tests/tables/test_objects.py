"""Objects from files, and files that hold none."""

import csv

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from transcendent import experiments
from transcendent._utils.arrays import missing_rows
from transcendent.errors import SettingsError
from transcendent.experiments.survey import Takes, find_problems
from transcendent.tables import read_table
from transcendent.tables.frames import ColumnError, Columns
from transcendent.tables.reading import read_objects


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
        (b"a,y\n", "has no rows"),
        (b"", "is empty"),
        (b"\na,y\n1,b\n", "is empty, or its first line is"),
        (b"a,y\n1,b,5\n", "line 2: 3 values for the 2 columns of the header"),
        (b"a,y\n1,b\n\n2,c,5\n", "line 4: 3 values for the 2 columns"),
        (b'a,y\n"1\n",b\n2\n', "line 4: 1 values for the 2 columns"),
        (b"a,y\n1,b\n   \n", "line 3: 1 values for the 2 columns"),
        (b"a,y,a\n1,b,2\n", "columns 1 and 3 are both named 'a'"),
        (b",a,y\n0,1,b\n", "column 1 has no name. Name it, remove it (pandas: to_csv(index=False))"),
        (b"a;y\n1,5;b\n", "separated by commas, not ';'"),
        (b"a\ty\n1\tb\n", "separated by commas, not '\\t'"),
        (b"a,y\n1,caf\xe9\n", "not UTF-8 text (invalid continuation byte). Convert it"),
        ("a,y\n1,b\n".encode("utf-16"), "not UTF-8 text"),
        (b'a,y\n1,"b\n', "cannot be read: Error tokenizing data. C error: EOF inside string"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, said):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.csv") as caught:
        read_objects(tmp_path / "x.csv", Columns(label="y"))
    assert said in str(caught.value)


def test_a_mark_at_the_start_long_values_and_blank_lines_do_no_harm(tmp_path):
    text = f'\ufeffa,y,text\n1,b,"{"x" * 200_000}, y"\n\n2,c,\n'
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    found = read_objects(tmp_path / "x.csv", Columns(label="y"))
    assert found.X["a"].tolist() == [1, 2]
    assert found.y.tolist() == ["b", "c"]
    assert len(found.X["text"][0]) == 200_003
    assert csv.field_size_limit() < 200_000


def test_rows_of_csv_are_named_by_their_lines(tmp_path):
    (tmp_path / "x.csv").write_text('a,y\n1,b\n\n"2\n",c\n\n3,\n4,\n')
    found = read_objects(tmp_path / "x.csv", Columns(label="y"))
    assert found.lines.tolist() == [2, 4, 7, 8]
    assert found.take([3, 1]).have("no label", np.array([0])) == "1 of 2 rows has no label, in line 8"
    assert found.have("no label", missing_rows(found.y)) == "2 of 4 rows have no label, the first is line 7"
    np.savez(tmp_path / "x.npz", X=np.eye(4))
    assert read_objects(tmp_path / "x.npz", Columns()).place(3) == "row 3"
    beside = read_objects(tmp_path / "x.npz", Columns(label="y"), tmp_path / "x.csv")
    assert beside.place(3) == "row 3"


def test_a_carriage_return_alone_is_refused(tmp_path):
    """The csv module sees a row of '' and 5 here, pandas one of 5 and NaN."""
    (tmp_path / "x.csv").write_bytes(b"x,y\n1,2\r\r,5\n3,4\n")
    with pytest.raises(ValueError, match="line 2: a carriage return without a line feed"):
        read_objects(tmp_path / "x.csv", Columns())


def test_an_id_that_reads_like_a_missing_value_is_an_id(tmp_path):
    ids = ["NA", "null", "None", "nan", "007", "1e5", "=x"]
    pd.DataFrame({"sha": ids, "a": 1.0}).to_csv(tmp_path / "x.csv", index=False)
    assert read_objects(tmp_path / "x.csv", Columns(id="sha")).ids.tolist() == ids
    (tmp_path / "y.csv").write_text("sha,a\nx,1\n,2\n")
    np.savez(tmp_path / "y.npz", X=np.eye(2), sha=[1, np.nan])
    for name in ("y.csv", "y.npz"):
        assert missing_rows(read_objects(tmp_path / name, Columns(id="sha")).ids).tolist() == [1]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["NA", "null", "None", "nan", "N/A", "b"], ["NA", "null", "None", "nan", "N/A", "b"]),
        (["NA", "", "007", "b"], ["NA", None, "007", "b"]),
        (["0", "nan", "1", ""], [0, None, 1, None]),
        (["0.5", "NA", "1"], [0.5, None, 1.0]),
        (["True", "", "False"], [True, None, False]),
        (["NA", "", "nan"], [None, None, None]),
        (["9007199254740993", "9007199254740992", ""], [9007199254740993, 9007199254740992, None]),
        (["9007199254740993", "9007199254740992", "0.5"], ["9007199254740993", "9007199254740992", "0.5"]),
        (["01", "1"], ["01", "1"]),
        (["1", "1.0", "-2"], [1, 1, -2]),
        (["+1", "-1"], [1, -1]),
        (["18446744073709551616", "1"], ["18446744073709551616", "1"]),
        (["1e999", "inf", "1"], ["1e999", "inf", "1"]),
    ],
)
def test_a_label_that_reads_like_a_missing_value_is_one_among_numbers_alone(tmp_path, written, read):
    (tmp_path / "x.csv").write_text("y,a\n" + "".join(f"{label},1\n" for label in written))
    found = read_objects(tmp_path / "x.csv", Columns(label="y"))
    assert found.y.tolist() == read
    assert len(found.with_labels()) == len(read) - read.count(None)


@pytest.mark.parametrize("label", [np.inf, -np.inf, 1e300, 2.0**53])
@pytest.mark.parametrize("name", ["x.npz", "x.svm", "x.parquet"])
def test_labels_that_integers_cannot_hold_are_refused_by_row(tmp_path, name, label):
    y = np.array([0.0, label, np.nan])
    if name == "x.npz":
        np.savez(tmp_path / name, X=np.eye(3), y=y)
    elif name == "x.svm":
        (tmp_path / name).write_text("".join(f"{one} 1:1\n" for one in y[:2]))
    else:
        pd.DataFrame({"a": [1, 2, 3], "y": y}).to_parquet(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name}: the label in row 1 is .*below 2\*\*53"):
        read_objects(tmp_path / name, Columns(label="y"))


def test_whole_numbers_with_gaps_do_not_merge_in_parquet(tmp_path):
    labels = pa.array([2**53 + 1, 2**53, None])
    pq.write_table(pa.table({"a": [1, 2, 3], "y": labels}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="row 0 is 9007199254740992"):
        read_objects(tmp_path / "x.parquet", Columns(label="y"))


def test_texts_are_texts_even_if_all_are_digits(tmp_path):
    (tmp_path / "x.csv").write_text("text,y\n007,1\n8,0\n")
    assert read_objects(tmp_path / "x.csv", Columns("y", features="text")).X.tolist() == ["007", "8"]
    pd.DataFrame({"text": [7, 8], "share": [0.5, 1.0]}).to_parquet(tmp_path / "x.parquet")
    assert read_objects(tmp_path / "x.parquet", Columns(features="text")).X.tolist() == ["7", "8"]
    with pytest.raises(ValueError, match=r"x\.parquet: the column 'share' holds float64, not texts"):
        read_objects(tmp_path / "x.parquet", Columns(features="share"))


def test_labels_are_no_features(tmp_path):
    (tmp_path / "x.csv").write_text("a,y\n1,1\n8,0\n")
    with pytest.raises(ValueError, match="'y' holds the labels, so it cannot be a feature"):
        read_table(tmp_path / "x.csv", label="y", features=["a", "y"])


def test_a_label_column_without_a_name_and_two_marks_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text(",a\n1,2\n")
    with pytest.raises(ValueError, match="column 1 has no name"):
        read_objects(tmp_path / "x.csv", Columns(label="", features=["a"]))
    (tmp_path / "x.csv").write_text("\ufeff\ufeffa,y\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="two byte order marks"):
        read_objects(tmp_path / "x.csv", Columns(label="y"))


def test_bytes_lists_and_structs_are_no_labels(tmp_path):
    for labels in ([b"a", b"b"], [[1], [2]], [{"x": 1}, {"x": 2}]):
        pd.DataFrame({"a": [1.0, 2.0], "y": labels}).to_parquet(tmp_path / "x.parquet")
        with pytest.raises(
            ValueError, match=r"x\.parquet: .*(not bytes|the column 'y' holds lists or structs)"
        ):
            read_objects(tmp_path / "x.parquet", Columns(label="y"))


def test_numbers_are_read_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=(1000, 2)) * 1e-3
    pd.DataFrame(values, columns=["a", "b"]).to_csv(tmp_path / "x.csv", index=False)
    np.testing.assert_array_equal(read_objects(tmp_path / "x.csv", Columns()).X.to_numpy(), values)


def test_a_column_without_a_name_does_no_harm_where_others_are_named(tmp_path):
    (tmp_path / "x.csv").write_text(",a\n7,1\n8,2\n")
    assert read_objects(tmp_path / "x.csv", Columns(features=["a"])).X["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["20240901", "20240902"], ["20240901", "20240902"]),
        (["2024-09-01", "20240902"], ["2024-09-01", "20240902"]),
        (["20240901", "3"], [20240901, 3]),
        (["7", "10"], [7, 10]),
        (["w07", "w10"], ["w07", "w10"]),
    ],
)
def test_times_of_eight_digits_are_days_not_numbers(tmp_path, written, read):
    (tmp_path / "x.csv").write_text("a,t\n" + "".join(f"1,{time}\n" for time in written))
    assert read_objects(tmp_path / "x.csv", Columns(time="t")).times.tolist() == read


@pytest.mark.parametrize("kind", ["text", "whole", "real", "Int64", "category", "npz", "libsvm"])
def test_rows_without_a_label_are_read_and_reported(tmp_path, kind):
    column = {"text": ["b", None, "c"], "real": [0.5, None, 1.5]}.get(kind, [0, None, 1])
    path = tmp_path / {"npz": "x.npz", "libsvm": "x.svm", "text": "x.csv", "whole": "x.csv"}.get(
        kind, "x.parquet"
    )
    if kind == "npz":
        np.savez(path, X=np.eye(3), y=np.array(column, dtype=float))
    elif kind == "libsvm":
        path.write_text("0 1:1\nnan 2:1\n1 3:1\n")
    else:
        labels = pd.Series(column, dtype=kind if kind in ("Int64", "category") else None)
        frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": labels})
        frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    found = read_objects(path, Columns(label="y"))
    (problem,) = find_problems(found, Columns(label="y"), Takes(), dates=True)
    where = "line 3" if path.suffix == ".csv" else "row 1"
    said = f"1 of 3 rows has no label, in {where}"
    assert problem == (["y"], said, ['unlabelled = "drop" under [data] leaves them out'])
    assert not find_problems(found, Columns(label="y"), Takes(unlabelled=True), dates=True)
    assert found.y.tolist() == column
    assert found.with_labels().y.tolist() == [label for label in column if label is not None]
    assert found.with_labels().y.dtype.kind == {"text": "U", "real": "f"}.get(kind, "i")
    assert len(found.with_labels().X[:] if kind != "libsvm" else found.with_labels().X.toarray()) == 2


def test_an_experiment_drops_rows_without_a_label(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300).astype(float)
    frame = pd.DataFrame({"a": rng.normal(size=300) + 3 * y, "y": y})
    frame["t"] = (np.datetime64("2024-01-01") + np.arange(300)).astype(str)
    frame.loc[[5, 290], "y"] = np.nan
    frame.to_csv(tmp_path / "x.csv", index=False)
    settings = '[data]\nfile = "x.csv"\nlabel = "y"\ntime = "t"\nunlabelled = "{}"\n'
    settings += (
        '[split]\ntrain = "2024-08"\nallow = ["few_positives"]\n[detector]\nclass = "sklearn.svm.LinearSVC"\n'
    )
    for said in ("drop", "refuse", "guess"):
        (tmp_path / f"{said}.toml").write_text(settings.format(said))
    experiment = experiments.read(tmp_path / "drop.toml")
    with pytest.warns(UserWarning, match=r"left out 2 of 300 rows: 2 \(no label\)"):
        result = experiment.backtest(tmp_path / "out")
    assert 290 not in result.rows
    assert result.rows.max() == 299
    assert result.classes.tolist() == [0, 1]
    assert result.manifest["unlabelled"] == 2
    assert experiment.fit().rejector.classes_.tolist() == [0, 1]
    found = experiment.check()
    assert (found["left_out"], found["problems"]) == (2, [])
    with pytest.raises(ValueError, match="2 of 300 rows have no label"):
        experiments.read(tmp_path / "refuse.toml").fit()
    with pytest.raises(SettingsError, match='line 5: unlabelled must be "refuse" or "drop"'):
        experiments.read(tmp_path / "guess.toml").fit()


def save_sparse(path, form="csr", **changed):
    matrix = getattr(sp.csr_array(np.arange(12.0).reshape(3, 4)), f"to{form}")()
    names = {"coo": ("data", "row", "col"), "dia": ("data", "offsets")}.get(
        form, ("data", "indices", "indptr")
    )
    arrays = {name: getattr(matrix, name) for name in names}
    np.savez(path, **({"format": form.encode(), "shape": matrix.shape} | arrays | changed))
    return matrix


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_matrices_of_every_form(tmp_path, form):
    matrix = save_sparse(tmp_path / "x.npz", form)
    found = read_objects(tmp_path / "x.npz", Columns()).X
    assert found.format == "csr"
    assert found.has_canonical_format
    assert found.toarray().tolist() == matrix.toarray().tolist()


@pytest.mark.parametrize("index", [-1, 4, 5, 10**8, 2**40])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_indices_outside_of_a_sparse_matrix_are_refused(tmp_path, form, index):
    name = "col" if form == "coo" else "indices"
    path = tmp_path / "x.npz"
    matrix = save_sparse(path, form)
    wrong = getattr(matrix, name).astype(np.int64)
    wrong[1] = index
    save_sparse(path, form, **{name: wrong})
    with pytest.raises(ValueError, match=r"x\.npz"):
        read_objects(path, Columns())


@pytest.mark.parametrize(
    "changed",
    [
        {"indptr": np.array([0, 9, 4, 11])},
        {"indptr": np.array([0, 3, 7, 99])},
        {"indptr": np.array([0, 3, 7])},
        {"indptr": np.array([1, 3, 7, 11])},
        {"indices": np.full(11, 0.5)},
        {"data": np.full(11, "a")},
        {"shape": np.array([3])},
        {"format": b"xyz"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_sparse_matrix_that_is_none(tmp_path, changed):
    save_sparse(tmp_path / "x.npz", **changed)
    with pytest.raises(ValueError, match=r"x\.npz (is no|must hold)"):
        read_objects(tmp_path / "x.npz", Columns())


def test_a_column_twice_in_a_sparse_row_counts_once_with_the_sum(tmp_path):
    arrays = {"data": np.array([1.0, 2.0, 4.0]), "indices": np.array([3, 0, 3]), "indptr": np.array([0, 3])}
    np.savez(tmp_path / "x.npz", format=b"csr", shape=(1, 4), **arrays)
    found = read_objects(tmp_path / "x.npz", Columns()).X
    assert (found.indices.tolist(), found.data.tolist()) == ([0, 3], [2.0, 5.0])


@pytest.mark.parametrize(
    "line",
    [
        "1 0:1",
        "1 -2:1",
        "1 3:1 2:1",
        "1 2:1 2:1",
        "1 5000000000:1",
        "1 x:1",
        "b 1:1",
        "inf 1:1",
        "1 1:a",
    ],
)
def test_lines_that_are_no_libsvm(tmp_path, line):
    (tmp_path / "x.svm").write_text(f"0 1:1 3:1\n{line}\n")
    with pytest.raises(ValueError, match=r"x\.svm"):
        read_objects(tmp_path / "x.svm", Columns())


def test_columns_beyond_a_stated_width_are_refused(tmp_path):
    (tmp_path / "x.svm").write_text("0 1:1\n1 2147483647:1\n")
    with pytest.raises(ValueError, match=r"has 2,147,483,647 columns, more than 100,000,000"):
        read_objects(tmp_path / "x.svm", Columns())
    sp.save_npz(tmp_path / "x.npz", sp.csr_array((2, 10**9)))
    with pytest.raises(ValueError, match=r"has 1,000,000,000 columns"):
        read_objects(tmp_path / "x.npz", Columns())


def test_arrow_types_that_pandas_cannot_restore(tmp_path):
    kinds = {"a": pa.list_(pa.int64()), "b": pa.dictionary(pa.int32(), pa.string()), "y": pa.int64()}
    cells = {"a": [[1], [2]], "b": ["u", "v"], "y": [0, 1]}
    columns = {name: pd.array(cells[name], dtype=pd.ArrowDtype(kind)) for name, kind in kinds.items()}
    pd.DataFrame(columns, index=["p", "q"]).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="the column 'a' holds lists or structs"):
        read_objects(tmp_path / "x.parquet", Columns(label="y"))
    found = read_objects(tmp_path / "x.parquet", Columns(label="y", without=("a",)))
    assert (found.X["b"].tolist(), list(found.X), found.y.tolist()) == (["u", "v"], ["b"], [0, 1])


@pytest.mark.parametrize("nested", [[[1, 2], [3]], [{"x": 1}, None]], ids=["lists", "structs"])
def test_nested_columns_are_refused_by_name(tmp_path, nested):
    pd.DataFrame({"a": [1.0, 2.0], "b": nested}).to_parquet(tmp_path / "x.parquet")
    for features in (None, "b", ["a", "b"]):
        with pytest.raises(ValueError, match="the column 'b' holds lists or structs"):
            read_objects(tmp_path / "x.parquet", Columns(features=features))
    assert len(read_objects(tmp_path / "x.parquet", Columns(features=["a"]))) == 2


@pytest.mark.parametrize("content", [b"", b"a,y\n1,2\n", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_what_is_no_parquet(tmp_path, content):
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read"):
        read_objects(tmp_path / "x.parquet", Columns())


def test_parquet_with_two_columns_of_one_name(tmp_path):
    column = pa.array([1.0])
    pq.write_table(pa.Table.from_arrays([column, column], ["a", "a"]), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet"):
        read_objects(tmp_path / "x.parquet", Columns())


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
    with pytest.raises(SettingsError, match="line 6: XGBClassifier needs the labels 0, 1"):
        experiments.read(tmp_path / "e.toml").fit()


@pytest.mark.parametrize("chronological", ["true", "false"])
def test_periods_may_have_names(tmp_path, chronological):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=300)
    weeks = [f"w{i // 50:02}" for i in range(300)]
    pd.DataFrame({"a": rng.normal(size=300) + 3 * y, "y": y, "t": weeks}).to_csv(
        tmp_path / "x.csv", index=False
    )
    text = '[data]\nfile = "x.csv"\nlabel = "y"\ntime = "t"\n[split]\ntrain = "w04"\nperiod = "none"\n'
    text += f'chronological = {chronological}\n[detector]\nclass = "sklearn.svm.LinearSVC"\n'
    (tmp_path / "e.toml").write_text(text)
    experiment = experiments.read(tmp_path / "e.toml")
    assert experiment.backtest(tmp_path / "out").periods == ("w04", "w05")
    assert experiment.fit().rows.period() == ("w00", "w03")


def test_an_index_with_a_name_is_a_column_and_names_are_text(tmp_path):
    frame = pd.DataFrame({0: [1.0, 2.0], 1: ["a", "b"]}, index=pd.Index(["x", "y"], name="sha"))
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_objects(tmp_path / "x.parquet", Columns(label="1", id="sha"))
    assert (found.y.tolist(), found.ids.tolist(), list(found.X.columns)) == (["a", "b"], ["x", "y"], ["0"])
