"""From a table as people have it to the first decision, by the command line alone."""

import hashlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from transcendent import CrossConformalEvaluator
from transcendent.artifacts import load
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
        done = CliRunner().invoke(app, shlex.split(line), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done


def propose(table):
    """Write the TOML file that init proposes, with a rejector that is quick to fit."""
    run(f"init {table}")
    toml = Path(table).with_suffix(".toml")
    toml.write_text(toml.read_text().partition("[rejectors.")[0] + "[rejectors.ICE]\n")


def test_no_refusal_from_a_table_to_a_decision(here):
    missing = messy()["verdict"].isna().sum()
    said = json.loads(run("init objects.csv --json").stdout)
    assert said.pop("notes") == [
        "the column 'path' is left out: it holds many different texts",
        f'{missing} of 1,200 rows have no label, the first is line 54; unlabelled = "drop" leaves them out',
        "2 of 1,200 rows have no date, the first is line 52: 'unknown'; undated = \"drop\" leaves them out",
    ]
    assert said == {"toml": "objects.toml", "label": "verdict", "time": "first_seen", "id": "sha256"}
    proposed = tomllib.loads((here / "objects.toml").read_text())
    assert proposed["title"] == "objects"
    assert proposed["data"]["without"] == ["path"]
    assert [step["class"].rpartition(".")[2] for step in proposed["detector"]["steps"]] == [
        *("OneHotEncoder", "SimpleImputer", "StandardScaler", "LinearSVC")
    ]
    assert json.loads(run("data objects.toml --json").stdout)["problems"] == []
    unlabelled = messy().drop(index=[50, 700])["verdict"].isna().sum()
    causes = f"{unlabelled} (no label), 2 (no date)"
    assert f"left out {unlabelled + 2} of 1,200 rows: {causes}." in run("fit objects.toml -o gate").stderr
    assert f"left out  {unlabelled + 2}: {causes}\n" in run("data objects.toml").stdout
    text = (here / "objects.toml").read_text()
    (here / "window.toml").write_text(re.sub('train = "(.*?)"', r'train = ["2020-03", "\1"]', text))
    found = json.loads(run("data window.toml --json").stdout)
    assert list(found["left_out_by_cause"]) == ["no label", "no date", "before the training window"]
    assert found["left_out"] + found["training"] + found["test"] == N
    run("decide gate new.csv -o decided.csv --trust sklearn.ensemble")
    decided = pd.read_csv("decided.csv")
    assert decided["id"].tolist() == pd.read_csv("new.csv")["sha256"].tolist()


@pytest.mark.parametrize("name", ["sample_id", "Object ID", "fileId"])
def test_an_id_of_digits_is_no_feature(here, name):
    frame = messy()
    frame["sha256"] = [f"{i:08}" for i in range(N)]
    frame.rename(columns={"sha256": name}).to_csv("digits.csv", index=False)
    assert json.loads(run("init digits.csv --json").stdout)["id"] == name


def test_everything_that_is_wrong_is_said_at_once_with_its_remedy(here):
    (here / "bare.toml").write_text(BARE)
    refused = run("fit bare.toml -o gate", code=4).stderr
    for line in (
        "rows have no label, the first is line 54",
        'unlabelled = "drop" under [data]',
        "2 of 1,200 rows have no date, the first is line 52: 'unknown'",
        'undated = "drop" under [data]',
        "sha256      holds text, a different one in every row",
        'id = "sha256" under [data]',
        "packer      holds text\n",
        'columns = ["packer"], handle_unknown',
        "path        holds many different texts",
        'without = ["path"] under [data]',
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
    assert "packer  holds text" in refused
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
    assert "note: the column 'f05' is left out: 1 of 1,200 rows has no number, in line 42: 'error'" in said
    assert "note: 2 of 1,200 ids occur more than once" in said
    frame.assign(first_seen="03/04/2024").to_csv("unclear.csv", index=False)
    said = run("init unclear.csv").stderr
    assert "'first_seen' is left out: its name suggests a time, but it holds no dates" in said
    way = 'time_format = "%d/%m/%Y" under [data] if the day comes first, otherwise "%m/%d/%Y"'
    assert f'; time = "first_seen" and {way}' in said
    assert "time" not in tomllib.loads((here / "unclear.toml").read_text())["data"]
    refused = run("init unclear.csv --time first_seen -o x.toml", code=2).stderr
    assert "no date such as 2024-09-01" in refused
    assert way in refused


def test_ids_dates_and_labels_are_never_encoded(here):
    frame = pd.read_csv("objects.csv")
    frame.loc[[1, 2], "sha256"] = frame.loc[0, "sha256"]
    frame["updated"] = [f"2020-01-{i % 20 + 1:02}" for i in range(N)]
    frame.to_csv("dated.csv", index=False)
    told = run("data dated.csv").stdout
    for name, role in {"verdict": "label", "first_seen": "time", "updated": "time", "sha256": "id"}.items():
        assert f'{role} = "{name}" under [data]' in told
    assert 'OneHotEncoder", columns = ["packer"], ' in told
    assert told.count("OneHotEncoder") == 1
    told = run("data dated.csv --label verdict --time first_seen --id sha256").stdout
    assert "updated     holds dates\n" in told
    assert 'time = "updated"' not in told
    said = run("init dated.csv").stderr
    assert "the column 'updated' is left out: it holds dates" in said
    assert tomllib.loads((here / "dated.toml").read_text())["detector"]["steps"][0]["columns"] == ["packer"]


@pytest.mark.parametrize("numbers", [False, True])
def test_labels_that_stand_for_none_are_proposed_as_such(here, numbers):
    frame = pd.read_csv("objects.csv").dropna(subset="verdict")
    labels = (frame["verdict"] == "malicious").astype(int).astype(str) if numbers else frame["verdict"]
    words = ["unknown", "N/A", "?", "  "]
    frame["verdict"] = labels.mask(frame.index < 40, [words[i % 4] for i in frame.index])
    frame.to_csv("words.csv", index=False)
    said = run("init words.csv").stderr
    n = int((frame.index < 40).sum())
    assert "read as no label: 'unknown' (" in said
    assert f"{n} of {len(frame):,} rows have no label, the first is line 2" in said
    proposed = tomllib.loads((here / "words.toml").read_text())["data"]
    assert proposed["missing_labels"] == words
    found = json.loads(run("data words.toml --json").stdout)
    assert [each["class"] for each in found["classes"]] == ([0, 1] if numbers else ["benign", "malicious"])
    assert sum(each["objects"] for each in found["classes"]) + found["left_out"] == len(frame)
    text = (here / "words.toml").read_text()
    (here / "words.toml").write_text(text.replace('"?", ', ""))
    found = json.loads(run("data words.toml --json").stdout)
    assert "?" in [each["class"] for each in found["classes"]]
    frame.assign(verdict=labels.where(labels == labels.iloc[0], "none")).to_csv("classes.csv", index=False)
    propose("classes.csv")
    assert "missing_labels" not in (here / "classes.toml").read_text()


def mixed_dates(frame):
    """ISO, seconds, milliseconds, day first, and some that cannot be."""
    days = pd.to_datetime(frame["first_seen"], errors="coerce").ffill()
    seconds = days.astype("datetime64[s]").astype("int64")
    how = np.arange(len(days)) % 4
    written = np.select(
        [how == 0, how == 1, how == 2],
        [days.dt.strftime("%Y-%m-%d"), seconds.astype(str), (1000 * seconds).astype(str)],
        days.dt.strftime("%d/%m/%Y"),
    ).astype(object)
    written[[5, 9, 13, 700]] = ["2099-01-01", "1900-01-01", "soon", None]
    return frame.assign(first_seen=written), days


def test_dates_in_mixed_formats_are_read_and_the_others_shown(here):
    frame, days = mixed_dates(pd.read_csv("objects.csv"))
    frame.to_csv("mixed.csv", index=False)
    said = run("init mixed.csv").stderr
    assert "note: 300 times, such as '" in said
    assert (
        "4 of 1,200 rows have no date, the first is line 7: '2099-01-01', '1900-01-01', 'soon'; "
        'undated = "drop" leaves them out'
    ) in said
    proposed = tomllib.loads((here / "mixed.toml").read_text())["data"]
    assert (proposed["time_format"], proposed["undated"]) == ("%d/%m/%Y", "drop")
    found = json.loads(run("data mixed.toml --json").stdout)
    assert found["problems"] == []
    expected = days[frame["verdict"].notna().to_numpy() & ~np.isin(np.arange(N), [5, 9, 13, 700])]
    assert [time[:10] for time in found["seen"]] == [str(expected.min().date()), str(expected.max().date())]
    monthly = expected.dt.strftime("%Y-%m").value_counts().sort_index()
    assert found["periods"] == monthly.to_dict()
    text = (here / "mixed.toml").read_text()
    (here / "strict.toml").write_text(text.replace('undated = "drop"\n', "").replace("time_format", "# "))
    told = run("data strict.toml").stdout
    assert 'time_format = "%d/%m/%Y" under [data] reads 300 of them' in told
    assert 'undated = "drop" under [data] leaves them out' in told
    for form in ("DD/MM", "%d/%d", "%d/%Q", "%d %"):
        (here / "wrong.toml").write_text(text.replace('"%d/%m/%Y"', f'"{form}"'))
        assert f"'{form}' is not a format such as \"%d/%m/%Y\"" in run("data wrong.toml", code=3).stderr
    for kind in ("s", "ms"):
        frame.assign(first_seen=days.astype(f"datetime64[{kind}]").astype("int64")).to_csv(
            "int.csv", index=False
        )
        (here / "int.toml").unlink(missing_ok=True)
        propose("int.csv")
        assert len(json.loads(run("data int.toml --json").stdout)["periods"]) == 12


def test_dates_that_are_none_are_not_dropped_all(here):
    frame = pd.read_csv("objects.csv")
    days = pd.to_datetime(frame["first_seen"], errors="coerce")
    frame.assign(first_seen=days.dt.strftime("%d/%m/%Y")).to_csv("objects.csv", index=False)
    (here / "bare.toml").write_text(BARE.replace("[split]", 'undated = "drop"\n[split]'))
    for said in (run("data bare.toml").stdout, run("backtest bare.toml", code=4).stderr):
        assert 'time_format = "%d/%m/%Y" under [data] reads 1,198 of them' in said
    frame.assign(first_seen="soon").to_csv("objects.csv", index=False)
    assert "dates are ISO dates such as 2024-09-01" in run("data bare.toml").stdout


def test_a_stray_word_and_a_lone_class_are_found_before_the_fit(here):
    propose("objects.csv")
    frame = pd.read_csv("objects.csv").astype({"f05": object})
    frame.loc[40, "f05"] = "error"
    frame.assign(verdict="benign").to_csv("objects.csv", index=False)
    told = run("data objects.toml").stdout
    assert "f05      1 of 1,200 rows has no number, in line 42: 'error'" in told
    assert "verdict  has only one label: 'benign'" in told
    assert "OneHotEncoder" not in told
    assert told.split("fit\n")[1].split("\n\n")[0] in run("fit objects.toml -o gate", code=4).stderr


def test_a_stray_word_in_new_objects_is_located(here):
    propose("objects.csv")
    run("fit objects.toml -o gate")
    frame = pd.read_csv("new.csv").astype({"f05": object})
    frame.loc[7, "f05"] = "error"
    frame.to_csv("stray.csv", index=False)
    assert "It is in line 9, column 5 ('f05')." in run("decide gate stray.csv", code=4).stderr


def test_a_gate_can_be_fitted_up_to_now(here):
    propose("objects.csv")
    said = json.loads(run("fit objects.toml -o gate --train 2030 --json").stdout)
    assert said["training_period"][1].startswith("2020-12")


def test_what_is_read_is_not_overwritten(here):
    propose("objects.csv")
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
    propose("odd.parquet")
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
    propose("objects.csv")
    text = (here / "objects.toml").read_text().replace('"packer"', '"paker"')
    (here / "objects.toml").write_text(text)
    error = run("fit objects.toml -o gate", code=4).stderr
    assert "paker" in error
    assert "does not exist; did you mean 'packer'?" in error


def test_columns_of_text_are_read_as_text_whatever_a_batch_holds(here):
    propose("objects.csv")
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
    propose("objects.csv")
    said = run("fit objects.toml -o gate").stderr
    labelled = pd.read_csv("objects.csv").dropna(subset=["verdict", "first_seen"])
    train = tomllib.loads((here / "objects.toml").read_text())["split"]["train"]
    later = (labelled["first_seen"] >= train) & (labelled["first_seen"] != "unknown")
    found = re.search(
        r"(\d+) labelled objects outside the training window left out; --train (\S+) takes", said
    )
    assert int(found[1]) == later.sum()
    assert "outside the training window" not in run(f"fit objects.toml -o gate --train {found[2]}").stderr


def test_a_refused_backtest_leaves_no_folder(here):
    (here / "x.toml").write_text(BARE)
    run("backtest x.toml", code=4)
    assert not (here / "x").exists()


def test_a_gate_learns_from_labels_that_came_later(here):
    propose("objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "objects.toml").write_text(text.replace("ICE]", 'ICE]\nmeasure = "neighbour_ratio"'))
    learn = "learn objects.toml --labels labelled.csv"
    frame = pd.read_csv("objects.csv")
    frame[frame["first_seen"].between("2020-06", "2020-09")].to_csv("labelled.csv", index=False)
    said = run(learn, code=2).stderr
    assert "there is no objects.transcendent: 'transcendent fit objects.toml' writes it" in said
    run("fit objects.toml --train 2020-06")
    said = run(learn).stdout
    verdicts = pd.read_csv("labelled.csv")["verdict"]
    labelled, unlabelled = verdicts.notna().sum(), verdicts.isna().sum()
    assert f"learnt from {labelled} labelled objects; written to objects-learnt.transcendent." in said
    assert f"left out: {unlabelled} (no label)\n" in said
    before, after = load("objects.transcendent"), load("objects-learnt.transcendent")
    np.testing.assert_array_equal(before.estimator_[-1].coef_, after.estimator_[-1].coef_)
    sizes = [sum(n.n_samples_fit_ for n in gate.measure_.neighbours_) for gate in (before, after)]
    assert sizes[1] == sizes[0] + labelled
    run("decide objects-learnt.transcendent new.csv -o new.parquet")
    assert f"{labelled} labelled objects (judge)" in run("info objects-learnt.transcendent").stdout
    assert "one of judge, detector, both" in run(f"{learn} --what all", code=2).stderr
    frame.drop(columns="f03").to_csv("labelled.csv", index=False)
    assert "has no column 'f03'; besides the features it has" in run(learn, code=4).stderr


def test_rows_of_the_fit_and_labels_that_are_no_classes_are_left_out(here):
    propose("objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "objects.toml").write_text(text.replace("ICE]", 'ICE]\nmeasure = "neighbour_ratio"'))
    run("fit objects.toml --train 2020-06 -o gate")
    frame = pd.read_csv("objects.csv").dropna(subset="verdict")
    known, new = frame[frame["first_seen"] < "2020-06"], frame[frame["first_seen"] >= "2020-09"].copy()
    new.iloc[:7, new.columns.get_loc("verdict")] = "unclear"
    pd.concat([new, known]).sample(frac=1, random_state=0).to_csv("labelled.csv", index=False)
    learn = "learn objects.toml --labels labelled.csv --artifact gate"
    found = json.loads(run(f"{learn} -o learnt --json").stdout)
    left_out = {"label 'unclear' is not a class": 7, "row of the fit": len(known)}
    assert (found["learnt"], found["left_out"]) == (len(new) - 7, left_out)
    new[7:].to_csv("labelled.csv", index=False)
    run(f"{learn} -o alone")
    rows = pd.read_csv("new.csv")[list(load("gate").feature_names_in_)]
    np.testing.assert_array_equal(load("learnt").decide(rows).p_values, load("alone").decide(rows).p_values)
    known.to_csv("labelled.csv", index=False)
    said = run(f"{learn} -o x", code=4).stderr
    assert f"labelled.csv has nothing to learn from; left out: {len(known)} (row of the fit)." in said
    assert not (here / "x").exists()


def test_a_share_may_be_a_percentage(here):
    propose("objects.csv")
    run("fit objects.toml -o gate")
    five, share = (
        json.loads(run(f"thresholds gate --max-rejection {s} --json").stdout) for s in ("5%", "0.05")
    )
    assert five["after"] == share["after"]
    assert (
        "must be between 0 and 1, or a percentage" in run("thresholds gate --max-rejection 5", code=2).stderr
    )


def test_a_quorum_from_toml_command_line_and_artifact(here):
    propose("objects.csv")
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
    propose("objects.csv")
    text = (here / "objects.toml").read_text()
    (here / "drift.toml").write_text(text.replace("[rejectors.ICE]", '[rejectors.ICE]\nmeasure = "drift"'))
    line = run("fit drift.toml -o 'a drift'").stdout.rpartition("experiment: transcendent ")[2].strip()
    assert line == "decide 'a drift' objects.csv --trust sklearn.ensemble"
    run(line)
    refused = run("decide 'a drift' new.csv", code=5).stderr
    assert "on the command line: --trust sklearn.ensemble;" in refused
    run("decide 'a drift' new.csv --trust sklearn.ensemble")
    run("decide 'a drift' new.csv --trust sklearn.svm", code=5)


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "transcendent", "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("transcendent ")
