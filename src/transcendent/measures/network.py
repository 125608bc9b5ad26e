"""A second model on the outputs of a neural network's last hidden layer."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.svm import SVC
from sklearn.utils import check_random_state

from transcendent._utils.arrays import AnyArray, FloatArray, take_rows
from transcendent.errors import MeasureError
from transcendent.measures.base import Measure, training_codes
from transcendent.measures.margin import Margin

_ACTIVATIONS: dict[str, Callable[[AnyArray], AnyArray]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}


class HiddenLayerSVM(Measure):
    """Margin of an RBF SVM trained on the outputs of the network's last hidden layer.

    The label is still the network's; the SVM only scores it. (The paper uses the SVM's Platt probability,
    which orders objects like its margin.)

    Parameters
    ----------
    hidden : callable or None
        ``hidden(estimator, X) -> (n, units)``, for networks other than scikit-learn's ``MLPClassifier``.
    C : float
        Penalty of the SVM.
    gamma : float or str
        Kernel coefficient of the SVM.
    max_rows : int
        Largest number of rows to train the SVM on, drawn at random: its cost grows with their square.
    random_state : int, RandomState or None
        Seed for the draw.
    """

    needs_rows = True

    def __init__(
        self,
        *,
        hidden: Callable[[Any, Any], Any] | None = None,
        C: float = 1.0,
        gamma: float | str = "scale",
        max_rows: int = 10_000,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.C = C
        self.gamma = gamma
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, estimator: Any, X: Any, y: Any) -> Self:
        """Train the SVM on hidden-layer outputs of the training rows."""
        codes = training_codes(estimator, y)
        if len(codes) > self.max_rows:
            rows = self._draw(codes)
            X, codes = take_rows(X, rows), codes[rows]
        self.svm_ = SVC(C=self.C, gamma=self.gamma).fit(self._outputs(estimator, X), codes)
        return self

    def scores(self, estimator: Any, X: Any) -> FloatArray:
        """Return negated SVM margins."""
        return Margin().scores(self.svm_, self._outputs(estimator, X))

    def _outputs(self, estimator: Any, X: Any) -> Any:
        return (self.hidden or last_hidden_layer)(estimator, X)

    def _draw(self, codes: AnyArray) -> AnyArray:
        """Draw random rows, at least one of each class."""
        order = check_random_state(self.random_state).permutation(len(codes))
        first_of_class = np.unique(codes[order], return_index=True)[1]
        rest = np.setdiff1d(np.arange(len(codes)), first_of_class)
        chosen = np.concatenate([first_of_class, rest])[: self.max_rows]
        return np.asarray(np.sort(order[chosen]))


def last_hidden_layer(mlp: Any, X: Any) -> Any:
    """Return the outputs of the last hidden layer of a fitted ``MLPClassifier``."""
    if not hasattr(mlp, "coefs_"):
        raise MeasureError(
            f"{type(mlp).__name__} is not a scikit-learn MLP; pass hidden=, a function of (estimator, X) "
            "that returns the outputs of its last hidden layer."
        )
    activation = _ACTIVATIONS[mlp.activation]
    layer = X if hasattr(X, "toarray") else np.asarray(X)
    for weights, bias in zip(mlp.coefs_[:-1], mlp.intercepts_[:-1], strict=True):
        layer = activation(layer @ weights + bias)
    return layer
