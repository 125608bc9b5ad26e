"""The choice of objects to label: the strangest, and a random audit of the accepted ones."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from transcendent._utils.arrays import BoolArray, FloatArray, IntArray
from transcendent._utils.checks import check_shares
from transcendent.decisions import Decisions

_SALT = 2023  # the draw does not depend on data made with the same seed


class LabelPlan(NamedTuple):
    """Objects to label.

    Attributes
    ----------
    rows : int array of shape (labels,)
        Their positions, ascending.
    probabilities : array of shape (labels,)
        Their chances of being chosen, given the decisions: 1 for those that were not drawn, NaN if unknown.
    audited : bool array of shape (labels,)
        Whether each was drawn at random from the accepted ones.
    """

    rows: IntArray
    probabilities: FloatArray
    audited: BoolArray

    @classmethod
    def spend(
        cls,
        n: int,
        ranked: IntArray,
        accepted: IntArray,
        audits: int,
        *,
        drawn: bool = False,
        first: Callable[[int, IntArray], IntArray] = lambda n, rows: rows[:n],
    ) -> "LabelPlan":
        """Choose n objects: the first ranked ones, and an audit of the accepted ones.

        If there are too few of one kind, more of the other are chosen. ``ranked`` is in the order in which to
        label, which is random if ``drawn``; ``accepted`` is in random order. ``first`` returns the first n
        ranked objects.
        """
        audits = max(audits, n - len(ranked))
        chosen = first(n - audits, ranked)
        trusted = accepted[~np.isin(accepted, chosen)]
        audited = trusted[:audits]
        others = ranked[~np.isin(ranked, np.concatenate([chosen, audited]))]
        chosen = np.concatenate([chosen, first(n - len(chosen) - len(audited), others)])
        rows = np.concatenate([chosen, audited])
        order, is_audited = np.argsort(rows), np.arange(len(rows)) >= len(chosen)
        chance = len(chosen) / max(len(ranked), 1) if drawn else 1.0
        chances = np.where(is_audited, len(audited) / max(len(trusted), 1), chance)
        return cls(rows[order], chances[order], is_audited[order])


def plan_labels(decisions: Decisions, labels: int, *, audit: float = 0.2, random_state: int) -> LabelPlan:
    """Spend a budget of labels on the least credible rejected objects and an audit of the accepted ones.

    The audit is drawn uniformly from all accepted objects, as `HarmMonitor` needs it. If there are too few
    rejected objects, more accepted ones are audited.

    Parameters
    ----------
    decisions : Decisions
        Those of one day, for example.
    labels : int
        Number of objects that analysts can label.
    audit : float
        Share of the labels that goes to the audit; at least one label does unless it is 0.
    random_state : int
        Seed of the draw. Use a different one every day.

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
    check_shares(ends="included", audit=audit)
    if not isinstance(labels, int | np.integer) or labels < 1:
        raise ValueError(f"labels must be a whole number of at least 1, not {labels!r}.")
    rejected, accepted = np.flatnonzero(decisions.rejected), np.flatnonzero(decisions.accepted)
    n = min(labels, len(decisions))
    strangest = rejected[np.argsort(decisions.ranking[rejected], kind="stable")]
    shuffled = np.random.default_rng([_SALT, random_state]).permutation(accepted)
    audits = max(round(audit * n), 1 if audit > 0 else 0)
    return LabelPlan.spend(n, strangest, shuffled, audits)
