"""Fills the tables and figures of docs/evidence: benchmarks.md, guarantees.md and alarms.md.

python benchmarks/drift/run.py                    # everything, several hours on two cores
python benchmarks/drift/run.py apigraph budget    # some of its sections, which are the functions below
python benchmarks/drift/run.py --fresh apigraph   # what other code or libraries have computed is run again

TRANSCENDENT_DATA names the folder with the data, TRANSCENDENT_CACHE one for what is computed once
(default: benchmarks/drift/cache). A result in there that other code or libraries have
computed is used, and the section says so.
"""

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from alarms import alarms, no_drift
from evidence import DETECTORS, PRESET, Evidence, gather, least_trusted, parts, rejectors
from families import families, lamda, rejectors_of_families
from guarantees import assumptions, guarantees
from kept import flag_stale, run_stale_again, take_stale
from learning import judge, judge_choice, looks, looks_tried, loop, loop_choice, promises
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC
from starts import starts
from tables import AT_15, PAGE, collect, interval, intervals, markdown, save
from tried import BaggedSVMs, ClusterDistance, Novelty, ProjectedDensity
from watching import audit, monitor_cost, real_streams

from transcendent import (
    CrossConformalEvaluator,
    Decisions,
    ExactSearch,
    GridSearch,
    InductiveEvaluator,
    RandomSearch,
    TransductiveEvaluator,
)
from transcendent._utils.arrays import row_keys
from transcendent.baselines import ProbabilityThresholds
from transcendent.datasets import Dataset, load_apigraph, load_nvd, load_trec07p
from transcendent.measures import drift_measure
from transcendent.measures.drift import DenseColumns
from transcendent.metrics import F1, RejectionRate
from transcendent.plots.base import COLOURS
from transcendent.temporal import backtest, cut_periods, time_split

SEEDS = range(5)
SVM = LinearSVC(C=0.1)
TRIED = {
    "bagged SVMs": BaggedSVMs(),
    "density": ProjectedDensity(),
    "clusters": ClusterDistance(),
    "novelty": Novelty(),
}


def choice() -> str:
    """Which evidence and which rule, on 2012 and 2013 only."""
    others = ("LinearSVC", "XGBoost", "LightGBM", "random forest", "MLP", "neighbours", *TRIED)
    sets: dict[str, tuple[list[str], dict[str, Any]]] = {
        **{f"{name} alone": ([name], {}) for name in (*PRESET, *others)},
        "the preset's three": (PRESET, {}),
        "the three, ranked within the class": (PRESET, {"bag": "class"}),
        "fine boosting and extra trees": (PRESET[1:], {}),
        **{f"the three and {name}": ([*PRESET, name], {}) for name in others},
        "the three, MLP and bagged SVMs": ([*PRESET, "MLP", "bagged SVMs"], {}),
        "LinearSVC, forest, neighbours, LightGBM": (
            ["LinearSVC", "random forest", "neighbours", "LightGBM"],
            {"bag": "class"},
        ),
    }
    found: dict[str, list[Any]] = {}
    for problem in held_out_problems():
        judged = {name: problem.judged("LinearSVC", some, **how) for name, (some, how) in sets.items()}
        collect(found, summaries(problem, judged))
    losses = {
        name: np.array([np.log(run["aurc"]) + np.log(1 - run["caught_at_15"]) for run in runs])
        for name, runs in found.items()
    }
    rows = []
    for name, runs in found.items():
        gap = losses[name] - losses["the preset's three"]
        cells = [f"{np.mean([run[key] for run in runs]):.4f}".removeprefix("0") for key in AT_15.values()]
        rows.append([name, *cells, f"{gap.mean():+.2f} ± {gap.std(ddof=1) / np.sqrt(len(gap)):.2f}"])
    return markdown(["evidence", *AT_15, "loss against the three"], rows)


