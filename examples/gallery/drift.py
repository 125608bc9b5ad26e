"""Three kinds of drift: one does harm, and the scores of a linear SVM do not show it."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.datasets import make_stream

kinds = {
    "a feature moves (covariate)": make_stream(covariate=1, random_state=0),
    "positives become common (prior)": make_stream(prior=1, random_state=0),
    "the boundary turns (concept)": make_stream(concept=0.6, random_state=0),
}
_, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
for (name, stream), mark in zip(kinds.items(), ("o-", "^-", "s-"), strict=True):
    ice = {"ICE": InductiveEvaluator(LinearSVC())}
    result = backtest(ice, stream.X, stream.y, stream.times, train="2020-04")
    upper.plot(result.periods, result.series("ICE", "error", "baseline"), mark, label=name)
    lower.plot(result.periods, result.series("ICE", "share", "rejected"), mark)
upper.set(ylabel="error of all answers", ylim=(0, None))
lower.set(xlabel="month", ylabel="share rejected", ylim=(0, None))
upper.legend()
plt.show()
