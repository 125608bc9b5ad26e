"""Fills docs/evidence/gain.md, and README.md's table and figure: what rejecting gains, beside simpler rules.

python benchmarks/drift/gain.py                # everything, about four hours of one core
python benchmarks/drift/gain.py gain readme    # some of its sections, which are the functions below

TRANSCENDENT_DATA names the folder with the data, TRANSCENDENT_CACHE one for what is computed once.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import aging as promised
import flood as flooding
import late_and_wrong as late
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from adversary import AIMS, BOUNDS, SHARES, evasion
from kept import flag_stale, take_stale
from rules import MARGIN, NOTHING, RATE, SEEDS, THRESHOLDS, never_seen, rules
from run import write
from sklearn.base import BaseEstimator
from tables import collect, half_width, interval, markdown, save

from transcendent import StreamingBudget
from transcendent.plots import DifferenceDisplay
from transcendent.temporal import Backtest, RepeatedBacktest, compare

DOCS = Path(__file__).parents[2] / "docs/evidence"
KINDS = ("raw", "deduplicated")
_TITLES = {"raw": "Raw", "deduplicated": "Without copies within a month"}
SINCE = "2014-01"
JUDGE, LIKE_IT = "LightGBM that learns, p-value", "LightGBM that learns"
DETECTOR = "LightGBM as the detector, p-value"
DECISION, DRIFT, BOTH = "its own decision value", 'measure="drift"', "both learn, p-value"
BY_CLASS = ", by class"
PAIRS = {
    "drift − margin": (DRIFT, MARGIN),
    "drift − LightGBM, frozen": (DRIFT, "LightGBM, frozen"),
    "drift − LightGBM, frozen, p-value": (DRIFT, "LightGBM, frozen, p-value"),
    "drift − LightGBM, frozen, odds": (DRIFT, "LightGBM, frozen, odds over prior"),
    "learning judge − drift": (JUDGE, DRIFT),
    "learning judge: probability − decision value": (LIKE_IT, DECISION),
    "learning judge: p-value − probability": (JUDGE, LIKE_IT),
    "learning judge: p-value − odds": (JUDGE, "LightGBM that learns, odds over prior"),
    "learning judge: odds − LightGBM, frozen, odds": (
        "LightGBM that learns, odds over prior",
        "LightGBM, frozen, odds over prior",
    ),
    "learning detector − learning judge": (DETECTOR, JUDGE),
    "learning detector: p-value − probability": (DETECTOR, "LightGBM as the detector"),
    "learning detector: p-value − odds": (DETECTOR, "LightGBM as the detector, odds over prior"),
    "both learn − learning judge": (BOTH, JUDGE),
    "learning detector − both learn": (DETECTOR, BOTH),
    "margin: p-value − decision value": (MARGIN, DECISION),
    "soft vote: p-value − probability": ("soft vote, frozen, p-value", "soft vote, frozen"),
    "LightGBM, frozen: p-value − probability": ("LightGBM, frozen, p-value", "LightGBM, frozen"),
    "LightGBM, frozen: p-value − odds": ("LightGBM, frozen, p-value", "LightGBM, frozen, odds over prior"),
}
AT_ONCE = (NOTHING, MARGIN, DRIFT, "LightGBM, frozen, p-value", LIKE_IT, JUDGE, DETECTOR)
HEAD = {
    "caught": "errors caught",
    "f1": "F1 kept",
    "error": "error kept",
    "malware": "malware rejected",
    "late": "detections rejected",
    "missed": "malware missed",
    "reviewed": "F1 reviewed",
}
IN_README = ("caught", "f1", "late", "missed", "reviewed")
DIFFERENCES = {
    "errors_caught": "errors caught",
    "f1_kept": "F1 kept",
    "detections_rejected": "detections rejected",
    "positives_missed": "malware missed",
    "f1_reviewed": "F1 reviewed",
}
FLOODS = (0.0, 0.02, 0.05, 0.1)
AT_BUDGETS = {
    DECISION: False,
    MARGIN: False,
    f"{MARGIN}{BY_CLASS}": True,
    DRIFT: False,
    f"{DRIFT}{BY_CLASS}": True,
    LIKE_IT: False,
    JUDGE: False,
    "LightGBM that learns, odds over prior": False,
    f"{JUDGE}{BY_CLASS}": True,
    "LightGBM as the detector": False,
    DETECTOR: False,
    "LightGBM as the detector, odds over prior": False,
    f"{DETECTOR}{BY_CLASS}": True,
}
RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)


class Decided(BaseEstimator):
    """A rejector of which the decisions are known."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: ARG002
        """Nothing is left to fit."""
        return self

    def predict(self, X: Any) -> Any:
        """Their labels."""
        return X.labels

    def decide(self, X: Any) -> Any:
        """The decisions that it is given."""
        return X


