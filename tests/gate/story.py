"""A table as people have it, for the story from a table to a gate that has learnt."""

import hashlib
from typing import Any

import numpy as np
import pandas as pd

from transcendent.datasets import make_stream

_WRITTEN = ("%Y-%m-%dT%H:%M:%S", "%d/%m/%Y %H:%M:%S")


def messy_table(n: int, seed: int = 0) -> Any:
    """Return n objects of twelve months: text ids, mixed dates, missing labels and values, categories."""
    rng, stream = np.random.default_rng(seed), make_stream(n, n_periods=12, concept=0.5, random_state=seed)
    frame = pd.DataFrame(stream.X, columns=[f"f{i:02}" for i in range(stream.X.shape[1])])
    frame = frame.mask(rng.random(frame.shape) < 0.01)
    frame.insert(0, "sha256", [hashlib.sha256(f"{seed} {i}".encode()).hexdigest() for i in range(n)])
    seconds = np.sort(stream.times.astype("datetime64[s]").astype(np.int64))
    moments = pd.to_datetime(seconds, unit="s")
    written = [moments.strftime(form) for form in _WRITTEN] + [seconds.astype(str)]
    frame["first_seen"] = np.choose(
        rng.choice(3, n, p=[0.6, 0.3, 0.1]), [np.array(w, object) for w in written]
    )
    frame["packer"] = rng.choice(np.array(["upx", "none", "vmprotect", None]), n, p=[0.3, 0.4, 0.2, 0.1])
    frame["signed"] = rng.choice(np.array(["True", "False", None]), n, p=[0.3, 0.5, 0.2])
    frame["path"] = [f"C:\\Users\\{i % (n - 7)}\\a.exe" for i in range(n)]
    frame["verdict"] = np.where(stream.y == 1, "malicious", "benign")
    frame.loc[rng.random(n) < 0.03, "verdict"] = "unknown"
    frame.loc[rng.choice(n, 3, replace=False), "first_seen"] = ["unknown", "2099-01-01", None]
    return frame
