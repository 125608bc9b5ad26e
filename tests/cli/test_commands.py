"""The commands as people run them; where processes, pipes or signals matter, in a process of their own."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import chdir
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

from transcendent import InductiveEvaluator
from transcendent.artifacts import load, open_artifact
from transcendent.cli.app import app
from transcendent.datasets import make_stream
from transcendent.temporal import backtest

COMMAND = str(Path(sys.executable).with_name("transcendent"))
# The command in a process that does not start another one to try artifacts out, which takes as long again.
UNTRIED = [
    sys.executable,
    "-c",
    "from transcendent.artifacts import sandbox; sandbox._run = lambda *_: None\n"
    "from transcendent.cli import main; main()",
]
pytestmark = pytest.mark.usefixtures("tried_here")

TOML = """
[data]
file = "objects.parquet"
label = "verdict"
time = "seen"
id = "name"

[split]
train = "2020-06"

[detector]
class = "sklearn.svm.LinearSVC"
C = 0.1

[rejectors.ICE]

[rejectors.probability]
"""
MAIL = """
[data]
file = "mail.csv"
label = "spam"
time = "seen"
features = "mail"

[detector]
steps = [
  { class = "sklearn.feature_extraction.text.TfidfVectorizer" },
  { class = "sklearn.svm.LinearSVC" },
]
"""
SIGNED = """
[data]
file = "all.csv"
label = "spam"

[detector]
steps = [
  { class = "sklearn.preprocessing.OneHotEncoder", columns = ["signed"], handle_unknown = "ignore" },
  { class = "sklearn.svm.LinearSVC" },
]
"""
SETTINGS = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
ENVIRONMENT = os.environ | SETTINGS


def run(*arguments, cwd, code=0, env=None):
    """Run the command to its end in this process, and check the code it ends with."""
    with chdir(cwd), warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, list(map(str, arguments)), env=SETTINGS | (env or {}))
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def run_process(*arguments, cwd, code=0, env=None, command=(COMMAND,)):
    """Run the command to its end in a process of its own."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def stream():
    return make_stream(2400, n_periods=12, concept=0.5, random_state=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, stream):
    """Objects as a table, an experiment, and an artifact fitted by it."""
    folder = tmp_path_factory.mktemp("experiment")
    frame = pd.DataFrame(stream.X, columns=[f"f{i}" for i in range(stream.X.shape[1])])
    frame = frame.assign(
        verdict=np.where(stream.y == 1, "malicious", "good"),
        seen=stream.times.astype("datetime64[s]"),
        name=[f"object {i}" for i in range(len(frame))],
    )
    frame.to_parquet(folder / "objects.parquet")
    (folder / "experiment.toml").write_text(TOML)
    run("fit", "experiment.toml", "--rejector", "ICE", "--out", "ice.transcendent", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem"], cwd=folder, check=True
        )
        subprocess.run(
            ["openssl", "pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub"],
            cwd=folder,
            check=True,
        )
    return folder


@pytest.fixture(scope="module")
def finished(folder):
    run("backtest", "experiment.toml", "-o", "finished", cwd=folder)


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    place = tmp_path_factory.mktemp("full")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs takes root")
    yield place
    subprocess.run(["umount", place], check=True)