def gain() -> str:
    """Every rule on the same months and labels, 15% of each month rejected."""
    return _tables({f"{_TITLES[kind]}, 2014 to 2018": _later(kind) for kind in KINDS}, _of_each_month)


def all_months() -> str:
    """The same with 2013, on which things were chosen."""
    titles = {f"{_TITLES[kind]}, 2013 to 2018": partial(rules, kind) for kind in KINDS}
    return _tables(titles, _of_each_month)


def _later(kind: str) -> Callable[[int], Backtest]:
    return lambda seed: _since(rules(kind, seed))


def unseen() -> str:
    """What copies cannot explain: only apps with features that no earlier app has."""
    new = [_of_later(never_seen("raw", seed), rules("raw", seed)) for seed in SEEDS]
    y = _later("raw")(0).y[new[0]]
    said = f"{len(y):,} of the {len(new[0]):,} apps of 2014 to 2018, {y.sum():,} of them malware."
    title = "Apps with new features, 2014 to 2018"
    return f"{said}\n\n{_tables({title: _later('raw')}, _of_each_month, only=new)}"


def arrival() -> str:
    """The same rules if each app is decided as it comes: malware spread over the month, or in bursts."""
    orders: dict[str, Callable[[int], Backtest]] = {
        "Raw, 2014 to 2018, in random order within a month": _later("raw"),
        "Raw, 2014 to 2018, the malware of each month in four bursts": partial(_bursts, 4),
        "Raw, 2014 to 2018, the malware of each month in one burst": partial(_bursts, 1),
    }
    return _tables(orders, _on_arrival, AT_ONCE)


def _bursts(n: int, seed: int) -> Backtest:
    """The malware of a month, at evenly spaced places among its goodware."""
    result = _since(rules("raw", seed))
    chance = np.random.default_rng(seed).random(len(result.y))
    order = np.lexsort((np.where(result.y == 1, (np.floor(chance * n) + 0.5) / n, chance), result.period))
    return replace(
        result,
        rows=result.rows[order],
        y=result.y[order],
        answers={name: decisions[order] for name, decisions in result.answers.items()},
    )


def _of_each_month(result: Backtest, name: str) -> Any:
    if name == THRESHOLDS:
        return result.answers[name].credibility
    if name.endswith(BY_CLASS):
        return _by_class(result, name.removesuffix(BY_CLASS), RATE)
    return result.kept_at(name, _rate(name))


def _rate(name: str) -> float:
    return 0.0 if name.endswith(NOTHING) else RATE


def _on_arrival(result: Backtest, name: str) -> Any:
    if _rate(name) == 0:
        return np.ones(len(result.y))
    stream = StreamingBudget(Decided(), rate=RATE).fit(None, None)
    return stream.decide(result.answers[name]).accepted.astype(float)


def _tables(
    results: Mapping[str, Callable[[int], Backtest]],
    keeps: Callable[[Backtest, str], Any],
    names: tuple[str, ...] | None = None,
    *,
    only: list[Any] | None = None,
    seeds: Iterable[int] = SEEDS,
) -> str:
    """A table of each of some results, which depend on the seed; of some objects of each seed only."""
    tables = []
    for title, of in results.items():
        found: dict[str, list[Any]] = {}
        for seed in seeds:
            result = of(seed)
            for name in names or _all_rules(result):
                kept, rows = keeps(result, name), slice(None) if only is None else only[seed]
                collect(found, {name: measured(result, name, kept, rows) | {"rejected": 1 - kept.mean()}})
        rows = [[_named(name, of), *(_cell(of, key) for key in HEAD)] for name, of in found.items()]
        tables.append(f"### {title}\n\n{markdown(['rejects by', *HEAD.values()], rows)}")
    return "\n\n".join(tables)


