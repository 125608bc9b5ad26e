"""Case memory in the gate: suggestions, and items that are settled by them."""

import numpy as np
import pytest
from sqlalchemy import text

from tests.gate.test_contents import label_next
from tests.gate.test_quarantine import rows
from transcendent.gate.check import check
from transcendent.gate.contents import Contents
from transcendent.gate.database import migrate
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.features import encode
from transcendent.gate.intake import AUDITED, keep, register
from transcendent.gate.model import Model
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.quarantine import Quarantine
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
    [found] = quarantine.find(name)
    said = quarantine.show(found["item"], who)["suggestion"]
    return said and (said["label"], said["author"], round(said["distance"], 3))


def item_of(quarantine, name):
    [found] = quarantine.find(name)
    return found["item"]


def run(engine, sql, **given):
    with engine.begin() as connection:
        done = connection.execute(text(sql), given)
        return done.all() if done.returns_rows else done.rowcount


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
    later = "UPDATE content SET compared_at = compared_at + interval '2 minutes'"
    run(engine, later)  # labels that are committed late are not awaited for longer
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


def test_back_to_the_version_before(own_engine):
    assert migrate(own_engine, "0002") == "0002"
    assert migrate(own_engine) == "0003"
