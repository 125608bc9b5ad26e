"""The files that a monitor has taken, so that no object counts twice."""

import hashlib
import json
from pathlib import Path

_KEY = "files"


class TakenFiles:
    """SHA-256 and name of each file, kept in the state of a monitor beside its own entries."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    @classmethod
    def of(cls, state: Path) -> "TakenFiles":
        """Return the files of a state; none if it does not exist, or cannot be read, which others report."""
        try:
            known = json.loads(state.read_text())[_KEY]
            return cls({str(digest): str(name) for digest, name in known.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls({})

    def add(self, file: Path, *, again: bool = False) -> None:
        """Add a file; raise if one with this content was taken before, unless ``again``."""
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest in self.names and not again:
            raise ValueError(
                f"{file} was taken before, as {self.names[digest]}: its objects would count twice. "
                "If they were seen twice: --again."
            )
        self.names.setdefault(digest, file.name)

    def added_to(self, state: str) -> str:
        """Return a monitor's state with these files."""
        return json.dumps(json.loads(state) | {_KEY: self.names}, allow_nan=False)
