"""The paper's experiment: three evaluators beside thresholds on probabilities, six years of Android apps."""

from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator, backtest
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import load_apigraph  # load_tesseract reads the paper's own files

apps, svm = load_apigraph(), LinearSVC(C=0.1)
rejectors = {
    "approx-TCE": TransductiveEvaluator(svm, cv=10),
    "ICE": InductiveEvaluator(svm),
    "CCE": CrossConformalEvaluator(svm, cv=10),
    "probability": ProbabilityThresholds(svm),
}
result = backtest(rejectors, apps.X, apps.y, apps.times, train="2013")
print(result)
result.plot(list(rejectors)).figure_.savefig("paper.png")
