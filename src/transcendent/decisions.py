"""The answers of a rejector: a label for every object, and whether to trust it."""

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray, IntArray, encode_labels
from transcendent._utils.extras import extra
from transcendent._utils.tables import Table
from transcendent._utils.text import columns, counted

_MOST_SHOWN = 12

DOUBTS = ("between classes", "like nothing known", "opinions disagree")


@dataclass(frozen=True, repr=False, eq=False)
class Decisions:
    """Decisions about n objects, as plain arrays.

    Attributes
    ----------
    labels : array of shape (n,)
        The detector's answers, never changed by the evaluator.
    accepted : bool array of shape (n,)
        True where the answer looks like what the detector was calibrated on.
    credibility, confidence : arrays of shape (n,)
        P-value of the label, and one minus the largest p-value of any other label. Baselines put here what
        they have instead, such as probabilities.
    classes : array of shape (classes,)
        The labels there are.
    p_values : array of shape (n, classes) or None
        One column per class of ``classes``, where there are p-values. Cross-conformal: the mean over all
        folds, and so are the two above; acceptance goes by the folds' votes.
    votes : int array of shape (n,) or None
        Cross-conformal only: how many folds both predict the label and accept it.
    ranked_by : {"credibility", "confidence"}
        Which of the two orders the objects from least to most trusted.
    index : pandas.Index or None
        The names of the rows, if they came in a pandas frame.
    doubts : int array of shape (n,) or None
        Of combined measures and `NeighbourDistance`: which kind of doubt there is, as a position in
        ``DOUBTS``; ``doubt`` has its name.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Decisions
    >>> Decisions(
    ...     labels=np.array(["ham", "spam", "spam"]), accepted=np.array([True, True, False]),
    ...     credibility=np.array([0.9, 0.4, 0.1]), confidence=np.array([1.0, 0.8, 0.5]),
    ...     p_values=np.array([[0.9, 0.0], [0.2, 0.4], [0.5, 0.1]]), classes=np.array(["ham", "spam"]))
    3 objects: 2 accepted, 1 rejected (33.3%)
    predicted  objects  accepted  rejected
    ham              1         1         0   0.0%
    spam             2         1         1  50.0%
    """

    labels: AnyArray
    accepted: BoolArray
    credibility: FloatArray
    confidence: FloatArray
    classes: AnyArray
    p_values: FloatArray | None = None
    votes: IntArray | None = None
    ranked_by: Literal["credibility", "confidence"] = "credibility"
    index: Any = None
    doubts: AnyArray | None = None

    def __post_init__(self) -> None:
        for name, array in {**self.columns(), "classes": self.classes}.items():
            view = np.asarray(array).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> Self:
        """Return the decisions about some of the objects: a slice, a mask or positions."""
        rows = [rows] if isinstance(rows, int | np.integer) else rows
        index = None if self.index is None else self.index[rows]
        return replace(self, **{name: column[rows] for name, column in self.columns().items()}, index=index)

    def columns(self) -> dict[str, AnyArray]:
        """Return the arrays with one entry or row per object, by name."""
        names = ("labels", "accepted", "credibility", "confidence", "p_values", "votes", "doubts")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def doubt(self) -> AnyArray | None:
        """What there is to doubt about each answer, be it accepted or not; None of measures that cannot tell.

        ``"between classes"``: another class fits as well, or none fits well. ``"like nothing known"``: by a
        distance among the measures, the object is far from the training objects of every class. ``"opinions
        disagree"``: the measures favour different classes.
        """
        return None if self.doubts is None else np.array(DOUBTS)[self.doubts]

    @property
    def ranking(self) -> FloatArray:
        """The values that order the objects; higher = more trusted."""
        return self.credibility if self.ranked_by == "credibility" else self.confidence

    @property
    def second_ranking(self) -> FloatArray:
        """The values that break ties of ``ranking``."""
        return self.confidence if self.ranked_by == "credibility" else self.credibility

    @property
    def rejected(self) -> BoolArray:
        """The complement of ``accepted``."""
        return ~self.accepted

    @property
    def rejection_rate(self) -> float:
        """Share of the objects that were rejected; NaN when there are none."""
        return float(np.mean(self.rejected)) if len(self) else float("nan")

    def within_budget(self, rate: float | None = None, *, count: int | None = None) -> Self:
        """Return the same answers with a fixed number rejected, the least trusted first.

        The objects compete with each other: take them all at once, not in parts. Those that tie are told
        apart by the other of credibility and confidence, then by their order. A budget of less than one
        object, or one that leaves less than one, is refused, unless it is nothing (0) or everything
        (``rate=1``): rounded, it would reject none or all of every such set, however many there are.

        Parameters
        ----------
        rate : float or None
            Share of the objects to reject, rounded to the nearest whole number of objects (a half to the
            even one).
        count : int or None
            Number of objects to reject, instead of a share; fewer than there are.
        """
        check_budget(rate, count)
        n = budget_of(len(self), rate, count)
        accepted = np.ones(len(self), dtype=bool)
        accepted[np.lexsort((self.second_ranking, self.ranking))[:n]] = False
        return replace(self, accepted=accepted)

    def summary(self) -> list[tuple[Any, int, int, int]]:
        """Return a row per predicted class: the class, objects, accepted, rejected."""
        codes = encode_labels(self.labels, self.classes, "labels")
        total = np.bincount(codes, minlength=len(self.classes)).tolist()
        kept = np.bincount(codes[self.accepted], minlength=len(self.classes)).tolist()
        rows = zip(self.classes.tolist(), total, kept, strict=True)
        return [(label, t, k, t - k) for label, t, k in rows]

    def to_dict(self) -> dict[str, AnyArray]:
        """Return one-dimensional columns, in the order of the frames below; ``doubt`` is of the rejected."""
        columns: dict[str, AnyArray] = {
            "label": self.labels,
            "accepted": self.accepted,
            "credibility": self.credibility,
            "confidence": self.confidence,
        }
        if self.votes is not None:
            columns["votes"] = self.votes
        if self.doubt is not None:
            columns["doubt"] = np.where(self.accepted, "", self.doubt)
        if self.p_values is not None:
            for c, label in enumerate(self.classes.tolist()):
                columns[f"p_value[{label}]"] = self.p_values[:, c]
        return columns

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, one row per object, with the index of the rows if they had one."""
        return extra("pandas", "frames").DataFrame(self.to_dict(), index=self.index)

    def to_polars(self) -> Any:
        """Return a polars DataFrame, one row per object."""
        return extra("polars", "frames").DataFrame(self.to_dict())

    def to_arrow(self) -> Any:
        """Return a pyarrow Table, one row per object."""
        return extra("pyarrow", "frames").table(self.to_dict())

    def __repr__(self) -> str:
        return "\n".join([self._headline(), summary_as_text(self.summary())])

    def _repr_html_(self) -> str:
        head = ("predicted", "objects", "accepted", "rejected", "share rejected")
        summary = self.summary()
        return Table(head, _cells(summary)).as_html(self._headline(), _note(summary))

    def _headline(self) -> str:
        n, kept = len(self), int(np.sum(self.accepted))
        share = f" ({self.rejection_rate:.1%})" if n else ""
        return f"{counted(n, 'object')}: {kept:,} accepted, {n - kept:,} rejected{share}"


@runtime_checkable
class Rejector(Protocol):
    """A classifier that can also say which of its answers to trust.

    Two attributes are optional. ``depends_on_others = True`` declares that what it decides about an object
    depends on which other objects it is given with: all objects of a period are then decided in one call,
    and nobody decides them in parts or serves it object by object. ``evolves = True`` declares that it
    changes while it decides, so that its decisions depend on the objects before.
    """

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels."""
        ...

    def decide(self, X: Any) -> Decisions:
        """Return labels, and which of them to accept."""
        ...


