"""Types in an artifact: which are allowed, and which have to be trusted by name."""

from collections.abc import Collection, Mapping

from transcendent import baselines, measures, metrics
from transcendent._utils.extras import extra
from transcendent.artifacts.boosters import booster_types
from transcendent.artifacts.entries import SKOPS
from transcendent.artifacts.parts import StoredBooster, StoredCalibration
from transcendent.artifacts.unpacking import read_types
from transcendent.baselines.droidevolver import _Learners, _Pool
from transcendent.errors import ArtifactError
from transcendent.evaluators.budget import RejectionBudget, StreamingBudget
from transcendent.evaluators.cross import CrossConformalEvaluator
from transcendent.evaluators.inductive import InductiveEvaluator
from transcendent.evaluators.known import KnownRows
from transcendent.evaluators.transductive import TransductiveEvaluator
from transcendent.judging.judge import ScoreEvaluator
from transcendent.measures.combined import CombinedMeasure
from transcendent.measures.detector import Detector
from transcendent.measures.drift import Boosting, DenseColumns, NewClassDistance
from transcendent.measures.sparse_search import SparseSearch
from transcendent.thresholds import SearchResult
from transcendent.thresholds.exact import ExactSearch
from transcendent.thresholds.guaranteed import GuaranteedResult, GuaranteedSearch, Proof
from transcendent.thresholds.quartile import QuartileSearch
from transcendent.thresholds.trial import GridSearch, RandomSearch

_PUBLIC = [
    getattr(module, name)
    for module in (baselines, measures)
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
_OTHER = (
    Boosting,
    CombinedMeasure,
    CrossConformalEvaluator,
    DenseColumns,
    NewClassDistance,
    Detector,
    ExactSearch,
    GridSearch,
    GuaranteedResult,
    GuaranteedSearch,
    InductiveEvaluator,
    KnownRows,
    Proof,
    QuartileSearch,
    RandomSearch,
    RejectionBudget,
    ScoreEvaluator,
    SearchResult,
    SparseSearch,
    StoredBooster,
    StoredCalibration,
    StreamingBudget,
    TransductiveEvaluator,
    _Learners,
    _Pool,
)
_OF_OTHERS = {
    "collections.OrderedDict",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
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
_TREE = "sklearn.tree._tree.Tree"
_COMPILED = {
    "lightgbm.basic.Booster",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.svm._classes.NuSVC",
    "sklearn.svm._classes.NuSVR",
    "sklearn.svm._classes.OneClassSVM",
    "sklearn.svm._classes.SVC",
    "sklearn.svm._classes.SVR",
    _TREE,
    "xgboost.core.Booster",
}

ALLOWED = _OF_OTHERS | {
    *(f"{t.__module__}.{t.__qualname__}" for t in (*_PUBLIC, *_OTHER, *_METRICS)),
    *(f"transcendent.thresholds.metrics.{t.__name__}" for t in _METRICS),  # where they were once
}


def find_types_to_trust(entries: Mapping[str, bytes]) -> list[str]:
    """Return the names of the types that are not allowed by default, without importing any of them."""
    found = read_types(SKOPS, entries[SKOPS])
    unknown = set(extra("skops.io", "artifacts").get_untrusted_types(data=entries[SKOPS])) - ALLOWED
    return sorted(unknown | (found & _COMPILED) | booster_types(entries))


def spelled_out(trusted: Collection[str]) -> list[str]:
    """Return trusted names, and of a package such as ``sklearn.ensemble`` the compiled types in it.

    A name of a package stands for no other types: these cannot run code, others in it might.
    """
    inside = {
        compiled
        for name in trusted
        for compiled in _COMPILED
        if compiled.startswith(f"{name}.") or (name == "sklearn.ensemble" and compiled == _TREE)
    }
    return [*trusted, *sorted(inside)]


def _packages(names: Collection[str]) -> list[str]:
    """Return names with one package in place of several compiled types."""
    for package in ("sklearn.ensemble", "sklearn.tree", "sklearn.svm", "sklearn.neighbors"):
        inside = set(spelled_out([package])) & set(names)
        if len(inside) > 1:
            names = [package, *(name for name in names if name not in inside)]
    return list(names)


def check_trusted(types: Collection[str], trusted: Collection[str]) -> None:
    """Refuse types that are not trusted, with the arguments that would allow them."""
    names = [name for name in types if name not in trusted]
    if not names:
        return
    message = f"it holds types that are not trusted: {', '.join(names)}."
    if not _COMPILED.isdisjoint(names):
        message += (
            " Compiled code follows the indices in trees and kernel machines without checking: crafted ones"
            " can crash the process. If you know where the file comes from,"
        )
    else:
        message += " If you know them and where the file comes from,"
    if not all(part.isidentifier() for name in names for part in name.split(".")):
        raise ArtifactError(f"{message} look at it again: these are not names of types.")
    options = " ".join(f"--trust {name}" for name in _packages(names))
    raise ArtifactError(
        f"{message} load it with trusted={names!r} (on the command line: {options}; through mlflow.pyfunc: "
        "TRANSCENDENT_TRUSTED in the environment)."
    )
