import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import cauchy, combine_pvalues

from transcendent.merging import Merging

RULES = ("fisher", "geometric", "minimum", "cauchy")
P = arrays(float, (12, 3), elements=st.integers(1, 980).map(lambda i: i / 1000))


@given(P)
def test_rules_order_objects_as_scipy_and_the_definitions_do(p):
    fisher = np.array([combine_pvalues(row, method="fisher").statistic for row in p])
    np.testing.assert_allclose(2 * Merging("fisher").scores(p), fisher)
    np.testing.assert_allclose(-Merging("geometric").scores(p), np.prod(p, axis=1) ** (1 / 3))
    np.testing.assert_array_equal(-Merging("minimum").scores(p), p.min(axis=1))
    np.testing.assert_allclose(Merging("cauchy").scores(p), cauchy.isf(p).sum(axis=1), atol=1e-9)


@given(P, st.sampled_from(RULES), st.data())
def test_a_smaller_p_value_never_looks_less_strange(p, rule, data):
    row, part = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 2))
    stranger = p.copy()
    stranger[row, part] /= 2
    merging = Merging(rule)
    assert merging.scores(stranger)[row] >= merging.scores(p)[row]


@given(P, st.sampled_from(RULES))
def test_scores_do_not_depend_on_the_other_objects(p, rule):
    together = Merging(rule).scores(p)
    alone = [Merging(rule).scores(p[i : i + 1])[0] for i in range(len(p))]
    assert together.tolist() == alone


@pytest.mark.parametrize("rule", ["fisher", "geometric", "cauchy"])
def test_a_part_of_weight_0_does_not_count(rule):
    p = np.random.default_rng(0).uniform(0.01, 0.9, (50, 3))
    np.testing.assert_allclose(
        Merging(rule, [1, 0, 2]).scores(p), Merging(rule, [1, 2]).scores(p[:, [0, 2]]), rtol=1e-12
    )


def test_a_p_value_of_1_does_not_outweigh_the_others():
    """Cauchy's quantile of 1 is minus infinity."""
    merging = Merging("cauchy")
    assert merging.scores([[1.0, 0.001]])[0] > merging.scores([[0.5, 0.5]])[0]


class TestLearnedWeights:
    def p_values(self, n_wrong=60, n=600):
        """The first part tells the wrong answers apart, the second one nothing, the third misleads."""
        rng = np.random.default_rng(0)
        wrong = np.arange(n) < n_wrong
        p = rng.uniform(0.001, 1, (n, 3))
        p[wrong, 0] **= 4
        p[wrong, 2] **= 0.25
        return p, wrong

    def test_go_to_the_part_that_tells_right_from_wrong(self):
        p, wrong = self.p_values()
        weights = Merging("fisher", "learned").learned(p, wrong).weights
        assert weights[0] > 0.5
        assert weights[1] < 0.3
        assert weights[2] == 0

    def test_stay_equal_without_wrong_answers(self):
        p, wrong = self.p_values()
        assert Merging("fisher", "learned").learned(p, wrong & False).weights.tolist() == [1, 1, 1]
        assert Merging("fisher", "learned").learned(p, wrong | True).weights.tolist() == [1, 1, 1]

    def test_change_little_with_one_wrong_answer(self):
        p, wrong = self.p_values(n_wrong=1)
        assert np.abs(Merging("fisher", "learned").learned(p, wrong).weights - 1).max() < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "mean"}, "rule must be one of"),
        ({"bag": "none"}, "bag must be one of"),
        ({"weights": "equal"}, "weights must be numbers, 'learned' or None"),
        ({"weights": [1, -1]}, "must not be negative"),
        ({"weights": [0, 0]}, "nor all be 0"),
        ({"weights": [1, np.nan]}, "NaN"),
        ({"rule": "minimum", "weights": [1, 2]}, "has no weights"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Merging(**arguments)
