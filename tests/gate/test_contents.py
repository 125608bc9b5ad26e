"""Objects with the same features: one of them waits in the queue, and the others get its label."""

import io
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Semaphore

import numpy as np
import pyarrow.parquet as pq
import pytest
from sqlalchemy import event, text

from tests.gate.test_quarantine import rows
from transcendent.cli.app import app
from transcendent.gate import contents as contents_module
from transcendent.gate import wire
from transcendent.gate.check import check
from transcendent.gate.contents import Contents
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.export import export_labelled
from transcendent.gate.features import encode
from transcendent.gate.intake import AUDITED, COPY, REJECTED, keep
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.repeating import Repeated

SAME, OTHER = encode(np.array([[1.0, 0, 1], [0, 1, 1]]))


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine, labels=["unclear"])


@pytest.fixture
def contents(engine):
    return Contents(engine, b"secret")


@pytest.fixture
def send(engine, contents):
    """A function that keeps n objects with the same features, and finds their contents."""

    def keep_them(n, prefix="o", features=SAME, *, find=True, **given):
        keep(engine, rows(engine, [0.1] * n, prefix, features=features, **given))
        if find:
            contents.add_new()
        assert check(engine) == []

    return keep_them


def states(engine):
    """The tier and state of every item by object."""
    sql = "SELECT object_id, tier, state FROM item JOIN payload USING (id) ORDER BY id"
    with engine.connect() as connection:
        return {name: (tier, state) for name, tier, state in connection.execute(text(sql))}


def labels_of(quarantine, name):
    [found] = quarantine.find(name)
    history = quarantine.show(found["item"])["history"]
    return [(each["action"], each["label"], each["author"], each["inferred"]) for each in history]


def label_next(quarantine, label="malware", who="ann"):
    [item] = quarantine.claim(who).items
    quarantine.resolve(who, item["id"], label)
    return item


def test_it_is_shown_that_a_label_was_inferred_and_from_what(
    engine, shared_database, quarantine, send, monkeypatch, capsys
):
    send(2)
    first = label_next(quarantine)["id"]
    [labelled], [copy] = quarantine.find("o0"), quarantine.find("o1")
    assert (labelled["inferred"], labelled["inferred_from"]) == (None, None)
    assert (copy["inferred"], copy["inferred_from"]) == ("copy", [first])
    assert wire.KeptObject(**copy).inferred_from == [first]
    [own] = quarantine.find("o1", sender="sensor")  # who learns no numbers of items
    assert (own["inferred"], own["item"], own["inferred_from"]) == ("copy", None, None)
    [action] = quarantine.show(copy["item"])["history"]
    assert wire.Action(**action).inferred_from == [first]
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", shared_database)
    with pytest.raises(SystemExit):
        app(["gate", "quarantine", "show", str(copy["item"])])
    assert f"ann: label malware (inferred: copy of item {first})" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        app(["gate", "quarantine", "show"])
    assert "in campaigns  0 contents" in capsys.readouterr().out


def test_copies_are_one_row_of_the_queue(engine, quarantine, send):
    send(5)
    send(1, "p", OTHER)
    send(3, "q")
    first, second = quarantine.claim("ann", 10).items
    assert {first["object_id"]: first["copies"], second["object_id"]: second["copies"]} == {"o0": 7, "p0": 0}
    counted = quarantine.counts()
    assert (counted["waiting"], counted["rejected"], counted["copies"]) == (9, 2, 7)
    assert quarantine.claim("bob", 10).items == []


def test_they_are_labelled_once_and_undone_once(engine, quarantine, send):
    send(4)
    item = label_next(quarantine)
    assert {state for _, state in states(engine).values()} == {1}
    assert labels_of(quarantine, "o0") == [("label", "malware", "ann", None)]
    assert labels_of(quarantine, "o3") == [("label", "malware", "ann", "copy")]
    quarantine.undo("ann", item["id"])
    assert states(engine) == {"o0": (REJECTED, 0), **dict.fromkeys(["o1", "o2", "o3"], (COPY, 0))}
    assert labels_of(quarantine, "o3")[1:] == [("undo", None, "ann", None)]
    label_next(quarantine, "goodware", "bob")
    assert labels_of(quarantine, "o3")[2:] == [("label", "goodware", "bob", "copy")]
    assert check(engine) == []


