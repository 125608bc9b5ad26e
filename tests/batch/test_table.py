"""A table decided in parts is the table decided at once, whatever happens on the way."""

import errno
import json
import os
import re
import shutil
import sys

import cloudpickle
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from fsspec.implementations.local import LocalFileSystem
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from transcendent import (
    CrossConformalEvaluator,
    Decisions,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
)
from transcendent._utils import parallel
from transcendent.artifacts import load, open_artifact, save
from transcendent.baselines import CPReject, DroidEvolver
from transcendent.batch import decide_table
from transcendent.decisions import Fitted, Rejector
from transcendent.errors import BatchError, WorkerLostWarning

cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, WIDTH = 4000, 6
X, Y = make_classification(N + 1000, n_features=WIDTH, flip_y=0.1, random_state=0)
NAMES = [f"x{j}" for j in range(WIDTH)]
IDS = np.array([f"object-{i:05}" for i in range(N)])
NEW = X[1000:]


@pytest.fixture(scope="module")
def ice():
    labels = np.array(["benign", "malicious"])[Y[:1000]]
    return InductiveEvaluator(LogisticRegression(), random_state=0).fit(X[:1000], labels)


@pytest.fixture
def table(tmp_path):
    """Three files of several row groups, one of them in a folder of its own."""
    folder = tmp_path / "table"
    (folder / "day=2").mkdir(parents=True)
    columns = pa.table({"id": IDS, **{name: NEW[:, j] for j, name in enumerate(NAMES)}})
    for name, rows in (("a", (0, 1500)), ("b", (1500, 2600)), ("day=2/a", (2600, N))):
        pq.write_table(
            columns.slice(rows[0], rows[1] - rows[0]), folder / f"{name}.parquet", row_group_size=200
        )
    (folder / "_ignored.parquet").write_bytes(b"no Parquet")
    return folder


def decide(rejector, table, out, **given):
    given = {"features": NAMES, "identifier": "id", "rows_per_task": 500, "verbose": False, **given}
    return decide_table(rejector, table, out, **given)


def read(out):
    return pq.read_table(out, partitioning=None).to_pandas().sort_values("id", ignore_index=True)


def check_equal(out, decisions, ids=IDS):
    found = read(out)
    assert found["id"].tolist() == sorted(ids)
    order = np.argsort(ids)
    assert found["label"].tolist() == decisions.labels[order].tolist()
    np.testing.assert_array_equal(found["accepted"], decisions.accepted[order])
    np.testing.assert_array_equal(found["credibility"], decisions.credibility[order])
    np.testing.assert_array_equal(found["confidence"], decisions.confidence[order])
    return found


