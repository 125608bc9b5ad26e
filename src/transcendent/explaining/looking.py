"""What it proves to open some members of a campaign that all turn out alike."""

import math

from scipy.stats import beta

from transcendent._utils.checks import check_shares
from transcendent._utils.text import as_percent

_SHARE = 0.1


def may_differ(opened: int, confidence: float = 0.95, *, unlike: int = 0) -> float:
    """Return the share of members that may still differ after some, drawn at random, were opened and alike.

    It is the upper end of the exact (Clopper-Pearson) one-sided interval: if a larger share differed, opening
    this many would have shown it with a probability above ``confidence``. It also holds if members were drawn
    until ``opened`` of them were alike.

    Parameters
    ----------
    opened : int
        Number of members that were opened and have the same label.
    confidence : float
        Probability with which the bound holds.
    unlike : int
        Number of members that were opened and have another label, or none that says what they are.

    Examples
    --------
    >>> from transcendent.explaining import may_differ
    >>> round(may_differ(3), 2), round(may_differ(29), 2), round(may_differ(3, unlike=1), 2)
    (0.63, 0.1, 0.75)
    """
    check_shares(ends="excluded", confidence=confidence)
    for name, n in (("opened", opened), ("unlike", unlike)):
        if isinstance(n, bool) or n != int(n) or n < 0:
            raise ValueError(f"{name} must be a number of members, not {n!r}.")
    if opened == 0:
        return 1.0
    if unlike:
        return float(beta.ppf(confidence, unlike + 1, opened))
    return 1 - float((1 - confidence) ** (1 / opened))


def looks_needed(share: float, confidence: float = 0.95) -> int:
    """Return how many members must be opened, and be alike, so that at most a share may differ.

    Parameters
    ----------
    share : float
        The share of members that may differ.
    confidence : float
        Probability with which the bound holds.

    Examples
    --------
    >>> from transcendent.explaining import looks_needed
    >>> looks_needed(0.1), looks_needed(0.01)
    (29, 299)
    """
    check_shares(ends="excluded", share=share, confidence=confidence)
    needed = math.ceil(math.log(1 - confidence) / math.log1p(-share))
    return needed if may_differ(needed, confidence) <= share else needed + 1


def what_looks_prove(opened: int, *, unlike: int = 0) -> str:
    """Say what opening members proves, for the button that labels the others.

    Parameters
    ----------
    opened : int
        Number of members that were opened and have the same label.
    unlike : int
        Number of members that were opened and have another label, or none that says what they are.

    Examples
    --------
    >>> from transcendent.explaining import what_looks_prove
    >>> what_looks_prove(3)
    '3 opened and alike: up to 63% may differ; 29 for 10%'
    >>> what_looks_prove(3, unlike=1)
    '3 opened and alike, 1 not: up to 75% may differ'
    """
    alike = f"{opened:,} opened and alike" + (f", {unlike:,} not" if unlike else "")
    bound = f"{alike}: up to {may_differ(opened, unlike=unlike):.0%} may differ"
    if unlike:
        return bound
    enough = looks_needed(_SHARE)
    return bound if opened >= enough else f"{bound}; {enough} for {as_percent(_SHARE)}"
