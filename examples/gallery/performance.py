"""A metric of the kept, of all and of the rejected objects, and what is rejected of each class."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import PerformanceDisplay

stream = make_stream(pattern="new_class", random_state=0)  # from July on, objects of a third class
y = np.array(["goodware", "malware", "new family"])[stream.y]
measure = CombinedMeasure(["margin", "centroid_distance"])
ice = {"ICE": InductiveEvaluator(LinearSVC(), measure=measure)}
result = backtest(ice, stream.X, y, stream.times, train="2020-04", pos_label="malware")
PerformanceDisplay.from_backtest(result, "ICE", "error", intervals=True).plot()
plt.show()
