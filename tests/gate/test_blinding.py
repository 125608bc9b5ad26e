"""Items that check answers show no answer to analysts before they have given their own."""

import numpy as np
import pytest
from sqlalchemy import text

from tests.gate.conftest import gate_of, tables_on
from tests.gate.test_campaigns import campaigns, family, quarantine, regroup, send  # noqa: F401
from tests.gate.test_quarantine import rows
from transcendent.gate import wire
from transcendent.gate.blinding import _HIDDEN, NOT_YET
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.contents import Contents
from transcendent.gate.database import connect
from transcendent.gate.intake import AUDITED, audit_secret, keep
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.pages.desk_items import desk_item
from transcendent.gate.pages.desk_queue import queue_of
from transcendent.gate.quarantine import Quarantine

SHOWN = {"id", "object_id", "sender", "received_at", "positions", "values", "classes", "model", "audit"}


def look_at(engine, *items):
    """Draw items that could be settled."""
    with engine.begin() as connection:
        drawn = "INSERT INTO settled_look (item, label, distance, draw) VALUES (:item, 'malware', 0, 0.5)"
        for item in items:
            connection.execute(text(drawn), {"item": item})
            move = "UPDATE item SET tier = 0, rank = 1.5 WHERE id = :item"
            connection.execute(text(move), {"item": item})


def is_blind(item):
    known = {name for name, value in item.items() if value is not None}
    return item["blind"] and item["audit"] and not known & set(_HIDDEN) and known >= SHOWN


@pytest.fixture(scope="module")
def filled(server, artifact, rejector, problem, tmp_path_factory):
    """A gate with an analyst, an operator, an audited item, a look, and one that is rejected as any other."""
    X = problem[0][1000:1200]
    accepted = rejector.decide(X).accepted
    with tables_on(server) as url, gate_of(url, artifact, tmp_path_factory.mktemp("gate"), audit=1) as gate:
        gate.client().decide(
            ["audited", "look", "rejected"],
            X[[*np.flatnonzero(accepted)[:1], *np.flatnonzero(~accepted)[:2]]],
        )
        ann, root = gate.client("ann", "analyst"), gate.client("root", "operator")
        items = {name: root.find(name)[0]["item"] for name in ("audited", "look", "rejected")}
        engine = connect(url)
        look_at(engine, items["look"])
        engine.dispose()
        yield gate, ann, root, items


def test_an_analyst_sees_what_was_decided_after_their_own_label(filled):
    _, ann, root, items = filled
    claimed = {item["object_id"]: item for item in ann.claim(3)["items"]}
    held = {item["object_id"]: item for item in ann.held()}
    assert claimed.keys() == held.keys() == items.keys()
    for name in ("audited", "look"):
        shown, found, why = ann.show(items[name]), ann.find(name), ann.explain(items[name])
        assert is_blind(claimed[name])
        assert is_blind(held[name])
        assert is_blind(shown)
        assert [(each["predicted"], each["label"]) for each in found] == [(None, None)]
        said = {field for field, value in why.items() if value}
        assert said == {"item", "object_id", "model", "blind", "notes", "text"}
        assert why["text"] == NOT_YET
        assert not root.show(items[name])["blind"]
        assert root.find(name)[0]["predicted"] is not None
        assert root.explain(items[name])["sentence"]
    assert {held["look"][name] for name in ("audit", "blind")} == {True}
    rejected = claimed["rejected"]
    assert (rejected["blind"], rejected["accepted"], rejected["audit"]) == (False, False, False)
    assert ann.explain(rejected["id"])["sentence"]
    for name in ("audited", "look"):
        ann.resolve(items[name], "malware")
        shown = ann.show(items[name])
        assert (shown["blind"], shown["predicted"] is None) == (False, False)
        assert (shown["accepted"], shown["audit"]) == (name == "audited", name == "audited")
        assert ann.explain(items[name])["sentence"]
        assert ann.find(name)[0]["label"] == "malware"
    ann.undo(items["audited"])
    assert is_blind(ann.show(items["audited"]))


def test_an_operator_who_claims_sees_everything(filled):
    gate, *_ = filled
    X = np.zeros((40, 12))
    gate.client("other").decide([f"more{i}" for i in range(40)], X + np.arange(40)[:, None] / 40)
    root = gate.client("boss", "operator")
    claimed, held = root.claim(40)["items"], root.held()
    assert any(item["audit"] for item in claimed)
    assert not any(item["blind"] for item in [*claimed, *held])
    root.release()


def test_what_was_said_of_another_object_with_the_same_id_is_hidden_too(own_engine):
    items = SecondOpinions(own_engine)
    keep(own_engine, rows(own_engine, [0.1], "o"))
    (first,) = items.claim("ann").items
    items.resolve("ann", first["id"], "malware")
    audited = {"tier": AUDITED, "accepted": True, "probability": 0.5, "key": b"other"}
    keep(own_engine, rows(own_engine, [0.2], "o", **audited))
    assert {(each["predicted"], each["label"]) for each in items.find("o0", who="bob")} == {(None, None)}
    assert {each["label"] for each in items.find("o0")} == {"malware", None}
    assert {each["label"] for each in items.find("o0", sender="sensor")} == {"malware"}


def test_a_second_opinion_on_an_audited_item_is_blind_until_it_is_given(own_engine):
    items = SecondOpinions(own_engine)
    keep(own_engine, rows(own_engine, [0.1], tier=AUDITED, accepted=True, probability=0.5))
    (first,) = items.claim("ann").items
    number = first["id"]
    items.resolve("ann", number, "malware")
    assert not items.show(number, "ann")["blind"]
    (claimed,) = items.as_seen(items.claim("bob", opinions=True).items, "bob")
    assert claimed["blind"]
    assert items.show(number, "bob")["history"] == []
    items.resolve("bob", number, "goodware")
    assert not items.show(number, "bob")["blind"]  # a third is asked, who is not bob
    assert items.show(number, "cid")["blind"]
    items.undo("bob", number)
    assert items.show(number, "bob")["blind"]


