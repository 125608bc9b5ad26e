"""Makes a notebook of each tutorial when the site is built, and links it below the title of the page.

Examples become cells, with the output that the page shows; everything else becomes text.
"""

import doctest
import json
import re
from typing import Any

from mkdocs.structure.files import File

FOLDER = "learn/tutorials/"
_EXAMPLES = re.compile(r"^```pycon\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_CELL = {"cell_type": "code", "execution_count": None, "metadata": {}}
_PYTHON = {"display_name": "Python 3", "language": "python", "name": "python3"}


def on_files(files: Any, *, config: Any) -> Any:
    """Add a notebook beside each tutorial."""
    for page in files.documentation_pages():
        if page.src_uri.startswith(FOLDER):
            content = json.dumps(notebook(page.content_string), indent=1, ensure_ascii=False)
            files.append(File.generated(config, page.src_uri.replace(".md", ".ipynb"), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Link the notebook below the title."""
    if not page.file.src_uri.startswith(FOLDER):
        return markdown
    link = f'<a href="{page.file.name}.ipynb" download>Download as a notebook</a>'
    return re.sub(r"^# .+$", rf"\g<0>\n\n{link}", markdown, count=1, flags=re.MULTILINE)


def notebook(page: str) -> dict[str, Any]:
    """Return a page as a notebook."""
    cells: list[dict[str, Any]] = []
    for i, part in enumerate(_EXAMPLES.split(page[page.index("# ") :])):
        cells += _code(part) if i % 2 else _text(part)
    return {"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": _PYTHON}, "cells": cells}


def _text(part: str) -> list[dict[str, Any]]:
    """Return text without pictures, which the cells draw, and without links to other pages."""
    text = re.sub(r"^!\[.+\]\(.+\)$", "", part, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]\n]+)\]\([^)\n]+\)", r"\1", text).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": text}] if text else []


def _code(block: str) -> list[dict[str, Any]]:
    """Return a cell for each output, and one for what follows the last."""
    cells, source = [], ""
    examples = doctest.DocTestParser().get_examples(block)
    for example in examples:
        source += example.source
        if example.want or example is examples[-1]:
            cells.append(_CELL | {"source": source.rstrip(), "outputs": _printed(example.want)})
            source = ""
    return cells


def _printed(output: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": output}] if output else []
