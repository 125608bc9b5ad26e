"""Pages of the documentation as they are written: short enough for their group, and without dead links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MOST_WORDS = {"learn": 1500, "how_to": 1500, "explanation": 2500, "operate": 2500}
OUTSIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md")  # mkdocs checks the links of docs


def prose(path):
    """The text of a page without its code, comments and front matter."""
    code_or_hidden = r"^ *```.*?^ *```$|<!--.*?-->|\A---\n.*?^---$"
    return re.sub(code_or_hidden, "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def words(path):
    return sum(any(map(str.isalnum, word)) for word in prose(path).split())


def anchors(path):
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    kept = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s+", "-", heading) for heading in kept}


def test_pages_are_short_enough_to_read():
    lengths = {
        page.relative_to(DOCS).as_posix(): words(page)
        for group in MOST_WORDS
        for page in (DOCS / group).rglob("*.md")
    }
    too_long = {name for name, n in lengths.items() if n > MOST_WORDS[name.partition("/")[0]]}
    assert not too_long, {name: lengths[name] for name in too_long}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_link_is_dead(name):
    dead = []
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", prose(ROOT / name)):
        target, _, anchor = link.partition("#")
        path = ROOT / target if target else ROOT / name
        if not path.exists() or (anchor and anchor not in anchors(path)):
            dead.append(link)
    assert not dead


def test_words_in_code_do_not_count(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("---\ntags: [a]\n---\n\nOne two\n\n```sh\nthree\n```\n\n| four | - |\n<!-- five -->\n")
    assert words(page) == 3