class TestFit:
    def test_what_is_written(self, folder, stream):
        artifact = open_artifact(folder / "ice.transcendent")
        assert artifact.manifest["classes"] == ["good", "malicious"]
        assert artifact.manifest["features"]["names"] == [f"f{i}" for i in range(stream.X.shape[1])]
        assert artifact.manifest["training_period"][1].startswith("2020-05")
        assert artifact.manifest["notes"] == {"id": "name", "train": "2020-06"}

    def test_it_is_what_python_would_have_fitted(self, folder, stream):
        frame = pd.read_parquet(folder / "objects.parquet")
        features = [c for c in frame.columns if c.startswith("f")]
        past = frame[frame["seen"] < "2020-06"]
        from sklearn.svm import LinearSVC

        ice = InductiveEvaluator(LinearSVC(C=0.1, random_state=0), random_state=0)
        ice.fit(past[features], past["verdict"].to_numpy(dtype=str))
        expected = ice.decide(frame[features])
        found = load(folder / "ice.transcendent").decide(frame[features])
        np.testing.assert_array_equal(found.accepted, expected.accepted)
        np.testing.assert_array_equal(found.p_values, expected.p_values)

    def test_json(self, folder, tmp_path):
        done = run(
            "fit",
            "experiment.toml",
            "--rejector",
            "ICE",
            "--train",
            "2020-04",
            "-o",
            tmp_path / "x",
            "--json",
            cwd=folder,
        )
        said = json.loads(done.stdout)
        assert said["training_period"][1].startswith("2020-03")
        assert said["sha256"] == open_artifact(tmp_path / "x").digest

    def test_which_of_several_rejectors(self, folder):
        assert (
            "--rejector: experiment.toml has several; choose ICE or probability."
            in run("fit", "experiment.toml", "-o", "x", cwd=folder, code=2).stderr
        )
        assert (
            "did you mean"
            in run("fit", "experiment.toml", "-o", "x", "--rejector", "ICF", cwd=folder, code=2).stderr
        )

    def test_an_error_in_the_file(self, folder):
        (folder / "wrong.toml").write_text(TOML.replace("C = 0.1", "CC = 0.1"))
        done = run("fit", "wrong.toml", "-o", "x", cwd=folder, code=3)
        assert "wrong.toml, line 13: LinearSVC has no parameter 'CC'; did you mean 'C'?" in done.stderr


