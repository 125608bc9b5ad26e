"""What follows from labels: it reaches nothing that it must not reach, and goes when its basis goes."""

import threading

import numpy as np
import pytest
from sqlalchemy import event, text

from tests.gate import test_campaigns as tc
from tests.gate.test_contents import labels_of, states
from tests.gate.test_quarantine import rows
from tests.gate.test_settling import APP, MODEL, NEAR, SCORES, WIDTH, item_of
from transcendent.gate import deletion
from transcendent.gate import settling as settling_module
from transcendent.gate.campaign_labels import CampaignLabels
from transcendent.gate.campaigns import Grouping
from transcendent.gate.contents import Contents
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.features import encode
from transcendent.gate.intake import keep, register
from transcendent.gate.model import Model
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.retention import sweep
from transcendent.gate.settling import Settling
from transcendent.gate.suggesting import Suggesting
from transcendent.tables.layout import Layout


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine, labels=["unclear"])


def put(engine, name, encoded=APP, n=1, model=MODEL, **given):
    number = register(engine, model)
    keep(engine, rows(engine, [0.1] * n, name, features=encoded, model=number, **given))


def find(engine):
    Contents(engine, b"secret").add_new()
    Suggesting(engine).compare()


def run(engine, sql, **given):
    with engine.begin() as connection:
        done = connection.execute(text(sql), given)
        return done.all() if done.returns_rows else done.rowcount


def label(quarantine, name, said, who="ann"):
    item = item_of(quarantine, name)
    run(
        quarantine._engine,
        "UPDATE item SET holder=:w, held_until=now()+interval '1 hour' WHERE id=:i",
        w=who,
        i=item,
    )
    return quarantine.resolve(who, item, said)


def put_near_a_case(engine, quarantine):
    """A case of malware, and five objects with the same features near it."""
    put(engine, "case")
    find(engine)
    label(quarantine, "case0", "malware")
    put(engine, "near", NEAR, n=5)
    find(engine)


def settle(engine, monkeypatch, within=0.0, negative=("goodware",), **given):
    monkeypatch.setattr(settling_module, "LOOK", 1e-12)
    Suggesting(engine).compare()
    return Settling(engine, within, list(negative), 0.01, b"s", **given).settle()


def test_two_labels_from_before_contents_were_known_are_contested(engine, quarantine, monkeypatch):
    """A vector that ever had two labels never settles."""
    put(engine, "a")
    put(engine, "b")
    label(quarantine, "a0", "malware")
    label(quarantine, "b0", "goodware", "bob")
    find(engine)
    put(engine, "new")
    find(engine)
    assert settle(engine, monkeypatch) == 0
    assert run(engine, "SELECT contested FROM content") == [(True,)]


def test_one_label_before_and_one_after(engine, quarantine, monkeypatch):
    put(engine, "a")
    find(engine)
    put(engine, "b")
    label(quarantine, "a0", "malware")
    label(quarantine, "b0", "goodware", "bob")  # within the seconds before its content is known
    find(engine)
    assert run(engine, "SELECT contested FROM content") == [(True,)]


def test_undoing_one_label_does_not_forget_the_other(engine, quarantine, monkeypatch):
    put(engine, "a")
    find(engine)
    label(quarantine, "a0", "malware")
    put(engine, "b")
    find(engine)
    label(quarantine, "b0", "malware", "bob")
    quarantine.undo("bob", item_of(quarantine, "b0"))
    # a0 still is malware, so its content is a case
    [case] = run(engine, "SELECT label FROM content")
    kept = case[0]
    label(quarantine, "b0", "goodware", "bob")
    [(contested,)] = run(engine, "SELECT contested FROM content")
    put(engine, "c")
    find(engine)
    n = settle(engine, monkeypatch)
    assert (kept, contested, n) == ("malware", True, 0)


OTHER_CLASSES = Model(None, "9" * 64, Layout(WIDTH), ["goodware", "malware", "adware"], {})


def test_labels_of_another_models_classes_do_not_reach_copies(engine, quarantine):
    put(engine, "o", n=3)
    find(engine)
    number = register(engine, OTHER_CLASSES)
    keep(engine, rows(engine, [0.1], "o", features=APP, model=number))  # o0 is decided again
    find(engine)
    label(quarantine, "o0", "adware")
    assert {
        row[0]
        for row in run(engine, "SELECT label.label FROM label JOIN inferred ON inferred.label = label.id")
    } <= {"goodware", "malware"}


def test_after_another_model_copies_are_one_row_again(engine, quarantine):
    put(engine, "o", n=6)
    find(engine)
    same = Model(None, "8" * 64, Layout(WIDTH), ["goodware", "malware"], {})
    keep(engine, rows(engine, [0.1] * 6, "o", features=APP, model=register(engine, same)))
    find(engine)
    assert len(quarantine.claim("ann", 10).items) == 1


