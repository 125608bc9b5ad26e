import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.svm import LinearSVC

from transcendent.measures import NeighbourDistance, NeighbourRatio, sparse_search
from transcendent.measures.sparse_search import SparseSearch


def rows(n, seed, binary=True):
    X = sp.random(n, 40, density=0.2, format="lil", random_state=seed)
    X[0] = 0  # an empty row
    X[1] = X[2]
    X = X.tocsr()
    if binary:
        X.data[:] = 1
    X.eliminate_zeros()
    return X


def brute_force(X, Y, metric):
    X, Y = X.toarray(), Y.toarray()
    if metric == "jaccard":
        pairs = X[:, None] != 0, Y[None] != 0
        both, either = (f(*pairs).sum(axis=2) for f in (np.logical_and, np.logical_or))
        return np.where(either == 0, 0.0, 1 - both / np.maximum(either, 1))
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(cdist(X, Y, "cosine"), nan=1.0)  # nothing is like an empty row


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dense_cells", [0, 1 << 28], ids=["sparse product", "dense product"])
def test_finds_what_brute_force_finds(metric, binary, dense_cells, monkeypatch):
    monkeypatch.setattr(sparse_search, "_DENSE_CELLS", dense_cells)
    monkeypatch.setattr(sparse_search, "_BLOCK", 7)
    X, Y = rows(60, 0, binary), rows(50, 1, binary)
    found = SparseSearch(metric).fit(Y).distances(X, 4)
    np.testing.assert_allclose(found, np.sort(brute_force(X, Y, metric), axis=1)[:, :4], atol=1e-6)
    assert SparseSearch(metric).fit(Y).distances(Y[1:], 1).max() == 0  # to themselves, exactly


@pytest.mark.parametrize("metric", ["cosine", "jaccard"])
@pytest.mark.parametrize("make", [NeighbourRatio, NeighbourDistance])
def test_neighbours_leave_a_row_out_as_refitting_does(make, metric):
    X, y = rows(40, 3), np.arange(40) % 2
    svm = LinearSVC().fit(X, y)
    measure = make(3, metric=metric)
    left_out = measure.fit(svm, X, y).left_out_scores(svm, X, y)
    for i in range(40):
        others = np.delete(np.arange(40), i)
        alone = make(3, metric=metric).fit(svm, X[others], y[others])
        np.testing.assert_allclose(left_out[i], alone.scores(svm, X[[i]])[0], atol=1e-6)
