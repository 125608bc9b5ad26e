"""Case memory in the gate: suggestions, and items that are settled by them."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from sqlalchemy import event, text

from tests.gate.test_contents import label_next, labels_of, states
from tests.gate.test_quarantine import rows
from transcendent.cli.app import app
from transcendent.errors import GateSettingsError
from transcendent.gate import settling as settling_module
from transcendent.gate.check import check
from transcendent.gate.contents import Contents
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.features import encode
from transcendent.gate.intake import AUDITED, REJECTED, Draw, keep, register
from transcendent.gate.model import Model
from transcendent.gate.negatives import check_negative
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.retention import sweep
from transcendent.gate.server import serve
from transcendent.gate.settings import read_settings
from transcendent.gate.settling import LOOK, Settling, SettlingError, resume, settling_secret, status
from transcendent.gate.suggesting import Suggesting
from transcendent.tables.layout import Layout

WIDTH = 60
MODEL = Model(None, "e" * 64, Layout(WIDTH), ["goodware", "malware"], {})
SCORES = Model(None, "f" * 64, Layout(2, ("a", "b"), scores=("a", "b")), ["goodware", "malware"], {})


def features(*columns):
    """Encoded zeros and ones."""
    row = np.zeros((1, WIDTH))
    row[0, list(columns)] = 1
    return encode(row)[0]


APP = features(*range(20))
NEAR = features(*range(19))  # at a distance of 0.05
FURTHER = features(*range(15))  # at a distance of 0.25
OTHER = features(*range(30, 50))
NUMBERS = count(1 << 30)  # of items that are gone


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine, labels=["unclear"])


@pytest.fixture
def send(engine):
    """A function that keeps n objects with the same features, and finds their contents and suggestions."""

    def keep_them(name, encoded=APP, n=1, model=MODEL, **given):
        number = register(engine, model)
        keep(engine, rows(engine, [0.1] * n, name, features=encoded, model=number, **given))
        Contents(engine, b"secret").add_new()
        Suggesting(engine).compare()
        assert check(engine) == []

    return keep_them


def suggested(quarantine, name, who=None):
    said = quarantine.show(item_of(quarantine, name), who)["suggestion"]
    return said and (said["label"], said["author"], round(said["distance"], 3))


def item_of(quarantine, name):
    [found] = quarantine.find(name)
    return found["item"]


def run(engine, sql, **given):
    with engine.begin() as connection:
        done = connection.execute(text(sql), given)
        return done.all() if done.returns_rows else done.rowcount


def deploy(engine, action):
    made = (
        "(model, action, settings, author, reason) SELECT id, :action, '{}', 'root', 'why' FROM model LIMIT 1"
    )
    run(engine, f"INSERT INTO deployment {made}", action=action)


def test_exact_and_near_content_is_suggested(engine, quarantine, send):
    send("case")
    label_next(quarantine, "malware", "ann")
    send("same")
    send("near", NEAR)
    send("far", OTHER)
    assert suggested(quarantine, "same0") == ("malware", "ann", 0)
    assert suggested(quarantine, "near0") == ("malware", "ann", 0.05)
    assert suggested(quarantine, "far0") is None
    shown = quarantine.show(item_of(quarantine, "near0"))["suggestion"]
    assert (shown["item"], shown["contested"]) == (item_of(quarantine, "case0"), False)
    assert suggested(quarantine, "case0") is None  # its own label
    claimed = {item["object_id"]: item["suggestion"] for item in quarantine.claim("bob", 5).items}
    assert claimed["near0"] == shown
    assert claimed["far0"] is None
    assert quarantine.held("bob")[0]["suggestion"] is not None


def test_new_cases_replace_what_is_further_away(engine, quarantine, send):
    send("waits", APP)
    assert suggested(quarantine, "waits0") is None
    for name, encoded, label, expected in (
        ("far", OTHER, "goodware", None),
        ("further", FURTHER, "goodware", ("goodware", "ann", 0.25)),
        ("near", NEAR, "malware", ("malware", "bob", 0.05)),
        ("third", features(*range(12)), "goodware", ("malware", "bob", 0.05)),
    ):
        send(name, encoded)
        who = "bob" if label == "malware" else "ann"
        quarantine.claim(who, 10)
        quarantine.resolve(who, item_of(quarantine, f"{name}0"), label)
        quarantine.release(who)
        Suggesting(engine).compare()
        assert suggested(quarantine, "waits0") == expected


def test_an_undone_label_suggests_nothing_and_the_next_nearest_is_found(engine, quarantine, send):
    send("near", NEAR)
    near = label_next(quarantine)
    send("further", FURTHER)
    label_next(quarantine, "goodware", "bob")
    send("waits")
    assert suggested(quarantine, "waits0") == ("malware", "ann", 0.05)
    quarantine.undo("ann", near["id"])
    assert suggested(quarantine, "waits0") is None
    Suggesting(engine).compare()
    assert suggested(quarantine, "waits0") == ("goodware", "bob", 0.25)
    delete(engine, ToDelete("object", "further0"), "root", "asked")
    assert suggested(quarantine, "waits0") is None
    Suggesting(engine).compare()
    assert suggested(quarantine, "waits0") is None


def test_nothing_is_compared_twice(engine, quarantine, send):
    send("case", NEAR)
    label_next(quarantine)
    run(engine, "UPDATE content SET compared_at = NULL")
    send("waits")
    send("far", OTHER)
    run(engine, "UPDATE content SET compared_at = compared_at + interval '2 minutes'")  # late labels came
    assert Suggesting(engine).compare() == 0
    run(engine, "UPDATE content SET compared_at = compared_at - interval '4 minutes'")
    assert Suggesting(engine).compare() == 2


def test_one_process_at_a_time_compares(engine, quarantine, send):
    called = []
    run(engine, "UPDATE case_work SET began_at = '-infinity'")
    for _ in range(3):
        Suggesting(engine, lambda: called.append(1)).work()
    assert len(called) == 1


def test_contested_content_is_suggested_as_such(engine, quarantine, send):
    send("a")
    label_next(quarantine, "malware", "ann")
    send("b")
    label_next(quarantine, "goodware", "bob")
    send("c")
    [item] = quarantine.claim("carl").items
    assert (item["suggestion"]["label"], item["suggestion"]["contested"]) == ("goodware", True)


def test_only_classes_that_people_gave_are_cases(engine, quarantine, send):
    send("case", n=2)
    label_next(quarantine, "unclear")
    send("near", NEAR)
    assert suggested(quarantine, "near0") is None
    assert suggested(quarantine, "case1") is None


def test_other_columns_scores_and_the_audit_have_no_suggestion(engine, quarantine, send):
    send("case")
    label_next(quarantine)
    other = Model(None, "a" * 64, Layout(WIDTH), ["goodware", "malware", "adware"], {})
    send("other", NEAR, model=other, p_values=None)
    send("audit", NEAR, tier=AUDITED, accepted=True, probability=0.5)
    assert suggested(quarantine, "other0") is suggested(quarantine, "audit0") is None
    send("scores", encode(np.array([[1.0, 1.0]]))[0], n=2, model=SCORES)
    run(engine, "UPDATE content SET label = 'malware', labelled = :item", item=item_of(quarantine, "case0"))
    assert suggested(quarantine, "scores1") is None


def test_other_numbers_are_suggested_by_exact_content(engine, quarantine, send):
    numbers = encode(np.arange(WIDTH)[None] / 7)[0]
    send("case", numbers)
    label_next(quarantine)
    send("same", numbers)
    send("near", encode(np.arange(WIDTH)[None] / 7 + 1e-9)[0])
    send("empty", features())
    assert suggested(quarantine, "same0") == ("malware", "ann", 0)
    assert suggested(quarantine, "near0") is suggested(quarantine, "empty0") is None


def test_a_label_that_an_analyst_may_not_see_is_not_suggested(engine, send):
    quarantine = SecondOpinions(engine)
    send("case")
    case = label_next(quarantine, "malware", "ann")
    send("near", NEAR)
    assert suggested(quarantine, "near0", "bob") is None
    assert suggested(quarantine, "near0", "ann") == ("malware", "ann", 0.05)  # her own
    assert suggested(quarantine, "near0") == ("malware", "ann", 0.05)  # operators see everything
    assert quarantine.claim("bob").items[0]["suggestion"] is None
    quarantine.claim("bob", opinions=True)
    quarantine.resolve("bob", case["id"], "malware")
    assert suggested(quarantine, "near0", "bob") == ("malware", "ann", 0.05)


def settling(engine, within=0.1, negative=("goodware",), look=False):
    """Settling that looks at all items, or at none."""
    made = Settling(engine, within, negative, 0.01, b"secret")
    made._draw = Draw(b"secret", 1.0 if look else 1e-15)
    return made


@pytest.fixture
def case(quarantine, send):
    """The item of a case that is labelled."""
    send("case")
    return label_next(quarantine, "malware", "ann")["id"]


@pytest.mark.parametrize(
    ("encoded", "within", "negative", "settles"),
    [
        (APP, 0, [], True),
        (APP, 0, ["malware"], True),  # the same content, also as a negative class
        (NEAR, 0, [], False),
        (NEAR, 0.1, ["goodware"], True),
        (NEAR, 0.1, ["malware"], False),
        (NEAR, 0.1, ["gutartig"], False),  # not a class: it may be misspelt
        (FURTHER, 0.1, [], False),
        (FURTHER, 0.3, [], True),
        (OTHER, 0.99, [], False),
    ],
    ids=[f"{n}" for n in range(9)],
)
def test_what_settles(engine, quarantine, send, case, encoded, within, negative, settles):
    send("new", encoded)
    assert settling(engine, within, negative).settle() == settles
    assert states(engine)["new0"] == (REJECTED, int(settles))
    if settles:
        [action] = labels_of(quarantine, "new0")
        assert action == ("label", "malware", "gate", "settled")
        sql = """SELECT sources = ARRAY[(SELECT max(id) FROM label WHERE item = :case)]
        FROM inferred WHERE item > :case"""
        assert run(engine, sql, case=case) == [(True,)]
    assert settling(engine, within, negative).settle() == 0
    assert check(engine) == []


def test_copies_are_settled_with_their_leader(engine, quarantine, send, case):
    send("new", NEAR, n=600)
    assert settling(engine).settle() == 600
    assert {state for _, state in states(engine).values()} == {1}
    assert quarantine.claim("bob").items == []
    send("more", NEAR, n=2)  # a settled label is no case: these are settled by the same one
    assert settling(engine).settle() == 2
    assert run(engine, "SELECT count(DISTINCT sources) FROM inferred WHERE item > :case", case=case) == [(1,)]


def test_contested_content_settles_nothing(engine, quarantine, send, case):
    send("b")
    label_next(quarantine, "goodware", "bob")
    send("same")
    send("near", NEAR)
    assert settling(engine, negative=[]).settle() == 0


def test_cases_that_differ_settle_nothing_near_them(engine, quarantine, send, case):
    send("other", features(*range(1, 20)))
    label_next(quarantine, "goodware", "bob")
    send("between", features(*range(1, 21)))
    assert suggested(quarantine, "between0") is not None
    made = settling(engine, 0.2, [])
    assert made.settle() == made.settle() == 0
    send("same")  # an object that has the content of a case is settled by that alone
    assert made.settle() == 1
    quarantine.undo("bob", item_of(quarantine, "other0"))
    Suggesting(engine).compare()
    assert made.settle() == 1  # no case is left that differs; the person who undid it labels the other item
    assert states(engine)["between0"] == (REJECTED, 1)


@pytest.mark.parametrize("why", ["held", "skipped", "undone", "drawn", "audit", "empty", "scores"])
def test_what_people_or_draws_have_chosen_is_not_settled(engine, quarantine, send, case, why):
    if why == "audit":
        send("new", tier=AUDITED, accepted=True, probability=0.5)
    elif why == "scores":
        send("new", encode(np.array([[1.0, 1.0]]))[0], n=2, model=SCORES)
        label_next(quarantine)
        send("later", encode(np.array([[1.0, 1.0]]))[0], model=SCORES)
    elif why == "empty":
        send("new", features())
        label_next(quarantine)
        send("later", features())
    else:
        send("new")
        [item] = quarantine.claim("bob").items
        if why == "skipped":
            quarantine.skip("bob", item["id"])
            quarantine.undo("bob", item["id"])
        elif why == "undone":
            quarantine.resolve("bob", item["id"], "unclear")
            quarantine.undo("bob", item["id"])
        elif why == "drawn":
            quarantine.release("bob")
            deploy(engine, "shadow")
            sql = """INSERT INTO disagreement (item, shadow, active, hour, draw)
            SELECT :item, id, id, 1, 0.5 FROM deployment"""
            run(engine, sql, item=item["id"])
    assert settling(engine).settle() == 0


def test_undoing_the_case_takes_settled_labels_back(engine, quarantine, send, case):
    send("near", NEAR)
    send("same", n=2)
    assert settling(engine).settle() == 3
    quarantine.undo("ann", case)
    assert {state for name, (_, state) in states(engine).items()} == {0}
    assert labels_of(quarantine, "near0")[1:] == [("undo", None, "ann", None)]
    label_next(quarantine, "malware", "ann")
    assert settling(engine).settle() == 0  # a person has acted on them


def test_looks_come_soon_without_a_suggestion(engine, quarantine, send, case):
    send("rejected", OTHER, n=1)
    send("new", n=2)
    assert settling(engine, look=True).settle() == 2
    assert states(engine)["new0"] == states(engine)["new1"] == (AUDITED, 0)
    assert run(engine, "SELECT label, distance FROM settled_look") == [("malware", 0)] * 2
    assert settling(engine, look=True).settle() == 0
    send("copy")  # its leader is looked at, but the case settles it all the same
    assert settling(engine).settle() == 1
    items = quarantine.claim("bob", 2).items
    assert {item["object_id"] for item in items} == {"new0", "new1"}
    assert [(item["audit"], item["suggestion"]) for item in items] == [(False, None)] * 2
    quarantine.resolve("bob", items[0]["id"], "goodware")
    quarantine.undo("bob", items[0]["id"])
    assert states(engine)[items[0]["object_id"]] == (AUDITED, 0)
    quarantine.claim("bob", 1)
    quarantine.resolve("bob", items[0]["id"], "goodware")  # another label: the content is contested
    send("later")
    assert settling(engine).settle() == 0


def test_settling_pauses_while_too_many_looks_wait(engine, quarantine, send, case, monkeypatch):
    monkeypatch.setattr(settling_module, "MAX_LOOKS", 4)
    send("new", n=60)
    made = settling(engine)
    made._draw = Draw(b"secret", 0.25)
    items = [i for (i,) in run(engine, "SELECT id FROM item WHERE id <> :case ORDER BY id", case=case)]
    drawn = [item for item in items if made._draw(str(item))]
    assert made.settle() == items.index(drawn[4])
    assert made.settle() == 0
    with engine.connect() as connection:
        assert status(connection, 0.01)["paused"]
    first = quarantine.claim("bob", 2).items
    quarantine.skip("bob", first[0]["id"])  # it still waits
    assert made.settle() == 0
    run(engine, "UPDATE item SET state = 2, holder = NULL WHERE id = :item", item=first[1]["id"])
    assert made.settle() == items.index(drawn[5]) - items.index(drawn[4])
    assert {item for (item,) in run(engine, "SELECT item FROM settled_look")} == set(drawn[:5])


def test_other_systems_do_not_label_what_is_looked_at(engine, quarantine, send, case):
    send("new")
    settling(engine, look=True).settle()
    item = item_of(quarantine, "new0")
    [added] = OutsideLabels(engine).add("box", "goodware", "sandbox", item=item)
    assert not added["settled"]
    assert states(engine)["new0"] == (AUDITED, 0)


def test_all_processes_draw_alike(engine, quarantine, send, case):
    send("new", n=2000)
    Settling(engine, 0, [], 0.01, settling_secret(engine)).settle()
    drawn = {item for (item,) in run(engine, "SELECT item FROM settled_look")}
    assert 60 <= len(drawn) <= 145
    again = Draw(settling_secret(engine), LOOK)
    assert drawn == {
        i for (i,) in run(engine, "SELECT id FROM item WHERE id <> :case", case=case) if again(str(i))
    }


def test_deletion_and_retention_leave_no_look(engine, quarantine, send, case):
    send("new")
    settling(engine, look=True).settle()
    delete(engine, ToDelete("object", "new0"), "root", "asked")
    assert run(engine, "SELECT * FROM settled_look") == []
    run(engine, "INSERT INTO settled_look VALUES (5, 'malware', 0, 0)")
    run(engine, "INSERT INTO unswept VALUES (0) ON CONFLICT DO NOTHING")
    sweep(engine)
    assert run(engine, "SELECT * FROM settled_look") == []


def test_an_undo_at_the_same_time_leaves_nothing_settled(engine, quarantine, send, case):
    send("new", NEAR, n=30)
    with ThreadPoolExecutor(2) as pool:
        settled = pool.submit(settling(engine).settle)
        undone = pool.submit(quarantine.undo, "ann", case)
        settled.result()
        undone.result()
    assert {state for _, state in states(engine).values()} == {0}
    assert check(engine) == []


def test_what_is_locked_is_left_alone(engine, quarantine, send, case):
    send("new", NEAR)
    with engine.begin() as connection:
        connection.execute(text("SELECT FROM item WHERE id = :case FOR UPDATE"), {"case": case})
        assert settling(engine).settle() == 0
    assert settling(engine).settle() == 1


def looked(engine, labels, days=1):
    """Looks of a past day, with the labels that people found; None for those without."""
    for place, label in enumerate(labels):
        given = {"item": next(NUMBERS), "draw": place / len(labels), "days": days, "label": label}
        look = "VALUES (:item, 'malware', 0, :draw, now() - make_interval(days => :days))"
        run(engine, f"INSERT INTO settled_look {look}", **given)
        if label is not None:
            columns = "(item, action, label, author) VALUES (:item, 'label', :label, 'ann')"
            run(engine, f"INSERT INTO label {columns}", **given)


def error(engine):
    with engine.connect() as connection:
        found = status(connection, 0.01)["error"]
    return found["labels"], found["wrong"], found["unclear"]


def test_the_error_counts_looks_in_the_order_of_the_draw(engine):
    register(engine, MODEL)
    looked(engine, ["goodware"] * 2, days=0)  # today is not over
    looked(engine, ["malware", "goodware", "unclear", None, "goodware"])
    looked(engine, ["malware"] * 3, days=2)
    assert error(engine) == (6, 1, 1)
    run(engine, "INSERT INTO settling_switch (action, author, reason) VALUES ('resume', 'a', 'b')")
    assert error(engine) == (0, 0, 0)


def test_too_many_errors_stop_it_until_it_is_resumed(engine, quarantine, send, case):
    deploy(engine, "active")
    looked(engine, ["goodware", "malware"] * 10)
    send("new", n=3)
    made = settling(engine)
    made.work()
    made.work()
    assert {state for name, (_, state) in states(engine).items() if name != "case0"} == {0}
    assert run(engine, "SELECT kind FROM alarm") == [("settling",)]
    assert run(engine, "SELECT action, author FROM settling_switch") == [("stop", "gate")]
    with engine.connect() as connection:
        assert not status(connection, 0.01)["on"]
    resume(engine, "root", "the case was wrong")
    with pytest.raises(SettlingError, match="nothing to resume"):
        resume(engine, "root", "again")
    made.work()
    assert {state for _, state in states(engine).values()} == {1}


def test_the_settings_must_name_negative_classes(monkeypatch):
    monkeypatch.setenv("TRANSCENDENT_GATE_SETTLE", "0.1")
    with pytest.raises(GateSettingsError, match=r"settle needs negative.*set negative = \[\]"):
        read_settings(database="postgresql://x")
    monkeypatch.setenv("TRANSCENDENT_GATE_NEGATIVE", "")
    assert read_settings(database="postgresql://x").negative == []
    monkeypatch.setenv("TRANSCENDENT_GATE_NEGATIVE", "goodware adware")
    assert read_settings(database="postgresql://x").negative == ["goodware", "adware"]


def test_a_misspelt_negative_class_is_refused_at_start(engine, artifact, shared_database):
    other = Model(None, "b" * 64, Layout(WIDTH), ["harmless", "harmful"], {})
    for negative in (None, [], ["goodware"], ["harmless"]):  # nothing is known
        check_negative(engine, negative, None)
    register(engine, other)
    with pytest.raises(GateSettingsError, match=r"negative names 'gutware', but .* are goodware, malware"):
        check_negative(engine, ["goodware", "gutware"], MODEL)
    with pytest.raises(GateSettingsError, match=r"negative names 'harmless', but .* are goodware, malware"):
        check_negative(engine, ["harmless"], MODEL)
    check_negative(engine, ["goodware", "harmless"], MODEL)
    deploy(engine, "active")
    with pytest.raises(GateSettingsError, match=r"negative names 'Harmless', but .* are harmless, harmful"):
        check_negative(engine, ["Harmless"], None)
    given = {"artifact": artifact, "database": shared_database, "settle": 0, "negative": ["gutware"]}
    with pytest.raises(GateSettingsError, match="negative names 'gutware'"):
        serve(read_settings(**given))


def test_the_commands(database, own_engine, monkeypatch, capsys):
    monkeypatch.setenv("TRANSCENDENT_GATE_DATABASE", database)
    with pytest.raises(SystemExit):
        app(["gate", "settling"])
    assert "cases are only suggested" in capsys.readouterr().out
    monkeypatch.setenv("TRANSCENDENT_GATE_SETTLE", "0.1")
    monkeypatch.setenv("TRANSCENDENT_GATE_NEGATIVE", "goodware")
    run(own_engine, "INSERT INTO settling_switch (action, author, reason) VALUES ('stop', 'gate', 'wrong')")
    for command, said in (
        (["settling"], "by gate: wrong"),
        (["settling", "resume", "--reason", "corrected"], "settling is resumed."),
        (["settling"], "on: features within a distance of 0.1; negative classes: goodware"),
    ):
        with pytest.raises(SystemExit):
            app(["gate", *command])
        assert said in "".join(capsys.readouterr())


@pytest.mark.full
def test_a_gate_suggests_and_settles_in_the_background(own_engine, start_gate):
    number = register(own_engine, MODEL)
    quarantine = Quarantine(own_engine)
    keep(own_engine, rows(own_engine, [0.1], "case", features=APP, model=number))
    Contents(own_engine, b"secret").add_new()
    label_next(quarantine)
    keep(own_engine, rows(own_engine, [0.1] * 20, "same", features=APP, model=number))
    keep(own_engine, rows(own_engine, [0.1], "near", features=NEAR, model=number))
    Contents(own_engine, b"secret").add_new()
    start_gate(settle=0, negative="goodware")
    sql = "SELECT (SELECT count(*) FROM inferred WHERE how = 'settled'), (SELECT count(*) FROM settled_look)"
    while sum(counts := run(own_engine, sql)[0]) < 20:
        time.sleep(0.1)
    assert counts[0] >= 10
    assert suggested(quarantine, "near0") == ("malware", "ann", 0.05)
    assert check(own_engine) == []


def test_without_news_only_what_is_new_is_read(engine, quarantine, send, case):
    compared, made = Suggesting(engine), settling(engine, 0.1, [])

    def executed(work):
        said = []

        def note(*given):
            said.append(given[2])

        event.listen(engine, "before_cursor_execute", note)
        found = work()
        event.remove(engine, "before_cursor_execute", note)
        return found, any("ORDER BY id DESC LIMIT 20000" in sql for sql in said)

    send("near", FURTHER)  # compared, but too far to be settled
    assert (executed(compared.compare)[1], executed(made.settle)[1]) == (True, True)
    while executed(compared.compare)[0]:
        run(engine, "UPDATE content SET compared_at = now() + interval '2 minutes'")
    assert (executed(compared.compare), executed(made.settle)) == ((0, False), (0, False))
    keep(engine, rows(engine, [0.1], "new", features=NEAR, model=register(engine, MODEL)))
    keep(engine, rows(engine, [0.1], "same", features=APP, model=register(engine, MODEL)))
    Contents(engine, b"secret").add_new()
    assert executed(compared.compare) == (1, False)
    assert executed(made.settle) == (2, False)
    quarantine.undo("ann", case)
    assert executed(compared.compare)[1]
    assert executed(made.settle) == (0, True)
