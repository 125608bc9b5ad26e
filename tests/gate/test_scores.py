"""Gates that judge a detector's scores: decided as a file with these columns, kept, shown and exported."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.gate.conftest import gate_of, tables_on
from transcendent import ScoreEvaluator, experiments, load, save
from transcendent.artifacts import open_artifact
from transcendent.artifacts.sandbox import Access
from transcendent.batch import in_memory
from transcendent.cli.app import app
from transcendent.errors import ArtifactError, GateError
from transcendent.gate import model as gate_model
from transcendent.gate import read_labelled
from transcendent.gate.cutoff import Cutoff, decide_by
from transcendent.gate.database import connect
from transcendent.gate.export import export_labelled
from transcendent.gate.features import encode
from transcendent.gate.model import load_model

N = 600
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 2, N)
SCORE = (2 * TRUTH - 1 + RNG.normal(size=N)).round(3)
SCORE[:20] = 0.0
NAMES = np.array(["malicious", "benign"])[TRUTH]  # the second of the classes in sorted order has low scores
CASES = {
    "one column": (pd.DataFrame({"s": SCORE}), TRUTH, ""),
    "probability": (pd.DataFrame({"p": 1 / (1 + np.exp(-SCORE))}), TRUTH == 1, ""),
    "columns": (
        pd.DataFrame({"low": -SCORE, "high": SCORE, "said": np.where(SCORE > 0.2, "benign", "malicious")}),
        NAMES,
        'classes = ["malicious", "benign"]\nanswer = "said"',
    ),
    "numbers": (pd.DataFrame({"s": SCORE, "said": (SCORE > 0).astype(int)}), TRUTH, 'answer = "said"'),
    "booleans": (pd.DataFrame({"s": SCORE, "said": SCORE > 0}), TRUTH == 1, 'answer = "said"'),
    "of the answer": (
        pd.DataFrame({"sure": abs(SCORE), "said": np.array(["a", "b", "c"])[np.digitize(SCORE, [0, 1])]}),
        np.array(["a", "b", "c"])[TRUTH + (SCORE > 1.2)],
        'answer = "said"\nscore_of = "answer"',
    ),
    "hard answers": (pd.DataFrame({"said": (SCORE > 0).astype(int)}), TRUTH, 'answer = "said"'),
}  # fmt: skip


def written(case, folder, more=""):
    """Fit an experiment with scores; return its artifact and the table of answers."""
    frame, truth, detector = CASES[case]
    frame.assign(truth=truth).to_parquet(folder / "answers.parquet")
    scores = [name for name in frame if name != "said"] or ["said"]
    (folder / "answers.toml").write_text(
        f'[data]\nfile = "answers.parquet"\nlabel = "truth"\n[detector]\nscores = {json.dumps(scores)}\n'
        f'{detector}\n[rejectors.judge]\ntype = "ICE"\n{more}'
    )
    experiments.read(folder / "answers.toml").fit().save(folder / "answers.transcendent")
    return folder / "answers.transcendent", frame


def objects_of(frame):
    """Rows of answers as objects."""
    scores = [name for name in frame if name != "said"]
    return [
        {"id": f"o{i}", "scores": {name: row[name] for name in scores}, "label": row["said"]}
        if "said" in row and scores
        else {"id": f"o{i}", "scores": row}
        for i, row in enumerate(frame.to_dict("records"))
    ]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    monkeypatch.setattr("transcendent.artifacts.sandbox.try_out", lambda *_: None)


def assert_equal(mine, theirs):
    for name, column in theirs.columns().items():
        np.testing.assert_array_equal(mine.columns()[name], column, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_gate_file_and_memory_decide_alike(case, tmp_path):
    path, frame = written(case, tmp_path)
    frame.to_parquet(tmp_path / "new.parquet")
    model, expected = load_model(path), in_memory.decide_file(path, tmp_path / "new.parquet", Access())[0]
    parsed = model.read(json.loads(json.dumps(objects_of(frame))))
    assert parsed.problems == {}
    (group,) = parsed.groups
    assert_equal(model.decide(group.rows), expected)
    columns = open_artifact(path).score_columns()
    assert_equal(load(path).decide(columns.read(frame)[0]), expected)
    assert 0 < expected.rejection_rate < 1 or case == "hard answers"
    again = model.read(objects_of(group.rows)).groups[0].rows
    assert encode(again) == encode(group.rows)
    if frame.shape[1] > 1:  # another way to write the same label is the same object
        texts = [{**each, "label": f" {each['label']} "} for each in objects_of(frame)]
        parsed = model.read(texts)
        assert (
            not parsed.groups if case == "booleans" else encode(parsed.groups[0].rows) == encode(group.rows)
        )


GOOD = {"scores": {"low": 1, "high": 2}, "label": "benign"}
BAD = [
    ({"scores": None}, "scores", "scores must map 'low', 'high' to numbers, and nothing else."),
    ({"scores": [0.1, 0.2]}, "scores", "scores must map"),
    ({"scores": {"low": 1}}, "scores", "scores must map"),
    ({"scores": {"low": 1, "high": 2, "more": 3}}, "scores", "scores must map"),
    ({"scores": {"low": 1, "high": None}}, "scores.high", "the score is missing (null)."),
    ({"scores": {"low": 1, "high": "2"}}, "scores.high", "'2' is not a number."),
    ({"scores": {"low": 1, "high": 1e999}}, "scores.high", "numbers must be finite."),
    ({"label": None}, "label", "the label is missing: send scores and label, the detector's answer."),
    ({"label": ["x"]}, "label", "list is not a label."),
    ({"label": "grey"}, "label", "'grey' is not one of the classes 'malicious', 'benign'."),
    ({"values": [1, 2]}, "values", "this gate judges scores: send scores and label, the detector's answer."),
    ({"features": [1]}, "features", "features must map feature names to values."),
    ({"features": {"a": [1]}}, "features", "'a' is neither a finite number nor text, true, false or null."),
    ({"features": {"a": 1e999}}, "features", "'a' is neither a finite number"),
    ({"features": {"a": "\ud800"}}, "features", "cannot be stored as JSON"),
    ({"features": {"a": "x" * 65_536}}, "features", "at most 65,536 are kept"),
    ({"context": []}, "context", "must be a JSON object"),
]


def test_a_bad_object_affects_no_other(tmp_path):
    path, frame = written("columns", tmp_path)
    model, good = load_model(path), objects_of(frame[:3])
    objects = [
        *good,
        *({"id": f"b{i}", **GOOD, **each} for i, (each, *_) in enumerate(BAD)),
        {"scores": {}},
        7,
    ]
    parsed = model.read(objects)
    assert parsed.groups[0].places.tolist() == [0, 1, 2]
    for place, (_, field, message) in enumerate(BAD, start=3):
        assert parsed.problems[place].field == field
        assert message in parsed.problems[place].message
    assert parsed.problems[len(objects) - 2].field == "id"
    assert len(parsed.problems) == len(BAD) + 2
    alone = model.read(good).groups[0].rows
    assert_equal(model.decide(parsed.groups[0].rows), model.decide(alone))
    assert model.read(objects[3:]).groups == []


def test_answers_that_follow_from_scores_need_no_label(tmp_path):
    model = load_model(written("one column", tmp_path)[0])
    parsed = model.read([{"id": "a", "scores": {"s": 1}, "label": 1}, {"id": "b", "scores": {"s": 0}}])
    assert parsed.problems == {0: ("label", "the answer follows from the scores: leave label out.")}
    hard = load_model(written("hard answers", tmp_path)[0])
    parsed = hard.read([{"id": "a", "scores": {"said": 2}}, {"id": "b", "scores": {"said": 1}}])
    assert parsed.problems == {0: ("scores", "2 is not one of the classes 0, 1.")}


def test_a_budget_has_a_cutoff(tmp_path):
    path, frame = written("columns", tmp_path, "budget = 0.15")
    model = load_model(path)
    assert (model.rule.rate, len(model.rule.before)) == (0.15, N)
    (group,) = model.read(objects_of(frame)).groups
    said = model.decide(group.rows)
    found = decide_by(Cutoff(1, None, None, 0.5), group.rows, said, b"secret").rejected
    same = pd.DataFrame(group.rows).assign(rejected=found).groupby(list(frame)).rejected.nunique()
    assert same.max() == 1  # what ties is rejected by its content
    assert 0.3 < found.mean() < 0.7


def test_an_artifact_without_columns_is_refused(tmp_path):
    written("one column", tmp_path)
    bare = load(tmp_path / "answers.transcendent")
    save(bare, tmp_path / "bare")
    with pytest.raises(ArtifactError, match=r"judges scores, and does not name their columns.*TOML"):
        load_model(tmp_path / "bare")
    save(bare, tmp_path / "other", notes={"scores": {"scores": ["s"], "classes": ["a", "b"], "answer": 0.0}})
    with pytest.raises(ArtifactError, match="its columns of scores are of other classes"):
        load_model(tmp_path / "other")
    assert isinstance(bare, ScoreEvaluator)


def test_what_is_kept_is_shown_and_exported(server, tmp_path, runner):
    path, frame = written("columns", tmp_path)
    frame = frame[:40]
    objects, features = objects_of(frame), {"size": 0, "packer": "upx", "signed": None}
    objects[0] |= {"features": features, "context": {"host": "mail-3"}}
    with tables_on(server) as url, gate_of(url, path, tmp_path, audit=1) as gate:
        sender, analyst = gate.client("sensor", "client"), gate.client("ann", "analyst")
        described = sender.model()["features"]
        assert (described["scores"], described["names"]) == (["low", "high"], ["low", "high", "said"])
        expected = load(path).decide(open_artifact(path).score_columns().read(frame)[0])
        decisions = sender.decide_objects(objects)
        for name in ("label", "accepted", "credibility", "confidence"):
            assert [each[name] for each in decisions] == expected.to_dict()[name].tolist()
        with pytest.raises(GateError, match="1 of 2 objects") as error:
            sender.decide_objects([{**objects[0], "label": "grey"}, objects[1]])
        assert [each is None for each in error.value.decisions] == [True, False]
        with pytest.raises(GateError) as error:
            sender.decide(["x"], frame[:1])
        assert "scores must map 'low', 'high' to numbers" in error.value.errors[0]["message"]
        items = []
        while found := analyst.claim(100)["items"]:
            items += found
            for each in found:
                analyst.resolve(each["id"], NAMES[int(each["object_id"][1:])])
        assert len(items) == 40
        (first,) = [each for each in items if each["object_id"] == "o0"]
        assert first["scores"] == {"low": 0.0, "high": 0.0}  # zeros too
        assert (first["features"], first["more_features"]) == (features, 0)
        assert (first["positions"], first["predicted"]) == (None, decisions[0]["label"])
        assert [each["features"] for each in items].count(None) == 39
        engine = connect(url)
        export_labelled(engine, tmp_path / "labelled.parquet")
        engine.dispose()
        said = runner("gate", "learn", tmp_path / "answers.toml", "--artifact", path, "--database", url)
        assert "scores alone leave nothing to learn" in said
    found = read_labelled(tmp_path / "labelled.parquet", classes=np.unique(NAMES))
    rows = found.table.to_pandas().set_index("gate_id")
    order = [int(name[1:]) for name in rows.index]
    pd.testing.assert_frame_equal(
        found.X.astype({"said": object}), frame.iloc[order].reset_index(drop=True).astype({"said": object})
    )
    assert found.y.tolist() == NAMES[order].tolist()
    assert json.loads(rows.loc["o0", "gate_features"]) == features
    again = in_memory.decide_file(path, tmp_path / "labelled.parquet", Access())[0]
    assert_equal(again, expected[order])


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Run a command that fails, and return what it says."""
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)

    def run(*words):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 4, done.output
        assert not Path("answers-learnt.transcendent").exists()
        return done.stderr

    return run
