"""What became of an object: for its sender, and for analysts and operators."""

import pytest
from sqlalchemy import text

from tests.gate.test_intake import model_of
from transcendent.errors import GateError
from transcendent.gate.intake import Draw, keep, register, to_keep
from transcendent.gate.quarantine import _BY_INDEX, _FOUND, Quarantine

ODD = ["a/b", "/a", "a?b=c#d", "100%", "%2e%2f", "a b", "é😀", "a/../b", "a//b", "{}", "x" * 200, "+", ";"]


@pytest.fixture(scope="module")
def rows(rejector, problem):
    """Rejected rows."""
    X = problem[0][1000:]
    return X[rejector.decide(X).rejected]


def test_a_sender_learns_what_became_of_its_objects(gate, rows):
    sender, ann = gate.client("sender"), gate.client("ann", "analyst")
    sender.decide(["a", "a", "b"], rows[:3])
    first, second = sender.find("a")
    assert first["received_at"] >= second["received_at"]
    for each in (first, second):
        assert (each["state"], each["label"], each["labelled_at"], each["item"]) == (
            "waiting",
            None,
            None,
            None,
        )
        assert (each["model"], each["sender"]) == (sender.model()["digest"], "sender")
    items = {each["object_id"]: each["id"] for each in ann.claim(3)["items"]}
    assert {each["state"] for each in sender.find("a")} == {"held"}
    written = ann.resolve(items["a"], "malware", reason="packed", note="for analysts")
    found = {each["state"]: each for each in sender.find("a")}
    assert (found["labelled"]["label"], found["labelled"]["labelled_at"]) == (
        "malware",
        written["written_at"],
    )
    assert (found["held"]["label"], "packed" in str(found), "ann" in str(found)) == (None, False, False)
    assert ann.find("a")[0].keys() == first.keys()
    assert items["a"] in [each["item"] for each in ann.find("a")]
    ann.undo(items["a"])
    assert {each["label"] for each in sender.find("a")} == {None}


def test_a_client_sees_only_its_own_objects(gate, rows):
    one, two, root = gate.client("one"), gate.client("two"), gate.client("root", "operator")
    one.decide(["own"], rows[:1])
    assert two.find("own") == []
    two.decide(["own"], rows[1:2])
    assert [each["sender"] for each in one.find("own")] == ["one"]
    assert [each["sender"] for each in two.find("own")] == ["two"]
    assert [each["sender"] for each in root.find("own")] == ["two", "one"]
    assert root.find("ow") == root.find("own ") == []


def test_a_client_does_not_learn_which_accepted_objects_were_drawn(start_gate, rejector, problem):
    X = problem[0][:40]
    X = X[rejector.decide(X).accepted]
    gate = start_gate(audit=1)
    sender, ann = gate.client(), gate.client("ann", "analyst")
    sender.decide([f"o{i}" for i in range(len(X))], X)
    assert sender.find("o0") == []
    (item,) = ann.find("o0")
    for each in ann.claim(100)["items"]:
        ann.resolve(each["id"], "malware")
    assert [each["label"] for each in sender.find("o0")] == ["malware"]
    assert (item["state"], item["label"]) == ("waiting", None)


def test_ids_of_all_kinds_are_found(gate, rows):
    sender = gate.client("odd")
    sender.decide(ODD, rows[: len(ODD)])
    for name in ODD:
        assert [each["object_id"] for each in sender.find(name)] == [name]
    assert sender.find("a\nb") == []
    for name in ("x" * 201, "a\0"):
        with pytest.raises(GateError, match="422"):
            sender.find(name)


def test_a_search_reads_an_index_whatever_the_statistics_say(engine, rejector, rows):
    model, few = model_of(rejector), rows[:90]
    ids = [f"o{i % 45}" for i in range(90)]
    arguments = register(engine, model), Draw(b"", 0), ids, ["s"] * 90, few, rejector.decide(few)
    keep(engine, list(to_keep(*arguments).values()))
    assert len(Quarantine(engine).find("o7")) == 2
    with engine.connect() as connection:
        connection.execute(text(_BY_INDEX))
        given = {"object": "o7", "sender": "s", "limit": 100}
        plan = "\n".join(connection.execute(text(f"EXPLAIN {_FOUND}"), given).scalars())
    assert "Seq Scan on payload" not in plan
    assert plan.count("_hashtextextended_idx") == 3  # months
