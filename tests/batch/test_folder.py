"""What is read, what counts as done, and who may write."""

import fcntl
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

from transcendent import InductiveEvaluator
from transcendent.artifacts import open_artifact, save
from transcendent.batch import decide_table
from transcendent.errors import BatchError

N = 900
X = np.random.default_rng(0).normal(size=(N, 2))
Y = (X.sum(axis=1) > 0).astype(int)
COLUMNS = pa.table({"id": range(N), "a": X[:, 0], "b": X[:, 1]})


@pytest.fixture(scope="module")
def ice():
    return InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, Y)


@pytest.fixture
def table(tmp_path):
    """Two files, of two parts and of one."""
    (tmp_path / "table").mkdir()
    for name, first, rows in (("a", 0, 600), ("b", 600, 300)):
        pq.write_table(COLUMNS.slice(first, rows), tmp_path / "table" / f"{name}.parquet", row_group_size=300)
    return tmp_path / "table"


def decide(rejector, table, out, **given):
    given = {"features": ["a", "b"], "identifier": "id", "rows_per_task": 300, "verbose": False, **given}
    return decide_table(rejector, table, out, **given)


def ids(out):
    return sorted(pq.read_table(out, partitioning=None)["id"].to_pylist())


class TestFiles:
    def test_empty_row_groups_are_passed_over(self, ice, tmp_path):
        with pq.ParquetWriter(tmp_path / "t.parquet", COLUMNS.schema) as writer:
            for first, rows in ((0, 0), (0, 300), (300, 0), (300, 600), (900, 0)):
                writer.write_table(COLUMNS.slice(first, rows))
        assert decide(ice, tmp_path / "t.parquet", tmp_path / "out").rows == N
        assert ids(tmp_path / "out") == list(range(N))

    def test_each_file_is_read_once_whatever_links_lead_to_it(self, ice, table, tmp_path):
        (table / "again").symlink_to(table)
        (table / "0.parquet").symlink_to(table / "b.parquet")
        (table / "deep").mkdir()
        (table / "deep" / "up").symlink_to(table)
        (table / "deep" / "up too").symlink_to(table / "deep")
        (tmp_path / "elsewhere").mkdir()
        pq.write_table(COLUMNS.slice(0, 5), tmp_path / "elsewhere" / "c.parquet")
        (table / "linked").symlink_to(tmp_path / "elsewhere")
        (table / "linked too").symlink_to(tmp_path / "elsewhere")
        decided = decide(ice, table, tmp_path / "out")
        assert decided.rows == N + 5
        written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")}
        assert {"a.0-1.parquet", "a.1-2.parquet", "b.0-1.parquet"} < written
        assert len(written) == 4

    def test_links_to_hidden_files_are_followed(self, ice, table, tmp_path):
        (table / "b.parquet").rename(table / ".b of today.parquet")
        (table / "b.parquet").symlink_to(table / ".b of today.parquet")
        assert decide(ice, table, tmp_path / "out").rows == N

    def test_a_link_that_leads_nowhere_is_named(self, ice, table, tmp_path):
        (table / "gone.parquet").symlink_to(tmp_path / "nowhere.parquet")
        with pytest.raises(BatchError, match=r"gone\.parquet cannot be read"):
            decide(ice, table, tmp_path / "out")

    @pytest.mark.parametrize("ending", ["PARQUET", "parq", "pq"])
    def test_other_endings_are_read_too(self, ice, table, tmp_path, ending):
        (table / "b.parquet").rename(table / f"a.{ending}")
        assert decide(ice, table, tmp_path / "out").rows == N
        assert (tmp_path / "out" / f"a.{ending}.0-1.parquet").exists()
        (table / f"a.{ending}.parquet").hardlink_to(table / "a.parquet")
        with pytest.raises(BatchError, match=rf"would both be written to a\.{ending}\.0-1\.parquet"):
            decide(ice, table, tmp_path / "other")

    def test_the_output_may_not_be_inside_the_table(self, ice, table, tmp_path):
        with pytest.raises(ValueError, match="is inside the table"):
            decide(ice, table, table / "out")
        (tmp_path / "link").symlink_to(table)
        with pytest.raises(ValueError, match="is inside the table"):
            decide(ice, table, tmp_path / "link" / "out")
        assert decide(ice, table, table / "_out").rows == N
        assert decide(ice, table, table / "_out").skipped == N


