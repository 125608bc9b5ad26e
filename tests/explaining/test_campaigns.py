"""Campaigns: what belongs together, whatever the order, and under which id."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.explaining.sets import as_matrix, jaccard
from transcendent.explaining import Campaigns, find_campaigns
from transcendent.explaining.campaigns import _match

ROWS = st.lists(st.frozensets(st.integers(0, 9), max_size=6), min_size=1, max_size=12)

DAY = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=30, unique_by=lambda pair: pair[0]
)


def naive(sets, distance):
    """Return the set of groups of at least two rows, by joining all pairs that are near."""
    groups = [{i} for i in range(len(sets))]
    for i, a in enumerate(sets):
        for j, b in enumerate(sets):
            if a == b or (distance > 0 and jaccard(a, b) <= distance):
                joined = groups[i] | groups[j]
                for k in joined:
                    groups[k] = joined
    return {frozenset(group) for group in groups if len(group) > 1}


def naive_features(sets, rows):
    rest = [one for row, one in enumerate(sets) if row not in rows]
    shared = frozenset.intersection(*(sets[row] for row in rows))
    shares = {f: sum(f in one for one in rest) / len(rest) for f in shared} if rest else {}
    return {f: share for f, share in shares.items() if share <= 0.05}


def naive_medoid_total(sets, rows):
    return min(sum(jaccard(sets[i], sets[j]) for j in rows) for i in rows)


@given(ROWS, st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8]), st.randoms(use_true_random=False))
def test_campaigns_are_those_of_all_pairs_in_any_order(sets, distance, random):
    found = find_campaigns(as_matrix(sets), distance=distance)
    assert {frozenset(campaign.rows.tolist()) for campaign in found} == naive(sets, distance)
    assert [campaign.size for campaign in found] == sorted((c.size for c in found), reverse=True)
    for campaign in found:
        rows = campaign.rows.tolist()
        distances = [jaccard(sets[campaign.medoid], sets[row]) for row in rows]
        assert campaign.medoid in rows
        assert sum(distances) == pytest.approx(naive_medoid_total(sets, rows))
        assert campaign.radius == max(distances)
        assert campaign.n_contents == len({sets[row] for row in rows})
        named = {int(f.name.removeprefix("column ")): f.share_of_rest for f in campaign.features}
        assert named == pytest.approx(naive_features(sets, rows))
        assert (found.ids[rows] == campaign.id).all()
    order = list(range(len(sets)))
    random.shuffle(order)
    again = find_campaigns(sp.csr_array(as_matrix(sets))[order], distance=distance)
    assert again.ids.tolist() == found.ids[order].tolist()
    assert [str(campaign) for campaign in again] == [str(campaign) for campaign in found]
    assert [again.keys[c.medoid] for c in again] == [found.keys[c.medoid] for c in found]


def test_one_row_no_rows_all_equal_and_empty_rows():
    assert len(find_campaigns(np.ones((1, 3)))) == 0
    nothing = find_campaigns(np.empty((0, 3)))
    assert len(nothing) == 0
    assert np.isnan(nothing.share)
    equal = find_campaigns(np.ones((5, 3)))
    assert (len(equal), equal[0].size, equal[0].n_contents, equal[0].features) == (1, 5, 1, ())
    empty = find_campaigns(np.vstack([np.zeros((3, 4)), np.eye(4)]), distance=0.99)
    assert [campaign.rows.tolist() for campaign in empty] == [[0, 1, 2]]


def test_a_chain_is_one_campaign_and_its_radius_says_so():
    X = np.zeros((40, 60))
    for row in range(40):
        X[row, row : row + 20] = 1  # neighbours differ by two of 21 features, the ends by all
    found = find_campaigns(X, distance=0.1)
    assert len(found) == 1
    assert found[0].size == 40
    assert found[0].radius > 0.6
    assert 15 <= found[0].medoid <= 24


def test_other_values_are_compared_by_exact_content_row_by_row():
    X = np.zeros((6, 30))
    X[:, :20] = 1
    X[1, 20] = 1  # near row 0
    X[2, 20], X[3, 20], X[4, 20], X[5, 20] = 2, 2, np.nan, np.nan
    found = find_campaigns(X)
    assert sorted(campaign.rows.tolist() for campaign in found) == [[0, 1], [2, 3], [4, 5]]
    assert found.n_exact == 4
    assert "4 with other values by exact content only" in found.how
    assert find_campaigns(X * 7).how.startswith("Exact content only")
    by_first = {campaign.rows[0]: campaign.features for campaign in found}
    assert [feature.name for feature in by_first[2]] == ["column 20 = 2"]
    assert [feature.name for feature in by_first[4]] == ["column 20 missing"]


def test_frames_with_text():
    frame = pd.DataFrame({"host": ["a", "b", "a", "c"] * 5, "port": [80, 80, 80, 443] * 5})
    frame.loc[19, "host"] = None
    found = find_campaigns(frame, names=None)
    assert [campaign.size for campaign in found] == [10, 5, 4]
    assert [feature.name for feature in found[0].features] == ["host = 'a'"]
    assert [feature.name for feature in found[2].features] == ["host = 'c'"]


def test_times_p_values_and_a_reference():
    X = np.repeat(np.eye(3), [3, 2, 1], axis=0)
    times = ["2026-01-03", "2026-01-01", "2026-01-02", "2026-02-01", "2026-02-01", "2026-03-01"]
    names = ["sends text", "reads mail", "rest"]
    found = find_campaigns(X, times=times, p_values=[0.3, 0.1, 0.2, 0, 0, 0], names=names)
    first, second = found
    assert first.medoid == 1  # the earliest of equal members
    assert str(first) == (
        "3 objects with the same content, seen 2026-01-01 to 2026-01-03; all have sends text, none of the "
        "rest; p-values 0.1 to 0.3."
    )
    assert first.p_values == (0.1, 0.2, 0.3)
    assert "seen 2026-02-01;" in str(second)
    reference = np.vstack([np.eye(3)[[0]], np.zeros((24, 3)), np.eye(3)[[1]] * np.ones((75, 1))])
    against = find_campaigns(X, names=names, reference=reference)
    assert against[0].features == (("sends text", 0.01),)
    assert "at most 1% of the rest" in str(against[0])
    assert against[1].features == ()
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["campaigns"][0]["first_seen"] == "2026-01-01"
    assert plain["campaigns"][0]["rows"] == [0, 1, 2]
    assert "sends text" in repr(found)
    assert "<table" in found._repr_html_()
    assert found[first.id] is first


def test_a_notebook_shows_one_campaign_whatever_its_names_are():
    bad = "\x1b[31m<script>alert('x')</script>\ud800"
    X = np.repeat(np.eye(30), [3, 2, *[1] * 28], axis=0)
    names = [f"{bad}{j}" for j in range(30)]
    earlier = {key: f"{bad}{i % 2}" for i, key in enumerate(find_campaigns(X).keys)}
    found = find_campaigns(X, names=names, before=earlier)
    for shown in (found._repr_html_(), *(campaign._repr_html_() for campaign in found)):
        shown.encode()
        assert "<script" not in shown
        assert "\x1b" not in shown
        assert "&lt;script&gt;" in shown
    plain = find_campaigns(np.ones((4, 3)))[0]._repr_html_()  # no times, and nothing that others lack
    assert "4 objects with the same content." in plain
    assert "<table" not in plain
    assert "<table" in find_campaigns(X)[0]._repr_html_()
    bridge = block(0, 1)
    bridge[0, 20:24] = 1
    right = block(0, 3)
    right[:, 22:26] = 1
    together = np.vstack([block(0, 4), bridge, right])
    apart = find_campaigns(together[[0, 1, 2, 3, 5, 6, 7]], before=find_campaigns(together, distance=0.25))
    assert f"split from: {apart[0].id}" in apart[1]._repr_html_()
    merged = find_campaigns(together, distance=0.25, before=apart)[0]
    assert f"joined by: {apart[1].id}" in merged._repr_html_()


def test_bad_input():
    X = np.eye(3)
    for bad, message in [
        ({"distance": 1}, "distance must be at least 0 and less than 1"),
        ({"distance": np.nan}, "distance must be"),
        ({"names": ["a"]}, "1 names for 3 columns"),
        ({"p_values": np.zeros((3, 2))}, "decisions.credibility"),
        ({"times": [1, 2]}, "one entry per row"),
        ({"reference": np.eye(2)}, "reference has 2 columns, but X has 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            find_campaigns(X, **bad)
    with pytest.raises(KeyError, match="no campaign 'x'"):
        find_campaigns(X)["x"]


def block(start, n=3, size=20):
    """Return n rows that share most of 20 features; each has one of its own."""
    X = np.zeros((n, 200))
    X[:, start : start + size] = 1
    X[np.arange(n), start + size + np.arange(n)] = 1
    return X


def test_ids_stay_while_members_come_and_go():
    monday = find_campaigns(np.vstack([block(0, 5), block(100, 3)]))
    tuesday = find_campaigns(np.vstack([block(100, 6), block(0, 5)[2:], block(50, 9)]), before=monday)
    ids = {campaign.size: campaign.id for campaign in tuesday}
    assert ids[6] == monday[1].id
    assert ids[3] == monday[0].id
    assert ids[9] not in {campaign.id for campaign in monday}
    stored = json.loads(json.dumps(monday.id_of_key))
    again = find_campaigns(np.vstack([block(100, 6), block(0, 5)[2:], block(50, 9)]), before=stored)
    assert again.ids.tolist() == tuesday.ids.tolist()
    alone = find_campaigns(np.vstack([block(0, 5)[[4]], block(150, 2)[[0]]]), before=tuesday)
    assert [(campaign.id, campaign.size) for campaign in alone] == [(monday[0].id, 1)]
    assert str(alone[0]).startswith("1 object left")


def test_the_larger_part_keeps_the_id_of_a_campaign_that_splits():
    bridge = block(0, 1)
    bridge[0, 20:24] = 1
    left, right = block(0, 4), block(0, 3)
    right[:, 22:26] = 1  # near the bridge alone
    together = find_campaigns(np.vstack([left, bridge, right]), distance=0.25)
    assert len(together) == 1
    parts = find_campaigns(np.vstack([left, right]), distance=0.1, before=together)
    assert [campaign.size for campaign in parts] == [4, 3]
    assert parts[0].id == together[0].id != parts[1].id
    assert (parts[0].split_from, parts[1].split_from) == (None, together[0].id)
    merged = find_campaigns(np.vstack([left, bridge, right]), distance=0.25, before=parts)
    assert merged[0].id == parts[0].id
    assert merged[0].merged == (parts[1].id,)


@given(DAY, DAY)
def test_ids_are_unique_and_go_to_the_largest_overlaps(first, second):
    """Contents are numbers; each day puts some of them into groups."""
    keys = {day: {} for day in ("first", "second")}
    for day, pairs in (("first", first), ("second", second)):
        for number, group in pairs:
            keys[day].setdefault(group, []).append(f"{number * 7919 % 10007:032x}")
    old = _match([sorted(own) for own in keys["first"].values()], {})
    earlier = {key: m.id for m, own in zip(old, keys["first"].values(), strict=True) for key in own}
    new = _match([sorted(own) for own in keys["second"].values()], earlier)
    assert len({match.id for match in new}) == len(new)
    common = [
        {name: sum(earlier.get(key) == name for key in own) for name in set(earlier.values())}
        for own in keys["second"].values()
    ]
    for match, counts in zip(new, common, strict=True):
        best = max(counts.values())
        if match.id in counts:
            assert counts[match.id] > 0
        elif best:  # every id in common was kept by a group that has at least as much of it
            for name, n in counts.items():
                if n:
                    holder = next(i for i, other in enumerate(new) if other.id == name)
                    assert common[holder][name] >= n
        for name in match.merged:
            assert counts[name] > 0
            assert name not in {other.id for other in new}
    again = _match([sorted(own) for own in keys["second"].values()], earlier)
    assert again == new


def test_a_million_columns():
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.choice(10**6, 40, replace=False) for _ in range(300)])
    X = sp.csr_array((np.ones(12_000), columns, np.arange(0, 12_001, 40)), shape=(300, 10**6))
    changed = X.copy()
    changed.indices[::40] = rng.integers(10**6, size=300)
    started = time.process_time()
    found = find_campaigns(sp.vstack([X, changed]), distance=0.1)
    assert time.process_time() - started < 5
    assert sorted(campaign.rows.tolist() for campaign in found) == [[i, i + 300] for i in range(300)]
    assert isinstance(found, Campaigns)


HARD = """
import resource, sys, time
import numpy as np, scipy.sparse as sp
from transcendent.explaining import find_campaigns
rng = np.random.default_rng(0)
n, kind = int(sys.argv[1]), sys.argv[2]
if kind == "one campaign":   # all different and near: every pair is a candidate
    X = (rng.random(200) < 0.5)[None] ^ (rng.random((n, 200)) < 0.02)
else:                        # many campaigns among noise
    X = (rng.random((n // 20, 400)) < 0.15)[rng.integers(n // 20, size=n)] ^ (rng.random((n, 400)) < 0.004)
started = time.process_time()
found = find_campaigns(sp.csr_array(X.astype(np.uint8)), distance=0.1)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(len(found), found.share, time.process_time() - started, used)
"""


@pytest.mark.parametrize("kind", ["one campaign", "many"])
@pytest.mark.parametrize("n", [1000, pytest.param(20_000, marks=pytest.mark.full)])
def test_time_and_memory(n, kind):
    done = subprocess.run([sys.executable, "-c", HARD, str(n), kind], check=True, capture_output=True)
    campaigns, share, seconds, gibibytes = map(float, done.stdout.split())
    assert (campaigns == 1) == (kind == "one campaign")
    assert share > 0.5
    assert seconds < 60 * n / 20_000 + 3
    assert gibibytes < 2
