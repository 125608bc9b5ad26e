"""A client for the gate."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from random import uniform
from typing import Any, Literal, Self
from urllib.parse import quote

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import canonical_rows, column_names, count_rows, is_missing, take_column
from transcendent._utils.extras import extra
from transcendent.errors import GateError
from transcendent.tables.layout import DOCUMENT

_UNANSWERED = (0, 502, 503, 504)  # 0: no connection, or no answer in time; 502 and 504 are a proxy's
_LONGEST_WAIT = 30  # seconds between two attempts
_FEW, _SMALL = 100, 256 << 10  # objects and bytes that every gate is expected to take


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
    unanswered : {"raise", "hold", "reject"}
        What becomes of objects that get no decision because the gate cannot be reached or is too busy:
        raise a `GateError`; hold them, with None in the place of a decision; or treat them as rejected, with
        ``"accepted": False, "answered": False``. In each case ``unanswered_objects`` has them, to be sent
        again with `decide_objects`.
    retries : int
        How often a request for decisions is sent again before that, after longer and longer waits.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        timeout: float = 60,
        unanswered: Literal["raise", "hold", "reject"] = "raise",
        retries: int = 3,
    ) -> None:
        if unanswered not in ("raise", "hold", "reject"):
            raise ValueError(f"unanswered must be 'raise', 'hold' or 'reject', not {unanswered!r}.")
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"address must be a URL such as http://127.0.0.1:8040, not {address!r}.")
        headers = {} if token is None else {"authorization": f"Bearer {_checked(token)}"}
        httpx2 = extra("httpx2", "gate-client")
        self._http = httpx2.Client(base_url=address, headers=headers, timeout=timeout)
        self._unreached = httpx2.TransportError
        self._unanswered, self._retries = unanswered, retries
        self.unanswered_objects: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def decide(
        self,
        ids: Iterable[str],
        X: Any,
        *,
        context: Iterable[dict[str, Any]] | None = None,
        seen_at: Iterable[str] | None = None,
    ) -> list[Any]:
        """Return decisions about the rows of a sparse matrix, a frame (by name), an array, or about texts.

        ``context`` has a small dict per object, for the analysts, ``seen_at`` its time in ISO 8601.
        """
        names = _names(ids)
        rows = list(_rows(canonical_rows(X)))
        for name, given in {"context": context, "seen_at": seen_at}.items():
            if given is not None:
                rows = [{**row, name: each} for row, each in _pairs(rows, list(given), f"values of {name}")]
        return self.decide_objects([{"id": name, **row} for row, name in _pairs(rows, names, "ids")])

    def decide_objects(self, objects: Sequence[dict[str, Any]]) -> list[Any]:
        """Return decisions about objects in one of the forms of ``POST /v1/decisions``.

        As many requests are sent as the limits of the gate need.
        """
        texts = [json.dumps(each, allow_nan=False) for each in objects]
        decisions: list[Any] = []
        errors: list[dict[str, str]] = []
        self.unanswered_objects = []
        try:
            sizes = self._sizes(texts)
            while sizes:
                start, size = len(decisions), sizes.pop(0)
                try:
                    decisions += self._decide(objects[start : start + size], texts[start : start + size])
                except GateError as error:
                    if error.status == 413 and size > 1:
                        sizes = [size // 2, size - size // 2, *sizes]
                    elif error.status == 422 and error.decisions is not None:
                        decisions += error.decisions
                        errors += [_moved(each, start) for each in error.errors]
                    else:
                        raise
        except GateError as error:
            self.unanswered_objects = list(objects[len(decisions) :])
            missing = self._without_answer(error, self.unanswered_objects, decisions)
            decisions += missing
        if errors:
            detail = f"{len(errors)} of {len(decisions)} objects cannot be decided; errors says why."
            raise GateError(422, detail, errors, decisions)
        return decisions

    def model(self) -> dict[str, Any]:
        """Return a description of the model that decides."""
        return self._get("/v1/model")

    def counts(self) -> dict[str, int]:
        """Count the items that wait, are held, have labels and are closed, and the objects over a cap."""
        return self._get("/v1/quarantine")

    def claim(
        self,
        count: int | None = None,
        *,
        skipped: bool = False,
        opinions: bool = False,
        campaign: str | None = None,
    ) -> dict[str, Any]:
        """Hold up to ``count`` items, by default one; those that you have skipped only if ``skipped``.

        With ``opinions``, hold items that others have labelled, to give a second opinion. With ``campaign``,
        hold members of it that chance draws, by default three.

        The answer has these ``items``, and in ``room`` the number of further items that you may hold: at 0,
        label, skip or release some first. If there are fewer items than requested, ``held`` is the number
        that others hold, and ``next_free`` is when the first of those leases ends.
        """
        given: dict[str, Any] = {"skipped": skipped} | ({"opinions": True} if opinions else {})
        given |= {name: each for name, each in (("count", count), ("campaign", campaign)) if each is not None}
        return self._post("/v1/quarantine/claim", given)

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

    def campaigns(self) -> list[dict[str, Any]]:
        """Return the campaigns that wait, those with the most items for each look first; at most 100."""
        return list(self._request("GET", "/v1/campaigns").json())

    def resolve_campaign(
        self, campaign: str, label: Any, *, reason: str | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Label the members of a campaign that wait; their number is in ``items``.

        Before that, the members that ``claim(campaign=...)`` gives have to be labelled, all alike.
        """
        given = {"label": str(label), "reason": reason, "note": note}
        return self._post(f"/v1/campaigns/{campaign}/resolve", given)

    def undo_campaign(self, campaign: str) -> dict[str, Any]:
        """Take back the labels that members of a campaign got together."""
        return self._post(f"/v1/campaigns/{campaign}/undo", None)

    def show(self, item: int) -> dict[str, Any]:
        """Return an item with its features and history."""
        return self._get(f"/v1/quarantine/{item}")

    def explain(self, item: int) -> dict[str, Any]:
        """Return why an item was rejected or accepted, and what it is like; ``text`` has it to print."""
        return self._get(f"/v1/quarantine/{item}/explanation")

    def find(self, object_id: str) -> list[dict[str, Any]]:
        """Return what became of an object, latest first: none if it was accepted or is unknown.

        Clients see the objects that they have sent, analysts and operators those of all senders.
        """
        try:
            return list(self._request("GET", f"/v1/objects/{quote(object_id, safe='')}").json())
        except GateError as error:
            if error.status == 404:
                return []
            raise

    def labelled(
        self, *, model: str = "", since: str | None = None, teach: bool = False, inferred: bool = False
    ) -> bytes:
        """Return labelled objects as the bytes of a Parquet file, for `read_labelled`.

        ``model`` is the digest of a model, or how it begins; by default all, if their columns are equal.
        ``since`` is an ISO date or time: only objects labelled then or later are returned. With ``teach``,
        those whose label may teach: if the gate wants second opinions, the ones that two analysts agree on.
        With ``inferred``, also those whose label nobody gave: copies and members of campaigns.
        """
        given = {"model": model} | ({} if since is None else {"since": since})
        given |= {"teach": "true"} if teach else {}
        given |= {"inferred": "true"} if inferred else {}
        return bytes(self._request("GET", "/v1/labelled", params=given).content)

    def label(
        self,
        label: Any,
        source: str,
        *,
        object_id: str | None = None,
        sender: str | None = None,
        item: int | None = None,
        reason: str | None = None,
        teach: bool = False,
    ) -> list[dict[str, Any]]:
        """Send another system's label of an item, or of the kept objects with an id, of a sender if given.

        ``source`` names the system, such as a sandbox. With ``teach``, the label is exported to learn from.
        """
        which = {"object_id": object_id, "sender": sender, "item": item}
        given = {**which, "label": str(label), "source": source, "reason": reason, "teach": teach}
        return list(self._request("POST", "/v1/labels", json=given).json())

    def events(self, after: str = "") -> Iterator[dict[str, Any]]:
        """Yield the events after the one with this id, oldest first, up to those that can be read now.

        Each has an ``id``: call again with that of the last one to get those that came since.
        """
        while True:
            page = self._answer("GET", "/v1/events", params={"after": after, "limit": 1000})
            yield from page["events"]
            if page["next"] == after:
                return
            after = page["next"]

    def _sizes(self, texts: list[str]) -> list[int]:
        """Return how many objects to send in each request. Only large ones need the limits of the gate."""
        sizes, room = [0], 0
        if len(texts) <= _FEW and sum(map(len, texts)) <= _SMALL:
            return [len(texts)]
        limits = self._again("GET", "/v1/model")["limits"]
        for each in texts:
            room -= len(each) + 1
            if sizes[-1] == limits["objects"] or room < 0:
                sizes.append(0)
                room = limits["bytes"] - len('{"objects":[]}') - len(each) - 1
            sizes[-1] += 1
        return sizes[1:]

    def _decide(self, objects: Sequence[dict[str, Any]], texts: list[str]) -> list[Any]:
        body = f'{{"objects":[{",".join(texts)}]}}'
        headers = {"content-type": "application/json"}
        answer = self._again("POST", "/v1/decisions", content=body, headers=headers)
        by = {"cutoff": answer["cutoff"]} if answer.get("cutoff") is not None else {}
        try:
            decisions = [{**each, **by} for each in answer["decisions"]]
            about_them = [each["id"] for each in decisions] == [each["id"] for each in objects]
        except (KeyError, TypeError):
            about_them = False
        if not about_them:
            raise GateError(0, f"{self._http.base_url} did not answer about these objects: is it a gate?")
        return decisions

    def _again(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """Send a request, and send it again while there is no answer."""
        for attempt in range(self._retries):
            try:
                return self._answer(method, path, **given)
            except GateError as error:
                if error.status not in _UNANSWERED:
                    raise
                # At random, so that many clients do not come back at the same moment.
                wait = uniform(0.5, 1) * 2**attempt
                time.sleep(min(max(wait, error.retry_after or 0), _LONGEST_WAIT))
        return self._answer(method, path, **given)

    def _answer(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        try:
            return dict(self._request(method, path, **given).json())
        except (ValueError, TypeError):  # such as a proxy's page
            raise GateError(0, f"{self._http.base_url} answered no JSON object: is it a gate?") from None

    def _without_answer(
        self, error: GateError, objects: list[dict[str, Any]], others: list[Any]
    ) -> list[Any]:
        """Return what stands in the place of decisions, or raise."""
        if self._unanswered == "raise" or error.status not in _UNANSWERED:
            if others:
                error.decisions = [*others, *[None] * len(objects)]
            raise error
        if self._unanswered == "hold":
            return [None] * len(objects)
        rest = dict.fromkeys(("credibility", "confidence", "votes", "doubt"))
        return [
            {"id": each.get("id"), "label": None, "accepted": False, **rest, "answered": False}
            for each in objects
        ]

    def _get(self, path: str) -> dict[str, Any]:
        return dict(self._request("GET", path).json())

    def _post(self, path: str, body: Any) -> dict[str, Any]:
        return dict(self._request("POST", path, json=body).json())

    def _request(self, method: str, path: str, **given: Any) -> Any:
        try:
            answer = self._http.request(method, path, **given)
        except self._unreached as error:
            cause = str(error)[:300] or type(error).__name__
            raise GateError(0, f"{self._http.base_url} does not answer: {cause.rstrip('.')}.") from error
        if answer.status_code == 200:
            return answer
        try:
            problem = dict(answer.json())
        except (ValueError, TypeError):
            problem = {}
        detail = problem.get("detail", "a proxy has answered in place of a gate.")
        after = answer.headers.get("retry-after", "")
        raise GateError(
            answer.status_code,
            detail,
            problem.get("errors"),
            problem.get("decisions"),
            float(after) if after.isdigit() else None,
        )


def _moved(error: dict[str, str], start: int) -> dict[str, str]:
    """Return an error about an object of a request as one about an object of all requests."""
    moved = re.sub(r"^objects\[(\d+)\]", lambda found: f"objects[{int(found[1]) + start}]", error["field"])
    return {**error, "field": moved}


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


def _pairs(rows: list[Any], given: list[Any], what: str) -> Iterable[tuple[Any, Any]]:
    if len(given) != len(rows):
        raise ValueError(f"{len(given)} {what} for {len(rows)} rows.")
    return zip(rows, given, strict=True)


def _rows(X: Any) -> Iterable[dict[str, Any]]:
    if sp.issparse(X):
        for start, end in pairwise(X.indptr.tolist()):
            yield {"positions": X.indices[start:end].tolist(), "values": _plain(X.data[start:end])}
    elif names := column_names(X):
        columns = [_cells(name, take_column(X, j)) for j, name in enumerate(names)]
        for row in zip(*columns, strict=True):
            yield {"features": dict(zip(names, row, strict=True))}
    elif np.ndim(X) == 1 and count_rows(X) and isinstance(X[0], str):
        for text in X:
            yield {"features": {DOCUMENT: None if is_missing(text) else str(text)}}
    else:
        for row in np.atleast_2d(np.asarray(X, dtype=np.float64)):
            yield {"values": _plain(row)}


def _cells(name: str, column: Any) -> list[Any]:
    """Return the values of a column for JSON: numbers, text, true, false, and null."""
    if column.dtype.kind == "b":
        return list(column.tolist())
    if column.dtype.kind in "iuf":
        return _plain(column)
    cells = [None if is_missing(each) else each for each in column.tolist()]
    for each in cells:
        if not isinstance(each, str | bool | int | float | None):
            raise ValueError(
                f"the column {name!r} holds a {type(each).__name__}: a gate takes numbers, text and booleans."
            )
    return [_plain([each])[0] if isinstance(each, float) else each for each in cells]


def _plain(values: Any) -> list[float | str | None]:
    """Return numbers for JSON: NaN as null, a missing value, and infinity as text.

    JSON has no infinity. The gate refuses the text, names its field, and decides the other objects.
    """
    numbers = np.asarray(values, dtype=np.float64).tolist()
    return [None if each != each else each if abs(each) != inf else str(each) for each in numbers]
