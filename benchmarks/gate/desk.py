"""Measure the desk: 100 items labelled by keys in a driven browser, with 10^6 items that wait.

TRANSCENDENT_DATA=... python benchmarks/gate/desk.py [--waiting 1000000] [--small] [--folder FOLDER]

Items are apps of 2013, copied within the database until there are enough, each as a content of its own;
20,000 of them are in 100 campaigns. An analyst in Chromium opens the next item, waits for the explanation and
presses a key: half of the time for items in order, half for members of campaigns. The gate's own log says how
long it took to answer: the time of an item is the sum over all requests between two labels.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apps
import numpy as np
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import Engine, text
from waiting import Filler

from transcendent.gate.access import Tokens
from transcendent.gate.database import connect, make_months, migrate, month_of

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.processes import Gate, cluster_in

LABELS = 100
BAR = 100  # milliseconds
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# As if each item had been found to have features of its own; finding that out is measured elsewhere, and so
# is the search for campaigns, which does not begin meanwhile.
CONTENTS = (
    "INSERT INTO item_content SELECT id, sha256(convert_to(id::text, 'UTF8')) FROM item",
    "INSERT INTO content (key, place, leader) SELECT key, random(), item FROM item_content",
    "UPDATE contents_known SET before = (SELECT max(id) + 1 FROM item)",
    """UPDATE content SET campaign = lpad(to_hex(chosen.n / 200), 12, '0') FROM (
        SELECT key, row_number() OVER () - 1 AS n FROM content ORDER BY leader DESC LIMIT :members
    ) AS chosen WHERE content.key = chosen.key""",
    """INSERT INTO campaign (id, described) SELECT DISTINCT ON (campaign) campaign, jsonb_build_object(
        'sentence', 'Members of a campaign.', 'features', '[]'::jsonb, 'medoid', leader)
    FROM content WHERE campaign IS NOT NULL""",
    "UPDATE grouped SET started_at = now() + interval '1 day'",
)


def fill(engine: Engine, artifact: Path, waiting: int) -> None:
    """Add items, contents and campaigns."""
    migrate(engine)
    make_months(engine)
    Filler(engine, artifact).fill(waiting, [month_of(time.strftime("%Y-%m", time.gmtime()))])
    with engine.begin() as connection:
        for sql in CONTENTS:
            connection.execute(text(sql), {"members": min(20_000, waiting // 10)})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def press(page: Page, key: str) -> None:
    """Press a key, and wait for the next page with its explanation."""
    page.wait_for_timeout(250)  # the script ignores keys that come at once
    with page.expect_navigation():
        page.keyboard.press(key)
    page.wait_for_selector("#why[data-loaded]")


def label(gate: Gate, token: str) -> None:
    """Label items by keys in a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        page = browser.new_page(base_url=gate.address)
        page.set_default_timeout(60_000)
        page.goto("/sign-in")
        page.get_by_label("Your token").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url("**/desk")
        press(page, "Enter")
        for turn in range(LABELS):
            if turn == LABELS // 2:
                page.goto("/desk")
                page.locator("ul.rows button").first.click()
                page.wait_for_selector("#why[data-loaded]")
            press(page, "1")
        browser.close()


def times_of(log: Path) -> list[dict[str, float]]:
    """Return the milliseconds of each item, by kind of request; what comes before the first is left out."""
    found: list[dict[str, float]] = []
    current: dict[str, float] | None = None
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        path = entry.get("path", "")
        if entry.get("event") != "request" or path.startswith(("/readyz", "/sign-in")) or path == "/":
            continue
        kind = path.rpartition("/")[2] if path.startswith("/desk/items/") else "others"
        kind = "page" if kind.isdigit() else kind
        if current is not None:
            current[kind] = current.get(kind, 0) + entry["milliseconds"]
        if entry["method"] == "POST" and path.endswith(("/label", "/claim")):
            if path.endswith("/label") and current is not None:
                found.append(current)
            current = {}
    return found


def say(name: str, took: list[float]) -> None:
    print(f"  {name}: median {statistics.median(took):.0f} ms, 95% {np.quantile(took, 0.95):.0f} ms")


def report(found: list[dict[str, float]]) -> float:
    """Print the times of all requests of an item and of each kind, and return the median of all."""
    every = [sum(each.values()) for each in found]
    say(f"server time of {len(found)} items", every)
    for kind in ("page", "explanation", "label"):
        say(f"of which {kind}", [each.get(kind, 0.0) for each in found])
    return statistics.median(every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--small", action="store_true", help="only 2,000 items")
    parser.add_argument("--folder", type=Path, help="where the database goes; by default a temporary folder")
    options = parser.parse_args()
    settings = "-c shared_buffers=1GB -c max_wal_size=8GB"
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        apps.fit(folder / "gate.transcendent")
        with cluster_in(folder / "postgres", settings) as server:
            engine: Any = connect(server.url)
            fill(engine, folder / "gate.transcendent", 2000 if options.small else options.waiting)
            gate = Gate(server.url, folder / "gate.transcendent", folder / "log").wait(600)
            label(gate, Tokens(engine).create("analyst", "analyst"))
            gate.stop()
            engine.dispose()
        median = report(times_of(folder / "log"))
    if median > BAR:
        sys.exit(f"the median is above {BAR} ms.")


if __name__ == "__main__":
    main()
