"""Write artifacts of the present format, which must stay loadable; not run again once it has been released.

python -m tests.artifacts.write_format
"""

import json
import warnings
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier

from transcendent import (
    Answers,
    CrossConformalEvaluator,
    ExactSearch,
    InductiveEvaluator,
    RejectionBudget,
    ScoreEvaluator,
    StreamingBudget,
    TransductiveEvaluator,
)
from transcendent.artifacts import open_artifact, save
from transcendent.artifacts.manifest import FORMAT
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.measures import NeighbourRatio
from transcendent.metrics import Recall

X, y = make_classification(120, 6, random_state=0)
LABELS = np.array(["good", "malicious"])[y]
SVM = make_pipeline(StandardScaler(), LinearSVC(random_state=0))
SEARCH = ExactSearch("f1", constraints=Recall() >= 0.2)
REJECTORS = {
    "ice": InductiveEvaluator(SVM, search=SEARCH, random_state=0),
    "cce": CrossConformalEvaluator(LogisticRegression(), cv=2, random_state=0),
    "tce": TransductiveEvaluator(LinearSVC(random_state=0), cv="loo"),
    "forest": InductiveEvaluator(RandomForestClassifier(2, max_depth=3, random_state=0), random_state=0),
    "lightgbm": InductiveEvaluator(LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1), random_state=0),
    "xgboost": InductiveEvaluator(XGBClassifier(n_estimators=2, n_jobs=1), random_state=0),
    "neighbours": InductiveEvaluator(
        LinearSVC(random_state=0), measure=NeighbourRatio(3, metric="cosine"), random_state=0
    ),
    "probability": ProbabilityThresholds(LogisticRegression(), random_state=0),
    "cp_reject": CPReject(LogisticRegression(), random_state=0),
    "droidevolver": DroidEvolver(buffer_size=20, random_state=0),
    "drift": InductiveEvaluator(LinearSVC(random_state=0), measure="drift", random_state=0),
    "budget": RejectionBudget(InductiveEvaluator(SVM, random_state=0), rate=0.2),
    "stream": StreamingBudget(InductiveEvaluator(SVM, random_state=0), rate=0.2),
}


def write(folder: Path) -> None:
    warnings.simplefilter("ignore")
    folder.mkdir(exist_ok=True)
    np.savez(folder / "rows.npz", X=X)
    answers = Answers(y, X[:, :2])
    vendor = ScoreEvaluator().fit(answers, y)
    expected = {"scores": _plain(vendor.decide(answers))}
    save(vendor, folder / "scores.transcendent")
    for name, rejector in REJECTORS.items():
        labels = y if name == "xgboost" else LABELS
        rejector.fit(X, labels)
        save(rejector, folder / f"{name}.transcendent", training_period=("2024-01", "2024-06"))
        expected[name] = _plain(rejector.decide(X))
        expected[name]["trusted"] = open_artifact(folder / f"{name}.transcendent").types_to_trust()
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def _plain(decisions):
    return {
        "labels": decisions.labels.tolist(),
        "accepted": decisions.accepted.tolist(),
        "credibility": decisions.credibility.tolist(),
        "confidence": decisions.confidence.tolist(),
    }


if __name__ == "__main__":
    write(Path(__file__).parent / f"v{FORMAT}")
