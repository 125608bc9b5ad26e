"""What it proves to open some members of a campaign that all turn out alike."""

import math

from scipy.stats import beta

from transcendent._utils.checks import check_shares
from transcendent._utils.text import as_percent

_SHARE = 0.1


def may_differ(opened: int, confidence: float = 0.95, *, unlike: int = 0) -> float:
    """Return the largest share of members that may differ, after some drawn at random were opened and alike.

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


def what_looks_prove(
    opened: int, *, unlike: int = 0, label: str | None = None, members: int | None = None
) -> str:
    """Return a sentence about what opening members proves.

    Parameters
    ----------
    opened : int
        Number of members that were opened and have the same label.
    unlike : int
        Number of members that were opened and have another label, or none that says what they are.
    label : str, optional
        The label that those have which are alike.
    members : int, optional
        Number of members of the campaign. The more of them were opened, the fewer can differ.

    Examples
    --------
    >>> from transcendent.explaining import what_looks_prove
    >>> what_looks_prove(3)
    '3 drawn at random were all alike. At worst 63% of all members differ (95% sure); 29 looks make that 10%'
    >>> what_looks_prove(3, label="spyware", members=12)
    '3 drawn at random were all spyware. At worst 63% of all 12 members are not (95% sure)'
    >>> what_looks_prove(3, unlike=1)
    '3 drawn at random were alike, 1 was not. At worst 75% of all members differ (95% sure)'
    """
    if not opened:
        return (
            "no member was opened yet"
            if not unlike
            else f"none of {unlike:,} drawn at random says what it is"
        )
    said = f"{opened:,} drawn at random {'was' if opened == 1 else 'were'}"
    kind = label or ("opened" if opened == 1 else "alike")
    if unlike:
        said += f" {kind}, {unlike:,} {'was' if unlike == 1 else 'were'} not"
    else:
        said += f" {kind}" if opened == 1 else f" all {kind}"
    if members is not None and opened + unlike >= members:
        return f"{said}: no other member is left"
    bound = may_differ(opened, unlike=unlike)
    if members is not None:
        bound = min(bound, 1 - opened / members)
    differ = "are not" if label else "differ"
    whom = "all members" if members is None else f"all {members:,} members"
    found = f"{said}. At worst {bound:.0%} of {whom} {differ} (95% sure)"
    enough = looks_needed(_SHARE)
    if unlike or opened >= enough or (members is not None and members <= enough):
        return found
    return f"{found}; {enough} looks make that {as_percent(_SHARE)}"
