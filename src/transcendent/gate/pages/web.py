"""What all pages have in common: who may see them, how they are drawn, and how people sign in and out.

Pages know people by the cookie of a session, and nobody by a token; the API does the reverse. A form is taken
from a page of this gate only: the browser says where it comes from, and it holds a secret of the session.
"""

import hashlib
import hmac
import mimetypes
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import jinja2
import structlog
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from transcendent.gate.access import BadTokenError, Caller, Tokens, token_id
from transcendent.gate.pages.sessions import SIGNED_IN, LinkError, Sessions, csrf_of
from transcendent.gate.pages.shown import FILTERS
from transcendent.gate.routes import ANALYSTS, RULES, host_of
from transcendent.gate.settings import is_loopback

_HERE = Path(__file__).parent
_NOBODY = Caller("nobody", "client")
_MAX_FIELDS = 50
_STATIC = "/static/{name}"
HEADERS = [
    (b"content-security-policy", b"default-src 'none'; style-src 'self'; script-src 'self'; "
    b"img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers would hide where forms come from
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]  # fmt: skip
_KEEP_NOTHING = (b"cache-control", b"no-store")


class PageRoute(APIRoute):
    """A route whose answers, also of errors, are pages."""


def headers_of(given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a page's answer, with those that protect it."""
    kept = [] if any(name == b"cache-control" for name, _ in given) else [_KEEP_NOTHING]
    return [*given, *HEADERS, *kept]


def origin_of(request: Request) -> str:
    """Return where browsers see this gate; raise if it does not say so to other machines."""
    public: str | None = request.app.state.settings.public_url
    if public is not None:
        return public
    host = request.headers.get("host", "")  # browsers always send it
    if not host or not is_loopback(host_of(request)):
        raise HTTPException(403, "pages are shown on this machine only: set public_url for others.")
    return f"http://{host}".lower()


def _cookie(request: Request) -> tuple[str, bool]:
    """Return the name of the session's cookie, and whether it is for https alone.

    Cookies do not know of ports: another gate, or any server, of the same host must not replace it.
    """
    scheme, _, host = origin_of(request).partition("://")
    port, secure = host.rpartition("]")[2].partition(":")[2], scheme == "https"
    return f"{'__Host-' if secure else ''}session{f'-{port}' if port else ''}", secure


def session_of(request: Request) -> str:
    """Return the id of the session that a browser sent, or nothing."""
    return request.cookies.get(_cookie(request)[0], "")


def _check_origin(request: Request) -> None:
    """Raise unless a page of this gate sent a form, as browsers say."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    own = origin in (None, "null", origin_of(request)) and site in (None, "same-origin")
    if not own or (origin in (None, "null") and site is None):
        raise HTTPException(403, "the form was not sent from a page of this gate: open the page again.")


async def posted(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise if it is not one."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "forms are sent as application/x-www-form-urlencoded.")
    try:
        body = (await request.body()).decode()
        return dict(parse_qsl(body, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise HTTPException(400, "the form cannot be read: it must be text in UTF-8.") from None


Form = Annotated[dict[str, str], Depends(posted)]


async def visitor(request: Request) -> Caller:
    """Return whose session a request has, if the rule of its route allows it; raise otherwise."""
    allowed = RULES.get((request.method, request.scope["route"].path_format), frozenset())
    if request.scope["route"].path_format == _STATIC:
        return _NOBODY
    if request.app.state.sessions is None:
        raise HTTPException(403, "a gate without tokens has no pages: start it with tokens to sign in.")
    origin_of(request)
    if request.method == "POST":
        _check_origin(request)
    if allowed is None:
        return _NOBODY
    caller = await _signed_in(request)
    if caller is None:
        back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if request.method == "POST":  # what was sent is lost; the page that sent it can be opened again
            back = await _page_of_form(request)
        query = f"?next={quote(back)}" if back != "/" else ""
        query += f"{'&' if query else '?'}lost=1" if request.method == "POST" else ""
        raise HTTPException(303, "sign in first.", headers={"location": f"/sign-in{query}"})
    structlog.contextvars.bind_contextvars(caller=caller.name)
    request.state.caller = caller
    if caller.role not in allowed:
        raise HTTPException(403, f"the role {caller.role} may not see this page.")
    if request.method == "POST":
        given = (await posted(request)).get("csrf", "")
        if not hmac.compare_digest(given.encode(), csrf_of(session_of(request)).encode()):
            raise HTTPException(403, "the form is out of date, and nothing was saved: open the page again.")
    return caller


async def _page_of_form(request: Request) -> str:
    """Return the page that a form was sent from: its item's, or the nearest above its address."""
    form: dict[str, str] = {}
    with suppress(HTTPException):
        form = await posted(request)
    path, route = request.url.path, request.scope["route"].path_format
    while route and ("GET", route) not in RULES:
        path, route = path.rpartition("/")[0], route.rpartition("/")[0]
    if path == "/desk" and form.get("item"):
        path = f"/desk/items/{quote(form['item'], safe='')}"
    row = form.get("from") if path.startswith("/desk/items/") else None
    return _local((path or "/") + (f"?{urlencode({'from': row})}" if row else ""))


async def _signed_in(request: Request) -> Caller | None:
    sessions: Sessions = request.app.state.sessions
    session = session_of(request)
    return await run_in_threadpool(sessions.visitor, session) if session else None


Visitor = Annotated[Caller, Depends(visitor)]


def page_router() -> APIRouter:
    """Return a router for pages; the rules hold for each of its routes."""
    return APIRouter(include_in_schema=False, route_class=PageRoute, dependencies=[Depends(visitor)])


pages = page_router()


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    made.filters |= FILTERS
    return made


def render(request: Request, template: str, status: int = 200, **given: Any) -> HTMLResponse:
    """Return a page made from a template, which also gets ``caller``, ``csrf``, ``now`` and ``may``."""
    caller: Caller | None = getattr(request.state, "caller", None)
    given |= {"caller": caller, "csrf": "", "now": datetime.now(UTC), "may": partial(_may, caller)}
    if caller is not None:
        given["csrf"] = csrf_of(session_of(request))
    return HTMLResponse(_environment().get_template(template).render(given), status)


def _may(caller: Caller | None, path: str) -> bool:
    """Return whether a person may open a page, for links to it."""
    return caller is not None and caller.role in (RULES.get(("GET", path)) or frozenset())


def error_page(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the page of an error, or the redirect that it stands for."""
    if status == 303:
        return Response(status_code=303, headers=headers)
    return render(request, "error.html", status, detail=detail, code=status)


def to(path: str) -> Response:
    """Return a redirect to a page of this gate, after a form."""
    return RedirectResponse(path, 303)


def _local(path: str) -> str:
    """Return a path of this gate, or its front page if it is none: never another host."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    plain = path.isascii() and path.isprintable() and "\\" not in path
    own = path.startswith("/") and not path.startswith("//") and not (parts.scheme or parts.netloc)
    return path if plain and own and not path.startswith("/sign-in") and len(path) <= 500 else "/"


@pages.get("/")
async def home(caller: Visitor) -> Response:
    """Lead to the page that a person's role works with."""
    return to("/desk" if caller.role in ANALYSTS else "/wall")


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Return the content, type and version of each static file."""
    found = {}
    for path in sorted((_HERE / "static").iterdir()):
        content, kind = path.read_bytes(), mimetypes.guess_type(path.name)[0] or "text/plain"
        version = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        found[path.name] = content, f"{kind}; charset=utf-8", version
    return found


@pages.get(_STATIC)
async def static(request: Request, name: str) -> Response:
    """Return the stylesheet or the script."""
    if name not in _files():
        raise HTTPException(404, "there is no such file.")
    content, kind, version = _files()[name]
    headers = {"etag": version, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == version:
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "content-type": kind})


@pages.get("/sign-in")
async def sign_in_page(request: Request, next: str = "/", lost: str = "") -> Response:  # noqa: A002
    """Ask for a token; ``lost`` says that a form was sent without a session."""
    problem = "Your session had ended: what you just sent was not saved. Sign in again." if lost else None
    return render(request, "sign_in.html", next=_local(next), problem=problem)


@pages.post("/sign-in")
async def sign_in(request: Request, form: Form) -> Response:
    """Begin a session by a token, which is checked as that of a program is."""
    tokens: Tokens = request.app.state.tokens
    back, token = _local(form.get("next", "/")), form.get("token", "").strip()
    given: dict[str, Any] = {"next": back}
    try:
        caller = await tokens.caller(token)
    except BadTokenError as error:
        return render(request, "sign_in.html", 401, problem=str(error), **given)
    structlog.contextvars.bind_contextvars(caller=caller.name)
    if caller.role not in SIGNED_IN:
        problem = f"pages are for {', '.join(SIGNED_IN)}: this token has the role {caller.role}."
        return render(request, "sign_in.html", 403, problem=problem, **given)
    sessions: Sessions = request.app.state.sessions
    number, before = token_id(token), session_of(request)
    session = await run_in_threadpool(sessions.begin, caller, number, before)
    return _with_session(request, to(back), session)


@pages.get("/sign-in/link")
def link_page(request: Request, key: str = "") -> Response:
    """Show whom a link signs in; it is used up by the button, not by a program that previews links."""
    try:
        invited: Caller = request.app.state.sessions.invited(key)
    except LinkError as error:
        return render(request, "sign_in.html", 410, next="/", problem=str(error))
    return render(request, "link.html", key=key, invited=invited)


@pages.post("/sign-in/link")
def use_link(request: Request, form: Form) -> Response:
    """Begin a session by a link, which is used up."""
    sessions: Sessions = request.app.state.sessions
    try:
        session = sessions.accept(form.get("key", ""), session_of(request))
    except LinkError as error:
        return render(request, "sign_in.html", 410, next="/", problem=str(error))
    return _with_session(request, to("/"), session)


def _with_session(request: Request, response: Response, session: str) -> Response:
    name, secure = _cookie(request)
    response.set_cookie(name, session, httponly=True, samesite="strict", secure=secure, path="/")
    return response


@pages.post("/sign-out")
def sign_out(request: Request) -> Response:
    """End the session."""
    request.app.state.sessions.end(session_of(request))
    response, (name, secure) = to("/sign-in"), _cookie(request)
    response.delete_cookie(name, httponly=True, samesite="strict", secure=secure, path="/")
    return response
