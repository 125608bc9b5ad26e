"""Objects are kept exactly once and bit for bit, with a fair audit sample."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, spearmanr
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from tests.gate.conftest import drop_all
from transcendent.decisions import Decisions
from transcendent.gate.database import connect, drop_months, make_month, month_of
from transcendent.gate.features import decode
from transcendent.gate.intake import AUDITED, REJECTED, Draw, audit_secret, keep, register, to_keep
from transcendent.gate.model import Model
from transcendent.gate.quarantine import Quarantine
from transcendent.tables.layout import Layout

SECRET = bytes(range(32))
NOBODY = Draw(SECRET, 0)
OBJECT_ID = 10  # its place among what is kept of an object


def model_of(rejector, digest="d" * 64):
    return Model(rejector, digest, Layout(12), ["goodware", "malware"], {})


@pytest.fixture
def model(rejector):
    return model_of(rejector)


@pytest.fixture
def chosen(engine, model, problem):
    """A function that returns the objects to keep among some rows."""
    number = register(engine, model)

    def choose(rows, ids=None, draw=NOBODY, sender="sensor"):
        X = problem[0][rows]
        ids = [f"o{i}" for i in range(len(X))] if ids is None else ids
        kept = to_keep(number, draw, ids, [sender] * len(X), X, model.rejector.decide(X))
        return list(kept.values())

    return choose


def count(engine):
    with engine.connect() as connection:
        return connection.execute(
            text(
                "SELECT (SELECT count(*) FROM item), (SELECT count(*) FROM payload), "
                "(SELECT count(*) FROM identity), "
                "(SELECT count(*) FROM item JOIN payload USING (id) JOIN identity ON item = item.id)"
            )
        ).one()


def has(engine, n):
    return count(engine) == (n, n, n, n)


def move_to(engine, month):
    """Pretend that everything was kept in another month."""
    with engine.begin() as connection:
        make_month(connection, month)
        for table, column in (("item", "id"), ("payload", "id"), ("identity", "item")):
            connection.execute(
                text(f"UPDATE {table} SET {column} = {column} % (1::bigint << 40) + {month << 40}")
            )


def payloads(engine):
    with engine.connect() as connection:
        sql = text("SELECT * FROM item JOIN payload USING (id)")
        return {row["object_id"]: row for row in connection.execute(sql).mappings()}


def test_rejected_objects_are_kept_and_accepted_ones_are_not(engine, chosen, rejector, problem):
    keep(engine, chosen(slice(1000, 1500)))
    rejected = rejector.decide(problem[0][1000:1500]).rejected
    assert payloads(engine).keys() == {f"o{i}" for i in np.flatnonzero(rejected)}
    assert 20 < rejected.sum() < 480


def test_repetition_changes_nothing(engine, chosen):
    kept = chosen(slice(1000, 1200))
    keep(engine, kept)
    before = payloads(engine)
    for _ in range(2):
        keep(engine, kept)
        keep(engine, kept[::-1])
    assert has(engine, len(kept))
    assert payloads(engine) == before


def test_another_id_sender_or_content_is_another_item(engine, chosen):
    kept = chosen(slice(1000, 1200))
    n = len(kept)
    keep(engine, kept)
    keep(engine, chosen(slice(1000, 1200), ids=[f"p{i}" for i in range(200)]))
    assert has(engine, 2 * n)
    keep(engine, chosen(slice(1000, 1200), sender="another sensor"))
    assert has(engine, 3 * n)
    ids = {each[OBJECT_ID] for each in kept}
    changed = [each for each in chosen(slice(1200, 1400)) if each[OBJECT_ID] in ids]
    keep(engine, changed)
    assert has(engine, 3 * n + len(changed))
    assert changed


def test_duplicates_in_a_batch_are_one_item(engine, chosen):
    kept = chosen(slice(1000, 1100))
    keep(engine, [each for each in kept for _ in range(3)])
    assert has(engine, len(kept))


def test_nothing_to_keep_is_fine(engine, chosen):
    keep(engine, [])
    assert has(engine, 0)


def test_a_batch_is_kept_whole_or_not_at_all(engine, chosen):
    kept = chosen(slice(1000, 1100))
    with pytest.raises(IntegrityError):
        keep(engine, [*kept, (b"other", kept[-1][1], 9, *kept[-1][3:])])
    assert has(engine, 0)
    keep(engine, kept)
    assert has(engine, len(kept))


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def test_concurrent_gates_keep_the_same_objects_once(shared_database, engine, chosen):
    with engine.connect() as connection:
        before = connection.execute(text(DEADLOCKS)).scalar_one()
    kept = chosen(slice(1000, 2000))
    own = connect(shared_database, 12)

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(6):
            some = random.permutation(len(kept))[: len(kept) // 2]
            keep(own, [kept[i] for i in some])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    keep(own, kept)
    own.dispose()
    assert has(engine, len(kept))
    time.sleep(0.2)
    with engine.connect() as connection:
        assert connection.execute(text(DEADLOCKS)).scalar_one() == before


def test_objects_are_kept_once_if_the_connection_breaks(engine, chosen):
    kept = chosen(slice(1000, 1100))
    keep(engine, kept[:3])
    with engine.connect() as other:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        other.execute(text(f"{ended} AND pid <> pg_backend_pid()"))
        keep(engine, kept)
    assert has(engine, len(kept))


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.3, 0.5, 0.99])
def test_the_audit_draws_the_share_it_should(rate):
    draw = Draw(SECRET, rate)
    drawn = sum(draw(f"object {i}") for i in range(30_000))
    assert binomtest(drawn, 30_000, rate).pvalue > 1e-4


def test_the_audit_draws_nothing_at_rate_zero_and_everything_at_rate_one():
    names = [f"{i}" for i in range(2000)]
    assert not any(map(Draw(SECRET, 0), names))
    assert all(map(Draw(SECRET, 1), names))


def test_the_first_part_of_an_audit_is_a_random_sample():
    draw = Draw(b"secret", 0.2)
    drawn = [name for name in map(str, range(20_000)) if draw(name)]
    ranks = np.array([draw.rank(name) for name in drawn])
    assert ranks.max() < 1
    assert kstest(ranks, "uniform").pvalue > 1e-3
    assert spearmanr(ranks, np.arange(len(ranks))).pvalue > 1e-3


def test_the_audit_draws_alike_in_every_repetition_and_larger_rates_add_objects():
    names = [f"{i}" for i in range(5000)]
    few, again, more = ({name for name in names if Draw(SECRET, rate)(name)} for rate in (0.05, 0.05, 0.2))
    assert few == again
    assert few < more


def test_the_draw_cannot_be_predicted_without_the_secret():
    names = [f"{i}" for i in range(20_000)]
    first, second = ({name for name in names if Draw(key, 0.5)(name)} for key in (SECRET, SECRET[::-1]))
    assert binomtest(len(first & second), 20_000, 0.25).pvalue > 1e-4


def test_a_database_has_a_secret_of_its_own(engine):
    secret = audit_secret(engine)
    assert len(secret) == 32
    assert len(set(secret)) > 8
    assert audit_secret(engine) == secret


def test_the_audit_sample_is_kept_with_its_probability(engine, chosen, rejector, problem):
    draw = Draw(audit_secret(engine), 0.3)
    ids = [f"o{i}" for i in range(500)]
    keep(engine, chosen(slice(1000, 1500), draw=draw))
    accepted = rejector.decide(problem[0][1000:1500]).accepted
    found = payloads(engine)
    assert found.keys() == {name for name, good in zip(ids, accepted, strict=True) if not good or draw(name)}
    for name, row in found.items():
        assert row["accepted"] == accepted[int(name[1:])]
        assert row["probability"] == (0.3 if row["accepted"] else 1)
        assert row["tier"] == (AUDITED if row["accepted"] else REJECTED)
    assert Counter(row["accepted"] for row in found.values())[True] > 20


def test_everything_is_kept_at_rate_one(engine, chosen):
    keep(engine, chosen(slice(1000, 1300), draw=Draw(SECRET, 1)))
    assert has(engine, 300)
    assert {row["probability"] for row in payloads(engine).values()} == {1.0}


def test_kept_values_equal_the_decisions_bit_for_bit(engine, chosen, rejector, problem):
    X = problem[0][1000:1500]
    decisions = rejector.decide(X)
    kept = chosen(slice(1000, 1500))
    keep(engine, kept)
    for name, row in payloads(engine).items():
        place = int(name[1:])
        assert bytes(row["p_values"]) == decisions.p_values[place].tobytes()
        for column in ("credibility", "confidence"):
            assert row[column] == getattr(decisions, column)[place]
        assert row["rank"] == decisions.ranking[place]
        assert row["label"] == decisions.labels[place]
        positions, values = decode(bytes(row["features"]))
        whole = np.zeros(12)
        whole[positions] = values
        assert whole.tobytes() == X[place].tobytes()
        assert (row["sender"], row["state"], row["holder"]) == ("sensor", 0, None)


def test_votes_and_doubts_are_kept_where_there_are_any(engine, model):
    decisions = Decisions(
        labels=np.array([1, 0, 1]),
        accepted=np.array([False, True, False]),
        credibility=np.array([0.1, 0.9, 5e-324]),
        confidence=np.array([0.5, 0.7, 0.2]),
        classes=np.array([0, 1]),
        votes=np.array([3, 9, 0]),
        doubts=np.array([0, 1, 2]),
        ranked_by="confidence",
    )
    number = register(engine, model)
    kept = to_keep(number, NOBODY, ["a", "b", "c"], ["s"] * 3, np.eye(3, 12), decisions)
    assert list(kept) == [0, 2]
    keep(engine, list(kept.values()))
    found = payloads(engine)
    names = ("votes", "doubt", "rank", "label", "credibility", "p_values")
    assert [found["a"][name] for name in names] == [3, 0, 0.5, "1", 0.1, None]
    assert [found["c"][name] for name in names] == [0, 2, 0.2, "1", 5e-324, None]


def test_nothing_is_chosen_of_accepted_objects_without_an_audit(rejector, problem):
    X = problem[0][:1000]
    X = X[rejector.decide(X).accepted]
    ids = list(map(str, range(len(X))))
    assert to_keep(1, NOBODY, ids, ids, X, rejector.decide(X)) == {}


def test_an_object_of_an_earlier_month_is_known_until_its_month_is_dropped(engine, chosen):
    kept = chosen(slice(1000, 1100))
    keep(engine, kept)
    move_to(engine, month_of("2020-03"))
    keep(engine, kept)
    assert has(engine, len(kept))
    assert drop_months(engine, month_of("2020-04")) == ["2020-03"]
    assert count(engine)[0] == 0
    keep(engine, kept)
    keep(engine, kept)
    assert has(engine, len(kept))


def test_an_object_whose_item_is_gone_is_kept_again_and_once(shared_database, engine, chosen):
    kept = chosen(slice(1000, 1200))
    keep(engine, kept)
    with engine.begin() as connection:
        for table in ("item", "payload"):
            connection.execute(text(f"DELETE FROM {table}"))
    own = connect(shared_database, 8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: keep(own, kept[part:]), range(8)))
    own.dispose()
    assert has(engine, len(kept))


def test_acknowledged_objects_are_durable_whatever_the_default_of_the_role_is(
    shared_database, engine, chosen
):
    """A commit waits until the log is on disk, even if the default is not to wait."""
    own = connect(shared_database, 1)
    with own.begin() as connection:
        connection.execute(text("SET SESSION synchronous_commit = off"))
    said = []

    @event.listens_for(own, "commit")
    def ask(connection):
        said.append(connection.exec_driver_sql("SHOW synchronous_commit").scalar_one())

    keep(own, chosen(slice(1000, 1050)))
    Quarantine(own).resolve("ann", Quarantine(own).claim("ann").items[0]["id"], "malware")
    own.dispose()
    assert said == ["on", "off", "on"]  # nothing is lost with a claim


def test_a_missing_month_is_created_when_it_is_first_needed(shared_database, engine, chosen):
    kept = chosen(slice(1000, 1400))
    drop_all(engine)
    own = connect(shared_database, 8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda part: keep(own, kept[part:]), range(8)))
    own.dispose()
    assert has(engine, len(kept))


def test_a_model_is_registered_once(engine, rejector):
    with ThreadPoolExecutor(8) as pool:
        numbers = set(pool.map(lambda _: register(engine, model_of(rejector)), range(16)))
    assert len(numbers) == 1
    assert register(engine, model_of(rejector, "f" * 64)) not in numbers
