"""Draws docs/images/card.png, which other sites show beside a link to the documentation.

python benchmarks/card.py    # needs Chromium
"""

import sys
from pathlib import Path

from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))  # a script finds only modules beside itself

from tests.gate.pages.people import chromium

IMAGES = Path(__file__).parents[1] / "docs/images"
CARD = IMAGES / "card.png"
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 44px 60px; background: #fff; color: #1c2430; font: 30px/1.3 sans-serif; }}
b {{ color: #526d7a; }} h1 {{ margin: 6px 0 14px; font-size: 46px; line-height: 1.15; text-wrap: balance; }}
svg {{ display: block; width: 1000px; height: 350px; margin: auto; }}
</style><b>Transcendent</b><h1>Know which of your classifier's answers you can still trust</h1>{figure}"""

if __name__ == "__main__":
    figure = (IMAGES / "drift.svg").read_text("utf-8")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 630})
        page.set_content(PAGE.format(figure=figure[figure.index("<svg") :]))
        page.screenshot(path=CARD)
    with Image.open(CARD) as card:
        card.quantize(128).save(CARD, optimize=True)
