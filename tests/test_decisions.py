import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from transcendent import Answers, Decisions, RejectionBudget
from transcendent._utils.arrays import take_rows
from transcendent.errors import MissingExtraError


def decisions(n=4, votes=None):
    return Decisions(
        labels=np.array(["ham", "spam", "spam", "<b>"] * (n // 4)),
        accepted=np.array([True, False, True, True] * (n // 4)),
        credibility=np.linspace(0.1, 1, n),
        confidence=np.linspace(0, 0.5, n),
        p_values=np.arange(3 * n).reshape(n, 3) / (3 * n),
        classes=np.array(["<b>", "ham", "spam"]),
        votes=votes,
    )


def test_it_prints_what_a_person_wants_to_know():
    assert repr(decisions()).splitlines() == [
        "4 objects: 3 accepted, 1 rejected (25.0%)",
        "predicted  objects  accepted  rejected",
        "<b>              1         1         0   0.0%",
        "ham              1         1         0   0.0%",
        "spam             2         1         1  50.0%",
    ]


def test_it_shows_in_a_notebook_without_running_labels():
    page = decisions()._repr_html_()
    assert "4 objects: 3 accepted, 1 rejected (25.0%)" in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_many_classes_are_cut_to_those_with_most_rejections():
    n = 40
    many = Decisions(np.arange(n), np.arange(n) != 33, np.ones(n), np.ones(n), np.arange(n), np.ones((n, n)))
    assert "33" in repr(many).splitlines()[2]
    assert repr(many).endswith("… and 28 more classes")
    assert "… and 28 more classes" in many._repr_html_()


def test_a_class_nobody_was_predicted_as_has_no_share():
    assert repr(decisions()[:1]).splitlines()[2].endswith("–")


def test_selecting_objects():
    some = decisions(8, votes=np.arange(8))[np.array([1, 6])]
    assert some.labels.tolist() == ["spam", "spam"]
    assert some.votes.tolist() == [1, 6]
    assert some.p_values.shape == (2, 3)
    assert repr(decisions()[2]).startswith("1 object: 1 accepted")
    assert decisions()[decisions().rejected].labels.tolist() == ["spam"]


def test_nothing_has_no_rejection_rate():
    nothing = decisions()[:0]
    assert np.isnan(nothing.rejection_rate)
    assert repr(nothing).startswith("0 objects: 0 accepted, 0 rejected\n")


@pytest.mark.parametrize("votes", [None, np.arange(4)])
def test_frames_hold_the_arrays(votes):
    given = decisions(votes=votes)
    columns = given.to_dict()
    assert list(columns)[:4] == ["label", "accepted", "credibility", "confidence"]
    assert ("votes" in columns) == (votes is not None)
    assert columns["p_value[spam]"].tolist() == given.p_values[:, 2].tolist()
    for frame, kind in (
        (given.to_pandas(), pd.DataFrame),
        (given.to_polars(), pl.DataFrame),
        (given.to_arrow(), pa.Table),
    ):
        assert isinstance(frame, kind)
        names = frame.column_names if kind is pa.Table else list(frame.columns)
        assert names == list(columns)
        assert [str(v) for v in frame["label"].to_numpy()] == columns["label"].tolist()


def test_arrays_cannot_be_replaced_or_changed():
    with pytest.raises(AttributeError):
        decisions().labels = np.zeros(4)
    with pytest.raises(ValueError, match="read-only"):
        decisions().accepted[0] = False


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (
            {"accepted": np.array([1, 0, 1, 1])},
            TypeError,
            r"accepted .* booleans, not int64: .*astype\(bool\)",
        ),
        ({"accepted": np.array([True, None, True, True])}, TypeError, "booleans, not object"),
        ({"accepted": np.ones(3, bool)}, ValueError, r"accepted .* shape \(4,\), not \(3,\)"),
        ({"labels": np.zeros((4, 1))}, ValueError, r"labels .* shape \(4,\), not \(4, 1\)"),
        ({"labels": np.array("ham")}, ValueError, r"labels .* shape \(1,\), not \(\)"),
        ({"credibility": np.array(list("abcd"))}, TypeError, "credibility .* numbers, not <U1"),
        ({"credibility": np.array([0.1, np.nan, 0.2, 0.3])}, ValueError, "credibility .* NaN in row 1"),
        ({"confidence": np.full(4, np.nan)}, ValueError, "confidence .* NaN in row 0"),
        ({"p_values": np.ones((4, 2))}, ValueError, r"p_values .* shape \(4, 3\), not \(4, 2\)"),
        ({"votes": np.ones(4)}, TypeError, "votes .* whole numbers, not float64"),
        ({"doubts": np.zeros(5, int)}, ValueError, r"doubts .* shape \(4,\)"),
        ({"index": pd.Index([1, 2])}, ValueError, "index .* 2 entries for 4"),
        ({"ranked_by": "trust"}, ValueError, "ranked_by must be one of"),
    ],
)
def test_columns_that_do_not_fit_are_refused(given, error, match):
    with pytest.raises(error, match=match):
        replace(decisions(), **given)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    method = {"pandas": "to_pandas", "polars": "to_polars", "pyarrow": "to_arrow"}[library]
    with pytest.raises(MissingExtraError, match=rf"needs {library}.*pip install \"transcendent\[frames\]\""):
        getattr(decisions(), method)()


class TestBudget:
    def many(self, n=40):
        rng = np.random.default_rng(0)
        return Decisions(
            labels=np.zeros(n, int),
            accepted=rng.random(n) < 0.5,
            credibility=rng.integers(0, 5, n) / 5,
            confidence=rng.permutation(n) / n,
            p_values=np.ones((n, 2)),
            classes=np.array([0, 1]),
        )

    @pytest.mark.parametrize(
        ("budget", "rejected"),
        [
            ({"rate": 0.15}, 6),
            ({"count": 7}, 7),
            ({"rate": 0}, 0),
            ({"count": 0}, 0),
            ({"rate": 1}, 40),
            ({"rate": 1 / 40}, 1),
            ({"rate": 39 / 40}, 39),
            ({"rate": 0.0374}, 1),
            ({"rate": 0.0376}, 2),
            ({"rate": 0.0625}, 2),  # a half, to the even number
            ({"rate": 0.0875}, 4),
        ],
    )
    def test_rejects_so_many_the_least_credible_first(self, budget, rejected):
        before, after = self.many(), self.many().within_budget(**budget)
        assert after.rejected.sum() == rejected
        np.testing.assert_array_equal(after.credibility, before.credibility)
        if 0 < rejected < 40:
            assert after.credibility[after.rejected].max() <= after.credibility[after.accepted].min()

    @pytest.mark.parametrize("n", [1, 2, 9])
    @pytest.mark.parametrize("budget", [{"rate": 0.1}, {"rate": 0.9}, {"count": 9}, {"count": 80}])
    def test_too_few_objects_to_choose_from_are_refused(self, n, budget):
        """Rounded, they would all be accepted, or all be rejected, call after call."""
        with pytest.raises(ValueError, match=rf"cannot choose among {n} object.*period.*StreamingBudget"):
            self.many(n).within_budget(**budget)

    def test_a_whole_number_of_objects_is_one_whatever_the_last_bit(self):
        for n in range(2, 200):
            for rate in (1 / n, 1 - 1 / n):
                assert self.many(n).within_budget(rate).rejected.sum() == round(rate * n)

    def test_nothing_has_nothing_to_reject(self):
        assert len(self.many()[:0].within_budget(0.1)) == 0

    def test_ties_go_by_confidence(self):
        after = self.many().within_budget(count=5)
        limit = after.credibility[after.rejected].max()
        tied = after.credibility == limit
        assert after.confidence[tied & after.rejected].max() < after.confidence[tied & after.accepted].min()

    @pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.9])
    @pytest.mark.parametrize("sizes", [(40, 0), (39, 1), (30, 10), (200, 13)])
    def test_by_class_every_label_gives_its_share_the_least_credible_first(self, rate, sizes):
        rng = np.random.default_rng(1)
        labels = rng.permutation(np.repeat([0, 1], sizes))
        before = replace(self.many(len(labels)), labels=labels)
        after = before.within_budget(rate, by_class=True)
        assert after.rejected.sum() == round(rate * len(labels))
        for label in np.unique(labels):
            own = np.flatnonzero(labels == label)
            n = int(after.rejected[own].sum())
            assert abs(n - rate * len(own)) <= 1
            order = own[np.lexsort((before.confidence[own], before.credibility[own]))]
            np.testing.assert_array_equal(after.rejected[order], np.arange(len(own)) < n)
        held = RejectionBudget(None, rate=rate, by_class=True).within_budget(before)
        np.testing.assert_array_equal(held.rejected, after.rejected)

    def test_by_confidence(self):
        after = replace(self.many(), ranked_by="confidence").within_budget(count=5)
        assert after.confidence[after.rejected].max() < after.confidence[after.accepted].min()

    @pytest.mark.parametrize(
        "budget", [{}, {"rate": 0.1, "count": 3}, {"rate": 15}, {"rate": -0.1}, {"count": -1}, {"count": 2.5}]
    )
    def test_is_a_share_or_a_number(self, budget):
        with pytest.raises(ValueError, match=r"budget|rate must be between|number"):
            self.many().within_budget(**budget)
        with pytest.raises(ValueError, match=r"budget|rate must be between|number"):
            RejectionBudget(None, **budget).fit([[0]], [0])