def held_out_problems() -> Iterator[Evidence]:
    """Half, and three quarters, of 60 clusters of 2012 are not trained on; tested on 2013."""
    apps = load_apigraph()
    apps = apps[apps.times < np.datetime64("2014-01")]
    split = time_split(apps.times, train="2013")
    for held_out in (0.5, 0.75):
        for seed in range(2):
            points = TruncatedSVD(50, random_state=seed).fit_transform(apps.X[split.train])
            clusters = MiniBatchKMeans(60, random_state=seed, n_init=3).fit_predict(points)
            dropped = np.flatnonzero(np.random.RandomState(seed).rand(60) < held_out)
            left = replace(split, train=split.train[~np.isin(clusters, dropped)])
            yield gather(f"choice-{held_out:.0%}", seed, apps, left, parts() | TRIED)


def apigraph() -> str:
    """All detectors, raw and deduplicated, all 72 months; and the five years nothing was chosen on."""
    tables = []
    for kind in ("raw", "deduplicated"):
        for detector in DETECTORS:
            found: dict[str, list[Any]] = {}
            later: dict[str, list[Any]] = {}
            for seed in SEEDS:
                evidence = apps_evidence(kind, seed)
                answers = rejectors(evidence, detector)
                untouched = np.flatnonzero(evidence.period >= evidence.periods.index("2014-01"))
                collect(found, summaries(evidence, answers))
                collect(later, summaries(evidence, answers, rows=untouched))
            rows = [
                [name, *intervals(runs, AT_15.values()), *intervals(later[name], AT_15.values())]
                for name, runs in found.items()
            ]
            head = ["ranked by", *AT_15, *(f"2014–2018: {column}" for column in AT_15)]
            tables.append(f"### {detector}, {kind}\n\n{markdown(head, rows)}")
    return "\n\n".join(tables)


def apps_evidence(kind: str, seed: int) -> Evidence:
    """The neighbours, which are searched longest, for the first seed only."""
    apps = load_apigraph(deduplicate=kind == "deduplicated")
    available = {name: part for name, part in parts().items() if seed == 0 or name != "neighbours"}
    return gather(f"apigraph-{kind}", seed, apps, time_split(apps.times, train="2013"), available)


def summaries(
    evidence: Evidence, answers: dict[str, Decisions], *, rows: Any = slice(None), pos_label: Any = 1
) -> dict[str, dict[str, float]]:
    """For each rejector the row of a backtest's summary."""
    summary = evidence.backtest(answers, pos_label, rows).summary()
    del summary["rejector"]
    return {
        name: {key: float(column[i]) for key, column in summary.items()} for i, name in enumerate(answers)
    }


def limits() -> str:
    """The errors that the preset does not reject at 15%: LinearSVC, raw."""
    apps = load_apigraph()
    split, keys = time_split(apps.times, train="2013"), row_keys(apps.X)
    goodware = np.unique(keys[apps.y == 0])
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        evidence = apps_evidence("raw", seed)
        answers = evidence.judged("LinearSVC", PRESET)
        left = (answers.labels != evidence.y) & ~least_trusted(answers, evidence.period, 0.15)
        missed = left & (evidence.y == 1)
        chosen = [evidence.names.index(name) for name in PRESET]
        p = -evidence.test[np.arange(len(left)), answers.labels][:, chosen]
        shares = {
            "of these errors, malware called goodware": np.mean(evidence.y[left]),
            "of these errors, all three opinions agree with the detector": np.mean(
                np.all(p[left] > 0.5, axis=1)
            ),
            "of that malware, some goodware has the very same features": np.mean(
                np.isin(keys[split.test][missed], goodware)
            ),
        }
        collect(found, shares)
    return markdown(["", "share"], [[name, interval(values)] for name, values in found.items()])


