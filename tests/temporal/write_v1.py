"""Write the folder of a backtest that must stay readable; not run again after the first release."""

import warnings
from pathlib import Path

from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.temporal import Retraining

V1 = Path(__file__).parent / "v1"


def write(folder: Path) -> None:
    warnings.simplefilter("ignore")
    stream = make_stream(420, n_periods=7, random_state=0)
    rejectors = {
        "ice": InductiveEvaluator(LinearSVC(), random_state=0),
        "cce": CrossConformalEvaluator(LinearSVC(), cv=3, random_state=0),
    }
    given = {"train": "2020-04", "monitor": 100.0, "retrain": Retraining(5, every=2), "folder": folder}
    backtest(rejectors, stream.X, stream.y, stream.times, title="The first release", **given)


if __name__ == "__main__":
    write(V1)
