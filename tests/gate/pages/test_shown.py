"""Texts and numbers from senders, as pages show them."""

import math

import pytest

from transcendent.gate.pages.shown import linked, number, visible


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("a\u202eb", "a⟨202E⟩b"),
        ("\u3164\u2800", "⟨3164⟩⟨2800⟩"),  # a name without a shape
        ("é = e\u0301, ǟ\u0301", "é = e\u0301, ǟ\u0301"),
        ("e" + "\u0335" * 6, "e" + "\u0335" * 4 + "⟨0335⟩⟨0335⟩"),  # it would cover other lines
        ("\ud800", "⟨D800⟩"),
        ("\x1b[31m", "␛[31m"),
    ],
)
def test_what_cannot_be_seen_or_covers_others_is_marked(given, seen):
    assert visible(given) == seen


@pytest.mark.parametrize("given", ["javascript:1", "https://good.example@evil.example/", "https://[", "https://",
    "https://g\u0456thub.com/x", "https://good.example\\@evil.example/", "//evil.example", "https://a b",
    "https://a/\u202e", "http:/x"])  # fmt: skip
def test_what_may_lead_elsewhere_than_it_seems_is_no_link(given):
    assert "<a " not in linked(given)


def test_links_lead_where_they_seem_to_lead():
    for given in ("https://tickets.example:8443/é?a=1&b=@x", "http://[::1]/", "https://xn--e1afmkfd.example"):
        assert linked(given).startswith('<a href="http')


@pytest.mark.parametrize(
    ("given", "seen"),
    [(math.nan, "–"), (math.inf, "inf"), (-math.inf, "-inf"), (1e300, "1e+300"), (0.0, "0"), ("nan", "nan")],
)
def test_numbers_that_are_none_are_shown(given, seen):
    assert number(given) == seen
