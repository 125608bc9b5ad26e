"""Android apps for measurements of the gate: a gate fitted on 2012, and the apps of 2013."""

from pathlib import Path
from typing import Any

from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, save
from transcendent.datasets import load_apigraph

SEED = 0


def apps_of_2013() -> Any:
    """Return the rows of 2013."""
    apps = load_apigraph()
    return apps.X[_in(apps, "2013")]


def fit_on_2012(path: Path) -> Any:
    """Write the artifact of a LinearSVC with its evaluator, fitted on 2012; return the evaluator."""
    apps = load_apigraph()
    rows = _in(apps, "2012")
    evaluator = InductiveEvaluator(LinearSVC(C=0.1, random_state=SEED), random_state=SEED)
    evaluator.fit(apps.X[rows], apps.y[rows])
    save(evaluator, path)
    return evaluator


def _in(apps: Any, year: str) -> Any:
    return apps.times.astype("datetime64[Y]").astype(str) == year


def to_object(name: str, row: Any) -> dict[str, Any]:
    """Return a sparse row as an object of a request."""
    return {"id": name, "positions": row.indices.tolist(), "values": row.data.tolist()}
