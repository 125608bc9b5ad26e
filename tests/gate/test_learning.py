"""The loop by commands: labels, learn, a shadow and its report, promote; undo, nothing new, two at once."""

import json
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from sqlalchemy import text
from typer.testing import CliRunner

from tests.gate.conftest import ForkedGate
from transcendent.artifacts import load, sandbox
from transcendent.cli.app import app
from transcendent.experiments import read
from transcendent.experiments.experiment import Experiment
from transcendent.gate import learning
from transcendent.gate import model as gate_model
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.deployments import needed
from transcendent.gate.intake import Draw, audit_secret, keep, register, to_keep
from transcendent.gate.model import load_model
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.waiting import WaitingJudge, changes_of

TRUSTED = "sklearn.neighbors._kd_tree.KDTree sklearn.metrics._dist_metrics.EuclideanDistance64"
EXPERIMENT = """
[data]
file = "objects.csv"
label = "verdict"
[detector]
class = "sklearn.svm.LinearSVC"
[rejectors.ICE]
measure = "neighbour_ratio"
"""
FITTED = 300


@pytest.fixture(scope="module")
def world(problem, tmp_path_factory):
    """A folder with an experiment and its artifact; rows that come later, and their labels."""
    folder, (X, y) = tmp_path_factory.mktemp("world"), problem
    frame = pd.DataFrame(np.vstack([X[:FITTED], X[1000:1200]])).add_prefix("f")
    y = np.concatenate([y[:FITTED], y[1000:1200]])
    frame[:FITTED].assign(verdict=y[:FITTED]).to_csv(folder / "objects.csv", index=False)
    (folder / "objects.toml").write_text(EXPERIMENT)
    read(folder / "objects.toml").fit().save(folder / "objects.transcendent")
    return folder, frame, y