class TestDecide:
    def test_parquet_out(self, folder, tmp_path):
        done = run("decide", "ice.transcendent", "objects.parquet", "-o", tmp_path / "d.parquet", cwd=folder)
        assert re.match(r"2,400 objects: [\d,]+ accepted", done.stdout)
        written = pd.read_parquet(tmp_path / "d.parquet")
        rows = pd.read_parquet(folder / "objects.parquet")
        expected = load(folder / "ice.transcendent").decide(rows[[c for c in rows if c.startswith("f")]])
        assert written["id"].tolist() == rows["name"].tolist()
        assert written["accepted"].tolist() == expected.accepted.tolist()
        assert written["credibility"].tolist() == expected.credibility.tolist()

    @pytest.mark.slow
    def test_csv_in_and_out(self, folder, tmp_path):
        pd.read_parquet(folder / "objects.parquet").drop(columns=["verdict", "seen"]).to_csv(
            tmp_path / "new.csv", index=False
        )
        given = ("decide", folder / "ice.transcendent", "new.csv", "-o", "-")
        done = run_process(*given, cwd=tmp_path, command=UNTRIED)
        header, first, *_ = done.stdout.splitlines()
        assert header.startswith('"id","label","accepted","credibility"')
        assert first.startswith('"object 0"')
        assert len(done.stdout.splitlines()) == 2401

    def test_json(self, folder):
        said = json.loads(run("decide", "ice.transcendent", "objects.parquet", "--json", cwd=folder).stdout)
        assert said["objects"] == said["accepted"] + said["rejected"] == 2400
        assert [row["class"] for row in said["predicted"]] == ["good", "malicious"]

    def test_a_missing_column(self, folder, tmp_path):
        pd.DataFrame({"f0": [1.0], "f1": [2.0]}).to_parquet(tmp_path / "x.parquet")
        done = run("decide", "ice.transcendent", tmp_path / "x.parquet", cwd=folder, code=4)
        assert "has no column" in done.stderr

    def test_without_the_column_of_names_objects_are_numbered(self, folder, tmp_path):
        pd.read_parquet(folder / "objects.parquet").drop(columns=["name"]).head(3).to_parquet(
            tmp_path / "x.parquet"
        )
        done = run("decide", "ice.transcendent", tmp_path / "x.parquet", "-o", "-", cwd=folder)
        assert done.stdout.startswith('"file","row","label"')
        assert "Objects are numbered" in done.stderr
        run("decide", "ice.transcendent", tmp_path / "x.parquet", "--id", "name", cwd=folder, code=4)

    @pytest.mark.slow
    def test_a_closed_pipe(self, folder):
        command = shlex.join([*UNTRIED, "decide", "ice.transcendent", "objects.parquet", "-o", "-"])
        shell = f"{command} | head -1; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", shell], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert done.stdout.count("\n") == 1
        assert done.stderr == ""
        assert done.returncode in (0, 141)  # 0 if all of it fitted into the pipe

    @pytest.mark.slow
    def test_nobody_reads(self, folder):
        command = shlex.join([*UNTRIED, "decide", "ice.transcendent", "objects.parquet", "-o", "-"])
        shell = f"({command}; echo ended with $? >&2) | true"
        done = subprocess.run(
            ["bash", "-c", shell], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert done.stderr == "ended with 141\n"

    @pytest.mark.parametrize("name", ["x.npz", "x.svm"])
    def test_matrices(self, folder, tmp_path, stream, name):
        rows = sp.csr_matrix(np.where(np.abs(stream.X) > 0.5, stream.X, 0))
        np.savez(tmp_path / "meta.npz", y=stream.y)
        frame = pd.DataFrame({"y": stream.y, "seen": stream.times.astype("datetime64[s]")})
        frame.to_csv(tmp_path / "meta.csv", index=False)
        if name == "x.npz":
            sp.save_npz(tmp_path / name, rows)
        else:
            dump_svmlight_file(rows, stream.y, str(tmp_path / name), zero_based=False)
        text = TOML.replace("objects.parquet", name).replace(
            'label = "verdict"', 'table = "meta.csv"\nlabel = "y"'
        )
        (tmp_path / "e.toml").write_text(text.replace('id = "name"\n', ""))
        run("fit", "e.toml", "--rejector", "probability", "-o", "p.transcendent", cwd=tmp_path)
        said = json.loads(run("decide", "p.transcendent", name, "--json", cwd=tmp_path).stdout)
        assert said["objects"] == 2400

    def test_arrays_of_an_npz_file(self, tmp_path, stream):
        np.savez(tmp_path / "x.npz", X=stream.X, y=stream.y, t=stream.times)
        text = TOML.replace("objects.parquet", "x.npz").replace('"verdict"', '"y"').replace('"seen"', '"t"')
        (tmp_path / "e.toml").write_text(text.replace('id = "name"\n', ""))
        run("fit", "e.toml", "--rejector", "ICE", "-o", "p.transcendent", cwd=tmp_path)
        assert "2,400 objects" in run("decide", "p.transcendent", "x.npz", cwd=tmp_path).stdout

    def test_trees_are_trusted_by_name(self, folder, tmp_path):
        forest = TOML.replace("sklearn.svm.LinearSVC", "lightgbm.LGBMClassifier").replace(
            "C = 0.1", "n_estimators = 5\nverbose = -1"
        )
        (folder / "forest.toml").write_text(forest)
        run("fit", "forest.toml", "--rejector", "ICE", "-o", tmp_path / "f", cwd=folder)
        done = run("decide", tmp_path / "f", "objects.parquet", cwd=folder, code=5)
        assert "--trust lightgbm.basic.Booster" in done.stderr
        run("decide", tmp_path / "f", "objects.parquet", "--trust", "lightgbm.basic.Booster", cwd=folder)
        run("verify", tmp_path / "f", cwd=folder, env={"TRANSCENDENT_TRUSTED": "lightgbm.basic.Booster"})

    def test_text(self, tmp_path, stream):
        words = np.where(stream.y == 1, "cheap pills", "see you at noon")
        frame = pd.DataFrame({"mail": words, "spam": stream.y, "seen": stream.times.astype("datetime64[s]")})
        frame.to_csv(tmp_path / "mail.csv", index=False)
        (tmp_path / "e.toml").write_text(MAIL)
        run("fit", "e.toml", "-o", "m.transcendent", cwd=tmp_path)
        assert "2,400 objects" in run("decide", "m.transcendent", "mail.csv", cwd=tmp_path).stdout

    def test_booleans_with_gaps(self, tmp_path, stream):
        """A column of True, False and gaps is not text, however its cells fall into files."""
        rng = np.random.default_rng(0)
        signed = np.where(rng.random(len(stream.y)) < 0.1, "", np.where(stream.y == 1, "False", "True"))
        frame = pd.DataFrame({"size": stream.X[:, 0], "signed": signed, "spam": stream.y})
        frame.to_csv(tmp_path / "all.csv", index=False)
        frame[frame["signed"] != ""].to_csv(tmp_path / "full.csv", index=False)
        odd = pd.DataFrame({"size": [0.0], "signed": ["maybe"], "spam": [0]})
        pd.concat([frame, odd]).to_csv(tmp_path / "odd.csv", index=False)
        pd.read_csv(tmp_path / "all.csv").to_parquet(tmp_path / "all.parquet")
        (tmp_path / "e.toml").write_text(SIGNED)
        run("fit", "e.toml", "-o", "m.transcendent", cwd=tmp_path)

        def decided(name):
            run("decide", "m.transcendent", name, "-o", "out.csv", cwd=tmp_path)
            return pd.read_csv(tmp_path / "out.csv")[["label", "credibility", "accepted"]]

        everything = decided("all.csv")
        rows = pd.read_csv(tmp_path / "all.csv")[["size", "signed"]]
        expected = load(tmp_path / "m.transcendent").decide(rows)
        np.testing.assert_array_equal(everything["accepted"], expected.accepted)
        pd.testing.assert_frame_equal(decided("all.parquet"), everything)
        pd.testing.assert_frame_equal(decided("odd.csv")[:-1], everything)
        there = everything[frame["signed"] != ""].reset_index(drop=True)
        pd.testing.assert_frame_equal(decided("full.csv"), there)


class TestDecideInParts:
    @pytest.fixture
    def table(self, folder, tmp_path):
        (tmp_path / "table").mkdir()
        frame = pd.read_parquet(folder / "objects.parquet")
        for i in range(3):
            frame[i * 800 : (i + 1) * 800].to_parquet(tmp_path / "table" / f"{i}.parquet")
        return tmp_path / "table"

    def check(self, folder, out):
        frame = pd.read_parquet(folder / "objects.parquet")
        expected = load(folder / "ice.transcendent").decide(frame[[c for c in frame if c.startswith("f")]])
        found = pd.read_parquet(out).set_index("id").loc[frame["name"]]
        assert len(pd.read_parquet(out)) == len(frame)
        np.testing.assert_array_equal(found["accepted"], expected.accepted)
        np.testing.assert_array_equal(found["label"], expected.labels)

    @pytest.mark.slow
    def test_a_folder(self, folder, table, tmp_path):
        done = run("decide", folder / "ice.transcendent", "table", "-o", "out", "--p-values", cwd=tmp_path)
        assert "2,400 rows: " in done.stdout
        assert "written to out" in done.stdout
        self.check(folder, tmp_path / "out")
        assert "p_value[good]" in pd.read_parquet(tmp_path / "out").columns
        said = run(
            "decide", folder / "ice.transcendent", "table", "-o", "out", "--p-values", "--json", cwd=tmp_path
        )
        assert json.loads(said.stdout)["skipped"] == 2400

    @pytest.mark.slow
    def test_a_dask_cluster(self, folder, table, tmp_path, client):
        address = client.scheduler.address
        given = ("decide", folder / "ice.transcendent", "table", "-o", "out", "--scheduler", address)
        run(*given, cwd=tmp_path)
        self.check(folder, tmp_path / "out")

    def test_named_columns_and_one_file(self, folder, tmp_path):
        names = [f"--features=f{i}" for i in range(10)]
        given = ("decide", "ice.transcendent", "objects.parquet", "-w", "1", "--id", "name", *names)
        run(*given, "-o", tmp_path / "out", cwd=folder)
        self.check(folder, tmp_path / "out")

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["table"], 2, "needs --out FOLDER"),
            (["table", "-o", "d.parquet"], 2, "needs --out FOLDER"),
            (["table", "-o", "out", "-w", "2", "--scheduler", "tcp://x:1"], 2, "choose one"),
            (["table/0.parquet", "--values", "x"], 2, "need --workers, --scheduler or a folder"),
            (["table/0.parquet", "--digest", "content"], 2, "need --workers, --scheduler or a folder"),
            (["nothing.parquet"], 2, "there is no file nothing.parquet"),
            (["table", "-o", "out", "--scheduler", "tcp://127.0.0.1:1"], 10, "there is no Dask scheduler"),
            (["table", "-o", "out", "--id", "sha"], 4, "no column 'sha'"),
            (["s3", "-o", "out", "-w", "1"], 4, "does not exist"),
        ],
    )
    def test_mistakes(self, folder, table, tmp_path, arguments, code, said):
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
            done = run("decide", folder / "ice.transcendent", *arguments, cwd=tmp_path, code=code)
        assert said in done.stderr

    def test_a_full_disk_and_on_from_there(self, folder, table, full_disk):
        given = ("decide", folder / "ice.transcendent", table, "-w", "1", "-o", full_disk / "out")
        done = run(*given, cwd=folder, code=10)
        assert "No space left on device" in done.stderr
        assert "the same call resumes from there" in done.stderr
        assert not list(full_disk.rglob("*.aside"))
        subprocess.run(["mount", "-o", "remount,size=1m", full_disk], check=True)
        run(*given, cwd=folder)
        self.check(folder, full_disk / "out")
        shutil.rmtree(full_disk / "out")
        subprocess.run(["mount", "-o", "remount,size=16k", full_disk], check=True)

    @pytest.mark.slow
    def test_ctrl_c_and_on_from_there(self, folder, table, tmp_path):
        frame = pd.read_parquet(folder / "objects.parquet")
        for i in range(60):
            frame.to_parquet(table / f"more-{i}.parquet")
        command = [COMMAND, "decide", folder / "ice.transcendent", "table", "-o", "out", "-w", "2"]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while process.poll() is None and not list(tmp_path.glob("out/*.parquet")):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "the same command resumes from there" in said
        done = json.loads(run(*command[1:], "--json", cwd=tmp_path).stdout)
        assert 0 < done["skipped"] < done["rows"] == 61 * 2400


