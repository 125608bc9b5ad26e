"""Labelled objects as a file, and back."""

import io
from datetime import timedelta

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sqlalchemy import text

from transcendent import InductiveEvaluator
from transcendent._utils.dates import as_moment
from transcendent.gate.export import ColumnsDifferError, export_labelled, read_labelled, schema
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.measures import SecondOpinion
from transcendent.tables.layout import Layout

NUMBERS, TRUTH = make_classification(400, n_features=8, n_informative=5, random_state=1)
TRUTH = TRUTH * 7 - 3  # classes -3 and 4


@pytest.fixture(scope="module")
def of_numbers():
    """An evaluator whose classes are numbers."""
    return InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(NUMBERS[:300], TRUTH[:300])


@pytest.fixture
def stored(engine):
    """A function that keeps rows, all of them, and returns the items by id."""

    def store(rejector, X, rate=1.0, prefix="o", digest="d"):
        classes = np.asarray(rejector.classes_).tolist()
        model = Model(rejector, digest, Layout(X.shape[1]), classes, {})
        ids = [f"{prefix}{i}" for i in range(X.shape[0])]
        number, draw = register(engine, model), Draw(bytes(32), rate)
        chosen = to_keep(number, draw, ids, ids, X, rejector.decide(np.nan_to_num(X)))
        keep(engine, list(chosen.values()))
        items = Quarantine(engine).claim("ann", 1000).items
        return {item["object_id"]: item["id"] for item in items}

    return store


def labelled(engine, items, labels):
    quarantine = Quarantine(engine, labels=["unclear"])
    for name, label in labels.items():
        quarantine.resolve("ann", items[name], str(label), reason="seen", note="by hand")


def exported(engine, path, classes=None):
    written = export_labelled(engine, path)
    found = read_labelled(path, classes)
    assert len(found.table) == len(found.y) == found.X.shape[0] == written
    return found


def test_rows_and_labels_come_back_as_they_were(engine, stored, of_numbers, tmp_path):
    X = NUMBERS[300:360]
    items = stored(of_numbers, X)
    truth = {f"o{i}": label for i, label in enumerate(TRUTH[300:360].tolist())}
    labelled(engine, items, truth)
    found = exported(engine, tmp_path / "labelled.parquet", of_numbers.classes_)
    places = [int(name[1:]) for name in found.table["gate_id"].to_pylist()]
    assert sorted(places) == list(range(60))
    assert found.X.toarray().tobytes() == X[places].tobytes()
    assert found.y.dtype == of_numbers.classes_.dtype
    np.testing.assert_array_equal(found.y, TRUTH[300:360][places])
    np.testing.assert_array_equal(found.audited, of_numbers.decide(X[places]).accepted)
    assert set(found.table["gate_author"].to_pylist()) == {"ann"}
    assert set(found.table["gate_note"].to_pylist()) == {"by hand"}
    assert found.table.schema.equals(schema())


def test_missing_values_zeros_and_sets_come_back_too(engine, stored, of_numbers, tmp_path):
    X = np.zeros((5, 8))
    X[1] = 1
    X[2, 3] = np.nan
    X[3] = np.arange(8) / 3
    X[4, [0, 7]] = [5e-324, -1e308]
    items = stored(of_numbers, X)
    labelled(engine, items, dict.fromkeys(items, 4))
    found = exported(engine, tmp_path / "labelled.parquet", of_numbers.classes_)
    places = [int(name[1:]) for name in found.table["gate_id"].to_pylist()]
    assert found.X.toarray().tobytes() == X[places].tobytes()
    assert found.X.nnz == np.count_nonzero(X)


def test_labels_are_texts_unless_classes_are_given(engine, stored, of_numbers, tmp_path):
    items = stored(of_numbers, NUMBERS[300:303])
    labelled(engine, items, {"o0": 4, "o1": -3})
    assert sorted(exported(engine, tmp_path / "labelled.parquet").y.tolist()) == ["-3", "4"]


def test_labels_that_are_not_classes_are_refused(engine, stored, of_numbers, tmp_path):
    items = stored(of_numbers, NUMBERS[300:303])
    labelled(engine, items, {"o0": 4, "o1": "unclear"})
    path = tmp_path / "labelled.parquet"
    assert sorted(exported(engine, path).y.tolist()) == ["4", "unclear"]
    with pytest.raises(ValueError, match=r"\['unclear'\] are not among \['-3', '4'\]"):
        read_labelled(path, of_numbers.classes_)
    found = read_labelled(path, of_numbers.classes_, unknown="drop")
    assert (found.y.tolist(), found.X.shape[0], found.table["gate_id"].to_pylist()) == ([4], 1, ["o0"])


def test_each_object_has_the_probability_it_was_kept_with(engine, stored, rejector, problem, tmp_path):
    X = problem[0][1000:1200]
    items = stored(rejector, X, rate=0.25, digest="e")
    labelled(engine, items, dict.fromkeys(items, "malware"))
    found = exported(engine, tmp_path / "labelled.parquet")
    assert 0 < found.audited.sum() < len(items)
    np.testing.assert_array_equal(found.probability, np.where(found.audited, 0.25, 1.0))


