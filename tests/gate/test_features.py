"""Objects as rows and as bytes: the three forms, the problems of bad objects, and decoding."""

from itertools import zip_longest

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from transcendent.gate.features import LONGEST_ID, decode, encode, read_rows
from transcendent.tables.layout import Layout

WIDTH, NAMES = 4, ["a", "b", "c", "d"]
PLAIN, NAMED = Layout(WIDTH), Layout(WIDTH, NAMES)

GOOD = [
    {"id": "g0", "values": [1, 2.5, None, -0.0]},
    {"id": "g1", "positions": [3, 0], "values": [1.5, None]},
    {"id": "g2", "features": {"d": 4, "a": 1, "c": None, "b": -2.0}},
    {"id": "g3", "values": [0, 0, 0, 0]},
    {"id": "g4", "positions": [], "values": []},
    {"id": "g5", "features": {"a": 0, "b": 1, "c": 0, "d": 1}},
]
ROWS = np.array(
    [
        [1, 2.5, np.nan, 0],
        [np.nan, 0, 0, 1.5],
        [1, -2, np.nan, 4],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 1, 0, 1],
    ]
)

BAD = [
    ({"id": "x", "values": [1, 2, 3, "4"]}, "values[3]"),
    ({"id": "x", "values": [1, "7", 3, 4]}, "values[1]"),
    ({"id": "x", "values": [1, 2, float("inf"), 4]}, "values[2]"),
    ({"id": "x", "values": [1, -float("inf"), 3, 4]}, "values[1]"),
    ({"id": "x", "values": [[1], 2, 3, 4]}, "values[0]"),
    ({"id": "x", "values": [1, 2, {}, 4]}, "values[2]"),
    ({"id": "x", "values": [1, 2, 3]}, "values"),
    ({"id": "x", "values": [1, 2, 3, 4, 5]}, "values"),
    ({"id": "x", "values": []}, "values"),
    ({"id": "x", "values": "1234"}, "values"),
    ({"id": "x", "values": None}, "values"),
    ({"id": "x", "positions": [2, 1, 2], "values": [1, 2, 3]}, "positions"),
    ({"id": "x", "positions": [1, 1], "values": [0, 0]}, "positions"),
    ({"id": "x", "positions": [0, -1], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [0, 1, WIDTH], "values": [1, 2, 3]}, "positions[2]"),
    ({"id": "x", "positions": [1.5, 2], "values": [1, 2]}, "positions[0]"),
    ({"id": "x", "positions": [0, 2**64 - 1], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [0, 1e300], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [0, None], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [0, True], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [0, "1"], "values": [1, 2]}, "positions[1]"),
    ({"id": "x", "positions": [[0], 1], "values": [1, 2]}, "positions[0]"),
    ({"id": "x", "positions": [0, 1, 2], "values": [1, 2, "3"]}, "values[2]"),
    ({"id": "x", "positions": [0, 1], "values": [1, float("inf")]}, "values[1]"),
    ({"id": "x", "positions": [0, 1], "values": [1]}, "values"),
    ({"id": "x", "positions": 0, "values": [1]}, "positions"),
    ({"id": "x", "positions": [0], "values": 1}, "values"),
    ({"id": "x", "features": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}}, "features.e"),
    ({"id": "x", "features": {"a": 1, "b": 2, "c": 3}}, "features"),
    ({"id": "x", "features": {}}, "features"),
    ({"id": "x", "features": [1, 2, 3, 4]}, "features"),
    ({"id": "x", "features": {"d": 1, "c": 2, "b": {}, "a": 4}}, "features.b"),
    ({"id": "x", "features": {"a": 1, "b": 2, "c": "3", "d": 4}}, "features.c"),
    ({"id": "x", "features": {"a": 1, "b": 2, "c": 3, "d": [4]}}, "features.d"),
    ({"id": "x", "features": {"a": 1, "b": 2, "c": float("inf"), "d": 4}}, "features.c"),
    ({"id": "", "values": [1, 2, 3, 4]}, "id"),
    ({"id": "a\0b", "values": [1, 2, 3, 4]}, "id"),
    ({"id": "a\nb", "values": [1, 2, 3, 4]}, "id"),
    ({"id": "\ud800", "values": [1, 2, 3, 4]}, "id"),
    ({"id": "x" * (LONGEST_ID + 1), "values": [1, 2, 3, 4]}, "id"),
    ({"id": 7, "values": [1, 2, 3, 4]}, "id"),
    ({"id": None, "values": [1, 2, 3, 4]}, "id"),
    ({"values": [1, 2, 3, 4]}, "id"),
    ({}, "id"),
    ({"id": "x", "values": [1, 2, 3, 4], "extra": 1}, "extra"),
    ({"id": "x", "values": [1, 2, 3, 4], "features": {}}, ""),
    ({"id": "x", "positions": [1]}, ""),
    ({"id": "x"}, ""),
    (["x", [1, 2, 3, 4]], ""),
    ("x", ""),
    (None, ""),
    (3, ""),
]