def between(monkeypatch, constant, act):
    """Run `act` just before a statement of Contents."""
    original = Contents._add_some

    def patched(self):
        done = []

        def before(conn, cursor, statement, *_):
            if not done and constant in statement:
                thread = threading.Thread(target=act)
                done.append(thread)
                thread.start()
                thread.join(2)  # it may have to wait for this transaction

        event.listen(self._engine, "before_cursor_execute", before)
        try:
            return original(self)
        finally:
            event.remove(self._engine, "before_cursor_execute", before)
            for thread in done:
                thread.join()

    monkeypatch.setattr(Contents, "_add_some", patched)


def test_a_copy_is_not_lost_if_its_leader_is_deleted_meanwhile(engine, quarantine, monkeypatch):
    put(engine, "a")
    find(engine)
    put(engine, "b")
    between(
        monkeypatch,
        "UPDATE contents_known",
        lambda: delete(engine, ToDelete("object", "a0"), "root", "asked"),
    )
    find(engine)
    Contents(engine, b"secret").repair()
    assert [each["object_id"] for each in quarantine.claim("ann", 5).items] == ["b0"]


def test_a_deleted_object_leaves_no_key(engine, quarantine, monkeypatch):
    put(engine, "a")
    between(
        monkeypatch, "INSERT INTO content", lambda: delete(engine, ToDelete("object", "a0"), "root", "asked")
    )
    find(engine)
    sweep(engine)
    assert run(engine, "SELECT key FROM content") == []
    assert run(engine, "SELECT key FROM item_content") == []


def test_a_skipped_look_is_not_labelled_with_a_campaign(engine, quarantine, monkeypatch):
    X = tc.family(8)
    keep(engine, [rows(engine, [0.1], f"o{i}-", features=each)[0] for i, each in enumerate(encode(X))])
    Contents(engine, b"secret").add_new()
    run(engine, "UPDATE grouped SET seen=''")
    assert Grouping(engine).regroup()
    campaigns = CampaignLabels(engine)
    [found] = campaigns.list()
    order = [row[0] for row in run(engine, "SELECT leader FROM content ORDER BY place")]
    look = order[-1]
    run(engine, "INSERT INTO settled_look (item,label,distance,draw) VALUES (:i,'malware',0.05,0.5)", i=look)
    run(engine, "UPDATE item SET tier=0, rank=1.5 WHERE id=:i", i=look)
    [item] = quarantine.claim("ann", 1).items
    assert item["id"] == look
    quarantine.skip("ann", look)
    tc.open_members(quarantine, found["id"], who="bob")
    campaigns.resolve("bob", found["id"], "malware")
    assert run(engine, "SELECT state FROM item WHERE id=:i", i=look) == [(0,)]


def test_copies_are_not_settled_while_somebody_looks_at_their_leader(engine, quarantine, monkeypatch):
    put_near_a_case(engine, quarantine)
    [item] = quarantine.claim("bob", 1).items
    assert item["copies"] == 4
    settle(engine, monkeypatch, 0.1)
    quarantine.resolve("bob", item["id"], "goodware")
    said = {labels_of(quarantine, f"near{i}")[-1][1] for i in range(5)}
    assert said == {"goodware"}


def test_a_persons_label_corrects_what_was_settled_for_the_same_content(engine, quarantine, monkeypatch):
    put_near_a_case(engine, quarantine)
    settle(engine, monkeypatch, 0.1)
    quarantine.undo("root", item_of(quarantine, "near0"), anyone=True)
    label(quarantine, "near0", "goodware", "bob")
    said = {labels_of(quarantine, f"near{i}")[-1][1] for i in range(1, 5)}
    assert "malware" not in said


def test_one_opinion_of_two_settles_nothing(engine, monkeypatch):
    opinions = SecondOpinions(engine)
    put(engine, "case")
    find(engine)
    label(opinions, "case0", "goodware")
    put(engine, "b")
    find(engine)
    assert settle(engine, monkeypatch, opinions=2) == 0
    [again] = opinions.claim("bob", opinions=True).items
    opinions.resolve("bob", again["id"], "goodware")
    assert settle(engine, monkeypatch, opinions=2) == 1


def test_equal_scores_are_not_equal_objects(engine, quarantine):
    encoded = encode(np.array([[0.4, 0.6]]))[0]
    put(engine, "s", encoded, model=SCORES, n=3, shown='{"a": 1}')
    find(engine)
    label(quarantine, "s0", "malware")
    assert {state for _, state in list(states(engine).values())[1:]} == {0}


def test_a_pass_during_a_deletion_is_not_the_last(engine, quarantine, monkeypatch):
    X = tc.family(6)
    keep(
        engine,
        [
            rows(engine, [0.1], f"o{i}-", features=each, sender="x" if i < 3 else "y")[0]
            for i, each in enumerate(encode(X))
        ],
    )
    Contents(engine, b"secret").add_new()
    assert Grouping(engine).regroup()
    before = deletion._delete

    def late(connection, ids, deletion):
        run(engine, "UPDATE grouped SET started_at = now() - interval '1 hour'")
        Grouping(engine).regroup()  # a pass between the row of a deletion and its first step
        return before(connection, ids, deletion)

    monkeypatch.setattr(deletion, "_delete", late)
    delete(engine, ToDelete("sender", "x"), "root", "asked")
    Grouping(engine).regroup()
    [(described,)] = run(engine, "SELECT described FROM campaign")
    assert described["n_contents"] == 3