class TestArtifacts:
    def test_info(self, folder):
        said = run("info", "ice.transcendent", cwd=folder).stdout
        assert "InductiveEvaluator(estimator=LinearSVC(C=0.1, random_state=0), random_state=0)" in said
        assert "good, malicious" in said
        assert "proven best" in said
        as_json = json.loads(run("info", "ice.transcendent", "--json", cwd=folder).stdout)
        assert as_json["types_to_trust"] == []
        assert set(as_json["files"]) == {"calibration-0.npz", "rejector.skops"}

    def test_verify(self, folder, tmp_path):
        assert "is complete" in run("verify", "ice.transcendent", cwd=folder).stdout
        damaged = bytearray((folder / "ice.transcendent").read_bytes())
        damaged[1000] ^= 1
        (tmp_path / "damaged").write_bytes(damaged)
        assert "damaged" in run("verify", tmp_path / "damaged", cwd=folder, code=5).stderr
        assert "does not exist" in run("verify", tmp_path / "nowhere", cwd=folder, code=2).stderr

    def test_signatures(self, folder, keys, tmp_path):
        run(
            "fit",
            "experiment.toml",
            "--rejector",
            "ICE",
            "-o",
            tmp_path / "s",
            "--signing-key",
            keys / "ours.pem",
            cwd=folder,
        )
        said = json.loads(
            run("verify", tmp_path / "s", "--public-key", keys / "ours.pub", "--json", cwd=folder).stdout
        )
        assert said["verified"]
        assert said["signature_checked"]
        refused = run(
            "decide",
            tmp_path / "s",
            "objects.parquet",
            "--public-key",
            keys / "theirs.pub",
            cwd=folder,
            code=5,
        )
        assert "signature does not match" in refused.stderr
        again = run("thresholds", tmp_path / "s", "-o", tmp_path / "t", cwd=folder)
        assert "is not; to sign it: --signing-key KEY" in again.stderr
        unsigned = {"TRANSCENDENT_PUBLIC_KEY": str(keys / "ours.pub")}
        assert "not signed" in run("info", "ice.transcendent", cwd=folder, env=unsigned, code=5).stderr

    def test_thresholds(self, folder, tmp_path):
        shown = run("thresholds", "ice.transcendent", "--max-rejection", "0.05", cwd=folder)
        assert "not written" in shown.stdout
        said = json.loads(
            run(
                "thresholds",
                "ice.transcendent",
                "--max-rejection",
                "0.05",
                "-o",
                tmp_path / "t",
                "--json",
                cwd=folder,
            ).stdout
        )
        assert said["after"][0]["rejection_rate"] <= 0.05 < said["before"][0]["rejection_rate"]
        again = open_artifact(tmp_path / "t").manifest
        assert again["thresholds"] == said["after"]
        assert (
            again["training_period"] == open_artifact(folder / "ice.transcendent").manifest["training_period"]
        )

    def test_thresholds_that_do_not_exist(self, folder):
        done = run(
            "thresholds",
            "ice.transcendent",
            "--constraint",
            "f1 >= 0.9999",
            "--max-rejection",
            "0.01",
            cwd=folder,
            code=6,
        )
        assert "no thresholds satisfy" in done.stderr
        assert (
            "not a constraint"
            in run("thresholds", "ice.transcendent", "--constraint", "f1", cwd=folder, code=2).stderr
        )