def _all_rules(result: Backtest) -> list[str]:
    """Those of the result, and the margin with a budget for each class."""
    names = list(result.answers)
    names.insert(names.index(MARGIN) + 1, MARGIN + BY_CLASS)
    return names


def _named(name: str, runs: list[dict[str, float]]) -> str:
    return f"{name} (rejects {_cell(runs, 'rejected')})" if name == THRESHOLDS else name


def _cell(runs: list[dict[str, float]], key: str) -> str:
    return interval([run[key] for run in runs])


def second() -> str:
    """The same rules on another stream, which nothing was ever chosen on, and their differences."""
    parts = []
    for kind in ("androzoo", "androzoo-deduplicated"):
        y = rules(kind, 0).y
        repeated = RepeatedBacktest({seed: rules(kind, seed) for seed in SEEDS})
        title = "Androzoo, raw" if kind == "androzoo" else "Androzoo, without copies within a month"
        parts += [_tables({title: partial(rules, kind)}, _of_each_month)]
        parts += [f"{len(y):,} apps, {y.sum():,} of them malware.", _compared(repeated)[0]]
    return "\n\n".join(parts)


def other_years() -> str:
    """Detectors fitted on all apps before another year; one seed."""
    kinds = {
        f"Fitted before {year}, tested to 2018": partial(rules, f"raw-{year}") for year in (2014, 2015, 2016)
    }
    return _tables(kinds, _of_each_month, AT_ONCE, seeds=(0,))


def measured(result: Backtest, name: str, kept: Any, of: Any) -> dict[str, float]:
    """The figures of a rule on some objects; each is kept with a chance."""
    answers = result.answers[name.removesuffix(BY_CLASS)]
    labels, y, kept = answers.labels[of], result.y[of], kept[of]
    wrong, malware = labels != y, y == 1
    hits, errors = kept[malware & ~wrong].sum(), kept[wrong].sum()
    late = (1 - kept[malware & ~wrong]).sum()
    missed = kept[malware & wrong].sum()
    return {
        "caught": float(1 - errors / wrong.sum()),
        "f1": float(2 * hits / (2 * hits + errors)),
        "error": float(errors / kept.sum()),
        "malware": float(1 - kept[malware].mean()),
        "late": float(late / malware.sum()),
        "missed": float(missed / malware.sum()),
        "reviewed": float(1 - errors / (2 * (malware.sum() - missed) + errors)),
    }


def differences() -> str:
    """Paired differences, with intervals over months and seeds."""
    tables = []
    for kind in KINDS:
        repeated = RepeatedBacktest({seed: _since(rules(kind, seed)) for seed in SEEDS})
        table, found = _compared(repeated)
        if kind == "raw":
            save(DifferenceDisplay.from_comparisons(found).plot().figure_, "gain-differences")
        tables.append(f"### Differences, {_TITLES[kind].lower()}, 2014 to 2018\n\n{table}")
    return "\n\n".join(tables)


def _compared(repeated: RepeatedBacktest) -> tuple[str, dict[str, Any]]:
    found = {title: compare(repeated, repeated, rejectors=pair, at=RATE) for title, pair in PAIRS.items()}
    rows = [[title, *(_difference(one, metric) for metric in DIFFERENCES)] for title, one in found.items()]
    return markdown(["difference", *DIFFERENCES.values()], rows), found


def _of_later(values: Any, result: Backtest) -> Any:
    """Values of all objects, for those that nothing was chosen on."""
    return values[result.period >= result.periods.index(SINCE)]


def _since(result: Backtest) -> Backtest:
    """The months that nothing was chosen on."""
    first = result.periods.index(SINCE)
    own = result.period >= first
    return replace(
        result,
        periods=result.periods[first:],
        period=result.period[own] - first,
        rows=result.rows[own],
        y=result.y[own],
        answers={name: decisions[own] for name, decisions in result.answers.items()},
    )


