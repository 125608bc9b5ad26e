"""What the case memory says about an object: the nearest case, and a label that follows from it."""

from typing import Any, NamedTuple


class Suggestion(NamedTuple):
    """The nearest resolved case of an object.

    Attributes
    ----------
    label : label
        Its label, the latest if it had several.
    author : str
        Who gave the label.
    time : time
        When.
    distance : float
        Jaccard distance of the object; 0 for the same content.
    key : str
        Its content key.
    n_objects : int
        Number of resolved objects with this content.
    contested : bool
        Whether this content ever had two labels.
    """

    label: Any
    author: str
    time: Any
    distance: float
    key: str
    n_objects: int
    contested: bool


class Settled(NamedTuple):
    """A label that nobody gave to this object: it was inferred from a case.

    It must be stored with that mark. It must not calibrate and does not count as an audit; use it for
    training only on request.

    Attributes
    ----------
    label : label
        The label.
    look : bool
        Whether the object was drawn to be looked at all the same. Its label is then that of the analyst.
    case : Suggestion
        The case that it follows from.
    """

    label: Any
    look: bool
    case: Suggestion
