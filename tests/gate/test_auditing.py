"""The error among accepted answers, from the labels of the audit."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from scipy.stats import binom
from sqlalchemy import text

from tests.gate.conftest import tables_on
from tests.gate.test_quarantine import MODEL, rows
from transcendent.gate import folding
from transcendent.gate.auditing import AuditItem, harm_in, harm_of
from transcendent.gate.database import connect
from transcendent.gate.deployments import deploy
from transcendent.gate.folding import Folding
from transcendent.gate.intake import AUDITED, keep, register
from transcendent.gate.paging import list_alarms
from transcendent.gate.quarantine import Quarantine

CLASSES = ("goodware", "malware")
DAY = date(2026, 11, 1)


def item(rank, label, day=0, predicted="goodware"):
    return AuditItem(DAY + timedelta(day), rank, int(1000 * rank), predicted, label)


def counted(items):
    """Return numbers of labels, of wrong answers in both ways of counting, and of unclear ones."""
    harm = harm_of(items, CLASSES, 0.05)
    right, wrong = harm.unclear_right, harm.unclear_wrong
    assert right.labels == wrong.labels
    assert right.batches == wrong.batches
    return right.labels, right.wrong, wrong.wrong, harm.unclear


def test_of_each_day_the_items_before_the_first_without_a_label_count():
    items = [
        item(0.3, "malware"),
        item(0.1, "goodware"),
        item(0.2, None),
        item(0.4, "goodware", day=1),
        item(0.1, "malware", day=1),
        item(0.05, None, day=2),
        item(0.06, "malware", day=2),
    ]
    assert counted(items) == (3, 1, 1, 0)
    assert counted(reversed(items)) == (3, 1, 1, 0)
    assert counted([]) == (0, 0, 0, 0)


def test_what_is_unclear_counts_both_ways():
    items = [item(0.1, "unclear"), item(0.2, "malware"), item(0.3, "grey"), item(0.4, "goodware")]
    assert counted(items) == (4, 1, 3, 2)


def simulated(rng, days, keeps_easy=False):
    """Draw an audit whose wrong answers are often unclear; return its items and the error of each day."""
    items, errors = [], rng.uniform(0.1, 0.4, size=days)
    for day, error in enumerate(errors):
        n, answered = int(rng.integers(5, 20)), rng.uniform(0.3, 1.2)
        for rank in rng.random(n):
            wrong = rng.random() < error
            unclear = rng.random() < (0.7 if wrong else 0.05)
            label = "unclear" if unclear else "malware" if wrong else "goodware"
            if not (unclear and keeps_easy):
                items.append(item(rank, label if rank < answered else None, day))
    return items, errors


def covers(items, errors):
    """Return whether the interval has the mean error of the answers that count."""
    harm, counts = harm_of(items, CLASSES, 0.05), [0] * len(errors)
    for day in range(len(errors)):
        own = sorted(each for each in items if each.day == DAY + timedelta(day))
        labelled = [each.label is not None for each in own]
        counts[day] = labelled.index(False) if False in labelled else len(labelled)
    truth = np.average(errors, weights=counts)
    return harm.unclear_right.kept_error.low <= truth <= harm.unclear_wrong.kept_error.high


def test_intervals_cover_the_known_truth():
    """Without the unclear ones, most of them wrong, they would not."""
    rng, runs = np.random.default_rng(0), 40
    covered = sum(covers(*simulated(rng, 20)) for _ in range(runs))
    assert covered >= binom.ppf(0.001, runs, 0.95)
    biased = sum(covers(*simulated(rng, 20, keeps_easy=True)) for _ in range(runs))
    assert biased < covered / 2


def alarm_with(rng, error):
    """Return the alarm after 15 days with 20 labels each, if answers are wrong with this probability."""
    labels = np.where(rng.random((15, 20)) < error, "malware", "goodware").tolist()
    items = [item(i / 20, label, day) for day, own in enumerate(labels) for i, label in enumerate(own)]
    return harm_of(items, CLASSES, 0.05).unclear_right.alarm


def test_alarms_are_as_rare_as_said_and_come_when_the_promise_is_broken():
    rng, runs = np.random.default_rng(1), 30
    assert sum(alarm_with(rng, 0.05) is not None for _ in range(runs)) <= binom.ppf(0.999, runs, 0.05)
    assert sum(alarm_with(rng, 0.2) is not None for _ in range(runs)) >= 28


@pytest.fixture
def engine(server):
    with tables_on(server) as url:
        engine = connect(url)
        yield engine
        engine.dispose()


@pytest.fixture
def deployment(engine):
    """A deployment that was made a month ago, with 20 audit items of yesterday and the day before."""
    with engine.begin() as connection:
        made = deploy(connection, register(engine, MODEL), "pinned", {}, "test", "test")
        connection.execute(text("UPDATE deployment SET made_at = now() - interval '30 days'"))
    audit = {"tier": AUDITED, "accepted": True, "probability": 0.1, "label": "goodware"}
    keep(engine, rows(engine, np.arange(10) / 10, "a", **audit))
    keep(engine, rows(engine, np.arange(10) / 10, "b", **audit))
    keep(engine, rows(engine, np.arange(5) / 10, "r"))
    noon = datetime.now(UTC).replace(hour=12, minute=0)
    with engine.begin() as connection:
        for prefix, days in (("a", 2), ("b", 1), ("r", 1)):
            sql = """UPDATE item SET received_at = :moment FROM payload
            WHERE payload.id = item.id AND object_id LIKE :like"""
            given = {"moment": noon - timedelta(days), "like": f"{prefix}%"}
            connection.execute(text(sql), given)
    return made


def resolve_all(quarantine, labels):
    """Label audit items, claimed in the order of the queue, which is that of the draw."""
    items = [each for each in quarantine.claim("ann", 40).items if each["audit"]]
    for each in items:
        if label := labels.get(each["object_id"]):
            quarantine.resolve("ann", each["id"], label)
    return {each["object_id"]: each["id"] for each in items}


def found_in(engine, deployment):
    with engine.connect() as connection:
        harm = harm_in(connection, deployment, 0.05)
    return harm.unclear_right.labels, harm.unclear_right.wrong, harm.unclear_wrong.wrong


def test_labels_of_the_audit_count_until_they_are_taken_back(engine, deployment):
    quarantine = Quarantine(engine, labels=["unclear"])
    assert found_in(engine, deployment) == (0, 0, 0)
    labels = {f"a{i}": "goodware" for i in range(6)} | {f"b{i}": "goodware" for i in range(10)}
    labels |= {"a1": "malware", "b2": "unclear", "a8": "malware"}  # a6 and a7 have none
    ids = resolve_all(quarantine, labels)
    assert found_in(engine, deployment) == (16, 1, 2)
    quarantine.undo("ann", ids["a1"])
    assert found_in(engine, deployment) == (11, 0, 1)
    quarantine.claim("ann", 1)
    quarantine.skip("ann", ids["a1"])  # it still has no label
    assert found_in(engine, deployment) == (11, 0, 1)


def test_closed_items_end_the_run_and_those_never_drawn_do_not_count(engine, deployment):
    quarantine = Quarantine(engine)
    resolve_all(quarantine, {f"b{i}": "goodware" for i in range(4)})
    with engine.begin() as connection:  # an item that waited as rejected, and that a later model accepts
        sql = """UPDATE payload SET accepted = true FROM item WHERE item.id = payload.id AND object_id = 'r0'
        RETURNING payload.id"""
        closed = connection.execute(text(sql)).scalar_one()
        connection.execute(
            text("UPDATE item SET state = 2, rank = 0, tier = 0 WHERE id = :id"), {"id": closed}
        )
        sql = """INSERT INTO label (item, action, reason, author)
        VALUES (:id, 'close', 'accepted', 'gate')"""
        connection.execute(text(sql), {"id": closed})
    assert found_in(engine, deployment) == (4, 0, 0)
    quarantine.release("ann")
    quarantine.close(MODEL.digest, "operator")
    assert found_in(engine, deployment) == (4, 0, 0)


def test_today_and_items_before_the_deployment_do_not_count(engine, deployment):
    resolve_all(Quarantine(engine), {f"{p}{i}": "goodware" for p in "ab" for i in range(10)})
    assert found_in(engine, deployment) == (20, 0, 0)
    with engine.begin() as connection:
        sql = (
            "UPDATE item SET received_at = now() FROM payload WHERE payload.id = item.id AND object_id = 'b0'"
        )
        connection.execute(text(sql))
    assert found_in(engine, deployment) == (19, 0, 0)
    with engine.begin() as connection:
        connection.execute(text("UPDATE deployment SET made_at = now() - interval '36 hours'"))
    assert found_in(engine, deployment) == (9, 0, 0)  # noon of two days ago is at least 36 hours ago
    with engine.begin() as connection:
        connection.execute(text("UPDATE deployment SET made_at = now()"))
    assert found_in(engine, deployment) == (0, 0, 0)


def test_items_of_a_later_deployment_of_the_model_do_not_count(engine, deployment):
    resolve_all(Quarantine(engine), {f"{p}{i}": "goodware" for p in "ab" for i in range(10)})
    with engine.begin() as connection:
        sql = "SELECT model FROM deployment"
        model = connection.execute(text(sql)).scalar_one()
        numbers = [deploy(connection, model, each, {}, "test", "test") for each in ("active", "observe")]
        connection.execute(text("UPDATE deployment SET made_at = now() - interval '30 days'"))
        sql = "UPDATE deployment SET made_at = now() - interval '36 hours' WHERE id = :id"
        connection.execute(text(sql), {"id": numbers[1]})
    assert [found_in(engine, each)[0] for each in numbers] == [10, 10]
    assert found_in(engine, deployment)[0] == 20  # of gates that follow none, which go on


def test_nobody_waits_for_a_look_at_the_labels(engine, deployment, monkeypatch):
    class Served:
        rejector, unmonitored = None, "it cannot be monitored"

    looks = []

    def look(connection, *given):
        with one.begin() as other:  # another connection
            looks.append(other.execute(text("SELECT pg_try_advisory_xact_lock(3, 0)")).scalar_one())
        return harm_in(connection, *given)

    monkeypatch.setattr(folding, "harm_in", look)
    one = connect(engine.url.render_as_string(hide_password=False), 1)
    Folding(one, lambda: {deployment: Served}, 0.05, engine).fold_closed()
    one.dispose()
    assert looks == [True]


def test_harm_raises_one_alarm(engine, deployment):
    class Served:
        rejector, unmonitored = None, "it cannot be monitored"

    resolve_all(Quarantine(engine), {f"{p}{i}": "malware" for p in "ab" for i in range(10)})
    Folding(engine, lambda: {deployment: Served}).fold_closed()
    assert list_alarms(engine) == []  # nothing is promised
    for _ in range(2):
        Folding(engine, lambda: {deployment: Served}, 0.05).fold_closed()
    (alarm,) = list_alarms(engine)
    assert (alarm["kind"], alarm["at"]) == ("harm", 10)
