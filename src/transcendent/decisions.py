"""Decisions about objects, and the interface of the rejectors that make them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from transcendent._utils.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    as_finite,
    as_labels,
    encode_labels,
)
from transcendent._utils.checks import check_choices, check_column, check_shares
from transcendent._utils.extras import extra
from transcendent._utils.listing import Listing
from transcendent._utils.text import counted

_MAX_SHOWN = 12

RankedBy = Literal["credibility", "confidence"]
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
        P-value of the label, and one minus the largest p-value of any other label. Baselines have other
        values here, such as probabilities; never NaN, which could not be ranked.
    classes : array of shape (classes,)
        All labels.
    p_values : array of shape (n, classes) or None
        One column per class, if there are p-values. A cross-conformal evaluator gives means over its folds,
        also in the two arrays above; it accepts by votes.
    votes : int array of shape (n,) or None
        Cross-conformal only: the number of folds that both predict the label and accept it.
    ranked_by : {"credibility", "confidence"}
        Which of the two orders the objects from least to most trusted.
    index : pandas.Index or None
        The index of the rows, if they came in a pandas frame.
    doubts : int array of shape (n,) or None
        Combined measures and `NeighbourDistance` only: the kind of doubt, as a position in ``DOUBTS``.

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
    ranked_by: RankedBy = "credibility"
    index: Any = None
    doubts: AnyArray | None = None

    def __post_init__(self) -> None:
        check_choices(RankedBy, ranked_by=self.ranked_by)
        columns = {**self.columns(), "classes": self.classes}
        views = {name: np.asarray(array).view() for name, array in columns.items()}
        n, n_classes = views["labels"].size, views["classes"].size
        shapes = {"p_values": (n, n_classes), "classes": (n_classes,)}
        for name, view in views.items():
            check_column(name, view, shapes.get(name, (n,)))
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        if self.index is not None and len(self.index) != n:
            raise ValueError(f"the index of decisions has {len(self.index)} entries for {n} labels.")

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
        """The kind of doubt about each answer, accepted or not; None if the measure cannot tell.

        ``"between classes"``: another class fits as well, or none fits well. ``"like nothing known"``: a
        distance among the measures finds the object far from the training objects of every class.
        ``"opinions disagree"``: the measures favour different classes.
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

    def within_budget(
        self, rate: float | None = None, *, count: int | None = None, by_class: bool = False
    ) -> Self:
        """Return the same answers with a fixed number rejected, the least trusted first.

        The objects compete with each other, so pass all of them at once. Ties are broken by the other of
        credibility and confidence, then by position. A budget that rejects or keeps less than one object
        raises an error, unless it is 0 or ``rate=1``: rounding would reject none or all of every small set.

        Parameters
        ----------
        rate : float or None
            Share of the objects to reject, rounded to a whole number (halves to the even one).
        count : int or None
            Number of objects to reject, instead of a share; fewer than there are objects.
        by_class : bool
            Objects compete with those of the same label only: of each predicted class the same share is
            rejected, but for rounding. A large budget then cannot take nearly all answers of a rare class.
        """
        check_budget(rate, count)
        n = budget_of(len(self), rate, count)
        order = np.lexsort((self.second_ranking, self.ranking))
        if by_class:
            order = order[_dealt(self.labels[order])]
        accepted = np.ones(len(self), dtype=bool)
        accepted[order[:n]] = False
        return replace(self, accepted=accepted)

    def summary(self) -> list[tuple[Any, int, int, int]]:
        """Return a row per predicted class: the class, objects, accepted, rejected."""
        codes, n = encode_labels(self.labels, self.classes, "labels"), len(self.classes)
        total, kept = np.bincount(codes, minlength=n), np.bincount(codes[self.accepted], minlength=n)
        columns = (self.classes, total, kept, total - kept)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def to_dict(self) -> dict[str, AnyArray]:
        """Return one-dimensional columns by name; ``doubt`` is empty for accepted objects."""
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
        listing, notes = _listing(self.summary(), "share rejected")
        return listing.as_html(self._headline(), notes)

    def _headline(self) -> str:
        n, kept = len(self), int(np.sum(self.accepted))
        share = f" ({self.rejection_rate:.1%})" if n else ""
        return f"{counted(n, 'object')}: {kept:,} accepted, {n - kept:,} rejected{share}"


