"""Print how often the gate's drift monitors are wrong, and how soon they are right.

python benchmarks/gate/monitors.py

Streams go through the function that folds minutes, as in `tests/gate/test_folding.py`: 400 without drift, of
1,200 objects in 6 minutes, and 100 in which all objects drift after 400 of 1,600, in 16 minutes. Each has a
calibration of its own. Beside each is the monitor of a single process, which sees objects as they arrive.
"""

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))  # a script finds only modules beside itself

from tests.gate.streams import streams

STREAMS, DRIFTS, DRIFT_AT = 400, 100, 400


def main() -> None:
    false: Counter[str] = Counter()
    high = 0
    for monitor, raised, _, _ in streams(STREAMS, 6, 200):
        false.update(kind for kind, _, _ in raised)
        high += max(monitor.history.columns["log_value"]) >= math.log(10)
    print(f"{STREAMS} streams without drift:")
    for kind in ("drift", "rejections"):
        print(f"  alarms of {kind}: {false[kind]} ({false[kind] / STREAMS:.2%}), promised at most 1%")
    print(f"  evidence ever above 10: {high} ({high / STREAMS:.1%}), promised at most 10%")
    pages, folded, single, late = [], [], [], []
    for _, raised, other, cells in streams(DRIFTS, 16, 100, lambda minute: 0.8 * (minute >= 4)):
        drift = [(minute, alarm) for kind, minute, alarm in raised if kind == "drift"]
        other._add(cells)
        pages.append(len(drift))
        for minute, alarm in drift[:1]:
            assert other.alarm is not None
            folded.append(alarm.at - DRIFT_AT)
            single.append(other.alarm.at - DRIFT_AT)
            late.append(100 * (minute + 1) - other.alarm.at)
    print(f"{DRIFTS} streams with drift: {pages.count(1)} page once, {pages.count(0)} never")
    print("  objects from the drift to the alarm:")
    for name, numbers in (("in the drawn order", folded), ("of a single process", single)):
        print(f"    {name}: median {np.median(numbers):.0f}, most {max(numbers)}")
    end = "the end of the alarm's minute comes after the alarm of a single process"
    print(f"  objects by which {end}: median {np.median(late):.0f}, most {max(late)}")


if __name__ == "__main__":
    main()
