"""Pages that people have open in Chromium meanwhile, for `durability.py`.

An analyst labels by keys at the desk, and goes to the next gate if one does not answer. One wall is loaded
again every few seconds, another one is left alone and brings itself up to date.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from playwright.sync_api import Browser
from sqlalchemy import text

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.pages.people import Analyst, Person, chromium, on_wall, sign_in
from transcendent.gate.database import connect
from transcendent.gate.pages.sessions import Sessions

RELOADED = 5.0  # seconds between two loads of the wall
LONGEST = 120.0  # seconds until the wall that is left alone shows what the other one shows
_LABELS = """
SELECT label.item, count(*) AS n FROM label LEFT JOIN inferred ON inferred.label = label.id
WHERE author = 'desk' AND action = 'label' AND inferred.label IS NULL GROUP BY label.item
"""
_ALL_LABELS = """
SELECT count(*) FROM label WHERE action = 'label' AND NOT EXISTS (
    SELECT FROM inferred WHERE inferred.label = label.id)
"""


class OpenPages:
    """Three pages, in a thread of their own; the pages open as it is entered."""

    def __init__(self, url: str, addresses: list[str]) -> None:
        self._url, self._addresses = url, addresses
        self._open, self._labelled, self._done = (threading.Event() for _ in range(3))
        self._pool = ThreadPoolExecutor(1)
        self._loads = self._stale = 0
        self._shown: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        self._future = self._pool.submit(self._run)
        while not self._open.wait(0.1):
            if self._future.done():
                self._future.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._pool.shutdown()

    def stop_labelling(self) -> None:
        """Let the analyst stop; the pages stay open."""
        self._labelled.set()

    def _run(self) -> None:
        with chromium() as browser:
            self._desk = Analyst(browser.new_context(), self._addresses)
            self._reloaded, self._left = self._wall(browser), self._wall(browser)
            self.people = {"desk": self._desk, "door": self._reloaded, "hall": self._left}
            for name, person in self.people.items():
                role = "analyst" if name == "desk" else "viewer"
                for address in self._addresses:  # each port has a cookie of its own
                    sign_in(person.page, self._link(address, name, role))
            self._left.open("/wall")
            self._open.set()
            self._work()
            self._compare()

    def _wall(self, browser: Browser) -> Person:
        return Person(browser.new_context(), self._addresses[:1])

    def _link(self, address: str, name: str, role: str) -> str:
        engine = connect(self._url)
        key = Sessions(engine).invite(name, role, 5)
        engine.dispose()
        return f"{address}/sign-in/link?key={key}"

    def _work(self) -> None:
        next_load, stale = 0.0, False
        while not self._done.is_set():
            if self._labelled.is_set():
                self._desk.page.wait_for_timeout(200)
            else:
                self._desk.label()
            if time.monotonic() > next_load:
                self._loads += self._reloaded.open("/wall")
                next_load = time.monotonic() + RELOADED
            was, stale = stale, self._left.page.locator("#stale").is_visible()
            self._stale += stale and not was

    def _compare(self) -> None:
        """Load each page; wait until the wall that was left alone shows what the other one does."""
        for person, path in ((self._desk, "/desk"), (self._reloaded, "/wall")):
            if not person.open(path):
                person.faults.append(f"{path} is not there in the end")
        end = time.monotonic() + LONGEST
        while len(set(self._shown)) != 1 and time.monotonic() < end:
            self._left.page.wait_for_timeout(500)
            if self._left.page.locator("#stale").is_hidden():
                self._shown = [on_wall(each.page) for each in (self._reloaded, self._left)]

    def check(self) -> bool:
        """Print and compare what pages have confirmed and shown with what is in the database."""
        self._done.set()
        self._future.result()
        engine = connect(self._url)
        with engine.connect() as connection:
            times = {row.item: row.n for row in connection.execute(text(_LABELS))}
            labels = connection.execute(text(_ALL_LABELS)).scalar_one()
        engine.dispose()
        confirmed = self._desk.confirmed
        lost = sum(item not in times for item in confirmed)
        twice = sum(n > 1 for n in times.values()) + len(confirmed) - len(set(confirmed))
        print(f"labels confirmed at the desk: {len(confirmed):,}, lost: {lost}, there twice: {twice}")
        print(f"labels without an answer that are there: {len(times.keys() - set(confirmed))}")
        print(f"walls loaded: {self._loads}; old ones that said so and came back: {self._stale}")
        print(f"walls show {self._shown}; labels {labels:,}")
        for name, person in self.people.items():
            print(f"  {name} met {dict(person.met)}")
            for fault in person.faults:
                print(f"  {name}: {fault}")
        same = len(self._shown) == 2 and {each[1] for each in self._shown} == {labels}
        return same and not (lost or twice or any(each.faults for each in self.people.values()))