def _difference(one: Any, metric: str) -> str:
    at = one.metrics.index(metric)
    digits = 4 if metric in ("f1_reviewed", "positives_missed") else 3
    middle, low, high = (f"{value[at]:+.{digits}f}" for value in (one.difference, one.low, one.high))
    return f"{middle} ({low} to {high})".replace("0.", ".").replace("-", "−")


def budgets() -> str:
    """F1 of the kept and errors caught at every budget, in one ranking or with a budget for each class."""
    found: dict[str, dict[str, list[Any]]] = {"2013, F1 kept": {}, "2014 to 2018, F1 kept": {}}
    found["2014 to 2018, errors caught"] = {}
    for seed in SEEDS:
        result = rules("raw", seed)
        since = result.period >= result.periods.index(SINCE)
        for shown, by_class in AT_BUDGETS.items():
            keeps, name = _by_class if by_class else Backtest.kept_at, shown.removesuffix(BY_CLASS)
            kept = [keeps(result, name, rate) for rate in RATES]
            for title, runs in found.items():
                key = "f1" if title.endswith("F1 kept") else "caught"
                of = ~since if title.startswith("2013") else since
                collect(runs, {shown: [measured(result, name, each, of)[key] for each in kept]})
    head = ["", *(f"{rate:.0%}" for rate in RATES)]
    return "\n\n".join(
        f"### {title}\n\n"
        + markdown(head, [[name, *map(interval, np.transpose(runs))] for name, runs in of.items()])
        for title, of in found.items()
    )


def _by_class(result: Backtest, name: str, rate: float) -> Any:
    """Which objects are kept if this share of every predicted class is rejected each month."""
    kept = np.empty(len(result.y))
    for period in range(len(result.periods)):
        own = np.flatnonzero(result.period == period)
        kept[own] = result.answers[name][own].within_budget(rate, by_class=True).accepted
    return kept


def stability() -> str:
    """How far F1 of the kept jumps from month to month, and its worst month, 2014 to 2018."""
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        result = _since(rules("raw", seed))
        for name in result.answers:
            if name == THRESHOLDS:
                continue
            f1 = _f1(result.confusions_at(name, _rate(name))[:, 0])
            jumps = np.abs(np.diff(f1))
            row = {"mean": f1.mean(), "jump": jumps.mean(), "largest": jumps.max(), "worst": f1.min()}
            collect(found, {name: row | {"below": float(np.mean(f1 < 0.9))}})
    head = [
        "F1 kept, by month",
        "mean",
        "jump to the next month",
        "largest jump",
        "worst month",
        "months < .9",
    ]
    keys = ("mean", "jump", "largest", "worst", "below")
    return markdown(
        head,
        [[name, *(interval([run[key] for run in runs]) for key in keys)] for name, runs in found.items()],
    )


def _f1(counts: Any) -> Any:
    hits = counts[:, 1, 1]
    return 2 * hits / (2 * hits + counts[:, 0, 1] + counts[:, 1, 0])


def flood() -> str:
    """Strange, harmless apps that take a share of the budget, each trusted less than every real app."""
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        result = _since(rules("raw", seed))
        for name in (MARGIN, DRIFT, LIKE_IT, JUDGE, DETECTOR):
            runs = [
                measured(result, name, result.kept_at(name, RATE - share), slice(None)) for share in FLOODS
            ]
            collect(found, {name: [one[key] for key in ("caught", "f1") for one in runs]})
    texts = ("errors caught", "F1 kept")
    head = ["rejects by", *(f"{text}, flood {share:.0%}" for text in texts for share in FLOODS)]
    return markdown(head, [[name, *map(interval, np.transpose(of))] for name, of in found.items()])


def adversary() -> str:
    """A flood that can be built; and features added to malware until it passes."""
    evaded = [evasion(seed) for seed in SEEDS]
    rows = [
        [aim, what, *map(interval, np.transpose([one[aim][what] for one in evaded]))]
        for aim in AIMS
        for what in SHARES
    ]
    added = markdown(["adds what fools", "share", *(f"{bound} features" for bound in BOUNDS)], rows)
    return f"{flooding.table()}\n\n{added}"


