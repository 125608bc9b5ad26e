"""A monitor that sees no labels raises its alarm soon after the world has changed."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.datasets import make_stream
from transcendent.monitoring import DriftMonitor

stream = make_stream(pattern="sudden", covariate=0.3, concept=0.3, random_state=0)
old, new = stream[:4000], stream[4000:]  # the change comes after 2,000 of the new objects
ice = InductiveEvaluator(LinearSVC(), measure="centroid_distance", random_state=0).fit(old.X, old.y)
monitor = DriftMonitor.of(ice)
wrong = monitor.update(new.X).labels != new.y
assert monitor.alarm

_, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
upper.plot(monitor.history.at, np.exp(monitor.history.columns["log_value"]))
upper.axhline(100, color="k", linestyle="--", label="alarm: false with a chance of at most 1%")
upper.set(yscale="log", ylim=(1e-2, 1e6), ylabel="evidence of drift")
lower.stairs(wrong.reshape(-1, 200).mean(axis=1), np.arange(0, 8001, 200), baseline=None, linewidth=1.5)
lower.set(xlabel="new objects", ylabel="error, not known then", ylim=(0, None))
for ax in (upper, lower):
    ax.axvline(2000, color="k", linewidth=1, linestyle=":", label="the change")
    ax.axvline(monitor.alarm.at, color="C1", label=f"the alarm, {monitor.alarm.at - 2000} objects later")
upper.legend(loc="lower right")
plt.show()
