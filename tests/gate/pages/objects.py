"""Apps of zeros and ones, a detector for them, and what makes a desk worth looking at."""

import numpy as np
import pandas as pd
from sklearn.naive_bayes import BernoulliNB

from transcendent import InductiveEvaluator, QuartileSearch
from transcendent.gate.campaigns import Grouping
from transcendent.gate.contents import Contents
from transcendent.gate.database import connect
from transcendent.gate.intake import audit_secret

NAMES = [f"permission::P{i:02}" for i in range(60)]


def known(n=600):
    """Objects of two classes, and labels of which some are wrong."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    shares = np.repeat([[0.3, 0.5, 0.05], [0.5, 0.3, 0.05]], 20, axis=1)
    X = (rng.random((n, 60)) < shares[y]).astype(float)
    y = np.where(rng.random(n) < 0.08, 1 - y, y)
    return pd.DataFrame(X, columns=NAMES), np.where(y, "malware", "goodware")


def fitted():
    """A rejector that rejects what is unlike most known objects."""
    X, y = known()
    return InductiveEvaluator(BernoulliNB(), search=QuartileSearch(), random_state=0).fit(X, y)


def family(n, start=10):
    """Rows of one family, unlike all known ones: each lacks another of its features."""
    made = np.zeros((n, 60))
    made[:, start : start + 20] = made[:, 40:58] = 1
    made[np.arange(n), 40 + np.arange(n)] = 0
    return pd.DataFrame(made, columns=NAMES)


def strangers(n):
    """Rows that are alike no others."""
    rng = np.random.default_rng(1)
    return pd.DataFrame((rng.random((n, 60)) < 0.5).astype(float), columns=NAMES)


def group(database):
    """Find the campaigns of what waits now, as a gate does every few minutes."""
    engine = connect(database)
    Contents(engine, audit_secret(engine)).add_new()
    Grouping(engine).regroup()
    engine.dispose()
