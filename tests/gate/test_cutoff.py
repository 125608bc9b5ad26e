"""A budget's cutoff: its share, its ties, and a bound that holds for every stream and every delay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gate.replay import Process, Shared, replay
from transcendent import StreamingBudget
from transcendent.gate.cutoff import MAX_SAMPLE, Cutoff, Interval, Rule, draws, next_cutoff, sample_ranks

NONE = np.empty((0, 2))
pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12)


def as_ranks(values):
    return np.array(values, dtype=float).reshape(-1, 2)


@given(pairs, st.tuples(st.integers(0, 3), st.integers(0, 2)), st.floats(0, 1), st.randoms())
def test_objects_below_and_a_share_of_ties_are_rejected(objects, at, share, random):
    drawn = np.array([random.random() for _ in objects])
    cutoff, ranks = Cutoff(1, *map(float, at), share), as_ranks(objects)
    expected = [each < at or (each == at and draw < share) for each, draw in zip(objects, drawn, strict=True)]
    assert cutoff.rejects(ranks[:, 0], ranks[:, 1], lambda places: drawn[places]).tolist() == expected


@pytest.mark.parametrize(("share", "rejected"), [(0.0, 0), (1.0, 3), (0.5, 1)])
def test_without_a_rank_all_objects_tie(share, rejected):
    cutoff, ranks = Cutoff(1, None, None, share), as_ranks([(0, 0), (0.5, 0), (9, 9)])
    found = cutoff.rejects(ranks[:, 0], ranks[:, 1], lambda _: np.array([0.4, 0.5, 0.6]))
    assert found.sum() == rejected


def test_draws_are_of_the_content_and_the_secret():
    contents = [b"%d" % i for i in range(2000)]
    drawn = draws(b"secret", contents)
    assert np.array_equal(drawn, draws(b"secret", contents))
    assert not np.array_equal(drawn, draws(b"another", contents))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert np.histogram(drawn, 10, (0, 1))[0].min() > 150


@given(
    st.lists(pairs, min_size=1, max_size=5), st.floats(0.05, 0.95), st.integers(60, 90), st.integers(0, 30)
)
def test_the_share_of_the_window_is_below(intervals, rate, window, lag):
    made = [Interval(sample_ranks(as_ranks(each)), len(each), 0, lag) for each in intervals]
    decided = sum(map(len, intervals[1:]))
    spent = round(rate * sum(map(len, intervals)))
    last = Cutoff(1, 0.0, 0.0, rate, decided, spent)
    cutoff, used = next_cutoff(Rule(rate, window, NONE), last, made)
    size = max(window, 2 * lag)
    assert used == len(intervals)  # all of them together are no longer than the window
    assert (cutoff.decided, cutoff.rejected) == (decided + len(intervals[0]), spent)
    objects = [each for interval in intervals for each in interval]
    below = sum(each < (cutoff.rank, cutoff.second) for each in objects)
    tied = sum(each == (cutoff.rank, cutoff.second) for each in objects)
    saved = (rate * cutoff.decided - spent) / (size * min(rate, 1 - rate))
    odds = rate / (1 - rate) * (1 + saved) / (1 - saved)
    assert below + cutoff.share * tied == pytest.approx(len(objects) * odds / (1 + odds))


def test_the_oldest_interval_of_a_window_counts_in_part():
    new, old = np.full((10, 2), 1.0), np.arange(20.0).reshape(10, 2) / 100
    intervals = [Interval(new, 10, 0, 0), Interval(old, 10, 0, 0), Interval(old, 10, 10, 0)]
    rule = Rule(0.2, 15, NONE)
    cutoff, used = next_cutoff(rule, Cutoff(1, 0.0, 0.0, 0.2, 40, 10), intervals)
    assert used == 2
    # 3 of 15 objects are to be rejected, and the ten old ones stand for five.
    assert (cutoff.rank, cutoff.share) == (pytest.approx(0.1), pytest.approx(1))


def test_a_new_stream_is_compared_with_the_calibration():
    before = np.column_stack([np.arange(100.0), np.zeros(100)])
    first, used = next_cutoff(Rule(0.2, 50, before), None, [])
    assert (first.rank, first.share, used) == (19, pytest.approx(1), 0)
    assert next_cutoff(Rule(0.2, 50, NONE), None, [])[0] == Cutoff(0, None, None, pytest.approx(0.2))


def test_a_large_interval_is_stored_as_a_sample():
    ranks = np.random.default_rng(0).random((100_000, 2))
    stored = sample_ranks(ranks)
    assert len(stored) == MAX_SAMPLE
    shares = np.searchsorted(np.sort(ranks[:, 0]), stored[:, 0]) / len(ranks)
    assert np.abs(shares - (np.arange(MAX_SAMPLE) + 0.5) / MAX_SAMPLE).max() < 1 / MAX_SAMPLE


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 60), st.sampled_from(["move", "wait", "kill"])), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(steps, st.floats(0.02, 0.98), st.integers(2, 60), st.integers(0, 2**32), st.integers(1, 4))
def test_the_bound_holds_for_every_stream_and_every_delay(steps, rate, window, seed, levels):
    """Three gates decide and move in any order; ranks jump between levels, tie, and drift."""
    generator = np.random.default_rng(seed)
    shared = Shared(Rule(rate, window, NONE))
    gates = [Process(shared) for _ in range(3)]
    decided = rejected = lag = 0
    for gate, n, then in ((gates[g], n, then) for g, n, then in steps):
        ranks = generator.integers(0, levels, (n, 2)) + generator.choice([-9.0, 0.0, 9.0])
        found = gate.decide(ranks, np.full(n, generator.random()))
        decided, rejected = decided + n, rejected + int(found.sum())
        lag = max(lag, decided - gate.cutoff.decided)
        longest = max(window, 2 * lag)
        assert abs(rejected - rate * decided) < longest * min(rate, 1 - rate) + lag + 1
        if then == "kill":
            decided, rejected = decided - sum(map(len, gate.ranks)), rejected - gate.rejected
            gate.restart()
        elif then == "move":
            gate.move()


@pytest.fixture(scope="module")
def drifting():
    """A stream whose ranks fall slowly, and its draws."""
    generator = np.random.default_rng(0)
    trust = np.clip(generator.normal(1 - np.linspace(0, 0.3, 20_000), 0.3), 0, 1).round(2)
    return np.column_stack([trust, generator.random(20_000).round(1)]), generator.random(20_000)


@pytest.mark.parametrize("gates", [1, 3])
@pytest.mark.parametrize("every", [100, 400])
def test_decisions_are_those_of_a_streaming_budget(drifting, every, gates):
    ranks, drawn = drifting
    budget = StreamingBudget(None, rate=0.15, window=2000)
    budget._start()
    like = budget._rejected(ranks, len(ranks))
    found = replay(Rule(0.15, 2000, ranks[:500]), ranks, drawn, every, gates, killed=(7, 30))
    assert abs(found.mean() - 0.15) < 0.005
    assert (found == like).mean() > 0.97


def test_gates_that_move_after_objects_of_their_own_divide_them(drifting):
    ranks, drawn = drifting
    rule, found = Rule(0.15, 2000, ranks[:500]), []
    shared = Shared(rule)
    for one in (Process(shared), Process(shared), Process(shared)):
        one.decide(ranks[:50], drawn[:50])
        one.move()
        found.append(one.moves_after)
    assert found == [400, 200, 133]
    # From the second round of moves on, they move as often as one gate with all objects would.
    own, fixed = replay(rule, ranks, drawn, None, 3), replay(rule, ranks, drawn, 400, 3)
    assert (own[2400:] == fixed[2400:]).mean() > 0.99


def test_a_long_delay_does_not_swing(drifting):
    ranks, drawn = drifting
    found = replay(Rule(0.15, 2000, ranks[:500]), ranks, drawn, 2000, 3)
    blocks = found.reshape(-1, 2000).mean(axis=1)
    assert 0.05 < blocks.min() < blocks.max() < 0.3
