"""Do explanations point at what has changed, and how long does one take?

OMP_NUM_THREADS=1 TRANSCENDENT_DATA=data python benchmarks/explaining.py 200    # ten minutes

Prints the first table of docs/evidence/explanations.md.

Three features of accepted objects, drawn at random from all, are moved: one flip each in Android apps
(apigraph), two standard deviations up or down in tables of numbers. Objects that this turns from accepted to
rejected are explained. How many of the moved features are among the five unusual values that the explanation
names? Chance is the same with five features drawn at random: from all, and from those in which the object
differs from the usual values of its neighbours. With nothing planted, objects that are rejected anyway are
explained, and three features drawn for each in the same way are looked for.

Of one table the distribution is known, so the best possible answer is, too: every object that could have been
moved to this one is weighed by its density, if it was accepted, and the five features that were most probably
moved are named.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from transcendent import InductiveEvaluator
from transcendent.datasets import load_apigraph
from transcendent.explaining import KnownObjects, explain
from transcendent.explaining.variants import differing, usual_row

MOVED, TOP, TRIES, MANY, BATCH = 3, 5, 64, 10, 500
NEGLIGIBLE = 20  # as the logarithm of a density
N_TIMED = 50


class Trial(NamedTuple):
    """An evaluator, known objects, new ones, and how three features of a row are moved.

    ``best`` returns the features of a moved row that were most probably moved, if the distribution is known.
    """

    name: str
    evaluator: Any
    known: KnownObjects
    new: Any
    move: Callable[[Any, Any], tuple[Any, Any]]
    best: Callable[[Any], Any] | None = None


@cache
def evaluator_of_2012(measure: str) -> Any:
    """Return an SVM fitted on the apps of 2012, with its evaluator."""
    data = load_apigraph()
    old = data.times < np.datetime64("2013-01")
    svm = LinearSVC(C=0.1, random_state=0)
    evaluator = InductiveEvaluator(svm, measure=measure, random_state=0, verbose=False)
    return evaluator.fit(data.X[old], data.y[old])


def apps(measure: str) -> Trial:
    """Android apps: the detector learnt those of 2012; new ones are of the first half of 2013."""
    data = load_apigraph()
    months = data.times.astype("datetime64[M]")
    old, new = (
        months < np.datetime64("2013-01"),
        np.isin(months, np.arange("2013-01", "2013-07", dtype="M8[M]")),
    )
    ice = evaluator_of_2012(measure)
    known = KnownObjects(data.X[old], data.y[old], data.times[old])

    def flip(row: Any, rng: Any) -> tuple[Any, Any]:
        columns = rng.choice(row.shape[1], MOVED, replace=False)
        moved = row.toarray()
        moved[0, columns] = 1 - moved[0, columns]
        return sp.csr_matrix(moved), columns

    return Trial(f"apigraph, one flip each, measure {measure}", ice, known, data.X[new], flip)


def numbers(name: str, X: Any, y: Any, log_density: Any, detector: Any) -> Trial:
    """Tables of numbers; two thirds of the rows are known."""
    order = np.random.default_rng(0).permutation(len(X))
    X, y, cut = X[order], y[order], 2 * len(X) // 3
    model = make_pipeline(StandardScaler(), detector)
    ice = InductiveEvaluator(model, random_state=0, verbose=False).fit(X[:cut], y[:cut])
    deviation = X[:cut].std(axis=0)

    def shift(row: Any, rng: Any) -> tuple[Any, Any]:
        columns = rng.choice(X.shape[1], MOVED, replace=False)
        moved = row.copy()
        moved[0, columns] += 2 * rng.choice([-1, 1], MOVED) * deviation[columns]
        return moved, columns

    name = f"{name}: {X.shape[1]} numbers, two standard deviations each, {type(detector).__name__}"
    best = None if log_density is None else lambda row: most_probable(row, ice, log_density, 2 * deviation)
    return Trial(name, ice, KnownObjects(X[:cut], y[:cut]), X[cut:], shift, best)


def most_probable(row: Any, evaluator: Any, log_density: Any, steps: Any) -> Any:
    """Return the columns that were most probably moved, given the distribution before and the evaluator."""
    triples = np.array(list(combinations(range(row.shape[1]), MOVED)))
    triples = np.repeat(triples, 2**MOVED, axis=0)
    signs = np.tile(list(product([-1, 1], repeat=MOVED)), (len(triples) // 2**MOVED, 1))
    before = np.repeat(row, len(triples), axis=0)
    np.put_along_axis(before, triples, row[0, triples] - signs * steps[triples], axis=1)
    density = log_density(before)
    likely = density > density.max() - NEGLIGIBLE
    accepted = evaluator.decide(before[likely]).accepted
    weights = np.exp(density[likely] - density.max()) * accepted
    return np.argsort(-np.bincount(triples[likely].ravel(), np.repeat(weights, MOVED), row.shape[1]))[:TOP]


def tables_of_numbers() -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield tables whose columns are related, as they mostly are, and two where they are not.

    Of the last one the logarithm of the density is known.
    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 6000)
    factors = rng.normal(size=(6000, 6)) + 0.9 * y[:, None]
    yield (
        "60 columns from 6 factors",
        factors @ rng.normal(size=(6, 60)) + 0.5 * rng.normal(size=(6000, 60)),
        y,
        None,
    )
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, y, None
    X, y = load_digits(return_X_y=True)
    yield "digits, odd or even", X[:, X.std(axis=0) > 0.5], y % 2, None
    X, y = make_classification(6000, 30, n_informative=8, n_redundant=4, flip_y=0.02, random_state=1)
    yield "mostly independent columns", X, y, None
    y = rng.integers(0, 2, 6000)
    means = np.array([np.zeros(30), np.repeat([1.0, 0.0], [8, 22])])

    def log_density(rows: Any) -> Any:
        return logsumexp([-0.5 * np.sum((rows - mean) ** 2, axis=1) for mean in means], axis=0)

    yield "independent columns", rng.normal(size=(6000, 30)) + means[y], y, log_density


def turned(trial: Trial, rng: Any) -> Iterator[tuple[Any, Any]]:
    """Yield accepted objects that three moved features have turned into rejected ones, with the features."""
    accepted, done = trial.evaluator.decide(trial.new).accepted, set[int]()
    stack: Any = sp.vstack if sp.issparse(trial.new) else np.concatenate
    for _ in range(TRIES):
        order = rng.permutation(np.flatnonzero(accepted)).tolist()
        for start in range(0, len(order), BATCH):
            batch = [i for i in order[start : start + BATCH] if i not in done]
            if not batch:
                continue
            moves = [trial.move(trial.new[[i]], rng) for i in batch]
            rejected = np.flatnonzero(trial.evaluator.decide(stack([row for row, _ in moves])).rejected)
            done |= {batch[place] for place in rejected}
            yield from (moves[place] for place in rejected)


def untouched(trial: Trial, rng: Any) -> Iterator[tuple[Any, Any]]:
    """Yield objects that are rejected as they are, with features that were not moved."""
    for i in rng.permutation(np.flatnonzero(trial.evaluator.decide(trial.new).rejected)):
        yield trial.new[[i]], trial.move(trial.new[[i]], rng)[1]


def found(trial: Trial, objects: Iterator[tuple[Any, Any]], n: int) -> Any:
    """Return, for each of n objects, which features were named, and the number of features that differ.

    The last is the share of features that the best possible answer names, None if that is not known.
    """
    names, named, different, best = [str(j) for j in range(trial.new.shape[1])], [], [], []
    for row, columns in (pair for pair, _ in zip(objects, range(n), strict=False)):
        why = explain(trial.evaluator, row, 0, trial.known, names=names, n=TOP)
        named.append(np.isin(columns, [int(each.name) for each in why.strange]))
        near = trial.known.with_label(why.label)
        near = near[np.argsort(trial.known.distances(row)[near], kind="stable")[:25]]
        different.append(len(differing(row, usual_row(trial.known.X[near]))))
        if trial.best is not None:
            best.append(np.isin(columns, trial.best(row)))
    return np.array(named), np.array(different), np.mean(best) if best else None


def show(trial: Trial, n: int) -> None:
    """Print what explanations name, with features moved and without."""
    print(f"\n{trial.name}", flush=True)
    for what, objects in (("planted", turned), ("nothing planted", untouched)):
        named, different, best = found(trial, objects(trial, np.random.default_rng(0)), n)
        _print(what, named, different, trial.new.shape[1])
        if best is not None and what == "planted":
            print(f"  best possible: {best:.1%} of the features", flush=True)
        many = different > MANY
        if what == "planted" and 10 <= many.sum() < len(many):
            _print(
                f"  of these, objects that differ in more than {MANY}",
                named[many],
                different[many],
                trial.new.shape[1],
            )


def _print(what: str, named: Any, different: Any, width: int) -> None:
    chance = np.minimum(1.0, TOP / np.maximum(different, 1)).mean()
    print(
        f"  {what}: {len(named)} objects, {named.mean():.1%} of the features among the top {TOP} (all three: "
        f"{named.all(axis=1).mean():.1%}); chance {TOP / width:.1%} of all features, {chance:.1%} of those "
        f"that differ ({np.mean(different):.0f})",
        flush=True,
    )


def time_explanations(measure: str) -> None:
    """Print how long an explanation takes with all apps as known objects."""
    data, ice = load_apigraph(), evaluator_of_2012(measure)
    known = KnownObjects(data.X, data.y, data.times)
    new = data.X[data.times == np.datetime64("2014-06")]
    rejected = np.flatnonzero(ice.decide(new).rejected)[: N_TIMED + 1]
    seconds = []
    for i in rejected:
        started, worked = time.perf_counter(), time.process_time()
        explain(ice, new, int(i), known, names=list(map(str, np.asarray(data.feature_names))))
        seconds.append((time.process_time() - worked, time.perf_counter() - started))
    first, *warm = 1000 * np.array(seconds)
    for what, own, times in zip(("processor", "elapsed"), first, np.transpose(warm), strict=True):
        print(
            f"  measure {measure}, {what} time: median {np.median(times):.0f} ms, 95% below "
            f"{np.quantile(times, 0.95):.0f} ms; the first, which prepares the known objects, {own:.0f} ms"
        )


def main() -> None:
    """Run the trials and the times."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    show(apps("auto"), n)
    for table in tables_of_numbers():
        for detector in (LinearSVC(C=0.1), RandomForestClassifier(50, max_depth=8, random_state=0)):
            show(numbers(*table, detector), n)
    show(apps("drift"), n)
    print("\none explanation with 320,315 known objects of 1,159 columns")
    for measure in ("auto", "drift"):
        time_explanations(measure)


if __name__ == "__main__":
    main()
