"""Under drift thresholds reject more and more; a budget holds the queue, and pays with errors."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator, RejectionBudget, backtest
from transcendent.datasets import make_stream

stream = make_stream(pattern="new_class", random_state=0)  # from July on, objects of a third class
measure = CombinedMeasure(["margin", "centroid_distance"])
ice = InductiveEvaluator(LinearSVC(), measure=measure)
rejectors = {"thresholds": ice, "150 a month": RejectionBudget(ice, count=150)}
result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-04", pos_label=1)

_, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
for name, mark in zip(rejectors, ("o-", "^-"), strict=True):
    upper.plot(result.periods, result.series(name, "objects", "rejected"), mark, label=name)
    lower.plot(result.periods, result.series(name, "error", "kept"), mark)
lower.plot(result.periods, result.series("thresholds", "error", "baseline"), "k--", label="nothing rejected")
upper.set(ylabel="objects rejected", ylim=(0, None))
lower.set(xlabel="month", ylabel="error of the kept", ylim=(0, None))
upper.legend()
lower.legend()
plt.show()
