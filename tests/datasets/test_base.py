"""Objects in the order of their times."""

import numpy as np
import pytest
import scipy.sparse as sp

from transcendent.datasets import Dataset

TIMES = np.array(["2020-03", "2020-01", "2020-02", "2020-01"], dtype="datetime64[M]")
ROWS = np.arange(8.0).reshape(4, 2)
KINDS = [np.asarray, sp.csr_matrix, sp.csr_array, lambda rows: [tuple(row) for row in rows]]


def dataset(X=ROWS, **fields):
    return Dataset(X, np.array(["a", "b", "a", "c"]), TIMES, extra={"size": np.arange(4)}, **fields)


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X)


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_ordered_by_time_and_stay_together(kind):
    ordered = dataset(kind(ROWS))
    assert ordered.times.tolist() == np.sort(TIMES).tolist()
    assert ordered.extra["size"].tolist() == [1, 3, 2, 0]
    assert ordered.y.tolist() == ["b", "c", "a", "a"]
    assert np.array_equal(dense(ordered.X), ROWS[[1, 3, 2, 0]])


def test_objects_of_equal_times_keep_their_order():
    days = np.random.default_rng(0).integers(3, size=1000)
    rows = Dataset(np.arange(1000), days, days.astype("datetime64[D]")).X
    assert all(np.all(np.diff(rows[np.sort(days) == day]) > 0) for day in range(3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rows",
    [
        slice(1, 3),
        slice(None, None, 2),
        slice(3, 1),
        slice(None, None, -1),
        np.array([True, False, False, True]),
        np.array([0, 2]),
        [1, -1],
        [],
    ],
    ids=str,
)
def test_some_of_the_objects(kind, rows):
    ordered = dataset(kind(ROWS), feature_names=np.array(["f", "g"]), name="few")
    positions = np.sort(np.arange(4)[rows])
    some = ordered[rows]
    assert len(some) == len(positions)
    assert some.extra["size"].tolist() == ordered.extra["size"][positions].tolist()
    assert np.array_equal(dense(some.X).reshape(-1, 2), dense(ordered.X)[positions])
    assert some.name == "few"
    assert some.feature_names.tolist() == ["f", "g"]


def test_one_object():
    assert dataset()[2].y.tolist() == ["a"]


def test_slices_of_ordered_arrays_copy_nothing():
    ordered = dataset()
    assert np.shares_memory(ordered[1:3].X, ordered.X)
    assert np.shares_memory(ordered[1:3].y, ordered.y)


def test_repr():
    assert repr(dataset()) == "dataset: 4 objects (a: 2, b: 1, c: 1), 2 columns, 2020-01..2020-03"
    many = Dataset(
        np.array(["text"] * 5, dtype=object), np.array([0, 1, 2, 3, 3]), np.zeros(5, "datetime64[D]")
    )
    assert repr(many) == "dataset: 5 objects (0: 1, 1: 1, 3: 2, 1 more classes), 1970-01-01..1970-01-01"
    assert repr(many[:0]) == "dataset: 0 objects"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(3)}, r"X has 4 rows, but y has shape \(3,\)"),
        ({"times": TIMES[:2]}, r"X has 4 rows, but times has shape \(2,\)"),
        ({"extra": {"size": np.zeros((4, 2))}}, r"X has 4 rows, but size has shape \(4, 2\)"),
        ({"times": np.arange(4)}, "times must be datetime64, got int"),
        ({"times": np.array(["2020", "2021", "NaT", "2022"], "datetime64[Y]")}, "times has 1 missing values"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    fields = {"X": ROWS, "y": np.zeros(4), "times": TIMES}
    with pytest.raises(ValueError, match=message):
        Dataset(**{**fields, **change})
