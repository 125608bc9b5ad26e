"""Detectors of frames with text: sent by name, kept and exported exactly, and shown with names."""

import io

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.gate import frames
from tests.gate.conftest import gate_of, tables_on
from transcendent import InductiveEvaluator, save
from transcendent.errors import GateError
from transcendent.evaluators.columns import FittedColumns
from transcendent.gate import model as gate_model
from transcendent.gate import read_labelled
from transcendent.gate.features import decode, encode, read_rows
from transcendent.gate.ranges import Ranges
from transcendent.gate.shown_items import features_of
from transcendent.tables.layout import Layout

NAMES = ["size", "family", "signed"]
LAYOUT = Layout(
    3,
    NAMES,
    {"size": "number", "family": "text", "signed": "boolean"},
    {"size": "int64", "family": "str", "signed": "bool"},
)


def objects(*rows):
    return [{"id": str(i), "features": dict(zip(NAMES, row, strict=True))} for i, row in enumerate(rows)]


def test_objects_with_text_are_a_frame_of_the_types_of_the_fit():
    (group,) = read_rows(LAYOUT, objects([3, "zeus", True], [None, None, False])).groups
    assert group.rows["size"].tolist()[0] == 3
    assert (group.rows["size"].dtype, group.rows["signed"].dtype) == (np.float64, bool)
    assert group.rows["family"].isna().tolist() == [False, True]
    (group,) = read_rows(LAYOUT, objects([3, "zeus", 1], [3, "zeus", None])).groups
    assert group.rows["signed"].tolist()[0] is True
    assert pd.isna(group.rows["signed"][1])


@pytest.mark.parametrize(
    ("row", "field", "said"),
    [
        (["3", "a", True], "features.size", "'3' is not a number."),
        ([3, 7, True], "features.family", "7 is not text."),
        ([3, True, True], "features.family", "True is not text."),
        ([3, ["a"], True], "features.family", "list is not text."),
        ([3, "\ud800", True], "features.family", "the text has half of a character."),
        ([3, "a", "yes"], "features.signed", "'yes' is not a number."),
        ([3, "a", 2], "features.signed", "2 is neither true nor false."),
        ([float("inf"), "a", True], "features.size", "numbers must be finite."),
    ],
)
def test_a_value_of_another_kind_is_a_problem_of_its_object(row, field, said):
    parsed = read_rows(LAYOUT, objects([1, "b", False], row, [2, None, None]))
    assert parsed.problems == {1: (field, said)}
    assert parsed.groups[0].places.tolist() == [0, 2]


def test_other_forms_and_names_are_refused():
    sent = [
        {"id": "v", "values": [1, "a", True]},
        {"id": "p", "positions": [0], "values": [1]},
        {"id": "n", "features": {"size": 1, "family": "a"}},
    ]
    said = read_rows(LAYOUT, sent).problems
    assert [said[i].field for i in range(3)] == ["values", "positions", "features"]
    assert all("send features by name" in said[i].message for i in (0, 1))


cells = st.tuples(
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)),
    st.one_of(st.none(), st.text(alphabet=st.characters(exclude_categories=["Cs"]))),
    st.one_of(st.none(), st.booleans()),
)


@settings(max_examples=40)
@given(st.lists(cells, min_size=1, max_size=4))
def test_equal_features_are_equal_bytes_and_come_back(rows):
    (group,) = read_rows(LAYOUT, objects(*rows)).groups
    together = encode(group.rows)
    for row, encoded in zip(rows, together, strict=True):
        (alone,) = read_rows(LAYOUT, objects(row)).groups
        assert encode(alone.rows) == [encoded]
        back = dict(zip(*(each.tolist() for each in decode(encoded)), strict=True))
        for j, value in enumerate(row):
            found = back.get(j, 0)
            assert pd.isna(found) if value is None else found == value
    assert (len(set(together)) == 1) == (len(set(rows)) == 1)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_gate_a_file_and_python_agree_and_an_export_has_the_rows(server, tmp_path, seed):
    rejector, sent, file = frames.prepare(seed, tmp_path)
    with tables_on(server) as url, gate_of(url, tmp_path / "artifact", tmp_path, audit=1) as gate:
        clients = {role: gate.client(role, role) for role in ("client", "analyst", "operator")}
        assert frames.check(rejector, sent, file, clients, tmp_path / "artifact") > 0


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """A function that saves a rejector and loads it as a gate does."""
    monkeypatch.setattr(gate_model, "try_out", lambda *_: None)

    def load(rejector):
        save(rejector, tmp_path / "artifact")
        return gate_model.load_model(tmp_path / "artifact")

    return load


def test_required_values_are_found_beside_text(loaded):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=300), "family": rng.choice(["a", "b"], 300)})
    encoder = ColumnTransformer(
        [("coded", OneHotEncoder(handle_unknown="ignore"), ["family"])], remainder="passthrough"
    )
    detector = make_pipeline(encoder, LogisticRegression())
    model = loaded(InductiveEvaluator(detector, random_state=0).fit(frame, rng.random(300) < 0.5))
    assert model.needed[False].tolist() == [True, False]
    (group,) = read_rows(model.layout, objects_of(model, [[None, "a"], [1.5, None], [2, "nan"]])).groups
    problems = {}
    assert model.refuse_missing(group, problems).places.tolist() == [1, 2]
    assert "('size') is missing" in problems[0].message


def objects_of(model, rows):
    names = model.layout.names
    return [{"id": str(i), "features": dict(zip(names, row, strict=True))} for i, row in enumerate(rows)]


