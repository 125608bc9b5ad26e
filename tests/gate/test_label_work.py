"""Labels of many copies: the first at once, the others in the background, each once, and all undone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import text

from tests.gate import test_campaigns as tc
from tests.gate.test_contents import label_next, labels_of, states
from tests.gate.test_quarantine import rows
from transcendent.gate import label_work
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.campaigns import Grouping
from transcendent.gate.check import check
from transcendent.gate.contents import Contents
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.features import encode
from transcendent.gate.intake import COPY, REJECTED, keep
from transcendent.gate.quarantine import Quarantine

FEW = 3


@pytest.fixture
def quarantine(engine, monkeypatch):
    monkeypatch.setattr(label_work, "AT_ONCE", FEW)
    return Quarantine(engine, labels=["unclear"])


@pytest.fixture
def contents(engine):
    return Contents(engine, b"secret")


@pytest.fixture
def send(engine, contents):
    def keep_them(n, prefix="o"):
        keep(engine, rows(engine, [0.1] * n, prefix, features=encode(np.array([[1.0, 0, 1]]))[0]))
        contents.add_new()

    return keep_them


def labelled(engine):
    return sum(state for _, state in states(engine).values())


def work_left(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM label_work")).scalar_one()


def copy_of(engine):
    """The oldest copy that has a label."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT min(item) FROM inferred")).scalar_one()


def test_a_request_labels_few_copies_and_offers_no_others(engine, quarantine, contents, send):
    send(20)
    label_next(quarantine)
    assert labelled(engine) == 1 + FEW
    counted = quarantine.counts()
    assert {name: counted[name] for name in ("waiting", "copies", "labelled")} == {
        "waiting": 0,
        "copies": 0,
        "labelled": 20,
    }
    assert contents.repair() == 0
    assert quarantine.claim("bob", 5).items == []
    assert check(engine) == []
    contents.work()
    assert (labelled(engine), work_left(engine)) == (20, 0)
    assert labels_of(quarantine, "o7") == [("label", "malware", "ann", "copy")]
    assert check(engine) == []


def test_what_comes_later_is_not_among_the_copies(engine, quarantine, contents, send):
    send(20)
    label_next(quarantine)
    send(3, "later")
    [item] = quarantine.claim("bob", 5).items
    assert (item["object_id"], item["copies"]) == ("later0", 2)
    contents.work()
    assert labelled(engine) == 20
    assert states(engine)["later2"] == (COPY, 0)


def test_few_copies_among_many_labelled_items_are_found(engine, quarantine, contents, send):
    send(20)
    label_next(quarantine)
    contents.work()
    quarantine.undo("ann", copy_of(engine))
    label_next(quarantine)
    contents.work()
    assert (labelled(engine), work_left(engine)) == (20, 0)


def test_undo_takes_back_what_was_labelled_and_what_would_be(engine, quarantine, contents, send):
    send(20)
    item = label_next(quarantine)
    quarantine.undo("ann", item["id"])
    contents.work()
    assert (labelled(engine), work_left(engine)) == (0, 0)
    label_next(quarantine)
    contents.work()
    quarantine.undo("ann", item["id"])
    assert labelled(engine) == 19 - FEW
    assert contents.repair() == 0
    contents.work()
    assert states(engine)["o0"] == (REJECTED, 0)
    assert {states(engine)[f"o{n}"] for n in range(1, 20)} == {(COPY, 0)}
    assert check(engine) == []


def test_a_label_waits_for_the_undo_before_it(engine, quarantine, contents, send):
    send(20)
    item = label_next(quarantine)
    contents.work()
    quarantine.undo("ann", item["id"])
    label_next(quarantine, "goodware", "bob")
    contents.work()
    for n in range(1, 20):
        said = labels_of(quarantine, f"o{n}")
        assert [each[:2] for each in said] == [("label", "malware"), ("undo", None), ("label", "goodware")]
    assert check(engine) == []


def test_deletion_leaves_no_work(engine, quarantine, send):
    send(20)
    label_next(quarantine)
    assert work_left(engine) == 1
    delete(engine, ToDelete("sender", "sensor"), "root", "asked")
    assert work_left(engine) == 0


def test_work_that_was_interrupted_is_done_once(engine, quarantine, contents, send, monkeypatch):
    send(20)
    label_next(quarantine)
    change, calls = label_work._change, []

    def interrupted(*given):
        calls.append(change(*given))
        if len(calls) == 2:
            raise RuntimeError("killed")
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(label_work, "_change", interrupted)
        with pytest.raises(RuntimeError, match="killed"):
            contents.work()
    assert labelled(engine) == 1 + 2 * FEW
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: label_work.go_on(engine, 5), range(3)))
    contents.work()
    assert {len(labels_of(quarantine, f"o{n}")) for n in range(20)} == {1}
    assert labelled(engine) == 20


@pytest.mark.parametrize("finish", [False, True])
def test_contested_content_waits_one_by_one(engine, quarantine, contents, send, finish):
    send(20)
    label_next(quarantine)
    if finish:
        contents.work()
    quarantine.undo("ann", copy_of(engine))
    other = label_next(quarantine, "goodware", "bob")
    contents.work()
    found = states(engine)
    assert (found.pop("o0"), found.pop(other["object_id"])) == ((REJECTED, 1), (REJECTED, 1))
    assert set(found.values()) == {(REJECTED, 0)}
    assert check(engine) == []


def test_copies_of_campaigns_follow_soon(engine, quarantine, contents):
    X = np.vstack([tc.family(6), np.repeat(tc.family(6)[4:], 10, axis=0)])
    keep(engine, [rows(engine, [0.1], f"o{i}-", features=each)[0] for i, each in enumerate(encode(X))])
    contents.add_new()
    Grouping(engine).regroup()
    campaigns = CampaignLabels(engine)
    [found] = campaigns.list()
    tc.open_members(quarantine, found["id"])
    contents.work()
    waiting = campaigns.list()[0]["waiting"]
    done = campaigns.resolve("ann", found["id"], "malware", reason="packer", note="all")
    assert (done["items"], campaigns.list()) == (waiting, [])
    assert labelled(engine) < len(X)
    assert quarantine.counts()["waiting"] == 0
    contents.work()
    assert labelled(engine) == len(X)
    last = max(tc.scalars(engine, "SELECT item FROM inferred WHERE how = 'campaign'"))
    said = quarantine.show(last)["history"][-1]
    assert (said["author"], said["reason"], said["note"]) == ("ann", "packer", "all")
    assert campaigns.undo("ann", found["id"])["items"] == waiting
    contents.work()
    assert labelled(engine) == len(X) - waiting
    assert check(engine) == []
