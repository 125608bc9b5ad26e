"""The code a command ends with is the documented one, in the process of the test: it takes no imports."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import dask
import numpy as np
import pandas as pd
import pytest
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

from transcendent import InductiveEvaluator
from transcendent.artifacts import save
from transcendent.cli import artifacts
from transcendent.cli.app import app
from transcendent.cli.console import EXIT_CODES
from transcendent.experiments import describing

TOML = """
[data]
file = "x.csv"
label = "y"
time = "t"
features = ["a", "b"]
[split]
train = "2024-06"
[detector]
class = "sklearn.svm.LinearSVC"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    frame = pd.DataFrame({"a": rng.normal(size=600) + y, "b": rng.normal(size=600)})
    save(InductiveEvaluator(LinearSVC(), random_state=0).fit(frame, y), folder / "ok.transcendent")
    frame["y"] = y
    frame["t"] = (np.datetime64("2024-01-01") + np.arange(600) // 2).astype(str)
    frame["n"] = np.arange(600)
    frame.to_csv(folder / "x.csv", index=False)
    days = np.array([["2024-01-05", "2024-02-05"], ["2024-04-05", "2024-05-05"]])
    frame.assign(t=days[np.arange(600) // 300, y]).to_csv(folder / "biased.csv", index=False)
    (folder / "ok.toml").write_text(TOML)
    (folder / "typo.toml").write_text(TOML.replace("train", "trian"))
    (folder / "syntax.toml").write_text("[data")
    (folder / "junk").write_text("junk")
    (folder / "empty.csv").write_text("")
    (folder / "latin.csv").write_bytes(b"a,b\n1,caf\xe9\n")
    (folder / "wide.csv").write_text("a,b\n1,2,3\n")
    frame.assign(t=["soon", *frame["t"][1:]]).to_csv(folder / "undated.csv", index=False)
    frame.astype({"b": str}).assign(b=["seven", *frame["b"][1:]]).to_csv(folder / "text.csv", index=False)
    frame.assign(b=pd.Timestamp("2024-01-01")).to_parquet(folder / "dates.parquet")
    for name in ("undated.csv", "text.csv", "dates.parquet"):
        (folder / name).with_suffix(".toml").write_text(TOML.replace("x.csv", name))
    long = frame.round().astype({"b": int}).astype({"b": object})
    long.loc[3, "b"] = 10**399
    long.to_csv(folder / "long.csv", index=False)
    (folder / "scaler.toml").write_text(TOML.replace("svm.LinearSVC", "preprocessing.StandardScaler"))
    (folder / "numbered.toml").write_text(TOML.replace('"t"', '"n"'))
    (folder / "folder").mkdir()
    frame.to_parquet(folder / "x.parquet")
    (folder / "taken").mkdir()
    (folder / "taken/notes.txt").write_text("of somebody")
    return folder


@pytest.fixture
def run(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    return lambda line: CliRunner().invoke(app, line.split())


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, "info ok.transcendent"),
        (0, "data x.csv --time n --period none --label y"),
        (2, "fot"),
        (2, "info nowhere"),
        (2, "data x.csv --time t --period fortnight"),
        (2, "data x.csv --time t --label y --train soon"),
        (2, "data x.csv --time n --label y --train soon --period none"),
        (2, "fit ok.toml -o x.transcendent --train 202406"),
        (2, "fit ok.toml -o x.transcendent --rejector CCE"),
        (2, "decide ok.transcendent nowhere.csv"),
        (2, "decide ok.transcendent x.csv --out x.txt"),
        (2, "decide ok.transcendent x.csv --workers 0"),
        (2, "thresholds ok.transcendent --max-rejection 1.5"),
        (2, "thresholds ok.transcendent --constraint recall"),
        (2, "backtest ok.toml --jobs 0"),
        (3, "fit syntax.toml -o x.transcendent"),
        (3, "backtest typo.toml"),
        (4, "data junk"),
        (4, "data empty.csv"),
        (4, "data latin.csv"),
        (4, "data x.csv --label nope"),
        (4, "data x.csv --time n"),
        (4, "decide ok.transcendent wide.csv"),
        (4, "decide ok.transcendent latin.csv"),
        (2, "fit ok.toml -o x.transcendent --train 1999"),
        (4, "report folder"),
        (4, "fit undated.toml -o x.transcendent"),
        (4, "backtest undated.toml"),
        (0, "data undated.toml"),
        (4, "fit numbered.toml -o x.transcendent"),
        (4, "fit text.toml -o x.transcendent"),
        (4, "backtest dates.toml"),
        (4, "decide ok.transcendent text.csv"),
        (4, "decide ok.transcendent dates.parquet"),
        (4, "decide ok.transcendent long.csv"),
        (3, "fit scaler.toml -o x.transcendent"),
        (5, "info junk"),
        (5, "verify junk"),
        (5, "decide junk x.csv"),
        (6, "thresholds ok.transcendent --constraint precision>=1 --max-rejection 0"),
        (7, "fit ok.toml -o folder"),
        (7, "fit ok.toml -o nowhere/x.transcendent"),
        (7, "decide ok.transcendent x.csv --out nowhere/x.csv"),
        (7, "thresholds ok.transcendent --out nowhere/x.transcendent"),
        (7, "backtest ok.toml --out junk"),
        (9, "data biased.csv --time t --label y --train 2024-03"),
        (4, "decide ok.transcendent folder --out decided"),
        (4, "decide ok.transcendent x.parquet --workers 1 --out taken"),
    ],
)
def test_each_failure_has_its_code(run, code, line):
    done = run(line)
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    if code:
        assert "rror: " in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "fit undated.toml -o x.transcendent",
            "undated.csv cannot be fitted as it is:\n  t  1 of 600 rows has no date, in line 2: 'soon'",
        ),
        ("fit numbered.toml -o x.transcendent", 'x.csv: the times are numbers, not dates .* period = "none"'),
        (
            "fit text.toml -o x.transcendent",
            "text.csv cannot be fitted as it is:\n  b  1 of 600 rows has no number, in line 2: 'seven'",
        ),
        ("decide ok.transcendent dates.parquet", r"dates.parquet: the columns \['b'\] hold text"),
        ("decide ok.transcendent text.csv", r"text.csv: .* 'seven'\nIt is in line 2, column 1 \('b'\)"),
    ],
)
def test_bad_data_is_named_by_its_file(run, line, said):
    assert re.search(said, run(line).stderr)