class TestData:
    def test_a_table(self, folder):
        said = run("data", "objects.parquet", "--label", "verdict", "--time", "seen", cwd=folder).stdout
        assert "2,400" in said
        assert "no split to check" in said

    def test_an_experiment(self, folder):
        said = json.loads(run("data", "experiment.toml", "--json", cwd=folder).stdout)
        assert said["training"] + said["test"] == 2400
        assert [c["class"] for c in said["classes"]] == ["good", "malicious"]
        assert len(said["periods"]) == 12

    def test_a_split_that_backtests_refuse(self, folder, tmp_path):
        frame = pd.read_parquet(folder / "objects.parquet")
        frame["seen"] = np.where(
            frame["verdict"] == "good", frame["seen"] - pd.Timedelta(days=3000), frame["seen"]
        )
        frame.to_parquet(tmp_path / "biased.parquet")
        done = run(
            "data",
            "biased.parquet",
            "--label",
            "verdict",
            "--time",
            "seen",
            "--train",
            "2020-06",
            cwd=tmp_path,
            code=9,
        )
        assert "class_windows" in done.stdout


class TestBacktest:
    def test_it_is_what_python_finds(self, folder, tmp_path):
        done = run("backtest", "experiment.toml", "-o", tmp_path / "b", "--json", cwd=folder)
        said = json.loads(done.stdout)
        assert said["summary"]["rejector"] == ["ICE", "probability"]
        assert len(said["periods"]) == 7
        from sklearn.svm import LinearSVC

        frame = pd.read_parquet(folder / "objects.parquet")
        rows = frame[[c for c in frame if c.startswith("f")]]
        ice = InductiveEvaluator(LinearSVC(C=0.1))
        result = backtest(
            {"ICE": ice},
            rows,
            frame["verdict"].to_numpy(dtype=str),
            frame["seen"].to_numpy(),
            train="2020-06",
        )
        assert said["summary"]["f1_kept"][0] == result.summary()["f1_kept"][0]

    @pytest.mark.slow
    def test_the_default_folder_and_the_report(self, folder):
        assert "kept in experiment" in run("backtest", "experiment.toml", cwd=folder).stdout
        again = run("backtest", "experiment.toml", cwd=folder).stdout
        assert re.search("read from experiment, where it finished 20.*; --fresh runs it again", again)
        changed = TOML.replace("C = 0.1", "C = 1")
        (folder / "changed.toml").write_text(changed)
        refused = run("backtest", "changed.toml", "-o", "experiment", cwd=folder, code=4).stderr
        assert "replace its backtest with fresh=True or --fresh" in refused
        fresh = run("backtest", "changed.toml", "-o", "experiment", "--fresh", "--json", cwd=folder)
        assert not json.loads(fresh.stdout)["read"]
        said = run("report", cwd=folder).stdout
        assert "no campaigns" not in said
        page = folder / "experiment/report.html"
        assert str(page.relative_to(folder)) in said
        assert "<h1>changed</h1>" in page.read_text()
        assert "hours at 5 minutes each" in page.read_text()
        line = (
            "report",
            "experiment",
            "-o",
            "page.html",
            "--title",
            "My detector",
            "--minutes",
            "90",
            "--json",
        )
        assert json.loads(run(*line, cwd=folder).stdout)["report"] == "page.html"
        assert "<h1>My detector</h1>" in (folder / "page.html").read_text()
        assert "hours at 90 minutes each" in (folder / "page.html").read_text()
        assert "Exact content only" in (folder / "page.html").read_text()

    @pytest.mark.slow
    def test_campaigns_need_the_rows_that_were_tested(self, folder, tmp_path):
        for name in ("experiment.toml", "objects.parquet"):
            shutil.copy(folder / name, tmp_path)
        run("backtest", "experiment.toml", "-o", "runs/elsewhere", cwd=tmp_path)
        report = ("report", "runs/elsewhere")
        page = tmp_path / "runs/elsewhere/report.html"
        assert (
            "no campaigns: there is no elsewhere.toml beside runs/elsewhere"
            in run(*report, cwd=tmp_path).stdout
        )
        assert "Campaigns among the rejected" not in page.read_text()
        run(*report, "--toml", "experiment.toml", cwd=tmp_path)
        assert "Campaigns among the rejected" in page.read_text()
        frame = pd.read_parquet(tmp_path / "objects.parquet")
        frame[::-1].to_parquet(tmp_path / "objects.parquet")
        refused = run(*report, "--toml", "experiment.toml", cwd=tmp_path, code=4).stderr
        assert "experiment.toml does not have the rows that were tested" in refused
        (tmp_path / "runs/elsewhere.toml").write_text("[data")
        said = json.loads(run(*report, "--json", cwd=tmp_path).stdout)
        assert "elsewhere.toml" in said["no_campaigns"]
        assert "Campaigns among the rejected" not in page.read_text()

    @pytest.mark.slow
    def test_several_seeds_are_reported_too(self, tmp_path):
        from sklearn.svm import LinearSVC

        stream = make_stream(600, n_periods=6, random_state=0)
        given = {"train": "2020-04", "allow": ["few_positives"], "random_state": [0, 1], "verbose": False}
        ice = {"ICE": InductiveEvaluator(LinearSVC(C=0.1))}
        backtest(ice, stream.X, stream.y, stream.times, **given, folder=tmp_path / "runs", title="Seeds")
        said = json.loads(run("report", "--json", cwd=tmp_path).stdout)
        assert said["seeds"] == [0, 1]
        assert "<h1>Seeds</h1>" in (tmp_path / "runs/report.html").read_text()

    def test_no_backtest_to_report(self, tmp_path):
        assert "no finished backtest" in run("report", cwd=tmp_path, code=4).stderr
        assert "there is no folder nowhere" in run("report", "nowhere", cwd=tmp_path, code=4).stderr

    @pytest.mark.slow
    def test_ctrl_c_and_on_from_there(self, folder, tmp_path, monkeypatch):
        slow = TOML.replace(
            "[rejectors.ICE]", "[rejectors.ICE]\n[rejectors.CCE]\ncv = 30\n[retrain]\nlabels = 20"
        )
        (folder / "slow.toml").write_text(slow)
        command = [COMMAND, "backtest", "slow.toml", "-o", str(tmp_path / "b")]
        process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=-1, stderr=-1, text=True)
        checkpoints = tmp_path / "b/checkpoints"
        for _ in range(600):
            if checkpoints.exists() and len(list(checkpoints.glob("*.npz"))) >= 3:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert said.strip().splitlines()[-1] == (
            f"interrupted. Finished work is kept in {tmp_path / 'b'}; the same command resumes from there."
        )
        assert "Traceback" not in said
        done, written = len(list(checkpoints.glob("*.npz"))), []
        assert 3 <= done < 21
        module = sys.modules["transcendent.temporal.running"]
        monkeypatch.setattr(module, "write_period", lambda *given: written.append(given[1:3]))
        resumed = json.loads(run(*command[1:], "--json", cwd=folder).stdout)
        assert len(written) == 21 - done
        assert not checkpoints.exists()
        anew = json.loads(run(*command[1:3], "-o", tmp_path / "c", "--json", cwd=folder).stdout)
        assert resumed["summary"] == anew["summary"]

    @pytest.mark.slow
    def test_ctrl_c_in_processes(self, folder, tmp_path):
        (folder / "slow2.toml").write_text(
            TOML.replace("[rejectors.ICE]", "[rejectors.ICE]\n[rejectors.CCE]\ncv = 200")
        )
        command = [COMMAND, "backtest", "slow2.toml", "-o", str(tmp_path / "b"), "--jobs", "2"]
        process = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdout=-1, stderr=-1, text=True, start_new_session=True
        )
        for _ in range(600):
            if (tmp_path / "b/checkpoints").exists() and list((tmp_path / "b/checkpoints").glob("*.npz")):
                break
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "the same command resumes from there" in said


