"""A few labels a month, of rejected objects drawn at random, slow the decay of a detector."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.temporal import Retraining

stream = make_stream(6000, concept=0.6, random_state=0)  # 500 objects a month
ice = {"ICE": InductiveEvaluator(LinearSVC())}
_, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, sharey=True, layout="constrained")
for labels, mark in ((0, "o-"), (20, "^-"), (50, "s-"), (100, "D-")):
    retrain = Retraining(labels, "drawn") if labels else None
    result = backtest(ice, stream.X, stream.y, stream.times, train="2020-04", retrain=retrain)
    upper.plot(result.periods, result.series("ICE", "error", "baseline"), mark, label=f"{labels}")
    lower.plot(result.periods, result.series("ICE", "error", "kept"), mark)
upper.set(ylabel="error of all answers", ylim=(0, None))
lower.set(xlabel="month", ylabel="error of the kept")
upper.legend(title="labels a month")
plt.show()