@dataclass(frozen=True, eq=False)
class Answers:
    """A detector's answers about n objects: a label for each, and a score for each class.

    Select some of the objects by a slice, a mask or positions: ``answers[rows]``.

    Attributes
    ----------
    labels : array of shape (n,)
        The predicted labels.
    scores : array of shape (n, classes) or (n, classes, members)
        Nonconformity for each class, higher = stranger; a combined measure has one for each member.
    index : pandas.Index or None
        The index of the objects; by default that of the scores, if they are a pandas frame.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent import Answers
    >>> suspicion = np.array([0.9, 0.2, 0.7])
    >>> answers = Answers(suspicion > 0.5, np.column_stack([suspicion, -suspicion]))
    >>> len(answers), answers[:2].labels
    (3, array([ True, False]))
    """

    labels: AnyArray
    scores: FloatArray
    index: Any = None

    def __post_init__(self) -> None:
        if (ndim := np.ndim(self.scores)) == 1:
            raise ValueError(
                "scores need a column for each class. If s is one score that is higher for the second of two "
                "classes, pass numpy.column_stack([s, -s])."
            )
        index = index_of(self.scores) if self.index is None else self.index
        scores = as_finite(self.scores, "scores", ndim=3 if ndim == 3 else 2)
        labels = as_labels(self.labels, "labels")
        if len(labels) != len(scores):
            raise ValueError(f"there are {len(labels)} labels for {len(scores)} rows of scores.")
        for name, value in {"labels": labels, "scores": scores, "index": index}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> "Answers":
        rows = [rows] if isinstance(rows, int | np.integer) else rows
        return Answers(self.labels[rows], self.scores[rows], None if self.index is None else self.index[rows])


@dataclass(frozen=True)
class Fitted:
    """The components of a fitted rejector and the rows it was fitted on; empty or None where it has none.

    Attributes
    ----------
    detectors : sequence of classifiers
        The fitted detectors.
    judges : sequence of ScoreEvaluator
        The judge of each detector's answers.
    results : sequence of SearchResult
        The thresholds in use, and what they promise.
    lacks_thresholds : bool
        Whether it was calibrated, but no search has found thresholds.
    n_repeated : int or None
        Number of calibration objects that equal training rows, if counted.
    n_left_out : int
        Number of rows that ``learn`` did not train on, because they equal calibration rows.
    columns : FittedColumns or None
        The types and ranges of the columns of the training rows, if they were recorded.
    """

    classes: AnyArray | None = None
    feature_names: AnyArray | None = None
    n_features: int | None = None
    n_rows: int | None = None
    detectors: Sequence[Any] = ()
    judges: Sequence[Any] = ()
    results: Sequence[Any] = ()
    lacks_thresholds: bool = False
    n_repeated: int | None = None
    n_left_out: int = 0
    columns: Any = None


class Budget(NamedTuple):
    """The rejector that a budget holds, the share to reject, and the number of last objects to compare with.

    ``rate`` is None for a budget of a number of objects, ``window`` for one that has none.
    """

    rejector: Any
    rate: float | None
    window: int | None


Learner = Literal["judge", "detector", "both"]


class InWords(NamedTuple):
    """What a rejector does: verb phrases without a subject, and a sentence on what drift does to it.

    ``promised_error`` is the share of accepted answers that it guarantees to be wrong at most, if it does.
    """

    judges: str
    rejects: str
    under_drift: str
    promised_error: float | None = None


class Rejector:
    """A classifier that also says which of its answers to trust, and declares what it can do.

    A rejector of your own needs ``predict`` and ``decide``. It need not derive from this class: attributes
    that it lacks count as False, and ``learn`` and ``rethreshold`` are found without a declaration.

    Attributes
    ----------
    evolves : bool
        Whether deciding changes it, so that decisions depend on earlier objects.
    depends_on_others : bool
        Whether the decision about an object depends on other objects, of the same call or of earlier ones.
        All objects of a period are then decided in one call.
    judges_scores : bool
        Whether its rows are a detector's `Answers` instead of features.
    takes_times : bool
        Whether its ``fit`` takes ``times``, to calibrate on the most recent rows.
    can_learn, can_rethreshold : bool
        Whether it has the methods ``learn`` and ``rethreshold``.
    can_be_monitored : bool
        Whether it decides by one judge, alone or within a budget, calibrated on objects that its detector
        was not fitted on.
    has_p_values, has_votes, tells_doubt : bool
        Whether its decisions have p-values, votes, and kinds of doubt.
    verbose : bool
        Whether long work shows its progress.
    budget : Budget or None
        The budget that it holds another rejector to, once it is fitted.
    """

    evolves = depends_on_others = judges_scores = takes_times = False
    can_learn = can_rethreshold = can_be_monitored = False
    has_p_values = has_votes = tells_doubt = verbose = False
    budget: Budget | None = None

    def predict(self, X: Any) -> AnyArray:
        """Return the detector's labels."""
        raise NotImplementedError

    def decide(self, X: Any) -> Decisions:
        """Label every object, and say which labels to accept."""
        raise NotImplementedError

    @property
    def without_budget(self) -> Any:
        """The rejector that ranks the objects: itself, unless it is a budget."""
        return self

    def within_budget(self, decisions: Decisions) -> Decisions:
        """Return decisions of ``without_budget`` as this rejector makes them: unchanged without a budget."""
        return decisions

    def in_words(self, n_classes: int) -> InWords | None:  # noqa: ARG002
        """Return what it does, for a report on ``n_classes`` classes; None if it does not say."""
        return None

    @property
    def fitted(self) -> Fitted:
        """Its components and training rows; by default those that scikit-learn's attributes name."""
        return Fitted(
            classes=getattr(self, "classes_", None),
            feature_names=getattr(self, "feature_names_in_", None),
            n_features=getattr(self, "n_features_in_", None),
            detectors=[self.estimator_] if hasattr(self, "estimator_") else [],
            columns=getattr(self, "columns_", None),
        )

    def what_learns(self, wanted: Learner) -> Learner | Literal["anew", "nothing"]:
        """Return what learns from new labels when ``wanted`` is requested: by default everything is refitted.

        Raises ``ValueError`` if ``wanted`` cannot learn alone.
        """
        if wanted != "both":
            raise ValueError("it fits detector and judge together: pass what='both'.")
        return "anew"