class TestNoRoomAndNoLeave:
    """A folder that may not be written to, and a disk that is full."""

    OUTPUTS = (
        ("fit", "{folder}/experiment.toml", "--rejector", "ICE", "-o", "{place}/x"),
        ("decide", "{folder}/ice.transcendent", "{folder}/objects.parquet", "-o", "{place}/x.parquet"),
        ("decide", "{folder}/ice.transcendent", "{folder}/objects.parquet", "-o", "{place}/x.csv"),
        ("thresholds", "{folder}/ice.transcendent", "-o", "{place}/x"),
        ("backtest", "{folder}/experiment.toml", "-o", "{place}/b"),
        ("report", "{folder}/finished", "-o", "{place}/x.html"),
    )

    @pytest.mark.parametrize("arguments", OUTPUTS, ids=lambda a: f"{a[0]} {Path(a[-1]).name}")
    def test_a_full_disk(self, folder, finished, full_disk, arguments):
        given = [argument.format(folder=folder, place=full_disk) for argument in arguments]
        done = run(*given, cwd=folder, code=7)
        assert "No space left on device" in done.stderr
        assert str(full_disk) in done.stderr
        left = [path for path in full_disk.rglob("*") if path.is_file()]
        assert [path for path in left if "checkpoints" not in path.parts] == []
        for path in left:  # what a backtest has done is kept, and whole
            assert path.suffix == ".json" or np.load(path)["labels"].size
        for path in full_disk.iterdir():
            shutil.rmtree(path)

    # Each starts a process: a file and a folder are enough for the usual run.
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "arguments",
        [pytest.param(each, marks=() if i in (2, 4) else pytest.mark.full) for i, each in enumerate(OUTPUTS)],
        ids=lambda a: f"{a[0]} {Path(a[-1]).name}",
    )
    def test_a_read_only_folder(self, folder, finished, tmp_path, arguments):
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv is not here to forbid it")
        place = tmp_path / "read-only"
        place.mkdir(mode=0o555)
        given = [argument.format(folder=folder, place=place) for argument in arguments]
        before = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
        done = run_process(*given, cwd=folder, code=7, command=[*before, *UNTRIED])
        assert "Permission denied" in done.stderr
        assert str(place) in done.stderr


