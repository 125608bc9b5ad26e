"""Runs tutorials, and draws their pictures in docs/images; fails if one prints other than its page shows.

python benchmarks/tutorials.py ten_minutes deep_model                      # half a minute
TRANSCENDENT_DATA=... python benchmarks/tutorials.py android paper         # on the apps, four minutes
TRANSCENDENT_DATA=... python benchmarks/tutorials.py --check android paper # draws nothing
"""

import doctest
import os
import re
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import matplotlib as mpl
from gallery import STYLE
from pictures import IMAGES, for_any_page

PAGES = Path(__file__).parents[1] / "docs/learn/tutorials"
ON_THE_APPS = re.compile(r"^On the apps:\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples(page: str) -> list[doctest.Example]:
    """Return the examples of a page, with the output that it shows of the apps where these are."""
    found = doctest.DocTestParser().get_examples(page)
    for shown in ON_THE_APPS.finditer(page) if "TRANSCENDENT_DATA" in os.environ else ():
        line = page.count("\n", 0, shown.start())
        [each for each in found if each.lineno < line][-1].want = shown[1]
    return found


def run(name: str) -> bool:
    """Run a page in this folder, and return whether it printed what it shows."""
    found = examples((PAGES / f"{name}.md").read_text("utf-8"))
    test = doctest.DocTest(found, {"__name__": "__main__"}, name, None, 0, None)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    return doctest.DocTestRunner(optionflags=flags).run(test).failed == 0


def main(names: list[str]) -> None:
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # the same figure gives the same file
    mpl.use("Agg")
    mpl.rcParams.update(STYLE | {"svg.hashsalt": "transcendent"})
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        failed = [name for name in names if name != "--check" and not run(name)]
        for picture in Path().glob("*.svg") if "--check" not in names else ():
            (IMAGES / picture.name).write_text(for_any_page(picture.read_text("utf-8")), "utf-8")
    sys.exit(1 if failed else None)


if __name__ == "__main__":
    main(sys.argv[1:])