def budget() -> str:
    """Errors caught against the budget; what fixed thresholds reject."""
    rates = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
    years = range(2013, 2019)
    curves: dict[str, list[Any]] = {}
    fixed: dict[str, list[Any]] = {}
    for seed in SEEDS:
        evidence = apps_evidence("raw", seed)
        answers = rejectors(evidence, "LinearSVC")
        shown = {name: answers[name] for name in ("its own measure", "soft vote, raw", "drift_measure()")}
        result = evidence.backtest(shown)
        year = np.array([int(period[:4]) for period in result.periods])[result.period]
        for name, answer in shown.items():
            at = [result.at_rejection(name, rate)["kept"] for rate in (0.0, *rates)]
            collect(curves, {name: [(1 - a["errors"] / at[0]["errors"], a["f1"]) for a in at[1:]]})
            collect(fixed, {name: [np.mean(~answer.accepted[year == y]) for y in years]})
    _draw_budget(rates, curves)
    thresholds = [
        [name, *(interval([run[i] for run in fixed[name]]) for i in range(len(years)))]
        for name in ("its own measure", "drift_measure()")
    ]
    budgets = [
        [f"{name}: {what}", *(f"{value:.3f}".removeprefix("0") for value in np.mean(runs, axis=0)[:, i])]
        for name, runs in curves.items()
        for i, what in enumerate(("errors caught", "F1 kept"))
    ]
    return "\n\n".join(
        [
            markdown(["rejected by thresholds of calibration", *map(str, years)], thresholds),
            markdown(["budget a month", *(f"{rate:.0%}" for rate in rates)], budgets),
        ]
    )


def _draw_budget(rates: tuple[float, ...], curves: dict[str, list[Any]]) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, layout="constrained")
    for i, (ax, title) in enumerate(zip(axes, ("errors caught", "F1 of the kept"), strict=True)):
        ax.set_prop_cycle(color=COLOURS)
        for name, runs in curves.items():
            values = np.array(runs)[:, :, i]
            ax.plot(rates, values.mean(axis=0), marker="o", ms=3, label=name)
            ax.fill_between(rates, values.min(axis=0), values.max(axis=0), alpha=0.15)
        ax.set(xlabel="share of every month that is rejected", title=title, ylim=(0, 1))
        ax.grid(alpha=0.3)
    axes[0].legend(frameon=False, loc="lower right")
    save(fig, "budget")


def paper() -> str:
    """The paper's tables with the SVM: evaluators and criteria, searches, quorum, another constraint."""
    apps = load_apigraph()
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "ICE": (InductiveEvaluator, {}),
        "CCE, k = 10": (CrossConformalEvaluator, {}),
        "approx-TCE, k = 10": (TransductiveEvaluator, {}),
        "TCE": (TransductiveEvaluator, {"cv": "loo"}),
    }
    searches: dict[str, Any] = {
        "credibility": "auto",
        "and confidence": RandomSearch("f1", trials=20_000, on="both", random_state=0),
    }
    least = ExactSearch(RejectionRate(), max_rejection=None, constraints=F1(of="kept") >= 0.95)
    compared = {
        "probability": ProbabilityThresholds(SVM),
        **{
            f"{name}, {what}": make(SVM, search=search, verbose=False, **options)
            for name, (make, options) in kinds.items()
            for what, search in searches.items()
        },
        "ICE, fewest rejected with F1 ≥ .95": InductiveEvaluator(SVM, search=least, verbose=False),
    }
    shown = {
        "AUT F1 all": "aut_f1_baseline",
        "kept": "aut_f1_kept",
        "rejected": "aut_f1_rejected",
        "rejected of all": "rejection_rate",
        "error of kept": "error_kept",
        "of rejected": "error_rejected",
        "errors caught": "errors_caught",
    }
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = backtest(compared, apps.X, apps.y, apps.times, train="2013", random_state=seed, n_jobs=2)
        summary = result.summary()
        rows = [{key: float(summary[key][i]) for key in shown.values()} for i in range(len(compared))]
        collect(found, dict(zip(compared, rows, strict=True)))
    table = [[name, *intervals(runs, shown.values())] for name, runs in found.items()]
    return "\n\n".join([markdown(["rejector", *shown], table), _searches(apps), _quorum(apps)])


