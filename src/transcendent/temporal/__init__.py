"""Evaluation over time: periods, splits, bias checks and backtests."""

from transcendent.temporal.backtest import backtest as backtest
from transcendent.temporal.bias import Bias, downsample, find_biases
from transcendent.temporal.comparing import Comparison, compare
from transcendent.temporal.labelling import Candidates, Chosen, Retraining
from transcendent.temporal.periods import TimeSplit, cut_periods, time_split
from transcendent.temporal.repeated import RepeatedBacktest
from transcendent.temporal.result import Backtest

__all__ = [
    "Backtest",
    "Bias",
    "Candidates",
    "Chosen",
    "Comparison",
    "RepeatedBacktest",
    "Retraining",
    "TimeSplit",
    "compare",
    "cut_periods",
    "downsample",
    "find_biases",
    "time_split",
]
