"""Thresholds from the distribution of calibration values, as in an alpha assessment."""

from typing import Literal

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray
from transcendent._utils.checks import check_choices
from transcendent.thresholds.base import Codes, On, Search, SearchResult, ThresholdProblem
from transcendent.thresholds.counts import count

Statistic = Literal["q1", "median", "q3", "mean"]
Group = Literal["correct", "incorrect", "all"]

_QUANTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}


class QuartileSearch(Search):
    """Sets each class's threshold to a quartile or the mean of its correct, incorrect or all answers.

    A class without such answers gets threshold 0: there is no evidence for rejecting any of its answers.

    Parameters
    ----------
    statistic : {"q1", "median", "q3", "mean"}
        Which statistic of the values is the threshold.
    of : {"correct", "incorrect", "all"}
        Which answers the values are from.
    on : {"credibility", "confidence", "both"}
        Which value gets thresholds.

    Examples
    --------
    >>> from transcendent import QuartileSearch
    >>> y = labels = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> found = QuartileSearch("q1").find(y, labels, [0, .2, .4, .6, .5, .6, .7, .8])
    >>> found.credibility_thresholds
    array([0.15 , 0.575])
    """

    def __init__(self, statistic: Statistic = "q1", *, of: Group = "correct", on: On = "credibility") -> None:
        self.statistic = statistic
        self.of = of
        self.on = on

    def _find(self, actual: Codes, predicted: Codes, values: FloatArray, classes: AnyArray) -> SearchResult:
        check_choices(Statistic, statistic=self.statistic)
        check_choices(Group, of=self.of)
        correct = actual == predicted
        group = {"correct": correct, "incorrect": ~correct, "all": np.ones_like(correct)}[self.of]
        thresholds = np.zeros((values.shape[1], len(classes)))
        for c in range(len(classes)):
            members = values[group & (predicted == c)]
            members = members[~np.isnan(members).any(axis=1)]
            if len(members) and self.statistic == "mean":
                thresholds[:, c] = members.mean(axis=0)
            elif len(members):
                thresholds[:, c] = np.quantile(members, _QUANTILES[self.statistic], axis=0)
        counts = count(predicted, actual, values, len(classes))
        return ThresholdProblem(counts, classes, self.on).result(thresholds)
