"""Sets of features as rows, and their distance by definition."""

import numpy as np


def as_matrix(sets, n_columns=10, dtype=float):
    X = np.zeros((len(sets), n_columns), dtype=dtype)
    for row, features in enumerate(sets):
        X[row, list(features)] = 1
    return X


def jaccard(a, b):
    return (len(a | b) - len(a & b)) / len(a | b) if a | b else 0.0
