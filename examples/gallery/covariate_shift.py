"""How far the features have moved since training, and which of them."""

import matplotlib.pyplot as plt
import numpy as np

from transcendent.plots import CovariateShiftDisplay
from transcendent.temporal import time_split

rng = np.random.default_rng(0)
month = np.repeat(np.arange(12), 500)
old, new = rng.beta(0.5, 3, size=(2, 200))  # how common each of 200 features is, at first and at last
share = old + np.outer(month / 11, new - old) * (rng.random(200) < 0.2)  # a fifth of them move
X = rng.random((6000, 200)) < share
split = time_split(np.datetime64("2020-01") + month, train="2020-04")
CovariateShiftDisplay.from_data(X, split).plot()
plt.show()
