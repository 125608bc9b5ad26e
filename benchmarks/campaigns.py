"""How many rejected apps one look resolves, with campaigns and case memory, and how many of them wrongly.

python benchmarks/campaigns.py                       # everything, hours on one core
python benchmarks/campaigns.py --small               # one seed and fewer months of each section
python benchmarks/campaigns.py looks impostors       # some of its sections, which are the functions below
python benchmarks/campaigns.py looks lamda --seeds=1 # one of the data sets, fewer seeds

Prints the other tables of docs/evidence/explanations.md. TRANSCENDENT_DATA names the folder with the data,
TRANSCENDENT_CACHE one for the rejected apps, which are computed once per data set and seed (default:
benchmarks/drift/cache).
"""

import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from intervals import interval
from lightgbm import LGBMClassifier
from sklearn.metrics import f1_score
from sklearn.svm import LinearSVC

from transcendent import CombinedMeasure, InductiveEvaluator
from transcendent.datasets import Dataset, load_apigraph, load_lamda
from transcendent.explaining import CaseMemory, content_keys, find_campaigns
from transcendent.measures import Probability, SecondOpinion

CACHE = Path(os.environ.get("TRANSCENDENT_CACHE", "benchmarks/drift/cache"))
SMALL = "--small" in sys.argv
SEEDS = range(next((int(arg[8:]) for arg in sys.argv if arg.startswith("--seeds=")), 1 if SMALL else 5))
RATE = 0.15
LOOKS = 100
K = 3
SHARE = 0.05
MALWARE = 1


@dataclass(frozen=True)
class Problem:
    """Apps, those that train, the C of the SVM, the negative labels, and the first month that counts."""

    name: str
    apps: Dataset
    train: Any
    C: float
    negative: list[Any]
    start: str
    families: Any


@dataclass(frozen=True)
class Way:
    """How rejected apps are looked at; a k of 0 opens one app of groups below five, as in the prototype."""

    distance: float = 0.1
    settle: float | None = 0.1
    safe: bool = True
    k: int = K
    random_groups: bool = False
    groups: bool = True
    audits_campaigns: bool = False


WAYS = {
    "safe rules": Way(),
    "safe rules, distance 0.15": Way(distance=0.15, settle=0.15),
    "safe rules, only exact content settles": Way(settle=0.0),
    "safe rules, campaigns audited, too": Way(audits_campaigns=True),
    "without the safe rules": Way(safe=False, k=0),
    "without the safe rules, distance 0.2": Way(distance=0.2, settle=0.2, safe=False, k=0),
    "exact duplicates alone": Way(distance=0.0, settle=0.0),
    "random groups": Way(settle=None, random_groups=True),
    "one by one": Way(settle=None, groups=False),
}


def apigraph() -> Problem:
    apps = load_apigraph()
    end = "2015-01" if SMALL else "2019-01"
    apps = apps[apps.times < np.datetime64(end)]
    train = apps.times < np.datetime64("2013-01")
    return Problem("apigraph", apps, train, 0.1, [0], "2014-01", apps.extra["family"])


def lamda() -> Problem:
    apps = load_lamda()
    first = apps.times < np.datetime64("2014-01")
    families, counts = np.unique(apps.y[first], return_counts=True)
    apps = apps[~first | np.isin(apps.y, families[counts >= 30])]
    if SMALL:
        apps = apps[apps.times < np.datetime64("2016-07")]
    train = apps.times < np.datetime64("2014-01")
    return Problem("lamda", apps, train, 0.1, [], "2014-01", apps.y)


def androzoo() -> Problem:
    import pandas as pd

    folder = Path(os.environ["TRANSCENDENT_DATA"])
    with np.load(folder / "androzoo_bits.npz") as stored:
        n, _ = stored["shape"]
        X = sp.csr_matrix(np.unpackbits(stored["bits"], axis=1, count=int(n)).T)
    meta = pd.read_parquet(folder / "androzoo_meta.parquet")
    times = meta["month"].to_numpy().astype("datetime64[M]")
    extra = {"family": meta["family"].fillna("").to_numpy().astype(str)}
    apps = Dataset(X=X, y=meta["y"].to_numpy().astype(int), times=times, extra=extra, name="androzoo")
    train = apps.times < np.datetime64("2021-04")
    return Problem("androzoo", apps, train, 0.01, [0], "2021-04", apps.extra["family"])


