"""Labels that come late, or are wrong, still teach; on a fast stream, late ones teach least."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.temporal import Retraining

stream = make_stream(6000, concept=0.6, random_state=0)  # 500 objects a month
ice = {"ICE": InductiveEvaluator(LinearSVC())}
cases = {
    "no labels": None,
    "100 a month, 3 months late": Retraining(100, "drawn", delay=3),
    "100 a month, one in five wrong": Retraining(100, "drawn", noise=0.2),
    "100 a month, right and on time": Retraining(100, "drawn"),
}
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for (name, retrain), mark in zip(cases.items(), ("o-", "^-", "s-", "D-"), strict=True):
    result = backtest(ice, stream.X, stream.y, stream.times, train="2020-04", retrain=retrain)
    ax.plot(result.periods, result.series("ICE", "error", "baseline"), mark, label=name)
ax.set(xlabel="month", ylabel="error of all answers", ylim=(0, None))
ax.legend()
plt.show()
