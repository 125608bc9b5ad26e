"""In which month of a backtest a monitor of each rejector would have raised its alarm."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import EvidenceDisplay

stream = make_stream(pattern="new_class", random_state=0)  # from July on, objects of a third class
rejectors = {
    "margin": InductiveEvaluator(LinearSVC()),
    "distance": InductiveEvaluator(LinearSVC(), measure="centroid_distance"),
}
seen = (stream.X, stream.y, stream.times)
result = backtest(rejectors, *seen, train="2020-04", pos_label=1, monitor=100)
EvidenceDisplay.from_backtest(result).plot()
plt.show()
