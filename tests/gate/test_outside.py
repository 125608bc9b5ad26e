"""Labels of other systems: what they settle, what they teach, and that they are never part of the audit."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.gate.test_quarantine import rows
from transcendent.errors import GateError
from transcendent.gate import read_labelled
from transcendent.gate.check import check
from transcendent.gate.events import Cursor, Events
from transcendent.gate.export import export_labelled
from transcendent.gate.intake import AUDITED, keep
from transcendent.gate.outside import OutsideLabels
from transcendent.gate.quarantine import ConflictError, LabelError, NoItemError, Quarantine


@pytest.fixture
def outside(own_engine):
    return OutsideLabels(own_engine, ["unclear"])


@pytest.fixture
def quarantine(own_engine):
    return Quarantine(own_engine, labels=["unclear"])


@pytest.fixture
def fill(own_engine):
    def keep_them(count, prefix="o", **given):
        keep(own_engine, rows(own_engine, [0.1] * count, prefix, **given))

    return keep_them


@pytest.fixture
def export(own_engine, tmp_path):
    """Return the labels that are exported, by object, with their source."""

    def exported():
        file = tmp_path / "labelled.parquet"
        n = export_labelled(own_engine, file)
        found = read_labelled(file)
        assert len(found.y) == n
        audited = dict(zip(found.table["gate_id"].to_pylist(), found.audited.tolist(), strict=True))
        names = ("gate_id", "gate_label", "gate_source")
        columns = [found.table[name].to_pylist() for name in names]
        return {id_: (*rest, audited[id_]) for id_, *rest in zip(*columns, strict=True)}

    return exported


def audited(fill, count=1):
    fill(count, "audit", tier=AUDITED, accepted=True, probability=0.5)


def kinds(engine):
    pages = Events(engine).all_after(Cursor())
    return [each["type"] for page in pages for each in page.events]


def test_a_rejected_object_is_settled_and_teaches_if_asked(own_engine, outside, quarantine, fill, export):
    fill(3)
    (first,) = outside.add("sandbox-1", "malware", "sandbox", object_id="o0", teach=True)
    (second,) = outside.add("sandbox-1", "goodware", "sandbox", object_id="o1", sender="sensor")
    assert (first["settled"], second["settled"]) == (True, True)
    assert quarantine.counts()["labelled"] == 2
    assert [each["object_id"] for each in quarantine.claim("ann", 9).items] == ["o2"]
    assert export() == {"o0": ("malware", "sandbox", False)}
    shown = quarantine.show(first["item"])
    assert shown["history"][-1]["author"] == "sandbox-1"
    assert shown["history"][-1]["reason"] == "sandbox"
    assert shown["outside"] == [first]
    assert kinds(own_engine) == ["rejected"] * 3 + ["labelled"] * 2
    quarantine.resolve("ann", quarantine.find("o2")[0]["item"], "malware")
    told = [each["data"] for each in Events(own_engine).after(Cursor()).events[3:]]
    assert [each.get("source") for each in told] == ["sandbox", "sandbox", None]
    assert check(own_engine) == []


def test_a_label_never_takes_an_object_out_of_the_audit(own_engine, outside, quarantine, fill, export):
    audited(fill, 2)
    before = quarantine.counts()
    outside.add("sandbox-1", "malware", "sandbox", object_id="audit0", teach=True)
    outside.add("sandbox-1", "malware", "sandbox", object_id="audit1")
    assert quarantine.counts() == before
    assert export() == {"audit0": ("malware", "sandbox", False)}  # teaches, and is not part of the audit
    with own_engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM label")).scalar_one() == 0
    items = {each["object_id"]: each["id"] for each in quarantine.claim("ann", 9).items}
    assert items.keys() == {"audit0", "audit1"}
    quarantine.resolve("ann", items["audit0"], "goodware")
    assert export() == {"audit0": ("goodware", None, True)}  # an analyst's label counts more
    assert kinds(own_engine) == ["outside", "outside", "labelled"]
    assert check(own_engine) == []


def test_what_an_analyst_holds_labelled_or_closed_stays(own_engine, outside, quarantine, fill, export):
    fill(2)
    held, labelled = quarantine.claim("ann", 2).items
    quarantine.resolve("ann", labelled["id"], "goodware")
    for item in (held["id"], labelled["id"]):
        (added,) = outside.add("sandbox-1", "malware", "sandbox", item=item, teach=True)
        assert not added["settled"]
    assert quarantine.resolve("ann", held["id"], "goodware")["label"] == "goodware"
    assert {label for label, _, _ in export().values()} == {"goodware"}
    fill(1, "closed")
    quarantine.close("d" * 64, "boss")
    (added,) = outside.add("sandbox-1", "malware", "sandbox", object_id="closed0")
    assert not added["settled"]
    assert quarantine.counts()["closed"] == 1
    assert check(own_engine) == []


def test_a_source_may_correct_itself_but_no_other(outside, quarantine, fill, export):
    fill(1)
    (first,) = outside.add("sandbox-1", "malware", "sandbox", object_id="o0", teach=True)
    assert outside.add("sandbox-1", "malware", "sandbox", object_id="o0", teach=True)[0]["settled"]
    assert len(quarantine.show(first["item"])["outside"]) == 1  # a repeated label changes nothing
    assert outside.add("sandbox-1", "goodware", "sandbox", object_id="o0", teach=True)[0]["settled"]
    assert export() == {"o0": ("goodware", "sandbox", False)}
    assert not outside.add("desk", "malware", "tickets", object_id="o0", teach=True)[0]["settled"]
    assert export() == {"o0": ("goodware", "sandbox", False)}
    quarantine.undo("boss", first["item"], anyone=True)
    assert quarantine.counts()["waiting"] == 1


def test_an_undone_label_teaches_no_more_and_may_be_given_again(outside, quarantine, fill, export):
    fill(1)
    given = {"object_id": "o0", "teach": True}
    (first,) = outside.add("sandbox-1", "malware", "sandbox", **given)
    quarantine.undo("boss", first["item"], anyone=True)
    assert export() == {}
    outside.add("desk", "goodware", "tickets", item=quarantine.claim("ann").items[0]["id"], teach=True)
    assert export() == {"o0": ("goodware", "tickets", False)}  # recorded while the item was held
    quarantine.release("ann")
    assert outside.add("sandbox-1", "malware", "sandbox", **given)[0]["settled"]
    assert quarantine.counts()["waiting"] == 0
    assert export() == {"o0": ("malware", "sandbox", False)}
    quarantine.undo("boss", first["item"], anyone=True)
    quarantine.claim("ann")
    quarantine.resolve("ann", first["item"], "goodware")
    for _ in range(2):
        assert not outside.add("sandbox-1", "malware", "sandbox", **given)[0]["settled"]
    assert len(quarantine.show(first["item"])["outside"]) == 4  # recorded once
    assert export() == {"o0": ("goodware", None, False)}


def test_sources_do_not_touch_each_others_labels(outside, quarantine, fill, export):
    fill(1)
    outside.add("sandbox-1", "malware", "sandbox", object_id="o0", teach=True)
    assert not outside.add("desk", "malware", "tickets", object_id="o0")[0]["settled"]
    assert outside.add("sandbox-1", "goodware", "sandbox", object_id="o0", teach=True)[0]["settled"]
    assert export() == {"o0": ("goodware", "sandbox", False)}
    audited(fill)
    given = {"object_id": "audit0"}
    outside.add("sandbox-1", "malware", "sandbox", **given, teach=True)
    outside.add("desk", "goodware", "tickets", **given)
    assert export()["audit0"] == ("malware", "sandbox", False)
    outside.add("desk", "goodware", "tickets", **given, teach=True)
    assert export()["audit0"] == ("goodware", "tickets", False)  # the newest of those that teach
    outside.add("desk", "goodware", "tickets", **given)
    assert export()["audit0"] == ("malware", "sandbox", False)
    outside.add("sandbox-1", "malware", "sandbox", **given)
    assert "audit0" not in export()


def test_an_id_of_more_objects_than_can_be_labelled_at_once_is_refused(
    outside, quarantine, fill, monkeypatch
):
    fill(1)
    fill(1, key=b"the same id")
    assert len(outside.add("x", "malware", "sandbox", object_id="o0")) == 2
    monkeypatch.setattr("transcendent.gate.outside._MAX_ITEMS", 1)
    with pytest.raises(ConflictError, match="more than 1 kept objects have this id: label them by item"):
        outside.add("x", "goodware", "sandbox", object_id="o0")
    assert all(each["label"] == "malware" for each in quarantine.find("o0"))


def test_what_is_refused(own_engine, outside, fill):
    fill(1)
    keep(own_engine, rows(own_engine, [0.5], "o", key=b"another", sender="other sensor"))
    with pytest.raises(ConflictError, match="several senders"):
        outside.add("x", "malware", "sandbox", object_id="o0")
    assert len(outside.add("x", "malware", "sandbox", object_id="o0", sender="sensor")) == 1
    with pytest.raises(NoItemError, match="no object with this id"):
        outside.add("x", "malware", "sandbox", object_id="unknown")
    with pytest.raises(NoItemError, match="no object with this id"):
        outside.add("x", "malware", "sandbox", object_id="o0", sender="nobody")
    with pytest.raises(NoItemError):
        outside.add("x", "malware", "sandbox", item=7)
    with pytest.raises(LabelError, match="is not one of the labels goodware, malware, unclear"):
        outside.add("x", "bad", "sandbox", object_id="o0", sender="sensor")
    for sql in (
        "UPDATE outside_label SET label = 'x'",
        "DELETE FROM outside_label",
        "TRUNCATE outside_label",
    ):
        with pytest.raises(DBAPIError, match="only added"), own_engine.begin() as connection:
            connection.execute(text(sql))


def test_over_http_by_the_role_for_it(gate, problem):
    sent = gate.client("probe").decide([f"h{i}" for i in range(100)], problem[0][1000:1100])
    name = next(each["id"] for each in sent if not each["accepted"])
    labeller = gate.client("sandbox-1", "labeller")
    (added,) = labeller.label("malware", "sandbox", object_id=name, sender="probe", reason="run", teach=True)
    assert (added["author"], added["source"], added["settled"]) == ("sandbox-1", "sandbox", True)
    analyst = gate.client("eve", "analyst")
    assert analyst.show(added["item"])["outside"] == [added]
    for given, status in (
        ({"object_id": "unknown"}, 404),
        ({"item": added["item"], "object_id": name}, 422),
        ({}, 422),
        ({"object_id": "a\nb"}, 422),
        ({"item": added["item"], "source_": 1}, 422),
    ):
        body = {"label": "malware", "source": "sandbox", **given}
        assert labeller._http.post("/v1/labels", json=body).status_code == status, given
    with pytest.raises(GateError) as error:
        analyst.label("malware", "sandbox", item=added["item"])
    assert error.value.status == 403
    with pytest.raises(GateError) as error:
        labeller.counts()
    assert error.value.status == 403
