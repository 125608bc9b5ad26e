"""People at pages of gates in Chromium: an analyst who labels by keys, and a wall."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Response,
    sync_playwright,
)

CHROMIUM = "/usr/bin/chromium"
TIMEOUT = 60_000
"""Milliseconds that a page may take: a gate answers within 30 seconds, or says that it cannot."""
_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
_END = "form.act, .head form, p.asof, main.narrow .button"  # an item, the queue, the wall, a message
_MESSAGES = {409: "This is not possible now", 503: "The gate cannot answer now"}
_INSIDE = re.compile(r"Traceback|psycopg|sqlalchemy|File \"|Internal Server Error")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium. In its thread, nothing else can run an event loop meanwhile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        browser.close()


class Watched:
    """What pages of a browser did that they must not do."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def watch(self, page: Page, origin: str) -> None:
        """Note requests to another host, errors of scripts, and what the console says."""
        page.on("request", lambda request: self._check(request.url, origin))
        page.on("console", lambda said: self._say(said))
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))

    def _check(self, url: str, origin: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != origin:
            self.faults.append(f"request: {url}")

    def _say(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.faults.append(f"console: {said.text}")


def sign_in(page: Page, link: str) -> None:
    """Sign in by a link that works once."""
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Pages").wait_for()


def follow(page: Page, control: Locator) -> None:
    """Click what leads to another page, and wait for that page."""
    with page.expect_navigation():
        control.click()


def press(page: Page, key: str) -> Response | None:
    """Press a key as a person does, who looks first; return the answer to what it sends."""
    page.wait_for_load_state()  # before that, a page does not listen to keys
    page.wait_for_timeout(220)
    with page.expect_navigation() as answer:
        page.keyboard.press(key)
    return answer.value


def on_wall(page: Page) -> tuple[int, int]:
    """Return how many items wait and the labels of the week, as the wall that is open shows them."""
    tile = page.get_by_role("region", name="Are analysts keeping up?").inner_text()
    found = [re.search(pattern, tile) for pattern in (r"([\d,]+) wait", r"([\d,]+) labels?\b")]
    waiting, labels = (int(each[1].replace(",", "")) if each else 0 for each in found)
    return waiting, labels


def numbers(page: Page, address: str) -> tuple[int, int, int]:
    """Return how many items wait at the desk, how many on the wall, and the labels of the week there."""
    page.goto(f"{address}/desk")
    heading = page.get_by_role("heading", level=1).inner_text()
    page.goto(f"{address}/wall")
    return (int(heading.split()[0].replace(",", "")), *on_wall(page))


class Person:
    """A page of somebody who is signed in at gates on this machine, and goes to the next if one fails.

    Attributes
    ----------
    met : Counter
        How often each message of a gate was shown, and how often there was no answer.
    faults : list of str
        Pages that are not whole, that show something of the inside, or that ask to sign in again.
    """

    def __init__(self, context: BrowserContext, addresses: Sequence[str]) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self._addresses = cycle(addresses)
        self.address = next(self._addresses)
        self.met: Counter[str] = Counter()
        self.faults: list[str] = []

    def open(self, path: str) -> bool:
        """Open a page; return whether it is there."""
        return self._there(lambda: self.page.goto(f"{self.address}{path}"))

    def move(self) -> None:
        """Go on at the next gate."""
        self.address = next(self._addresses)

    def _there(self, act: Callable[[], Response | None]) -> bool:
        """Do what leads to a page, and look at it; return whether it is one that shows no message."""
        try:
            answer = act()
            status = 200 if answer is None else answer.status
            said, url = self.page.locator("body").inner_text(), self.page.url
            whole = self.page.locator(_END).count() > 0
        except Error as error:
            self.met[re.search(r"ERR_\w+|Timeout|$", error.message)[0] or "no answer"] += 1  # type: ignore[index]
            return False
        known = status == 200 or said.find(_MESSAGES.get(status, "\0")) >= 0
        if not whole or not known or _INSIDE.search(said) or "/sign-in" in url:
            self.faults.append(f"{status} at {url}: {said[:300]}")
        if status != 200:
            self.met[f"{status} {_MESSAGES.get(status, '')}".strip()] += 1
        return status == 200


class Analyst(Person):
    """An analyst who labels by keys.

    Attributes
    ----------
    confirmed : list of int
        Items whose label a page has confirmed.
    """

    def __init__(self, context: BrowserContext, addresses: Sequence[str]) -> None:
        super().__init__(context, addresses)
        self.confirmed: list[int] = []

    def label(self) -> bool:
        """Label the item that is open, or open one; if there is no answer, begin again at the next gate."""
        on_item = urlsplit(self.page.url).path.startswith("/desk/items/")
        if on_item and self.page.locator("button[data-key='1']").count():
            good = self._there(self._label)
        else:
            good = self.open("/desk") and self._there(lambda: press(self.page, "Enter"))
        if not good:
            time.sleep(0.2)
            self.move()
            self.open("/desk")
            return False
        for link in self.page.locator(".toast a:first-child[href^='/desk/items/']").all():
            self.confirmed.append(int(str(link.get_attribute("href")).rpartition("/")[2]))
        return True

    def _label(self) -> Response | None:
        self.page.locator("#why:not([data-loaded])").wait_for(state="detached")
        return press(self.page, "1")
