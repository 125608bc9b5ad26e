"""``python -m transcendent`` is the command ``transcendent``."""

from transcendent.cli import main

if __name__ == "__main__":
    main()
