"""What rejection gives over six years of Android apps, against what was done before.

python benchmarks/over_time.py                  # everything, about twenty minutes
python benchmarks/over_time.py table figures    # some of: table deduplicated figures labels overhead

The environment variable TRANSCENDENT_DATA names the folder with the apigraph files.
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from intervals import interval
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from transcendent import CrossConformalEvaluator, InductiveEvaluator, TransductiveEvaluator
from transcendent.baselines import CPReject, DroidEvolver, ProbabilityThresholds
from transcendent.datasets import Dataset, load_apigraph
from transcendent.measures import ProbabilityMargin
from transcendent.plots import (
    AlphaAssessmentDisplay,
    CovariateShiftDisplay,
    PerformanceDisplay,
    QuorumDisplay,
    RiskCoverageDisplay,
    TradeOffDisplay,
)
from transcendent.temporal import Backtest, Retraining, backtest, time_split
from transcendent.temporal.labelling import Choice

SEEDS = range(5)
IMAGES = Path(__file__).parents[1] / "docs/images"
SVM = LinearSVC(C=0.1)


def rejectors() -> dict[str, Any]:
    return {
        "DroidEvolver": DroidEvolver(),
        "ICE": InductiveEvaluator(SVM, verbose=False),
        "CCE, k = 10": CrossConformalEvaluator(SVM, verbose=False),
        "approx-TCE, k = 10": TransductiveEvaluator(SVM, verbose=False),
        "TCE": TransductiveEvaluator(SVM, cv="loo", verbose=False),
        "probability": ProbabilityThresholds(SVM),
        "CP-Reject": CPReject(SVM),
    }


def others() -> dict[str, Any]:
    """Baselines that bring a detector or a judge of their own."""
    forest = RandomForestClassifier(100)
    voters = [
        ("forest", forest),
        ("boosting", LGBMClassifier(verbose=-1)),
        ("logistic", LogisticRegression(max_iter=1000)),
    ]
    return {
        "DroidEvolver's learners, frozen": DroidEvolver(healthy=(0, 1)),
        "CP-Reject, forest": CPReject(forest, measure=ProbabilityMargin()),
        "soft vote judges the SVM": ProbabilityThresholds(SVM, judge=VotingClassifier(voters, voting="soft")),
    }


def run(apps: Dataset, chosen: dict[str, Any], seed: int, **options: Any) -> Backtest:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # apps of 2012 come again later: the deduplicated table is for that
        return backtest(chosen, apps.X, apps.y, apps.times, train="2013", random_state=seed, **options)


def table(*, deduplicate: bool = False) -> None:
    """Means over the seeds."""
    apps = load_apigraph(deduplicate=deduplicate)
    print(apps)
    results, seconds = [], []
    for seed in SEEDS:
        start = time.perf_counter()
        first = run(apps, rejectors(), seed, n_jobs=2)
        seconds.append(time.perf_counter() - start)
        results.append({**rows_of(first), **rows_of(run(apps, others(), seed, n_jobs=2))})
    print(f"one backtest call, {len(rejectors())} rejectors, {len(first.periods)} months: ", end="")
    print(f"{min(seconds):.0f}–{max(seconds):.0f} s on 2 processes; seeds {list(SEEDS)}")
    shown = {
        "rejected of all": "rejection_rate",
        "malware": "positives_rejected",
        "AUT F1 all": "aut_f1_baseline",
        "kept": "aut_f1_kept",
        "of rejected": "aut_f1_rejected",
        "error all": "error_baseline",
        "of kept": "error_kept",
        "of rejected ": "error_rejected",
        "errors caught": "errors_caught",
        "at 15%: caught": "caught_at_15",
        "F1 kept": "f1_kept_at_15",
        "AURC": "aurc",
    }
    print("| rejector | " + " | ".join(name.strip() for name in shown) + " |")
    print("|---" * (len(shown) + 1) + "|")
    for name in results[0]:
        cells = [interval([r[name][key] for r in results]) for key in shown.values()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def rows_of(result: Backtest) -> dict[str, dict[str, float]]:
    summary = result.summary()
    return {
        name: {key: float(column[i]) for key, column in summary.items() if key != "rejector"}
        for i, name in enumerate(result.answers)
    }


def deduplicated() -> None:
    table(deduplicate=True)


def labels() -> None:
    """A budget of labels a month, chosen in four ways; error and F1 of all objects, and of the kept."""
    apps = load_apigraph()
    ice = {"ICE": InductiveEvaluator(SVM, verbose=False)}
    print("| labels a month | chosen | AUT F1 all | AUT F1 kept | error all | of kept | rejected |")
    print("|---|---|---|---|---|---|---|")
    choices: tuple[Choice, ...] = ("rejected", "drawn", "margin", "random")
    budgets = [None, *(Retraining(n, choose) for n in (50, 400) for choose in choices)]
    for retrain in budgets:
        found = Parallel(n_jobs=2)(delayed(run)(apps, ice, seed, retrain=retrain) for seed in SEEDS)
        rows = [rows_of(result)["ICE"] for result in found]
        keys = ("aut_f1_baseline", "aut_f1_kept", "error_baseline", "error_kept", "rejection_rate")
        cells = [interval([row[key] for row in rows]) for key in keys]
        named = f"{retrain.labels} | {retrain.choose}" if retrain else "0 | –"
        print(f"| {named} | " + " | ".join(cells) + " |", flush=True)


def figures() -> None:
    apps = load_apigraph()
    result = run(apps, {**rejectors(), **others()}, 0, n_jobs=2)
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    past = apps.times < np.datetime64("2013")
    ice = InductiveEvaluator(SVM, random_state=0).fit(apps.X[past], apps.y[past])
    save("over_time_cce", PerformanceDisplay.from_backtest(result, "CCE, k = 10", intervals=True))
    save("over_time_cp_reject", PerformanceDisplay.from_backtest(result, "CP-Reject, forest"))
    save("over_time_droidevolver", PerformanceDisplay.from_backtest(result, "DroidEvolver"))
    ranked = ["ICE", "CCE, k = 10", "TCE", "probability", "soft vote judges the SVM"]
    save("risk_coverage", RiskCoverageDisplay.from_backtest(result, ranked))
    save("quorum", QuorumDisplay.from_backtest(result, "CCE, k = 10", folds=10))
    save("alpha_assessment", AlphaAssessmentDisplay.from_calibration(ice.calibration_))
    save("trade_off", TradeOffDisplay.from_evaluator(ice))
    split = time_split(apps.times, train="2013")
    save("covariate_shift", CovariateShiftDisplay.from_data(apps.X, split, feature_names=apps.feature_names))


def save(name: str, display: Any) -> None:
    figure = display.plot().figure_
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight", dpi=200)
    plt.close(figure)
    print(f"docs/images/{name}.svg")


def overhead() -> None:
    """A backtest, its own clock around fits and decide calls, and the same calls by hand; twice in turn."""
    apps = load_apigraph()
    whole = inside = bare = 0.0
    for _ in range(2):
        start = time.perf_counter()
        result = run(apps, rejectors(), 0, verbose=False)
        whole += time.perf_counter() - start
        inside += sum(sum(seconds.values()) for seconds in result.manifest["seconds"].values())
        bare += by_hand(apps, result)
    print(f"backtest {whole:.1f} s, of which fits and decide calls {inside:.1f} s: {whole / inside - 1:+.1%}")
    print(f"the same calls by hand {bare:.1f} s: {whole / bare - 1:+.1%}")


def by_hand(apps: Dataset, result: Backtest) -> float:
    split = time_split(apps.times, train="2013")
    months = [slice(rows[0], rows[-1] + 1) for rows in (split.test[rows] for rows in split.periods.rows)]
    start = time.perf_counter()
    for name, rejector in rejectors().items():
        seeds = {key: 0 for key in rejector.get_params() if key.endswith("random_state")}
        fitted = clone(rejector).set_params(**seeds).fit(apps.X[split.train], apps.y[split.train])
        accepted = np.concatenate([fitted.decide(apps.X[rows]).accepted for rows in months])
        assert np.array_equal(accepted, result.answers[name].accepted)
    return time.perf_counter() - start


if __name__ == "__main__":
    commands: dict[str, Callable[[], None]] = {
        "table": table,
        "deduplicated": deduplicated,
        "figures": figures,
        "labels": labels,
        "overhead": overhead,
    }
    for chosen in sys.argv[1:] or commands:
        commands[chosen]()
