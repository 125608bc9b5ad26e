"""Android apps for measurements of the gate: a gate fitted on 2012, and the apps of 2013."""

from pathlib import Path
from typing import Any

from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, save
from transcendent.datasets import load_apigraph

SEED = 0


def objects_to_send(n: int) -> tuple[list[dict[str, Any]], Any]:
    """Return the first apps of 2013 as objects of a request, and their rows."""
    apps = load_apigraph()
    rows = apps.X[_in(apps, "2013")][:n]
    return [{"positions": row.indices.tolist(), "values": row.data.tolist()} for row in rows], rows


def fit(path: Path, seed: int = SEED) -> Any:
    """Write the artifact of a LinearSVC with its evaluator, fitted on 2012; return the evaluator."""
    apps = load_apigraph()
    rows = _in(apps, "2012")
    evaluator = InductiveEvaluator(LinearSVC(C=0.1, random_state=seed), random_state=seed)
    evaluator.fit(apps.X[rows], apps.y[rows])
    save(evaluator, path)
    return evaluator


def _in(apps: Any, year: str) -> Any:
    return apps.times.astype("datetime64[Y]").astype(str) == year
