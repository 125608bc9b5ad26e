"""The command ``transcendent``."""

import sys


def main() -> None:
    """Run the command with the arguments it was called with."""
    try:
        from transcendent.cli.app import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("transcendent"):
            raise
        sys.stderr.write(f'the command line needs {missing.name}: pip install "transcendent[cli]"\n')
        sys.exit(8)
    app(prog_name="transcendent")
