"""The addresses of the project, for the pages: those of pyproject.toml, once it has some."""

import tomllib
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Link the repository in the header."""
    text = Path(config.config_file_path).with_name("pyproject.toml").read_text("utf-8")
    repository = tomllib.loads(text)["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    config.repo_url, config.repo_name = repository or None, "Source"
    return config
