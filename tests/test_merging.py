import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import combine_pvalues

from transcendent.merging import Merging

P = arrays(float, (12, 3), elements=st.integers(1, 980).map(lambda i: i / 1000))


@given(P)
def test_scores_are_half_of_fishers_statistic(p):
    fisher = np.array([combine_pvalues(row, method="fisher").statistic for row in p])
    np.testing.assert_allclose(2 * Merging().scores(p), fisher)


@given(P, st.data())
def test_a_smaller_p_value_looks_stranger(p, data):
    row, part = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 2))
    stranger = p.copy()
    stranger[row, part] /= 2
    assert Merging().scores(stranger)[row] > Merging().scores(p)[row]


@given(P)
def test_scores_do_not_depend_on_the_other_objects(p):
    alone = [Merging().scores(p[i : i + 1])[0] for i in range(len(p))]
    assert Merging().scores(p).tolist() == alone


def test_a_part_of_weight_0_does_not_count():
    p = np.random.default_rng(0).uniform(0.01, 0.9, (50, 3))
    np.testing.assert_allclose(Merging([1, 0, 2]).scores(p), Merging([1, 2]).scores(p[:, [0, 2]]), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bag": "none"}, "bag must be one of"),
        ({"weights": "equal"}, "weights must be numbers or None"),
        ({"weights": [1, -1]}, "must not be negative"),
        ({"weights": [0, 0]}, "nor all be 0"),
        ({"weights": [1, np.nan]}, "NaN"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Merging(**arguments)
