"""Whether p-values separate correct answers from incorrect ones."""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from transcendent import InductiveEvaluator
from transcendent.plots import AlphaAssessmentDisplay

X, y = make_classification(3000, n_informative=6, n_classes=3, class_sep=1.5, random_state=0)
names = ["banker", "goodware", "spyware"]
ice = InductiveEvaluator(LogisticRegression(), random_state=0).fit(X, [names[label] for label in y])
AlphaAssessmentDisplay.from_calibration(ice.calibration_).plot()
plt.show()