@pytest.mark.parametrize("act", ["label", "undo"])
def test_a_label_while_the_content_is_being_found(engine, quarantine, contents, send, act):
    send(2, find=False)
    [item] = quarantine.claim("ann").items
    acts = [lambda: quarantine.resolve("ann", item["id"], "malware")]
    if act == "undo":
        acts[0]()
        acts = [lambda: quarantine.undo("ann", item["id"])]
    done = []

    def meanwhile(connection, cursor, statement, *_):
        if "SET leader" in statement and acts:
            done.append(pool.submit(acts.pop()))
            wait(done, timeout=1)

    with ThreadPoolExecutor(1) as pool:
        event.listen(engine, "before_cursor_execute", meanwhile)
        contents.add_new()
        event.remove(engine, "before_cursor_execute", meanwhile)
        [each.result() for each in done]
    assert len(done) == 1
    assert check(engine) == []
    assert {state for _, state in states(engine).values()} == ({1} if act == "label" else {0})


def test_one_copy_can_be_undone_alone(engine, quarantine, send):
    send(3)
    label_next(quarantine)
    [copy] = quarantine.find("o2")
    quarantine.undo("ann", copy["item"])
    assert states(engine)["o2"] == (REJECTED, 0)
    item = label_next(quarantine, "malware")
    assert item["object_id"] == "o2"
    [leader] = quarantine.find("o0")
    quarantine.undo("ann", leader["item"])
    assert states(engine) == {"o0": (REJECTED, 0), "o1": (COPY, 0), "o2": (REJECTED, 1)}


def test_what_follows_from_contested_content_is_taken_back(engine, quarantine, send):
    send(4)
    label_next(quarantine, "malware")
    [copy] = quarantine.find("o2")
    quarantine.undo("ann", copy["item"])
    label_next(quarantine, "goodware", "bob")
    assert states(engine) == {
        "o0": (REJECTED, 1),
        "o1": (REJECTED, 0),
        "o2": (REJECTED, 1),
        "o3": (REJECTED, 0),
    }
    assert labels_of(quarantine, "o3")[-1] == ("undo", None, "bob", None)
    assert check(engine) == []


def test_contested_content_has_no_copies(engine, quarantine, send):
    send(1)
    label_next(quarantine, "malware")
    send(3, "p")
    assert label_next(quarantine, "goodware")["copies"] == 2
    assert states(engine)["p1"] == states(engine)["p2"] == (REJECTED, 0)
    send(2, "q")
    assert states(engine)["q0"] == states(engine)["q1"] == (REJECTED, 0)


def test_a_corrected_label_is_not_contested(engine, quarantine, send):
    send(2)
    item = label_next(quarantine, "malware")
    quarantine.undo("ann", item["id"])
    label_next(quarantine, "goodware")
    assert labels_of(quarantine, "o1")[-1][1] == "goodware"


def test_unclear_is_passed_on_and_contests_nothing(engine, quarantine, send):
    send(2)
    label_next(quarantine, "unclear")
    assert labels_of(quarantine, "o1") == [("label", "unclear", "ann", "copy")]
    send(2, "p")
    label_next(quarantine, "malware")
    assert labels_of(quarantine, "p1") == [("label", "malware", "ann", "copy")]


def test_the_audit_has_no_copies(engine, quarantine, send):
    send(2, tier=AUDITED, accepted=True, probability=0.5)
    send(2, "p")
    assert states(engine) == {
        **dict.fromkeys(["o0", "o1"], (AUDITED, 0)),
        "p0": (REJECTED, 0),
        "p1": (COPY, 0),
    }
    assert label_next(quarantine)["object_id"] == "o0"
    assert states(engine)["p1"] == (COPY, 0)


def test_held_items_stay_where_they_are(engine, quarantine, send):
    send(3, find=False)
    held = quarantine.claim("ann", 2).items
    send(0)
    assert states(engine) == {"o0": (REJECTED, 0), "o1": (REJECTED, 0), "o2": (COPY, 0)}
    quarantine.resolve("ann", held[1]["id"], "malware")
    assert states(engine)["o0"] == (REJECTED, 0)
    assert states(engine)["o2"] == (COPY, 1)


def test_labels_from_before_contents_are_remembered(engine, quarantine, send):
    send(1, find=False)
    label_next(quarantine, "malware")
    send(2, "p")
    label_next(quarantine, "goodware")
    assert states(engine)["p1"] == (REJECTED, 0)  # contested