def rejects(problem: Problem, seed: int) -> list[tuple[Any, Any]]:
    """The rejected rows of every month and their p-values: the 15% that the preset trusts least."""
    path = CACHE / f"rejects-{problem.name}{'-small' if SMALL else ''}-{seed}.npz"
    if not path.exists():
        _find_rejects(problem, seed, path)
    with np.load(path) as stored:
        cuts = np.cumsum(stored["sizes"])[:-1]
        return list(zip(np.split(stored["rows"], cuts), np.split(stored["credibility"], cuts), strict=True))


def _find_rejects(problem: Problem, seed: int, path: Path) -> None:
    started, apps = time.process_time(), problem.apps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ice = InductiveEvaluator(LinearSVC(C=problem.C), measure="drift", random_state=seed, verbose=False)
        ice.fit(apps.X[problem.train], apps.y[problem.train])
    rows, credibility, sizes = [], [], []
    for month in np.unique(apps.times[~problem.train]):
        own = np.flatnonzero((apps.times == month) & ~problem.train)
        decisions = ice.decide(apps.X[own])
        if RATE * len(own) >= 1:
            rejected = decisions.within_budget(RATE).rejected
            rows.append(own[rejected])
            credibility.append(decisions.credibility[rejected])
            sizes.append(int(rejected.sum()))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, rows=np.concatenate(rows), credibility=np.concatenate(credibility), sizes=sizes)
    sys.stderr.write(f"{path.name}: {time.process_time() - started:.0f} s\n")


@dataclass
class Tally:
    """Rejected apps: all, settled, labelled by their campaign or as copies, wrong; and of looks."""

    objects: int = 0
    settled: int = 0
    settled_wrong: int = 0
    inferred: int = 0
    inferred_wrong: int = 0
    opened: int = 0
    looks: int = 0
    audited: int = 0
    audited_wrong: int = 0
    refused: int = 0

    @property
    def per_look(self) -> float:
        return (self.settled + self.inferred + self.opened) / max(self.looks, 1)

    @property
    def wrong(self) -> float:
        """Share of wrong labels among those that nobody gave."""
        return (self.settled_wrong + self.inferred_wrong) / max(self.settled + self.inferred, 1)