def test_only_the_last_label_counts_and_undone_or_skipped_ones_do_not(engine, stored, of_numbers, tmp_path):
    items = stored(of_numbers, NUMBERS[300:306])
    labelled(engine, items, {"o0": 4, "o1": 4, "o2": 4})
    quarantine = Quarantine(engine)
    quarantine.undo("ann", items["o0"])
    quarantine.undo("ann", items["o1"])
    quarantine.skip("ann", items["o3"])
    quarantine.release("ann")
    again = quarantine.claim("bob", 2).items
    assert {item["id"] for item in again} <= {items[f"o{i}"] for i in (0, 1, 4, 5)}
    while items["o1"] not in {item["id"] for item in again}:
        again += quarantine.claim("bob", 1).items
    quarantine.resolve("bob", items["o1"], "-3")
    found = exported(engine, tmp_path / "labelled.parquet", of_numbers.classes_).table
    assert dict(zip(found["gate_id"].to_pylist(), found["gate_label"].to_pylist(), strict=True)) == {
        "o1": "-3",
        "o2": "4",
    }


def test_an_export_may_begin_with_a_time(engine, stored, of_numbers, tmp_path):
    items = stored(of_numbers, NUMBERS[300:304])
    for name in ("o2", "o0", "o1"):
        labelled(engine, items, {name: 4})
    path = tmp_path / "labelled.parquet"
    assert export_labelled(engine, path) == 3
    sql = "SELECT written_at FROM label WHERE item = :item"
    with engine.connect() as connection:
        times = {n: connection.execute(text(sql), {"item": items[n]}).scalar() for n in ("o2", "o0", "o1")}
    for n, (name, moment) in zip((3, 2, 1), times.items(), strict=True):
        assert export_labelled(engine, path, since=moment) == n, name
        assert as_moment(moment.isoformat()) == moment
    assert export_labelled(engine, path, since=moment + timedelta(microseconds=1)) == 0
    Quarantine(engine).undo("ann", items["o1"])
    assert export_labelled(engine, path, since=times["o0"]) == 1


def test_nothing_labelled_is_an_empty_table(engine, of_numbers, tmp_path):
    path = tmp_path / "labelled.parquet"
    found = exported(engine, path, of_numbers.classes_)
    assert (found.X.shape[0], len(found.y), len(found.probability), len(found.audited)) == (0, 0, 0, 0)
    assert pq.read_schema(path).names == schema().names


def test_an_export_may_go_to_an_open_file(engine, stored, of_numbers):
    items = stored(of_numbers, NUMBERS[300:303])
    labelled(engine, items, {"o0": 4})
    file = io.BytesIO()
    assert export_labelled(engine, file) == 1
    file.seek(0)
    assert read_labelled(file, of_numbers.classes_).y.tolist() == [4]


def test_objects_of_models_with_other_features_are_not_mixed(engine, stored, of_numbers, rejector, tmp_path):
    items = stored(of_numbers, NUMBERS[300:302])
    others = stored(rejector, np.eye(2, 12), prefix="p", digest="e")
    labelled(engine, items, {"o0": 4})
    labelled(engine, others, {"p0": "malware"})
    path = tmp_path / "labelled.parquet"
    with pytest.raises(
        ColumnsDifferError, match=r"such as d and e: export those of one model \(--model DIGEST"
    ):
        export_labelled(engine, path)
    for digest, width in (("d", 8), ("e", 12)):
        assert export_labelled(engine, path, model=digest) == 1
        assert read_labelled(path).X.shape == (1, width)


def test_many_objects_are_written_in_parts(engine, stored, of_numbers, tmp_path, monkeypatch):
    monkeypatch.setattr("transcendent.gate.export._ROWS", 7)
    X = sp.random_array((50, 8), density=0.3, format="csr", rng=np.random.default_rng(0)).toarray()
    items = stored(of_numbers, X)
    labelled(engine, items, dict.fromkeys(items, -3))
    path = tmp_path / "labelled.parquet"
    found = exported(engine, path, of_numbers.classes_)
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [7] * 7 + [1]
    places = [int(name[1:]) for name in found.table["gate_id"].to_pylist()]
    np.testing.assert_array_equal(found.X.toarray(), X[places])


@pytest.mark.parametrize(("what", "sparse"), [("judge", False), ("detector", False), ("both", True)])
def test_an_evaluator_learns_from_an_export(engine, stored, tmp_path, what, sparse):
    opinion = SecondOpinion(LogisticRegression())
    new = InductiveEvaluator(LinearSVC(random_state=0), measure=opinion, random_state=0)
    X = sp.csr_matrix(NUMBERS) if sparse else NUMBERS
    evaluator, direct = (clone(new).fit(X[:300], TRUTH[:300]) for _ in range(2))
    items = stored(evaluator, NUMBERS[300:340])
    truth = {f"o{i}": label for i, label in enumerate(TRUTH[300:340].tolist())}
    labelled(engine, items, truth)
    found = exported(engine, tmp_path / "labelled.parquet", evaluator.classes_)
    rows = sp.vstack([X[:300], found.X]) if sparse else np.vstack([X[:300], found.X.toarray()])
    evaluator.learn(rows, np.concatenate([TRUTH[:300], found.y]), what=what)
    places = [int(name[1:]) for name in found.table["gate_id"].to_pylist()]
    order = [*range(300), *(300 + place for place in places)]
    direct.learn(X[order], TRUTH[order], what=what)
    np.testing.assert_array_equal(evaluator.decide(X[340:]).p_values, direct.decide(X[340:]).p_values)