def test_an_item_with_a_label_stays_blind_to_who_has_given_none(own_engine):
    items = Quarantine(own_engine)
    keep(own_engine, rows(own_engine, [0.1], tier=AUDITED, accepted=True, probability=0.5))
    (first,) = items.claim("ann").items
    number = first["id"]
    items.resolve("ann", number, "malware")
    shown, (found,) = items.show(number, "bob"), items.find("o0", who="bob")
    assert is_blind(shown)
    assert (shown["history"], found["predicted"], found["label"]) == ([], None, None)
    assert not items.show(number, "ann")["blind"]
    page = desk_item(items, CampaignLabels(own_engine), number, "bob")
    assert (page.blind, page.mine, page.free) == (True, False, False)
    items.undo("ann", number)
    items.take("bob", number)
    items.resolve("bob", number, "goodware")  # without having seen an answer
    assert not items.show(number, "bob")["blind"]
    page = desk_item(items, CampaignLabels(own_engine), number, "ann")
    assert (page.blind, page.why_not) == (True, "This has a label already.")


def test_opinions_that_agree_are_hidden_from_who_has_given_none(own_engine):
    items = SecondOpinions(own_engine)
    keep(own_engine, rows(own_engine, [0.1], tier=AUDITED, accepted=True, probability=0.5))
    (first,) = items.claim("ann").items
    items.resolve("ann", first["id"], "malware")
    items.claim("bob", opinions=True)
    items.resolve("bob", first["id"], "malware")
    assert [len(items.show(first["id"], who)["opinions"]) for who in ("ann", "bob", "cid")] == [1, 1, 0]
    assert [items.show(first["id"], who)["blind"] for who in ("ann", "bob", "cid")] == [False, False, True]


def test_the_order_of_a_claim_does_not_tell_looks_from_the_audit(own_engine):
    items = Quarantine(own_engine)
    ranks = np.linspace(0, 0.9, 20)
    keep(own_engine, rows(own_engine, ranks, "a", tier=AUDITED, accepted=True, probability=0.5))
    keep(own_engine, rows(own_engine, ranks, "o"))
    claimed = items.claim("ann", 40).items
    looks = {item["id"] for item in claimed if item["object_id"].startswith("o") and item["id"] % 2}
    look_at(own_engine, *looks)
    seen = items.as_seen(items.held("ann"), "ann")
    n = 20 + len(looks)
    assert [item["blind"] for item in seen] == [True] * n + [False] * (40 - n)
    assert looks & {item["id"] for item in seen[:20]}  # not all after the audit
    assert [item["id"] for item in seen[n:]] == [
        item["id"] for item in claimed if item["id"] in {each["id"] for each in seen[n:]}
    ]


def test_labels_of_others_and_of_other_systems_are_hidden_with_the_answer(own_engine):
    items = SecondOpinions(own_engine)
    keep(own_engine, rows(own_engine, [0.1], tier=AUDITED, accepted=True, probability=0.5))
    (item,) = items.claim("ann").items
    items.skip("ann", item["id"], note="looks like the others of this night")
    assert items.show(item["id"], "bob")["history"] == []
    assert [each["action"] for each in items.show(item["id"])["history"]] == ["skip"]


def test_a_look_is_not_drawn_for_its_campaign(engine, quarantine, campaigns, send):  # noqa: F811
    send(family(8))
    (found,) = campaigns.list()
    with engine.connect() as connection:
        sql = "SELECT leader FROM content WHERE campaign IS NOT NULL ORDER BY place"
        order = connection.execute(text(sql)).scalars().all()
    look_at(engine, order[0])
    drawn = quarantine.claim("ann", 3, campaign=found["id"]).items
    assert {item["id"] for item in drawn} == set(order[1:4])
    assert quarantine.as_seen(quarantine.claim("bob", 1).items, "bob")[0]["campaign"] is None
    for item in drawn:
        quarantine.resolve("ann", item["id"], "malware")
    assert campaigns.resolve("ann", found["id"], "malware")["items"] == 4
    wire.ShownItem(**quarantine.show(order[0], "bob"), opinions=[])


def test_the_list_of_campaigns_does_not_name_a_look(filled):
    gate, ann, root, items = filled
    engine = connect(gate.database)
    Contents(engine, audit_secret(engine)).add_new()
    with engine.begin() as connection:
        described = f"""{{"medoid": {items["look"]}, "sentence": "2 objects"}}"""
        given = {"described": described, "items": [items["look"], items["rejected"]]}
        connection.execute(text("INSERT INTO campaign (id, described) VALUES ('abc', :described)"), given)
        sql = """UPDATE content SET campaign = 'abc' FROM item_content AS known
        WHERE known.key = content.key AND item = ANY(:items)"""
        assert connection.execute(text(sql), given).rowcount == 2
    if root.show(items["look"])["labelled"]:
        ann.undo(items["look"])
    assert [each["described"]["medoid"] for each in ann.campaigns()] == [None]
    assert [each["described"]["medoid"] for each in root.campaigns()] == [items["look"]]
    listed = Quarantine(engine), CampaignLabels(engine)
    for who in ("ann", "root"):  # the desk hides it from operators, too
        rows = queue_of(engine, *listed, who, opinions=False, new=False).rows
        assert [(row.like, row.chips) for row in rows if row.first or row.like] == [
            ("abc", [("warn", "not triaged")])
        ]
    engine.dispose()
