"""The tutorials, beyond their examples: code that is not run, the apps, and notebooks."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs/learn/tutorials").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_notebook_has_the_code_and_the_output_of_its_page(page):
    pytest.importorskip("mkdocs")
    from docs.notebooks import notebook

    text = page.read_text("utf-8")
    cells = [each for each in notebook(text)["cells"] if each["cell_type"] == "code"]
    examples = doctest.DocTestParser().get_examples(text)
    assert "".join(f"{cell['source']}\n" for cell in cells) == "".join(each.source for each in examples)
    shown = [output["text"] for cell in cells for output in cell["outputs"]]
    assert shown == [each.want for each in examples if each.want]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_code_that_is_not_run_is_python(page):
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        compile(block, page.name, "exec")


@pytest.mark.full
@pytest.mark.skipif("TRANSCENDENT_DATA" not in os.environ, reason="TRANSCENDENT_DATA names no folder")
def test_pages_about_the_apps_show_what_is_printed_of_them():
    command = [sys.executable, "benchmarks/tutorials.py", "--check", "android", "paper"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
