"""Distances, neighbours and components, against implementations of a few lines."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.explaining.sets import as_matrix, jaccard
from transcendent.explaining import distances as module
from transcendent.explaining import nearest_rows
from transcendent.explaining.distances import connected_within

ROWS = st.lists(st.frozensets(st.integers(0, 11)), min_size=1, max_size=14)
DISTANCES = st.sampled_from([0.05, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.75, 0.9])


def components(sets, distance):
    """Return the component of each set by following near ones."""
    found = [-1] * len(sets)
    for start in range(len(sets)):
        waiting = [start] if found[start] < 0 else []
        while waiting:
            one = waiting.pop()
            found[one] = start
            waiting += [j for j, s in enumerate(sets) if found[j] < 0 and jaccard(sets[one], s) <= distance]
    return found


def same_partition(one, other):
    pairs = set(zip(one, other, strict=True))
    return len(pairs) == len(set(one)) == len(set(other))


@given(ROWS, ROWS, st.integers(1, 14))
def test_nearest_rows_are_those_of_all_pairs(known, queries, k):
    k = min(k, len(known))
    found = nearest_rows(as_matrix(known, 12, np.float32), as_matrix(queries, 12, np.float32), k)
    for row, query in enumerate(queries):
        pairs = sorted((jaccard(query, one), position) for position, one in enumerate(known))[:k]
        assert found.distances[row].tolist() == [distance for distance, _ in pairs]
        assert found.positions[row].tolist() == [position for _, position in pairs]


@given(ROWS, DISTANCES)
def test_components_are_those_of_all_pairs(sets, distance):
    sets = list(dict.fromkeys(sets))
    found = connected_within(sp.csr_array(as_matrix(sets, 12, np.float32)), distance)
    assert same_partition(found.tolist(), components(sets, distance))


@pytest.mark.parametrize("distance", [0.1, 0.3])
def test_components_in_small_blocks(distance, monkeypatch):
    monkeypatch.setattr(module, "_CELLS", 1000)
    monkeypatch.setattr(module, "_PAIRS", 50)
    rng = np.random.default_rng(0)
    centres = rng.random((12, 60)) < 0.4
    X = centres[rng.integers(12, size=300)] ^ (rng.random((300, 60)) < 0.03)
    X = np.unique(X, axis=0)[rng.permutation(len(np.unique(X, axis=0)))]
    sets = [frozenset(np.flatnonzero(row).tolist()) for row in X]
    found = connected_within(sp.csr_array(X.astype(np.float32)), distance)
    assert 1 < len(set(found.tolist())) < len(X)
    assert same_partition(found.tolist(), components(sets, distance))


def test_a_distance_of_exactly_the_limit_is_near():
    sets = [frozenset(range(10)), frozenset(range(9))]  # 1 of 10 is not shared
    assert len(set(connected_within(sp.csr_array(as_matrix(sets, 12, np.float32)), 0.1))) == 1
    assert (
        len(set(connected_within(sp.csr_array(as_matrix(sets, 12, np.float32)), np.nextafter(0.1, 0)))) == 2
    )


def test_forms_and_refusals():
    known = np.array([[1, 1, 0], [0, 0, 1]])
    for form in (sp.csc_array, pd.DataFrame, np.asarray):
        assert nearest_rows(form(known), form(known[[1]])).positions.tolist() == [[1]]
    with pytest.raises(ValueError, match="row 1 of X has other values"):
        nearest_rows(known, np.array([[1, 0, 0], [0.5, 0, 0]]))
    with pytest.raises(ValueError, match="known has 3 columns, but X has 2"):
        nearest_rows(known, known[:, :2])
    with pytest.raises(ValueError, match="between 1 and the number of known rows, 2"):
        nearest_rows(known, known, 3)
