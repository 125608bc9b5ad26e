"""The gallery: short examples that run, and pages that show them as they are."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import transcendent.plots as plots

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples/gallery").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_a_screen_and_says_in_a_sentence_what_it_shows(example):
    source = example.read_text("utf-8")
    assert len(source.splitlines()) <= 30
    sentence = ast.get_docstring(ast.parse(source))
    assert "\n" not in sentence
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")


def test_every_display_has_an_example():
    code = "\n".join(path.read_text("utf-8") for path in EXAMPLES)
    assert not [name for name in plots.__all__ if f"{name}.from_" not in code]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["gallery", "idea"])
def test_the_pictures_are_drawn_and_the_pages_are_up_to_date(script):
    command = [sys.executable, "-W", "error", f"benchmarks/{script}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
