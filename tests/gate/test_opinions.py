"""Second opinions: who is asked, what is hidden from them, and what teaches."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.gate.test_quarantine import rows
from transcendent.errors import GateError
from transcendent.gate import read_labelled
from transcendent.gate.check import check
from transcendent.gate.database import drop_months, make_month, month_of
from transcendent.gate.deletion import ToDelete, delete
from transcendent.gate.export import export_labelled
from transcendent.gate.intake import keep
from transcendent.gate.opinions import SecondOpinions, agreement, opinions_on, wanting_opinions
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import ConflictError, LabelError, Quarantine
from transcendent.gate.retention import sweep

LABELS = ("malware", "goodware", "unclear")
PEOPLE = ("ann", "bob", "cid", "dan")


@pytest.fixture
def items(own_engine):
    return SecondOpinions(own_engine, labels=["unclear"])


@pytest.fixture
def fill(own_engine):
    def keep_them(count, prefix="o", **given):
        keep(own_engine, rows(own_engine, [0.1] * count, prefix, **given))

    return keep_them


@pytest.fixture
def taught(own_engine, tmp_path):
    """Return what is exported to learn from, by object."""

    def exported(opinions=2):
        file = tmp_path / "labelled.parquet"
        export_labelled(own_engine, file, opinions=opinions)
        found = read_labelled(file)
        return dict(zip(found.table["gate_id"].to_pylist(), found.y.tolist(), strict=True))

    return exported


def label(items, who, said, count=1):
    """Label the next items that wait, and return their numbers."""
    found = [each["id"] for each in items.claim(who, count).items]
    for each in found:
        items.resolve(who, each, said)
    return found


def opine(items, who, item, said):
    assert item in [each["id"] for each in items.claim(who, 100, opinions=True).items]
    items.resolve(who, item, said)
    items.release(who)


def test_two_analysts_must_agree_and_a_third_decides(items, fill, taught):
    fill(4)
    agreed, third, none, alone = label(items, "ann", "malware", 4)
    assert taught() == {}
    for item, said in ((agreed, "malware"), (third, "goodware"), (none, "goodware")):
        opine(items, "bob", item, said)
    assert taught() == {"o0": "malware"}
    assert items.claim("bob", 9, opinions=True).items[0]["id"] == alone
    assert len(items.claim("bob", 9, opinions=True).items) == 0
    items.release("bob")
    opine(items, "cid", third, "goodware")
    opine(items, "cid", none, "unclear")
    assert taught() == {"o0": "malware", "o1": "goodware"}
    assert taught(opinions=1) == dict.fromkeys(["o0", "o1", "o2", "o3"], "malware")
    assert [each["id"] for each in items.claim("dan", 9, opinions=True).items] == [alone]
    with items._engine.connect() as connection:
        assert agreement(connection)._asdict() == {
            "pairs": 3,
            "share": 1 / 3,
            "kappa": 0.0,
            "third": 1,
            "none": 1,
            "wanted": 1,
        }
    assert check(items._engine) == []


class Naive:
    """What should happen to one item, in the plainest way: a list of the words that stand, oldest first."""

    def __init__(self):
        self.words = []  # who, what and label

    def _of(self, what):
        return [(who, said) for who, kind, said in self.words if kind == what]

    @property
    def own(self):
        return next((said for _, said in self._of("label")), None)

    @property
    def others(self):
        return [said for _, said in self._of("opinion")]

    @property
    def taught(self):
        labels = [] if self.own is None else [self.own, *self.others]
        return next((each for each in labels if labels.count(each) > 1), None)

    @property
    def wants(self):
        return self.own is not None and len(self.others) < 2 and self.taught is None

    def asks(self, who):
        return self.wants and who not in [each for each, _, _ in self.words]

    def label(self, who, said):
        if self.own is not None:
            return False
        self.words = [each for each in self.words if each[0] != who] + [(who, "label", said)]
        return True

    def opine(self, who, said):
        return self.asks(who) and (self.words.append((who, "opinion", said)) or True)

    def skip(self, who):
        return self.asks(who) and (self.words.append((who, "skip", None)) or True)

    def undo(self, who):
        mine = [each for each in self.words if who == each[0] or (who == "boss" and each[1] != "skip")]
        if mine:
            self.words.remove(mine[-1])
        return bool(mine)


class Real:
    """The same on a database."""

    def __init__(self, items, item):
        self.items, self.item = items, item

    def label(self, who, said):
        mine = [each["id"] for each in self.items.claim(who, 1).items]
        if mine != [self.item]:
            return False
        self.items.resolve(who, self.item, said)
        return True

    def _asked(self, who):
        return [each["id"] for each in self.items.claim(who, 9, opinions=True).items] == [self.item]

    def opine(self, who, said):
        if not self._asked(who):
            with pytest.raises(ConflictError):  # it has a label, or nobody may opine; never a silent change
                self._resolve_other(who, said)
            return False
        done = self.items.resolve(who, self.item, said)
        assert self.items.resolve(who, self.item, said)["id"] == done["id"]
        return True

    def _resolve_other(self, who, said):
        self.items.resolve(who, self.item, said)
        raise ConflictError  # the label or opinion that they have, sent again

    def skip(self, who):
        if not self._asked(who):
            return False
        self.items.skip(who, self.item)
        return True

    def undo(self, who):
        try:
            self.items.undo(who, self.item, anyone=who == "boss")
        except ConflictError:
            return False
        return True


@pytest.mark.parametrize("sequences", [25, pytest.param(600, marks=pytest.mark.full)])
def test_all_orders_of_labels_opinions_skips_and_undos(own_engine, items, fill, taught, sequences):
    rng, expected, seen = np.random.default_rng(0), {}, Counter()
    for number in range(sequences):
        with own_engine.begin() as connection:
            connection.execute(text("DELETE FROM unconfirmed"))
            connection.execute(text("UPDATE item SET state = 2, holder = NULL WHERE state = 0"))
        fill(1, f"{number}-")
        naive, real = Naive(), Real(items, items.claim("zoe", 1).items[0]["id"])
        items.release("zoe")
        for _ in range(12):
            action = rng.choice(["label", "opine", "skip", "undo"], p=[0.25, 0.4, 0.15, 0.2])
            given = [str(rng.choice(PEOPLE if action != "undo" else (*PEOPLE, "boss")))]
            given += [str(rng.choice(LABELS))] if action in ("label", "opine") else []
            done = getattr(naive, action)(*given)
            assert getattr(real, action)(*given) == done, (number, action, given)
            seen[action, done] += 1
            with own_engine.connect() as connection:
                said = opinions_on(connection, [real.item])[real.item]
            assert (said.own, list(said.others)) == (naive.own, naive.others)
            assert (said.agreed, said.wants_another) == (naive.taught, naive.wants)
        for who in PEOPLE:
            claimed = items.claim(who, 9, opinions=True).items
            assert [each["id"] for each in claimed] == ([real.item] if naive.asks(who) else [])
            items.release(who)
        seen["taught", naive.taught] += 1
        if naive.taught is not None:
            expected[f"{number}-0"] = naive.taught
    assert taught() == expected
    assert min(seen[action, True] for action in ("label", "opine", "skip", "undo")) > sequences / 20
    assert min(seen["taught", each] for each in (None, *LABELS)) > sequences / 100


def test_one_item_is_taken_for_an_opinion(items, fill):
    fill(2)
    [first] = label(items, "ann", "malware")
    items.take("bob", first)
    items.resolve("bob", first, "goodware")
    items.undo("bob", first)
    items.take("bob", first)
    assert [each["id"] for each in items.held("bob")] == [first]
    with pytest.raises(ConflictError, match="already has a label"):
        items.take("cid", first)
    with items._engine.connect() as connection:
        assert [wanting_opinions(connection, who) for who in ("ann", "bob", "cid")] == [0, 0, 1]
    assert items.claim_next("cid", opinions=True) is None
    waiting = items.claim_next("cid")
    items.take("cid", waiting)
    assert [each["id"] for each in items.held("cid")] == [waiting]


def test_an_operator_undoes_the_newest_first(items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    opine(items, "bob", item, "goodware")
    done = items.undo("boss", item, anyone=True)
    assert (done["action"], done["author"]) == ("undo", "boss")
    with items._engine.connect() as connection:
        assert opinions_on(connection, [item])[item].others == ()
    assert items.show(item)["labelled"]
    items.undo("boss", item, anyone=True)
    assert not items.show(item)["labelled"]
    with pytest.raises(ConflictError):
        items.undo("boss", item, anyone=True)


def test_an_operator_undoes_the_label_though_an_analyst_left_the_opinion_to_others(items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    items.claim("cid", 1, opinions=True)
    items.skip("cid", item)
    items.undo("boss", item, anyone=True)
    assert not items.show(item)["labelled"]


def test_a_gate_without_opinions_does_not_tell_the_label(own_engine, items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    with pytest.raises(ConflictError, match=f"^item {item} already has a label, by ann.$"):
        Quarantine(own_engine).resolve("bob", item, "goodware")


def test_what_others_said_is_hidden_until_nobody_is_asked(items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    (claimed,) = items.claim("bob", 1, opinions=True).items
    public = ("predicted", "classes", "p_values")
    assert "malware" not in str([value for name, value in claimed.items() if name not in public])
    assert items.held("bob")[0]["id"] == item
    assert items.show(item, "bob")["history"] == []
    assert [each["label"] for each in items.show(item, "ann")["history"]] == ["malware"]
    assert [each["label"] for each in items.show(item)["history"]] == ["malware"]
    assert items.find("o0", who="bob")[0]["label"] is None
    assert items.find("o0", "sensor")[0]["label"] == "malware"
    items.resolve("bob", item, "malware")
    assert [each["label"] for each in items.show(item, "cid")["history"]] == ["malware"]
    assert items.find("o0", who="cid")[0]["label"] == "malware"


def test_an_opinion_needs_a_hold_and_is_a_label_alone(own_engine, items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    for who in ("ann", "bob"):
        with pytest.raises(ConflictError):
            items.resolve(who, item, "goodware")
    assert items.claim("ann", 1, opinions=True).items == []
    items.claim("bob", 1, opinions=True)
    assert items.claim("cid", 1, opinions=True).items == []
    with pytest.raises(ConflictError, match="has a label, and you do not hold it for an opinion"):
        items.resolve("cid", item, "goodware")
    for said, given in (("nonsense", {}), ("malware", {"note": "packed"}), ("malware", {"reason": "packed"})):
        with pytest.raises(LabelError):
            items.resolve("bob", item, said, **given)
    assert items.renew("bob") == [item] == items.release("bob")
    items.claim("bob", 1, opinions=True)
    items.resolve("bob", item, "goodware")
    with pytest.raises(ConflictError, match=r"your opinion on item .* is 'goodware': undo it first"):
        items.resolve("bob", item, "malware")
    with own_engine.begin() as connection, pytest.raises(DBAPIError, match="only added"):
        connection.execute(text("UPDATE opinion SET label = 'malware'"))


def test_a_hold_for_an_opinion_is_shown_and_counted(items, fill):
    fill(3)
    found = label(items, "ann", "malware", 2)
    items.claim("ann", 1)
    (claimed,) = items.claim("bob", 1, opinions=True).items
    assert (claimed["id"], claimed["holder"]) == (found[0], "bob")
    assert claimed["held_until"] > claimed["received_at"]
    assert items.held("bob") == [claimed]
    assert items.show(found[0], "cid")["holder"] == "bob"
    assert items.show(found[1])["holder"] is None
    assert items.counts()["held"] == 2
    items.resolve("bob", found[0], "malware")
    assert items.show(found[0])["held_until"] is None
    assert items.counts()["held"] == 1


def test_opinions_are_shown_to_operators_and_once_nobody_is_asked(items, fill):
    def seen(who):
        return [(each["author"], each["label"]) for each in items.show(item, who)["opinions"]]

    fill(1)
    (item,) = label(items, "ann", "malware")
    opine(items, "bob", item, "goodware")
    items.claim("dan", 1, opinions=True)
    items.skip("dan", item)
    bob = [("bob", "goodware")]
    assert (seen(None), seen("bob"), seen("ann"), seen("cid")) == (bob, bob, [], [])
    items.undo("ann", item)
    assert (seen(None), seen("bob"), seen("ann"), seen("cid")) == (bob, bob, [], [])
    label(items, "ann", "malware")
    opine(items, "cid", item, "unclear")
    assert seen(None) == seen("dan") == seen("ann") == [*bob, ("cid", "unclear")]
    items.undo("cid", item)
    assert (seen("cid"), seen("bob"), seen("ann")) == ([], bob, [])


def test_remarks_on_opinions_are_refused_and_not_lost(items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    items.claim("bob", 1, opinions=True)
    for given in ({"reason": "packed"}, {"note": "packed"}):
        with pytest.raises(LabelError, match="no reason and no note"):
            items.skip("bob", item, **given)
    assert [each["id"] for each in items.held("bob")] == [item]
    items.resolve("bob", item, "goodware")
    for who, anyone in (("bob", False), ("boss", True)):
        with pytest.raises(LabelError, match="no reason and no note"):
            items.undo(who, item, note="mistaken", anyone=anyone)
    items.undo("boss", item, anyone=True)
    assert items.undo("boss", item, note="mistaken", anyone=True)["note"] == "mistaken"  # of the label


def test_a_hold_ends_with_its_lease_and_is_limited(own_engine, items, fill):
    fill(3)
    found = label(items, "ann", "malware", 3)
    brief = SecondOpinions(own_engine, lease=0.001, max_held=2)
    claimed = brief.claim("bob", 9, opinions=True)
    assert ([each["id"] for each in claimed.items], claimed.room) == (found[:2], 0)
    assert [each["id"] for each in items.claim("cid", 2, opinions=True).items] == found[:2]
    with pytest.raises(ConflictError):
        items.resolve("bob", found[0], "malware")
    claimed = items.claim("bob", 9, opinions=True)
    assert ([each["id"] for each in claimed.items], claimed.held) == (found[2:], 2)


def test_undoing_the_label_takes_the_item_back_to_the_queue_and_opinions_stand(items, fill, taught):
    fill(1)
    (item,) = label(items, "ann", "malware")
    opine(items, "bob", item, "goodware")
    items.claim("cid", 1, opinions=True)
    items.undo("ann", item)
    assert taught() == {}
    with pytest.raises(ConflictError):
        items.resolve("cid", item, "goodware")
    assert label(items, "dan", "goodware") == [item]
    assert taught() == {"o0": "goodware"}
    assert items.claim("cid", 1, opinions=True).items == []


def test_undoing_an_opinion_leaves_the_hold_of_another(items, fill):
    fill(1)
    (item,) = label(items, "ann", "malware")
    opine(items, "bob", item, "goodware")
    items.claim("cid", 1, opinions=True)
    items.undo("bob", item)
    assert items.claim("bob", 1, opinions=True).items == []
    items.resolve("cid", item, "malware")
    assert items.claim("bob", 1, opinions=True).items == []


def test_analysts_who_claim_at_once_get_different_items(items, fill):
    fill(40)
    label(items, "ann", "malware", 40)
    with ThreadPoolExecutor(8) as pool:
        claims = [pool.submit(items.claim, f"analyst{i}", 5, opinions=True) for i in range(8)]
        found = [each["id"] for claim in claims for each in claim.result().items]
    assert len(found) == len(set(found)) == 40


def test_kappa_is_that_of_scikit_learn(items, fill):
    rng = np.random.default_rng(1)
    fill(60)
    first = rng.choice(LABELS, 60)
    second = np.where(rng.random(60) < 0.7, first, rng.choice(LABELS, 60))
    numbers = [each["id"] for each in items.claim("ann", 60).items]
    for item, said in zip(numbers, first, strict=True):
        items.resolve("ann", item, str(said))
    items.claim("bob", 60, opinions=True)
    for item, said in zip(numbers, second, strict=True):
        items.resolve("bob", item, str(said))
    with items._engine.connect() as connection:
        found = agreement(connection)
    assert found.pairs == 60
    assert found.share == (first == second).mean()
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second))


def test_a_label_from_elsewhere_is_an_opinion_of_its_source_if_it_teaches(own_engine, items, fill, taught):
    fill(2)
    fill(1, "audit", tier=0, accepted=True, probability=0.5)
    outside = OutsideLabels(own_engine)
    (teaches,) = outside.add("sandbox-1", "malware", "sandbox", object_id="o0", teach=True)
    (other,) = outside.add("sandbox-1", "malware", "sandbox", object_id="o1")
    outside.add("sandbox-1", "malware", "sandbox", object_id="audit0", teach=True)
    assert taught(opinions=1) == {"o0": "malware", "audit0": "malware"}
    assert taught() == {}
    assert [each["id"] for each in items.claim("bob", 9, opinions=True).items] == [teaches["item"]]
    items.resolve("bob", teaches["item"], "malware")
    assert taught() == {"o0": "malware"}
    outside.add("sandbox-1", "goodware", "sandbox", object_id="o0", teach=True)
    assert taught() == {}
    opine(items, "cid", teaches["item"], "malware")
    assert taught() == {"o0": "malware"}
    assert items.show(other["item"])["labelled"]


def test_labels_of_gates_without_opinions_are_in_the_queue(own_engine, items, fill):
    fill(2)
    plain = Quarantine(own_engine)
    first, second = [each["id"] for each in plain.claim("ann", 2).items]
    for item in (first, second):
        plain.resolve("ann", item, "malware")
    assert [each["id"] for each in items.claim("bob", 9, opinions=True).items] == [first, second]
    items.release("bob")
    plain.undo("ann", second)
    plain.claim("ann")
    plain.resolve("ann", second, "goodware")
    assert [each["id"] for each in items.claim("bob", 9, opinions=True).items] == [first, second]
    with pytest.raises(ConflictError, match="its setting opinions is 1"):
        plain.claim("bob", opinions=True)


def test_deleted_and_dropped_items_leave_the_queue(own_engine, items, fill, taught):
    def queue():
        with own_engine.connect() as connection:
            return connection.execute(text("SELECT count(*) FROM unconfirmed")).scalar_one()

    fill(2)
    first, _ = label(items, "ann", "malware", 2)
    opine(items, "bob", first, "malware")
    assert queue() == 1
    delete(own_engine, ToDelete("object", "o1"), "ann", "asked")
    assert queue() == 0
    fill(1, "p")
    label(items, "ann", "malware")
    with own_engine.begin() as connection:  # as if all of it had come years ago
        make_month(connection, month_of("2001-01"))
        old, moved = month_of("2001-01") << 40, "id & ((1::bigint << 40) - 1)"
        for table in ("item", "payload"):
            connection.execute(text(f"UPDATE {table} SET id = {old} | ({moved})"))
        for table in ("label", "opinion"):
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
            connection.execute(text(f"UPDATE {table} SET item = {old} | ({moved.replace('id', 'item')})"))
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
        connection.execute(text(f"UPDATE unconfirmed SET item = {old} | ({moved.replace('id', 'item')})"))
    assert (queue(), taught()) == (1, {"o0": "malware"})
    drop_months(own_engine, month_of("2002-01"))
    sweep(own_engine)
    assert (queue(), taught()) == (0, {"o0": "malware"})


def test_over_http(start_gate, problem):
    gate = start_gate(opinions=2, labels="unclear")
    client = gate.client()
    client.decide([f"o{i}" for i in range(100)], problem[0][1000:1100])
    ann, bob = (gate.client(name, "analyst") for name in ("ann", "bob"))
    boss = gate.client("boss", "operator")
    (item,) = ann.claim()["items"]
    ann.resolve(item["id"], "unclear")
    assert len(ann.claim(opinions=True)["items"]) == 0
    (again,) = bob.claim(opinions=True)["items"]
    assert (again["id"], again["holder"], again["held_until"] is None) == (item["id"], "bob", False)
    assert boss.counts()["held"] == 1
    with pytest.raises(GateError, match="no reason and no note"):
        bob.skip(item["id"], reason="packed")
    assert bob.show(item["id"])["history"] == []
    assert bob.find(item["object_id"])[0]["label"] is None
    assert boss.show(item["id"])["history"][0]["label"] == "unclear"
    assert client.find(item["object_id"])[0]["label"] == "unclear"
    assert len(boss.labelled(teach=True)) < len(boss.labelled())
    assert boss.show(item["id"])["opinions"] == []
    assert bob.resolve(item["id"], "unclear")["action"] == "opinion"
    (opinion,) = boss.show(item["id"])["opinions"]
    assert (opinion["label"], opinion["author"]) == ("unclear", "bob")
    with pytest.raises(GateError, match="either teach or since"):
        boss.labelled(teach=True, since="2020-01-01")
    (gate.log.parent / "labelled.parquet").write_bytes(boss.labelled(teach=True))
    assert read_labelled(gate.log.parent / "labelled.parquet").y.tolist() == ["unclear"]
