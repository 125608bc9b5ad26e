"""Events as OCSF, ECS and CEF: hostile text comes back as it was, and stays within its line."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.told import DEPLOYED, HOSTILE, RAISED, event_of
from transcendent._utils.text import visible
from transcendent.gate.findings import FORMATS, as_cef, as_ecs, as_ocsf
from transcendent.gate.targets import KINDS


def as_seen(text):
    return visible(text, "\n\r")


def read_cef(line):
    """Return the header's fields and the extension's, as the specification says to read them."""
    parts, rest = [], line
    for _ in range(7):
        found = re.match(r"((?:[^|\\]|\\.)*)\|", rest, re.DOTALL)
        parts.append(re.sub(r"\\(.)", r"\1", found[1]))
        rest = rest[found.end() :]
    pairs = re.findall(r"(\w+)=((?:[^\\=]|\\.)*?)(?= \w+=|$)", rest, re.DOTALL)
    plain = {"n": "\n", "r": "\r"}
    values = {
        key: re.sub(r"\\(.)", lambda found: plain.get(found[1], found[1]), value, flags=re.DOTALL)
        for key, value in pairs
    }
    return parts, values


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_event_is_one_line_whatever_it_contains(form, kind, hostile):
    line = FORMATS[form](event_of(kind, object_id=hostile, reason=hostile, context={hostile: hostile}))
    assert "\n" not in line
    assert "\r" not in line
    assert line.isprintable()
    assert line.isascii() or form == "cef"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_cef_is_read_back_with_its_control_characters_escaped(hostile):
    given_data = {"object_id": hostile, "sender": hostile, "author": hostile, "reason": hostile}
    header, values = read_cef(as_cef(event_of("labelled", **given_data, context={"name": hostile})))
    assert header[:3] == ["CEF:0", "transcendent", "gate"]
    assert header[4:] == ["labelled", "Labelled by an analyst", "1"]
    assert (values["cs1Label"], values["cs1"]) == ("object_id", as_seen(hostile))
    assert (values["cs5Label"], values["cs5"]) == ("sender", as_seen(hostile))
    assert (values["suser"], values["reason"]) == (as_seen(hostile), as_seen(hostile))
    assert json.loads(values["cs6"]) == {"name": hostile}
    assert (values["cn1"], values["cfp1"], values["rt"]) == ("750000000000001", "0.125", "1794963600250")


@settings(max_examples=300, deadline=None)
@given(st.text(), st.text(), st.text(st.sampled_from("\\=|\n\r ab")))
def test_any_text_of_cef_is_read_back(first, second, third):
    _, values = read_cef(as_cef(event_of("labelled", object_id=first, author=second, reason=third)))
    assert (values["cs1"], values["suser"], values["reason"]) == (as_seen(first), as_seen(second), third)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_json_formats_is_read_back_as_it_was(hostile):
    event = event_of(object_id=hostile, context={"name": hostile})
    assert json.loads(as_ocsf(event))["unmapped"] == event["data"]
    assert json.loads(as_ecs(event))["transcendent"] == event["data"]
    assert json.loads(FORMATS["json"](event)) == event


def test_a_rejection_says_not_to_act_automatically():
    event = event_of()
    finding = json.loads(as_ocsf(event))
    assert (finding["class_uid"], finding["type_uid"], finding["time"]) == (2004, 200401, 1794963600250)
    assert finding["finding_info"]["title"] == "Rejected: do not act on the detector's answer automatically"
    assert (finding["confidence_id"], finding["is_alert"], finding["finding_info"]["uid"]) == (
        1,
        True,
        "750000000000001",
    )
    ecs = json.loads(as_ecs(event))
    assert (ecs["event"]["kind"], ecs["tags"]) == ("alert", ["do-not-act-automatically"])
    assert read_cef(as_cef(event))[1]["act"] == "do not act automatically"


def test_findings_are_created_updated_and_closed_under_one_id():
    kinds = ("rejected", "skipped", "labelled", "undone", "decided", "closed")
    found = [json.loads(as_ocsf(event_of(kind))) for kind in kinds]
    assert [each["activity_id"] for each in found] == [1, 2, 3, 2, 2, 3]
    assert len({each["finding_info"]["uid"] for each in found}) == 1


@pytest.mark.parametrize("kind", ["labelled", "outside"])
def test_a_label_of_another_system_names_it(kind):
    event = event_of(kind, label="malware", author="box-1", source="sandbox")
    finding = json.loads(as_ocsf(event))
    assert finding["finding_info"]["title"] == "Labelled by another system"
    assert finding["message"] == json.loads(as_ecs(event))["message"]
    assert finding["message"] == "Labelled by another system (sandbox): object a1"
    assert read_cef(as_cef(event))[0][5] == "Labelled by another system"


def test_a_deployment_is_no_finding_but_a_change():
    assert as_ocsf(DEPLOYED) is None
    ecs = json.loads(as_ecs(DEPLOYED))
    assert (ecs["event"]["category"], ecs["event"]["type"]) == (["configuration"], ["change"])
    assert (ecs["user"], ecs["event"]["reason"]) == ({"name": "boss"}, "better")
    header, values = read_cef(as_cef(DEPLOYED))
    assert (header[4], values["act"], values["suser"], "cn1" in values) == (
        "deployed",
        "active",
        "boss",
        False,
    )


def test_an_alarm_is_an_alert_but_no_change_and_no_finding():
    assert as_ocsf(RAISED) is None
    ecs = json.loads(as_ecs(RAISED))["event"]
    assert (ecs["kind"], ecs["category"], ecs["type"]) == ("alert", ["intrusion_detection"], ["info"])
    header, _ = read_cef(as_cef(RAISED))
    assert header[4:] == ["alarm", "Alarm of a monitor", "8"]


@pytest.mark.parametrize("text", ["plain", *HOSTILE])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("deployed", "alarm")])
def test_findings_are_valid_ocsf(kind, text):
    model = pytest.importorskip("py_ocsf_models.events.findings.detection_finding").DetectionFinding
    event = event_of(kind, author=text, label=text, object_id=text, reason=text, context={text: text})
    line = as_ocsf(event)
    read = model.model_validate_json(line)
    assert read.unmapped == event["data"]
    assert read.type_uid.value == read.class_uid * 100 + read.activity_id.value
    known = {**model.model_fields, "is_alert": None}
    assert json.loads(line).keys() <= known.keys()