@pytest.mark.slow
def test_a_table_that_is_not_decided_to_its_end(run):
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        done = run("decide ok.transcendent x.parquet --scheduler tcp://127.0.0.1:1 --out decided")
    assert ("there is no Dask scheduler" in done.stderr, done.exit_code) == (True, 10)


def test_a_row_is_named_by_its_place_in_the_file(run, made):
    frame = pd.read_csv("x.csv")
    frame.loc[[40, 590], "b"] = np.nan
    frame[::-1].to_csv("holes.csv", index=False)
    Path("holes.toml").write_text(TOML.replace("x.csv", "holes.csv"))
    for line in ("fit holes.toml -o x.transcendent", "backtest holes.toml"):
        assert "  b  no value in 2 of 600 rows, the first is line 11" in run(line).stderr


def test_a_missing_dependency_and_an_interruption_and_a_defect(run, monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        done = run("data x.csv")
        assert (done.exit_code, 'pip install "transcendent[cli]"' in done.stderr) == (8, True)
    for error, code in ((KeyboardInterrupt, 130), (RuntimeError, 1)):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(describing, "describe_file", fails)
        assert run("data x.csv").exit_code == code


def test_all_codes_are_tried():
    """Here, but for that of a closed pipe, which takes a process of its own."""
    tried = Path(__file__).read_text()
    tried += (Path(__file__).parent / "test_watching.py").read_text()
    assert [code for code in EXIT_CODES if f"({code}, " not in tried and f", {code})" not in tried] == [141]


@pytest.mark.filterwarnings("default")
def test_ids_do_not_steer_a_terminal_nor_run_in_a_spreadsheet(run, made):
    ids = ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\t=1", "'quoted", "plain", "\x1b[2J"]
    frame = pd.read_csv("x.csv").head(len(ids)).assign(name=ids)
    frame.to_parquet("ids.parquet")
    done = run("decide ok.transcendent ids.parquet --id name --out ids.csv")
    assert (done.exit_code, "warning: 6 entries of 'id' begin with" in done.stderr) == (0, True)
    written = pd.read_csv("ids.csv", quotechar='"')["id"].tolist()
    assert written == ["'" + name for name in ids[:6]] + ids[6:]
    assert [name.removeprefix("'") for name in written] == ids
    assert run("decide ok.transcendent ids.parquet --id name --out same.parquet").exit_code == 0
    assert pd.read_parquet("same.parquet")["id"].tolist() == ids


def test_csv_on_a_terminal_is_escaped(run, capsys, monkeypatch):
    pd.read_csv("x.csv").head(1).assign(name="a\x1b[2J").to_parquet("ids.parquet")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    artifacts.decide(Path("ok.transcendent"), "ids.parquet", "-", "name")
    assert "a\\x1b[2J" in capsys.readouterr().out


def test_a_long_integer_is_named_by_its_place(run):
    said = run("decide ok.transcendent long.csv").stderr
    assert "long.csv: Input X contains infinity or a value too large" in said
    assert "It is in line 5, column 1 ('b')." in said


@pytest.mark.parametrize("json", ["", "--json"])
def test_a_file_whose_name_is_not_utf8(run, made, json):
    name = os.fsdecode(b"caf\xe9.csv")
    (made / name).write_bytes((made / "x.csv").read_bytes())
    done = run(f"decide ok.transcendent {name} --out named.csv {json}")
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv(made / "named.csv")["file"]) == {"caf\ufffd.csv"}


class TestWithoutStreams:
    """Processes that are started with some of the standard streams closed, or with hardly an environment."""

    def ended(self, made, shell, **given):
        command = f"{sys.executable} -m transcendent {shell}"
        return subprocess.run(["sh", "-c", command], cwd=made, capture_output=True, text=True, **given)

    def test_no_standard_output(self, made):
        done = self.ended(made, "info ok.transcendent >&-")
        assert (done.returncode, done.stderr) == (
            7,
            "error: standard output is closed; to discard it, redirect it to /dev/null.\n",
        )

    @pytest.mark.slow
    def test_no_standard_error(self, made):
        before = (made / "junk").read_bytes()
        assert self.ended(made, "info junk 2>&-").returncode == 5
        assert (made / "junk").read_bytes() == before

    @pytest.mark.slow
    def test_hardly_an_environment(self, made):
        nowhere = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent", "LC_ALL": "C"}
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
        done = self.ended(made, "info ok.transcendent <&-", env=kept | nowhere)
        assert done.returncode == 0, done.stderr
        assert "InductiveEvaluator" in done.stdout
