"""What each share of rejections could buy among the calibration objects."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.plots import TradeOffDisplay

X, y = make_classification(3000, n_informative=6, flip_y=0.05, random_state=0)
y = np.where(y == 1, "malware", "goodware")
ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X, y)
TradeOffDisplay.from_evaluator(ice).plot()
plt.show()
