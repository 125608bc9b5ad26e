"""Summaries by day: equal to what the history says, whatever people do, and whoever else labels."""

import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import numpy as np
import pytest
from sqlalchemy import text

from tests.gate.test_quarantine import MODEL, rows
from transcendent.errors import TranscendentError
from transcendent.gate.contents import Contents
from transcendent.gate.days import DecidedDays
from transcendent.gate.deployments import deploy
from transcendent.gate.features import encode
from transcendent.gate.intake import AUDITED, keep, register
from transcendent.gate.opinions import SecondOpinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.pages.state import read_wall
from transcendent.gate.quarantine import Quarantine
from transcendent.gate.summaries import Summaries

HISTORY = """
SELECT DISTINCT ON (label.item) label.item, label.id, action, label.label, author,
    (written_at AT TIME ZONE 'UTC')::date AS day, payload.label AS predicted, payload.accepted,
    inferred.label IS NOT NULL AS inferred,
    EXISTS (SELECT FROM outside_label WHERE outside_label.action = label.id) AS outside
FROM label JOIN payload ON payload.id = label.item LEFT JOIN inferred ON inferred.label = label.id
ORDER BY label.item, label.id DESC
"""
WORK = """
SELECT day, sum(labels)::int AS labels, sum(caught)::int AS caught, sum(inferred)::int AS inferred,
    sum(outside)::int AS outside FROM work GROUP BY day
"""


def run(engine, sql, **given):
    with engine.begin() as connection:
        done = connection.execute(text(sql), given)
        return done.all() if done.returns_rows else None


def naive(engine):
    """Count the labels that stand, by a scan of the history."""
    found = {}
    for row in run(engine, HISTORY):
        if row.action == "label":
            how = "inferred" if row.inferred else "outside" if row.outside else "labels"
            counts = found.setdefault(row.day, Counter())
            counts[how] += 1
            wrong = not row.accepted and row.label in MODEL.classes and row.label != row.predicted
            counts["caught"] += how == "labels" and wrong
    return {day: dict(+counts) for day, counts in found.items()}


def counted(engine):
    found = {row.day: row._asdict() for row in run(engine, WORK)}
    days = {day: {k: n for k, n in counts.items() if k != "day" and n} for day, counts in found.items()}
    return {day: counts for day, counts in days.items() if counts}


