"""Which objects to label today: the strangest, and a random audit of the accepted ones."""

from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray
from transcendent.decisions import Decisions

_SALT = 2023  # so that the draw does not depend on data made with the same seed


class LabelPlan(NamedTuple):
    """Objects to label, by their positions, ascending.

    Attributes
    ----------
    rows : int array of shape (labels,)
        Their positions.
    probabilities : array of shape (labels,)
        Their chances of being chosen, given the decisions: 1 for those that were not drawn, NaN if unknown.
    audited : bool array of shape (labels,)
        Which were drawn at random from the accepted ones.
    """

    rows: IntArray
    probabilities: FloatArray
    audited: BoolArray

    @classmethod
    def of(cls, chosen: IntArray, audited: IntArray, chance: float, audit_chance: float = 1.0) -> "LabelPlan":
        """Put chosen and audited objects, which had these chances, in order."""
        rows = np.concatenate([chosen, audited])
        order, is_audited = np.argsort(rows), np.arange(len(rows)) >= len(chosen)
        return cls(rows[order], np.where(is_audited, audit_chance, chance)[order], is_audited[order])


def plan_labels(decisions: Decisions, labels: int, *, audit: float = 0.2, random_state: int) -> LabelPlan:
    """Spend a budget of labels: on the least credible rejected objects, and on an audit of the accepted ones.

    The audit is drawn uniformly from all accepted objects, so that it is what `HarmMonitor` needs. If there
    are fewer rejected objects than labels for them, more is audited.

    Parameters
    ----------
    decisions : Decisions
        Those of a day, say.
    labels : int
        How many objects analysts can label.
    audit : float
        Share of the labels that goes to the audit, at least one label unless it is 0.
    random_state : int
        Seed of the draw: another one every day.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Decisions
    >>> from transcendent.monitoring import plan_labels
    >>> rng = np.random.default_rng(0)
    >>> credibility = rng.random(1000)
    >>> labels = np.zeros(1000, dtype=int)
    >>> decisions = Decisions(labels, credibility > 0.1, credibility, credibility, classes=np.arange(2))
    >>> plan = plan_labels(decisions, 80, random_state=1)
    >>> len(plan.rows), int(plan.audited.sum())
    (80, 16)
    """
    if not 0 <= audit <= 1:
        raise ValueError(f"audit is a share between 0 and 1, not {audit!r}.")
    if not isinstance(labels, int | np.integer) or labels < 1:
        raise ValueError(f"labels is a number of objects, at least 1, not {labels!r}.")
    rejected, accepted = np.flatnonzero(decisions.rejected), np.flatnonzero(decisions.accepted)
    n = min(labels, len(decisions))
    wanted = max(round(audit * n), 1 if audit > 0 else 0, n - len(rejected))
    n_audited = min(wanted, len(accepted))
    drawn = np.random.default_rng([_SALT, random_state]).permutation(accepted)[:n_audited]
    strangest = rejected[np.argsort(decisions.ranking[rejected], kind="stable")][: n - n_audited]
    return LabelPlan.of(strangest, drawn, 1.0, n_audited / max(len(accepted), 1))