class Desk:
    """Looks at the rejected apps of one month after the other, with so many looks a month."""

    def __init__(self, problem: Problem, way: Way, seed: int) -> None:
        self.problem, self.way, self.tally = problem, way, Tally()
        self.rng = np.random.default_rng(seed)
        self.memory = CaseMemory(
            20_000,
            settle=way.settle,
            negative=problem.negative if way.safe else [],
            random_share=SHARE if way.safe else 1e-9,
            random_state=seed,
        )
        self.keys: dict[int, str] = {}
        self.labels: dict[int, Any] = {}
        self.opened: list[int] = []
        self.left = 0

    def month(self, rows: Any, y: Any, looks: int = LOOKS) -> dict[int, Any]:
        """Look at a month's rejects; return the labels of those resolved, by row."""
        problem, tally, X = self.problem, self.tally, self.problem.apps.X
        self.left, self.labels, self.opened, self.keys = looks, {}, [], {}
        tally.objects += len(rows)
        answers = self.memory.settle(X[rows], rows.tolist())
        drawn = [(row, a.label) for row, a in zip(rows, answers, strict=True) if a and a.look]
        self._audit(drawn[: self.left], y)
        for row, answer in zip(rows, answers, strict=True):
            if answer and row not in self.labels:
                self.labels[row] = answer.label
                tally.settled += 1
                tally.settled_wrong += answer.label != y[row]
        waiting = np.array([row for row in rows if row not in self.labels], dtype=np.intp)
        for group in self._groups(waiting):
            if self.left <= 0:
                break
            self._look_at(group, y)
        self._remember(problem.apps.times[rows[0]])
        return self.labels

    def _audit(self, drawn: list[tuple[int, Any]], y: Any) -> None:
        if not drawn:
            return
        self.memory.audit([label for _, label in drawn], [y[row] for row, _ in drawn])
        self.tally.audited += len(drawn)
        self.tally.audited_wrong += sum(label != y[row] for row, label in drawn)
        for row, _ in drawn:
            self._open(row, y)

    def _open(self, row: int, y: Any) -> None:
        self.labels[row] = y[row]
        self.opened.append(row)
        self.left -= 1
        self.tally.looks += 1
        self.tally.opened += 1

    def _groups(self, waiting: Any) -> list[Any]:
        """The waiting apps in groups, those with the most apps for a look first."""
        if len(waiting) == 0:
            return []
        if not self.way.groups:
            return [np.array([row]) for row in self.rng.permutation(waiting)]
        found = find_campaigns(self.problem.apps.X[waiting], distance=self.way.distance)
        self.keys = dict(zip(waiting.tolist(), found.keys.tolist(), strict=True))
        order = self.rng.permutation(len(waiting)) if self.way.random_groups else np.arange(len(waiting))
        groups = [waiting[order[campaign.rows]] for campaign in found]
        groups += [waiting[[order[row]]] for row in np.flatnonzero(found.ids == "")]
        return sorted(groups, key=lambda group: -len(group) / self._needed(group))

    def _contents(self, group: Any) -> int:
        return len({self.keys[row] for row in group.tolist()})

    def _needed(self, group: Any) -> int:
        if self.way.k == 0:
            return 3 if len(group) >= 5 else 1
        return min(self.way.k, self._contents(group))

    def _look_at(self, group: Any, y: Any) -> None:
        """Open random members of different content; if they agree, the others get their label."""
        if len(group) == 1:
            self._open(int(group[0]), y)
            return
        needed = self._needed(group)
        seen: set[str] = set()
        found: set[Any] = set()
        for row in self.rng.permutation(group).tolist():
            if self.left <= 0 or len(seen) == needed:
                break
            if self.keys[row] not in seen:
                seen.add(self.keys[row])
                found.add(y[row])
                self._open(row, y)
        agree = len(found) == 1 and len(seen) == needed
        label = next(iter(found))
        named = {self.keys[row]: y[row] for row in self.opened if row in self.keys}
        self.tally.refused += not agree
        for row in group.tolist():
            if row in self.labels or not (agree or self.keys[row] in named):
                continue  # copies of an opened app take its label, whatever the others are
            guess = label if agree else named[self.keys[row]]
            if agree and self.way.audits_campaigns and self.rng.random() < SHARE and self.left > 0:
                self.tally.audited += 1
                self.tally.audited_wrong += guess != y[row]
                self._open(row, y)
                continue
            self.labels[row] = guess
            self.tally.inferred += 1
            self.tally.inferred_wrong += guess != y[row]

    def _remember(self, month: Any) -> None:
        """Remember what was opened, and contents whose label follows from it; never what was settled."""
        rows = [row for row in self.labels if row in self.keys or row in self.opened]
        if self.way.groups and rows:
            labels = [self.labels[row] for row in rows]
            self.memory.add(self.problem.apps.X[rows], labels, authors="desk", times=[month] * len(rows))


def months_of(problem: Problem, found: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any, bool]]:
    """Each month's rejected rows, their p-values, and whether the month counts."""
    for rows, credibility in found:
        yield rows, credibility, problem.apps.times[rows[0]] >= np.datetime64(problem.start)


