"""The header Host: a gate that answers its own machine alone is not reached by another name."""

import pytest

from tests.gate.inside import application, ask
from transcendent.gate.hosts import host_in

MALFORMED = [
    *("evil.example:", "evil.example:99999", "a{b.evil.example", "x y", "evil@127.0.0.1", "[", "[::1]x"),
    *("127.0.0.1:8040;x", "127.0.0.1:8040/", "127.0.0.1:-1", "127.0.0.1\t", "\xe9"),
]


class Deciding:
    """A service that decides whatever it is given."""

    async def answer(self, body, who):
        return 200, b"{}"


@pytest.fixture(scope="module")
def app():
    """A gate without tokens."""
    return application({"service": Deciding()})


@pytest.fixture(scope="module")
def closed():
    """A gate with tokens, none of which may be looked at."""
    return application({"tokens": object(), "sessions": object()})


@pytest.mark.parametrize("header", MALFORMED)
def test_a_malformed_host_is_refused_before_anything_is_done(app, closed, header):
    assert host_in(header) is None
    sent = {"host": header.encode("latin1")}
    for gate in (app, closed):
        for method, path in (("GET", "/v1/labelled"), ("POST", "/v1/decisions"), ("POST", "/sign-in/link")):
            answer = ask(gate, method, path, headers=sent)
            assert (answer.status_code, answer.json()["title"]) == (400, "Bad request")


def test_one_host_is_named(app):
    twice = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert ask(app, "POST", "/v1/decisions", headers=twice).status_code == 400


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8040", "127.0.0.1"),
        ("[::1]:8040", "::1"),
        ("LOCALHOST", "localhost"),
        ("gate_a.example.:1", "gate_a.example."),
    ],
)
def test_a_host_is_named_with_or_without_a_port(header, host):
    assert host_in(header) == host


def test_without_tokens_only_names_of_this_machine_are_answered(app):
    for host in ("127.0.0.1", "[::1]:8040", "Localhost:1"):
        assert ask(app, "POST", "/v1/decisions", headers={"host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8040", "192.0.2.1", ""):
        assert ask(app, "POST", "/v1/decisions", headers={"host": host}).status_code == 403
