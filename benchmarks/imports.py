"""What `import transcendent` costs, beside the libraries that it stands on.

python benchmarks/imports.py            # two minutes

Each line is imported in a fresh process, in turns, after one round that warms the disk's cache.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
LINES = (
    "pass",
    "import sklearn",
    "import transcendent",
    "from sklearn.svm import LinearSVC",
    "from transcendent import InductiveEvaluator",
    "from transcendent import InductiveEvaluator, backtest, load, save",
)
BASE = "import sklearn"


def seconds(line: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", line], check=True)
    return time.perf_counter() - start


def modules(line: str) -> int:
    counted = f"{line}\nimport sys\nprint(len(sys.modules))"
    return int(subprocess.run([sys.executable, "-c", counted], check=True, capture_output=True).stdout)


def main() -> None:
    rounds = [{line: seconds(line) for line in LINES} for _ in range(ROUNDS + 1)][1:]
    print(f"| a process with | time | × `{BASE}` | modules |\n|---|---|---|---|")
    for line in LINES:
        ratio = statistics.median(times[line] / times[BASE] for times in rounds)
        took = statistics.median(times[line] for times in rounds)
        print(f"| `{line}` | {took:.2f} s | {ratio:.2f} | {modules(line):,} |")


if __name__ == "__main__":
    main()
