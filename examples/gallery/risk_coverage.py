"""Three rejectors: the error of the kept at every share that could be kept."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import RiskCoverageDisplay

stream = make_stream(pattern="new_class", random_state=0)  # from July on, objects of a third class
svm, both = LinearSVC(), CombinedMeasure(["margin", "centroid_distance"])
rejectors = {
    "margin": InductiveEvaluator(svm),
    "distance": InductiveEvaluator(svm, measure="centroid_distance"),
    "both, merged": InductiveEvaluator(svm, measure=both),
}
result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-04", pos_label=1)
RiskCoverageDisplay.from_backtest(result).plot()
plt.show()
