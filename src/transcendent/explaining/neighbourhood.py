"""The nearest known objects of a label that are accepted, which show what is usual."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import IntArray, stack_rows, take_rows
from transcendent.decisions import Decisions
from transcendent.explaining.known_objects import nearest
from transcendent.explaining.measured import decides_alone
from transcendent.explaining.subject import Subject

_COMPARED, _CONSIDERED = 25, 100
_COPY = 1e-6  # distances in single precision

FEW = 5
"""Least number of neighbours that show what is usual."""


def accepted_near(subject: Subject, label: Any) -> IntArray:
    """Return the nearest known objects of a label that are accepted; if few are, all of them.

    Copies of the object are left out: whatever is strange about it is strange about them.
    """
    near, known = _near(subject, label), subject.known
    assert known is not None
    if len(near) and decides_alone(subject.evaluator):
        different, which = known.without_copies(near)
        try:
            decisions = subject.evaluator.decide(take_rows(known.X, different))
        except ValueError as error:
            raise ValueError(f"known objects cannot be decided: {error}") from error
        near = _accepted(near, decisions[which], label)
    return near[:_COMPARED]


def decide_with_neighbours(subject: Subject) -> tuple[Decisions, IntArray] | None:
    """Return the decision about the object, and what `accepted_near` returns for its label.

    An ensemble takes almost as long for one row as for fifty, so both are decided in one call: that needs
    the label before, from the detector alone. None if that is not possible, or if any row is refused.
    """
    known = subject.known
    if known is None or not sp.issparse(subject.row) or len(subject.detectors) != 1:
        return None
    if subject.are_texts or known.X.dtype != subject.row.dtype or not decides_alone(subject.evaluator):
        return None
    try:
        label = subject.detectors[0].predict(subject.row).tolist()[0]
        near = _near(subject, label)
        different, which = known.without_copies(near)
        decisions = subject.evaluator.decide(stack_rows(subject.row, take_rows(known.X, different)))
    except ValueError:
        return None
    own, others = decisions[[0]], decisions[1 + which]
    if own.labels.tolist()[0] != label:
        return None
    return own, _accepted(near, others, label)[:_COMPARED]


def _near(subject: Subject, label: Any) -> IntArray:
    assert subject.known is not None
    own = subject.known.with_label(label)
    own = own[(subject.distances[own] > _COPY) & np.isfinite(subject.distances[own])]
    return own[nearest(subject.distances[own], _CONSIDERED)]


def _accepted(near: IntArray, decisions: Decisions, label: Any) -> IntArray:
    accepted = near[decisions.accepted & (decisions.labels == label)]
    return accepted if len(accepted) >= FEW else near
