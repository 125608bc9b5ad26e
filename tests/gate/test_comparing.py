"""Who was right where a shadow disagrees: from labels of a random part, against the known truth."""

import numpy as np
import pytest
from scipy.stats import binom

from transcendent.gate.comparing import Bounds, DrawnItem, judge, more_labels

CLASSES = ("goodware", "malware")
CELLS = [("malware", None), (None, "malware"), ("goodware", None), (None, "goodware"), CLASSES]


def items(cell, labels, start=0):
    """Drawn items of a cell with these labels, in the order of the draw."""
    return [DrawnItem(*cell, (start + i) / 1000, start + i, label) for i, label in enumerate(labels)]


def only(judged):
    (cell,) = judged.cells
    return cell


def test_the_longest_run_with_labels_counts():
    labels = ["malware", "goodware", "malware", None, "malware"]
    cell = only(judge({("malware", None): 50}, items(("malware", None), labels), CLASSES))
    assert (cell.objects, cell.drawn, cell.labels) == (50, 5, 3)
    assert (cell.a_right, cell.b_right, cell.unclear) == (2, 1, 0)
    assert cell.b_share == cell.a_share.others
    shuffled = items(("malware", None), labels)[::-1]
    assert only(judge({("malware", None): 50}, shuffled, CLASSES)) == cell


@pytest.mark.parametrize(
    ("cell", "label", "right"),
    [
        (("malware", None), "malware", (1, 0)),
        (("malware", None), "goodware", (0, 1)),
        ((None, "malware"), "malware", (0, 1)),
        ((None, "malware"), "goodware", (1, 0)),
        (("goodware", "malware"), "malware", (0, 1)),
        (("goodware", "malware"), "goodware", (1, 0)),
        (("goodware", "adware"), "malware", (0, 0)),
        (("goodware", None), "unclear", (0, 0)),
    ],
)
def test_who_is_right(cell, label, right):
    found = only(judge({cell: 9}, items(cell, [label]), [*CLASSES, "adware"]))
    assert (found.a_right, found.b_right) == right
    assert found.unclear == (label == "unclear")


def test_what_is_unclear_counts_both_ways():
    cell = ("malware", None)
    clear = only(judge({cell: 1000}, items(cell, ["malware"] * 30 + ["goodware"] * 10), CLASSES))
    doubt = only(judge({cell: 1000}, items(cell, ["malware"] * 30 + ["unclear"] * 10), CLASSES))
    right = only(judge({cell: 1000}, items(cell, ["malware"] * 40), CLASSES))
    assert doubt.a_share == Bounds(clear.a_share.low, right.a_share.high)


def test_a_cell_without_labels_is_unknown_and_may_be_anything():
    known, unknown = ("malware", None), (None, "malware")
    judged = judge(
        {known: 300, unknown: 100, ("malware", "malware"): 9000}, items(known, ["malware"] * 300), CLASSES
    )
    assert [cell.a_share for cell in judged.cells] == [(1.0, 1.0), None]  # all of the first are known
    assert judged.a_share == (0.75, 1.0)
    assert judged.b_share == (0.0, 0.25)
    assert judged.better == "a"
    assert judge({}, [], CLASSES) == ([], (0, 1), (0, 1), None)


def test_items_whose_counts_were_lost_still_count():
    cell = ("malware", None)
    found = only(judge({cell: 2}, items(cell, ["malware"] * 5), CLASSES))
    assert (found.objects, found.a_share) == (5, (1.0, 1.0))


def test_more_labels_are_said_to_help_if_they_would():
    cell = ("malware", None)
    few = judge({cell: 5000}, items(cell, ["malware"] * 7 + ["goodware"] * 3), CLASSES)
    assert few.better is None
    more = more_labels(few)
    labels = ["malware"] * round(0.7 * (10 + more)) + ["goodware"] * round(0.3 * (10 + more))
    assert judge({cell: 5000}, items(cell, labels), CLASSES).better == "a"
    assert more_labels(judge({cell: 5000}, items(cell, ["malware", "goodware"] * 50), CLASSES)) is None
    assert more_labels(judge({cell: 5000}, [], CLASSES)) is None
    assert more_labels(judge({cell: 5000}, items(cell, labels), CLASSES)) is None  # it is known


