"""A gate decides as its rejector does, and keeps rejected objects before it answers."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from sklearn.svm import LinearSVC
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on, with_tables
from tests.gate.processes import cluster_in
from transcendent import CrossConformalEvaluator, InductiveEvaluator, save
from transcendent.artifacts import open_artifact
from transcendent.errors import GateError
from transcendent.gate import GateClient
from transcendent.gate.database import connect
from transcendent.measures import drift_measure

NAMES = [f"feature {i}" for i in range(12)]


@pytest.fixture(scope="module")
def folds(problem):
    """A cross-conformal rejector of named features and whole-numbered labels."""
    X, y = problem
    frame = pd.DataFrame(X[:1000], columns=NAMES)
    return CrossConformalEvaluator(LinearSVC(random_state=0), random_state=0).fit(
        frame, (y[:1000] == "malware").astype(int)
    )


@pytest.fixture(scope="module")
def gate_of_folds(server, folds, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    save(folds, folder / "artifact")
    with tables_on(server) as url, gate_of(url, folder / "artifact", folder) as gate:
        yield gate


@pytest.fixture(scope="module")
def boosted(problem):
    """A combined measure with LightGBM, which accepts missing values."""
    X, y = problem
    detector = LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1, random_state=0)
    return InductiveEvaluator(detector, measure=drift_measure(random_state=0), random_state=0).fit(
        X[:600], y[:600]
    )


@pytest.fixture(scope="module")
def gate_of_boosted(server, boosted, tmp_path_factory):
    """A gate that keeps all accepted objects for the audit."""
    folder = tmp_path_factory.mktemp("boosted")
    save(boosted, folder / "artifact")
    trusted = " ".join(open_artifact(folder / "artifact").types_to_trust())
    with (
        tables_on(server) as url,
        gate_of(url, folder / "artifact", folder, trusted=trusted, audit=1) as gate,
    ):
        yield gate


def names_of(start, n):
    return [f"object {start}.{i}" for i in range(n)]


def answers_of(ids, decisions):
    """Return the decisions of Python as the gate writes them."""
    n = len(decisions)
    votes = [None] * n if decisions.votes is None else decisions.votes.tolist()
    doubt = [None] * n if decisions.doubt is None else decisions.doubt.tolist()
    return [
        {
            "id": ids[i],
            "label": decisions.labels[i].item(),
            "accepted": bool(decisions.accepted[i]),
            "credibility": float(decisions.credibility[i]),
            "confidence": float(decisions.confidence[i]),
            "votes": votes[i],
            "doubt": None if decisions.accepted[i] else doubt[i],
        }
        for i in range(n)
    ]


def kept(gate):
    """Return the objects in the database of a gate, by id."""
    engine = connect(gate.database)
    with engine.connect() as connection:
        sql = "SELECT object_id, sender, accepted, label, credibility FROM payload JOIN item USING (id)"
        rows = connection.execute(text(sql)).all()
    engine.dispose()
    assert len({row.object_id for row in rows}) == len(rows)
    return {row.object_id: row for row in rows}


def as_objects(ids, X, form):
    if form == "dense":
        return [{"id": name, "values": row.tolist()} for name, row in zip(ids, X, strict=True)]
    if form == "sparse":
        rows = [(np.flatnonzero(row), row) for row in X]
        return [
            {"id": name, "positions": places.tolist(), "values": row[places].tolist()}
            for name, (places, row) in zip(ids, rows, strict=True)
        ]
    return [
        {"id": name, "features": dict(zip(NAMES, row.tolist(), strict=True))}
        for name, row in zip(ids, X, strict=True)
    ]


@pytest.fixture(scope="module")
def sender(gate):
    return gate.client("sender")


@pytest.fixture(scope="module")
def sender_of_folds(gate_of_folds):
    return gate_of_folds.client("sender")


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_matrix])
def test_decisions_are_those_of_python_in_a_batch_in_parts_and_alone(sender, rejector, problem, rows):
    X = rows(problem[0][900:1300])
    ids = names_of(rows.__name__, 400)
    expected = answers_of(ids, rejector.decide(X))
    assert {True, False} == {each["accepted"] for each in expected}
    assert sender.decide(ids, X) == expected
    parts = [sender.decide(ids[i : i + 37], X[i : i + 37]) for i in range(0, 400, 37)]
    assert [each for part in parts for each in part] == expected
    assert [sender.decide([ids[i]], X[[i]])[0] for i in range(100, 140)] == expected[100:140]


def test_names_give_the_decisions_of_a_frame_with_votes_and_whole_labels(
    sender_of_folds, gate_of_folds, folds, problem
):
    frame = pd.DataFrame(problem[0][1000:1100], columns=NAMES)
    decisions = folds.decide(frame)
    ids = names_of("named", 100)
    got = sender_of_folds.decide(ids, frame[NAMES[::-1]])
    assert got == answers_of(ids, decisions)
    assert {type(each["label"]) for each in got} == {type(each["votes"]) for each in got} == {int}
    assert len({each["votes"] for each in got}) > 2
    assert sender_of_folds.model()["classes"] == [0, 1]
    found = kept(gate_of_folds)
    assert {found[name].label for name in ids if name in found} <= {"0", "1"}


def test_forms_are_mixed_in_a_request(sender_of_folds, folds, problem):
    X = problem[0][1200:1290]
    ids = names_of("mixed", 90)
    forms = [as_objects(ids, X, form) for form in ("dense", "sparse", "named")]
    got = sender_of_folds.decide_objects([forms[i % 3][i] for i in range(90)])
    assert got == answers_of(ids, folds.decide(pd.DataFrame(X, columns=NAMES)))


def test_clients_at_once_get_their_own_decisions(gate, rejector, problem):
    X = problem[0][1000:1960]
    expected = rejector.decide(X)
    names = [f"many {i}" for i in range(12)]
    tokens = {name: gate.token(name, "client") for name in names}

    def send(k):
        rows = np.arange(k * 80, k * 80 + 80)
        with GateClient(gate.address, tokens[names[k]]) as client:
            for _ in range(3):
                ids = names_of(names[k], 80)
                size = 1 + 13 * (k % 4)
                got = []
                for start in range(0, 80, size):
                    form = "sparse" if k % 2 else "dense"
                    part = as_objects(ids[start : start + size], X[rows[start : start + size]], form)
                    got += client.decide_objects(part)
                assert got == answers_of(ids, expected[rows])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(send, range(12)))
    found = kept(gate)
    for k, name in enumerate(names):
        rejected = [f"object {name}.{i}" for i in np.flatnonzero(expected.rejected[k * 80 : k * 80 + 80])]
        assert {each for each, row in found.items() if row.sender == name} == set(rejected)


def test_rejected_objects_are_in_the_database_when_the_answer_arrives(gate, sender, rejector, problem):
    X = problem[0][1000:1200]
    ids = names_of("kept", 200)
    decisions = rejector.decide(X)
    for start in range(0, 200, 20):
        got = sender.decide(ids[start : start + 20], X[start : start + 20])
        found = kept(gate)
        for each in got:
            assert (each["id"] in found) == (not each["accepted"])
    for i in np.flatnonzero(decisions.rejected):
        row = found[ids[i]]
        assert (row.sender, row.accepted, row.label) == ("sender", False, decisions.labels[i])
        assert row.credibility == decisions.credibility[i]


def test_the_same_object_is_one_item_however_often_and_in_whatever_form(gate, sender, rejector, problem):
    X = problem[0][1000:1100]
    few = X[rejector.decide(X).rejected][:3]
    ids = names_of("again", 3)
    for _ in range(2):
        sender.decide_objects(as_objects(ids, few, "dense") * 2 + as_objects(ids, few, "sparse"))
    assert sum(name in ids for name in kept(gate)) == 3  # which has no object twice


def test_a_doubt_and_a_missing_value_and_an_audit_of_everything(gate_of_boosted, boosted, problem):
    X = problem[0][1000:1120].copy()
    X[::3, 2] = np.nan
    decisions = boosted.decide(X)
    ids = names_of("audit", 120)
    sender = gate_of_boosted.client("sender")
    got = sender.decide(ids, X)
    assert got == answers_of(ids, decisions)
    assert len({each["doubt"] for each in got}) > 1
    assert {each["votes"] for each in got} == {None}
    found = kept(gate_of_boosted)
    assert {name: row.accepted for name, row in found.items()} == dict(
        zip(ids, decisions.accepted.tolist(), strict=True)
    )
    analyst = gate_of_boosted.client("ann", "analyst")
    counted = analyst.counts()
    assert (counted["audit"], counted["rejected"]) == (decisions.accepted.sum(), decisions.rejected.sum())
    items = analyst.claim(100)["items"]
    assert [each["audit"] for each in items] == sorted((each["audit"] for each in items), reverse=True)
    with_holes = next(each for each in items if int(each["object_id"].rpartition(".")[2]) % 3 == 0)
    assert analyst.show(with_holes["id"])["values"][with_holes["positions"].index(2)] is None


def test_bad_objects_are_named_and_the_others_are_decided_and_kept(gate, sender, rejector, problem):
    X = problem[0][1000:1030]
    ids = names_of("bad", 30)
    expected = answers_of(ids, rejector.decide(X))
    objects = as_objects(ids, X, "dense")
    sparse = as_objects(ids, X, "sparse")
    objects[3]["values"][1] = "one"
    objects[5]["values"].pop()
    objects[7] = sparse[7] | {"positions": [*sparse[7]["positions"][:-1], 99]}
    objects[9] = 9
    objects[11] = {"id": ids[11]}
    objects[13] = sparse[13] | {"extra": 1}
    objects[15] = {"id": ids[15], "features": {"a": 1}}
    del objects[17]["id"]
    with pytest.raises(GateError, match=r"^422: 8 of 30 objects cannot be decided.*objects\[3\]") as error:
        sender.decide_objects(objects)
    fields = [each["field"] for each in error.value.errors]
    assert fields == [
        "objects[3].values[1]", "objects[5].values", "objects[7].positions[11]", "objects[9]", "objects[11]",
        "objects[13].extra", "objects[15].features", "objects[17].id",
    ]  # fmt: skip
    assert [each["id"] for each in error.value.errors][:3] == [ids[3], ids[5], ids[7]]
    bad = {3, 5, 7, 9, 11, 13, 15, 17}
    assert error.value.decisions == [None if i in bad else expected[i] for i in range(30)]
    good = {each["id"] for i, each in enumerate(expected) if i not in bad and not each["accepted"]}
    assert good
    assert {name for name in kept(gate) if name in ids} == good


def test_objects_that_the_detector_cannot_handle_do_not_affect_others(sender, rejector, problem):
    X = problem[0][1000:1016].copy()
    expected = answers_of(names_of("hole", 16), rejector.decide(X))
    X[[2, 11], 4] = np.nan
    with pytest.raises(GateError, match="2 of 16 objects") as error:
        sender.decide(names_of("hole", 16), X)
    assert [each["field"] for each in error.value.errors] == ["objects[2]", "objects[11]"]
    assert "feature 4 is missing" in error.value.errors[0]["message"]
    assert error.value.decisions == [None if i in (2, 11) else expected[i] for i in range(16)]


def test_no_objects_and_too_many(sender, problem):
    assert sender.decide_objects([]) == []
    objects = as_objects(names_of("most", 1001), np.resize(problem[0], (1001, 12)), "sparse")
    assert len(sender.decide_objects(objects)) == 1001  # in two requests
    with pytest.raises(GateError, match="413: 1,001 objects; a request has at most 1,000") as error:
        sender._post("/v1/decisions", {"objects": objects})
    assert error.value.status == 413


@pytest.mark.postgresql
def test_without_a_database_accepted_objects_are_answered_and_rejected_ones_are_not(
    artifact, rejector, problem, tmp_path_factory
):
    X = problem[0][1000:1400]
    decisions = rejector.decide(X)
    accepted, rejected = X[decisions.accepted][:20], X[decisions.rejected][:20]
    folder = tmp_path_factory.mktemp("stopped")
    with (
        TemporaryDirectory() as elsewhere,  # other test runs close pytest's own folder to other users
        cluster_in(Path(elsewhere)) as cluster,
        gate_of(with_tables(cluster.url), artifact, folder, tokens="none") as gate,
        GateClient(gate.address) as client,
    ):
        client.decide(names_of("before", 20), rejected)
        cluster.stop()
        assert all(each["accepted"] for each in client.decide(names_of("accepted", 20), accepted))
        with pytest.raises(GateError, match="nothing was kept") as error:
            client.decide(names_of("lost", 20), rejected)
        assert (error.value.status, error.value.decisions) == (503, None)
        with pytest.raises(GateError, match="database") as error:
            client.counts()
        assert error.value.status == 503
        cluster.start()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                client.decide(names_of("after", 20), rejected)
                break
            except GateError:
                time.sleep(0.1)
        assert set(kept(gate)) == {*names_of("before", 20), *names_of("after", 20)}
        assert client.counts()["waiting"] == 40
        assert client.labelled()[:4] == b"PAR1"  # without tokens, everyone is an operator