class TestDecisions:
    @pytest.mark.slow
    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_are_those_of_decide(self, ice, table, tmp_path, n_jobs):
        decided = decide(ice, table, tmp_path / "out", n_jobs=n_jobs)
        expected = ice.decide(NEW)
        found = check_equal(tmp_path / "out", expected)
        assert set(found["model"]) == {decided.digest}
        assert decided.rows == N
        assert decided.accepted.sum() == expected.accepted.sum()
        assert [tuple(row.values()) for row in decided.to_dict()["predicted"]] == expected.summary()
        assert f"{N:,} rows: {expected.accepted.sum():,} accepted" in repr(decided)

    @pytest.mark.slow
    def test_are_those_of_decide_on_dask(self, ice, table, tmp_path, client):
        decide(ice, table, tmp_path / "out", client=client)
        check_equal(tmp_path / "out", ice.decide(NEW))

    def test_of_an_artifact_have_its_digest(self, ice, table, tmp_path):
        digest = save(ice, tmp_path / "ice.transcendent")
        decided = decide(tmp_path / "ice.transcendent", table, tmp_path / "out")
        assert decided.digest == digest
        assert set(check_equal(tmp_path / "out", ice.decide(NEW))["model"]) == {digest}

    def test_of_an_artifact_that_is_open(self, ice, table, tmp_path):
        digest = save(ice, tmp_path / "ice.transcendent")
        opened = open_artifact(tmp_path / "ice.transcendent")
        (tmp_path / "ice.transcendent").unlink()
        assert decide(opened, table, tmp_path / "out").digest == digest
        with pytest.raises(ValueError, match="pass public_key to open_artifact"):
            decide(opened, table, tmp_path / "out", public_key="key.pem")

    def test_have_p_values_if_asked_for(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out", p_values=True)
        found = read(tmp_path / "out")
        np.testing.assert_allclose(found["p_value[benign]"], ice.decide(NEW).p_values[:, 0])
        assert found.columns[-1] == "model"

    def test_without_ids_are_named_by_file_and_row(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out", identifier=None)
        found = pq.read_table(tmp_path / "out", partitioning=None).to_pandas()
        counts = found.groupby("file", observed=True)["row"].agg(["min", "max", "nunique"])
        assert counts.loc["day=2/a.parquet"].tolist() == [0, N - 2601, N - 2600]
        assert counts["nunique"].sum() == N

    def test_of_one_file(self, ice, table, tmp_path):
        decided = decide(ice, table / "b.parquet", tmp_path / "out")
        assert decided.rows == 1100
        assert len(read(tmp_path / "out")) == 1100

    def test_keep_the_partitions_of_the_table(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out")
        assert sorted(p.name for p in (tmp_path / "out" / "day=2").iterdir())[0] == "a.0-2.parquet"

    def test_of_folds(self, table, tmp_path):
        cce = CrossConformalEvaluator(LogisticRegression(), cv=3, random_state=0, verbose=False)
        cce.fit(X[:1000], Y[:1000])
        decide(cce, table, tmp_path / "out", n_jobs=2)
        check_equal(tmp_path / "out", cce.decide(NEW))

    def test_through_another_file_system(self, ice, table, tmp_path):
        memory = fsspec.filesystem("memory")
        memory.put(str(table), "/scale/table", recursive=True)
        decide(ice, "memory://scale/table", "memory://scale/out")
        memory.get("/scale/out", str(tmp_path / "out"), recursive=True)
        check_equal(tmp_path / "out", ice.decide(NEW))
        decide(ice, table, tmp_path / "again", filesystem=LocalFileSystem())
        check_equal(tmp_path / "again", ice.decide(NEW))
        decide(ice, table.as_uri(), (tmp_path / "uri").as_uri())
        check_equal(tmp_path / "uri", ice.decide(NEW))


class Declared(Rejector):
    """A rejector of a user's own: it declares its classes, in an order of its own."""

    fitted = Fitted(classes=np.array(["spam", "ham"]), feature_names=np.array(NAMES), n_features=WIDTH)

    def predict(self, X):
        return np.where(np.asarray(X)[:, 0] > 1, "ham", "spam")

    def decide(self, X):
        trust = np.ones(len(X))
        return Decisions(self.predict(X), trust > 0, trust, trust, self.fitted.classes)


def test_classes_are_those_that_a_rejector_declares(table, tmp_path):
    result = decide(Declared(), table, tmp_path / "out")
    ham = int((NEW[:, 0] > 1).sum())
    assert result.classes.tolist() == ["spam", "ham"]
    assert result.objects.tolist() == [N - ham, ham]


class TestLayouts:
    def write(self, folder, **columns):
        folder.mkdir()
        pq.write_table(pa.table({"id": IDS, **columns}), folder / "t.parquet", row_group_size=700)
        return folder

    def test_vectors(self, ice, tmp_path):
        vectors = pa.FixedSizeListArray.from_arrays(NEW.ravel(), WIDTH)
        decide(ice, self.write(tmp_path / "t", x=vectors), tmp_path / "out", features="x")
        check_equal(tmp_path / "out", ice.decide(NEW))

    @pytest.mark.parametrize("values", [None, "v"])
    def test_sparse_rows(self, tmp_path, values):
        rng = np.random.default_rng(0)
        M = sp.random_array((N, 300), density=0.05, format="csr", rng=rng)
        if values is None:
            M.data[:] = 1
        y = (M @ rng.normal(size=300) > 0).astype(int)
        ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(M[:1000], y[:1000])
        offsets = M.indptr.astype(np.int32)
        lists = {"x": pa.ListArray.from_arrays(offsets, M.indices.astype(np.int32))}
        lists["v"] = pa.ListArray.from_arrays(offsets, M.data)
        decide(ice, self.write(tmp_path / "t", **lists), tmp_path / "out", features="x", values=values)
        check_equal(tmp_path / "out", ice.decide(M))

    def test_frames_and_missing_values(self, tmp_path):
        frame = pd.DataFrame(NEW, columns=NAMES)
        frame.loc[::7, "x2"] = np.nan
        boosted = LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)
        ice = InductiveEvaluator(boosted, random_state=0).fit(frame[:1000], Y[1000:2000])
        columns = {name: pa.array(frame[name], from_pandas=True) for name in reversed(NAMES)}
        decided = decide(ice, self.write(tmp_path / "t", **columns), tmp_path / "out", features=None)
        assert decided.bad == 0
        check_equal(tmp_path / "out", ice.decide(frame))

    def test_text(self, tmp_path):
        mail = np.where(NEW[:, 0] > 0, "buy pills now", "see you at noon").astype(object)
        mail = np.array([f"{text} {i % 50}" for i, text in enumerate(mail)], dtype=object)
        detector = make_pipeline(TfidfVectorizer(), LogisticRegression())
        ice = InductiveEvaluator(detector, random_state=0).fit(mail[:1000], (NEW[:1000, 0] > 0.1).astype(int))
        decide(ice, self.write(tmp_path / "t", mail=mail), tmp_path / "out", features="mail")
        check_equal(tmp_path / "out", ice.decide(mail))


class TestBadRows:
    def test_are_set_aside_with_their_reason(self, ice, table, tmp_path):
        broken = NEW.copy()
        broken[[3, 1700], 2] = np.nan
        broken[2600:2800] = np.inf  # a whole row group, which is all of the last file but one
        for name, rows in (("a", slice(0, 1500)), ("b", slice(1500, 2600)), ("day=2/a", slice(2600, 2800))):
            columns = {c: broken[rows, j] for j, c in enumerate(NAMES)}
            pq.write_table(pa.table({"id": IDS[rows], **columns}), table / f"{name}.parquet")
        decided = decide(ice, table, tmp_path / "out")
        good = np.isfinite(broken[:2800]).all(axis=1)
        assert decided.bad == 202 == (~good).sum()
        assert decided.rows == 2800
        check_equal(tmp_path / "out", ice.decide(NEW[:2800][good]), IDS[:2800][good])
        bad = pq.read_table(tmp_path / "out" / "_bad", partitioning=None).to_pandas()
        assert sorted(bad["id"]) == IDS[:2800][~good].tolist()
        infinite = "Input X contains infinity or a value too large for dtype('float64')."
        assert bad.groupby("reason").size().to_dict() == {"Input X contains NaN.": 2, infinite: 200}
        assert "202 bad" in repr(decided)

    @pytest.mark.parametrize("kind", ["text", "numbers", "categories"])
    def test_without_an_id_have_no_answer_to_match(self, ice, table, tmp_path, kind):
        ids = pa.array(IDS[:1500] if kind != "numbers" else np.arange(1500.0))
        ids = ids.dictionary_encode() if kind == "categories" else ids
        keep = pa.array(~np.isin(np.arange(1500), [3, 1400]))
        missing = pa.scalar(np.nan if kind == "numbers" else None, ids.type)
        columns = {name: NEW[:1500, j] for j, name in enumerate(NAMES)}
        pq.write_table(
            pa.table({"id": pa.compute.if_else(keep, ids, missing), **columns}), table / "a.parquet"
        )
        decided = decide(ice, table / "a.parquet", tmp_path / "out")
        assert (decided.bad, decided.rows) == (2, 1500)
        check_equal(tmp_path / "out", ice.decide(NEW[:1500][keep]), np.asarray(ids)[keep])
        bad = pq.read_table(tmp_path / "out" / "_bad").to_pylist()
        assert [row["reason"] for row in bad] == ["the id is missing"] * 2

    def test_a_pipeline_that_takes_missing_values_takes_them_in_tables(self, tmp_path):
        frame = pd.DataFrame(NEW, columns=NAMES)
        frame.loc[::7, "x2"] = np.nan
        detector = make_pipeline(SimpleImputer(), LogisticRegression())
        ice = InductiveEvaluator(detector, random_state=0).fit(frame[:1000], Y[1000:2000])
        columns = {name: pa.array(frame[name], from_pandas=name != "x1") for name in NAMES}
        pq.write_table(pa.table({"id": IDS, **columns}), tmp_path / "t.parquet")
        decided = decide(ice, tmp_path / "t.parquet", tmp_path / "out", features=None)
        assert decided.bad == 0
        check_equal(tmp_path / "out", ice.decide(pd.read_parquet(tmp_path / "t.parquet")[NAMES]))

    def test_a_row_whose_scores_overflow_does_not_stop_the_others(self, ice, table, tmp_path):
        broken = NEW[:1500].copy()
        broken[7] = np.copysign(np.finfo(float).max, ice.estimator_.coef_[0])
        columns = {name: broken[:, j] for j, name in enumerate(NAMES)}
        pq.write_table(pa.table({"id": IDS[:1500], **columns}), table / "a.parquet")
        decided = decide(ice, table, tmp_path / "out")
        good = np.arange(N) != 7
        assert decided.bad == 1
        check_equal(tmp_path / "out", ice.decide(NEW[good]), IDS[good])
        (bad,) = pq.read_table(tmp_path / "out" / "_bad", partitioning=None).to_pylist()
        assert bad["id"] == IDS[7]
        assert "scores of Margin contain NaN" in bad["reason"]


class TestGoingOn:
    def test_what_is_done_is_not_done_again(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out")
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
        (tmp_path / "out" / "b.0-2.parquet").unlink()
        (tmp_path / "out" / "b.2-4.parquet").write_bytes(b"PAR1 torn")
        (tmp_path / "out" / ".b.0-2.parquet.123.aside").write_bytes(b"half")
        again = decide(ice, table, tmp_path / "out")
        assert again.skipped == N - 800
        assert again.rows == N
        check_equal(tmp_path / "out", ice.decide(NEW))
        changed = {p.name for p, time in before.items() if p.stat().st_mtime_ns != time}
        assert changed == {"b.0-2.parquet", "b.2-4.parquet"}
        assert not list((tmp_path / "out").rglob("*.aside"))

    def test_files_may_be_added_but_not_changed(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out")
        shutil.copy(table / "b.parquet", table / "c.parquet")
        assert decide(ice, table, tmp_path / "out").rows == N + 1100
        pq.write_table(pq.read_table(table / "b.parquet").slice(1), table / "b.parquet", row_group_size=200)
        with pytest.raises(BatchError, match=r"b\.0-2\.parquet .* was made from a file that has changed"):
            decide(ice, table, tmp_path / "out")
        (table / "b.parquet").unlink()
        with pytest.raises(BatchError, match="or is gone"):
            decide(ice, table, tmp_path / "out")

    def test_another_model_or_other_files_are_refused(self, ice, table, tmp_path):
        decide(ice, table, tmp_path / "out")
        other = InductiveEvaluator(LogisticRegression(C=0.1), random_state=0).fit(X[:1000], Y[:1000])
        with pytest.raises(BatchError, match="made with another model"):
            decide(other, table, tmp_path / "out")
        with pytest.raises(BatchError, match="another rows_per_task"):
            decide(ice, table, tmp_path / "out", rows_per_task=100)
        with pytest.raises(BatchError, match="holds other files"):
            decide(ice, table, tmp_path)
        with pytest.raises(ValueError, match="is the table itself"):
            decide(ice, table, table)

    def test_a_rejector_is_the_same_after_use(self, ice, table, tmp_path):
        save(ice, tmp_path / "ice.transcendent")
        loaded = load(tmp_path / "ice.transcendent")
        first = decide(loaded, table, tmp_path / "out")
        loaded.predict_p(NEW)
        assert decide(loaded, table, tmp_path / "out").digest == first.digest

    def test_the_manifest_lists_all_parts(self, ice, table, tmp_path):
        decided = decide(ice, table, tmp_path / "out")
        manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
        files = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("[!_]*.parquet")}
        assert {part["part"] for part in manifest["parts"]} == files
        assert sum(sum(part["objects"]) for part in manifest["parts"]) == N
        assert manifest["model"] == decided.digest


class Deadly(InductiveEvaluator):
    """Kills the process it is in, until a file says that it has done so."""

    def decide(self, X):
        from pathlib import Path

        if self.measure == "always":
            os.kill(os.getpid(), 9)
        if not Path(self.measure).exists():
            Path(self.measure).touch()
            os.kill(os.getpid(), 9)
        return super().decide(X)


@pytest.fixture
def deadly(tmp_path):
    rejector = Deadly(LogisticRegression(), random_state=0).fit(X[:1000], Y[:1000])
    rejector.measure = str(tmp_path / "dead")
    return rejector


class TestFaults:
    def test_a_killed_worker(self, deadly, ice, table, tmp_path):
        with pytest.warns(WorkerLostWarning, match="^1 worker was lost: killed"):
            decide(deadly, table, tmp_path / "out", n_jobs=2)
        assert (tmp_path / "dead").exists()
        found = read(tmp_path / "out")
        np.testing.assert_array_equal(found["accepted"], ice.decide(NEW).accepted)
        assert found["id"].tolist() == IDS.tolist()
        assert not list((tmp_path / "out").rglob("*.aside"))

    @pytest.mark.slow
    def test_workers_that_always_die(self, deadly, table, tmp_path):
        deadly.measure = "always"
        with pytest.raises(BatchError, match=r"worker processes died.*Finished parts are kept"):
            decide(deadly, table, tmp_path / "out", n_jobs=2)

    @pytest.mark.parametrize("cut", [0, 5, 1000, -1])
    def test_a_truncated_file(self, ice, table, tmp_path, cut):
        whole = (table / "b.parquet").read_bytes()
        (table / "b.parquet").write_bytes(whole[:cut])
        with pytest.raises(BatchError, match=r"b\.parquet cannot be read: .*truncated"):
            decide(ice, table, tmp_path / "out")
        (table / "b.parquet").write_bytes(whole)
        decide(ice, table, tmp_path / "out")
        check_equal(tmp_path / "out", ice.decide(NEW))

    def test_a_damaged_page(self, ice, table, tmp_path):
        """The footer is whole, what it points to is not; the other parts are decided."""
        whole = (table / "b.parquet").read_bytes()
        (table / "b.parquet").write_bytes(b"\0" * 5000 + whole[5000:])
        with pytest.raises(BatchError, match=r"1 of \d+ parts failed. .*b\.parquet, row groups 0 to 1: "):
            decide(ice, table, tmp_path / "out")
        assert len(read(tmp_path / "out")) == N - 400
        (table / "b.parquet").write_bytes(whole)
        assert decide(ice, table, tmp_path / "out").skipped == N - 400
        check_equal(tmp_path / "out", ice.decide(NEW))

    def test_a_file_that_changes_under_the_run(self, table, tmp_path):
        class Meddling(InductiveEvaluator):
            def decide(self, X):
                pq.write_table(pq.read_table(table / "a.parquet").slice(7), table / "b.parquet")
                return super().decide(X)

        rejector = Meddling(LogisticRegression(), random_state=0).fit(X[:1000], Y[:1000])
        with pytest.raises(BatchError, match="has changed since the run began"):
            decide(rejector, table, tmp_path / "out")

    def test_a_full_disk(self, ice, table, tmp_path):
        class Full(LocalFileSystem):
            room = 3

            def _open(self, path, mode="rb", **given):
                if "w" in mode and path.endswith(".aside") and "parquet" in path:
                    Full.room -= 1
                    if Full.room < 0:
                        raise OSError(errno.ENOSPC, "No space left on device", path)
                return super()._open(path, mode, **given)

        with pytest.raises(BatchError, match=r"No space left on device.*Finished parts are kept"):
            decide(ice, table, tmp_path / "out", filesystem=Full(skip_instance_cache=True))
        assert len(read(tmp_path / "out")) == 1200
        decide(ice, table, tmp_path / "out")
        check_equal(tmp_path / "out", ice.decide(NEW))


class TestRefusals:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"features": None}, "not fitted on columns with names"),
            ({"features": NAMES[:3]}, "fitted on 6 features, but 3 columns are named"),
            ({"features": [*NAMES[:5], "y"]}, "no column 'y'; it has id, x0"),
            ({"features": [*NAMES[:5], "id"]}, "'id' holds string, not numbers"),
            ({"features": "x0"}, "'x0' holds double: neither lists nor text"),
            ({"features": "id", "values": "x0"}, "values need columns of lists"),
            ({"identifier": "name"}, "no column 'name'"),
            ({"rows_per_task": 0}, "rows_per_task must be a positive number"),
        ],
    )
    def test_of_arguments(self, ice, table, tmp_path, given, said):
        with pytest.raises(ValueError, match=said):
            decide(ice, table, tmp_path / "out", **given)
        assert not (tmp_path / "out").exists()

    def test_of_tables(self, ice, tmp_path):
        with pytest.raises(BatchError, match="does not exist"):
            decide(ice, tmp_path / "nowhere", tmp_path / "out")
        (tmp_path / "empty").mkdir()
        with pytest.raises(BatchError, match="holds no file whose name ends in"):
            decide(ice, tmp_path / "empty", tmp_path / "out")

    def test_of_rejectors_that_need_the_whole_table(self, ice, table, tmp_path):
        budget = RejectionBudget(InductiveEvaluator(LogisticRegression()), rate=0.1).fit(X[:1000], Y[:1000])
        evolving = DroidEvolver().fit(X[:1000], Y[:1000])
        most_confident = CPReject(LogisticRegression()).fit(X[:1000], Y[:1000])
        for rejector in (budget, evolving, most_confident):
            with pytest.raises(ValueError, match="depend on the other objects"):
                decide(rejector, table, tmp_path / "out")
        with pytest.raises(ValueError, match="judges scores"):
            decide(ScoreEvaluator(), table, tmp_path / "out")
        with pytest.raises(TypeError, match="not a fitted rejector"):
            decide(InductiveEvaluator(LogisticRegression()), table, tmp_path / "out")

    def test_of_lists_that_are_no_positions(self, ice, tmp_path):
        (tmp_path / "t").mkdir()
        lists = pa.array([[0.5]], pa.list_(pa.float64()))
        pq.write_table(pa.table({"id": ["a"], "x": lists}), tmp_path / "t" / "t.parquet")
        with pytest.raises(ValueError, match="the integer positions that are not zero"):
            decide(ice, tmp_path / "t", tmp_path / "out", features="x")
        vectors = pa.FixedSizeListArray.from_arrays(np.ones(5), 5)
        pq.write_table(pa.table({"id": ["a"], "x": vectors}), tmp_path / "t" / "t.parquet")
        with pytest.raises(ValueError, match="fitted on 6 features; 'x' holds 5"):
            decide(ice, tmp_path / "t", tmp_path / "out", features="x")


def test_progress_tells_speed_share_and_time(ice, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(parallel.progress, "DELAY", 0.0)
    decide(ice, table, tmp_path / "out", verbose=True)
    said = capsys.readouterr().err
    assert re.search(r"deciding: 100%\|.* 4000/4000 \[.*row/s, [\d.]+% rejected\]", said)


def test_an_empty_table(ice, tmp_path):
    (tmp_path / "t").mkdir()
    empty = pa.table(
        {"id": pa.array([], pa.string()), **{name: pa.array([], pa.float64()) for name in NAMES}}
    )
    pq.write_table(empty, tmp_path / "t" / "t.parquet")
    decided = decide(ice, tmp_path / "t", tmp_path / "out")
    assert decided.rows == 0
    assert np.isnan(decided.rejection_rate)
