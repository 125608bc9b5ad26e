"""Commands on artifacts that are unsigned, crafted or of other versions, in this process."""

import json
import os

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from tests.artifacts.crafted import members_of, rebuilt
from tests.artifacts.test_refusals import OURS, THEIRS
from transcendent import InductiveEvaluator
from transcendent.artifacts import sandbox, save
from transcendent.cli.app import app

X, y = make_classification(300, random_state=0)
ROWS = pd.DataFrame(X, columns=[f"f{i}" for i in range(20)])

pytestmark = pytest.mark.filterwarnings("default")  # as on the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artifacts")
    ROWS.to_parquet(folder / "rows.parquet")
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(ROWS, y)
    save(ice, folder / "ice")
    save(ice, folder / "signed", signing_key=OURS[0])
    for name, key in (("ours.pub", OURS[1]), ("theirs.pub", THEIRS[1])):
        (folder / name).write_bytes(key)
    del ice.detectors_[0].estimator.coef_
    save(ice, folder / "broken")
    return folder


@pytest.fixture
def tried(monkeypatch):
    """Rows of trials, which are not made."""
    made = []

    def run(task, _):
        made.append(sandbox.pickle.loads(task)[3])

    monkeypatch.setattr(sandbox, "_tried", set())
    monkeypatch.setattr(sandbox, "_run", run)
    return made


@pytest.fixture
def run(folder, monkeypatch):
    def attempt(*arguments, code=0):
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == code, done.output
        return done

    return attempt


def of_another_version(folder, name, **versions):
    data = (folder / name).read_bytes()
    changed = {library.replace("_", "-"): version for library, version in versions.items()}
    path = folder / f"{name}-other"
    path.write_bytes(rebuilt(data, members_of(data), lambda manifest: manifest["versions"].update(changed)))
    return path


class TestTrials:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("verify", "ice"),
            ("thresholds", "ice"),
            ("decide", "ice", "rows.parquet"),
            ("decide", "ice", "rows.parquet", "-w", "1", "-o", "{out}"),
        ],
        ids=lambda arguments: " ".join(arguments[:4]),
    )
    def test_every_command_that_loads_tries_first(self, run, tried, tmp_path, arguments):
        run(*(argument.format(out=tmp_path / "out") for argument in arguments))
        (rows,) = tried
        if arguments[:4] == ("decide", "ice", "rows.parquet"):
            pd.testing.assert_frame_equal(rows, ROWS[:16])

    @pytest.mark.parametrize("parts", [(), ("-w", "1")])
    def test_what_was_tried_is_used_though_the_file_is_replaced(self, run, tmp_path, monkeypatch, parts):
        honest = InductiveEvaluator(LinearSVC(), random_state=0).fit(ROWS, y)
        save(honest, tmp_path / "ice")
        save(InductiveEvaluator(LinearSVC(), random_state=0).fit(ROWS, 1 - y), tmp_path / "other")
        monkeypatch.setattr(sandbox, "_tried", set())
        monkeypatch.setattr(sandbox, "_run", lambda *_: os.replace(tmp_path / "other", tmp_path / "ice"))
        out = tmp_path / ("out" if parts else "out.parquet")
        run("decide", tmp_path / "ice", "rows.parquet", *parts, "-o", out)
        assert pd.read_parquet(out)["label"].tolist() == honest.decide(ROWS).labels.tolist()

    def test_what_kills_the_trial_does_not_kill_the_command(self, run, monkeypatch):
        monkeypatch.setattr(sandbox, "_tried", set())
        monkeypatch.setattr(sandbox, "_CODE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        assert "ended by SIGSEGV" in run("verify", "ice", code=5).stderr
        assert "ended by SIGSEGV" in run("decide", "ice", "rows.parquet", code=5).stderr


class TestSignatures:
    def test_verify_says_what_is_known_of_the_maker(self, run, tried):
        assert "It is not signed: its author is unknown" in run("verify", "ice").stdout
        assert "signer not verified; pass --public-key" in run("verify", "signed").stdout
        said = run("verify", "signed", "--public-key", "ours.pub").stdout
        assert "It is signed by the owner of the key" in said

    @pytest.mark.parametrize("command", [("verify",), ("info",), ("thresholds",), ("decide", "rows.parquet")])
    def test_the_environment_requires_them(self, run, tried, folder, monkeypatch, command):
        def refused(artifact):
            return run(command[0], artifact, *command[1:], code=5).stderr

        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(folder / "ours.pub"))
        assert "A signature is required" in refused("ice")
        run(command[0], "signed", *command[1:])
        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(folder / "theirs.pub"))
        assert "signature does not match" in refused("signed")
        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(folder / "nowhere.pub"))
        assert "cannot be read: No such file" in refused("signed")
        monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", "")
        assert "TRANSCENDENT_PUBLIC_KEY is empty" in refused("signed")