@pytest.fixture
def run(monkeypatch, world, database):
    """Run a command of the gate in the folder of the experiment."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command replaces
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)  # which takes seconds
    monkeypatch.setattr(sandbox, "try_out", lambda *_: None)
    monkeypatch.chdir(world[0])
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", database)
    monkeypatch.setenv("TRANSCENDENT_GATE_TRUSTED", TRUSTED)

    def attempt(line, code=0):
        done = CliRunner().invoke(app, ["gate", *line.split()], env={"COLUMNS": "200"})
        assert done.exit_code == code, done.output
        return done

    return attempt


@pytest.fixture
def gate(run, database, tmp_path):
    """A gate that follows, and serves the artifact of the experiment."""
    digest = run("model add objects.transcendent").stdout.strip()
    run(f"model promote {digest} --reason first --audit 0.2")
    started = ForkedGate(database, None, tmp_path / "log", trusted=json.dumps(TRUSTED.split()))
    yield started.wait()
    started.stop()


@pytest.fixture
def filled(run, own_engine, world):
    """Objects in the quarantine, as a gate keeps them."""
    digest = run("model add objects.transcendent").stdout.strip()
    run(f"model promote {digest} --reason first --audit 0.2")
    return fill(own_engine, world, digest)


def fill(engine, world, digest, part=slice(FITTED, None), audit=0.2):
    folder, frame, _ = world
    with engine.connect() as connection:
        number = needed(connection).deciding.model
    decisions = load(folder / "objects.transcendent", trusted=TRUSTED.split()).decide(frame[part])
    ids = [str(i) for i in frame.index[part]]
    draw = Draw(audit_secret(engine), audit)
    kept = to_keep(number, draw, ids, ["sensor"] * len(ids), frame[part].to_numpy(), decisions)
    keep(engine, list(kept.values()))
    return digest


def label_all(engine, y, count=100, who="ann", quarantine=None):
    """Label what waits, and return the rows that were labelled."""
    items = quarantine or Quarantine(engine, labels=["unclear"])
    found = items.claim(who, count).items
    for item in found:
        items.resolve(who, item["id"], y[int(item["object_id"])])
    return sorted(int(item["object_id"]) for item in found)


def learnt_by_hand(world, labelled, what="judge"):
    folder, frame, y = world
    rejector = load(folder / "objects.transcendent", trusted=TRUSTED.split())
    rows = [*range(FITTED), *labelled]
    return rejector.learn(frame.iloc[rows], y[rows], what=what)


def stored(engine, digest, folder):
    """Load the artifact that the database has."""
    file = folder / digest
    with engine.connect() as connection:
        sql = "SELECT content FROM artifact JOIN model ON model.id = artifact.model WHERE digest = :digest"
        file.write_bytes(connection.execute(text(sql), {"digest": digest}).scalar_one())
    return load(file, trusted=TRUSTED.split())


def same_answers(one, other, rows):
    first, second = one.decide(rows), other.decide(rows)
    np.testing.assert_array_equal(first.p_values, second.p_values)
    np.testing.assert_array_equal(first.accepted, second.accepted)


def deployments(engine):
    with engine.connect() as connection:
        sql = """SELECT action, digest, settings, deployment.author FROM deployment
        JOIN model ON model.id = deployment.model ORDER BY deployment.id"""
        return connection.execute(text(sql)).all()


def test_labels_teach_a_shadow_that_answers_once_it_is_promoted(run, gate, own_engine, world, tmp_path):
    _, frame, y = world
    sensor, later = gate.client(), frame[FITTED:]
    first = sensor.decide(later.index.astype(str), later)
    ann, bob = (gate.client(name, "analyst") for name in ("ann", "bob"))
    labelled, came = [], []
    for analyst in (ann, bob):
        for item in analyst.claim(30)["items"]:
            analyst.resolve(item["id"], y[int(item["object_id"])])
            labelled.append(int(item["object_id"]))
            came.append("audit" if item["audit"] else "rejected")
    outside = OutsideLabels(own_engine)
    waiting = [each["object_id"] for each in Quarantine(own_engine).claim("zoe", 100).items]
    Quarantine(own_engine).release("zoe")
    rejected = [each["id"] for each in first if not each["accepted"] and each["id"] in waiting]
    outside.add("box", y[int(rejected[0])], "sandbox", object_id=rejected[0], teach=True)
    labelled.append(int(rejected[0]))

    done = run("learn objects.toml --json")
    report = json.loads(done.stdout)
    digest = report["model"]
    assert f"model {digest[:12]} is a shadow" in done.stderr
    assert report["labels"]["learnt"] == 61
    assert report["labels"]["by_author"] == {"ann": 30, "bob": 30, "box": 1}
    origins = {"audit": came.count("audit"), "outside": 1, "rejected": came.count("rejected")}
    assert report["labels"]["by_origin"] == origins
    assert sum(report["labels"]["by_label"].values()) == 61
    assert report["since"] == {"model": None, "new": 61, "changed": 0, "gone": 0, "outdated": 0}
    last = deployments(own_engine)[-1]
    assert (last.action, last.digest) == ("shadow", digest)
    assert last.settings == {"sample": 0.2, "audit": 0.5, "budget": None}

    expected = learnt_by_hand(world, labelled)
    same_answers(stored(own_engine, digest, tmp_path), expected, later)
    _check_changes(
        report["waiting"], world, [int(each) for each in waiting if int(each) not in labelled], expected
    )
    again = json.loads(run(f"model report {digest[:10]} --json").stdout)
    assert {name: again[name] for name in report} == report
    assert "61 labelled objects (judge)" in run(f"model report {digest[:10]}").stdout
    assert sensor.model()["digest"] == report["base"]

    run(f"model promote {digest} --reason better")
    while sensor.model()["digest"] != digest:
        pass
    answers = sensor.decide([f"again{i}" for i in range(len(later))], later)
    decisions = expected.decide(later)
    assert [each["accepted"] for each in answers] == decisions.accepted.tolist()
    assert [each["credibility"] for each in answers] == decisions.credibility.tolist()
    assert any(each["accepted"] != old["accepted"] for each, old in zip(answers, first, strict=True))


def _check_changes(waiting, world, rows, new):
    """Recompute the changes one by one."""
    folder, frame, _ = world
    old = load(folder / "objects.transcendent", trusted=TRUSTED.split())
    before, after = (each.decide(frame.iloc[rows]) for each in (old, new))
    assert (waiting["items"], waiting["other_columns"], waiting["problem"]) == (len(rows), 0, None)
    for each in waiting["changes"]:
        counts = dict.fromkeys(each, 0) | {"label": each["label"]}
        for i in range(len(rows)):
            if before.labels[i] == each["label"]:
                counts["items"] += 1
                counts["rejected_before"] += not before.accepted[i]
                counts["rejected_after"] += not after.accepted[i]
                counts["newly_accepted"] += after.accepted[i] and not before.accepted[i]
                counts["newly_rejected"] += before.accepted[i] and not after.accepted[i]
                counts["other_label"] += after.labels[i] != before.labels[i]
        assert each == counts
    assert sum(each["items"] for each in waiting["changes"]) == len(rows) > 0


def test_nothing_new_changed_undone_and_deleted(run, filled, own_engine, world, tmp_path):
    _, frame, y = world
    items = Quarantine(own_engine, labels=["unclear"])
    assert "no object in the quarantine has a label yet" in run("learn objects.toml", code=4).stderr
    rows = label_all(own_engine, y, 30)
    first = json.loads(run("learn objects.toml --json").stdout)
    before = deployments(own_engine)
    done = run("learn objects.toml")
    assert (
        f"no label has changed since model {first['model'][:12]} has learnt: nothing was done." in done.stderr
    )
    assert json.loads(run("learn objects.toml --json").stdout)["model"] is None
    assert deployments(own_engine) == before

    gone, changed, deleted = rows[:3]
    number = {int(each["object_id"]): each["item"] for row in rows for each in items.find(str(row))}
    items.undo("ann", number[gone])
    items.undo("ann", number[changed])
    while items.claim("ann", 100).items:
        pass
    items.resolve("ann", number[changed], "goodware" if y[changed] == "malware" else "malware")
    delete(own_engine, ToDelete("object", str(deleted)), "ann", "asked")
    found = json.loads(run("learn objects.toml --json").stdout)
    since = {"model": first["model"], "new": 0, "changed": 1, "gone": 2, "outdated": 0}
    assert found["since"] == since
    folder = world[0]
    other = y.copy()
    other[changed] = "goodware" if y[changed] == "malware" else "malware"
    expected = learnt_by_hand((folder, frame, other), [row for row in rows if row not in (gone, deleted)])
    same_answers(stored(own_engine, found["model"], tmp_path), expected, frame)
    assert f"no label has changed since model {found['model'][:12]}" in run("learn objects.toml").stderr


def test_a_model_that_was_promoted_learns_on_and_a_rollback_needs_nothing_new(
    run, filled, own_engine, world, tmp_path
):
    _, frame, y = world
    rows = label_all(own_engine, y, 15)
    first = json.loads(run("learn objects.toml --json").stdout)["model"]
    run(f"model promote {first} --reason better")
    assert "no label has changed" in run("learn objects.toml").stderr
    rows += label_all(own_engine, y, 15)
    second = json.loads(run("learn objects.toml --json").stdout)
    assert (second["base"], second["since"]["model"], second["since"]["new"]) == (first, first, 15)
    same_answers(stored(own_engine, second["model"], tmp_path), learnt_by_hand(world, sorted(rows)), frame)
    run("model rollback --reason worse")
    found = json.loads(run("learn objects.toml --json").stdout)
    assert (found["since"]["model"], found["since"]["new"]) == (first, 15)
    assert "no label has changed" in run("learn objects.toml").stderr


def test_the_detector_learns_and_what_it_keeps_of_undone_labels_is_said(
    run, filled, own_engine, world, tmp_path
):
    _, frame, y = world
    rows = label_all(own_engine, y, 20)
    run("learn objects.toml")
    first = json.loads(run("learn objects.toml --what both --json").stdout)
    same_answers(stored(own_engine, first["model"], tmp_path), learnt_by_hand(world, rows, "both"), frame)
    run(f"model promote {first['model']} --reason better")
    items = Quarantine(own_engine)
    items.undo("ann", items.find(str(rows[0]))[0]["item"])
    done = run("learn objects.toml")
    assert "1 labels that the detector was taught no longer stand: --what both" in done.stdout
    found = json.loads(run("learn objects.toml --what both --json").stdout)
    assert (found["since"]["gone"], found["since"]["outdated"]) == (1, 0)
    same_answers(stored(own_engine, found["model"], tmp_path), learnt_by_hand(world, rows[1:], "both"), frame)


def test_of_two_at_once_one_learns(run, filled, own_engine, world, monkeypatch):
    label_all(own_engine, world[2], 10)
    learns, refused = threading.Event(), threading.Event()
    learn = Experiment.learn

    def slow(*given, **more):
        learns.set()
        assert refused.wait(30)
        return learn(*given, **more)

    monkeypatch.setattr(Experiment, "learn", slow)
    wanted = learning.ToLearn(read("objects.toml"), "judge", TRUSTED.split())
    reports = []
    first = threading.Thread(target=lambda: reports.append(learning.learn(own_engine, wanted, "ann")))
    first.start()
    assert learns.wait(30)
    assert "another process is learning: nothing was done." in run("learn objects.toml").stderr
    refused.set()
    first.join()
    assert len(reports) == 1
    assert [each.action for each in deployments(own_engine)].count("shadow") == 1


def test_a_crash_before_the_end_loses_no_label(run, filled, own_engine, world, monkeypatch):
    label_all(own_engine, world[2], 10)
    for step in ("add", "shadow", "_ADD"):
        with monkeypatch.context() as patch:
            patch.setattr(learning, step, "SELECT 1 / 0" if step == "_ADD" else _crash)
            run("learn objects.toml", code=1 if step != "_ADD" else 4)
    report = json.loads(run("learn objects.toml --json").stdout)
    assert report["labels"]["learnt"] == 10
    with own_engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM learning")).scalar_one() == 1
    assert "no label has changed" in run("learn objects.toml").stderr


def _crash(*_, **__):
    raise RuntimeError("killed")


def test_nothing_is_promoted_and_the_database_widens_nothing(run, filled, own_engine, world, monkeypatch):
    label_all(own_engine, world[2], 10)
    monkeypatch.setenv("TRANSCENDENT_GATE_TRUSTED", "")
    assert "--trust" in run("learn objects.toml", code=5).stderr
    monkeypatch.setenv("TRANSCENDENT_GATE_TRUSTED", TRUSTED)
    other = Path("other.transcendent")
    read("objects.toml").fit().save(other)
    with own_engine.begin() as connection:
        sql = text("UPDATE artifact SET content = :content")
        connection.execute(sql, {"content": other.read_bytes()})
    before = deployments(own_engine)
    said = run("learn objects.toml", code=5).stderr
    assert f"model {filled[:12]} is refused" in said or "digest" in said
    assert deployments(own_engine) == before


def in_pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_what_requires_a_signature_gets_one(run, own_engine, world, monkeypatch, tmp_path):
    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_bytes(in_pem(key))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    read("objects.toml").fit().save(tmp_path / "signed", signing_key=private)
    monkeypatch.setenv("TRANSCENDENT_GATE_PUBLIC_KEY", str(public))
    digest = run(f"model add {tmp_path / 'signed'}").stdout.strip()
    run(f"model promote {digest} --reason first")
    fill(own_engine, world, digest)
    label_all(own_engine, world[2], 10)
    assert "--signing-key KEY" in run("learn objects.toml", code=2).stderr
    found = json.loads(run(f"learn objects.toml --signing-key {private} --json").stdout)
    run(f"model promote {found['model']} --reason better")
    other = tmp_path / "other.pem"
    other.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    label_all(own_engine, world[2], 1)
    before = deployments(own_engine)
    assert "does not match" in run(f"learn objects.toml --signing-key {other}", code=5).stderr
    assert deployments(own_engine) == before


def test_only_agreed_labels_teach(run, filled, own_engine, world, monkeypatch, tmp_path):
    _, frame, y = world
    items = SecondOpinions(own_engine)
    rows = label_all(own_engine, y, 20, quarantine=items)
    monkeypatch.setenv("TRANSCENDENT_GATE_OPINIONS", "2")
    said = run("learn objects.toml", code=4).stderr
    assert "no object in the quarantine has a label that two analysts agree on yet" in said
    agreed = []
    for place, item in enumerate(items.claim("bob", 20, opinions=True).items):
        row = int(item["object_id"])
        wrong = "goodware" if y[row] == "malware" else "malware"
        items.resolve("bob", item["id"], wrong if place % 4 == 0 else y[row])
        agreed += [] if place % 4 == 0 else [row]
    found = json.loads(run("learn objects.toml --json").stdout)
    assert found["labels"]["learnt"] == 15
    same_answers(stored(own_engine, found["model"], tmp_path), learnt_by_hand(world, agreed), frame)
    shown = json.loads(run("quarantine show --json").stdout)
    assert (shown["opinions_pairs"], shown["opinions_share"], shown["opinions_wanted"]) == (20, 0.75, 5)
    third = items.claim("cid", 1, opinions=True).items[0]
    items.resolve("cid", third["id"], y[int(third["object_id"])])
    found = json.loads(run("learn objects.toml --json").stdout)
    assert (found["since"]["new"], found["labels"]["learnt"]) == (1, 16)
    shown = json.loads(run(f"quarantine show {third['id']} --json").stdout)
    assert shown["agreed"] == y[int(third["object_id"])]
    assert [each["author"] for each in shown["opinions"]] == ["bob", "cid"]
    assert "cid: opinion" in run(f"quarantine show {third['id']}").stdout
    assert "15 " not in run("quarantine export --out all.parquet").stderr
    assert "16 labelled objects" in run("quarantine export --teach --out agreed.parquet").stderr
    assert "--teach" in run("quarantine export --out all.parquet").stderr
    run("quarantine export --teach --since 2020-01-01 --out agreed.parquet", code=2)
    assert len(rows) == 20


def test_a_budget_and_models_with_other_columns(run, own_engine, world, tmp_path):
    _, frame, y = world
    frame[:FITTED].drop(columns="f0").assign(verdict=y[:FITTED]).to_csv(tmp_path / "objects.csv", index=False)
    (tmp_path / "objects.toml").write_text(EXPERIMENT)
    read(tmp_path / "objects.toml").fit().save(tmp_path / "narrow")
    digest = run("model add objects.transcendent").stdout.strip()
    run(f"model promote {digest} --reason first --budget 0.3")
    fill(own_engine, world, digest, slice(FITTED, FITTED + 100))
    narrow = load_model(tmp_path / "narrow", TRUSTED.split())
    rows = frame[FITTED + 100 :].drop(columns="f0")
    ids = [str(i) for i in rows.index]
    kept = to_keep(
        register(own_engine, narrow), Draw(b"", 1), ids, ids, rows.to_numpy(), narrow.rejector.decide(rows)
    )
    keep(own_engine, list(kept.values()))
    label_all(own_engine, y, 60)
    with own_engine.connect() as connection:
        sql = """SELECT count(*) FROM item JOIN model ON model.id = item.model
        WHERE digest = :digest AND state = :state"""
        ours, waiting = (
            connection.execute(text(sql), {"digest": digest, "state": state}).scalar_one() for state in (1, 0)
        )
        others = connection.execute(text("SELECT count(*) FROM item WHERE state = 0")).scalar_one() - waiting
    assert min(ours, others) > 0
    found = json.loads(run("learn objects.toml --json").stdout)
    assert found["labels"]["learnt"] == ours
    assert (found["waiting"]["items"], found["waiting"]["other_columns"]) == (waiting, others)
    assert deployments(own_engine)[-1].settings["budget"] == 0.3


def test_a_report_quotes_no_features(filled, own_engine, world):
    class Quoting:
        def decide(self, X):
            raise ValueError(f"unknown category {X.iloc[0, 0]!r}")

    model = load_model(world[0] / "objects.transcendent", TRUSTED.split(), None)
    judged = WaitingJudge(replace(model, rejector=Quoting(), observer=None), None)
    found = changes_of(own_engine, judged, judged)
    assert found["items"] > 0
    assert found["problem"] == "deciding them raised a ValueError"


def test_the_file_beside_is_asked_for_if_nothing_is_promoted(run, own_engine):
    said = run("learn objects.toml", code=4).stderr
    assert "no model is promoted" in said
    assert "--artifact FILE" in said
    assert "--out needs --artifact" in run("learn objects.toml --out x.transcendent", code=2).stderr
    assert "no models begin with 'abc'" in run("model report abc", code=4).stderr
    digest = run("model add objects.transcendent").stdout.strip()
    assert "was not made by 'transcendent gate learn'" in run(f"model report {digest}", code=4).stderr
