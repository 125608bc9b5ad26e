"""The p-values of the most doubted object, and what speaks for and against the detector's answer."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.explaining import KnownObjects, explain

data = load_breast_cancer()
X, y = data.data, data.target_names[data.target]
svm = make_pipeline(StandardScaler(), LinearSVC())
ice = InductiveEvaluator(svm, random_state=0).fit(X[:400], y[:400])
doubted = 400 + int(ice.decide(X[400:]).credibility.argmin())
why = explain(ice, X, doubted, KnownObjects(X[:400], y[:400]), names=data.feature_names)

_, (left, right) = plt.subplots(1, 2, figsize=(7, 3), width_ratios=[1, 2], layout="constrained")
left.bar(list(why.p_values), list(why.p_values.values()), color=["C0", "0.6"])
left.axhline(why.requirements[0].needs, color="k", linestyle="--", label="needed")
left.set(ylabel="p-value", title=f"called {why.label}", ylim=(0, 0.13))
left.legend(loc="upper right")
assert why.score
parts = sorted([*why.score.speak_for, *why.score.speak_against], key=lambda part: part.amount)
colours = ["C0" if part.amount > 0 else "C1" for part in parts]
names = [f"{part.name} {part.value:.3g}" for part in parts]
right.barh(names, [part.amount for part in parts], color=colours)
right.set(xlabel="against ← part of the decision value → for", title=f"what speaks for {why.label}")
plt.show()
