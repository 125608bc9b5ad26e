"""Campaigns of the quarantine: found together, opened at random, labelled and undone once."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from tests.gate.test_contents import states
from tests.gate.test_quarantine import rows
from transcendent.cli.app import app
from transcendent.errors import GateError
from transcendent.gate import campaigns as gate_campaigns
from transcendent.gate import findings, read_labelled
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.campaigns import Grouping
from transcendent.gate.check import check
from transcendent.gate.contents import Contents
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.events import Cursor, Events
from transcendent.gate.export import export_labelled
from transcendent.gate.features import encode
from transcendent.gate.grouping import GroupedContents, group_all
from transcendent.gate.intake import AUDITED, keep
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine

WIDTH = 120


def family(n, start=0, size=40):
    """Rows of one family: each lacks another of its features."""
    made = np.zeros((n, WIDTH))
    made[:, start : start + size] = 1
    made[np.arange(n), start + np.arange(n)] = 0
    return made


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine, labels=["unclear"])


@pytest.fixture
def campaigns(engine):
    return CampaignLabels(engine)


@pytest.fixture
def regroup(engine):
    """A function that finds contents and campaigns, whether or not there is news."""

    def work(opinions=1):
        Contents(engine, b"secret").add_new()
        with engine.begin() as connection:
            connection.execute(text("UPDATE grouped SET seen = ''"))
        assert Grouping(engine, opinions).regroup()
        assert check(engine) == []

    return work


@pytest.fixture
def send(engine, regroup):
    """A function that keeps rows as rejected objects, and groups what waits."""

    def keep_them(X, prefix="o", *, opinions=1, **given):
        kept = [
            rows(engine, [0.1], f"{prefix}{i}-", features=each, **given)[0]
            for i, each in enumerate(encode(X))
        ]
        keep(engine, kept)
        regroup(opinions)

    return keep_them


def scalars(engine, sql, **given):
    with engine.connect() as connection:
        return connection.execute(text(sql), given).scalars().all()


def open_members(quarantine, campaign, label="malware", who="ann", count=3):
    items = quarantine.claim(who, count, campaign=campaign).items
    for item in items:
        quarantine.resolve(who, item["id"], label)
    return items


def test_near_contents_are_a_campaign_and_copies_alone_are_not(engine, quarantine, campaigns, send):
    send(np.vstack([family(6), family(6)[:2], family(1, 60), family(1, 60), np.full((1, WIDTH), 0.5)]))
    [found] = campaigns.list()
    assert (found["waiting"], found["contents"], found["opened"], found["needed"]) == (8, 6, 0, 3)
    assert found["described"]["n_contents"] == 6
    assert found["described"]["medoid"] in scalars(engine, "SELECT id FROM item")
    assert found["described"]["sentence"].startswith("6 different objects, at most ")  # without copies
    assert found["described"]["p_values"] == {"low": 0.1, "median": 0.1, "high": 0.1}
    assert found["proves"] == "no member was opened yet"
    assert found["label"] is None
    counted = quarantine.counts()
    assert (counted["campaigns"], counted["in_campaigns"], counted["waiting"]) == (1, 6, 11)
    [item] = quarantine.claim("ann", campaign=found["id"]).items
    assert item["campaign"] == {"id": found["id"], "contents": 6, "opened": 0, "needed": 3}
    json.dumps(found["described"])


def test_items_of_no_campaign_are_claimed_alone(engine, quarantine, campaigns, send):
    keep(engine, rows(engine, [0.2], "audited", tier=AUDITED, accepted=True))
    send(np.vstack([family(4), family(1, 60), np.full((1, WIDTH), 0.5)]))
    alone = [quarantine.claim_next("ann", among="alone") for _ in range(3)]
    assert alone[2] is None
    names = scalars(engine, "SELECT object_id FROM payload WHERE id = ANY(:ids)", ids=alone[:2])
    assert sorted(names) == ["o4-0", "o5-0"]
    [audited] = quarantine.claim("ann", 9, among="audit").items
    assert audited["object_id"] == "audited0"
    [found] = campaigns.list()
    assert campaigns.get(found["id"]) == found
    assert campaigns.get("none") is None


def test_what_waits_of_labelled_contents_is_reached(engine, quarantine, campaigns, send):
    twice = np.vstack([family(2), family(2)[:1]])
    audited = rows(
        engine, [0.2, 0.3], "audited", tier=AUDITED, accepted=True, features=encode(family(2)[:1])[0]
    )
    keep(engine, audited)
    send(twice)
    [found] = campaigns.list()
    assert (found["waiting"], found["copies"]) == (3, 1)
    quarantine.resolve("ann", quarantine.claim_next("ann", among="audit"), "malware")
    [first] = quarantine.claim("ann", campaign=found["id"]).items
    quarantine.resolve("ann", first["id"], "malware")
    [shown] = campaigns.list()
    assert (shown["waiting"], shown["opened"], shown["label"]) == (2, 2, "malware")
    assert shown["proves"] == "2 drawn at random were all malware: no other member is left"
    [left] = quarantine.claim("bob", 9, campaign=found["id"]).items
    assert (left["object_id"], left["copies"]) == ("o0-0", 1)
    quarantine.skip("bob", left["id"])
    assert quarantine.claim_next("bob", campaign=found["id"]) is None
    [left] = quarantine.claim("ann", 9, campaign=found["id"]).items
    quarantine.resolve("ann", left["id"], "malware")
    assert campaigns.list() == []


def test_it_is_labelled_once_and_undone_once(engine, quarantine, campaigns, send):
    send(np.vstack([family(9), family(9)[:4]]))
    send(family(5, 70), "other")
    found = max(campaigns.list(), key=lambda each: each["contents"])
    with pytest.raises(ConflictError, match="0 of 3 are opened: claim and label 3 more members"):
        campaigns.resolve("ann", found["id"], "malware")
    opened = open_members(quarantine, found["id"])
    [shown] = [each for each in campaigns.list() if each["id"] == found["id"]]
    assert (shown["label"], shown["labels"], shown["missing"]) == ("malware", {"malware": 3}, None)
    assert shown["proves"].startswith("3 drawn at random were all malware. At worst 63% of all 9 members")
    with pytest.raises(ConflictError, match="that were opened are 'malware'"):
        campaigns.resolve("ann", found["id"], "goodware")
    waited = shown["waiting"]
    done = campaigns.resolve("bob", found["id"], "malware", reason="packer", note="all of them")
    assert done == {"campaign": found["id"], "label": "malware", "items": waited}
    inferred = "SELECT item FROM inferred WHERE how = 'campaign'"
    assert len(scalars(engine, inferred)) == waited
    assert {
        state for name, (_, state) in states(engine).items() if name.startswith("o") and name[1].isdigit()
    } == {1}
    one = quarantine.show(scalars(engine, inferred)[0])
    assert (one["history"][-1]["author"], one["history"][-1]["inferred"]) == ("bob", "campaign")
    assert (one["history"][-1]["reason"], one["history"][-1]["note"]) == ("packer", "all of them")
    assert [each["id"] == found["id"] for each in campaigns.list()] == [False]
    assert check(engine) == []
    with pytest.raises(ConflictError, match="labelled by bob: only its author"):
        campaigns.undo("ann", found["id"])
    assert campaigns.undo("bob", found["id"])["items"] == waited
    with pytest.raises(ConflictError, match="there to undo"):
        campaigns.undo("bob", found["id"])
    assert campaigns.resolve("ann", found["id"], "malware")["items"] == waited
    quarantine.undo("ann", opened[1]["id"])
    again = next(each for each in campaigns.list() if each["id"] == found["id"])
    assert again["waiting"] == waited + 1 + opened[1]["copies"]
    assert again["opened"] == 2
    assert check(engine) == []


def test_members_are_drawn_by_a_hash_and_none_can_be_passed_over(engine, quarantine, campaigns, send):
    send(family(20))
    [found] = campaigns.list()
    order = scalars(engine, "SELECT leader FROM content WHERE campaign IS NOT NULL ORDER BY place")
    for item in quarantine.claim("ann", 20).items:  # of the queue: those that happen to come first
        if item["id"] not in order[:3]:
            quarantine.resolve("ann", item["id"], "malware")
    quarantine.release("ann")
    with pytest.raises(ConflictError, match="0 of 3"):
        campaigns.resolve("ann", found["id"], "malware")
    first = quarantine.claim("ann", 2, campaign=found["id"]).items
    assert {item["id"] for item in first} == set(order[:2])
    quarantine.skip("ann", first[0]["id"])
    quarantine.resolve("ann", first[1]["id"], "malware")
    [last] = quarantine.claim("ann", 3, campaign=found["id"]).items
    assert last["id"] == order[2]
    quarantine.resolve("ann", last["id"], "malware")
    with pytest.raises(ConflictError, match="2 of 3 are opened: claim and label 1 more member "):
        campaigns.resolve("ann", found["id"], "malware")
    with pytest.raises(NoItemError, match="does not exist"):
        quarantine.claim("ann", campaign="nothing")
    with pytest.raises(NoItemError, match="does not exist"):
        campaigns.resolve("ann", "nothing", "malware")


def test_held_audited_and_drawn_members_get_no_label(engine, quarantine, campaigns, send):
    X = family(8)
    send(X)
    send(X[:2], "audit", tier=AUDITED, accepted=True, probability=0.5)
    [found] = campaigns.list()
    open_members(quarantine, found["id"])
    [held] = quarantine.claim("bob", 1, campaign=found["id"]).items
    assert campaigns.resolve("ann", found["id"], "malware")["items"] == 4
    after = states(engine)
    assert after["audit0-0"] == after["audit1-0"] == (AUDITED, 0)
    assert after[held["object_id"]][1] == 0
    quarantine.resolve("bob", held["id"], "goodware")  # of no use as a proof: nobody inferred its label
    assert len(scalars(engine, "SELECT id FROM item WHERE state = 1")) == 8


def test_another_label_of_a_member_disproves_what_was_inferred(engine, quarantine, campaigns, send):
    send(np.vstack([family(8), family(1)]))
    [found] = campaigns.list()
    open_members(quarantine, found["id"])
    campaigns.resolve("ann", found["id"], "malware")
    taken = scalars(engine, "SELECT item FROM inferred WHERE how = 'campaign'")
    quarantine.undo("ann", taken[0])
    [again] = quarantine.claim("bob").items
    quarantine.resolve("bob", again["id"], "malware")  # alike: nothing changes
    assert len(scalars(engine, "SELECT id FROM item WHERE state = 0")) == 0
    quarantine.undo("bob", again["id"])
    [again] = quarantine.claim("bob").items
    quarantine.resolve("bob", again["id"], "goodware")
    waiting = scalars(engine, "SELECT id FROM item WHERE state = 0 ORDER BY id")
    same = "SELECT item FROM item_content WHERE key = (SELECT key FROM item_content WHERE item = :item)"
    assert waiting == sorted(set(taken) - set(scalars(engine, same, item=again["id"])))  # copies follow it
    assert check(engine) == []


def test_after_a_disagreement_looks_begin_anew(engine, quarantine, campaigns, send, regroup):
    send(family(12))
    [found] = campaigns.list()
    open_members(quarantine, found["id"])
    open_members(quarantine, found["id"], "goodware", "bob", 1)
    [shown] = campaigns.list()
    assert (shown["label"], shown["proves"]) == (None, None)
    regroup()
    for part in campaigns.list():
        assert (part["label"], part["opened"]) == (None, 0)
        with pytest.raises(ConflictError, match="0 of"):
            campaigns.resolve("ann", part["id"], "malware")
    part = max(campaigns.list(), key=lambda each: each["waiting"])
    [label] = part["labels"]
    open_members(quarantine, part["id"], label)
    regroup()
    assert campaigns.resolve("ann", part["id"], label)["items"] >= 1


def test_a_member_with_another_label_splits_it(engine, quarantine, campaigns, send, regroup):
    chain = np.array([[i <= column < i + 30 for column in range(WIDTH)] for i in range(12)], dtype=float)
    send(chain)
    [found] = campaigns.list()
    by_row = {row: quarantine.find(f"o{row}-0")[0]["item"] for row in range(12)}
    quarantine.claim("ann", 20)
    for row, label in ((0, "malware"), (4, "malware"), (11, "goodware")):
        quarantine.resolve("ann", by_row[row], label)
    quarantine.release("ann")
    [shown] = campaigns.list()
    assert shown["missing"].startswith("its members have different labels (goodware: 1, malware: 2)")
    with pytest.raises(ConflictError, match="different labels"):
        campaigns.resolve("ann", found["id"], "malware")
    regroup()
    first, second = sorted(campaigns.list(), key=lambda each: -each["contents"])
    assert (first["id"], first["contents"], first["labels"]) == (found["id"], 8, {"malware": 2})
    assert (second["contents"], second["labels"]) == (4, {"goodware": 1})
    assert second["described"]["split_from"] == found["id"]
    regroup()
    assert max(campaigns.list(), key=lambda each: each["described"]["split_from"] or "")["id"] == second["id"]


def test_contested_contents_leave_it(engine, quarantine, campaigns, send, regroup):
    send(family(6))
    [found] = campaigns.list()
    [item, *_] = open_members(quarantine, found["id"])
    send(encode_again(engine, item["id"]), "copy")
    [copy] = [each for each in quarantine.claim("bob", 20).items if each["object_id"].startswith("copy")]
    quarantine.resolve("bob", copy["id"], "goodware")
    quarantine.release("bob")
    with pytest.raises(ConflictError, match="1 content had two labels"):
        campaigns.resolve("ann", found["id"], "malware")
    regroup()
    [shown] = campaigns.list()
    assert (shown["id"], shown["contents"], shown["opened"]) == (found["id"], 5, 2)


def encode_again(engine, item):
    [features] = scalars(engine, "SELECT features FROM payload WHERE id = :item", item=item)
    row = np.zeros((1, WIDTH))
    row[0, np.frombuffer(bytes(features)[1:], dtype="<i4")] = 1
    return row


def test_looks_count_for_one_labelling(engine, quarantine, campaigns, send):
    """Otherwise whoever sends objects near a campaign that has its label gets that label without a look."""
    send(family(30)[:20])
    [found] = campaigns.list()
    open_members(quarantine, found["id"])
    campaigns.resolve("ann", found["id"], "malware")
    assert campaigns.list() == []
    send(family(30)[20:], "new")
    [later] = campaigns.list()
    assert (later["id"], later["waiting"], later["contents"]) == (found["id"], 10, 30)
    assert (later["opened"], later["needed"], later["labels"]) == (0, 3, {"malware": 3})
    with pytest.raises(ConflictError, match="0 of 3"):
        campaigns.resolve("ann", found["id"], "malware")
    opened = open_members(quarantine, found["id"], who="bob")
    assert all(item["object_id"].startswith("new") for item in opened)
    assert campaigns.resolve("ann", found["id"], "malware")["items"] == 7


@pytest.mark.parametrize("how", ["unclear", "outside"])
def test_members_that_say_nothing_are_replaced_and_count_as_unlike(engine, quarantine, campaigns, send, how):
    send(family(9))
    [found] = campaigns.list()
    order = scalars(engine, "SELECT leader FROM content WHERE campaign IS NOT NULL ORDER BY place")
    if how == "unclear":
        open_members(quarantine, found["id"], "unclear", count=2)
    else:
        for item in (*order[:2], order[-1]):  # the last one is not drawn
            OutsideLabels(engine).add("box", "malware", "sandbox", item=item)
    assert (campaigns.list()[0]["opened"], campaigns.list()[0]["unlike"]) == (0, 2)
    open_members(quarantine, found["id"])
    [shown] = campaigns.list()
    assert (shown["opened"], shown["unlike"], shown["label"]) == (3, 2, "malware")
    assert shown["proves"] == (
        "3 drawn at random were malware, 2 were not. At worst 67% of all 9 members are not (95% sure)"
    )
    left = 4 if how == "unclear" else 3
    assert campaigns.resolve("ann", found["id"], "malware")["items"] == left
    assert campaigns.list() == []


def test_with_second_opinions_labels_count_once_two_analysts_agree(engine, send, regroup):
    opinions, campaigns = SecondOpinions(engine), CampaignLabels(engine, opinions=2)
    send(family(8), opinions=2)
    [found] = campaigns.list()
    items = open_members(opinions, found["id"])
    [shown] = campaigns.list()
    assert (shown["opened"], shown["labels"], shown["label"]) == (0, {}, None)
    for label in ("malware", "goodware"):  # whoever tries both must not learn which it is
        with pytest.raises(ConflictError, match="do not agree yet on the label of 3 members"):
            campaigns.resolve("bob", found["id"], label)
    opinions.claim("bob", 5, opinions=True)
    for item in items:
        opinions.resolve("bob", item["id"], "malware")
    assert campaigns.list()[0]["labels"] == {"malware": 3}
    assert campaigns.resolve("bob", found["id"], "malware")["items"] == 5
    assert opinions.claim("ann", 5, opinions=True).items == []


def test_what_a_first_label_is_shows_in_no_count(engine, send):
    opinions, campaigns = SecondOpinions(engine, labels=["unclear"]), CampaignLabels(engine, opinions=2)
    send(family(4), opinions=2)
    [found] = campaigns.list()
    told = []
    for label in ("unclear", "malware"):
        [item] = open_members(opinions, found["id"], label, count=1)
        [beside] = opinions.claim("bob", campaign=found["id"]).items
        told.append((campaigns.list(), beside["campaign"]))
        opinions.release("bob")
        opinions.undo("ann", item["id"])
    assert told[0] == told[1]
    [shown], beside = told[0]
    assert (shown["opened"], shown["unlike"], shown["needed"], beside["opened"]) == (0, 0, 3, 0)
    assert shown["missing"] == "analysts do not agree yet on the label of 1 member"
    [item] = open_members(opinions, found["id"], "unclear", count=1)
    opinions.take("bob", item["id"])
    opinions.resolve("bob", item["id"], "unclear")
    assert [(each["opened"], each["unlike"]) for each in campaigns.list()] == [(0, 1)]


def test_a_pass_writes_only_what_changed_and_waits_for_news(engine, quarantine, campaigns, send):
    send(np.vstack([family(6), family(6, 70)]))
    work = Grouping(engine)
    versions = """SELECT xmin::text || ' ' || id FROM campaign
    UNION SELECT xmin::text || encode(key, 'hex') FROM content"""
    before = set(scalars(engine, versions))
    assert not work.regroup()
    with engine.begin() as connection:
        connection.execute(text("UPDATE grouped SET seen = ''"))
    assert work.regroup()
    assert set(scalars(engine, versions)) == before
    open_members(quarantine, campaigns.list()[0]["id"], count=1)
    assert not work.regroup(300)
    assert work.regroup()
    delete(engine, ToDelete("sender", "sensor"), "root", "asked")
    assert work.regroup()
    assert scalars(engine, "SELECT id FROM campaign") == []
    assert scalars(engine, "SELECT key FROM content") == []


def test_a_pass_that_another_has_overtaken_writes_nothing(engine, campaigns, send, monkeypatch):
    send(family(6))
    [found] = campaigns.list()
    with engine.begin() as connection:
        connection.execute(text("UPDATE grouped SET seen = ''"))
        connection.execute(text("UPDATE content SET campaign = NULL"))
    slow = Grouping(engine)

    def overtaken(given):
        with engine.begin() as connection:
            connection.execute(text("UPDATE grouped SET started_at = now()"))
        return group_all(given)

    monkeypatch.setattr(gate_campaigns, "group_all", overtaken)
    assert slow.regroup()
    assert scalars(engine, "SELECT key FROM content WHERE campaign IS NOT NULL") == []
    assert scalars(engine, "SELECT id FROM campaign") == [found["id"]]


def test_one_of_several_processes_makes_a_pass(engine, send):
    send(family(6))
    with engine.begin() as connection:
        connection.execute(text("UPDATE grouped SET seen = '', started_at = now() - interval '1 hour'"))
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: Grouping(engine).regroup(300), range(4)))
    assert sorted(made) == [False, False, False, True]


def test_one_of_several_analysts_labels_it(engine, quarantine, campaigns, send):
    send(family(12))
    [found] = campaigns.list()
    items = open_members(quarantine, found["id"])

    def act(i):
        try:
            if i == 3:
                return quarantine.undo("ann", items[0]["id"])
            return campaigns.resolve(f"analyst{i}", found["id"], "malware")["items"]
        except ConflictError:
            return 0

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(act, [0, 1, 3, 2]))
    # Whoever came first, no inferred label stands whose source was undone.
    stands = """SELECT inferred.item FROM inferred JOIN item ON item.id = inferred.item AND item.state = 1
    WHERE inferred.label = (SELECT max(id) FROM label WHERE label.item = inferred.item)"""
    assert scalars(engine, stands) == []
    assert len(scalars(engine, "SELECT id FROM item WHERE state = 0")) == 10
    assert check(engine) == []


def test_many_contents_are_grouped_in_a_process_of_their_own(engine, campaigns, send, monkeypatch):
    send(np.vstack([family(6), family(5, 70)]))
    found = {each["id"] for each in campaigns.list()}
    with engine.begin() as connection:
        connection.execute(text("UPDATE content SET campaign = NULL"))
        connection.execute(text("UPDATE grouped SET seen = ''"))
    monkeypatch.setattr(gate_campaigns, "_FEW", 5)
    stopped = Grouping(engine)
    stopped.stop()
    assert stopped.regroup()
    assert scalars(engine, "SELECT key FROM content WHERE campaign IS NOT NULL") == []
    assert Grouping(engine).regroup()
    assert {each["id"] for each in campaigns.list()} == found
    assert scalars(engine, "SELECT seen <> '' FROM grouped") == [True]
    with engine.begin() as connection:
        connection.execute(text("UPDATE grouped SET seen = ''"))
    monkeypatch.setattr(gate_campaigns, "_RUN", "raise ValueError('no')")
    with pytest.raises(RuntimeError, match="the process ended with 1: ValueError: no"):
        Grouping(engine).regroup()


def test_campaigns_of_other_columns_have_other_ids():
    contents, nothing = encode(np.vstack([family(6), family(5, 70)])), [None] * 11
    given = GroupedContents(contents, [0] * 11, [0.1] * 11, nothing, nothing, None, [])
    one, other = group_all([given, given])
    assert [each.rows for each in one] == [[*range(6)], [*range(6, 11)]]
    assert [each.rows for each in other] == [each.rows for each in one]
    assert len({each.id for each in [*one, *other]}) == 4


def test_inferred_labels_say_so_in_events_and_exports(engine, quarantine, campaigns, send):
    begin = Cursor()
    while (last := Events(engine).after(begin).last) != begin:
        begin = last
    send(np.vstack([family(6), family(1)]))
    [found] = campaigns.list()
    open_members(quarantine, found["id"])
    campaigns.resolve("ann", found["id"], "malware", reason="packer")
    told = [each for each in Events(engine).after(begin).events if each["type"] == "labelled"]
    how = [each["data"].get("inferred") for each in told]
    assert (how.count(None), len(how)) == (3, 7)
    assert "campaign" in how
    each = next(each for each in told if each["data"].get("inferred") == "campaign")
    assert each["data"]["reason"] == "packer"
    assert json.loads(findings.as_ecs(each))["message"].startswith(
        "Labelled by inference from other objects (campaign): object "
    )
    for inferred, n in ((False, 3), (True, 7)):
        file = io.BytesIO()
        assert export_labelled(engine, file, inferred=inferred) == n
    assert set(pq.read_table(file)["gate_inferred"].to_pylist()) >= {None, "campaign"}


def test_over_http_and_from_the_command_line(start_gate, own_engine, monkeypatch):
    keep(
        own_engine,
        [rows(own_engine, [0.1], f"o{i}-", features=row)[0] for i, row in enumerate(encode(family(7)))],
    )
    Contents(own_engine, b"secret").add_new()
    assert Grouping(own_engine).regroup()
    gate = start_gate()
    ann, bob, root = (
        gate.client("ann", "analyst"),
        gate.client("bob", "analyst"),
        gate.client("root", "operator"),
    )
    [found] = ann.campaigns()
    with pytest.raises(GateError, match="0 of 3 are opened") as refused:
        ann.resolve_campaign(found["id"], "malware")
    assert refused.value.status == 409
    claimed = ann.claim(campaign=found["id"])["items"]
    assert [item["campaign"]["needed"] for item in claimed] == [3, 3, 3]
    for item in claimed:
        ann.resolve(item["id"], "malware")
    assert ann.resolve_campaign(found["id"], "malware", reason="packer")["items"] == 4
    assert ann.counts()["in_campaigns"] == 0
    assert len(read_labelled(io.BytesIO(root.labelled())).y) == 3
    assert len(read_labelled(io.BytesIO(root.labelled(inferred=True))).y) == 7
    with pytest.raises(GateError, match="only its author"):
        bob.undo_campaign(found["id"])
    assert root.undo_campaign(found["id"])["items"] == 4
    for campaign in ("0" * 12, "../quarantine", "x"):
        with pytest.raises(GateError) as refused:
            ann.claim(campaign=campaign)
        assert refused.value.status in (404, 422)
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", gate.database)
    shown = CliRunner().invoke(app, ["gate", "campaigns"])
    assert (
        f"campaign   {found['id']}\nwaiting    4 items, copies among them\n"
        "contents   7: items with the same features are one content\nopened     3 of 3 (malware: 3)"
        in shown.output
    )
    listed = json.loads(CliRunner().invoke(app, ["gate", "campaigns", "--json"]).output)["campaigns"]
    assert [each["label"] for each in listed] == ["malware"]


def test_a_copy_is_shown_and_taught_once_its_label_is_agreed_on(engine, send):
    opinions = SecondOpinions(engine)
    send(np.repeat(family(1), 3, axis=0), opinions=2)
    [item] = opinions.claim("ann").items
    opinions.resolve("ann", item["id"], "malware")
    copy = scalars(engine, "SELECT min(item) FROM inferred")[0]
    assert opinions.show(copy, "bob")["history"] == []
    assert export_labelled(engine, io.BytesIO(), opinions=2, inferred=True) == 0
    opinions.claim("bob", opinions=True)
    opinions.resolve("bob", item["id"], "malware")
    assert [each["label"] for each in opinions.show(copy, "cid")["history"]] == ["malware"]
    assert export_labelled(engine, io.BytesIO(), opinions=2, inferred=True) == 3
    opinions.undo("bob", item["id"])
    assert opinions.show(copy, "cid")["history"] == []
    delete(engine, ToDelete("object", item["object_id"]), "root", "asked")
    assert len(opinions.show(copy, "cid")["history"]) == 1  # nobody can be asked any more


def test_an_opinion_that_is_undone_takes_back_what_followed_from_it(engine, send):
    opinions, campaigns = SecondOpinions(engine), CampaignLabels(engine, opinions=2)
    send(np.vstack([family(8), family(1)]), opinions=2)
    [found] = campaigns.list()
    items = open_members(opinions, found["id"])
    opinions.claim("bob", 5, opinions=True)
    for item in items:
        opinions.resolve("bob", item["id"], "malware")
    campaigns.resolve("ann", found["id"], "malware")
    kept = scalars(engine, "SELECT count(*) FROM inferred WHERE how = 'copy'")[0] + len(items)
    opinions.undo("bob", items[0]["id"])
    assert len(scalars(engine, "SELECT id FROM item WHERE state = 1")) == kept
    assert campaigns.list()[0]["missing"].startswith("analysts do not agree yet")
    assert check(engine) == []
