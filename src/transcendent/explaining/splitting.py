"""Split groups of objects whose known labels differ."""

from typing import Any

import numpy as np

from transcendent._utils.arrays import AnyArray, IntArray, is_missing
from transcendent.explaining.distances import JaccardIndex

UNKNOWN, CONTESTED = -1, -2
"""Numbers of contents without a label, and of contents whose objects have different ones."""


def label_numbers(labels: Any, codes: IntArray, n_contents: int) -> IntArray:
    """Return the number of each content's label; ``codes`` are the contents of the objects."""
    found = np.full(n_contents, UNKNOWN)
    if labels is None:
        return found
    given = list(labels)
    if len(given) != len(codes):
        raise ValueError(
            f"there are {len(given)} labels for {len(codes)} objects: pass None for unknown ones."
        )
    numbered: dict[Any, int] = {}
    for label, content in zip(given, codes.tolist(), strict=True):
        if is_missing(label):
            continue
        number = numbered.setdefault(label, len(numbered))
        found[content] = number if found[content] in (UNKNOWN, number) else CONTESTED
    return found


def split_by_label(rows: Any, groups: IntArray, labels: IntArray) -> IntArray:
    """Return the groups of contents after splitting those with several labels.

    ``rows`` are the different contents as CSR of zeros and ones, in the order of their keys. Each content
    follows the nearest one with a label in its group, the first of those at equal distances. A part is named
    by its first content.
    """
    groups = groups.copy()
    known = labels >= 0
    for group in _disagreeing(groups[known], labels[known]):
        members = np.flatnonzero(groups == group)
        labelled = members[known[members]]
        nearest = JaccardIndex(rows[labelled]).nearest(rows[members], 1).positions[:, 0]
        parts = labels[labelled][nearest]
        for part in np.unique(parts):
            groups[members[parts == part]] = members[parts == part][0]
    return groups


def _disagreeing(groups: AnyArray, labels: AnyArray) -> AnyArray:
    pairs = np.unique(np.stack([groups, labels]), axis=1)
    found, n_labels = np.unique(pairs[0], return_counts=True)
    return np.asarray(found[n_labels > 1])
