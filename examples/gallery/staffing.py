"""How many errors people catch in the time that they have."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import StaffingDisplay

stream = make_stream(pattern="new_class", random_state=0)  # from July on, objects of a third class
both = CombinedMeasure(["margin", "centroid_distance"])
rejectors = {
    "margin": InductiveEvaluator(LinearSVC()),
    "margin and distance": InductiveEvaluator(LinearSVC(), measure=both),
}
result = backtest(rejectors, stream.X, stream.y, stream.times, train="2020-04", pos_label=1)
StaffingDisplay.from_backtest(result, minutes=10).plot()
plt.show()
