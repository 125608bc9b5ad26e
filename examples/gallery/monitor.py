"""Evidence of drift, the share rejected, and the audited error of what is accepted."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator
from transcendent.datasets import make_stream
from transcendent.monitoring import DriftMonitor, HarmMonitor, plan_labels
from transcendent.plots import MonitorDisplay

stream = make_stream(pattern="new_class", random_state=1)  # half-way, objects of a third class appear
old, new = stream[:3000], stream[3000:]
measure = CombinedMeasure(["margin", "centroid_distance"])
ice = InductiveEvaluator(LinearSVC(), measure=measure, random_state=0).fit(old.X, old.y)
drift, harm = DriftMonitor.of(ice), HarmMonitor(promised=0.02)
for day, rows in enumerate(np.split(np.arange(9000), 60)):
    decisions = drift.update(new.X[rows])
    plan = plan_labels(decisions, 80, random_state=day)
    audited = plan.rows[plan.audited]
    harm.update(decisions.labels[audited] != new.y[rows][audited])
MonitorDisplay.from_monitors(drift, harm).plot()
plt.show()
