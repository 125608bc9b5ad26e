"""The best thresholds break their promise about every other time; guaranteed ones hardly ever."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from transcendent import Answers, ExactSearch, GuaranteedSearch, ScoreEvaluator
from transcendent.datasets import make_stream
from transcendent.metrics import ErrorRate

stream = make_stream(30_000, random_state=0)  # without drift
model = LogisticRegression().fit(stream.X[:2000], stream.y[:2000])
answers = Answers(model.predict(stream.X), -model.predict_proba(stream.X))
best = ExactSearch("rejection_rate", max_rejection=None, constraints=ErrorRate() <= 0.02)
searches = {"ExactSearch": best, "GuaranteedSearch": GuaranteedSearch(error=0.02, delta=0.05)}

rng, delivered = np.random.default_rng(0), np.zeros((50, 2))
for draw in range(50):
    calibration, new = np.split(rng.permutation(np.arange(2000, 30_000)), [3000])
    for s, search in enumerate(searches.values()):
        fitted = ScoreEvaluator(search=search).fit(answers[calibration], stream.y[calibration])
        decisions = fitted.decide(answers[new])
        delivered[draw, s] = (decisions.labels != stream.y[new])[decisions.accepted].mean()
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.hist(delivered, bins=25, label=list(searches))
ax.axvline(0.02, color="k", linestyle="--", label="promised: at most 0.02")
ax.set(xlabel="error of the kept among 25,000 new objects", ylabel="draws, of 50")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