def index_of(X: Any) -> Any:
    """Return the index of a pandas frame or series, None of other rows."""
    return X.index if hasattr(X, "iloc") else None


def p_values_of(decisions: Decisions) -> FloatArray:
    """Return the p-values of an evaluator's decisions."""
    if decisions.p_values is None:
        raise TypeError("these decisions have no p-values.")
    return decisions.p_values


Summary = list[tuple[Any, int, int, int]]


def summary_as_text(summary: Summary) -> str:
    """Format the classes as text; of many, those with the most rejected objects."""
    rows = [("predicted", "objects", "accepted", "rejected", ""), *_cells(summary)]
    return "\n".join([columns(rows), *_note(summary)])


def summary_as_dict(summary: Summary) -> dict[str, Any]:
    """Return sums and classes as plain Python values."""
    names = ("class", "objects", "accepted", "rejected")
    total, kept, rejected = (sum(row[i] for row in summary) for i in (1, 2, 3))
    return {
        "accepted": kept,
        "rejected": rejected,
        "rejection_rate": rejected / total if total else float("nan"),
        "predicted": [dict(zip(names, row, strict=True)) for row in summary],
    }


def _cells(summary: Summary) -> list[tuple[str, str, str, str, str]]:
    most = len(summary) > _MOST_SHOWN
    shown = sorted(summary, key=lambda row: -row[3])[:_MOST_SHOWN] if most else summary
    return [
        (str(label), f"{total:,}", f"{kept:,}", f"{rejected:,}", _share(rejected, total))
        for label, total, kept, rejected in shown
    ]


def _note(summary: Summary) -> list[str]:
    hidden = len(summary) - _MOST_SHOWN
    return [f"… and {hidden} more classes"] if hidden > 0 else []


def check_budget(rate: float | None, count: int | None) -> None:
    """Refuse a budget that is not exactly one of a share and a number."""
    if (rate is None) == (count is None):
        raise ValueError("a budget is a share or a number of objects: give one of rate and count.")
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"rate is a share between 0 and 1, not {rate!r}.")
    if count is not None and (not isinstance(count, int | np.integer) or count < 0):
        raise ValueError(f"count is a number of objects, not {count!r}.")


def budget_of(n: int, rate: float | None, count: int | None) -> int:
    """Return how many of n objects a budget rejects; refuse one that leaves no choice."""
    exact = float(count) if rate is None else round(rate * n, 9)  # type: ignore[arg-type]
    if exact == 0 or rate == 1 or 1 <= exact <= n - 1:
        return round(exact)
    budget = f"count={count}" if rate is None else f"rate={rate} (that is {exact:.3g})"
    raise ValueError(
        f"a budget of {budget} cannot choose among {n} object(s): it is less than one, or leaves less than "
        "one. Give all objects of a period at once, or objects as they come to a StreamingBudget."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"