def _searches(apps: Dataset) -> str:
    """Grid, random and exact search on the same calibration objects."""
    past = time_split(apps.times, train="2013").train
    ice = InductiveEvaluator(SVM, random_state=0, verbose=False).fit(apps.X[past], apps.y[past])
    searches = {
        "grid, 20 steps": GridSearch("f1", steps=20),
        "grid, 100 steps": GridSearch("f1", steps=100),
        "random, 1,000 trials": RandomSearch("f1", trials=1000, random_state=0),
        "random, 100,000 trials": RandomSearch("f1", trials=100_000, random_state=0),
        "exact": ExactSearch("f1"),
    }
    rows = []
    for name, search in searches.items():
        started = time.perf_counter()
        result = ice.calibration_.search(search)
        seconds = time.perf_counter() - started
        rows.append([name, f"{result.value:.5f}", f"{seconds:.3f}", "yes" if result.certified else "no"])
    return markdown(["search", "F1 of the kept in calibration", "seconds", "proven best"], rows)


def _quorum(apps: Dataset) -> str:
    split = time_split(apps.times, train="2013")
    cce = CrossConformalEvaluator(SVM, random_state=0, verbose=False)
    cce.fit(apps.X[split.train], apps.y[split.train])
    y, rows = apps.y[split.test], []
    for quorum in (1, 3, 5, 6, 8, 10):
        decisions = cce.decide(apps.X[split.test], quorum=quorum)
        kept = decisions.accepted
        hits = np.sum(kept & (y == 1) & (decisions.labels == 1))
        wrong = np.sum(kept & (y != decisions.labels))
        f1, error = 2 * hits / (2 * hits + wrong), wrong / kept.sum()
        rows.append([str(quorum), f"{1 - kept.mean():.3f}", f"{f1:.3f}", f"{error:.4f}"])
    return markdown(["quorum of 10 folds", "rejected", "F1 kept", "error of kept"], rows)


def nvd() -> str:
    """Three classes of text."""
    flaws = load_nvd()
    flaws = flaws[flaws.times < np.datetime64("2019-01")]
    split = time_split(flaws.times, train="2006", period="year")
    some = np.sort(np.random.default_rng(0).permutation(split.train)[:6000])
    words = TfidfVectorizer(min_df=3, sublinear_tf=True).fit([flaws.X[i] for i in some])
    rows = Dataset(words.transform(flaws.X).tocsr(), flaws.y, flaws.times)
    available = {name: part for name, part in parts().items() if name in (*DETECTORS, *PRESET)}
    found: dict[str, list[Any]] = {}
    for seed in range(2):
        past = replace(split, train=some)
        near = {"LinearSVC": available["LinearSVC"], "distance": drift_measure(new_classes=True).measures[-1]}
        distances = gather("nvd-distance", seed, rows, past, near)
        evidence = gather("nvd", seed, rows, past, available).beside(distances, "distance")
        collect(found, summaries(evidence, rejectors_of_families(evidence, "LinearSVC"), pos_label=None))
    table = [[name, *intervals(runs, AT_15.values())] for name, runs in found.items()]
    return (
        f"{len(some):,} descriptions to train and calibrate, {len(split.test):,} later ones; F1 is the mean "
        "of the three classes'.\n\n" + markdown(["ranked by", *AT_15], table)
    )


def trec07p() -> str:
    """Does the rejection rate stay where answers stay right? F1 of all answers beside it."""
    mail = load_trec07p()
    weeks = cut_periods(mail.times, "week")
    train, later = weeks.codes < 2, weeks.codes >= 2
    y = mail.y[later]
    in_week = [weeks.codes[later] == week for week in range(2, len(weeks))]
    table = []
    for name, measure in (("margin", "auto"), ("drift_measure()", drift_measure(n_jobs=2))):
        runs, f1 = [], []
        for seed in SEEDS:
            ice = InductiveEvaluator(SVM, measure=measure, random_state=seed, verbose=False)
            if measure != "auto":
                ice.set_params(measure__random_state=seed)
            ice.fit(mail.X[train], mail.y[train])
            decisions = ice.decide(mail.X[later])
            weekly = [np.mean(decisions.rejected[rows]) for rows in in_week]
            runs.append([ice.result_.rejection_rate, *weekly])
            calibrated = f1_score(ice.calibration_.actual, ice.calibration_.predicted)
            f1.append([calibrated, *(f1_score(y[rows], decisions.labels[rows]) for rows in in_week)])
        table.append(_weekly(f"rejected, {name}", runs))
    table.append(_weekly("F1 of all answers", f1))
    head = ["in %", "in calibration", *weeks.labels[2:], "farthest off, any seed"]
    return markdown(head, table)


