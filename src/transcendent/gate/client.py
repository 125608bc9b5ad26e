"""A typed client of the gate."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import canonical_rows, is_missing
from transcendent._utils.extras import extra
from transcendent.errors import GateError


class GateClient:
    """A connection to a gate, to be closed or used in a ``with`` statement.

    Parameters
    ----------
    address : str
        Such as ``"http://127.0.0.1:8040"``.
    token : str or None
        What ``transcendent gate token create`` printed; None for a gate without tokens.
    timeout : float
        Seconds to wait for an answer.
    """

    def __init__(self, address: str, token: str | None = None, *, timeout: float = 60) -> None:
        if not address.startswith(("http://", "https://")):
            raise ValueError(
                f"the address of a gate is a URL such as http://127.0.0.1:8040, not {address!r}."
            )
        headers = {} if token is None else {"authorization": f"Bearer {_checked(token)}"}
        httpx2 = extra("httpx2", "gate-client")
        self._http = httpx2.Client(base_url=address, headers=headers, timeout=timeout)
        self._unreached = httpx2.TransportError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def decide(self, ids: Iterable[str], X: Any) -> list[dict[str, Any]]:
        """Return decisions about rows: of a sparse matrix, a pandas frame (by name), or an array."""
        names = _names(ids)
        rows = list(_rows(canonical_rows(X)))
        if len(names) != len(rows):
            raise ValueError(f"{len(names)} ids for {len(rows)} rows.")
        return self.decide_objects([{"id": name, **row} for name, row in zip(names, rows, strict=True)])

    def decide_objects(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return decisions about objects in the form that the gate documents."""
        decisions: list[dict[str, Any]] = self._post("/v1/decisions", {"objects": list(objects)})["decisions"]
        return decisions

    def model(self) -> dict[str, Any]:
        """Return which model decides."""
        return self._get("/v1/model")

    def counts(self) -> dict[str, int]:
        """Return how many items wait, are held and have labels."""
        return self._get("/v1/quarantine")

    def claim(self, count: int = 1, *, skipped: bool = False) -> dict[str, Any]:
        """Hold items, those that one has skipped oneself only if ``skipped``.

        ``items`` has them, ``room`` is the number that one may hold beside them: at 0, label, skip or release
        some first. If they are fewer than asked for, ``held`` is the number that others hold, and
        ``next_free`` when the first of them may be free.
        """
        return self._post("/v1/quarantine/claim", {"count": count, "skipped": skipped})

    def held(self) -> list[dict[str, Any]]:
        """Return the items that one holds."""
        items: list[dict[str, Any]] = self._request("GET", "/v1/quarantine/held").json()
        return items

    def renew(self, items: Sequence[int] | None = None) -> list[int]:
        """Hold items for another lease, by default all; return those."""
        renewed: list[int] = self._post("/v1/quarantine/renew", {"items": items})["items"]
        return renewed

    def release(self, items: Sequence[int] | None = None) -> list[int]:
        """Give items back, by default all; return those."""
        released: list[int] = self._post("/v1/quarantine/release", {"items": items})["items"]
        return released

    def resolve(
        self, item: int, label: Any, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Give an item that one holds its label."""
        given = {"label": str(label), "reason": reason, "note": note}
        return self._post(f"/v1/quarantine/{item}/resolve", given)

    def skip(self, item: int, *, reason: str | None = None, note: str | None = None) -> dict[str, Any]:
        """Pass an item on to others."""
        return self._post(f"/v1/quarantine/{item}/skip", {"reason": reason, "note": note})

    def undo(self, item: int, *, note: str | None = None) -> dict[str, Any]:
        """Take back the last label or skip."""
        return self._post(f"/v1/quarantine/{item}/undo", {"note": note})

    def show(self, item: int) -> dict[str, Any]:
        """Return an item with its features and history."""
        return self._get(f"/v1/quarantine/{item}")

    def labelled(self) -> bytes:
        """Return all labelled objects as a Parquet file, for `read_labelled`."""
        content: bytes = self._request("GET", "/v1/labelled").content
        return content

    def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._request("GET", path).json()
        return found

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._request("POST", path, json=body).json()
        return found

    def _request(self, method: str, path: str, **given: Any) -> Any:
        try:
            answer = self._http.request(method, path, **given)
        except self._unreached as error:
            raise GateError(0, f"{self._http.base_url} does not answer ({type(error).__name__}).") from error
        if answer.status_code == 200:
            return answer
        try:
            said = dict(answer.json())
        except (ValueError, TypeError):  # of something before the gate
            said = {}
        raise GateError(
            answer.status_code,
            said.get("detail", answer.text[:300]),
            said.get("errors"),
            said.get("decisions"),
        )


def _checked(token: str) -> str:
    token = token.strip()  # a file that it was written to ends with a line's end
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("this is not a token that 'transcendent gate token create' printed.")
    return token


def _names(ids: Iterable[Any]) -> list[str]:
    """Return ids as text; refuse missing ones, which would all be one object."""
    given = list(ids)
    for place, each in enumerate(given):
        if is_missing(each) or isinstance(each, bytes):
            raise ValueError(f"the id at position {place} is {each!r}: give every object a text of its own.")
    return list(map(str, given))


def _rows(X: Any) -> Iterable[dict[str, Any]]:
    if sp.issparse(X):
        for start, end in pairwise(X.indptr.tolist()):
            yield {"positions": X.indices[start:end].tolist(), "values": _plain(X.data[start:end])}
    elif hasattr(X, "columns"):
        names = list(map(str, X.columns))
        for row in np.asarray(X, dtype=np.float64):
            yield {"features": dict(zip(names, _plain(row), strict=True))}
    else:
        for row in np.atleast_2d(np.asarray(X, dtype=np.float64)):
            yield {"values": _plain(row)}


def _plain(values: Any) -> list[float | str | None]:
    """Return numbers as JSON has them: NaN is null, a missing value; infinity, which it has not, is text.

    So the gate refuses an object with such a number, names the field, and decides the others.
    """
    numbers = np.asarray(values, dtype=np.float64).tolist()
    return [None if each != each else each if abs(each) != inf else str(each) for each in numbers]
