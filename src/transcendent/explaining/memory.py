"""Resolved cases, so that what was resolved once need not be looked at again."""

import heapq
import json
import math
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, IntArray, as_labels, from_npz, to_npz
from transcendent._utils.checks import check_shares
from transcendent._utils.dates import as_times
from transcendent._utils.text import as_percent, counted
from transcendent.explaining.content import Content
from transcendent.explaining.distances import JaccardIndex
from transcendent.explaining.suggestions import Settled, Suggestion
from transcendent.monitoring import AuditEstimate, HarmMonitor

FORMAT = 1
_ARRAYS = {"keys", "times", "counts", "is_binary", "ends", "features", "contested", "state"}


@dataclass(frozen=True)
class _Case:
    label: Any
    author: str
    time: Any
    count: int
    features: IntArray | None  # None if the content is not zeros and ones, so that only its key is known


class _Index(NamedTuple):
    keys: list[str]
    distances: JaccardIndex | None


class CaseMemory:
    """Remembers resolved objects, and names the nearest one of a new object.

    A case is one content with its label; resolved objects with the same content are one case. Near content is
    found for rows of zeros and ones, by Jaccard distance. Other rows are compared by exact content.

    By default cases are only suggested. With ``settle=0`` an object with the content of a case takes its
    label. With ``settle=0.1`` so does an object within that distance, under these rules:

    - Content that ever had two labels settles nothing, neither its own objects nor near ones. (Equal features
      are not equal files.) This is remembered after the case itself is forgotten.
    - Near content settles only if all cases within the distance have the same label, and never as a negative
      class. An object that has the content of a case is settled by that case alone.
    - Objects without any feature are never settled.
    - A random share of the settled objects is still looked at. Pass the labels found to `audit`. They give
      the error of settling an interval, and an alarm that it exceeds ``max_error`` turns settling off.

    The answers about an object do not depend on other objects or on the order of calls.

    Parameters
    ----------
    max_size : int
        Largest number of cases; the oldest are forgotten.
    settle : float or None
        Largest distance at which a case settles an object: 0 for the same content, None for never.
    negative : collection of labels or None
        The classes that near content is never settled as, such as goodware, which an adversary would like to
        be taken for. Needed if ``settle`` is given; empty if there are none.
    random_share : float
        Share of the settled objects that is looked at all the same.
    max_error : float
        Largest acceptable share of wrong labels among the settled objects.
    delta : float
        Probability that settling is ever turned off although its error never exceeded ``max_error``.
    random_state : int or None
        Seed of the draw of objects to look at; by default a secret one, so that nobody can foresee it.

    Examples
    --------
    >>> import numpy as np
    >>> from transcendent.explaining import CaseMemory
    >>> memory = CaseMemory(1000, settle=0.1, negative=["goodware"], random_state=0)
    >>> X = np.zeros((2, 40), dtype=int)
    >>> X[0, :20], X[1, 20:] = 1, 1
    >>> memory.add(X, ["malware", "goodware"], authors="ada", times=["2026-01-01", "2026-01-02"])
    >>> new = X.copy()
    >>> new[0, 30], new[1, 0] = 1, 1
    >>> [(case.label, case.author, round(case.distance, 3)) for case in memory.suggest(new)]
    [('malware', 'ada', 0.048), ('goodware', 'ada', 0.048)]
    >>> [answer and answer.label for answer in memory.settle(new, ids=["a", "b"])]
    ['malware', None]
    >>> memory
    CaseMemory: 2 of at most 1,000 cases; settles within 0.1, except near goodware
      nothing known yet about its error, of which at most 1% is accepted
    """

    def __init__(
        self,
        max_size: int,
        *,
        settle: float | None = None,
        negative: Collection[Any] | None = None,
        random_share: float = 0.05,
        max_error: float = 0.01,
        delta: float = 0.05,
        random_state: int | None = None,
    ) -> None:
        _check_settings(max_size, settle, negative, random_share)
        self.max_size, self.settle_within, self.random_share = int(max_size), settle, float(random_share)
        self.negative = tuple(_plain(label) for label in negative or ())
        self.monitor = HarmMonitor(max_error, delta=delta)
        self.contested: set[str] = set()
        self._salt = secrets.token_hex(16) if random_state is None else f"seed {int(random_state)}"
        self._cases: dict[str, _Case] = {}
        self._n_columns: int | None = None
        self._built: _Index | None = None

    def __len__(self) -> int:
        return len(self._cases)

    @property
    def error(self) -> AuditEstimate:
        """The share of wrong labels among the settled objects so far, with its interval."""
        return self.monitor.kept_error

    @property
    def is_settling(self) -> bool:
        """Whether it settles: not if its error is too high, or more contents are contested than it holds."""
        switched_on = self.settle_within is not None and self.monitor.alarm is None
        return switched_on and len(self.contested) <= self.max_size

    def add(self, X: Any, labels: Any, *, authors: Any, times: Any) -> None:
        """Add resolved objects; forget the oldest cases if there are too many.

        Add what people have resolved. A settled label must not be added: cases near a case would settle
        others in turn, further and further away.

        Parameters
        ----------
        X : array, sparse matrix, frame or list of n rows
            The objects.
        labels : array of shape (n,)
            Their labels: text, numbers or booleans.
        authors : str or sequence of n str
            Who resolved them.
        times : array of shape (n,)
            When they were resolved.
        """
        content = Content.of(X)
        plain = [_plain(label) for label in as_labels(labels, "labels").tolist()]
        names = [authors] * len(content) if isinstance(authors, str) else [str(name) for name in authors]
        when = _as_case_times(times, len(content))
        if not len(content) == len(plain) == len(names):
            raise ValueError(
                f"there are {len(plain)} labels and {len(names)} authors for {len(content)} rows."
            )
        if len(content) == 0:
            return
        self._check_alike(content, plain, when)
        self._n_columns = content.numbers.shape[1]
        features = np.split(content.numbers.indices.astype(np.int32), content.numbers.indptr[1:-1])
        for key, label, author, time, own, binary in zip(
            content.keys.tolist(), plain, names, when, features, content.are_binary(), strict=True
        ):
            self._add(key, _Case(label, author, time, 1, own.copy() if binary else None))
        self._forget_oldest()
        self._built = None

    def forget(self, X: Any) -> None:
        """Remove the cases with the content of these rows, such as labels that were undone."""
        for key in self._read(X).keys.tolist():
            self._cases.pop(key, None)
        self._built = None

    def suggest(self, X: Any) -> list[Suggestion | None]:
        """Return the nearest case of each object, the latest of several; None if nothing is in common."""
        content, index = self._read(X), self._index()
        found = [self._suggestion(key, 0.0) if key in self._cases else None for key in content.keys.tolist()]
        rows = self._to_compare(content)
        if index.distances is not None and len(rows):
            nearest = index.distances.nearest(content.binary(rows), 1)
            for row, position, distance in zip(
                rows.tolist(), nearest.positions[:, 0], nearest.distances[:, 0].tolist(), strict=True
            ):
                found[row] = self._suggestion(index.keys[position], distance) if distance < 1 else None
        return found

    def settle(self, X: Any, ids: Sequence[Any]) -> list[Settled | None]:
        """Return the label of each object that a case settles, and None for the others.

        Parameters
        ----------
        X : array, sparse matrix, frame or list of n rows
            The objects.
        ids : sequence of n texts or numbers
            The ids of the objects, all different: they decide which objects are looked at all the same.
            Objects with equal content are drawn independently.
        """
        content, index = self._read(X), self._index()
        if len(ids) != len(content) or len(set(map(str, ids))) != len(content):
            raise ValueError(f"ids must be {len(content)} different ids, one per object.")
        found: list[Settled | None] = [None] * len(content)
        if not self.is_settling:
            return found
        empty = content.are_empty()
        for row, key in enumerate(content.keys.tolist()):
            if key in self._cases and key not in self.contested and not empty[row]:
                found[row] = self._settled(key, 0.0, ids[row])
        rows = self._to_compare(content)
        rows = rows[~np.isin(content.keys[rows], list(self.contested))]  # also if the case is forgotten
        if self.settle_within and index.distances is not None and len(rows):
            for block, distances in index.distances.distances(content.binary(rows)):
                for row, own in zip(rows[block].tolist(), distances, strict=True):
                    found[row] = self._settled_near(index.keys, own, ids[row])
        return found

    def audit(self, settled: Any, labels: Any) -> AuditEstimate:
        """Compare a batch of settled labels, of objects that were looked at all the same, with their labels.

        Fix the batches beforehand, such as one per day: see `HarmMonitor`. Also `add` these objects, since
        people have now resolved them; where the labels differ, the content is contested from then on.

        Parameters
        ----------
        settled : sequence of n labels
            The labels that were settled.
        labels : sequence of n labels
            The labels that people found.

        Returns
        -------
        AuditEstimate
            The error of settling so far, with its interval.
        """
        pairs = zip(map(_plain, settled), map(_plain, labels), strict=True)
        self.monitor.update(np.array([own != true for own, true in pairs], dtype=bool))
        return self.error

    def resume(self) -> None:
        """Settle again after an alarm, with an audit that begins anew."""
        self.monitor = HarmMonitor(self.monitor.promised, delta=self.monitor.delta)

    def to_bytes(self) -> bytes:
        """Return the whole memory as ``.npz``: arrays of numbers and text; nothing is pickled."""
        cases = self._cases.values()
        features = [np.empty(0, np.int32) if case.features is None else case.features for case in cases]
        state = {
            "kind": "CaseMemory",
            "format": FORMAT,
            "max_size": self.max_size,
            "settle": self.settle_within,
            "negative": self.negative,
            "random_share": self.random_share,
            "salt": self._salt,
            "n_columns": self._n_columns,
            "monitor": self.monitor.to_json(),
            "labels": [case.label for case in cases],
            "authors": [case.author for case in cases],
        }
        return to_npz(
            {
                "keys": np.array(list(self._cases), dtype="U32"),
                "times": np.array([case.time for case in cases]),
                "counts": np.array([case.count for case in cases], dtype=np.int64),
                "is_binary": np.array([case.features is not None for case in cases], dtype=bool),
                "ends": np.cumsum([0, *map(len, features)]),
                "features": np.concatenate([np.empty(0, np.int32), *features]),
                "contested": np.array(sorted(self.contested), dtype="U32"),
                "state": np.frombuffer(json.dumps(state, allow_nan=False).encode(), dtype=np.uint8),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the memory with this content."""
        try:
            arrays = from_npz(BytesIO(content))
            state = json.loads(arrays["state"].tobytes())
            known = set(arrays) == _ARRAYS and state["kind"] == "CaseMemory"
        except Exception as error:  # NumPy and zipfile raise many kinds for damaged files
            raise ValueError("this is not a CaseMemory: pass what its to_bytes returned.") from error
        if not known or state["format"] != FORMAT:
            raise ValueError(f"this is not a CaseMemory of format {FORMAT}, which this version reads.")
        try:
            return cls._restored(arrays, state)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise ValueError(f"this CaseMemory is damaged ({error}): start a new one.") from error

    def __repr__(self) -> str:
        contested = f", {len(self.contested):,} contested" if self.contested else ""
        size = f"CaseMemory: {len(self):,} of at most {counted(self.max_size, 'case')}{contested}"
        if self.settle_within is None:
            return f"{size}; suggests only"
        near = f" within {self.settle_within:g}" if self.settle_within else " the same content"
        if self.settle_within and self.negative:
            near += f", except near {', '.join(map(str, self.negative))}"
        error, low, high, n = self.error
        known = "nothing known yet about its error"
        if n:
            known = f"{error:.2%} of {n:,} looked at were wrong, {low:.2%} to {high:.2%} of all settled"
        limit = as_percent(self.monitor.promised)
        does = f"settles{near}" if self.is_settling else f"SETTLING IS OFF (settled{near})"
        return f"{size}; {does}\n  {known}, of which at most {limit} is accepted"

    def _add(self, key: str, case: _Case) -> None:
        old = self._cases.get(key)
        if old is not None:
            if old.label != case.label:
                self.contested.add(key)
            latest = old if old.time > case.time else case
            case = replace(latest, count=old.count + 1)
        self._cases[key] = case

    def _forget_oldest(self) -> None:
        excess = len(self._cases) - self.max_size
        if excess > 0:
            for key in heapq.nsmallest(excess, self._cases, key=lambda key: (self._cases[key].time, key)):
                del self._cases[key]

    def _check_alike(self, content: Content, labels: list[Any], times: AnyArray) -> None:
        """Refuse rows, labels and times of another kind than those of the cases."""
        self._check_columns(content)
        first = next(iter(self._cases.values()), None)
        known = labels if first is None else [first.label, *labels]
        if len({isinstance(label, str) for label in known}) > 1:
            raise ValueError("labels are text in part: make them one type, as those of the cases.")
        if first is not None and isinstance(first.time, np.datetime64) != (times.dtype.kind == "M"):
            raise ValueError("times are dates in part: make them one type, as those of the cases.")

    def _check_columns(self, content: Content) -> None:
        n_columns = content.numbers.shape[1]
        if self._n_columns is not None and len(content) and n_columns != self._n_columns:
            raise ValueError(f"X has {n_columns} columns, but the cases have {self._n_columns}.")

    def _read(self, X: Any) -> Content:
        content = Content.of(X)
        self._check_columns(content)
        return content

    def _index(self) -> _Index:
        """Return the cases of zeros and ones that have features, the latest first."""
        if self._built is None:
            cases = [(key, case) for key, case in self._cases.items() if _has_features(case)]
            cases.sort(key=lambda pair: pair[0])
            cases.sort(key=lambda pair: pair[1].time, reverse=True)  # equal times stay in order of keys
            if not cases:
                self._built = _Index([], None)
            else:
                rows = _as_rows([case.features for _, case in cases], self._n_columns)
                self._built = _Index([key for key, _ in cases], JaccardIndex(rows))
        return self._built

    def _to_compare(self, content: Content) -> IntArray:
        """Return the rows of zeros and ones with features that have no case of the same content."""
        unknown = np.array([key not in self._cases for key in content.keys.tolist()], dtype=bool)
        return np.flatnonzero(content.are_binary() & ~content.are_empty() & unknown)

    def _suggestion(self, key: str, distance: float) -> Suggestion:
        case = self._cases[key]
        contested = key in self.contested
        return Suggestion(case.label, case.author, case.time, distance, key, case.count, contested)

    def _settled(self, key: str, distance: float, of: Any) -> Settled:
        case = self._suggestion(key, distance)
        return Settled(case.label, self._is_drawn(of), case)

    def _settled_near(self, keys: list[str], distances: AnyArray, of: Any) -> Settled | None:
        near = np.flatnonzero(distances <= self.settle_within)
        labels = {self._cases[keys[position]].label for position in near}
        if len(labels) != 1 or labels & set(self.negative):
            return None
        if any(keys[position] in self.contested for position in near):
            return None
        nearest = near[np.argmin(distances[near])]
        return self._settled(keys[nearest], float(distances[nearest]), of)

    def _is_drawn(self, of: Any) -> bool:
        """Return whether an object is looked at all the same: a random function of its id."""
        digest = blake2b(str(of).encode("utf-8", "surrogatepass"), digest_size=8, key=self._salt.encode())
        return int.from_bytes(digest.digest(), "big") < self.random_share * 2.0**64

    @classmethod
    def _restored(cls, arrays: dict[str, AnyArray], state: dict[str, Any]) -> Self:
        settle, share = state["settle"], state["random_share"]
        memory = cls(state["max_size"], settle=settle, negative=state["negative"], random_share=share)
        memory.monitor = HarmMonitor.from_json(state["monitor"])
        memory._salt, memory._n_columns = state["salt"], state["n_columns"]
        memory.contested = set(arrays["contested"].tolist())
        ends = arrays["ends"].tolist()
        if sorted(ends) != ends or ends[0] != 0 or ends[-1] != len(arrays["features"]):
            raise ValueError("its features are not those of its cases")
        features = np.split(arrays["features"].astype(np.int32), ends[1:-1])
        columns = [arrays["keys"].tolist(), state["labels"], state["authors"], arrays["times"]]
        columns += [arrays["counts"].tolist(), arrays["is_binary"].tolist()]
        if len(columns[0]):
            for key, label, author, time, count, binary, own in zip(*columns, features, strict=True):
                _check_case(key, label, author, count)
                memory._cases[key] = _Case(_plain(label), author, time, count, own if binary else None)
        memory._check_restored(len(columns[0]))
        return memory

    def _check_restored(self, n: int) -> None:
        """Raise if cases are too many or twice there, or if their features are not those of their keys."""
        if not len(self._cases) == n <= self.max_size or (n and type(self._n_columns) is not int):
            raise ValueError("its cases are too many, or not all different")
        if type(self._salt) is not str:
            raise ValueError("it has no salt")
        rows = {key: case.features for key, case in self._cases.items() if case.features is not None}
        if rows:
            matrix = _as_rows(list(rows.values()), self._n_columns)
            matrix.check_format(full_check=True)
            if Content.of(matrix).keys.tolist() != list(rows):
                raise ValueError("its features are not those of its keys")


def _check_settings(max_size: Any, settle: Any, negative: Any, random_share: Any) -> None:
    if isinstance(max_size, bool) or not isinstance(max_size, int | np.integer) or max_size < 1:
        raise ValueError(f"max_size must be a whole number of at least 1, not {max_size!r}.")
    check_shares(ends="included", random_share=random_share)
    if settle is None:
        return
    if isinstance(settle, bool) or not isinstance(settle, int | float | np.number) or not 0 <= settle < 1:
        raise ValueError(f"settle must be None or a distance from 0 to less than 1, not {settle!r}.")
    if negative is None or isinstance(negative, str):
        raise ValueError(
            "negative must list the classes that near content is never settled as, such as ['goodware']; "
            "pass [] if there are none."
        )
    if random_share == 0:
        raise ValueError("random_share must be above 0: without looks, the error of settling is unknown.")


def _check_case(key: Any, label: Any, author: Any, count: Any) -> None:
    if not len(key) == 32 or not isinstance(author, str) or count < 1:
        raise ValueError(f"the case {key!r:.40} of {label!r:.40} is not one")


def _as_case_times(times: Any, n: int) -> AnyArray:
    when = as_times(times, n)
    if when.dtype.kind == "M":
        return when.astype("datetime64[us]")
    numbers = np.asarray(when, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("times must be dates or finite numbers.")
    return numbers


def _plain(label: Any) -> Any:
    plain = label.item() if isinstance(label, np.generic) else label
    if not isinstance(plain, str | int | float) or (isinstance(plain, float) and not math.isfinite(plain)):
        raise ValueError(f"labels must be text, numbers or booleans, not {plain!r}.")
    return plain


def _has_features(case: _Case) -> bool:
    return case.features is not None and len(case.features) > 0


def _as_rows(features: list[Any], n_columns: int | None) -> Any:
    indices, ends = np.concatenate(features), np.cumsum([0, *map(len, features)])
    ones = np.ones(len(indices), dtype=np.float32)
    return sp.csr_array((ones, indices, ends), shape=(len(features), n_columns))