def readme() -> str:
    """README's table and figure."""
    shown = {
        NOTHING: "nothing",
        DECISION: "the detector's own decision value",
        MARGIN: "its margin as a p-value, one ranking",
        THRESHOLDS: "its margin, the paper's thresholds",
        "soft vote, frozen": "mean probability of forest, LightGBM and MLP",
        "LightGBM, frozen": "probability of one LightGBM",
        DRIFT: '`measure="drift"`',
        LIKE_IT: "probability of a LightGBM that learns from 100 labels a month",
        "LightGBM that learns, odds over prior": "its odds beyond the share of the class",
        JUDGE: "its p-value: a judge that learns",
        f"an SVM that learns, {NOTHING}": "nothing; the SVM learns from the same labels",
        BOTH: "the learning judge, beside the SVM that learns",
        f"LightGBM as the detector, {NOTHING}": "nothing; the same LightGBM as the detector",
        DETECTOR: "its p-value",
    }
    found: dict[str, list[Any]] = {}
    for seed in SEEDS:
        result = _since(rules("raw", seed))
        years = np.array([int(period[:4]) for period in result.periods])[result.period]
        for name in shown:
            kept = _of_each_month(result, name)
            row: dict[str, Any] = measured(result, name, kept, slice(None)) | {"rejected": 1 - kept.mean()}
            by_year = [measured(result, name, kept, years == year) for year in np.unique(years)]
            collect(found, {name: row | {"by year": by_year}})
    _draw(found)
    rows = [
        [
            f"{text}{_named(name, found[name]).removeprefix(name)}",
            *(_cell(found[name], key) for key in IN_README),
        ]
        for name, text in shown.items()
    ]
    return markdown(["rejects by", *(HEAD[key] for key in IN_README)], rows)


def _draw(found: dict[str, list[Any]]) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.5), layout="constrained")
    years = range(2014, 2019)
    lines = {
        DETECTOR: ("a detector that learns", "#cc79a7"),
        JUDGE: ("a judge that learns", "#009e73"),
        DRIFT: ('measure="drift"', "#d55e00"),
        MARGIN: ("its margin, p-value", "#0072b2"),
        DECISION: ("its decision value", "#e69f00"),
        NOTHING: (NOTHING, "#888888"),
    }
    for ax, key in zip(axes, ("f1", "missed"), strict=True):
        for name, (label, colour) in lines.items():
            values = np.array([[year[key] for year in run["by year"]] for run in found[name]])
            mean, half = values.mean(axis=0), half_width(values)
            ax.plot(years, mean, marker="o", ms=4, lw=2, color=colour, label=label if key == "f1" else None)
            ends = np.maximum(mean - half, 0), np.minimum(mean + half, 1)
            ax.fill_between(years, *ends, color=colour, alpha=0.12, lw=0)
        ax.set_xticks(years)
        ax.grid(alpha=0.3)
    axes[0].set(title="F1 of the kept answers", ylim=(0.5, 1.01))
    axes[1].set(title="malware kept as goodware, share of all", ylim=(0, None))
    fig.suptitle("15% of every month rejected; a detector of 2012, unless it learns", fontsize=11)
    fig.legend(frameon=False, loc="outside right center", title="rejected by", alignment="left")
    save(fig, "drift")


def late_and_wrong() -> str:
    """What late and wrong labels cost."""
    late.draw()
    return late.table()


def aging() -> str:
    """How fast promises break."""
    return f"{promised.simulated()}\n\n{promised.real()}"


SECTIONS = (
    gain,
    all_months,
    differences,
    unseen,
    other_years,
    arrival,
    budgets,
    second,
    late_and_wrong,
    stability,
    aging,
    flood,
    adversary,
)

if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "transcendent"
    known = {section.__name__: section for section in (*SECTIONS, readme)}
    for wanted in sys.argv[1:] or known:
        take_stale()
        text = flag_stale(known[wanted](), take_stale())
        write(wanted, text, DOCS.parents[1] / "README.md" if wanted == "readme" else DOCS / "gain.md")
        print(f"{wanted}: written", flush=True)
