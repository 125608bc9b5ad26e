"""One ranking by probability rejects most of a rare class; a ranking by p-value does not."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from transcendent import InductiveEvaluator
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import make_stream

stream = make_stream(positive_share=0.05, concept=0.3, random_state=0)
old, new = stream[:4000], stream[4000:]
model = LogisticRegression()
probability = ProbabilityThresholds(model, random_state=0).fit(old.X, old.y).decide(new.X)
p_value = InductiveEvaluator(model, random_state=0).fit(old.X, old.y).decide(new.X)

rates = np.linspace(0.02, 0.4, 20)
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, decisions, by_class, mark in (
    ("by probability, one ranking", probability, False, "o-"),
    ("by p-value, one ranking", p_value, False, "^-"),
    ("by either, the same share of each predicted class", p_value, True, "s-"),
):
    rejected = [decisions.within_budget(rate, by_class=by_class).rejected for rate in rates]
    ax.plot(rates, [each[new.y == 1].mean() for each in rejected], mark, label=name)
ax.set(xlabel="share of all objects rejected", ylabel="rare class rejected", ylim=(0, 1.03))
ax.legend(loc=(0.4, 0.58))
plt.show()
