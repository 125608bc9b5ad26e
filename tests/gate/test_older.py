"""Objects that wait under one model and are sent again under another, and items that are closed."""

import time

import numpy as np
import pytest
from sklearn.base import clone
from sqlalchemy import text

from tests.gate.test_intake import model_of
from tests.gate.test_quarantine import rows
from transcendent import save
from transcendent.gate import GateClient
from transcendent.gate.check import check
from transcendent.gate.intake import AUDITED, REJECTED, Draw, keep, register, to_keep
from transcendent.gate.older import OlderItems
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine

NEW = "e" * 64


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine, labels=["unclear"])


@pytest.fixture
def second(engine, rejector):
    """The number of another model."""
    return register(engine, model_of(rejector, NEW))


@pytest.fixture
def send(engine):
    """A function that keeps an object, whose sender and features are always the same."""

    def keep_it(rank=0.1, **given):
        keep(engine, rows(engine, [rank], **given))
        assert check(engine) == []

    return keep_it


def only(engine):
    """The only item."""
    sql = """SELECT item.id, received_at, rank, tier, state, credibility, label, accepted, probability,
        context, payload.features, digest
    FROM item JOIN payload USING (id) JOIN model ON model.id = item.model"""
    with engine.connect() as connection:
        return dict(connection.execute(text(sql)).mappings().one())


def actions(quarantine, item):
    return [(each["action"], each["reason"], each["author"]) for each in quarantine.show(item)["history"]]


def test_a_waiting_object_is_one_item_and_decided_again(engine, quarantine, send, second):
    send(0.1, context='{"a": 1}')
    before = only(engine)
    send(0.4, model=second, label="goodware", p_values=np.array([0.5, 0.75]).tobytes())
    after = only(engine)
    assert (after["id"], after["received_at"]) == (before["id"], before["received_at"])
    assert (after["digest"], after["rank"], after["credibility"], after["label"]) == (
        NEW,
        0.4,
        0.4,
        "goodware",
    )
    assert (after["context"], after["features"]) == ('{"a": 1}', before["features"])
    (written,) = quarantine.show(after["id"])["history"]
    assert (written["action"], written["reason"], written["author"]) == ("decide", "rejected", "gate")
    assert written["note"] == f"before: rejected as malware by model {'d' * 64}"
    send(0.4, model=second, label="goodware")
    assert len(actions(quarantine, after["id"])) == 1  # the same model changes nothing


def test_an_object_that_is_accepted_now_is_closed_or_audited(engine, quarantine, send, second):
    accepted = {"model": second, "tier": AUDITED, "accepted": True}
    send()
    item = only(engine)["id"]
    send(0.9, **accepted, kept=False)
    assert (only(engine)["state"], quarantine.counts()["closed"], quarantine.claim("ann").items) == (2, 1, [])
    assert actions(quarantine, item) == [("close", "accepted", "gate")]
    assert (quarantine.show(item)["closed"], quarantine.find("o0")[0]["state"]) == (True, "closed")
    assert quarantine.find("o0", "sensor") == []  # which is also what its sender sees if it is drawn
    for act in (lambda: quarantine.resolve("ann", item, "malware"), lambda: quarantine.undo("ann", item)):
        with pytest.raises(ConflictError):
            act()
    send(0.2, model=second)  # such as by a budget that has moved
    assert (only(engine)["state"], only(engine)["tier"], only(engine)["accepted"]) == (0, REJECTED, False)
    send(0.3)
    send(0.7, **accepted, probability=0.5)
    assert (only(engine)["state"], only(engine)["tier"], only(engine)["probability"]) == (0, AUDITED, 0.5)
    assert quarantine.find("o0", "sensor") == []
    assert [each["action"] for each in quarantine.show(item)["history"]] == [
        "close",
        "decide",
        "decide",
        "decide",
    ]


