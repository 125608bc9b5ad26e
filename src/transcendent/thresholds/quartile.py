"""Thresholds from the distribution of calibration values, as in an alpha assessment."""

from typing import Literal, get_args

import numpy as np

from transcendent._utils.arrays import AnyArray, FloatArray, IntArray
from transcendent.thresholds.base import On, Search, SearchResult, ThresholdProblem
from transcendent.thresholds.counts import count

Statistic = Literal["q1", "median", "q3", "mean"]
Group = Literal["correct", "incorrect", "all"]


class QuartileSearch(Search):
    """Takes a quartile or the mean of the values of correct, incorrect or all answers of each class.

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

    def _find(
        self, actual: IntArray, predicted: IntArray, values: FloatArray, classes: AnyArray
    ) -> SearchResult:
        if self.statistic not in get_args(Statistic) or self.of not in get_args(Group):
            raise ValueError(
                f"statistic must be one of {get_args(Statistic)} and of one of {get_args(Group)}, "
                f"not {self.statistic!r} and {self.of!r}."
            )
        correct = actual == predicted
        group = {"correct": correct, "incorrect": ~correct, "all": np.ones_like(correct)}[self.of]
        thresholds = np.zeros((values.shape[1], len(classes)))
        for c in range(len(classes)):
            members = values[group & (predicted == c)]
            members = members[~np.isnan(members).any(axis=1)]
            if len(members):
                thresholds[:, c] = self._statistic(members)
        return ThresholdProblem(count(predicted, actual, values, len(classes)), classes, self.on).result(
            thresholds
        )

    def _statistic(self, members: FloatArray) -> AnyArray:
        if self.statistic == "mean":
            return np.asarray(members.mean(axis=0))
        return np.quantile(members, {"q1": 0.25, "median": 0.5, "q3": 0.75}[self.statistic], axis=0)