def _weekly(name: str, runs: list[list[float]]) -> list[str]:
    shares = 100 * np.array(runs)
    off = np.abs(shares[:, 1:] - shares[:, :1]).max()
    return [name, *(f"{share:.1f}" for share in shares.mean(axis=0)), f"{off:.1f}"]


def cost() -> str:
    """What fitting costs beside the detector, and deciding beside the detector and the parts, in one run."""
    apps = load_apigraph()
    split = time_split(apps.times, train="2013")
    X, y, rows = apps.X[split.train], apps.y[split.train], apps.X[split.test]
    started = time.perf_counter()
    detector = clone(SVM).fit(X, y)
    fits = [time.perf_counter() - started]
    for opinion in drift_measure(random_state=0, new_classes=False).measures:
        started = time.perf_counter()
        opinion.fit(detector, X, y)
        fits.append(time.perf_counter() - started)
    started = time.perf_counter()
    DenseColumns().fit(X, y).transform(X)
    dense = time.perf_counter() - started
    ice = InductiveEvaluator(SVM, measure=drift_measure(random_state=0), random_state=0, verbose=False)
    ice.fit(X, y)
    detector, opinions = ice.estimator_, ice.measure_.measures_

    def seconds(work: Callable[[Any], Any]) -> float:
        started = time.perf_counter()
        for i in range(0, rows.shape[0], 1 << 14):
            work(rows[i : i + (1 << 14)])
        return time.perf_counter() - started

    alone = seconds(detector.predict)
    asked = [seconds(partial(one.scores, detector)) for one in opinions]
    started = time.perf_counter()
    ice.decide(rows)
    whole = time.perf_counter() - started
    return (
        f"{X.shape[0]:,} rows to fit: the detector {fits[0]:.2f} s, the three opinions "
        f"{' + '.join(f'{s:.1f}' for s in fits[1:])} s, {sum(fits[1:]) / fits[0]:.0f} × the detector; making "
        f"the rows dense is {dense:.2f} s of each of the first two.\n\n"
        f"{rows.shape[0]:,} objects to decide: the detector {alone:.2f} s, the three opinions "
        f"{' + '.join(f'{s:.1f}' for s in asked)} s, `decide` {whole:.1f} s: "
        f"{whole / (alone + sum(asked)):.2f} × their sum."
    )


def write(section: str, text: str, path: Path = PAGE) -> None:
    """Put a section's tables between its marks on a page."""
    page = path.read_text()
    marks = re.compile(rf"(<!-- {section} -->\n).*?(<!-- end of {section} -->)", re.DOTALL)
    if not marks.search(page):
        raise SystemExit(f"{path.name} has no place for {section}")
    path.write_text(marks.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page))


PAGES: dict[str, tuple[Callable[[], str], ...]] = {
    "benchmarks": (
        *(choice, apigraph, limits, budget, judge_choice, judge, promises, families, lamda, nvd, trec07p),
        *(cost, paper, loop_choice, loop, looks, looks_tried),
    ),
    "guarantees": (guarantees, assumptions, starts),
    "alarms": (no_drift, alarms, real_streams, audit, monitor_cost),
}
SECTIONS = {section.__name__: (section, page) for page, sections in PAGES.items() for section in sections}

if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    names = [name for name in sys.argv[1:] if name != "--fresh"]
    if len(names) < len(sys.argv[1:]):
        run_stale_again()
    for wanted in names or SECTIONS:
        began = time.perf_counter()
        take_stale()
        section, page = SECTIONS[wanted]
        write(wanted, flag_stale(section(), take_stale()), PAGE.with_name(f"{page}.md"))
        print(f"{wanted}: {time.perf_counter() - began:.0f} s", flush=True)
