"""Deletion: after it, nothing in the database speaks of the object."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import text

from tests.gate.receiver import Receiver
from tests.gate.test_commands import given, run  # noqa: F401
from tests.gate.test_database import move
from tests.gate.test_webhooks import SECRET, target_of
from transcendent._utils.dates import as_moment
from transcendent.gate import deletion
from transcendent.gate.check import check
from transcendent.gate.database import drop_months, month_of
from transcendent.gate.deletion import ToDelete, declare_fields, delete, find
from transcendent.gate.events import Cursor, Events
from transcendent.gate.export import export_labelled, read_labelled
from transcendent.gate.features import encode
from transcendent.gate.intake import Draw, _key, keep, register, to_keep
from transcendent.gate.model import Model
from transcendent.gate.origin import Origin, read_context
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import ConflictError, NoItemError, Quarantine
from transcendent.gate.webhooks import Webhook
from transcendent.tables.layout import Layout


class Sent(NamedTuple):
    """An object, and all by which a dump could give it away."""

    name: str
    sender: str
    row: object
    context: dict

    @property
    def traces(self):
        features = encode(self.row[None])[0]
        key = _key(self.sender, self.name, features).hex()
        return [self.name, features.hex(), key, *map(str, self.context.values())]


@pytest.fixture
def send(engine, rejector):
    """A function that keeps objects as a gate does, under a model with a digest."""

    def store(*objects, digest="d"):
        model = Model(rejector, digest * 64, Layout(12), rejector.classes_.tolist(), {})
        for each in objects:
            origins = {0: Origin(read_context(each.context), as_moment("2026-01-01"))}
            number, row = register(engine, model), each.row[None]
            about = [each.name], [each.sender], row, rejector.decide(row)
            keep(engine, list(to_keep(number, Draw(b"", 0), *about, origins=origins).values()))

    return store


@pytest.fixture
def objects(rejector, problem):
    """Six rejected objects of three senders, with one context for each two."""
    X = problem[0][1000:1200]
    rows = X[rejector.decide(X).rejected][:6]
    return [
        Sent(
            f"object-{i:03}-name", f"probe-{i % 3}", row, {"host": f"host-{i // 2}-a", "file": f"file-{i}-b"}
        )
        for i, row in enumerate(rows)
    ]


def dump(engine):
    """The whole database as text."""
    program = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"))[-1]
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return subprocess.run([program, "--inserts", url], check=True, capture_output=True, text=True).stdout


def traces_in(content, objects):
    return [trace for each in objects for trace in each.traces if trace in content]


def rows_of(engine, sql, **values):
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql), values)]


def ids_left(engine):
    return [row[0] for row in rows_of(engine, "SELECT id FROM item UNION SELECT id FROM example")]


def label_all(engine):
    """Label what waits, with notes and reasons that quote the objects."""
    quarantine, outside = Quarantine(engine), OutsideLabels(engine)
    for item in quarantine.claim("ann", 100).items:
        quarantine.skip("ann", item["id"], reason=item["object_id"], note=f"later: {item['object_id']}")
    for item in quarantine.claim("bob", 100).items:
        said = f"{item['object_id']} of {item['sender']} on {item['context']}"
        quarantine.resolve("bob", item["id"], "malware", reason=f"as {item['object_id']}", note=said)
        outside.add("box", "goodware", "sandbox", item=item["id"], reason=f"run of {item['object_id']}")


TARGETS = {
    "object": (ToDelete("object", "object-002-name"), [2]),
    "sender": (ToDelete("sender", "probe-1"), [1, 4]),
    "context": (ToDelete("context", "host-1-a", "host"), [2, 3]),
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("state", ["waiting", "again", "labelled", "example"])
def test_no_dump_and_no_export_finds_what_was_deleted(engine, send, objects, kind, state, tmp_path):
    declare_fields(engine, ["host"])
    send(*objects)
    if state == "again":
        send(*objects, digest="e")
    if state == "example":
        move(engine, "object", month_of("2020-01"))
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM context_key WHERE item NOT IN (SELECT id FROM item)"))
    if state in ("labelled", "example"):
        label_all(engine)
    if state == "example":
        drop_months(engine, month_of("2020-02"))  # and no sweep: the deletion does it
    target, places = TARGETS[kind]
    gone = [objects[place] for place in places]
    others = [each for each in objects if each not in gone]
    labels = rows_of(engine, "SELECT id, item, action, label, author FROM label ORDER BY id")
    before = dump(engine)
    traces = [trace for each in objects for trace in each.traces]
    assert traces_in(before, objects) == traces
    found = find(engine, target)
    assert (len(found.items), len(found.examples))[state == "example"] == len(gone)
    assert dump(engine).count("\n") == before.count("\n")  # a search changes nothing

    deleted = delete(engine, target, "root", "request 7")
    assert deleted[:2] == ((0, len(gone)) if state == "example" else (len(gone), 0))
    after = dump(engine)
    shared = {trace for each in others for trace in each.traces}
    left = [trace for each in gone for trace in each.traces if trace in after]
    assert set(left) <= shared
    assert target.value not in after
    assert (
        rows_of(engine, "SELECT item FROM context_key WHERE item <> ALL(:left)", left=ids_left(engine)) == []
    )
    expected = [trace for each in others for trace in each.traces]
    if state == "example":  # whose identities are gone with their month
        keys = {_key(each.sender, each.name, encode(each.row[None])[0]).hex() for each in others}
        expected = [trace for trace in expected if trace not in keys]
    assert traces_in(after, others) == expected
    assert find(engine, target) == ([], [])
    assert check(engine) == []
    assert Quarantine(engine).find(gone[0].name) == []
    assert rows_of(engine, "SELECT id, item, action, label, author FROM label ORDER BY id") == labels
    written = rows_of(engine, "SELECT kind, items, examples, notes, author, reason FROM deletion")
    assert written == [(kind, *deleted, "root", "request 7")]
    if state in ("labelled", "example"):
        assert deleted.notes == 3 * len(gone)
        export_labelled(engine, tmp_path / "labelled.parquet")
        names = read_labelled(tmp_path / "labelled.parquet").table["gate_id"].to_pylist()
        assert sorted(names) == [each.name for each in others]


def test_what_waits_for_a_webhook_is_deleted_and_later_events_name_a_number_alone(
    engine, send, objects, monkeypatch
):
    monkeypatch.setenv("SOC_SECRET", SECRET)
    with engine.begin() as connection:
        for table in ("delivery", "webhook", "event"):
            connection.execute(text(f"DELETE FROM {table}"))
    receiver = Receiver()
    receiver.behaves = 500
    target = target_of(receiver.url)
    webhook = Webhook(engine, Events(engine), target, pauses=(1, 1, 1), timeout=5)
    webhook.make()
    send(*objects)
    webhook.work()  # all fail, once
    label_all(engine)
    webhook.make()
    waiting = "SELECT items[place] FROM delivery JOIN event USING (transaction, number) ORDER BY 1"
    before = rows_of(engine, waiting)
    assert len(before) == len(objects) * 4  # rejected, skipped, labelled, outside
    (gone,) = {each["item"] for each in Quarantine(engine).find(objects[2].name)}
    delete(engine, ToDelete("object", objects[2].name), "root", "request 7")
    assert rows_of(engine, waiting) == [row for row in before if row != (gone,)]
    content = dump(engine)
    assert objects[2].name not in content
    assert objects[3].name in content
    receiver.behaves = 204
    end = time.monotonic() + 20
    while rows_of(engine, waiting) and time.monotonic() < end:
        webhook.work()
        time.sleep(0.05)
    assert rows_of(engine, waiting) == []
    webhook.close()
    receiver.close()
    sent = [json.loads(body)["data"] for _, _, body in receiver.received]
    assert {each["item"] for each in sent} == {item for (item,) in before} - {gone}
    assert {each.get("reason") for each in sent if each.get("author") == "box"} == {
        f"run of {each.name}" for each in objects if each.name != objects[2].name
    }
    later = [each["data"] for each in Events(engine).after(Cursor()).events if each["data"]["item"] == gone]
    assert [sorted(each) for each in later] == [
        ["author", "item"],
        ["author", "item", "label"],
        ["author", "item", "label", "source"],
    ]


def test_a_deleted_object_that_is_sent_again_is_a_new_item(engine, send, objects):
    send(*objects)
    label_all(engine)
    (old,) = Quarantine(engine).find(objects[0].name)
    delete(engine, ToDelete("object", objects[0].name), "root", "why")
    send(objects[0])
    (new,) = Quarantine(engine).find(objects[0].name)
    assert new["item"] > old["item"]
    assert (new["state"], Quarantine(engine).show(new["item"])["history"]) == ("waiting", [])
    with pytest.raises(NoItemError):
        Quarantine(engine).undo("bob", old["item"])
    assert check(engine) == []


def test_nothing_of_the_old_object_survives_while_gates_and_analysts_write_it(engine, send, objects):
    """What is committed before the deletion begins is gone afterwards, whoever writes meanwhile."""
    declare_fields(engine, ["host"])
    old = [each._replace(context={"host": "old-host", "file": "old-file"}) for each in objects[:2]]
    new = [each._replace(context={"host": "new-host", "file": "new-file"}) for each in objects[:2]]
    done = threading.Event()

    def write(digest):
        while not done.is_set():
            send(*new, digest=digest)

    def work(who):
        quarantine = Quarantine(engine)
        while not done.is_set():
            for item in quarantine.claim(who, 2, skipped=True).items:
                old_one = item["context"]["host"] == "old-host"
                note = f"{'old' if old_one else 'new'}-note"
                try:
                    quarantine.resolve(who, item["id"], "malware", note=note)
                    quarantine.undo(who, item["id"], note=note)
                    quarantine.skip(who, item["id"], note=note)
                except (NoItemError, ConflictError):
                    continue

    for turn in range(6):
        for each in old:
            delete(engine, ToDelete("object", each.name), "root", "to begin with")
        send(*old, digest="f")
        done.clear()
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(write, each) for each in "de"] + [pool.submit(work, each) for each in "ab"]
            last = max(row[0] for row in rows_of(engine, "SELECT id FROM item"))
            for each in old:
                kind, value = ("object", each.name) if turn % 2 else ("sender", each.sender)
                delete(engine, ToDelete(kind, value), "root", "why")
            done.set()
            for each in running:
                each.result()
        content = dump(engine)
        assert [word for word in ("old-host", "old-file", "old-note") if word in content] == []
        ids = rows_of(
            engine, "SELECT id FROM item UNION SELECT id FROM payload UNION SELECT item FROM identity"
        )
        assert all(each > last for (each,) in ids)
        assert rows_of(engine, "SELECT item FROM remark WHERE item <= :last", last=last) == []
        assert check(engine) == []
    for each in new:
        delete(engine, ToDelete("object", each.name), "root", "why")
    assert traces_in(dump(engine), new) == []


HOSTILE = {
    "match": {"host": 'a "b"\\ é\n=x'},
    "match too": {"file": "\x00", "host": 'a "b"\\ é\n=x'},
    "nested": {"more": {"host": 'a "b"\\ é\n=x'}, "host": "other"},
    "in another field": {"file": 'a "b"\\ é\n=x', "host": "b"},
    "longer": {"host": 'a "b"\\ é\n=xx'},
    "none": {},
    "null": {"host": None},
    "number": {"host": 15},
    "true": {"host": True},
    "text of a number": {"host": "15"},
    "unreadable": {"host": "\x00"},
    "a list": {"host": [15]},
}


@pytest.mark.parametrize("by", ["index", "scan", "both"])
def test_contexts_are_found_by_exactly_the_value_of_the_field(engine, send, objects, by):
    before = list(HOSTILE)[: {"index": 0, "scan": 99, "both": 6}[by]]
    stored = {name: objects[0]._replace(name=name, context=context) for name, context in HOSTILE.items()}
    send(*(stored[name] for name in before))
    declare_fields(engine, ["host"])
    if by != "scan":  # as if the field had been declared long before what comes now
        sql = "UPDATE context_field SET indexed_from = coalesce((SELECT max(id) + 1 FROM item), 0)"
        with engine.begin() as connection:
            connection.execute(text(sql))
    send(*(stored[name] for name in HOSTILE if name not in before))
    for value, names in (
        ('a "b"\\ é\n=x', {"match", "match too"}),
        ("15", {"number", "text of a number"}),
        ("true", {"true"}),
        ("null", set()),
        ("", set()),
        ("%", set()),
    ):
        found = find(engine, ToDelete("context", value, "host"))
        sql = "SELECT object_id FROM payload WHERE id = ANY(:ids)"
        assert {name for (name,) in rows_of(engine, sql, ids=found.items)} == names, value
    delete(engine, ToDelete("context", "15", "host"), "root", "why")
    left = {name for (name,) in rows_of(engine, "SELECT object_id FROM payload")}
    assert left == HOSTILE.keys() - {"number", "text of a number"}
    orphans = "SELECT count(*) FROM context_key WHERE item NOT IN (SELECT id FROM item)"
    assert rows_of(engine, orphans) == [(0,)]


def test_a_context_that_is_replaced_is_found_by_its_new_value_only(engine, send, objects):
    declare_fields(engine, ["host"])
    with engine.begin() as connection:
        connection.execute(text("UPDATE context_field SET indexed_from = 0"))
    send(objects[0])
    send(objects[0]._replace(context={"host": "new"}), digest="e")
    assert find(engine, ToDelete("context", "host-0-a", "host")).items == []
    assert len(find(engine, ToDelete("context", "new", "host")).items) == 1
    assert rows_of(engine, "SELECT count(*) FROM context_key") == [(1,)]


def test_a_deletion_that_is_killed_says_what_it_did_and_is_completed_by_the_next(
    engine, send, objects, monkeypatch
):
    send(*(each._replace(sender="probe") for each in objects))
    monkeypatch.setattr(deletion, "_STEP", 2)
    real, calls = deletion._delete, []

    def fail_at_third(connection, **about):
        done = real(connection, **about)
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(deletion, "_delete", fail_at_third)
    target = ToDelete("sender", "probe")
    with pytest.raises(KeyboardInterrupt):
        delete(engine, target, "root", "why")
    assert rows_of(engine, "SELECT items FROM deletion") == [(4,)]
    assert rows_of(engine, "SELECT count(*) FROM item") == [(2,)]
    assert check(engine) == []
    assert delete(engine, target, "root", "again").items == 2
    assert traces_in(dump(engine), objects) == []


def test_the_days_of_a_sender_go_with_it(engine):
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO sender_day VALUES ('2026-01-01', 'a', 1, 2), (now(), 'b', 3, 4)")
        )
    assert delete(engine, ToDelete("sender", "a"), "root", "why") == (0, 0, 0)
    assert rows_of(engine, "SELECT sender FROM sender_day") == [("b",)]
    assert rows_of(engine, "SELECT kind, items FROM deletion") == [("sender", 0)]


WRITTEN = """INSERT INTO label (item, action, label, reason, note, author)
SELECT id, :action, :label, :reason, :note, :who FROM payload
RETURNING id, action, label, reason, note, author, written_at"""


def write_label(engine, action="label", label="malware", reason=None, note=None, who="ann", role=None):
    with engine.begin() as connection:
        if role:
            connection.execute(text(f"SET LOCAL ROLE {role}"))
        values = {"action": action, "label": label, "reason": reason, "note": note, "who": who}
        return connection.execute(text(WRITTEN), values).mappings().all()


def test_notes_are_moved_whatever_the_rights_of_the_gate(engine, send, objects):
    send(objects[0])
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE few_rights"))
        for table in ("payload", "label"):
            connection.execute(text(f"GRANT SELECT, INSERT ON {table} TO few_rights"))
    try:
        (written,) = write_label(engine, note="about it", reason="why", role="few_rights")
        write_label(engine, "decide", None, "rejected", "before: ...", "gate", role="few_rights")
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP OWNED BY few_rights"))
            connection.execute(text("DROP ROLE few_rights"))
    assert (written["label"], written["author"]) == ("malware", "ann")
    sql = "SELECT note, reason, author FROM label ORDER BY id DESC LIMIT 2"
    assert rows_of(engine, sql) == [(None, "rejected", "gate"), (None, None, "ann")]
    (found,) = Quarantine(engine).find(objects[0].name)
    history = Quarantine(engine).show(found["item"])["history"]
    assert [(each["reason"], each["note"]) for each in history] == [
        ("why", "about it"),
        ("rejected", "before: ..."),
    ]


def test_a_temporary_table_does_not_stand_in_for_one_of_the_triggers(engine, send, objects):
    send(objects[0])
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TEMPORARY TABLE remark (label bigint, item bigint, note text, reason text)")
        )
        values = {"action": "skip", "label": None, "reason": None, "note": "real", "who": "ann"}
        connection.execute(text(WRITTEN), values)
        connection.execute(text("DROP TABLE pg_temp.remark"))
    assert rows_of(engine, "SELECT note FROM remark") == [("real",)]


class TestCommand:
    @pytest.fixture
    def engine(self, own_engine):
        return own_engine

    def test_counts_first_and_deletes_if_confirmed(self, run, given, engine, send, objects):  # noqa: F811
        send(*objects)
        asked = ("delete", "--sender", "probe-1", "--reason", "request 7")
        assert "would delete 2 objects and 0 examples: add --yes" in run(*asked).stderr
        assert rows_of(engine, "SELECT count(*) FROM item") == [(6,)]
        assert rows_of(engine, "SELECT count(*) FROM deletion") == [(0,)]
        assert "deleted 2 objects, 0 examples, 0 notes." in run(*asked, "--yes").stderr
        assert rows_of(engine, "SELECT count(*) FROM item") == [(4,)]
        assert rows_of(engine, "SELECT kind, items, reason FROM deletion") == [("sender", 2, "request 7")]

    def test_says_that_there_is_nothing(self, run, given, engine, send, objects):  # noqa: F811
        send(*objects)
        asked = ("delete", "--object", "misspelt", "--reason", "request 7")
        assert "nothing is kept of it: is it written as it was sent?" in run(*asked).stderr

    def test_by_a_field_that_the_settings_declare(self, run, given, engine, send, objects, monkeypatch):  # noqa: F811
        send(*objects)
        asked = ("delete", "--context", "host=host-1-a", "--reason", "why", "--yes")
        refused = run(*asked, code=2).stderr
        assert "--context host: the setting deletable_context has no such field (it is empty)" in refused
        monkeypatch.setenv("TRANSCENDENT_GATE_DELETABLE_CONTEXT", "file host")
        assert "deleted 2 objects" in run(*asked).stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "one of --object, --sender and --context"),
            (["--object", "a", "--sender", "b"], "one of --object, --sender and --context"),
            (["--context", "host"], "must be FIELD=VALUE"),
        ],
    )
    def test_refuses_what_is_not_clear(self, run, monkeypatch, arguments, said):  # noqa: F811
        monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", "postgresql://nowhere/at_all")
        assert said in run("delete", *arguments, "--reason", "why", code=2).stderr

    def test_needs_a_reason(self, run, monkeypatch):  # noqa: F811
        monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", "postgresql://nowhere/at_all")
        assert "--reason" in run("delete", "--object", "a", code=2).output
        assert "--reason must say why" in run("delete", "--object", "a", "--reason", " ", code=2).stderr
