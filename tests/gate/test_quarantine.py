"""The quarantine: claims, leases, labels and counts."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.gate.conftest import drop_all
from transcendent.gate import wire
from transcendent.gate.database import connect, drop_months, make_month, make_months, month_of
from transcendent.gate.features import encode
from transcendent.gate.intake import AUDITED, COPY, REJECTED, SKIPPED, keep, register
from transcendent.gate.model import Model
from transcendent.gate.quarantine import (
    _BY_INDEX,
    _COUNTED,
    _HELD,
    MAX_CLAIMED,
    MAX_HISTORY,
    ConflictError,
    LabelError,
    NoItemError,
    Quarantine,
)
from transcendent.tables.layout import Layout

MODEL = Model(None, "d" * 64, Layout(3), ["goodware", "malware"], {})


def rows(engine, ranks, prefix="o", **given):
    """Objects to keep, one for each rank, named by its place."""
    number = register(engine, MODEL)
    features = encode(np.random.default_rng(0).normal(size=(len(ranks), 3)))
    made = []
    for i, rank in enumerate(ranks):
        row = {
            "key": f"{prefix}{i}".encode(),
            "model": number,
            "tier": REJECTED,
            "rank": float(rank),
            "credibility": float(rank),
            "confidence": 0.5,
            "probability": 1.0,
            "votes": None,
            "doubt": 1,
            "accepted": False,
            "object_id": f"{prefix}{i}",
            "sender": "sensor",
            "cutoff": 7,
            "label": "malware",
            "p_values": np.array([0.25, 0.5]).tobytes(),
            "features": features[i],
            "context": None,
            "seen_at": None,
            "shown": None,
            "kept": True,
        }
        made.append(tuple((row | given).values()))
    return made


@pytest.fixture
def fill(engine):
    """A function that keeps objects of some ranks."""

    def keep_them(ranks, prefix="o", **given):
        keep(engine, rows(engine, ranks, prefix, **given))

    return keep_them


@pytest.fixture
def quarantine(engine):
    return Quarantine(engine)


@pytest.fixture
def brief(engine):
    """A quarantine whose leases are over at once."""
    return Quarantine(engine, lease=0.02)


def names(claimed):
    return [item["object_id"] for item in claimed.items]


def ids(claimed):
    return [item["id"] for item in claimed.items]


def one(quarantine, who="ann"):
    (item,) = ids(quarantine.claim(who))
    return item


def test_the_audit_sample_comes_first_then_the_least_trusted_then_skipped_items(quarantine, fill):
    fill([0.5, 0.1, 0.3])
    fill([0.9, 0.8], "audit", tier=AUDITED, accepted=True, probability=0.1)
    first = quarantine.claim("ann", 3)
    assert names(first) == ["audit1", "audit0", "o1"]
    quarantine.skip("ann", ids(first)[0])
    quarantine.skip("ann", ids(first)[2])
    assert names(quarantine.claim("bob", 9)) == ["o2", "o0", "o1", "audit1"]


def test_equal_ranks_are_claimed_in_the_order_of_arrival(quarantine, fill):
    for number in range(5):
        fill([0.5], f"{number}_")
    assert names(quarantine.claim("ann", 5)) == [f"{number}_0" for number in range(5)]


def test_an_item_shows_all_that_was_decided(quarantine, engine, fill):
    fill([0.125])
    (item,) = quarantine.claim("ann").items
    now = datetime.now(UTC)
    assert item["object_id"] == "o0"
    assert (item["sender"], item["cutoff"]) == ("sensor", 7)
    assert item["holder"] == "ann"
    assert timedelta(minutes=14) < item["held_until"] - now < timedelta(minutes=16)
    assert abs(item["received_at"] - now) < timedelta(minutes=1)
    assert (item["predicted"], item["classes"]) == ("malware", ["goodware", "malware"])
    assert item["model"] == "d" * 64
    assert (item["credibility"], item["confidence"]) == (0.125, 0.5)
    assert item["p_values"] == {"goodware": 0.25, "malware": 0.5}
    assert (item["doubt"], item["votes"], item["probability"]) == ("like nothing known", None, 1.0)
    assert (item["accepted"], item["audit"], item["labelled"]) == (False, False, False)
    expected = np.random.default_rng(0).normal(size=(1, 3))[0].tolist()
    assert dict(zip(item["positions"], item["values"], strict=True)) == dict(enumerate(expected))
    assert quarantine.show(item["id"]) == {**item, "history": [], "outside": [], "earlier": 0}


def test_accepted_objects_show_no_doubt(quarantine, fill):
    fill([0.9], tier=AUDITED, accepted=True, probability=0.1)
    (item,) = quarantine.claim("ann").items
    assert (item["doubt"], item["audit"], item["probability"]) == (None, True, 0.1)


def test_two_analysts_never_get_the_same_item(shared_database, engine):
    keep(engine, rows(engine, np.random.default_rng(1).random(10_000)))
    own = connect(shared_database, 100)
    quarantine = Quarantine(own)

    def work(number):
        got = []
        while claimed := ids(quarantine.claim(f"analyst {number}", 50)):
            got += claimed
        return got

    with ThreadPoolExecutor(100) as pool:
        got = list(pool.map(work, range(100)))
    held = [item for each in got for item in each]
    assert len(held) == len(set(held))
    rest = 10_000 - len(held)
    held += ids(quarantine.claim("last", 10_000))
    assert len(held) == len(set(held)) == 10_000
    assert rest < 1000
    for number, each in list(enumerate(got))[:10]:
        mine = {item["id"] for item in quarantine.held(f"analyst {number}")}
        assert mine <= set(each)
        assert len(mine) == min(len(each), MAX_CLAIMED)
    assert quarantine.counts()["held"] == 10_000
    own.dispose()


def test_two_analysts_at_once_get_different_items(quarantine, fill):
    fill(range(2))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(quarantine.claim, ["ann", "bob"])
    assert {*names(first), *names(second)} == {"o0", "o1"}


def test_expired_leases_need_no_cleanup_job(brief, fill):
    fill(range(3))
    assert names(brief.claim("ann", 3)) == ["o0", "o1", "o2"]
    time.sleep(0.03)
    assert brief.counts()["held"] == 0
    assert names(brief.claim("bob", 3)) == ["o0", "o1", "o2"]
    assert brief.held("ann") == []


def test_an_expired_lease_is_taken_by_one_of_many(engine, fill):
    fill(range(5))
    Quarantine(engine, lease=0.01).claim("gone", 5)
    time.sleep(0.02)
    quarantine = Quarantine(engine)
    with ThreadPoolExecutor(10) as pool:
        got = list(pool.map(lambda n: ids(quarantine.claim(f"a{n}")), range(10)))
    taken = [item for each in got for item in each]
    assert len(taken) == len(set(taken))
    assert quarantine.counts()["held"] == len(taken)


def test_a_claim_without_items_shows_what_others_hold_and_until_when(engine, quarantine, fill):
    fill(range(3))
    soon = Quarantine(engine, lease=60).claim("ann", 1).items[0]
    quarantine.claim("bob", 1)
    claimed = quarantine.claim("eve", 5)
    assert (len(claimed.items), claimed.held, claimed.next_free) == (1, 2, soon["held_until"])
    claimed = quarantine.claim("eve", 5)
    assert (claimed.items, claimed.held, claimed.next_free) == ([], 2, soon["held_until"])


def test_own_items_do_not_count_as_held_by_others(quarantine, fill):
    fill(range(2))
    quarantine.claim("ann", 2)
    assert quarantine.claim("ann", 2) == ([], 0, None, 198)
    assert len(quarantine.held("ann")) == 2


def test_an_empty_quarantine_has_nothing_and_nobody_holds_anything(quarantine):
    assert quarantine.claim("ann", 5) == ([], 0, None, 200)
    assert quarantine.counts() == {
        "waiting": 0,
        "audit": 0,
        "rejected": 0,
        "skipped": 0,
        "copies": 0,
        "held": 0,
        "labelled": 0,
        "closed": 0,
        "over": 0,
        "campaigns": 0,
        "in_campaigns": 0,
    }


def test_a_holder_whose_lease_expired_may_still_label_while_nobody_has_taken_the_item(brief, fill):
    fill(range(2))
    first, second = ids(brief.claim("ann", 2))
    time.sleep(0.03)
    assert brief.resolve("ann", first, "malware")["label"] == "malware"
    assert brief.skip("ann", second)["action"] == "skip"


@pytest.mark.parametrize("expired", [True, False])
def test_a_holder_whose_item_was_taken_is_refused(engine, brief, fill, expired):
    fill([0])
    item = one(brief)
    time.sleep(0.03)
    assert one(brief if expired else Quarantine(engine), "bob") == item
    if expired:
        time.sleep(0.03)
    says = "claim it first" if expired else "bob holds it"
    with pytest.raises(ConflictError, match=says):
        brief.resolve("ann", item, "malware")
    with pytest.raises(ConflictError, match=says):
        brief.skip("ann", item)
    assert brief.resolve("bob", item, "goodware")["author"] == "bob"


def test_items_that_nobody_holds_cannot_be_labelled(quarantine, fill):
    fill([0])
    item = one(quarantine)
    quarantine.release("ann")
    with pytest.raises(ConflictError, match="claim it first"):
        quarantine.resolve("ann", item, "malware")


def test_a_label_is_written_with_reason_and_note(quarantine, fill):
    fill([0])
    item = one(quarantine)
    written = quarantine.resolve("ann", item, "malware", reason="packed", note="seen\nbefore")
    expected = {
        "action": "label",
        "label": "malware",
        "reason": "packed",
        "note": "seen\nbefore",
        "author": "ann",
    }
    assert written.items() >= expected.items()
    shown = quarantine.show(item)
    assert shown["history"] == [written]
    assert (shown["labelled"], shown["holder"], shown["held_until"]) == (True, None, None)
    assert quarantine.claim("bob", 5).items == []


def test_a_repeated_label_changes_nothing_and_another_is_refused(quarantine, fill):
    fill([0])
    item = one(quarantine)
    written = quarantine.resolve("ann", item, "malware")
    assert quarantine.resolve("ann", item, "malware") == written
    with pytest.raises(ConflictError, match="already has a label, by ann"):
        quarantine.resolve("ann", item, "goodware")
    with pytest.raises(ConflictError, match="already has a label, by ann"):
        quarantine.resolve("bob", item, "malware")
    with pytest.raises(ConflictError, match="undo it first"):
        quarantine.skip("ann", item)
    assert quarantine.show(item)["history"] == [written]


def test_of_many_labels_at_once_one_is_written(quarantine, fill):
    fill([0])
    item = one(quarantine)

    def label(number):
        try:
            return quarantine.resolve("ann", item, ["malware", "goodware"][number % 2])["id"]
        except ConflictError:
            return None

    with ThreadPoolExecutor(10) as pool:
        written = set(pool.map(label, range(10)))
    assert len(written - {None}) == 1
    assert len(quarantine.show(item)["history"]) == 1


def test_an_unknown_label_is_refused_and_the_allowed_ones_are_listed(engine, quarantine, fill):
    fill([0])
    item = one(quarantine)
    with pytest.raises(LabelError, match=r"'Malware' is not one of the labels goodware, malware\."):
        quarantine.resolve("ann", item, "Malware")
    more = Quarantine(engine, labels=["unclear"])
    with pytest.raises(LabelError, match=r"goodware, malware, unclear\."):
        more.resolve("ann", item, "unknown")
    assert more.resolve("ann", item, "unclear")["label"] == "unclear"


def test_labels_are_those_of_the_model_that_decided(engine, quarantine):
    number = register(engine, Model(None, "e" * 64, Layout(3), [0, 1], {}))
    keep(engine, rows(engine, [0], model=number))
    item = one(quarantine)
    with pytest.raises(LabelError, match=r"labels 0, 1\."):
        quarantine.resolve("ann", item, "malware")
    assert quarantine.resolve("ann", item, "1")["label"] == "1"


@pytest.mark.parametrize("act", ["resolve", "skip", "undo", "show"])
def test_unknown_items_are_refused(quarantine, fill, act):
    fill([0])
    args = {"resolve": ("ann", 5, "malware"), "skip": ("ann", 5), "undo": ("ann", 5), "show": (2**62,)}
    with pytest.raises(NoItemError, match="does not exist"):
        getattr(quarantine, act)(*args[act])


def test_a_lone_analyst_claims_skipped_items_again_on_request(quarantine, fill):
    fill([0.1, 0.2])
    item = one(quarantine)
    quarantine.skip("ann", item)
    assert names(quarantine.claim("ann", 5)) == ["o1"]
    assert names(quarantine.claim("ann", 5)) == []
    assert ids(quarantine.claim("ann", 5, skipped=True)) == [item]


def test_a_skipped_item_goes_to_others_and_not_back(quarantine, fill):
    fill([0])
    item = one(quarantine)
    written = quarantine.skip("ann", item, reason="unsure", note="ask bob")
    assert (written["action"], written["label"], written["reason"]) == ("skip", None, "unsure")
    assert quarantine.claim("ann", 5) == ([], 0, None, 200)
    assert quarantine.counts()["skipped"] == 1
    assert one(quarantine, "bob") == item
    quarantine.skip("bob", item)
    assert one(quarantine, "ann") == item


def test_ones_own_label_can_be_undone(quarantine, fill):
    fill([0])
    item = one(quarantine)
    quarantine.resolve("ann", item, "malware")
    written = quarantine.undo("ann", item, note="slipped")
    assert (written["action"], written["label"], written["note"]) == ("undo", None, "slipped")
    assert not quarantine.show(item)["labelled"]
    assert one(quarantine, "bob") == item
    quarantine.resolve("bob", item, "goodware")
    history = quarantine.show(item)["history"]
    assert [(each["action"], each["author"]) for each in history] == [
        ("label", "ann"),
        ("undo", "ann"),
        ("label", "bob"),
    ]


@pytest.mark.parametrize("accepted", [True, False])
def test_a_skip_can_be_undone_and_the_item_has_its_place_again(quarantine, fill, accepted):
    fill([0.9], "x", accepted=accepted, tier=AUDITED if accepted else REJECTED)
    fill([0.95])
    item = one(quarantine)
    quarantine.skip("ann", item)
    quarantine.undo("ann", item)
    assert names(quarantine.claim("ann", 2)) == ["x0", "o0"]


def test_an_item_has_its_last_actions_and_the_number_of_the_others(quarantine, fill):
    fill([0])
    item = one(quarantine)
    for _ in range(30):
        quarantine.resolve("ann", item, "malware", note="again")
        quarantine.undo("ann", item)
        quarantine.take("ann", item)
    quarantine.resolve("ann", item, "goodware")
    shown = quarantine.show(item)
    assert (len(shown["history"]), shown["earlier"]) == (MAX_HISTORY, 11)
    assert [each["action"] for each in shown["history"][-3:]] == ["label", "undo", "label"]
    assert shown["history"][-1]["label"] == "goodware"
    assert wire.ShownItem(**shown).earlier == 11


def test_others_labels_are_undone_by_operators_alone(quarantine, fill):
    fill([0])
    item = one(quarantine)
    quarantine.resolve("ann", item, "malware")
    with pytest.raises(ConflictError, match="last label is not yours: only its author or an operator"):
        quarantine.undo("bob", item)
    assert quarantine.undo("bob", item, anyone=True)["author"] == "bob"


def test_there_may_be_nothing_to_undo(quarantine, fill):
    fill([0])
    item = one(quarantine)
    with pytest.raises(ConflictError, match="no label or skip to undo"):
        quarantine.undo("ann", item)
    quarantine.resolve("ann", item, "malware")
    quarantine.undo("ann", item)
    with pytest.raises(ConflictError, match="no label or skip to undo"):
        quarantine.undo("ann", item)


def test_a_skip_is_not_undone_while_another_holds_the_item(engine, quarantine, brief, fill):
    fill([0])
    item = one(quarantine)
    quarantine.skip("ann", item)
    one(brief, "bob")
    quarantine.renew("bob")
    for anyone in (False, True):
        with pytest.raises(ConflictError, match="bob holds item"):
            quarantine.undo("ann", item, anyone=anyone)
    brief.renew("bob")
    time.sleep(0.03)
    assert quarantine.undo("ann", item)["action"] == "undo"
    with pytest.raises(ConflictError, match="claim it first"):
        quarantine.resolve("bob", item, "malware")


def test_leases_are_renewed(engine, quarantine, brief, fill):
    fill(range(4))
    mine, (other,) = ids(quarantine.claim("ann", 2)), ids(quarantine.claim("bob", 1))
    assert brief.renew("ann") == sorted(mine)
    assert quarantine.renew("ann", [mine[0], other, 12345]) == [mine[0]]
    time.sleep(0.03)
    assert ids(quarantine.claim("bob", 5))[0] == mine[1]
    assert quarantine.renew("ann") == [mine[0]]
    assert quarantine.renew("ann", []) == quarantine.renew("nobody") == []


def test_an_expired_lease_that_nobody_took_can_be_renewed(quarantine, brief, fill):
    fill([0])
    item = one(brief)
    time.sleep(0.03)
    assert quarantine.renew("ann") == [item]
    assert quarantine.claim("bob").items == []


def test_items_are_released(quarantine, fill):
    fill(range(5))
    mine = ids(quarantine.claim("ann", 3))
    others = ids(quarantine.claim("bob", 2))
    assert quarantine.release("ann", [mine[1], *others]) == [mine[1]]
    assert quarantine.release("ann", []) == []
    assert [item["id"] for item in quarantine.held("ann")] == [mine[0], mine[2]]
    assert ids(quarantine.claim("eve", 5)) == [mine[1]]
    assert sorted(quarantine.release("ann")) == sorted([mine[0], mine[2]])
    assert quarantine.release("ann") == quarantine.held("ann") == []
    assert quarantine.counts()["held"] == 3


def test_nobody_holds_a_labelled_item(quarantine, fill):
    fill(range(2))
    first, second = ids(quarantine.claim("ann", 2))
    quarantine.resolve("ann", first, "malware")
    assert [item["id"] for item in quarantine.held("ann")] == [second]
    assert quarantine.renew("ann") == quarantine.release("ann") == [second]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE label SET label = 'goodware'",
        "UPDATE label SET author = 'bob' WHERE false OR true",
        "DELETE FROM label",
        "TRUNCATE label",
        "TRUNCATE label, item CASCADE",
    ],
)
def test_the_history_of_labels_only_grows(engine, quarantine, fill, change):
    fill([0])
    item = one(quarantine)
    quarantine.resolve("ann", item, "malware")
    before = quarantine.show(item)["history"]
    with pytest.raises(DBAPIError, match="labels are only added"), engine.begin() as connection:
        connection.execute(text(change))
    assert quarantine.show(item)["history"] == before


def test_counts_are_of_all_states(quarantine, fill):
    fill(range(10))
    fill(range(4), "a", tier=AUDITED, accepted=True, probability=0.5)
    claimed = ids(quarantine.claim("ann", 8))
    for item in claimed[:3]:
        quarantine.resolve("ann", item, "malware")
    quarantine.skip("ann", claimed[3])
    quarantine.skip("ann", claimed[4])
    assert quarantine.counts() == {
        "waiting": 11,
        "audit": 0,
        "rejected": 9,
        "skipped": 2,
        "copies": 0,
        "held": 3,
        "closed": 0,
        "labelled": 3,
        "over": 0,
        "campaigns": 0,
        "in_campaigns": 0,
    }
    quarantine.undo("ann", claimed[3])
    assert quarantine.counts()["audit"] == 1


class TestLimit:
    def test_nobody_holds_more_than_the_most_and_the_answer_says_so(self, engine, fill):
        quarantine = Quarantine(engine, max_held=5)
        fill(range(20))
        first = quarantine.claim("ann", 3)
        assert (len(first.items), first.room) == (3, 2)
        second = quarantine.claim("ann", 3)
        assert (len(second.items), second.room) == (2, 0)
        assert quarantine.claim("ann", 3) == ([], 0, None, 0)
        assert len(quarantine.claim("bob", 3).items) == 3
        quarantine.resolve("ann", ids(first)[0], "malware")
        quarantine.skip("ann", ids(first)[1])
        quarantine.release("ann", ids(first)[2:])
        third = quarantine.claim("ann", 10)
        assert (len(third.items), third.room) == (3, 0)

    def test_what_has_expired_makes_room_and_only_then_is_given_up(self, engine, fill):
        quarantine = Quarantine(engine, lease=0.02, max_held=4)
        fill(range(20))
        first = ids(quarantine.claim("ann", 3))
        with engine.begin() as connection:  # so that the next claim gets others
            connection.execute(text("UPDATE item SET rank = 99 WHERE holder = 'ann'"))
        time.sleep(0.03)
        (other,) = ids(quarantine.claim("ann", 1))
        assert other not in first
        quarantine.resolve("ann", first[0], "malware")  # late, but nobody has taken it
        more = quarantine.claim("ann", 2)
        assert len(more.items) == 2
        with pytest.raises(ConflictError, match="claim it first"):
            quarantine.resolve("ann", first[1], "malware")

    def test_the_limit_holds_for_claims_at_once(self, engine, fill):
        quarantine = Quarantine(engine, max_held=10)
        fill(range(60))
        with ThreadPoolExecutor(8) as pool:
            claimed = list(pool.map(lambda _: quarantine.claim("ann", 3), range(8)))
        assert sum(len(each.items) for each in claimed) == 10


def scanned(engine):
    """The counts by a scan of all items."""
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT state, tier, count(*) FROM item GROUP BY 1, 2")).all()
    by = {(state, tier): n for state, tier, n in rows}
    tiers = {
        name: by.get((0, tier), 0)
        for tier, name in ((AUDITED, "audit"), (REJECTED, "rejected"), (SKIPPED, "skipped"), (COPY, "copies"))
    }
    return {
        "waiting": sum(tiers.values()),
        "closed": 0,
        **tiers,
        "labelled": sum(by.get((1, tier), 0) for tier in range(4)),
    }


def counted(quarantine):
    left_out = ("held", "over", "campaigns", "in_campaigns")
    return {name: n for name, n in quarantine.counts().items() if name not in left_out}


class TestCounts:
    @settings(max_examples=6, stateful_step_count=20, deadline=None)
    class Actions(RuleBasedStateMachine):
        """Random actions of three analysts, gates and operators; counts are those of a scan after each."""

        engine = None

        def __init__(self):
            super().__init__()
            drop_all(self.engine)
            make_months(self.engine)
            self.quarantine, self.kept = Quarantine(self.engine), 0

        analysts = st.sampled_from(["ann", "bob", "cleo"])

        @rule(n=st.integers(1, 5), audited=st.booleans())
        def keep(self, n, audited):
            self.kept += 1
            given = {"tier": AUDITED, "accepted": True} if audited else {}
            keep(self.engine, rows(self.engine, range(n), f"{self.kept}_", **given))

        @rule(who=analysts, n=st.integers(1, 5), act=st.sampled_from(["resolve", "skip", "release"]))
        def work(self, who, n, act):
            for item in ids(self.quarantine.claim(who, n, skipped=True)):
                {
                    "resolve": lambda item: self.quarantine.resolve(who, item, "malware"),
                    "skip": lambda item: self.quarantine.skip(who, item),
                    "release": lambda item: self.quarantine.release(who, [item]),
                }[act](item)

        @precondition(lambda self: self.kept > 0)
        @rule(place=st.integers(0, 99))
        def undo(self, place):
            with self.engine.connect() as connection:
                items = connection.execute(text("SELECT id FROM item ORDER BY id")).scalars().all()
            with suppress(ConflictError, NoItemError):
                self.quarantine.undo("ann", items[place % len(items)] if items else 0, anyone=True)

        @rule(year=st.integers(2000, 2003))
        def age(self, year):
            with self.engine.begin() as connection:
                month = month_of(f"{year}-05")
                make_month(connection, month)
                moved = "(SELECT id FROM item WHERE id >> 40 > 400 LIMIT 3)"
                for table in ("payload", "item"):
                    sql = (
                        f"UPDATE {table} SET id = id % (1::bigint << 40) + {month << 40} WHERE id IN {moved}"
                    )
                    connection.execute(text(sql))

        @rule(year=st.integers(2000, 2003))
        def drop(self, year):
            drop_months(self.engine, month_of(f"{year}-06"))

        @rule()
        def delete(self):
            with self.engine.begin() as connection:
                connection.execute(text("DELETE FROM item WHERE id IN (SELECT id FROM item LIMIT 1)"))

        @invariant()
        def counts_are_those_of_a_scan(self):
            assert counted(self.quarantine) == scanned(self.engine)

    def test_counts_are_those_of_a_scan_after_any_actions(self, engine):
        self.Actions.engine = engine
        run_state_machine_as_test(self.Actions)

    def test_counts_are_those_of_a_scan_while_many_work_and_lines_are_summed_up(
        self, shared_database, engine
    ):
        with engine.begin() as connection:  # always, not once in a while
            body = connection.execute(text("SELECT pg_get_functiondef('tally_items'::regproc)")).scalar_one()
            connection.exec_driver_sql(body.replace("random() < 0.003", "random() < 0.5"))
        own = connect(shared_database, 8)
        quarantine, seen = Quarantine(own, max_held=1000), []

        def work(number):
            for turn in range(6):
                keep(own, rows(own, range(10), f"{number}_{turn}_"))
                for item in ids(quarantine.claim(f"analyst{number}", 4)):
                    quarantine.resolve(f"analyst{number}", item, "malware")
                now = quarantine.counts()
                seen.append(now["waiting"] + now["labelled"])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        own.dispose()
        assert counted(Quarantine(engine)) == scanned(engine)
        assert max(seen) == 360
        with engine.begin() as connection:
            assert connection.execute(text("SELECT count(*) FROM tally")).scalar_one() < 60
            connection.exec_driver_sql(body)

    def test_counts_scan_no_items(self, engine, quarantine, fill):
        fill(range(10))
        plans = []
        for sql in (_COUNTED, _HELD):
            with engine.connect() as connection:
                connection.execute(text(_BY_INDEX))
                plans.append("\n".join(connection.execute(text(f"EXPLAIN {sql}")).scalars()))
        assert "item" not in plans[0]
        assert "Seq Scan on item" not in plans[1]
        assert "holder_idx" in plans[1]


def test_one_item_is_taken_unless_somebody_holds_it(engine, fill):
    fill([0.1, 0.2, 0.3])
    items = Quarantine(engine, max_held=2)
    with engine.connect() as connection:
        first, second, third = connection.execute(text("SELECT id FROM item ORDER BY id")).scalars()
    items.take("ann", second)
    items.take("ann", second)
    assert [each["id"] for each in items.held("ann")] == [second]
    with pytest.raises(ConflictError, match="ann holds it"):
        items.take("bob", second)
    items.take("ann", first)
    with pytest.raises(ConflictError, match="you hold 2 items"):
        items.take("ann", third)
    items.resolve("ann", first, "malware")
    with pytest.raises(ConflictError, match="already has a label"):
        items.take("bob", first)
    with engine.begin() as connection:
        connection.execute(text("UPDATE item SET held_until = now() WHERE id = :id"), {"id": second})
    items.take("bob", second)
    assert [each["id"] for each in items.held("bob")] == [second]
