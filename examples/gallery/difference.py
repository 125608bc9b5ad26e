"""Two backtests compared: differences with intervals, conclusive where they leave out 0."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import DifferenceDisplay
from transcendent.temporal import Retraining, compare

stream = make_stream(9000, 18, concept=0.6, random_state=0)
ice, data = {"ICE": InductiveEvaluator(LinearSVC())}, (stream.X, stream.y, stream.times)
frozen = backtest(ice, *data, train="2020-05")
few = backtest(ice, *data, train="2020-05", retrain=Retraining(20, "drawn"))
many = backtest(ice, *data, train="2020-05", retrain=Retraining(80, "drawn"))
late = backtest(ice, *data, train="2020-05", retrain=Retraining(80, "drawn", delay=3))
found = {
    "20 labels a month − none": compare(few, frozen, at=0.15),
    "80 labels a month − 20": compare(many, few, at=0.15),
    "3 months late − on time": compare(late, many, at=0.15),
}
DifferenceDisplay.from_comparisons(found).plot()
plt.show()
