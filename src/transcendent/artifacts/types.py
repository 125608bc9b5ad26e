"""Types a file may hold without being asked about: those of this package, and harmless ones of others."""

import transcendent
from transcendent import baselines, measures, metrics
from transcendent.artifacts.parts import StoredBooster, StoredCalibration
from transcendent.baselines.droidevolver import _Learners, _Pool
from transcendent.measures.detector import Detector
from transcendent.measures.sparse_search import SparseSearch
from transcendent.thresholds import SearchResult

_PUBLIC = [
    getattr(module, name)
    for module in (transcendent, baselines, measures)
    for name in module.__all__
    if name[0].isupper()  # the types
]
_METRICS = (
    metrics.F1,
    metrics.Accuracy,
    metrics.ClassRejectionRate,
    metrics.Constraint,
    metrics.Error,
    metrics.MacroF1,
    metrics.Precision,
    metrics.Recall,
    metrics.RejectionRate,
)
_PARTS = (
    Detector,
    SearchResult,
    SparseSearch,
    StoredBooster,
    StoredCalibration,
    _Learners,
    _Pool,
)
_OF_OTHERS = {
    "collections.OrderedDict",
    "lightgbm.sklearn.LGBMClassifier",
    "scipy.sparse._csc.csc_array",
    "scipy.sparse._csc.csc_matrix",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
    "xgboost.sklearn.XGBClassifier",
}

TYPES = _OF_OTHERS | {
    *(f"{t.__module__}.{t.__qualname__}" for t in (*_PUBLIC, *_PARTS, *_METRICS)),
    *(f"transcendent.thresholds.metrics.{t.__name__}" for t in _METRICS),  # where they were once
}