class TestManners:
    def test_help_names_every_command_and_exit_code(self, tmp_path):
        said = run_process("--help", cwd=tmp_path).stdout
        for word in (
            "fit",
            "decide",
            "backtest",
            "report",
            "info",
            "verify",
            "thresholds",
            "data",
            "130 interrupted",
        ):
            assert word in said

    def test_a_command_that_does_not_exist(self, tmp_path):
        assert "Did you mean 'fit'?" in run_process("fot", cwd=tmp_path, code=2).stderr

    def test_version(self, tmp_path):
        assert run_process("--version", cwd=tmp_path).stdout.startswith("transcendent 0.")

    def test_completion(self, tmp_path):
        env = {"_TRANSCENDENT_COMPLETE": "complete_bash", "COMP_WORDS": "transcendent ba", "COMP_CWORD": "1"}
        assert run_process(cwd=tmp_path, env=env).stdout.strip() == "backtest"

    @pytest.mark.slow
    def test_progress_is_for_terminals_only(self, folder, tmp_path):
        done = run_process("backtest", "experiment.toml", "-o", tmp_path / "b", cwd=folder)
        assert "\r" not in done.stderr

    def test_without_its_extras_it_says_what_to_install(self, tmp_path):
        script = "import sys; sys.modules['typer'] = None; from transcendent.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 8
        assert 'pip install "transcendent[cli]"' in done.stderr