class World:
    """Disagreements of two models, and the labels of what was drawn.

    ``right`` are the shares in which the first label of a cell is the true one.
    """

    def __init__(self, rng, sizes, right, audit=0.5):
        self.cells = [cell for cell, n in zip(CELLS, sizes, strict=True) for _ in range(n)]
        self.truth = []
        for cell, share in zip(CELLS, right, strict=True):
            own = cell[0] or cell[1]
            other = CLASSES[own == CLASSES[0]]
            n = self.cells.count(cell)
            self.truth += [own if hit else other for hit in rng.random(n) < share]
        self.draw = rng.random(len(self.cells))
        self.drawn = np.flatnonzero(self.draw < audit)
        self.counts = {cell: self.cells.count(cell) for cell in CELLS}

    def is_right(self, i):
        """Whether the first model is right about an object."""
        a, b = self.cells[i]
        return self.truth[i] == a if a is not None else self.truth[i] != b

    @property
    def share(self):
        return np.mean([self.is_right(i) for i in range(len(self.cells))])

    def items(self, rng, labels, unclear=0.05):
        """The drawn items: the first ones have labels, a few of which are unclear."""
        in_order = self.drawn[np.argsort(self.draw[self.drawn])]
        for place, i in enumerate(in_order.tolist()):
            label = "unclear" if rng.random() < unclear else self.truth[i]
            yield DrawnItem(*self.cells[i], self.draw[i], i, label if place < labels else None)


def test_intervals_cover_the_known_truth():
    rng, runs = np.random.default_rng(0), 300
    covered = cells = naive = 0
    for _ in range(runs):
        sizes = rng.integers(0, 150, 5)
        world = World(rng, sizes, rng.random(5))
        drawn = list(world.items(rng, int(rng.integers(0, 150))))
        judged = judge(world.counts, drawn, CLASSES)
        share = world.share
        covered += judged.a_share.low <= share <= judged.a_share.high
        truths = {
            cell: np.mean([world.is_right(i) for i, each in enumerate(world.cells) if each == cell])
            for cell in world.counts
            if world.counts[cell]
        }
        cells += all(
            cell.a_share is None or cell.a_share.low <= truths[cell.a, cell.b] <= cell.a_share.high
            for cell in judged.cells
        )
        known = [world.is_right(each.number) for each in drawn if each.label in CLASSES and each.a is None]
        wide = 1.96 * np.std(known) / max(1, len(known)) ** 0.5 if known else 1
        naive += bool(known) and abs(np.mean(known) - share) <= wide
    assert covered >= binom.ppf(0.001, runs, 0.95)
    assert cells >= binom.ppf(0.001, runs, 0.95)
    assert naive < binom.ppf(1e-9, runs, 0.95)  # labels of what one model rejects are no sample of all


def test_leaving_out_the_items_that_analysts_skip_would_not_cover():
    rng, runs, cell = np.random.default_rng(2), 400, ("malware", None)
    covered = {"run": 0, "left out": 0}
    for _ in range(runs):
        truth = rng.random(2000) < 0.7
        skipped = ~truth[:300] & (rng.random(300) < 0.2)  # what is wrong is hard to label
        labels = [
            None if skip else "malware" if right else "goodware"
            for right, skip in zip(truth[:300].tolist(), skipped.tolist(), strict=True)
        ]
        for name, given in (("run", labels), ("left out", [each for each in labels if each is not None])):
            share = only(judge({cell: 2000}, items(cell, given), CLASSES)).a_share
            covered[name] += share is None or share.low <= truth.mean() <= share.high
    assert covered["run"] >= binom.ppf(0.001, runs, 0.95)
    assert covered["left out"] < binom.ppf(0.001, runs, 0.95)


def test_unweighted_labels_would_have_said_83_percent_where_the_truth_is_49():
    rng = np.random.default_rng(1)
    sizes, right = (5000, 5000, 0, 0, 0), (0.92, 0.9, 0, 0, 0)  # of the labels of the active one, the shadow
    world = World(rng, sizes, right)
    truth = 1 - world.share
    assert truth == pytest.approx(0.49, abs=0.01)
    # What a gate without a draw has: labels of all that the active model rejects, and of a small audit.
    labelled = [i for i, (a, _) in enumerate(world.cells) if a is None or rng.random() < 0.0935]
    unweighted = 1 - np.mean([world.is_right(i) for i in labelled])
    assert unweighted == pytest.approx(0.83, abs=0.01)
    judged = judge(world.counts, world.items(rng, 400, unclear=0), CLASSES)
    assert judged.b_share.low <= truth <= judged.b_share.high
    assert judged.b_share.high < 0.6
    assert judged.better is None
