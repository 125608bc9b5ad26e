"""One contract for decisions on a disk and in an object store: every file whole or absent, every row once."""

import io
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.fs as pf
import pyarrow.parquet as pq
import pytest
import s3fs
from sklearn.linear_model import LogisticRegression

from tests.batch.store import ObjectStore
from transcendent import InductiveEvaluator
from transcendent.artifacts import save
from transcendent.batch import decide_table, patience, rows
from transcendent.batch.outputs import ASIDE, output_at
from transcendent.errors import BatchError, WorkerLostWarning

cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, PARTS = 3000, 10
X = np.random.default_rng(0).normal(size=(N, 2))
Y = (X.sum(axis=1) > 0).astype(int)
BAD = (5, 700)


@dataclass
class Place:
    """Where a test has its table and its output: as the library names it, and as files to look at."""

    kind: str
    here: Path
    name: str
    filesystem: object = None
    store: ObjectStore | None = None

    def decide(self, rejector, **given):
        given = {"features": ["a", "b"], "identifier": "id", "rows_per_task": N // PARTS, **given}
        return decide_table(
            rejector, f"{self.name}/t", f"{self.name}/out", filesystem=self.filesystem, verbose=False, **given
        )

    def put(self, name, content):
        """Write a file, or remove it, as somebody else would; a store sees no changes in its folder."""
        path = self.here / name
        if self.store is not None and content is None:
            self.filesystem.rm_file(f"{self.name}/{name}")
        elif self.store is not None:
            self.filesystem.pipe_file(f"{self.name}/{name}", content)
        elif content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def parts(self):
        return sorted((self.here / "out").glob("[!._]*.parquet"))

    def rows(self):
        return pa.concat_tables(pq.read_table(path) for path in self.parts()).sort_by("id")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = ObjectStore(tmp_path_factory.mktemp("store"))
    yield store
    store.kill()


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path, monkeypatch):
    if request.param == "disk":
        where = Place("disk", tmp_path, str(tmp_path))
    else:
        store = request.getfixturevalue("store")
        name = tmp_path.name
        where = Place("store", store.objects / name, f"bucket/{name}", store.filesystem(), store)
        monkeypatch.setattr(patience, "WAITS", (0.2,) * 20)
    values = X[:, 0].copy()
    values[list(BAD)] = np.nan
    table = pa.table({"id": range(N), "a": values, "b": X[:, 1]})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=N // PARTS)
    where.put("t/t.parquet", file.getvalue())
    return where


@pytest.fixture(scope="module")
def ice():
    return InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, Y)


def check(place, ice):
    """Every row is there once, decided as alone; what is bad is set aside; nothing is left over."""
    good = np.setdiff1d(np.arange(N), BAD)
    rows, expected = place.rows(), ice.decide(X[good])
    assert rows["id"].to_pylist() == good.tolist()
    assert rows["label"].to_pylist() == expected.labels.tolist()
    np.testing.assert_array_equal(rows["credibility"], expected.credibility)
    bad = pa.concat_tables(pq.read_table(path) for path in (place.here / "out/_bad").iterdir())
    assert sorted(bad["id"].to_pylist()) == list(BAD)
    manifest = json.loads((place.here / "out/_manifest.json").read_text())
    assert sorted(part["part"] for part in manifest["parts"]) == [path.name for path in place.parts()]
    assert manifest["rows"] == N
    assert not [path for path in place.here.rglob("*") if path.name.endswith(ASIDE)]


def test_decisions_are_those_of_decide(place, ice):
    assert place.decide(ice).bad == len(BAD)
    check(place, ice)


def test_what_is_done_is_not_done_again(place, ice):
    place.decide(ice)
    before = {path: path.stat().st_mtime_ns for path in place.parts()}
    gone, cut, *_ = place.parts()
    place.put(f"out/{gone.name}", None)
    place.put(f"out/{cut.name}", cut.read_bytes()[:-20])
    assert place.decide(ice).skipped == N - 2 * N // PARTS
    check(place, ice)
    assert {path for path, time in before.items() if path.stat().st_mtime_ns != time} == {gone, cut}


def test_another_model_is_refused(place, ice):
    place.decide(ice)
    other = InductiveEvaluator(LogisticRegression(C=0.1), random_state=0).fit(X, Y)
    with pytest.raises(BatchError, match="made with another model"):
        place.decide(other)


def test_an_error_while_writing_leaves_nothing(place):
    filesystem = pf.LocalFileSystem() if place.kind == "disk" else None
    filesystem = filesystem or pf.PyFileSystem(pf.FSSpecHandler(place.filesystem))
    out = output_at(filesystem, f"{place.name}/out")
    out.create()

    def write_half():
        with out.writing("half.parquet") as file:
            file.write(b"half" * 1000)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert out.files() == []
    with out.writing("whole.parquet") as file:
        file.write(b"whole")
        assert "whole.parquet" not in out.files()
    assert out.files() == ["whole.parquet"]


def test_a_reader_sees_no_half_part_while_parts_are_written(place, ice):
    seen, failed, running = set(), [], threading.Event()

    def read():
        while not running.is_set():
            for path in place.parts():
                try:
                    rows = pq.read_table(path).num_rows
                    seen.add(path.name)
                    assert rows >= N // PARTS - len(BAD)
                except Exception as error:
                    failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    place.decide(ice)
    running.set()
    reader.join()
    assert not failed
    check(place, ice)