class TestVersions:
    def test_verify_names_them(self, run, tried, folder):
        assert "written with the installed versions" in run("verify", "ice").stdout
        other = of_another_version(folder, "ice", scikit_learn="1.7.2", numpy="1.0")
        said = run("verify", other).stdout
        assert f"scikit-learn 1.7.2 and is read under {sklearn.__version__}; under numpy 1.0 and" in said
        as_json = json.loads(run("verify", other, "--json").stdout)
        assert as_json["versions"]["scikit-learn"] == "1.7.2"
        assert as_json["version_differences"] == [
            {"library": "scikit-learn", "written": "1.7.2", "here": sklearn.__version__},
            {"library": "numpy", "written": "1.0", "here": np.__version__},
        ]
        assert "scikit-learn 1.7.2" in run("verify", other, "--strict", code=5).stderr

    def test_decide_warns_in_one_line(self, run, tried, folder):
        other = of_another_version(folder, "ice", scikit_learn="1.7.2")
        (line,) = run("decide", other, "rows.parquet").stderr.splitlines()
        assert line.startswith("warning: ")
        assert f"written under scikit-learn 1.7.2 and is read under {sklearn.__version__}" in line
        for arguments in (("decide", other, "rows.parquet"), ("thresholds", other)):
            assert "scikit-learn 1.7.2" in run(*arguments, "--strict", code=5).stderr

    def test_what_fails_under_them_is_the_artifacts_fault(self, run, tried, folder):
        other = of_another_version(folder, "broken", scikit_learn="1.7.2")
        said = run("decide", other, "rows.parquet", code=5).stderr
        assert "error: " in said
        assert "coef_" in said
        assert "scikit-learn 1.7.2" in said.splitlines()[-1]
        assert "cannot decide these rows" in run("decide", "broken", "rows.parquet", code=5).stderr


class TestFiles:
    @pytest.mark.parametrize("command", ["verify", "info"])
    def test_a_pipe(self, run, tmp_path, command):
        os.mkfifo(tmp_path / "pipe")
        assert "not a regular file" in run(command, tmp_path / "pipe", code=5).stderr

    def test_a_pipe_is_not_replaced(self, run, tried, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        said = run("thresholds", "ice", "-o", tmp_path / "pipe", code=7).stderr
        assert "pipe cannot be written: it is not a regular file, so it is not replaced." in said
        assert (tmp_path / "pipe").is_fifo()

    def test_what_is_in_it_does_not_steer_the_terminal(self, run, tried, folder):
        def lie(manifest):
            manifest["description"] = "\x1b[2J\nsigned         yes"
            manifest["training_period"] = ["\x1b]0;x\x07", "\u202e"]
            manifest["versions"]["transcendent"] = "\x1b[31m"

        data = (folder / "ice").read_bytes()
        (folder / "steering").write_bytes(rebuilt(data, members_of(data), lie))
        for arguments in (
            ("info", "steering"),
            ("info", "steering", "--json"),
            ("verify", "steering"),
            ("decide", "steering", "rows.parquet"),
        ):
            said = run(*arguments).output
            assert said.replace("\n", "").isprintable()
        forged = [line for line in run("info", "steering").stdout.splitlines() if line.startswith("signed")]
        assert forged == ["signed         no"]

    def test_what_is_in_a_traceback_does_not_either(self, run, monkeypatch):
        def fail(*_, **__):
            raise RuntimeError("\x1b[2J")

        monkeypatch.setattr("transcendent.artifacts.open_artifact", fail)
        said = run("info", "ice", code=1).stderr
        assert "RuntimeError: \\x1b[2J" in said
        assert said.replace("\n", "").isprintable()


def test_fit_describes_what_it_wrote_where_signatures_are_required(run, folder, monkeypatch):
    monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(folder / "ours.pub"))
    frame = ROWS.assign(label=y, time=np.datetime64("2024-01-01") + np.arange(300))
    frame.to_parquet(folder / "data.parquet")
    (folder / "e.toml").write_text(
        '[data]\nfile = "data.parquet"\nlabel = "label"\ntime = "time"\n[split]\ntrain = "2024-09"\n'
        '[detector]\nclass = "sklearn.svm.LinearSVC"\n[rejectors.ICE]\n'
    )
    assert "fitted on" in run("fit", "e.toml", "-o", "fitted").stdout
