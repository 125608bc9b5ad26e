"""Leave-one-out shortcuts: answers about each training row as if the detector had not been fitted on it."""

from transcendent.leave_one_out import discriminant as discriminant
from transcendent.leave_one_out import forest as forest
from transcendent.leave_one_out import least_squares as least_squares
from transcendent.leave_one_out import linear_svm as linear_svm
from transcendent.leave_one_out import logistic as logistic
from transcendent.leave_one_out import naive_bayes as naive_bayes
from transcendent.leave_one_out import neighbours as neighbours
from transcendent.leave_one_out import support_vectors as support_vectors
from transcendent.leave_one_out.registry import LeftOut, register

__all__ = ["LeftOut", "register"]
