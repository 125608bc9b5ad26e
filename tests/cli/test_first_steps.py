"""From a table as people have it to the first decision, by the command line alone."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from transcendent import CrossConformalEvaluator
from transcendent.artifacts import load, open_artifact
from transcendent.cli.app import app
from transcendent.datasets import make_stream

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tried_here")]

N = 1200
BARE = """
[data]
file = "objects.csv"
label = "verdict"
time = "first_seen"
[split]
train = "2020-05"
[detector]
class = "sklearn.svm.LinearSVC"
"""


def messy():
    """Hashes, dates, missing labels and values, text columns, and thirty features."""
    stream = make_stream(N, n_periods=12, concept=0.5, random_state=0)
    rng = np.random.default_rng(0)
    X = np.hstack([stream.X, rng.normal(size=(N, 18))])
    frame = pd.DataFrame(X, columns=[f"f{i:02}" for i in range(X.shape[1])])
    frame.loc[rng.random(N) < 0.02, ["f03", "f07"]] = np.nan
    frame.insert(0, "sha256", [hashlib.sha256(str(i).encode()).hexdigest() for i in range(N)])
    frame["packer"] = rng.choice(["upx", "none", "vmprotect"], N)
    frame["path"] = [f"C:\\\\{i % 900}" for i in range(N)]
    frame["first_seen"] = pd.Series(stream.times.astype("datetime64[s]")).dt.strftime("%Y-%m-%d %H:%M:%S")
    frame["verdict"] = np.where(stream.y == 1, "malicious", "benign")
    frame.loc[rng.random(N) < 0.03, "verdict"] = None
    frame.loc[[50, 700], "first_seen"] = ["unknown", None]
    return frame


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = messy()
    frame.to_csv("objects.csv", index=False)
    frame.drop(columns="verdict").tail(100).to_csv("new.csv", index=False)
    return tmp_path


def run(line, code=0):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done


def test_no_refusal_from_a_table_to_a_decision(here):
    said = json.loads(run("init objects.csv --json").stdout)
    assert said.pop("notes") == ["the column 'path' is left out: it holds many different texts"]
    assert said == {"toml": "objects.toml", "label": "verdict", "time": "first_seen", "id": "sha256"}
    proposed = tomllib.loads((here / "objects.toml").read_text())
    assert proposed["data"]["without"] == ["path"]
    assert [step["class"].rpartition(".")[2] for step in proposed["detector"]["steps"]] == [
        *("OneHotEncoder", "SimpleImputer", "StandardScaler", "LinearSVC")
    ]
    assert json.loads(run("data objects.toml --json").stdout)["problems"] == []
    assert "rows have no label or no time" in run("fit objects.toml -o gate").stderr
    assert open_artifact("gate").types_to_trust() == []
    run("decide gate new.csv -o decided.csv")
    decided = pd.read_csv("decided.csv")
    assert decided["id"].tolist() == pd.read_csv("new.csv")["sha256"].tolist()
    summary = json.loads(run("backtest objects.toml --json").stdout)["summary"]
    assert summary["rejector"] == ["ICE"]
    run("report objects")


def test_everything_that_is_wrong_is_said_at_once_with_its_remedy(here):
    (here / "bare.toml").write_text(BARE)
    refused = run("fit bare.toml -o gate", code=4).stderr
    for line in (
        "rows have no label, the first is row",
        'unlabelled = "drop" under [data]',
        "2 of 1,200 rows have no date, the first is row 50: 'unknown'",
        'undated = "drop" under [data]',
        "sha256        holds text, a different one in every row",
        'id = "sha256" under [data]',
        "packer, path  hold text",
        'without = ["packer", "path"] under [data]',
        "f03, f07",
        '{ class = "sklearn.impute.SimpleImputer" } as a step under [detector]',
    ):
        assert line in refused
    told = run("data bare.toml").stdout
    table = run("data objects.csv --label verdict --time first_seen").stdout
    problems = refused.split("\n", 1)[1].strip()
    assert problems in told
    assert problems in table
    assert "could not convert string" not in refused


def test_what_only_a_fit_shows_names_the_columns_too(here):
    """The first step takes missing values and passes them on; text reaches a step that takes none."""
    data = 'unlabelled = "drop"\nundated = "drop"\nid = "sha256"\n'
    scaled = (
        'steps = [{ class = "sklearn.preprocessing.StandardScaler" }, { class = "sklearn.svm.LinearSVC" }]'
    )
    text = BARE.replace("[split]", data + "[split]").replace('class = "sklearn.svm.LinearSVC"', scaled)
    (here / "text.toml").write_text(text)
    refused = run("fit text.toml -o gate", code=4).stderr
    assert "packer, path  hold text" in refused
    (here / "missing.toml").write_text(text.replace("[split]", 'without = ["packer", "path"]\n[split]'))
    for line in ("fit missing.toml -o gate", "backtest missing.toml"):
        assert "f03, f07  no value in" in run(line, code=4).stderr
    assert not list(here.glob("missing/checkpoints/*.npz"))


def test_guesses_can_be_overruled_and_ambiguity_is_asked_about(here):
    frame = pd.read_csv("objects.csv").assign(last_seen="2021-01-01", kind="a")
    frame = frame.rename(columns={"first_seen": "begin", "verdict": "answer"})
    frame.to_csv("odd.csv", index=False)
    assert (
        "--time: which column says when objects were seen: begin or last_seen?"
        in run("init odd.csv", code=2).stderr
    )
    asked = run("init odd.csv --time begin", code=2).stderr
    assert "--label: which column holds the labels?" in asked
    assert "answer" in asked
    run("init odd.csv --time begin --label answer --id path -o mine.toml")
    proposed = tomllib.loads((here / "mine.toml").read_text())["data"]
    assert (proposed["time"], proposed["label"], proposed["id"]) == ("begin", "answer", "path")
    assert "mine.toml exists: --out NAME" in run("init odd.csv -o mine.toml", code=2).stderr
    assert "did you mean 'answer'?" in run("init odd.csv --label anwser -o x.toml", code=2).stderr


def test_what_a_proposal_leaves_out_is_said(here):
    frame = pd.read_csv("objects.csv")
    stray = frame.astype({"f05": object})
    stray.loc[40, "f05"] = "error"
    stray.loc[[1, 2], "sha256"] = stray.loc[0, "sha256"]
    stray.to_csv("stray.csv", index=False)
    said = run("init stray.csv").stderr
    assert "note: the column 'f05' is left out: row 40 of 1,200 has no number: 'error'" in said
    assert "note: 2 of 1,200 ids occur more than once" in said
    days = pd.to_datetime(frame["first_seen"], errors="coerce")
    for name, times in (("ddmm", days.dt.strftime("%d/%m/%Y")), ("int", days.astype("int64"))):
        frame.assign(first_seen=times).to_csv(f"{name}.csv", index=False)
        assert (
            "'first_seen' is left out: its name suggests a time, but it holds no dates"
            in run(f"init {name}.csv").stderr
        )
        assert "time" not in tomllib.loads((here / f"{name}.toml").read_text())["data"]
        run(f"fit {name}.toml -o gate")
    assert "no date such as 2024-09-01" in run("init ddmm.csv --time first_seen -o x.toml", code=2).stderr


def test_dates_that_are_none_are_not_dropped_all(here):
    frame = pd.read_csv("objects.csv")
    days = pd.to_datetime(frame["first_seen"], errors="coerce")
    frame.assign(first_seen=days.dt.strftime("%d/%m/%Y")).to_csv("objects.csv", index=False)
    (here / "bare.toml").write_text(BARE.replace("[split]", 'undated = "drop"\n[split]'))
    assert "must be ISO dates such as 2024-09-01" in run("data bare.toml").stdout
    assert "must be ISO dates such as 2024-09-01" in run("backtest bare.toml", code=4).stderr


def test_a_stray_word_and_a_lone_class_are_found_before_the_fit(here):
    run("init objects.csv")
    frame = pd.read_csv("objects.csv").astype({"f05": object})
    frame.loc[40, "f05"] = "error"
    frame.assign(verdict="benign").to_csv("objects.csv", index=False)
    told = run("data objects.toml").stdout
    assert "f05      row 40 of 1,200 has no number: 'error'" in told
    assert "verdict  has only one label: 'benign'" in told
    assert "OneHotEncoder" not in told
    assert told.split("fit\n")[1].split("\n\n")[0] in run("fit objects.toml -o gate", code=4).stderr


def test_a_stray_word_in_new_objects_is_located(here):
    run("init objects.csv")
    run("fit objects.toml -o gate")
    frame = pd.read_csv("new.csv").astype({"f05": object})
    frame.loc[7, "f05"] = "error"
    frame.to_csv("stray.csv", index=False)
    assert "It is in row 7, column 5 ('f05')." in run("decide gate stray.csv", code=4).stderr


def test_a_gate_can_be_fitted_up_to_now(here):
    run("init objects.csv")
    said = json.loads(run("fit objects.toml -o gate --train 2030 --json").stdout)
    assert said["training_period"][1].startswith("2020-12")


def test_what_is_read_is_not_overwritten(here):
    run("init objects.csv")
    run("fit objects.toml -o gate")
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    for line in (
        "decide gate new.csv --out new.csv",
        "fit objects.toml --out objects.toml",
        "fit objects.toml --out objects.csv",
    ):
        assert "would overwrite" in run(line, code=2).stderr
    pd.DataFrame({"a": [1.0]}).to_parquet("table.parquet")
    for option in ("", " --fresh"):
        assert (
            "holds table.parquet, which no backtest wrote"
            in run(f"backtest objects.toml -o .{option}", code=4).stderr
        )
    run("backtest objects.toml -o b")
    run("report b -o objects.csv", code=2)
    run("report b")
    changed = (here / "objects.toml").read_text().replace("StandardScaler", "MinMaxScaler")
    (here / "changed.toml").write_text(changed)
    assert "MinMaxScaler" in run("backtest changed.toml -o b", code=4).stderr
    run("backtest changed.toml -o b --fresh")
    assert not (here / "b/report.html").exists()
    assert {name: (here / name).read_bytes() for name in before} == before


def test_a_proposal_may_be_written_elsewhere(here):
    (here / "there").mkdir()
    run("init objects.csv -o there/mine.toml")
    run("data there/mine.toml")
    pd.read_csv("objects.csv").assign(verdict=None).to_csv("none.csv", index=False)
    assert "no row has a label" in run("init none.csv", code=2).stderr
    frame = pd.read_csv("objects.csv").rename(columns={"packer": 'pack"er\x7f\n'})
    frame.to_parquet("odd.parquet")
    run("init odd.parquet")
    run("fit odd.toml -o odd")


@pytest.mark.parametrize(
    "steps",
    [
        "[]",
        '[{ class = "sklearn.preprocessing.OneHotEncoder", columns = ["packer"] }]',
        '[{ class = "sklearn.svm.LinearSVC" }, { class = "sklearn.svm.LinearSVC" }]',
        '[{ class = "sklearn.svm.LinearSVC" }, { class = "sklearn.preprocessing.StandardScaler" }]',
        '[{ class = "sklearn.svm.SVC", columns = [[]] }, { class = "sklearn.svm.LinearSVC" }]',
    ],
)
def test_steps_that_are_no_detector(here, steps):
    (here / "x.toml").write_text(BARE.replace('class = "sklearn.svm.LinearSVC"', f"steps = {steps}"))
    assert "x.toml, line 9: " in run("fit x.toml -o gate", code=3).stderr


def test_a_misspelt_column_of_a_step_is_named(here):
    run("init objects.csv")
    text = (here / "objects.toml").read_text().replace('"packer"', '"paker"')
    (here / "objects.toml").write_text(text)
    error = run("fit objects.toml -o gate", code=4).stderr
    assert "paker" in error
    assert "does not exist; did you mean 'packer'?" in error


def test_columns_of_text_are_read_as_text_whatever_a_batch_holds(here):
    run("init objects.csv")
    run("fit objects.toml -o gate")
    new = pd.read_csv("new.csv")
    expected = {}
    for name, packer in {"as they are": new["packer"], "none": None, "numbers": 7, "flags": True}.items():
        new.assign(packer=packer).to_csv("batch.csv", index=False)
        run("decide gate batch.csv -o batch.parquet")
        expected[name] = pd.read_parquet("batch.parquet")
        new.assign(packer=packer).iloc[[3]].to_csv("one.csv", index=False)
        run("decide gate one.csv -o one.parquet")
        one = pd.read_parquet("one.parquet")
        pd.testing.assert_frame_equal(one, expected[name].iloc[[3]].reset_index(drop=True))
    pd.testing.assert_frame_equal(expected["numbers"], expected["flags"])


def test_a_gate_of_old_rows_says_so(here):
    run("init objects.csv")
    said = run("fit objects.toml -o gate").stderr
    labelled = pd.read_csv("objects.csv").dropna(subset=["verdict", "first_seen"])
    train = tomllib.loads((here / "objects.toml").read_text())["split"]["train"]
    later = (labelled["first_seen"] >= train) & (labelled["first_seen"] != "unknown")
    found = re.search(
        r"(\d+) labelled objects outside the training window left out; --train (\S+) takes", said
    )
    assert int(found[1]) == later.sum()
    assert "left out" not in run(f"fit objects.toml -o gate --train {found[2]}").stderr.replace(
        "; left out.", ""
    )


def test_a_refused_backtest_leaves_no_folder(here):
    (here / "x.toml").write_text(BARE)
    run("backtest x.toml", code=4)
    assert not (here / "x").exists()


def test_a_gate_learns_from_labels_that_came_later(here):
    run("init objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "objects.toml").write_text(text.replace("ICE]", 'ICE]\nmeasure = "neighbour_ratio"'))
    run("fit objects.toml --train 2020-06 -o gate")
    frame = pd.read_csv("objects.csv")
    frame[frame["first_seen"].between("2020-06", "2020-09")].to_csv("labelled.csv", index=False)
    learn = "learn gate objects.toml labelled.csv --train 2020-06"
    said = run(f"{learn} -o learnt").stdout
    labelled = pd.read_csv("labelled.csv")["verdict"].notna().sum()
    assert f"learnt from {labelled} labelled objects; written to learnt." in said
    before, after = load("gate"), load("learnt")
    np.testing.assert_array_equal(before.estimator_[-1].coef_, after.estimator_[-1].coef_)
    sizes = [sum(n.n_samples_fit_ for n in gate.measure_.neighbours_) for gate in (before, after)]
    assert sizes[1] == sizes[0] + labelled
    run("decide learnt new.csv -o new.parquet")
    assert f"{labelled} labelled objects (judge)" in run("info learnt").stdout
    for other in ("2020-05", "2020-08"):
        said = run(f"{learn.replace('2020-06', other)} -o other", code=2).stderr
        assert "--train: the rejector was fitted on" in said
    assert "one of judge, detector, both" in run(f"{learn} -o x --what all", code=2).stderr
    frame.drop(columns="f03").to_csv("labelled.csv", index=False)
    assert "has no column 'f03'; besides the features it has" in run(f"{learn} -o x", code=4).stderr
    frame[frame["first_seen"] < "2020-09"].to_csv("labelled.csv", index=False)
    assert "are among the rows of the fit" in run(f"{learn} -o x", code=4).stderr
    copies = frame[frame["first_seen"] < "2020-06"].dropna(subset="verdict")
    copies.assign(sha256="again-" + copies["sha256"].astype(str)).to_csv("labelled.csv", index=False)
    said = run(f"{learn} -o copies").stdout
    left_out = load("copies").n_left_out_
    assert 0 < left_out < len(copies)
    assert (
        f"{len(copies)} labelled objects, {left_out} of them left out since they equal calibration objects"
        in said
    )


def test_a_share_may_be_a_percentage(here):
    run("init objects.csv")
    run("fit objects.toml -o gate")
    five, share = (
        json.loads(run(f"thresholds gate --max-rejection {s} --json").stdout) for s in ("5%", "0.05")
    )
    assert five["after"] == share["after"]
    assert (
        "must be between 0 and 1, or a percentage" in run("thresholds gate --max-rejection 5", code=2).stderr
    )


def test_a_quorum_from_toml_command_line_and_artifact(here):
    run("init objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "cce.toml").write_text(text.replace("[rejectors.ICE]", "[rejectors.CCE]\ncv = 5\nquorum = 5"))
    run("fit cce.toml -o strict")
    rejector = load("strict")
    assert isinstance(rejector, CrossConformalEvaluator)
    assert rejector.quorum == 5
    rows = pd.read_csv("new.csv")
    for option, quorum in (("", 5), (" --quorum 1", 1)):
        run(f"decide strict new.csv -o d.parquet{option}")
        written = pd.read_parquet("d.parquet")
        assert (written["accepted"] == (written["votes"] >= quorum)).all()
    rows.to_parquet("new.parquet")
    run("decide strict new.parquet --workers 1 -o parts --quorum 1")
    assert pd.read_parquet("parts")["accepted"].tolist() == written["accepted"].tolist()
    refused = run("decide strict new.parquet --workers 1 -o parts --quorum 2", code=4).stderr
    assert "decisions made with another quorum" in refused
    assert "between 1 and the 5 folds" in run("decide strict new.csv --quorum 9", code=4).stderr
    run("fit objects.toml -o ice")
    assert "has no quorum" in run("decide ice new.csv --quorum 2", code=4).stderr


def test_a_package_stands_for_the_compiled_types_in_it(here):
    run("init objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "drift.toml").write_text(text.replace("[rejectors.ICE]", '[rejectors.ICE]\nmeasure = "drift"'))
    run("fit drift.toml -o drift")
    refused = run("decide drift new.csv", code=5).stderr
    assert "on the command line: --trust sklearn.ensemble;" in refused
    run("decide drift new.csv --trust sklearn.ensemble")
    run("decide drift new.csv --trust sklearn.svm", code=5)


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "transcendent", "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("transcendent ")
