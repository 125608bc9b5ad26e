"""Import optional dependencies where they are used."""

from importlib import import_module
from typing import Any

from transcendent.errors import MissingExtraError


def extra(module: str, group: str) -> Any:
    """Import a module, or raise an error with the command that installs its extra."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"this needs {module.partition('.')[0]}, which is not installed: "
            f'pip install "transcendent[{group}]"'
        ) from None