def test_labelled_held_and_audited_items_stay(engine, quarantine, send, second):
    send()
    (item,) = quarantine.claim("ann").items
    for label in (None, "unclear"):
        if label:
            quarantine.resolve("ann", item["id"], label)
        before = only(engine)
        send(0.9, model=second)
        send(0.9, model=second, accepted=True, tier=AUDITED, kept=False)
        assert only(engine) == before
    send(0.2, prefix="audited", tier=AUDITED, accepted=True, probability=0.5)
    (item,) = quarantine.find("audited0")
    send(0.9, prefix="audited", model=second)
    assert quarantine.find("audited0") == [item]


def test_only_objects_that_may_wait_under_another_model_are_looked_up(engine, rejector, problem):
    X = problem[0][:60]
    decisions = rejector.decide(X)
    accepted = np.flatnonzero(decisions.accepted).tolist()
    ids, senders, nobody = [f"o{i}" for i in range(60)], ["sensor"] * 60, Draw(b"", 0)
    old, new = (register(engine, model_of(rejector, digest * 64)) for digest in "de")
    waiting = rows(engine, [0.1] * 60, model=old)
    keep(engine, [waiting[i] for i in accepted[:5]])
    older = OlderItems(engine, new)
    assert older.places(senders, ids).tolist() == []
    older.read()
    assert older.places(senders, ids).tolist() == accepted[:5]
    assert older.places(["other"] * 60, ids).tolist() == []
    keep(engine, [waiting[i] for i in accepted[5:7]])
    older.read()
    assert older.places(senders, ids).tolist() == accepted[:7]
    chosen = to_keep(new, nobody, ids, senders, X, decisions, older=older)
    assert {place for place, each in chosen.items() if not each[-1]} == set(accepted[:7])
    keep(engine, list(chosen.values()))  # other features, so other objects
    assert Quarantine(engine).counts()["closed"] == 0
    same = OlderItems(engine, old)
    same.read()
    assert not set(same.places(senders, ids).tolist()) & set(accepted)


def test_items_of_a_model_are_closed_but_not_those_that_are_held_or_of_others(
    engine, quarantine, send, second
):
    keep(engine, rows(engine, np.linspace(0, 1, 25)))
    keep(engine, rows(engine, [0.5], prefix="new", model=second))
    held = quarantine.claim("ann", 3).items
    quarantine.resolve("ann", held[0]["id"], "malware")
    assert quarantine.to_close("dd") == ("d" * 64, 24, 2)
    assert quarantine.close("d" * 64, "root", step=4) == 22
    counted = quarantine.counts()
    assert (counted["waiting"], counted["held"], counted["labelled"], counted["closed"]) == (3, 2, 1, 22)
    assert quarantine.close("d" * 64, "root") == 0
    (found,) = quarantine.find("o24", "sensor")
    assert found["state"] == "closed"
    assert check(engine) == []
    for digest in ("", "f", "D"):
        with pytest.raises(NoItemError, match=r"no models begin with .* eeeeeeeeeeee, dddddddddddd"):
            quarantine.to_close(digest)
    keep(engine, rows(engine, np.linspace(0, 1, 25)))  # rejected again: it waits again
    assert quarantine.counts()["waiting"] == 25


def test_an_object_that_the_next_model_accepts_is_closed(start_gate, rejector, problem, tmp_path):
    X, y = problem
    ids, later = [f"o{i}" for i in range(200)], clone(rejector).fit(X, y)
    save(later, tmp_path / "later")
    X = X[1000:1200]
    first, rejected = start_gate(audit=0), rejector.decide(X).rejected
    token, ann = first.token("sensor", "client"), first.client("ann", "analyst")
    with GateClient(first.address, token) as sensor:
        sensor.decide(ids, X)
    assert ann.counts()["waiting"] == rejected.sum()
    with GateClient(start_gate(tmp_path / "later", audit=0).address, token) as sensor:
        for _ in range(100):  # until the gate has read what waits
            sensor.decide(ids, X)
            if ann.counts()["closed"]:
                break
            time.sleep(0.1)
    now, counted = later.decide(X), ann.counts()
    assert counted["closed"] == (rejected & now.accepted).sum() > 0
    assert counted["waiting"] == now.rejected.sum()
    assert {each["state"] for i in np.flatnonzero(now.rejected) for each in ann.find(ids[i])} == {"waiting"}
