"""Chromium, driven: pages of a gate as people see them."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.gate.pages import people
from tests.gate.pages.people import CHROMIUM, TIMEOUT, Watched

expect.set_options(timeout=TIMEOUT)
_AXE = Path(__file__).parents[3] / ".venv" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")  # as long as it runs, nothing else can run an event loop
def chromium():
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is missing: install the package chromium.")
    with people.chromium() as browser:
        yield browser


@pytest.fixture
def browser_page(chromium):
    """Open pages of a gate; a request to another host, an error of a script or a broken policy is a failure.

    Each has cookies of its own. ``expected`` are parts of what the console says of answers that are meant to
    be errors.
    """
    watched, contexts, allowed = Watched(), [], []

    def opened(gate, *, expected=(), **given):
        contexts.append(chromium.new_context(base_url=gate.address, **given))
        allowed.extend(expected)
        page = contexts[-1].new_page()
        page.set_default_timeout(TIMEOUT)
        watched.watch(page, gate.address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [fault for fault in watched.faults if not any(each in fault for each in allowed)] == []


def sign_in(page, gate, name, role="analyst", to="/"):
    """Sign in with a new token."""
    page.goto(to if to != "/" else "/sign-in")
    page.get_by_label("Your token").fill(gate.token(name, role))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Pages").wait_for()
    return page


@pytest.fixture(scope="session")
def axe():
    """Return the serious violations of accessibility rules on a page."""
    if not _AXE.exists():
        pytest.skip("axe-core is missing: run `npm install --prefix .venv axe-core`.")
    script = _AXE.read_text()

    def violations(page):
        # A script of the page itself would break its policy; this one belongs to the test.
        page.evaluate(f"() => {{ {script} }}")
        found = page.evaluate("() => axe.run()")["violations"]
        return [
            (each["id"], node["html"][:200], node["failureSummary"])
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    return violations
