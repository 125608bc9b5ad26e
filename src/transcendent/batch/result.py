"""The result of deciding a table: counts of objects, and where the decisions are."""

from dataclasses import dataclass
from typing import Any

from transcendent._utils.arrays import AnyArray
from transcendent.decisions import summary_as_dict, summary_as_text


@dataclass(frozen=True, repr=False)
class TableDecisions:
    """Counts of the decisions about a table.

    Attributes
    ----------
    folder : str
        Where the decisions are.
    digest : str
        Identifies the rejector: the SHA-256 of its artifact, or a hash if it was never saved.
    classes : array of shape (classes,)
        The labels.
    objects, accepted : int arrays of shape (classes,)
        Number of objects with each predicted label, and number of these that were accepted.
    bad : int
        Number of rows that could not be decided; ``_bad`` in the folder has them, with reasons.
    skipped : int
        Number of rows that an earlier run had decided.
    seconds : float
        Duration of this run.
    """

    folder: str
    digest: str
    classes: AnyArray
    objects: AnyArray
    accepted: AnyArray
    bad: int
    skipped: int
    seconds: float

    @property
    def rows(self) -> int:
        """Number of rows of the table, bad ones included."""
        return int(self.objects.sum()) + self.bad

    @property
    def rejected(self) -> AnyArray:
        """Number of rejected objects with each predicted label."""
        return self.objects - self.accepted

    @property
    def rejection_rate(self) -> float:
        """Share of the decided objects that were rejected; NaN without any."""
        return float(summary_as_dict(self.summary())["rejection_rate"])

    def summary(self) -> list[tuple[Any, int, int, int]]:
        """Return for each predicted class: the class, objects, accepted, rejected."""
        columns = (self.classes, self.objects, self.accepted, self.rejected)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain Python values."""
        return {
            "folder": self.folder,
            "model": self.digest,
            "rows": self.rows,
            "bad": self.bad,
            "skipped": self.skipped,
            "seconds": self.seconds,
            **summary_as_dict(self.summary()),
        }

    def __repr__(self) -> str:
        kept, out = int(self.accepted.sum()), int(self.rejected.sum())
        share = f" ({self.rejection_rate:.1%})" if kept + out else ""
        headline = f"{self.rows:,} rows: {kept:,} accepted, {out:,} rejected{share}, {self.bad:,} bad"
        where = [f"bad rows, with reasons, are in {self.folder}/_bad"] if self.bad else []
        return "\n".join([headline, summary_as_text(self.summary()), *where])