numbers = st.one_of(
    st.none(), st.sampled_from([0, 1, 0.0, -0.0, 1.0, 2]), st.floats(allow_nan=False, allow_infinity=False)
)


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else np.asarray(rows, dtype=float)


def rows_by_place(parsed):
    """The row of each object that was read."""
    found = {}
    for group in parsed.groups:
        for place, row in zip(group.places.tolist(), dense(group.rows), strict=True):
            assert place not in found
            found[place] = row
    return found


def decoded(encoded, width):
    row = np.zeros(width)
    positions, values = decode(encoded)
    row[positions] = values
    return row


def encoded(layout, objects):
    parsed = read_rows(layout, objects)
    assert not parsed.problems
    by_place = {}
    for group in parsed.groups:
        by_place.update(zip(group.places.tolist(), encode(group.rows), strict=True))
    return [by_place[place] for place in range(len(objects))]


def same_bits(a, b):
    """Whether arrays are equal in each bit, except for the sign of zero."""
    return (np.asarray(a) + 0.0).tobytes() == (np.asarray(b) + 0.0).tobytes()


def test_dense_objects_are_an_array():
    (group,) = read_rows(PLAIN, [GOOD[0], GOOD[3]]).groups
    assert isinstance(group.rows, np.ndarray)
    np.testing.assert_array_equal(group.rows, ROWS[[0, 3]])
    assert np.signbit(group.rows[0, 3])


def test_sparse_objects_are_the_matrix_that_scipy_makes():
    sent = sp.random_array((50, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    sent.data[sent.indptr[7] : sent.indptr[8]] = 0
    sent.eliminate_zeros()
    objects = []
    for i in range(50):
        low, high = sent.indptr[i : i + 2]
        order = np.random.default_rng(i).permutation(np.arange(low, high))
        objects.append(
            {"id": f"{i}", "positions": sent.indices[order].tolist(), "values": sent.data[order].tolist()}
        )
    (group,) = read_rows(Layout(30), objects).groups
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(group.rows, name), getattr(sent, name))
    assert group.rows.shape == sent.shape
    assert group.rows.has_canonical_format


def test_named_objects_are_a_frame_and_so_are_dense_ones_of_a_detector_with_names():
    for objects, places in (([GOOD[2], GOOD[5]], [2, 5]), ([GOOD[0], GOOD[3]], [0, 3])):
        (group,) = read_rows(NAMED, objects).groups
        pd.testing.assert_frame_equal(group.rows, pd.DataFrame(ROWS[places], columns=NAMES))


@pytest.mark.parametrize("last", [7, None])
def test_true_and_false_are_one_and_zero_as_values_but_not_positions(last):
    sent = [True, False, 2, last]
    objects = [
        {"id": "0", "values": sent},
        {"id": "1", "positions": [0, 1, 2, 3], "values": sent},
        {"id": "2", "features": dict(zip(NAMES, sent, strict=True))},
    ]
    for row in rows_by_place(read_rows(NAMED, objects)).values():
        np.testing.assert_array_equal(row, np.array([1, 0, 2, last], dtype=float))
    bad = read_rows(NAMED, [{"id": "1", "positions": [0, True], "values": [1, 1]}])
    assert bad.problems[0].field == "positions[1]"


def test_forms_may_be_mixed_in_a_request():
    parsed = read_rows(NAMED, GOOD)
    assert parsed.ids == [f"g{i}" for i in range(6)]
    assert [group.places.tolist() for group in parsed.groups] == [[0, 3], [1, 4], [2, 5]]
    for place, row in rows_by_place(parsed).items():
        assert same_bits(row, ROWS[place])


def test_no_objects_give_no_rows():
    parsed = read_rows(NAMED, [])
    assert (parsed.ids, parsed.groups, parsed.problems) == ([], [], {})


@pytest.mark.parametrize("name", ["x" * LONGEST_ID, "ä ☃ 漢", "a b/c:d", "'; DROP TABLE item; --"])
def test_ids_may_be_any_printable_text(name):
    parsed = read_rows(PLAIN, [{"id": name, "values": [1, 2, 3, 4]}])
    assert (parsed.ids, parsed.problems) == ([name], {})


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_a_bad_object_has_one_problem_and_the_others_have_their_rows(bad, field):
    parsed = read_rows(NAMED, [*GOOD[:3], bad, *GOOD[3:]])
    assert list(parsed.problems) == [3]
    assert parsed.problems[3].field == field
    assert parsed.problems[3].message.endswith((".", "?"))
    rows = rows_by_place(parsed)
    assert sorted(rows) == [0, 1, 2, 4, 5, 6]
    for place, row in rows.items():
        assert same_bits(row, ROWS[place - (place > 3)])


@pytest.mark.parametrize(("bad", "field"), BAD)
def test_a_bad_object_alone_has_the_same_problem(bad, field):
    parsed = read_rows(NAMED, [bad])
    assert [problem.field for problem in parsed.problems.values()] == [field]
    assert parsed.groups == []
    assert parsed.problems[0] == read_rows(NAMED, [*GOOD, bad, *GOOD]).problems[6]


def test_each_of_many_bad_objects_has_its_problem():
    bad = [each for each, _ in BAD]
    objects = [each for pair in zip_longest(bad, GOOD * 20) for each in pair if each is not None]
    parsed = read_rows(NAMED, objects)
    expected = [field for each, field in BAD if each is not None]
    assert [parsed.problems[place].field for place in sorted(parsed.problems)] == expected
    assert len(rows_by_place(parsed)) == len(GOOD) * 20


def test_names_are_refused_if_the_detector_has_none():
    parsed = read_rows(PLAIN, [GOOD[0], GOOD[2]])
    assert parsed.problems[1].field == "features"
    assert "send values" in parsed.problems[1].message
    assert list(rows_by_place(parsed)) == [0]


def test_problems_name_the_way_out():
    def message(bad):
        return read_rows(NAMED, [bad]).problems[0].message

    assert "fitted on 4 features" in message({"id": "x", "values": [1]})
    assert "missing: c, d" in message({"id": "x", "features": {"a": 1, "b": 1}})
    assert "from 0 to 3" in message({"id": "x", "positions": [4], "values": [1]})
    assert len(message({"id": "x", "values": ["y" * 10_000] * 4})) < 200
    close = read_rows(Layout(2, ["size", "entropy"]), [{"id": "x", "features": {"size": 1, "Entropie": 2}}])
    assert "did you mean 'entropy'?" in close.problems[0].message


def test_only_the_first_unknown_name_gets_a_suggestion():
    many = [{"id": "x", "features": {"size": 1, f"entropy{i}": 2}} for i in range(3)]
    layout = Layout(2, ["size", "entropy"])
    for _ in range(2):
        said = [problem.message for problem in read_rows(layout, many).problems.values()]
        assert "did you mean" in said[0]
        assert said[1:] == ["no such feature."] * 2


@given(st.data())
def test_decoding_reverts_encoding(data):
    width = data.draw(st.integers(1, 12))
    sent = data.draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=5))
    rows = np.array(sent, dtype=float)
    for each, row in zip(encode(rows), rows, strict=True):
        assert same_bits(decoded(each, width), row)
        assert 0 not in decode(each)[1]
        assert len(each) <= 1 + 8 * width


