"""A client for the gate."""

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
    """A connection to a gate: close it, or use it in a ``with`` statement.

    Parameters
    ----------
    address : str
        A URL such as ``"http://127.0.0.1:8040"``.
    token : str or None
        The token that ``transcendent gate token create`` printed; None for a gate without tokens.
    timeout : float
        Seconds to wait for an answer.
    """

    def __init__(self, address: str, token: str | None = None, *, timeout: float = 60) -> None:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"address must be a URL such as http://127.0.0.1:8040, not {address!r}.")
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
        """Return decisions about the rows of a sparse matrix, a pandas frame (by name), or an array."""
        names = _names(ids)
        rows = list(_rows(canonical_rows(X)))
        if len(names) != len(rows):
            raise ValueError(f"{len(names)} ids for {len(rows)} rows.")
        return self.decide_objects([{"id": name, **row} for name, row in zip(names, rows, strict=True)])

    def decide_objects(self, objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return decisions about objects in one of the forms of ``POST /v1/decisions``."""
        return list(self._post("/v1/decisions", {"objects": list(objects)})["decisions"])

    def model(self) -> dict[str, Any]:
        """Return a description of the model that decides."""
        return self._get("/v1/model")

    def counts(self) -> dict[str, int]:
        """Return the numbers of items that wait, are held and have labels."""
        return self._get("/v1/quarantine")

    def claim(self, count: int = 1, *, skipped: bool = False) -> dict[str, Any]:
        """Hold up to ``count`` items; those that you have skipped only if ``skipped``.

        The answer has these ``items``, and in ``room`` the number of further items that you may hold: at 0,
        label, skip or release some first. If there are fewer items than requested, ``held`` is the number
        that others hold, and ``next_free`` is when the first of those leases ends.
        """
        return self._post("/v1/quarantine/claim", {"count": count, "skipped": skipped})

    def held(self) -> list[dict[str, Any]]:
        """Return the items that you hold."""
        return list(self._request("GET", "/v1/quarantine/held").json())

    def renew(self, items: Sequence[int] | None = None) -> list[int]:
        """Restart the lease of items, by default all that you hold; return their ids."""
        return list(self._post("/v1/quarantine/renew", {"items": items})["items"])

    def release(self, items: Sequence[int] | None = None) -> list[int]:
        """Release items, by default all that you hold; return their ids."""
        return list(self._post("/v1/quarantine/release", {"items": items})["items"])

    def resolve(
        self, item: int, label: Any, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label an item that you hold."""
        given = {"label": str(label), "reason": reason, "note": note}
        return self._post(f"/v1/quarantine/{item}/resolve", given)

    def skip(self, item: int, *, reason: str | None = None, note: str | None = None) -> dict[str, Any]:
        """Move an item that you hold to the end of the queue, for other analysts."""
        return self._post(f"/v1/quarantine/{item}/skip", {"reason": reason, "note": note})

    def undo(self, item: int, *, note: str | None = None) -> dict[str, Any]:
        """Take back the last label or skip of an item."""
        return self._post(f"/v1/quarantine/{item}/undo", {"note": note})

    def show(self, item: int) -> dict[str, Any]:
        """Return an item with its features and history."""
        return self._get(f"/v1/quarantine/{item}")

    def labelled(self) -> bytes:
        """Return all labelled objects as the bytes of a Parquet file, for `read_labelled`."""
        return bytes(self._request("GET", "/v1/labelled").content)

    def _get(self, path: str) -> dict[str, Any]:
        return dict(self._request("GET", path).json())

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        return dict(self._request("POST", path, json=body).json())

    def _request(self, method: str, path: str, **given: Any) -> Any:
        try:
            answer = self._http.request(method, path, **given)
        except self._unreached as error:
            raise GateError(0, f"{self._http.base_url} does not answer ({type(error).__name__}).") from error
        if answer.status_code == 200:
            return answer
        try:
            problem = dict(answer.json())
        except (ValueError, TypeError):  # the answer of a proxy
            problem = {}
        detail = problem.get("detail", answer.text[:300])
        raise GateError(answer.status_code, detail, problem.get("errors"), problem.get("decisions"))


def _checked(token: str) -> str:
    token = token.strip()  # a file with a token ends with a newline
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("not a token: use what 'transcendent gate token create' printed.")
    return token


def _names(ids: Iterable[Any]) -> list[str]:
    """Return ids as text; raise on missing ones, which would all denote one object."""
    given = list(ids)
    for place, each in enumerate(given):
        if is_missing(each) or isinstance(each, bytes):
            raise ValueError(f"the id at position {place} is {each!r}: every object needs an id of its own.")
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
    """Return numbers for JSON: NaN as null, a missing value, and infinity as text.

    JSON has no infinity. The gate refuses the text, names its field, and decides the other objects.
    """
    numbers = np.asarray(values, dtype=np.float64).tolist()
    return [None if each != each else each if abs(each) != inf else str(each) for each in numbers]
