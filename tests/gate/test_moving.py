"""Features that moved: sums that add up exactly, and what they say."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from transcendent.decisions import Fitted
from transcendent.evaluators.columns import FittedColumns
from transcendent.gate.minutes import MinuteCounts
from transcendent.gate.moving import MAX_WATCHED, RowRange, WatchedFeatures, parts_of
from transcendent.tables.layout import Layout

RNG = np.random.default_rng(0)
FIT = RNG.normal(3, 2, (500, 6)) * (RNG.random((500, 6)) < 0.7)


def watching(X, names=None, kinds=None):
    columns = FittedColumns.of(pd.DataFrame(X, columns=names) if names else X)
    return WatchedFeatures.of(
        Layout(X.shape[1], names, kinds or {}), Fitted(columns=columns, n_rows=X.shape[0])
    )


def whole(watched, rows):
    return watched.sums([RowRange(rows, 0, rows.shape[0])])


@pytest.fixture
def rows():
    """Rows with zeros, missing values and numbers that are too large."""
    rng = np.random.default_rng(1)
    rows = rng.normal(3, 2, (400, 6)) * (rng.random((400, 6)) < 0.6)
    rows[5:9, 2] = np.nan
    rows[11, 3], rows[12, 4] = 1e308, -1e308
    return rows


def test_sums_are_those_of_steps_from_the_mean(rows):
    watched = watching(FIT)
    found = whole(watched, rows)
    with np.errstate(over="ignore"):
        steps = np.rint(np.clip((rows - FIT.mean(axis=0)) / FIT.std(axis=0) * 1024, -(2**20), 2**20))
    assert found[0] == 400
    assert found[1:7].tolist() == np.nansum(steps, axis=0).tolist()
    assert found[7:].tolist() == [0, 0, 4, 0, 0, 0]


def test_sparse_and_dense_rows_and_frames_have_the_same_sums(rows):
    watched, names = watching(FIT), list("abcdef")
    dense = whole(watched, rows).tolist()
    assert whole(watched, sp.csr_matrix(rows)).tolist() == dense
    assert whole(watching(FIT, names), pd.DataFrame(rows, columns=names)).tolist() == dense


@pytest.mark.parametrize("texts", [1, 60])
def test_numbers_beside_text_have_the_same_sums(rows, texts):
    names = [f"t{i}" for i in range(texts)]
    fit, later = (
        pd.concat([pd.DataFrame(dict.fromkeys(names, "exe"), index=range(len(X))), pd.DataFrame(X)], axis=1)
        for X in (FIT, rows)
    )
    fit.columns = later.columns = [*names, *"abcdef"]
    layout = Layout(texts + 6, list(fit.columns), dict.fromkeys(names, "text"))
    watched = WatchedFeatures.of(layout, Fitted(columns=FittedColumns.of(fit), n_rows=len(fit)))
    assert watched.names == list("abcdef")
    numbers = watching(FIT)
    assert whole(watched, later).tolist() == whole(numbers, rows).tolist()
    some = [RowRange(later, 3, 90, 4), RowRange(later, 90, 100)]
    assert watched.sums(some).tolist() == numbers.sums([part._replace(rows=rows) for part in some]).tolist()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_sums_of_any_parts_in_any_order_add_up(rows, form):
    watched, rng = watching(FIT), np.random.default_rng(2)
    expected = whole(watched, form(rows))
    for _ in range(5):
        order = rng.permutation(len(rows))
        owners = np.sort(rng.integers(9, size=len(rows)) * 3)
        parts = parts_of(form(rows[order]), owners)
        assert {owner: part.stop - part.start for owner, part in parts.items()} == {
            owner: (owners == owner).sum() for owner in owners.tolist()
        }
        by_owner = {owner: watched.sums([part]) for owner, part in parts.items()}
        assert np.array_equal(by_owner[owners[-1]], whole(watched, form(rows[order][owners == owners[-1]])))
        assert np.array_equal(sum(by_owner.values()), expected)
        assert np.array_equal(watched.sums(list(parts.values())), expected)
        assert sum(part.values for part in parts.values()) == form(rows).size
    assert parts_of(form(rows[:0]), np.arange(0)) == {}
    assert list(parts_of(form(rows), np.full(400, 7))) == [7]


def test_parts_of_several_forms_add_up(rows):
    watched, before = watching(FIT), rows.copy()
    parts = [RowRange(rows, 0, 150), RowRange(sp.csr_matrix(rows), 150, 300), RowRange(rows, 300, 400)]
    assert np.array_equal(watched.sums(parts), whole(watched, rows))
    assert np.array_equal(before, rows, equal_nan=True)  # rows stay as they are


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_a_sample_is_one_row_in_four_whatever_the_process(rows, form):
    watched, drawn = watching(FIT), []
    for name in map(str, range(40)):
        part = RowRange(form(rows), 10, 33).sample(name)
        chosen = rows[part.start : 33 : 4]
        assert part == RowRange(part.rows, part.start, 33, 4)
        assert np.array_equal(watched.sums([part]), whole(watched, chosen))
        drawn.append(part.start - 10)
        assert RowRange(form(rows), 7, 8).sample(name).n == (drawn[-1] == 0)
    assert set(drawn) == {0, 1, 2, 3}
    empty = RowRange(form(rows), 7, 8, 4)._replace(start=8)
    assert watched.sums([empty]).tolist() == [0] * 13
    RowRange(rows, 0, 1).sample("\ud800")


def test_rows_wait_until_there_are_many_and_none_is_lost(rows):
    watched, counts = watching(FIT), MinuteCounts()
    for i in range(400):
        counts.observe([i], watched, [RowRange(rows, i, i + 1)])
        assert len(counts._waiting) <= 1000
    assert counts.sums is None
    counts.add_up(watched)
    assert np.array_equal(counts.sums, whole(watched, rows))
    many = np.tile(rows, (100, 1))
    counts.observe([], watched, [RowRange(many, 0, 40_000)])  # too many to wait
    assert np.array_equal(counts.sums, 101 * whole(watched, rows))
    for _ in range(3):
        for i in range(400):
            counts.observe([], watched, [RowRange(rows, i, i + 1)])
    assert len(counts._waiting) == 200
    counts.add_up(watched)
    assert np.array_equal(counts.sums, 104 * whole(watched, rows))


def test_what_moved_is_found_and_said_in_standard_deviations(rows):
    watched = watching(FIT, list("abcdef"))
    later = np.tile(FIT, (10, 1)) + np.array([0, 0, 1.5, 0, -0.6, 0]) * FIT.std(axis=0)
    later[:, 5] = np.nan
    found = watched.moved(whole(watched, later))
    assert [each["feature"] for each in found] == ["f", "c", "e"]
    assert found[0]["moved"] is found[0]["now"] is None
    assert found[1]["moved"] == pytest.approx(1.5, abs=0.01)
    assert found[1]["fit"] == pytest.approx(FIT[:, 2].mean())
    assert found[1]["now"] == pytest.approx(later[:, 2].mean(), abs=0.01)
    assert found[2]["moved"] == pytest.approx(-0.6, abs=0.01)
    assert watched.moved(whole(watched, later), 1) == found[:1]


def test_nothing_is_said_without_drift_or_of_other_features():
    rng, said = np.random.default_rng(3), 0
    for n in (30, 300, 30_000):
        for _ in range(20):
            X = rng.normal(size=(1000, 50))
            watched = watching(X)
            said += bool(watched.moved(whole(watched, rng.normal(size=(n, 50)))))
    assert said <= 1
    assert watched.moved(np.zeros(101, dtype=int)) == []
    assert watched.moved(np.ones(99, dtype=int)) == []


def test_of_many_features_those_that_vary_most_are_watched():
    rng = np.random.default_rng(4)
    often = np.linspace(0.001, 0.5, 2 * MAX_WATCHED)
    X = sp.csr_matrix((rng.random((2000, len(often))) < often) * rng.uniform(1, 100, len(often)))
    watched = watching(X)
    assert len(watched.positions) == MAX_WATCHED
    assert watched.positions.min() > MAX_WATCHED / 2
    rows = X[:300]
    assert np.array_equal(whole(watched, rows), whole(watched, rows.toarray()))
    assert watched.moved(whole(watched, X)) == []


def test_features_without_means_are_not_watched():
    columns = FittedColumns.of(FIT)
    layout = Layout(6)
    assert WatchedFeatures.of(layout, Fitted(columns=replace(columns, mean=None), n_rows=500)) is None
    assert WatchedFeatures.of(layout, Fitted(columns=None, n_rows=500)) is None
    assert WatchedFeatures.of(Layout(7), Fitted(columns=columns, n_rows=500)) is None
    frame = pd.DataFrame({"size": FIT[:, 0], "kind": "exe", "huge": 1e308, "same": 7.0})
    fitted = Fitted(columns=FittedColumns.of(frame), n_rows=500)
    layout = Layout(4, list(frame.columns), {"kind": "text"})
    watched = WatchedFeatures.of(layout, fitted)
    assert watched.names == ["size", "same"]
    later = frame.assign(same=14.0)
    (found,) = watched.moved(whole(watched, later))
    assert (found["feature"], found["moved"], found["now"]) == ("same", 1.0, 14.0)


def test_any_name_can_be_stored():
    names = ["a\0b", "\ud800", "x" * 1000, "{}"]
    watched = replace(watching(FIT[:, :4]), names=names)
    found = watched.moved(whole(watched, np.full((100, 4), 1e308)))
    assert {each["feature"] for each in found} == {"ab", "\\ud800", "x" * 100, "{}"}
    json.dumps(found, allow_nan=False).encode()
