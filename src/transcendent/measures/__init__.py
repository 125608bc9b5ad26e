"""Nonconformity measures: from a fitted detector and rows to (n, classes) scores, higher = stranger."""

from transcendent.measures.auto import choose_measure
from transcendent.measures.base import Measure
from transcendent.measures.combined import CombinedMeasure as CombinedMeasure
from transcendent.measures.density import Density
from transcendent.measures.distance import CentroidDistance, NeighbourDistance, NeighbourRatio, NeighbourShare
from transcendent.measures.drift import drift_measure
from transcendent.measures.ensemble import TreeDisagreement
from transcendent.measures.margin import Margin
from transcendent.measures.network import HiddenLayerSVM
from transcendent.measures.one_vs_rest import OneVsRestMeasure
from transcendent.measures.probability import Probability, ProbabilityMargin
from transcendent.measures.second_opinion import SecondOpinion

__all__ = [
    "CentroidDistance",
    "Density",
    "HiddenLayerSVM",
    "Margin",
    "Measure",
    "NeighbourDistance",
    "NeighbourRatio",
    "NeighbourShare",
    "OneVsRestMeasure",
    "Probability",
    "ProbabilityMargin",
    "SecondOpinion",
    "TreeDisagreement",
    "choose_measure",
    "drift_measure",
]
