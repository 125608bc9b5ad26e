"""The project's URLs, and its README for package indexes, where relative links and images lead nowhere."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_RELATIVE = re.compile(r'(\]\(|(?:href|src|srcset)=")(?![a-z]+:|#)([^)"\s]+)')
_IMAGES = (".png", ".svg")


class ProjectHook(MetadataHookInterface):
    """Set the URLs and the README from the address of the repository, once it has a public one."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what pyproject.toml calls dynamic."""
        repository, tag = self.config["repository"], f"v{metadata['version']}"
        text = Path(self.root, "README.md").read_text("utf-8")
        if repository:
            metadata["urls"] = urls(repository, tag)
            text = absolute(text, repository, tag)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def urls(repository: str, tag: str) -> dict[str, str]:
    """Return what a package index shows beside the README."""
    return {
        "Repository": repository,
        "Documentation": f"{repository}/tree/{tag}/docs",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def absolute(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose links and images lead into the repository at a tag; code stays as it is."""

    def replace(found: re.Match[str]) -> str:
        kind = "raw" if found[2].endswith(_IMAGES) else "blob"
        return f"{found[1]}{repository}/{kind}/{tag}/{found[2]}"

    ends = [0, *(end for fence in _FENCED.finditer(text) for end in fence.span()), len(text)]
    parts = [text[start:end] for start, end in pairwise(ends)]
    return "".join(part if i % 2 else _RELATIVE.sub(replace, part) for i, part in enumerate(parts))