def simulate(problem: Problem, way: Way, seed: int, y: Any = None) -> tuple[Tally, Desk]:
    """The tally of the months that count; memory begins with the first month."""
    desk = Desk(problem, way, seed)
    labels = problem.apps.y if y is None else y
    for rows, _, counts in months_of(problem, rejects(problem, seed)):
        desk.month(rows, labels)
        if not counts:
            desk.tally = Tally()
    return desk.tally, desk


def composition() -> None:
    """Campaigns of at least five among a month's rejects: how much they hold, and how pure they are."""
    for problem in problems():
        print(f"\n## {problem.name}: campaigns of five or more, month by month, {len(SEEDS)} seed(s)\n")
        print("| distance | rejects | in campaigns | largest | label pure | family pure | radius, 95% |")
        print("|---|---|---|---|---|---|---|")
        for distance in (0.0, 0.1, 0.2, 0.3):
            found = np.array([_compose(problem, distance, seed) for seed in SEEDS])
            cells = [
                interval(column, digits) for column, digits in zip(found.T, (0, 4, 0, 4, 4, 2), strict=True)
            ]
            print(f"| {distance} | " + " | ".join(cells) + " |", flush=True)


def _compose(problem: Problem, distance: float, seed: int) -> list[float]:
    total = held = label_pure = family_pure = largest = 0
    radii: list[float] = []
    for rows, _, counts in months_of(problem, rejects(problem, seed)):
        if not counts:
            continue
        total += len(rows)
        for campaign in find_campaigns(problem.apps.X[rows], distance=distance):
            if campaign.size >= 5:
                members = rows[campaign.rows]
                held += campaign.size
                largest = max(largest, campaign.size)
                radii += [campaign.radius] * campaign.size
                label_pure += _majority(problem.apps.y[members])
                family_pure += _majority(problem.families[members])
    pure = [label_pure / held, family_pure / held] if held else [np.nan] * 2
    return [total, held / total, largest, *pure, float(np.quantile(radii, 0.95)) if radii else np.nan]


def _majority(labels: Any) -> int:
    return int(np.unique(labels, return_counts=True)[1].max())


