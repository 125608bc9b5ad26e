"""How many folds of a cross-conformal evaluator should agree."""

import matplotlib.pyplot as plt
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, backtest
from transcendent.datasets import make_stream
from transcendent.plots import QuorumDisplay

stream = make_stream(concept=0.5, random_state=0)
cce = {"CCE": CrossConformalEvaluator(LinearSVC(), cv=10)}
result = backtest(cce, stream.X, stream.y, stream.times, train="2020-04")
QuorumDisplay.from_backtest(result, "CCE", folds=10).plot()
plt.show()
