"""The thresholds worth trying: over them the exact search finds the same as over all."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transcendent import ExactSearch
from transcendent.errors import InfeasibleError
from transcendent.metrics import (
    F1,
    Accuracy,
    ClassRejectionRate,
    ErrorRate,
    MacroF1,
    Precision,
    Recall,
    RejectionRate,
)
from transcendent.thresholds import exact
from transcendent.thresholds.counts import LevelCounts

OBJECTIVES = [
    F1(pos_label=1),
    Precision(pos_label=0),
    Recall(pos_label=1),
    Accuracy(),
    ErrorRate(),
    RejectionRate(),
    ClassRejectionRate(1),
]
LIMITS = [
    (),
    (RejectionRate() <= 0.3,),
    (ClassRejectionRate(1) <= 0.2, RejectionRate() <= 0.5),
    (F1(pos_label=1) >= 0.8,),
    (RejectionRate() <= 0.4, Precision(pos_label=1) >= 0.75),
    (Recall(pos_label=0) >= 0.75, RejectionRate() <= 0.5),
    (ErrorRate() <= 0.25, ClassRejectionRate(0) <= 0.5),
    (Accuracy() >= 1.0,),
]


@st.composite
def calibration_sets(draw, n_classes):
    """Objects of few values, in which errors, ties, ones and unknown values all occur."""
    label = st.integers(0, n_classes - 1)
    value = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, np.nan]) | st.floats(0, 1)
    objects = draw(st.lists(st.tuples(label, label, st.booleans(), value), min_size=1, max_size=40))
    y, labels, right, values = (np.array(column) for column in zip(*objects, strict=True))
    return y, np.where(right, y, labels), values


def outcome(search, y, labels, values, n_classes):
    try:
        found = search.find(y, labels, values, classes=np.arange(n_classes))
    except InfeasibleError as error:
        return str(error)
    return (
        found.credibility_thresholds.tolist(),
        found.value,
        found.bound,
        found.rejection_rate,
        found.certified,
    )


def over_all_thresholds(*args):
    with patch.object(exact, "_correct_answers_pay", return_value=False):
        return outcome(*args)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(calibration_sets(2), st.sampled_from(OBJECTIVES), st.sampled_from(LIMITS))
def test_two_classes_have_the_same_result_to_the_last_bit(objects, objective, limits):
    search = ExactSearch(objective, max_rejection=None, constraints=limits)
    assert exact._correct_answers_pay(objective, limits, np.arange(2))
    assert outcome(search, *objects, 2) == over_all_thresholds(search, *objects, 2)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(calibration_sets(3), st.sampled_from(OBJECTIVES), st.sampled_from(LIMITS))
def test_more_classes_have_the_same_bound_and_no_worse_a_result(objects, objective, limits):
    """Floating point in the relaxation may break ties of bounds, so not to the last bit."""
    search = ExactSearch(objective, max_rejection=None, constraints=limits)
    ours, full = outcome(search, *objects, 3), over_all_thresholds(search, *objects, 3)
    if isinstance(full, str):
        assert ours == full
    else:
        assert ours[2] == pytest.approx(full[2], abs=1e-9)
        assert ours[1] == pytest.approx(full[1], abs=1e-12)


@pytest.mark.parametrize(
    ("objective", "limits"),
    [
        (MacroF1(), ()),
        (Accuracy(of="rejected"), ()),
        (ErrorRate(of="rejected"), ()),
        (F1(of="rejected"), ()),
        (F1(), (RejectionRate() >= 0.2,)),
        (F1(), (RejectionRate() <= 0.5, ErrorRate(of="rejected") >= 0.5)),
        (F1(), (Accuracy() <= 0.9,)),
        (F1(), (MacroF1() >= 0.5,)),
    ],
    ids=str,
)
def test_where_correct_answers_can_hurt_all_thresholds_are_tried(objective, limits):
    assert not exact._correct_answers_pay(objective, limits, np.arange(2))


@settings(max_examples=100, deadline=None)
@given(calibration_sets(3))
def test_boundaries_are_the_errors_and_what_is_right_above_them(objects):
    y, labels, values = objects
    full = LevelCounts(labels, y, np.where(np.isnan(values), 1.0, values), 3)
    ours = LevelCounts(labels.astype(np.uint8), y.astype(np.uint8), values, 3, boundaries=True)
    for c in range(3):
        at_level = full.suffix[c][:-1] - full.suffix[c][1:]
        marked = np.delete(at_level, c, axis=1).any(axis=1)
        marked[:1] = marked[-1:] = True
        wanted = np.append(marked, True) | np.append(False, marked)
        assert ours.levels[c].tolist() == full.levels[c][wanted[:-1]].tolist()
        assert ours.suffix[c].tolist() == full.suffix[c][wanted].tolist()
    for margin in ("correct", "actual", "predicted"):
        assert getattr(ours.total, margin).tolist() == getattr(full.total, margin).tolist()
