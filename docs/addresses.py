"""The addresses of the project, for the pages: those that pyproject.toml has, once it has some."""

import tomllib
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Link the source in the header, and say where the site is."""
    project = tomllib.loads(Path(config.config_file_path).with_name("pyproject.toml").read_text("utf-8"))[
        "project"
    ]
    urls = project.get("urls", {})
    config.repo_url, config.repo_name = urls.get("Source"), "Source"
    config.site_url = urls.get("Documentation")
    return config