def test_documents_have_one_text_each(loaded):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["open", "close", "read", "write"], 6)) for _ in range(300)]
    detector = make_pipeline(TfidfVectorizer(), LogisticRegression())
    evaluator = InductiveEvaluator(detector, random_state=0).fit(texts, rng.random(300) < 0.5)
    model = loaded(evaluator)
    parsed = read_rows(
        model.layout,
        [*objects_of(model, [[text] for text in texts[:9]]), {"id": "x", "features": {"text": None}}],
    )
    assert parsed.problems == {9: ("features.text", "the text is missing.")}
    (group,) = parsed.groups
    np.testing.assert_array_equal(model.decide(group.rows).p_values, evaluator.decide(texts[:9]).p_values)
    assert [decode(each)[1].tolist() for each in encode(group.rows)] == [[text] for text in texts[:9]]
    assert model.ranges.outside(group.rows) == {}


def brute_force(low, high, rows):
    """The columns of each row whose distance from their range exceeds its width."""
    found = {}
    for i, row in enumerate(rows):
        away = [max(low[j] - cell, cell - high[j]) for j, cell in enumerate(row)]
        if outside := [j for j in range(len(row)) if away[j] > high[j] - low[j]]:
            found[i] = outside[:5]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_numbers_that_the_fit_never_saw_are_named_in_every_form(seed):
    rng = np.random.default_rng(seed)
    fitted, sent = (np.round(scale * rng.normal(size=(20, 9))) + (seed == 0) * 9 for scale in (1, 6))
    sent[rng.random(sent.shape) < 0.1] = np.nan
    names = [f"f{j}" for j in range(9)]
    columns = FittedColumns.of(fitted)
    expected = brute_force(fitted.min(axis=0), fitted.max(axis=0), sent)
    assert expected
    plain = Ranges(Layout(9), columns)
    assert plain.outside(sent) == plain.outside(sp.csr_matrix(sent)) == expected
    frame = pd.DataFrame(sent, columns=names)
    framed = Ranges(Layout(9, names), FittedColumns.of(pd.DataFrame(fitted, columns=names)))
    assert framed.outside(frame) == {i: [names[j] for j in found] for i, found in expected.items()}
    sparse = FittedColumns.of(sp.csr_matrix(fitted))
    with_zero = brute_force(np.minimum(fitted.min(axis=0), 0), np.maximum(fitted.max(axis=0), 0), sent)
    assert Ranges(Layout(9), sparse).outside(sp.csr_matrix(sent)) == with_zero
    assert Ranges(Layout(9), None).outside(sent) == {}


def test_only_numbers_far_beyond_the_range_are_outside():
    fitted = np.column_stack(
        [np.tile([0.0, 40.0], 5), np.full(10, 5.0), np.zeros(10), np.tile([-1e308, 1e308], 5)]
    )
    ranges = Ranges(Layout(4), FittedColumns.of(fitted))
    assert ranges.outside(np.array([[80, 10, 1, -1.7e308], [-40, 0, -1, 0]])) == {}
    far = np.array(
        [[81, 0, 0, 0], [-41, 11, 0, 0], [0, -1, 2, 0], [400, 50, -2, 0], [1e200, 1e200, 1e200, 0]]
    )
    assert ranges.outside(far) == {0: [0], 1: [0, 1], 2: [1, 2], 3: [0, 1, 2], 4: [0, 1, 2]}
    later = np.random.default_rng(0).normal(size=(1000, 100))
    assert Ranges(Layout(100), FittedColumns.of(later[:500])).outside(later[500:]) == {}


def test_an_answer_names_what_is_outside_and_an_item_has_names(server, tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "size": rng.integers(0, 40, 400),
            "family": rng.choice(["a", "b"], 400),
            "signed": rng.random(400) < 0.5,
        }
    )
    encoder = ColumnTransformer([("coded", OneHotEncoder(), ["family"])], remainder="passthrough")
    detector = make_pipeline(encoder, LogisticRegression())
    evaluator = InductiveEvaluator(detector, random_state=0).fit(frame, rng.random(400) < 0.5)
    save(evaluator, tmp_path / "artifact")
    sent = frame[:4].assign(size=[1e200, 0, 7.5, 3])
    with tables_on(server) as url, gate_of(url, tmp_path / "artifact", tmp_path, audit=1) as gate:
        sender, analyst = gate.client("sensor", "client"), gate.client("ann", "analyst")
        decisions = sender.decide(["w", "x", "y", "z"], sent)
        assert [each.get("outside") for each in decisions] == [["size"], None, None, None]
        assert [each["accepted"] for each in decisions] == evaluator.decide(sent).accepted.tolist()
        with pytest.raises(GateError, match="unknown categories") as error:
            sender.decide(["u", "v"], sent[2:].assign(family=["new", "a"]))
        assert [each is None for each in error.value.decisions] == [True, False]
        items = {each["object_id"]: each for each in analyst.claim(10)["items"]}
        row = sent.iloc[2]
        assert (items["y"]["features"], items["y"]["positions"]) == (row.to_dict(), None)
        assert items["x"]["features"] == sent.iloc[1].to_dict()  # 0 and False are shown
        for each in items.values():
            analyst.resolve(each["id"], "True")
        labelled = read_labelled(io.BytesIO(gate.client("root", "operator").labelled()))
        assert labelled.X["size"].dtype == np.float64  # 7.5 is not whole
        assert labelled.X["signed"].dtype == bool
        assert sorted(labelled.X["size"]) == [0, 3, 3, 7.5, 1e200]


def test_an_item_shows_some_of_many_names():
    names = [f"f{j}" for j in range(500)]
    shown = features_of(Layout(500, names), encode(np.arange(500.0)[None])[0], None)
    assert list(shown["features"].items()) == [(f"f{j}", float(j)) for j in range(1, 201)]
    assert shown["more_features"] == 299
