"""Texts and numbers from senders, as pages show them."""

import math
import re

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
    "https://a/\u202e", "http:/x", "https://%d0%b0pple.example/", "https://good.example%2eevil.example/",
    'https://x"onmouseover=alert(1)', "https://good.example;x.evil.example/", "https://good.example:443:evil",
    "https://" + "a." * 200])  # fmt: skip
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


@pytest.mark.parametrize("host", ["good.example." + "a" * 60 + ".evil.example", "evil.example"])
@pytest.mark.parametrize("length", [5, 30, 45, 300])
def test_a_link_is_not_cut_before_the_end_of_its_host(host, length):
    seen = re.search(r"<bdi[^>]*>(.*)</bdi>", linked(f"https://{host}/{'x' * length}"))[1]
    assert seen.startswith(f"https://{host}/")
    assert len(seen) <= max(80, len(host) + 60)
