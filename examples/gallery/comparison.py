"""Several rejectors over time: how good what they keep is, and how much they reject."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator, backtest
from transcendent.baselines import CPReject
from transcendent.datasets import make_stream
from transcendent.plots import ComparisonDisplay

stream, svm = make_stream(pattern="new_class", random_state=0), LinearSVC()
y = np.array(["goodware", "malware", "new family"])[stream.y]
both = CombinedMeasure(["margin", "centroid_distance"])
rejectors = {
    "ICE, margin": InductiveEvaluator(svm),
    "ICE, margin and distance": InductiveEvaluator(svm, measure=both),
    "CP-Reject": CPReject(svm),
}
result = backtest(rejectors, stream.X, y, stream.times, train="2020-04", pos_label="malware")
ComparisonDisplay.from_backtest(result, metric="error").plot()
plt.show()