@given(st.data())
def test_the_same_content_is_the_same_bytes_in_every_form_and_order(data):
    width = data.draw(st.integers(1, 12))
    row = data.draw(st.lists(numbers, min_size=width, max_size=width))
    layout = Layout(width, [f"f{i}" for i in range(width)])
    zeros = data.draw(st.sets(st.integers(0, width - 1)))
    positions = data.draw(st.permutations([i for i in range(width) if row[i] != 0 or i in zeros]))
    names = data.draw(st.permutations(list(enumerate(layout.names))))
    forms = [
        {"id": "x", "values": row},
        {"id": "x", "positions": positions, "values": [row[i] for i in positions]},
        {"id": "x", "features": {name: row[i] for i, name in names}},
    ]
    assert len(set(encoded(layout, forms))) == 1
    assert encoded(layout, forms[:1]) == encoded(Layout(width), forms[:1])


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=2))
def test_different_content_is_different_bytes(pair):
    first, second = (np.array(row, dtype=float) for row in pair)
    a, b = encode(np.array([first, second]))
    assert (a == b) == same_bits(first, second)


def test_a_row_is_encoded_alike_alone_and_among_others():
    rows = sp.random_array((40, 60), density=0.1, format="csr", rng=np.random.default_rng(1))
    rows.data[::3] = 1
    assert encode(rows) == [encode(rows[[i]])[0] for i in range(40)] == encode(rows.toarray())
    places = np.array([3, 1, 39])
    assert encode(rows, places) == encode(rows.toarray(), places) == [encode(rows)[i] for i in places]


def test_sets_take_four_bytes_a_member():
    (whole,) = encode(np.ones((1, 100)))
    assert len(whole) == 1 + 4 * 100
    (empty,) = encode(np.zeros((1, 100)))
    assert len(empty) == 1
    assert decode(empty)[0].tolist() == []
