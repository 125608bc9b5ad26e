"""Context and time of objects: bounded, shown and exported as they came, and never used to decide."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transcendent.errors import GateError
from transcendent.gate.database import connect
from transcendent.gate.export import export_labelled, read_labelled
from transcendent.gate.features import read_rows
from transcendent.gate.origin import DEEPEST_CONTEXT, LONGEST_CONTEXT, read_context, read_time
from transcendent.tables.layout import Layout

CONTEXT = {"name": "a\0b <script>'\"\\ é 😀", "path": ["C:", None, True, 1.5, -7], "more": {"": {}}}
TIME = "2026-11-18T09:30:00.25+02:00"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def nested(depth):
    return {"a": nested(depth - 1)} if depth > 1 else {}


def levels(given):
    if not isinstance(given, dict | list):
        return 0
    return 1 + max(map(levels, given.values() if isinstance(given, dict) else given), default=0)


@given(st.dictionaries(texts, values, max_size=4).filter(lambda each: "inf" not in json.dumps(each).lower()))
def test_a_context_comes_back_as_it_was_or_is_refused(context):
    if levels(context) <= DEEPEST_CONTEXT:
        assert json.loads(read_context(context)) == context
    else:
        with pytest.raises(ValueError, match="context may be nested 8 levels deep"):
            read_context(context)


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("a name", "must be a JSON object"),
        ([1], "must be a JSON object"),
        ({"a": "\ud800"}, "cannot be stored as JSON"),
        ({"a": nested(300)}, "cannot be stored as JSON"),
        (nested(DEEPEST_CONTEXT + 1), "8 levels deep"),
        ({"a": [[[[[[[[]]]]]]]]}, "8 levels deep"),
        ({"a": "x" * (LONGEST_CONTEXT - 7)}, "has 4,097 bytes; at most 4,096"),
    ],
)
def test_a_context_that_is_no_small_object_is_refused(context, said):
    with pytest.raises(ValueError, match=said):
        read_context(context)


def test_the_largest_contexts():
    assert len(read_context({"a": "x" * (LONGEST_CONTEXT - 8)})) == LONGEST_CONTEXT
    assert json.loads(read_context(nested(DEEPEST_CONTEXT))) == nested(DEEPEST_CONTEXT)
    assert read_context(None) is None


def test_times():
    assert read_time(TIME) == datetime(2026, 11, 18, 7, 30, 0, 250_000, tzinfo=UTC)
    assert read_time("2026-11-18T09:30") == read_time("2026-11-18 09:30:00Z")
    assert read_time(None) is None
    for bad in ("yesterday", "", 1763451000, True, [], "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"):
        with pytest.raises(ValueError, match="seen_at must be an ISO time such as 2026-11-18T09:30:00Z"):
            read_time(bad)


def test_a_bad_context_affects_only_its_object():
    row = {"id": "a", "values": [1, 2]}
    objects = [row, {**row, "context": CONTEXT}, {**row, "context": 3}, {**row, "seen_at": 3}]
    parsed = read_rows(Layout(2), [*objects, {**row, "context": None, "seen_at": TIME}])
    assert {place: problem.field for place, problem in parsed.problems.items()} == {
        2: "context",
        3: "seen_at",
    }
    (group,) = parsed.groups
    assert group.places.tolist() == [0, 1, 4]
    assert list(parsed.origins) == [1, 4]
    assert parsed.origins[4] == (None, read_time(TIME), None)


def test_analysts_and_exports_have_what_the_sender_said(gate, rejector, problem, tmp_path):
    X = problem[0][1000:1100]
    few = X[rejector.decide(X).rejected][:4].tolist()
    objects = [{"id": f"o{i}", "values": row} for i, row in enumerate(few)]
    sender, ann = gate.client("sender"), gate.client("ann", "analyst")
    plain = sender.decide_objects(objects[:1])
    assert sender.decide_objects([{**objects[0], "context": CONTEXT}]) == plain  # and is known
    sender.decide_objects([{**objects[1], "context": CONTEXT, "seen_at": TIME}, objects[2]])
    bad = [{**objects[0], "context": "x"}, {**objects[1], "seen_at": "x"}, {**objects[3], "context": {}}]
    with pytest.raises(GateError, match="2 of 3 objects") as error:
        sender.decide_objects(bad)
    assert [each["field"] for each in error.value.errors] == ["objects[0].context", "objects[1].seen_at"]
    items = {each["object_id"]: each for each in ann.claim(10)["items"]}
    assert {name: each["context"] for name, each in items.items()} == {
        "o0": None,
        "o1": CONTEXT,
        "o2": None,
        "o3": {},
    }
    assert read_time(items["o1"]["seen_at"]) == read_time(TIME)
    for name in ("o0", "o1"):
        ann.resolve(items[name]["id"], "malware")
    engine = connect(gate.database)
    export_labelled(engine, tmp_path / "labelled.parquet")
    engine.dispose()
    table = read_labelled(tmp_path / "labelled.parquet").table
    first, second = table["gate_context"].to_pylist()
    assert (first, json.loads(second)) == (None, CONTEXT)
    assert table["gate_seen_at"].to_pylist() == [None, read_time(TIME)]
