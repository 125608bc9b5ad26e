"""The command ``transcendent``."""

import sys


def main() -> None:
    """Run the command with the arguments it was called with."""
    try:
        from transcendent.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("transcendent"):
            raise
        sys.exit(f'the command line needs {missing.name}: pip install "transcendent[cli]"')
    app(prog_name="transcendent")