_DECLARED = (
    *(name for name, value in vars(Rejector).items() if value is False),
    *("classes_", "feature_names_in_", "n_features_in_", "estimator_"),
)


def declared(rejector: Any) -> Rejector:
    """Return a rejector's declarations, with defaults if it does not derive from `Rejector`."""
    if isinstance(rejector, Rejector):
        return rejector
    declarations = Rejector()
    declarations.can_learn = hasattr(rejector, "learn")
    declarations.can_rethreshold = hasattr(rejector, "rethreshold")
    own = {name: getattr(rejector, name) for name in _DECLARED if hasattr(rejector, name)}
    vars(declarations).update(own)
    return declarations


def is_rejector(thing: Any) -> bool:
    """Return whether an instance has ``predict`` and ``decide``."""
    return hasattr(thing, "predict") and hasattr(thing, "decide") and not isinstance(thing, type)


def index_of(X: Any) -> Any:
    """Return the index of a pandas frame or series, and None for other rows."""
    return X.index if hasattr(X, "iloc") else None


def p_values_of(decisions: Decisions) -> FloatArray:
    """Return the p-values of an evaluator's decisions."""
    if decisions.p_values is None:
        raise TypeError("these decisions have no p-values.")
    return decisions.p_values


Summary = list[tuple[Any, int, int, int]]


def summary_as_text(summary: Summary) -> str:
    """Format the classes as text; if there are many, only those with the most rejected objects."""
    listing, notes = _listing(summary, "")
    return "\n".join([listing.as_text(), *notes])


def summary_as_dict(summary: Summary) -> dict[str, Any]:
    """Return totals and classes as plain Python values."""
    names = ("class", "objects", "accepted", "rejected")
    total, kept, rejected = (sum(row[i] for row in summary) for i in (1, 2, 3))
    return {
        "accepted": kept,
        "rejected": rejected,
        "rejection_rate": rejected / total if total else float("nan"),
        "predicted": [dict(zip(names, row, strict=True)) for row in summary],
    }


def _listing(summary: Summary, last_column: str) -> tuple[Listing, list[str]]:
    hidden = len(summary) - _MAX_SHOWN
    shown = sorted(summary, key=lambda row: -row[3])[:_MAX_SHOWN] if hidden > 0 else summary
    cells = [
        (str(label), f"{total:,}", f"{kept:,}", f"{rejected:,}", f"{rejected / total:.1%}" if total else "–")
        for label, total, kept, rejected in shown
    ]
    notes = [f"… and {hidden} more classes"] if hidden > 0 else []
    return Listing(("predicted", "objects", "accepted", "rejected", last_column), cells), notes


def _dealt(labels: AnyArray) -> IntArray:
    """Return an order in which every beginning has about the same share of each label, in its order."""
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    by_code = np.argsort(codes, kind="stable")
    place = np.empty(len(codes))
    place[by_code] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.argsort((place + 0.5) / sizes[codes], kind="stable")


def check_budget(rate: float | None, count: int | None) -> None:
    """Refuse a budget that is not exactly one of a share and a number."""
    if (rate is None) == (count is None):
        raise ValueError("a budget is a share or a number of objects: pass one of rate and count.")
    if rate is not None:
        check_shares(ends="included", rate=rate)
    elif not isinstance(count, int | np.integer) or count < 0:
        raise ValueError(f"count must be a number of objects, not {count!r}.")


def budget_of(n: int, rate: float | None, count: int | None) -> int:
    """Return the number of objects, out of n, that a budget rejects; refuse one that leaves no choice."""
    exact = float(count) if rate is None else round(rate * n, 9)  # type: ignore[arg-type]
    if exact == 0 or rate == 1 or 1 <= exact <= n - 1:
        return round(exact)
    budget = f"count={count}" if rate is None else f"rate={rate} (that is {exact:.3g})"
    raise ValueError(
        f"a budget of {budget} cannot choose among {n} object(s): it rejects or keeps less than one. Pass "
        "all objects of a period at once, or use a StreamingBudget for objects that come one by one."
    )