class TestAnswers:
    scores = np.arange(8.0).reshape(4, 2)

    def test_rows_are_taken_like_those_of_an_array(self):
        answers = Answers(["a", "b", "a", "b"], self.scores)
        assert len(answers) == 4
        for rows in (slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])):
            some = answers[rows]
            assert some.labels.tolist() == ["b", "a"]
            assert some.scores.tolist() == [[2, 3], [4, 5]]
        assert answers[3].labels.tolist() == ["b"]
        assert take_rows(answers, np.array([3, 0])).labels.tolist() == ["b", "a"]

    def test_the_index_of_a_frame_is_kept(self):
        frame = pd.DataFrame(self.scores, index=list("wxyz"))
        answers = Answers([0, 1, 0, 1], frame)
        assert answers.index.tolist() == list("wxyz")
        assert take_rows(answers, np.array([2, 1])).index.tolist() == ["y", "x"]

    @pytest.mark.parametrize(
        ("labels", "scores", "match"),
        [
            ([0, 1, 0], scores, "3 labels for 4 rows of scores"),
            ([0, 1, 0, 1], scores[:, 0], "a column for each class"),
            ([0, 1, 0, None], scores, "labels has missing labels"),
            ([0, 1, 0, 1], scores * np.nan, "scores contains NaN"),
            ([], scores[:0], "scores is empty"),
            ([0, 1, 0, 1], np.ma.masked_greater(scores, 3), "scores is a masked array"),
        ],
    )
    def test_what_is_no_answer_is_refused(self, labels, scores, match):
        with pytest.raises(ValueError, match=match):
            Answers(labels, scores)
