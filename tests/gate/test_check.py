"""Contradictions between the tables are found, reported, and repaired where possible."""

import json

import numpy as np
import pytest
from sqlalchemy import text

from tests.gate.test_commands import given, items, run  # noqa: F401
from tests.gate.test_contents import OTHER, SAME
from tests.gate.test_database import fill, this_month
from tests.gate.test_quarantine import rows
from transcendent.gate.check import check, repair
from transcendent.gate.contents import Contents
from transcendent.gate.database import DatabaseError, connect, drop_months, make_month, month_of, partition
from transcendent.gate.features import encode
from transcendent.gate.intake import _key, keep, register
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.tables.layout import Layout


@pytest.fixture
def filled(engine):
    """An engine of a database with items, some of them labelled, and with an empty earlier month."""
    fill(engine, 6)
    quarantine = Quarantine(engine)
    for item in quarantine.claim("ann", 3).items:
        quarantine.resolve("ann", item["id"], "malware")
    with engine.begin() as connection:
        make_month(connection, month_of("2020-01"))
    return engine


def test_nothing_is_wrong_after_ordinary_work(filled):
    assert check(filled) == []
    drop_months(filled, month_of("2020-02"))
    assert check(filled) == []


def this(engine, table):
    return partition(table, month_of(this_month(engine)))


@pytest.mark.parametrize(
    ("change", "said", "repaired"),
    [
        ("DELETE FROM item; DELETE FROM payload", ["6 identities whose item is gone"], 0),
        ("DELETE FROM identity", ["6 items without an identity"], 0),
        ("DELETE FROM payload", ["6 items without a payload"], 1),
        ("DELETE FROM item WHERE state = 0", ["3 identities", "3 payloads without an item"], 1),
        (
            "INSERT INTO remark VALUES (1, {gone}, 'n'); INSERT INTO context_key VALUES (1, {gone})",
            ["1 notes whose item is gone", "1 context keys whose item is gone"],
            0,
        ),
        (
            "INSERT INTO example SELECT id, received_at, probability, seen_at, model, accepted, object_id, "
            "sender, label, features FROM item JOIN payload USING (id) WHERE state = 1",
            ["3 examples that are also items"],
            0,
        ),
        ("DELETE FROM tally", ["2 counts that differ from a scan"], 0),
        ("UPDATE {item} SET state = 1", ["2 counts that", "3 items marked as labelled without a label"], 1),
        ("UPDATE item SET state = 0", ["3 items that have a label and wait"], 1),
        ("UPDATE item SET holder = 'ann'", ["3 items with a label that are held"], 1),
        ("DROP TABLE item_2020_01", ["no partition for 2020-01, which is in the table month"], 0),
        (
            "DELETE FROM month WHERE number = 600",
            ["a partition for 2020-01, which is not in the table month"],
            0,
        ),
    ],
)
def test_contradictions_are_found_and_repaired_where_that_is_possible(filled, change, said, repaired):
    with filled.begin() as connection:
        connection.exec_driver_sql(
            change.format(item=this(filled, "item"), gone=month_of(this_month(filled)) << 40)
        )
    found = check(filled)
    for each in said:
        assert any(each in problem.what for problem in found), found
    repair(filled)
    left = check(filled)
    assert len(left) == repaired, left
    assert not any("--repair" in problem.way_out for problem in left)


@pytest.mark.parametrize(
    ("change", "said", "left"),
    [
        ("DELETE FROM content", "6 items whose content is missing", 0),
        ("DELETE FROM item_content WHERE item = {last}", "1 items that have no content", 0),
        ("INSERT INTO item_content (item, key) VALUES ({gone}, 'x')", "1 digests of features whose item", 0),
        ("INSERT INTO settled_look VALUES ({gone}, 'x', 0, 0)", "1 looks whose item is gone", 0),
        ("UPDATE content SET leader = {first} WHERE label IS NULL", "1 contents that an item with other", 1),
        ("UPDATE item SET state = 2 WHERE id = {last} - 1", "1 copies for which no item", 1),
        ("UPDATE content SET label = 'x' WHERE label IS NOT NULL", "1 contents whose label is not", 0),
        ("UPDATE item_content SET opened = false", "1 items that people have labelled and", 0),
        ("UPDATE inferred SET sources = '{{0}}'", "3 inferred labels that follow from no label", 0),
        ("UPDATE inferred SET label = -label WHERE item = {first} + 1", "1 inferred labels without", 1),
        ("UPDATE content SET campaign = 'x'", "2 contents of a campaign that does not", 0),
    ],
)
def test_contradictions_of_contents(engine, change, said, left):
    for n, name, features in ((4, "o", SAME), (2, "p", OTHER)):
        keep(engine, rows(engine, [0.1] * n, name, features=features))
    with engine.begin() as connection:
        first, last = connection.execute(text("SELECT min(id), max(id) FROM item")).one()
    contents = Contents(engine, b"secret")
    contents.add_new()
    quarantine = Quarantine(engine)
    [item] = quarantine.claim("ann", 1).items
    quarantine.resolve("ann", item["id"], "malware")
    with engine.begin() as connection:
        connection.execute(text("UPDATE contents_known SET before = :id + 1"), {"id": last})
    assert check(engine) == []
    with engine.begin() as connection:
        gone = month_of(this_month(engine)) << 40
        connection.exec_driver_sql(change.format(first=first, last=last, gone=gone))
    assert any(said in problem.what for problem in check(engine)), check(engine)
    repair(engine)
    assert len(check(engine)) == left, check(engine)
    contents.work()
    assert all("without a label" in problem.what for problem in check(engine))