@pytest.mark.parametrize("way", ["deleted", "closed", "raced"])
def test_a_copy_leads_when_its_leader_is_gone(engine, quarantine, contents, send, way):
    send(3)
    if way == "deleted":
        delete(engine, ToDelete("object", "o0"), "root", "asked")
    else:
        with engine.begin() as connection:
            sql = "UPDATE item SET state = :state WHERE id = (SELECT min(id) FROM item)"
            connection.execute(text(sql), {"state": 2 if way == "closed" else 1})
    assert quarantine.claim("ann").items == []
    assert (contents.repair(), contents.repair()) == (1, 0)
    found = states(engine)
    assert (found["o1"], found["o2"]) == ((REJECTED, 0), (COPY, 0))
    label_next(quarantine)
    assert labels_of(quarantine, "o2") == [("label", "malware", "ann", "copy")]


def test_deletion_leaves_no_key(engine, send):
    send(2)
    delete(engine, ToDelete("object", "o0"), "root", "asked")
    count = "SELECT (SELECT count(*) FROM content), (SELECT count(*) FROM item_content)"
    with engine.connect() as connection:
        assert connection.execute(text(count)).one() == (1, 1)
    delete(engine, ToDelete("sender", "sensor"), "root", "asked")
    with engine.connect() as connection:
        assert connection.execute(text(count)).one() == (0, 0)


def test_copies_are_exported_only_on_request(engine, quarantine, send):
    send(3)
    label_next(quarantine)

    def exported(**given):
        file = io.BytesIO()
        export_labelled(engine, file, **given)
        return pq.read_table(file).to_pydict()

    assert exported()["gate_id"] == ["o0"]
    both = exported(inferred=True)
    assert (both["gate_id"], both["gate_inferred"]) == (["o0", "o1", "o2"], [None, "copy", "copy"])


def test_nobody_is_asked_for_an_opinion_on_a_copy(engine, send):
    send(3)
    opinions = SecondOpinions(engine)
    label_next(opinions)
    [wanted] = opinions.claim("bob", 5, opinions=True).items
    assert wanted["object_id"] == "o0"


def test_several_processes_find_each_content_once(engine, send):
    for part in range(6):
        send(40, f"p{part}-", [SAME, OTHER][part % 2], find=False)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Contents(engine, b"secret").add_new(), range(8)))
    tiers = [tier for tier, _ in states(engine).values()]
    assert (tiers.count(REJECTED), tiers.count(COPY)) == (2, 238)
    assert check(engine) == []


def test_late_commits_are_found_and_old_items_are_not_read_again(engine, contents, send):
    skip = "SELECT setval('item_number', nextval('item_number') + 1000)"
    with engine.begin() as connection:
        connection.execute(text(skip))
    send(1)
    keep(engine, rows(engine, [0.1], "late"))
    with engine.begin() as connection:  # a lower number that is committed later
        for table in ("item", "payload"):
            connection.execute(
                text(f"UPDATE {table} SET id = id - 500 WHERE id = (SELECT max(id) FROM {table})")
            )
    assert contents.add_new() == 1
    known = "SELECT before - (SELECT max(id) FROM item) FROM contents_known"
    with engine.begin() as connection:
        assert connection.execute(text(known)).scalar_one() < -500
        connection.execute(text("UPDATE item SET received_at = now() - interval '6 minutes'"))
    assert contents.add_new() == 0
    with engine.connect() as connection:
        assert connection.execute(text(known)).scalar_one() == 0


def test_a_backlog_does_not_keep_the_gate_from_stopping(engine, contents, send, monkeypatch):
    monkeypatch.setattr(contents_module, "_AT_ONCE", 2)
    monkeypatch.setattr(contents_module, "_LONGEST", 0.0)
    send(5, find=False)
    known = text("SELECT count(*) FROM item_content")
    for n in (2, 4):
        assert contents.work()
        with engine.connect() as connection:
            assert connection.execute(known).scalar_one() == n
    monkeypatch.setattr(contents_module, "_LONGEST", 60.0)
    assert not contents.work()
    assert states(engine) == {"o0": (REJECTED, 0), **{f"o{i}": (COPY, 0) for i in range(1, 5)}}


def test_work_of_which_there_is_more_is_repeated_without_a_pause():
    done, more = Semaphore(0), iter([True, True, False])

    def work():
        done.release()
        return next(more)

    repeated = Repeated("work", 600, work)
    assert all(done.acquire(timeout=60) for _ in range(3))
    assert not done.acquire(timeout=0.2)
    repeated.close()