class TestWhatIsDone:
    def test_there_is_a_manifest_only_while_it_is_true(self, ice, table, tmp_path):
        manifest = tmp_path / "out" / "_manifest.json"
        decide(ice, table, tmp_path / "out")
        assert json.loads(manifest.read_text())["rows"] == N
        pq.write_table(COLUMNS.slice(0, 5), table / "c.parquet")
        whole = (table / "c.parquet").read_bytes()
        (table / "c.parquet").write_bytes(b"\0" * 100 + whole[100:])
        with pytest.raises(BatchError, match=r"1 of 1 parts failed"):
            decide(ice, table, tmp_path / "out")
        assert not manifest.exists()
        (table / "c.parquet").write_bytes(whole)
        decide(ice, table, tmp_path / "out")
        assert json.loads(manifest.read_text())["rows"] == N + 5

    def test_bad_rows_go_when_their_file_was_repaired(self, ice, table, tmp_path):
        good = pq.read_table(table / "b.parquet")
        broken = good.set_column(1, "a", pa.array([np.nan] * 300))
        pq.write_table(broken, table / "b.parquet")
        assert decide(ice, table, tmp_path / "out").bad == 300
        assert (tmp_path / "out" / "_bad" / "b.0-1.parquet").exists()
        pq.write_table(good, table / "b.parquet")
        (tmp_path / "out" / "b.0-1.parquet").unlink()
        assert decide(ice, table, tmp_path / "out").bad == 0
        assert not (tmp_path / "out" / "_bad" / "b.0-1.parquet").exists()

    @pytest.mark.parametrize("which", ["a.0-1.parquet", "_bad/a.0-1.parquet"])
    @pytest.mark.parametrize("damage", ["one bit", "the file is gone"])
    def test_a_damaged_part_is_decided_again(self, ice, table, tmp_path, which, damage):
        values = COLUMNS.slice(0, 600).set_column(1, "a", pa.array([*[np.nan] * 50, *X[50:600, 0]]))
        pq.write_table(values, table / "a.parquet", row_group_size=300)
        decide(ice, table, tmp_path / "out")
        before = pq.read_table(tmp_path / "out" / which)
        whole = (tmp_path / "out" / which).read_bytes()
        if damage == "one bit":
            damaged = bytearray(whole)
            damaged[60] ^= 1
            (tmp_path / "out" / which).write_bytes(damaged)
            assert pq.read_metadata(tmp_path / "out" / which).num_rows  # its footer is sound
        else:
            (tmp_path / "out" / which).unlink()
        assert decide(ice, table, tmp_path / "out").skipped == 600
        assert pq.read_table(tmp_path / "out" / which) == before
        assert decide(ice, table, tmp_path / "out").skipped == N

    def test_parts_name_the_versions_that_decided_and_that_wrote_the_model(self, ice, table, tmp_path):
        save(ice, tmp_path / "ice.transcendent")
        decide(tmp_path / "ice.transcendent", table, tmp_path / "out")
        footer = pq.read_metadata(tmp_path / "out" / "b.0-1.parquet").metadata
        record = json.loads(footer[b"transcendent"])
        assert {"transcendent", "scikit-learn", "numpy"} <= set(record["decided_by"])
        artifact = open_artifact(tmp_path / "ice.transcendent")
        assert record["model_written_by"] == artifact.manifest["versions"]
        assert record["model"] == artifact.digest
        assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["parts"][-1] == record

    def test_parts_of_another_model_are_refused(self, ice, table, tmp_path):
        other = InductiveEvaluator(LogisticRegression(C=0.1), random_state=0).fit(X, Y)
        decide(ice, table, tmp_path / "out")
        decide(other, table, tmp_path / "other")
        (tmp_path / "other" / "b.0-1.parquet").rename(tmp_path / "out" / "b.0-1.parquet")
        with pytest.raises(BatchError, match=r"b\.0-1\.parquet in .* was decided by another model"):
            decide(ice, table, tmp_path / "out")

    def test_content_tells_what_a_footer_cannot(self, ice, table, tmp_path):
        plain = {"use_dictionary": False, "write_statistics": False, "compression": "none"}
        pq.write_table(COLUMNS.slice(600), table / "b.parquet", **plain)
        decide(ice, table, tmp_path / "by footer")
        decide(ice, table, tmp_path / "by content", digest="content")
        assert decide(ice, table, tmp_path / "by content", digest="content").skipped == N
        content = (table / "b.parquet").read_bytes()
        value = np.float64(X[600, 0]).tobytes()
        assert content.count(value) == 1
        (table / "b.parquet").write_bytes(content.replace(value, np.float64(7.5).tobytes()))
        assert decide(ice, table, tmp_path / "by footer").skipped == N
        with pytest.raises(BatchError, match=r"b\.0-1\.parquet .* was made from a file that has changed"):
            decide(ice, table, tmp_path / "by content", digest="content")
        with pytest.raises(BatchError, match="made with another digest"):
            decide(ice, table, tmp_path / "by content")
        with pytest.raises(ValueError, match="digest must be one of footer, content"):
            decide(ice, table, tmp_path / "out", digest="md5")


class TestOneRunAtATime:
    def test_a_second_run_is_refused_while_the_first_is_at_work(self, ice, table, tmp_path):
        class Meddling(InductiveEvaluator):
            def decide(self, X):
                with pytest.raises(BatchError, match=rf"is in use by process {os.getpid()} on .*since"):
                    decide(ice, table, tmp_path / "out")
                return super().decide(X)

        first = Meddling(LogisticRegression(), random_state=0).fit(X, Y)
        assert decide(first, table, tmp_path / "out", n_jobs=1).rows == N
        assert not (tmp_path / "out" / "_lock").exists()

    def test_what_a_dead_run_left_holds_nobody_up(self, ice, table, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "_lock").write_text('{"host": "here", "pid": 1, "started": "long ago"}')
        assert decide(ice, table, tmp_path / "out").rows == N

    def test_a_lock_that_says_nothing_yet(self, ice, table, tmp_path):
        (tmp_path / "out").mkdir()
        with (tmp_path / "out" / "_lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(BatchError, match="is in use by another run"):
                decide(ice, table, tmp_path / "out")
        assert decide(ice, table, tmp_path / "out").rows == N

    def test_a_lock_that_was_removed_meanwhile_is_not_taken_for_one(self, ice, table, tmp_path, monkeypatch):
        """Between opening the file and locking it, another run ended and removed it."""
        flock, calls = fcntl.flock, []

        def late(handle, how):
            if not calls:
                (tmp_path / "out" / "_lock").unlink()
            calls.append(handle)
            flock(handle, how)

        monkeypatch.setattr(fcntl, "flock", late)
        assert decide(ice, table, tmp_path / "out").rows == N
        assert len(calls) == 2