KILLED = """
import os, sys
import s3fs
from transcendent.batch import decide_table
from transcendent.evaluators.base import ConformalEvaluator
artifact, name, address = sys.argv[1:]
decide, left = ConformalEvaluator.decide, [4]
def die(self, X):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return decide(self, X)
ConformalEvaluator.decide = die
known = None
if address:
    known = s3fs.S3FileSystem(key="KEY", secret="SECRET", endpoint_url=f"http://{address}")
decide_table(artifact, f"{name}/t", f"{name}/out", features=["a", "b"], identifier="id",
             rows_per_task=300, filesystem=known, verbose=False)
"""


def test_a_killed_run_goes_on(place, ice, tmp_path):
    save(ice, tmp_path / "ice.transcendent")
    address = place.store.address if place.store else ""
    command = [sys.executable, "-c", KILLED, tmp_path / "ice.transcendent", place.name, address]
    assert subprocess.run(command, check=False).returncode == -9
    done = len(place.parts())
    assert 0 < done < PARTS
    assert not (place.here / "out/_manifest.json").exists()
    again = place.decide(tmp_path / "ice.transcendent")
    assert again.skipped == done * N // PARTS
    check(place, ice)


class Deadly(InductiveEvaluator):
    """Kills the process it is in, once."""

    def decide(self, X):
        mark = Path(self.measure)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return super().decide(X)


def test_a_killed_worker_is_replaced(place, ice, tmp_path, client):
    deadly = Deadly(LogisticRegression(), random_state=0).fit(X, Y)
    deadly.measure = str(tmp_path / "dead")
    with pytest.warns(WorkerLostWarning, match="^1 worker was lost"):
        place.decide(deadly, client=client)
    assert Path(deadly.measure).exists()
    check(place, ice)


class TestStores:
    @pytest.fixture
    def place(self, tmp_path, store, monkeypatch):
        class Request:
            param = "store"

            def getfixturevalue(self, name):
                return store

        return place.__wrapped__(Request(), tmp_path, monkeypatch)

    def test_a_store_that_dies_and_comes_back(self, place, ice):
        class Killing(InductiveEvaluator):
            calls = 0

            def decide(self, X):
                Killing.calls += 1
                if Killing.calls == 4:
                    place.store.kill()
                    threading.Timer(1.0, place.store.start).start()
                return super().decide(X)

        place.decide(Killing(LogisticRegression(), random_state=0).fit(X, Y))
        check(place, ice)

    @pytest.mark.parametrize("at_once", [1, 10_000, 1 << 25])
    def test_parts_of_several_row_groups(self, place, ice, monkeypatch, at_once):
        monkeypatch.setattr(rows, "_BYTES_AHEAD", at_once)
        place.decide(ice, rows_per_task=N)
        assert len(place.parts()) == 1
        check(place, ice)

    def test_no_more_is_fetched_than_the_table_holds(self, place, ice, monkeypatch):
        fetch, fetched = s3fs.core.S3File._fetch_range, []

        def counted(file, start, end):
            fetched.append(end - start)
            return fetch(file, start, end)

        values, file = np.random.default_rng(0).normal(size=(2, 100_000)), io.BytesIO()
        table = pa.table({"id": range(100_000), "a": values[0], "b": values[1], "unused": values[0]})
        pq.write_table(table, file, row_group_size=20_000)
        place.put("t/t.parquet", file.getvalue())
        monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", counted)
        place.decide(ice, rows_per_task=20_000)
        assert len(place.parts()) == 5
        assert sum(fetched) < 1.3 * len(file.getvalue())  # footers count, too

    def test_one_listing_of_the_output_and_one_of_the_table(self, place, ice, monkeypatch):
        find, listed = place.filesystem.find, []

        def counted(path, *given, **more):
            listed.append(path)
            return find(path, *given, **more)

        monkeypatch.setattr(place.filesystem, "find", counted)
        place.decide(ice)
        assert listed == [f"{place.name}/t"]  # there is no output yet
        listed.clear()
        place.decide(ice)
        assert sorted(listed) == [f"{place.name}/out", f"{place.name}/t"]


class Busy:
    type_name = "s3"


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(16, "Please reduce your request rate."), True),
        (OSError("AWS Error SLOW_DOWN during PutObject operation"), True),
        (PermissionError("Access Denied"), False),
        (FileNotFoundError("no such key"), False),
        (OSError(28, "No space left on device"), False),
        (ValueError("50 columns"), False),
    ],
)
def test_what_passes_is_tried_again(error, again, monkeypatch):
    calls = []
    monkeypatch.setattr(patience.time, "sleep", calls.append)

    def fails_twice():
        if len(calls) < 2:
            raise error
        return "done"

    if again:
        assert patience.patiently(Busy, fails_twice) == "done"
        assert len(calls) == 2
        calls.clear()
        with pytest.raises(type(error)):
            patience.patiently(pf.LocalFileSystem(), fails_twice)
    else:
        with pytest.raises(type(error)):
            patience.patiently(Busy, fails_twice)
        assert not calls