def fill_by_key(engine, n=6):
    """Keep objects whose keys are those of their sender, ids and features."""
    number = register(engine, Model(None, "d", Layout(3), ["goodware", "malware"], {}))
    features = encode(np.eye(3)[:1])[0]
    names = [f"ö{i}" for i in range(n)]
    about = (number, 1, 0.5, 0.5, 0.5, 1.0, None, None, False)
    rest = "sensor", None, "malware", None, features, None, None, None, True
    keep(engine, [(_key("sensor", name, features), *about, name, *rest) for name in names])


def identities(engine):
    with engine.connect() as connection:
        return set(connection.execute(text("SELECT key, item FROM identity")).all())


def test_repair_recreates_identities_exactly(engine):
    fill_by_key(engine)
    before = identities(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM identity"))
    assert [each.what for each in check(engine)] == ["6 items without an identity"]
    repair(engine)
    assert identities(engine) == before


@pytest.mark.parametrize("repairs", [1, 2])
def test_a_lost_month_that_comes_from_a_backup_after_a_repair_is_kept_once(engine, repairs):
    fill_by_key(engine)
    before = identities(engine)
    with engine.begin() as connection:
        for table in ("item", "payload"):
            connection.execute(text(f"CREATE TABLE backup_{table} AS TABLE {table}"))
            connection.execute(text(f"DROP TABLE {this(engine, table)}"))
    found = check(engine)[0]
    assert found.way_out == "--repair creates it; restore its items from a backup."
    for _ in range(repairs):
        repair(engine)
    assert len(identities(engine)) == (6 if repairs == 1 else 0)  # the second one gives the items up
    with engine.begin() as connection:
        for table in ("item", "payload"):
            connection.execute(text(f"INSERT INTO {table} SELECT * FROM backup_{table}"))
            connection.execute(text(f"DROP TABLE backup_{table}"))
    if repairs == 2:
        assert [each.what for each in check(engine)] == ["6 items without an identity"]
        repair(engine)
    assert check(engine) == []
    assert identities(engine) == before
    fill_by_key(engine)
    assert Quarantine(engine).counts()["waiting"] == 6


def test_objects_that_were_kept_twice_are_reported(engine):
    fill_by_key(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM identity"))
    fill_by_key(engine)
    (found,) = check(engine)
    assert found.what == "6 items whose object has another item"
    repair(engine)
    assert check(engine) == [found]


@pytest.mark.parametrize("table", ["item", "payload"])
def test_a_detached_partition_is_named_with_what_to_do(engine, table):
    fill_by_key(engine)
    name = this(engine, table)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
    found, *others = check(engine)
    assert [each.what for each in others if "counts" not in each.what] == []
    assert f"the table {name} is not attached to {table}: attach it" in found.way_out
    with pytest.raises(DatabaseError, match=f"the table {name} is not attached"):
        repair(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(found.way_out[found.way_out.index("(") + 1 : found.way_out.rindex(")")])
    repair(engine)
    assert check(engine) == []


def test_partitions_of_other_names_are_left_alone(filled):
    with filled.begin() as connection:
        connection.execute(text("CREATE TABLE item_rest PARTITION OF item DEFAULT"))
        connection.execute(text("CREATE TABLE old_2019_01 PARTITION OF payload FOR VALUES FROM (0) TO (9)"))
    try:
        assert check(filled) == []
        repair(filled)
        assert check(filled) == []
    finally:
        with filled.begin() as connection:
            connection.execute(text("DROP TABLE item_rest, old_2019_01"))


def test_the_command_says_what_is_wrong_and_ends_with_a_code(run, given, items, own_engine):  # noqa: F811
    assert run("check").stdout == "no contradictions.\n"
    assert json.loads(run("check", "--json").stdout) == {"problems": []}
    with own_engine.begin() as connection:
        connection.execute(text("DELETE FROM tally"))
    said = run("check", code=4).stdout
    assert "counts that differ from a scan: counts() is wrong; --repair recounts." in said
    assert "no contradictions" in run("check", "--repair").stdout
    assert Quarantine(own_engine).counts()["labelled"] == 1
    assert "there are partitions up to " in run("months").stderr


def test_an_object_is_kept_again_after_its_month_was_dropped_by_hand(engine, shared_database):
    fill(engine, 4)
    own = connect(shared_database)
    with own.begin() as connection:
        for table in ("item", "payload"):
            connection.execute(text(f"DROP TABLE {this(engine, table)}"))
    own.dispose()
    repair(engine)
    fill(engine, 4)
    assert check(engine) == []
    assert Quarantine(engine).counts()["waiting"] == 4
