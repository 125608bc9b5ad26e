"""Screenshots of a gate's pages, from `gate demo`: those of the docs, or every page in every way.

python benchmarks/gate/screens.py               # docs/images/*.png
python benchmarks/gate/screens.py FOLDER        # every page, 1280 and 390 pixels wide, light and dark

Needs PostgreSQL and Chromium, and takes about three minutes: until drift has raised an alarm, and a model
has learnt.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.pages.people import chromium, follow, press, sign_in

DEMO = (sys.executable, "-m", "transcendent", "gate", "demo", "--drift-after", "0")
LONGEST = 300.0  # seconds until the wall has an alarm and a shadow
IMAGES = Path(__file__).parents[2] / "docs/images"
IN_DOCS = ("desk", "item", "wall", "confirm", "month")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WAYS = tuple(product((1280, 390), SCHEMES))


@contextmanager
def demo() -> Iterator[str]:
    """Run a demo, and give the link that signs in an operator."""
    process = subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
    finally:
        process.terminate()
        process.wait()


def wait_for_news(page: Page, origin: str) -> None:
    """Wait until the wall has an alarm that nobody has seen, and a shadow that can be promoted."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        page.goto(f"{origin}/wall")
        wanted = page.locator("a[href^='/wall/alarms/']"), page.locator("a[href^='/wall/promote/']")
        if all(each.count() for each in wanted):
            return
        page.wait_for_timeout(5000)
    raise RuntimeError(f"no alarm and no shadow within {LONGEST:g} seconds.")


def open_from(page: Page, origin: str, row: str) -> None:
    """Open an item of a row of the queue; simulated analysts may be quicker."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        page.goto(f"{origin}/desk")
        button = page.locator(f"ul.rows > {row} form button")
        if button.count():
            follow(page, button)
            if "/desk/items/" in page.url:
                return
        page.wait_for_timeout(500)
    raise RuntimeError(f"no item of {row} within {LONGEST:g} seconds.")


def pages_of(page: Page, origin: str) -> Iterator[str]:
    """Open each page in turn, and give its name."""
    page.goto(f"{origin}/desk")
    yield "desk"
    for name, row in (("item", "li:first-child"), ("audit", "li:has(input[value='audit'])")):
        open_from(page, origin, row)
        page.locator("#why:not([data-loaded])").wait_for(state="detached")
        yield name
    press(page, "2")
    yield "labelled"
    page.locator("details.help summary").click()
    yield "help"
    page.goto(f"{origin}/desk/mine")
    yield "mine"
    page.goto(f"{origin}/wall")
    yield "wall"
    for name, path in (("confirm", "/wall/promote/"), ("alarm", "/wall/alarms/")):
        page.goto(f"{origin}/wall")
        follow(page, page.locator(f"a[href^='{path}']").first)
        yield name
    page.goto(f"{origin}/wall/month/{time.strftime('%Y-%m', time.gmtime())}")
    yield "month"
    page.goto(f"{origin}/desk/items/999999999")
    yield "error"


def take(browser: Browser, link: str, folder: Path) -> Iterator[Path]:
    """Take every page in every way; for the docs, a few in one."""
    origin, in_docs = link.partition("/sign-in")[0], folder == IMAGES
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, link)
    wait_for_news(page, origin)
    for name in pages_of(page, origin):
        if in_docs and name not in IN_DOCS:
            continue
        for width, scheme in WAYS[:1] if in_docs else WAYS:
            page.set_viewport_size({"width": width, "height": 900 if width == 1280 else 844})
            page.emulate_media(color_scheme=scheme)
            path = folder / (f"{name}.png" if in_docs else f"{name}-{width}-{scheme}.png")
            page.screenshot(path=path, full_page=not in_docs or name in ("wall", "month"))
            yield path
    context.close()


def shrink(path: Path) -> None:
    """Make a screenshot smaller: pages have few colours."""
    with Image.open(path) as found:
        found.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Take what was asked for."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with demo() as link, chromium() as browser:
        for path in take(browser, link, folder):
            shrink(path)
            print(path)


if __name__ == "__main__":
    main()
