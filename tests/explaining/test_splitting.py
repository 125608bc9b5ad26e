"""Campaigns whose known labels differ are split; contents with two labels are in none."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.explaining.sets import as_matrix, jaccard
from tests.explaining.test_campaigns import naive
from transcendent.explaining import content_keys, find_campaigns

LABELLED = st.lists(
    st.tuples(
        st.frozensets(st.integers(0, 9), max_size=6), st.sampled_from([None, None, None, "a", "b", "c"])
    ),
    min_size=1,
    max_size=14,
)


def naive_split(sets, labels, distance):
    """Return the groups of at least two rows, by asking every row for its nearest labelled member."""
    keys = dict(zip(sets, content_keys(as_matrix(sets)).tolist(), strict=True))
    of_set = {one: {labels[i] for i, other in enumerate(sets) if other == one} - {None} for one in sets}
    kept = [i for i, one in enumerate(sets) if len(of_set[one]) < 2]
    groups = set()
    for positions in naive([sets[i] for i in kept], distance):
        group = [kept[position] for position in positions]
        known = [i for i in group if of_set[sets[i]]]
        parts = {}
        for i in group:
            nearest = min(known, key=lambda j: (jaccard(sets[i], sets[j]), keys[sets[j]]), default=None)
            parts.setdefault(None if nearest is None else min(of_set[sets[nearest]]), set()).add(i)
        groups |= {frozenset(part) for part in parts.values() if len(part) > 1}
    return groups


@given(LABELLED, st.sampled_from([0.0, 0.25, 0.5, 0.8]), st.randoms(use_true_random=False))
def test_parts_are_those_of_the_nearest_labelled_contents(drawn, distance, random):
    sets, labels = [list(each) for each in zip(*drawn, strict=True)]
    found = find_campaigns(as_matrix(sets), distance=distance, labels=labels)
    assert {frozenset(campaign.rows.tolist()) for campaign in found} == naive_split(sets, labels, distance)
    order = list(range(len(sets)))
    random.shuffle(order)
    again = find_campaigns(
        as_matrix([sets[i] for i in order]), distance=distance, labels=[labels[i] for i in order]
    )
    assert again.ids.tolist() == found.ids[order].tolist()


def chain(n=8):
    """Rows of twenty features each, every one near the next."""
    return np.array([[i <= column < i + 20 for column in range(40)] for i in range(n)], dtype=int)


def test_the_largest_part_keeps_the_id_and_the_others_tell_where_they_were():
    X = chain()
    before = find_campaigns(X)
    labels = ["malware", *[None] * 6, "goodware"]
    labels[4] = "malware"
    split = find_campaigns(X, before=before, labels=labels)
    assert [campaign.rows.tolist() for campaign in split] == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert split[0].id == before[0].id
    assert (split[0].split_from, split[1].split_from) == (None, before[0].id)
    assert find_campaigns(X, before=split)[0].merged == (split[1].id,)


def test_content_with_two_labels_neither_belongs_nor_connects():
    X = np.vstack([chain(3), chain(3)[[1, 1]]])
    assert len(find_campaigns(X, distance=0.1)) == 1
    found = find_campaigns(X, distance=0.1, labels=[None, "malware", None, "goodware", None])
    assert found.ids.tolist() == [""] * 5
    texts = np.array([["x"], ["x"], ["y"], ["y"]], dtype=object)
    found = find_campaigns(texts, labels=["malware", "goodware", None, "goodware"])
    assert [campaign.rows.tolist() for campaign in found] == [[2, 3]]


def test_one_label_or_none_changes_nothing():
    X = sp.csr_array(chain())
    plain = find_campaigns(X)
    for labels in ([None] * 8, ["malware", *[np.nan] * 6, "malware"], np.full(8, 1)):
        assert find_campaigns(X, labels=labels).ids.tolist() == plain.ids.tolist()


def test_labels_must_fit():
    with pytest.raises(ValueError, match="3 labels for 8 objects"):
        find_campaigns(chain(), labels=[None] * 3)
