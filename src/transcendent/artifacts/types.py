"""Types in an artifact: which are allowed, and which have to be trusted by name."""

from collections.abc import Collection, Mapping

from transcendent._utils.extras import extra
from transcendent.artifacts.boosters import booster_types
from transcendent.artifacts.entries import SKOPS
from transcendent.artifacts.unpacking import read_types
from transcendent.errors import ArtifactError


def _full_names(by_module: Mapping[str, str]) -> set[str]:
    return {f"{module}.{name}" for module, names in by_module.items() for name in names.split()}


ALLOWED = _full_names(
    {
        "collections": "OrderedDict",
        "lightgbm.sklearn": "LGBMClassifier",
        "numpy": "dtype",
        "scipy.sparse._csc": "csc_array csc_matrix",
        "scipy.sparse._csr": "csr_array csr_matrix",
        "sklearn.calibration": "_CalibratedClassifier",
        "sklearn.model_selection._split": "StratifiedKFold",
        "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
        "sklearn.utils._bunch": "Bunch",
        "transcendent.artifacts.entries": "StoredBooster StoredCalibration",
        "transcendent.baselines.cp_reject": "CPReject",
        "transcendent.baselines.droidevolver": "DroidEvolver _Learners _Pool",
        "transcendent.baselines.probability": "ProbabilityThresholds",
        "transcendent.evaluators.budget": "RejectionBudget StreamingBudget",
        "transcendent.evaluators.columns": "FittedColumns",
        "transcendent.evaluators.cross": "CrossConformalEvaluator",
        "transcendent.evaluators.inductive": "InductiveEvaluator",
        "transcendent.evaluators.known": "KnownRows",
        "transcendent.evaluators.transductive": "TransductiveEvaluator",
        "transcendent.judging.judge": "ScoreEvaluator",
        "transcendent.measures.base": "Measure",
        "transcendent.measures.combined": "CombinedMeasure",
        "transcendent.measures.density": "Density",
        "transcendent.measures.detector": "Detector",
        "transcendent.measures.distance": "CentroidDistance NeighbourDistance NeighbourRatio NeighbourShare",
        "transcendent.measures.drift": "Boosting DenseColumns NewClassDistance",
        "transcendent.measures.ensemble": "TreeDisagreement",
        "transcendent.measures.margin": "Margin",
        "transcendent.measures.network": "HiddenLayerSVM",
        "transcendent.measures.one_vs_rest": "OneVsRestMeasure",
        "transcendent.measures.probability": "Probability ProbabilityMargin",
        "transcendent.measures.second_opinion": "SecondOpinion",
        "transcendent.measures.sparse_search": "SparseSearch",
        "transcendent.metrics.ratios": "Accuracy ClassRejectionRate Constraint ErrorRate F1 MacroF1 "
        "Precision Recall RejectionRate",
        "transcendent.thresholds.base": "SearchResult",
        "transcendent.thresholds.exact": "ExactSearch",
        "transcendent.thresholds.guaranteed": "GuaranteedResult GuaranteedSearch Proof",
        "transcendent.thresholds.quartile": "QuartileSearch",
        "transcendent.thresholds.trial": "GridSearch RandomSearch",
        "xgboost.sklearn": "XGBClassifier",
    }
)
_TREE = "sklearn.tree._tree.Tree"
_COMPILED = _full_names(
    {
        "lightgbm.basic": "Booster",
        "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
        "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
        "sklearn.neighbors._ball_tree": "BallTree",
        "sklearn.neighbors._kd_tree": "KDTree",
        "sklearn.svm._classes": "NuSVC NuSVR OneClassSVM SVC SVR",
        "sklearn.tree._tree": "Tree",
        "xgboost.core": "Booster",
    }
)


def find_types_to_trust(entries: Mapping[str, bytes]) -> list[str]:
    """Return the names of the types that are not allowed by default, without importing any of them."""
    found = read_types(SKOPS, entries[SKOPS])
    unknown = set(extra("skops.io", "artifacts").get_untrusted_types(data=entries[SKOPS])) - ALLOWED
    return sorted(unknown | (found & _COMPILED) | booster_types(entries))


def expand_packages(trusted: Collection[str]) -> list[str]:
    """Return trusted names and, for a package such as ``sklearn.ensemble``, the compiled types in it.

    A package does not stand for its other types: compiled ones cannot run code, others might.
    """
    if isinstance(trusted, str) or not isinstance(trusted, Collection):
        raise TypeError(f"trusted must be a list of type names, not {trusted!r}.")
    inside = {
        compiled
        for name in trusted
        for compiled in _COMPILED
        if compiled.startswith(f"{name}.") or (name == "sklearn.ensemble" and compiled == _TREE)
    }
    return [*trusted, *sorted(inside)]


def check_trusted(types: Collection[str], trusted: Collection[str]) -> None:
    """Refuse types that are not trusted, and name the arguments that would allow them."""
    names = [name for name in types if name not in trusted]
    if not names:
        return
    message = f"it holds types that are not trusted: {', '.join(names)}."
    if not _COMPILED.isdisjoint(names):
        message += (
            " Compiled code follows the indices in trees and kernel machines without checking them, so a"
            " crafted file can crash the process."
        )
    if not all(word.isidentifier() for name in names for word in name.split(".")):
        raise ArtifactError(f"{message} Some of these are not names of types, so the file is not genuine.")
    options = trust_options(names)
    raise ArtifactError(
        f"{message} If you trust them and the source of the file, load it with trusted={names!r} (on the "
        f"command line: {options}; in each gate: its setting trusted, or TRANSCENDENT_GATE_TRUSTED in the "
        "environment; with mlflow.pyfunc: TRANSCENDENT_TRUSTED in the environment)."
    )


def trust_options(names: list[str]) -> str:
    """Return the options of the command line that trust these types."""
    return " ".join(f"--trust {name}" for name in _shorten_to_packages(names))


def _shorten_to_packages(names: list[str]) -> list[str]:
    """Return names with one package in place of several compiled types."""
    for package in ("sklearn.ensemble", "sklearn.tree", "sklearn.svm", "sklearn.neighbors"):
        inside = set(expand_packages([package])) & set(names)
        if len(inside) > 1:
            names = [package, *(name for name in names if name not in inside)]
    return names