def looks() -> None:
    """Items resolved by one look and wrong ones: 100 looks a month, memory since the first month."""
    for problem in problems():
        print(f"\n## {problem.name}: {LOOKS} looks a month, {len(SEEDS)} seed(s)\n")
        print(
            "| way | resolved by a look | wrong among inferred | settled | wrong | by campaign | wrong |"
            " audit looks | audit's errors | share of rejects looked at |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name, way in WAYS.items():
            tallies = [simulate(problem, way, seed)[0] for seed in SEEDS]
            print(f"| {name} | " + " | ".join(_cells(tallies)) + " |", flush=True)


def _cells(tallies: list[Tally]) -> list[str]:
    return [
        interval([tally.per_look for tally in tallies], 2),
        interval([tally.wrong for tally in tallies], 4),
        interval([tally.settled / tally.objects for tally in tallies], 3),
        interval([tally.settled_wrong / max(tally.settled, 1) for tally in tallies], 4),
        interval([tally.inferred / tally.objects for tally in tallies], 3),
        interval([tally.inferred_wrong / max(tally.inferred, 1) for tally in tallies], 4),
        interval([tally.audited / tally.looks for tally in tallies], 3),
        f"{sum(tally.audited_wrong for tally in tallies)}/{sum(tally.audited for tally in tallies)}",
        interval([tally.looks / tally.objects for tally in tallies], 3),
    ]


def impostors() -> None:
    """Campaigns with planted members of the other label, and copies of resolved goodware with changes."""
    problem = apigraph()
    print("\n## 5% of every campaign of 20 or more planted with the other label\n")
    print("| way | planted | inferred wrongly | wrong among inferred | campaigns refused | audit's errors |")
    print("|---|---|---|---|---|---|")
    for name in ("safe rules", "safe rules, campaigns audited, too", "without the safe rules"):
        y, planted = _planted(problem, 0)
        tally, desk = simulate(problem, WAYS[name], 0, y)
        wrong = tally.settled_wrong + tally.inferred_wrong
        off = "" if desk.memory.is_settling or not WAYS[name].safe else ", settling turned off"
        print(
            f"| {name} | {planted} | {wrong} | {tally.wrong:.4f} | {tally.refused} | "
            f"{tally.audited_wrong}/{tally.audited}{off} |",
            flush=True,
        )
    _copies(problem)


def _planted(problem: Problem, seed: int) -> tuple[Any, int]:
    y, rng, planted = problem.apps.y.copy(), np.random.default_rng(seed), 0
    for rows, _, _counts in months_of(problem, rejects(problem, seed)):
        for campaign in find_campaigns(problem.apps.X[rows]):
            if campaign.size >= 20:
                chosen = rng.choice(rows[campaign.rows], max(1, round(0.05 * campaign.size)), replace=False)
                y[chosen] = 1 - y[chosen]
                planted += len(chosen)
    return y, planted


def _copies(problem: Problem) -> None:
    """Malware that copies the features of resolved goodware except for some changes: who is settled?"""
    print("\n## Malware that copies resolved goodware, with changes\n")
    print("| way | changes | settled as goodware | settled as malware | not settled |")
    print("|---|---|---|---|---|")
    for name in ("safe rules", "safe rules, only exact content settles", "without the safe rules"):
        _, desk = simulate(problem, WAYS[name], 0)
        rng, X, n = np.random.default_rng(1), problem.apps.X, 1000
        cases = [row for rows, _, _ in months_of(problem, rejects(problem, 0)) for row in rows]
        known = desk.memory.suggest(X[cases])
        goodware = [
            row
            for row, case in zip(cases, known, strict=True)
            if case and (case.distance, case.label) == (0, 0)
        ]
        for changes in (0, 1, 2, 4, 8):
            copies = sp.lil_array(X[rng.choice(goodware, n)])
            for row in range(n):
                for column in rng.choice(X.shape[1], changes, replace=False):
                    copies[row, column] = 1 - copies[row, column]
            answers = desk.memory.settle(copies.tocsr(), range(n))
            labels = [None if answer is None else answer.label for answer in answers]
            shares = (labels.count(0) / n, labels.count(MALWARE) / n, labels.count(None) / n)
            print(
                f"| {name} | {changes} | " + " | ".join(f"{share:.3f}" for share in shares) + " |", flush=True
            )
    _flood(problem)


def _flood(problem: Problem) -> None:
    """Exact copies of one resolved goodware after the other: how many pass before the audit stops each?"""
    passed, seen = [], []
    for seed in range(20):
        memory = CaseMemory(100, settle=0.1, negative=[0], random_share=SHARE, random_state=seed)
        X = problem.apps.X[np.flatnonzero(~problem.train)[:40]]
        _, first = np.unique(content_keys(X), return_index=True)
        X = X[first]
        n = X.shape[0]
        memory.add(X, [0] * n, authors="desk", times=[0] * n)
        sent = slipped = looked = 0
        while memory.is_settling and sent < 5000:
            target = X[[(sent // 20) % n]]  # 20 copies of each a day
            answers = memory.settle(sp.vstack([target] * 20), range(sent, sent + 20))
            sent += 20
            slipped += sum(answer is not None and not answer.look for answer in answers)
            if drawn := [answer for answer in answers if answer and answer.look]:
                looked += len(drawn)
                memory.audit([0] * len(drawn), [1] * len(drawn))
                memory.add(
                    sp.vstack([target] * len(drawn)), [1] * len(drawn), authors="desk", times=[1] * len(drawn)
                )
        passed.append(slipped)
        seen.append(looked)
    print(
        f"\nExact copies, 20 a day, of one goodware after the other: {np.mean(passed):.0f} pass "
        f"({min(passed)} to {max(passed)}, 20 draws) before settling is turned off, "
        f"after {np.mean(seen):.1f} looks of the audit."
    )


def loop() -> None:
    """A judge that learns from 100 looks a month instead of 100 labels; 15% of every month rejected."""
    print("\n## A judge that learns from looks: apigraph, 15% of every month rejected\n")
    print("| learns from | seed | errors caught | F1 kept | labels a month | wrong | CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    for seed in SEEDS:
        for name in ("also inferred", "opened only", "100 labels"):
            started = time.process_time()
            cells = _learn(apigraph(), name, seed)
            print(f"| {name} | {seed} | {cells} | {time.process_time() - started:.0f} |", flush=True)


def _learn(problem: Problem, name: str, seed: int) -> str:
    apps, rng = problem.apps, np.random.default_rng(seed)
    boosting = LGBMClassifier(
        n_estimators=200, num_leaves=63, colsample_bytree=0.2, min_child_samples=5, verbose=-1, n_jobs=1
    )
    measure = CombinedMeasure([SecondOpinion(boosting, Probability())], bag="all")
    warnings.simplefilter("ignore")
    fitted = (apps.X[problem.train], apps.y[problem.train])
    ice = InductiveEvaluator(LinearSVC(C=0.1), measure=measure, random_state=seed, verbose=False).fit(*fitted)
    desk = Desk(problem, WAYS["safe rules"], seed)
    rows: list[int] = []
    labels: list[Any] = []
    errors: list[Any] = []
    kept: list[Any] = []
    for month in np.unique(apps.times[~problem.train]):
        own = np.flatnonzero(apps.times == month)
        decisions = ice.decide(apps.X[own]).within_budget(RATE)
        wrong = decisions.labels != apps.y[own]
        errors.append((int(wrong.sum()), int(wrong[decisions.rejected].sum())))
        kept.append((apps.y[own][decisions.accepted], decisions.labels[decisions.accepted]))
        rejected, accepted = own[decisions.rejected], own[decisions.accepted]
        audited = rng.choice(accepted, 20, replace=False).tolist()
        rows, labels = [*rows, *audited], [*labels, *apps.y[audited]]
        if name == "100 labels":
            drawn = rng.choice(rejected, min(80, len(rejected)), replace=False).tolist()
            found = {row: apps.y[row] for row in drawn}
        else:
            found = desk.month(rejected, apps.y, looks=80)
            if name == "opened only":
                found = {row: found[row] for row in desk.opened}
        rows, labels = [*rows, *found], [*labels, *found.values()]
        ice.learn(apps.X[rows], np.array(labels), what="judge", fitted=fitted)
    all_wrong, caught = np.sum(errors, axis=0)
    truth, answers = (np.concatenate(column) for column in zip(*kept, strict=True))
    share = np.mean(np.array(labels) != apps.y[rows])
    f1 = f1_score(truth, answers)
    return f"{caught / all_wrong:.3f} | {f1:.3f} | {len(rows) / len(errors):.0f} | {share:.4f}"


def speed() -> None:
    """Campaigns of 20,000 apps: processor time and memory."""
    import resource

    apps = load_apigraph()
    rows = np.sort(np.random.default_rng(0).choice(len(apps), 20_000, replace=False))
    print("\n## Campaigns of 20,000 apps, one core\n\n| distance | seconds | GB so far |\n|---|---|---|")
    for distance in (0.0, 0.1, 0.2, 0.3):
        started = time.process_time()
        find_campaigns(apps.X[rows], distance=distance, times=apps.times[rows], names=apps.feature_names)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"| {distance} | {time.process_time() - started:.1f} | {used:.2f} |", flush=True)


def problems() -> list[Problem]:
    """The problems named on the command line, by default all."""
    every = {"apigraph": apigraph, "lamda": lamda, "androzoo": androzoo}
    return [load() for name, load in every.items() if name in sys.argv or not every.keys() & set(sys.argv)]


SECTIONS = {f.__name__: f for f in (speed, composition, looks, impostors, loop)}

if __name__ == "__main__":
    for section, run in SECTIONS.items():
        if section in sys.argv or not SECTIONS.keys() & set(sys.argv):
            run()
