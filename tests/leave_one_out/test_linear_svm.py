"""The linear SVM: its limits, its fallbacks, and groups of equal rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from transcendent._utils.arrays import group_equal_rows
from transcendent.errors import NoShortcutError
from transcendent.leave_one_out import linear_svm, shared, squared_hinge

X, y = make_classification(300, 30, n_informative=10, flip_y=0.1, random_state=0)
WIDE = sp.random(150, 400, density=0.05, random_state=0, format="csr")
WIDE_Y = (WIDE.toarray().sum(axis=1) > WIDE.sum() / 150).astype(int)


def decisions(X, y, C=1.0):
    svm = LinearSVC(C=C, dual=False, tol=1e-6, max_iter=10_000).fit(X, y)
    return linear_svm.linear_svm(svm, X, y).decision_function(X)


@pytest.mark.parametrize("rows", [(X, y), (WIDE, WIDE_Y)], ids=["primal", "dual"])
@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [(linear_svm, "_ROUNDS", 0), (shared, "_LARGE", 40)],
)
def test_small_blocks_and_rows_solved_one_by_one_give_the_same(monkeypatch, rows, owner, name, value):
    expected = decisions(*rows)
    monkeypatch.setattr(owner, name, value)
    np.testing.assert_allclose(decisions(*rows), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "rows", "reason"),
    [
        ("MAX_ORDER", (X, y), "rows inside the margin and 31 columns are both above 3"),
        ("MAX_CROSSED", (WIDE, WIDE_Y), "inside the margin times .* outside is above 3"),
        ("MAX_CURVATURE", (X, y), "rounding errors would show: scale the features or lower C"),
    ],
)
def test_limits_are_refused_with_their_reason(monkeypatch, name, rows, reason):
    monkeypatch.setattr(squared_hinge, name, 3)
    with pytest.raises(NoShortcutError, match=reason):
        decisions(*rows, C=100.0)


def test_an_unsolvable_problem_is_refused(monkeypatch):
    monkeypatch.setattr(squared_hinge, "MAX_CURVATURE", np.inf)
    rows, labels = make_classification(120, 200, n_informative=50, random_state=0)
    with pytest.raises(NoShortcutError, match="cannot be computed accurately at this C: scale the features"):
        decisions(rows, labels, C=1e8)


def test_the_sparse_and_the_dense_form_agree():
    np.testing.assert_allclose(decisions(sp.csr_matrix(X), y), decisions(X, y), atol=1e-9)
    np.testing.assert_allclose(decisions(WIDE.toarray(), WIDE_Y), decisions(WIDE, WIDE_Y), atol=1e-9)


@given(
    arrays(float, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=st.sampled_from([0.0, 1.0, 2.0]))
)
def test_groups_are_those_of_equal_rows(rows):
    _, expected = np.unique(rows, axis=0, return_inverse=True)
    for form in (rows, sp.csr_matrix(rows)):
        groups, first = group_equal_rows(form)
        same = groups[:, None] == groups
        np.testing.assert_array_equal(same, expected.ravel()[:, None] == expected.ravel())
        np.testing.assert_array_equal(groups[first], np.arange(len(first)))


def test_rows_that_share_a_key_are_not_taken_for_equal(monkeypatch):
    class Zeros:
        def integers(self, *_, size, dtype):
            return np.zeros(size, dtype)

    monkeypatch.setattr(np.random, "default_rng", lambda _: Zeros())
    for form in (X, sp.csr_matrix(X)):
        assert group_equal_rows(form)[0].tolist() == list(range(len(X)))