def a_day_passes(engine):
    """Let everything have happened a day earlier."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE label DISABLE TRIGGER label_only_grows"))
        connection.execute(text("UPDATE label SET written_at = written_at - interval '1 day'"))
        connection.execute(text("ALTER TABLE label ENABLE TRIGGER label_only_grows"))
        connection.execute(text("UPDATE work SET day = day - 1, last_at = last_at - interval '1 day'"))


def fill(engine, chance):
    """Keep 60 objects: rejected ones of ten contents, and some of the audit."""
    number = register(engine, MODEL)
    contents = encode(np.random.default_rng(0).normal(size=(10, 3)))
    for i in range(60):
        given = {"features": contents[chance.randrange(10)], "model": number}
        given["label"] = chance.choice(MODEL.classes)
        if i % 6 == 0:
            given |= {"tier": AUDITED, "accepted": True}
        keep(engine, rows(engine, [chance.random()], f"{i}-", **given))
    Contents(engine, b"secret").add_new()


@pytest.mark.slow
@pytest.mark.parametrize("opinions", [1, 2])
def test_labels_of_a_day_are_those_that_a_scan_of_the_history_counts(engine, opinions):
    chance = random.Random(opinions)
    kind = Quarantine if opinions == 1 else SecondOpinions
    quarantine, outside = kind(engine, labels=["unclear"], max_held=1000), OutsideLabels(engine, ["unclear"])
    fill(engine, chance)
    items = [row.id for row in run(engine, "SELECT id FROM item ORDER BY id")]
    known = [*MODEL.classes, "unclear"]

    def claim(who):
        quarantine.claim(who, 5, skipped=True, opinions=opinions == 2 and chance.random() < 0.3)

    acts = {
        claim: 3,
        lambda who: quarantine.resolve(who, chance.choice(items), chance.choice(known)): 9,
        lambda who: quarantine.skip(who, chance.choice(items)): 6,
        lambda who: quarantine.undo(who, chance.choice(items), anyone=True): 5,
        lambda who: outside.add("box", chance.choice(known), "sandbox", item=chance.choice(items)): 6,
        lambda who: Summaries(engine).work(): 1,
    }
    done, seen = Counter(), set()
    for step in range(300):
        if step % 50 == 49:
            assert counted(engine) == naive(engine)
            seen |= {name for counts in naive(engine).values() for name in counts}
        if step in (100, 200):
            a_day_passes(engine)
        (act,) = chance.choices(list(acts), list(acts.values()))
        with suppress(TranscendentError):
            act(chance.choice(["ann", "bob"]))
            done[act] += 1
    assert len(done) == len(acts)
    assert seen == {"labels", "caught", "inferred", "outside"}
    assert len(naive(engine)) > 1


def test_time_runs_from_a_claim_or_an_action_to_the_next_and_long_pauses_are_capped(engine):
    fill(engine, random.Random(0))
    quarantine = Quarantine(engine, max_held=100)

    def pause(minutes):
        run(engine, "UPDATE work SET last_at = last_at - make_interval(mins => :n)", n=minutes)

    def seconds():
        return run(engine, "SELECT coalesce(sum(seconds), 0) FROM work")[0][0]

    items = [each["id"] for each in quarantine.claim("ann", 4).items]
    pause(2)
    quarantine.resolve("ann", items[0], "malware")
    assert seconds() == pytest.approx(120, abs=20)
    pause(3)
    quarantine.skip("ann", items[1])
    assert seconds() == pytest.approx(300, abs=20)
    pause(240)  # lunch
    quarantine.undo("ann", items[0])
    assert seconds() == pytest.approx(900, abs=20)
    pause(240)  # a claim begins anew
    items = [each["id"] for each in quarantine.claim("ann", 1).items]
    pause(1)
    Summaries(engine).work()
    quarantine.resolve("ann", items[0], "malware")
    assert seconds() == pytest.approx(960, abs=20)
    waiting = run(engine, "SELECT max(id) AS id FROM item WHERE state = 0 AND tier = 1")[0].id
    OutsideLabels(engine).add("box", "malware", "sandbox", item=waiting)
    assert seconds() == pytest.approx(960, abs=20)
    assert [row.author for row in run(engine, "SELECT author FROM work WHERE seconds > 0 GROUP BY 1")] == [
        "ann"
    ]


def test_names_are_dropped_after_two_days_and_sums_stay(engine):
    fill(engine, random.Random(0))
    quarantine = Quarantine(engine)
    for _ in range(3):
        (item,) = quarantine.claim("ann").items
        quarantine.resolve("ann", item["id"], "malware")
        a_day_passes(engine)
    before = counted(engine)
    Summaries(engine).work()
    assert counted(engine) == before == naive(engine)
    named = run(engine, "SELECT DISTINCT day FROM work WHERE author > '' ORDER BY day DESC")
    today = run(engine, "SELECT (now() AT TIME ZONE 'UTC')::date")[0][0]
    assert [row.day for row in named] == [today - timedelta(days=1)]
    assert len(run(engine, "SELECT FROM work WHERE day < (now() AT TIME ZONE 'UTC')::date - 1")) == 2


def test_what_was_decided_is_stored_once_however_often_it_is_flushed(engine):
    with engine.begin() as connection:
        sql = "INSERT INTO model (digest, classes, features) VALUES ('d', '[]', '{}') RETURNING id"
        number = deploy(connection, connection.execute(text(sql)).scalar_one(), "pinned", {}, "ann", "")
    day = run(engine, "SELECT floor(extract(epoch FROM now()) / 86400)::int")[0][0]
    clock = [86_400.0 * day - 10]
    one, other = (DecidedDays(engine, uuid4(), lambda: clock[0]) for _ in range(2))
    one.add(number, 10, 3)
    other.add(number, 5, 0)
    for each in (one, other, one):
        each.flush()
    clock[0] += 20
    one.add(number, 7, 7)
    clock[0] += 86_400  # ahead of the database
    one.add(number, 1, 0)
    for _ in range(2):
        one.flush()
    sql = "SELECT sum(objects)::int, sum(rejected)::int FROM decided_day GROUP BY day ORDER BY day"
    assert run(engine, sql) == [(15, 3), (8, 7)]


def test_what_waits_is_noted_once_a_minute(engine):
    fill(engine, random.Random(0))
    for _ in range(2):
        Summaries(engine).work()
    sql = "SELECT waiting, oldest >= 0 FROM waiting_day"
    assert run(engine, sql) == [(60, True)]
    run(engine, "UPDATE item SET state = 2 WHERE tier = 1")
    Summaries(engine).work()
    assert run(engine, sql) == [(60, True)]
    run(engine, "UPDATE waiting_day SET taken_at = now() - interval '2 minutes'")
    Summaries(engine).work()
    assert run(engine, sql)[0][0] < 60


def test_a_killed_gate_is_down_until_another_starts_on_its_host(engine):
    add = """INSERT INTO process (id, host, pid, version, started_at, seen_at) VALUES (:id, :host, :pid, '1',
        now() - make_interval(mins => :started), now() - make_interval(mins => :seen))"""
    for pid, host, started, seen in [(1, "a", 60, 10), (2, "a", 9, 0), (3, "b", 60, 10), (4, "b", 50, 0)]:
        run(engine, add, id=uuid4(), host=host, pid=pid, started=started, seen=seen)
    with engine.connect() as connection:
        gates = read_wall(connection, None, None).gates
    assert [(each["pid"], each["up"]) for each in gates] == [(2, True), (3, False), (4, True)]
