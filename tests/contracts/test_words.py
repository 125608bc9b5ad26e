"""What the command line says in words, Python says too: words are the objects they stand for."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from transcendent import (
    Answers,
    CombinedMeasure,
    CrossConformalEvaluator,
    ExactSearch,
    GridSearch,
    InductiveEvaluator,
    RandomSearch,
    ScoreEvaluator,
    TransductiveEvaluator,
    load,
    measures,
    save,
)
from transcendent.baselines import CPReject, ProbabilityThresholds
from transcendent.errors import ArtifactError, MeasureError
from transcendent.experiments.building import build_rejectors
from transcendent.experiments.toml import TomlTable
from transcendent.measures import (
    CentroidDistance,
    Density,
    HiddenLayerSVM,
    Margin,
    NeighbourRatio,
    NeighbourShare,
    OneVsRestMeasure,
    Probability,
    ProbabilityMargin,
    TreeDisagreement,
    drift_measure,
)
from transcendent.measures.names import find_measure, from_name
from transcendent.metrics import F1, ErrorRate, MacroF1, Metric, Ratio, Recall, RejectionRate
from transcendent.metrics.ratios import METRICS
from transcendent.thresholds.base import parse_constraint
from transcendent.thresholds.exact import resolve_search

X, Y = make_classification(400, flip_y=0.15, random_state=0)
DETECTOR = LogisticRegression()
WRAPPERS = {
    "ICE": lambda **given: InductiveEvaluator(DETECTOR, random_state=0, **given),
    "CCE": lambda **given: CrossConformalEvaluator(DETECTOR, cv=3, random_state=0, **given),
    "TCE": lambda **given: TransductiveEvaluator(DETECTOR, cv=3, random_state=0, **given),
}
SEARCHING = WRAPPERS | {
    "probability": lambda **given: ProbabilityThresholds(DETECTOR, random_state=0, **given)
}
MEASURING = WRAPPERS | {"CP-Reject": lambda **given: CPReject(DETECTOR, random_state=0, **given)}


def thresholds(rejector):
    judges = getattr(rejector, "judges_", [rejector])
    return [judge.result_.credibility_thresholds.tolist() for judge in judges]


def same(first, second):
    """Decisions equal bit for bit."""
    pairs = zip(first.decide(X).columns().values(), second.decide(X).columns().values(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@dataclass(frozen=True, repr=False)
class F2(Ratio):
    position: int = 1

    higher_is_better = True

    def sums(self, kept, rejected, classes):
        correct, actual, predicted = (
            counts[..., self.position] for counts in (kept.correct, kept.actual, kept.predicted)
        )
        return 5 * correct, 4 * actual + predicted


@dataclass(frozen=True, repr=False)
class MissesAndAlarms(Metric):
    """No ratio: a root of the mean square of two costs."""

    missed: float = 5.0

    higher_is_better = False

    def value(self, kept, rejected, classes):
        missed = kept.actual[..., 1] - kept.correct[..., 1]
        alarms = kept.predicted[..., 1] - kept.correct[..., 1]
        return np.hypot(self.missed * missed, alarms) / len(Y)


class InFloats(Ratio):
    higher_is_better = True

    def sums(self, kept, rejected, classes):
        return 0.5 * kept.correct.sum(axis=-1), kept.actual.sum(axis=-1)


OWN = [F2(), F2(position=0), MissesAndAlarms(missed=2.5)]


class TestSearches:
    @pytest.mark.parametrize("kind", SEARCHING)
    @pytest.mark.parametrize("metric", [F1(), F1(pos_label=0), MacroF1(), ErrorRate(of="rejected"), *OWN])
    def test_a_metric_is_an_exact_search(self, kind, metric):
        by_metric = SEARCHING[kind](search=metric).fit(X, Y)
        by_search = SEARCHING[kind](search=ExactSearch(metric)).fit(X, Y)
        assert thresholds(by_metric) == thresholds(by_search)
        assert same(by_metric, by_search)
        assert clone(by_metric).get_params()["search"] == metric
        assert repr(metric) in repr(by_metric)

    def test_a_metric_with_several_classes(self):
        rows, labels = make_classification(600, n_classes=3, n_informative=4, flip_y=0.15, random_state=0)
        metric = Recall(pos_label=2)
        by_metric = WRAPPERS["ICE"](search=metric).fit(rows, labels)
        by_search = WRAPPERS["ICE"](search=ExactSearch(metric)).fit(rows, labels)
        assert thresholds(by_metric) == thresholds(by_search)
        assert by_metric.result_.objective == metric
        with pytest.raises(ValueError, match="F1 with 3 classes needs a pos_label"):
            WRAPPERS["ICE"](search=F1()).fit(rows, labels)

    def test_a_metric_when_thresholds_are_searched_again(self):
        ice = WRAPPERS["ICE"]().fit(X, Y)
        by_metric = thresholds(ice.rethreshold(F2()))
        assert repr(ice.search_) == "ExactSearch(objective=F2())"
        assert by_metric == thresholds(ice.rethreshold(ExactSearch(F2())))
        assert ice.result_.certified

    def test_in_words(self):
        (_, rejects, *_) = WRAPPERS["ICE"](search=F1()).in_words(2)
        assert rejects == WRAPPERS["ICE"](search="f1").in_words(2)[1]
        (_, rejects, *_) = WRAPPERS["ICE"](search=MissesAndAlarms(2.0)).in_words(2)
        assert "set for the lowest MissesAndAlarms(missed=2.0) of calibration objects" in rejects

    def test_sums_that_prove_nothing_are_refused(self):
        with pytest.raises(ValueError, match=r"InFloats\(\) must return integers with 0 <= numerator <= den"):
            WRAPPERS["ICE"](search=InFloats()).fit(X, Y)

    @pytest.mark.parametrize("kind", SEARCHING)
    @pytest.mark.parametrize("word", ["f1", "precision", "accuracy", "macro_f1"])
    def test_the_name_of_an_objective_is_an_exact_search(self, kind, word):
        by_word = SEARCHING[kind](search=word).fit(X, Y)
        by_search = SEARCHING[kind](search=ExactSearch(METRICS[word])).fit(X, Y)
        assert thresholds(by_word) == thresholds(by_search)
        assert same(by_word, by_search)

    def test_of_scores(self):
        margins = DETECTOR.fit(X, Y).decision_function(X)
        answers = Answers((margins > 0).astype(int), np.column_stack([margins, -margins]))
        by_word = ScoreEvaluator(search="recall").fit(answers, Y)
        by_search = ScoreEvaluator(search=ExactSearch(Recall())).fit(answers, Y)
        assert thresholds(by_word) == thresholds(by_search)
        again = by_word.rethreshold("f1")
        assert thresholds(again) == thresholds(by_search.rethreshold(ExactSearch(F1())))
        assert repr(again.search_) == "ExactSearch()"

    def test_rethreshold(self):
        ice = WRAPPERS["ICE"]().fit(X, Y)
        by_word = thresholds(ice.rethreshold("accuracy"))
        assert by_word == thresholds(ice.rethreshold(ExactSearch("accuracy")))

    @pytest.mark.parametrize("search", [ExactSearch(), GridSearch(steps=11), RandomSearch(random_state=0)])
    @pytest.mark.parametrize(
        ("words", "constraints"),
        [
            ("f1 >= 0.8", F1() >= 0.8),
            (["rejection_rate <= 12.5%", "error<=.2"], [RejectionRate() <= 0.125, ErrorRate() <= 0.2]),
            (["f1 >= 0.8", RejectionRate() <= 0.1], (F1() >= 0.8, RejectionRate() <= 0.1)),
        ],
    )
    def test_constraints(self, search, words, constraints):
        rng = np.random.default_rng(0)
        labels = np.where(rng.random(400) < 0.1, 1 - Y, Y)
        credibility = np.where(labels == Y, rng.random(400), rng.random(400) * 0.5)
        found, expected = (
            clone(search).set_params(constraints=given).find(Y, labels, credibility)
            for given in (words, constraints)
        )
        assert found.credibility_thresholds.tolist() == expected.credibility_thresholds.tolist()
        assert found.value == expected.value

    def test_a_constraint_in_words(self):
        assert parse_constraint("rejection_rate <= 10%") == (RejectionRate() <= 0.1)
        for wrong in ("recall", "recall > 0.9", "recall >= x", ">= 1"):
            with pytest.raises(ValueError, match="is not a constraint such as"):
                parse_constraint(wrong)
        with pytest.raises(ValueError, match="there is no metric 'recal'; did you mean 'recall'"):
            InductiveEvaluator(DETECTOR, search=ExactSearch(constraints="recal >= 0.9")).fit(X, Y)

    def test_unknown_words(self):
        for word, close in (("F1", "f1"), ("acuracy", "accuracy"), ("aut", "auto")):
            with pytest.raises(ValueError, match=f"there is no search '{word}'; did you mean '{close}'"):
                InductiveEvaluator(DETECTOR, search=word).fit(X, Y)
        with pytest.raises(ValueError, match="there is no metric 'f2'; choose from accuracy, error, f1"):
            InductiveEvaluator(DETECTOR, search=ExactSearch("f2")).fit(X, Y)
        for wrong in (None, F1, F1() >= 0.5):
            with pytest.raises(
                ValueError, match=r"must be a Search such as .*, a metric such as F1\(\) or its"
            ):
                resolve_search(wrong, 2)


class TestMeasures:
    @pytest.mark.parametrize("kind", MEASURING)
    @pytest.mark.parametrize(
        ("word", "measure"),
        [
            ("margin", Margin()),
            ("Probability", Probability()),
            ("probability_margin", ProbabilityMargin()),
            ("neighbour_ratio", NeighbourRatio()),
            ("NeighbourShare", NeighbourShare()),
            ("centroid_distance", CentroidDistance()),
        ],
    )
    def test_a_name_is_the_measure(self, kind, word, measure):
        assert same(MEASURING[kind](measure=word).fit(X, Y), MEASURING[kind](measure=measure).fit(X, Y))

    @pytest.mark.slow
    def test_a_name_is_seeded_with_the_evaluator(self):
        by_word = WRAPPERS["ICE"](measure="drift").fit(X, Y)
        by_measure = WRAPPERS["ICE"](measure=drift_measure(random_state=0)).fit(X, Y)
        assert thresholds(by_word) == thresholds(by_measure)
        assert same(by_word, by_measure)

    def test_every_measure_has_a_name(self):
        for name in (*measures.__all__, "CombinedMeasure"):
            if name[0].isupper() and name != "Measure":
                assert find_measure(name) is getattr(measures, name)
        made = {word: type(from_name(word)) for word in ("density", "tree_disagreement", "hidden_layer_svm")}
        assert list(made.values()) == [Density, TreeDisagreement, HiddenLayerSVM]
        assert from_name("hidden_layer_svm", 3).random_state == 3

    def test_members_of_others(self):
        names = CombinedMeasure(["auto", "neighbour_ratio"])
        measures = CombinedMeasure(["auto", NeighbourRatio()])
        assert same(WRAPPERS["ICE"](measure=names).fit(X, Y), WRAPPERS["ICE"](measure=measures).fit(X, Y))
        one, other = OneVsRestMeasure("margin"), OneVsRestMeasure(Margin())
        assert same(WRAPPERS["ICE"](measure=one).fit(X, Y), WRAPPERS["ICE"](measure=other).fit(X, Y))

    def test_a_frozen_detector_keeps_all_rows_for_calibration(self):
        frozen = FrozenEstimator(DETECTOR.fit(X, Y))
        for measure in ("margin", CombinedMeasure(["margin", "probability"])):
            ice = InductiveEvaluator(frozen, measure=measure).fit(X, Y)
            assert len(ice.calibration_.scores) == len(X)

    def test_unknown_words(self):
        for word, close in (("margn", "margin"), ("Margn", "Margin"), ("drift_", "drift"), ("atuo", "auto")):
            with pytest.raises(MeasureError, match=f"there is no measure '{word}'; did you mean '{close}'"):
                InductiveEvaluator(DETECTOR, measure=word).fit(X, Y)
        with pytest.raises(ValueError, match=r"'second_opinion' cannot be given by its name.*estimator"):
            InductiveEvaluator(DETECTOR, measure="second_opinion").fit(X, Y)


@pytest.mark.slow
def test_parameters_stay_words(tmp_path):
    search = ExactSearch("f1", constraints=["recall >= 0.5"])
    ice = WRAPPERS["ICE"](measure="neighbour_ratio", search="f1")
    cce = WRAPPERS["CCE"](measure="margin", search=search)
    for rejector in (ice, cce):
        assert clone(rejector).get_params()["measure"] == rejector.measure
        fitted = clone(rejector).fit(X, Y)
        assert fitted.measure == rejector.measure
        save(fitted, tmp_path / "x.transcendent")
        loaded = load(tmp_path / "x.transcendent")
        assert loaded.measure == rejector.measure
        assert repr(loaded.search) == repr(rejector.search)
        assert same(loaded, fitted)
        refitted = clone(loaded).fit(X, Y)
        assert same(refitted, fitted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEARCHING)
@pytest.mark.parametrize("metric", [F1(pos_label=0), *OWN])
def test_a_metric_is_saved_and_read(tmp_path, kind, metric):
    fitted = SEARCHING[kind](search=metric).fit(X, Y)
    save(fitted, tmp_path / "x.transcendent")
    trusted = []
    if metric in OWN:
        with pytest.raises(ArtifactError, match=r"not trusted: .*If you trust them.* load it with") as caught:
            load(tmp_path / "x.transcendent")
        trusted = [f"{type(metric).__module__}.{type(metric).__name__}"]
        assert re.search(re.escape(f"trusted={trusted!r}"), str(caught.value))
    loaded = load(tmp_path / "x.transcendent", trusted=trusted)
    assert loaded.search == metric
    assert same(loaded, fitted)
    assert thresholds(clone(loaded).fit(X, Y)) == thresholds(fitted)


def test_a_metric_of_a_notebook_cannot_be_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(F2, "__module__", "__main__")
    fitted = WRAPPERS["ICE"](search=F2()).fit(X, Y)
    with pytest.raises(ArtifactError, match=r"F2 is defined in a notebook or script.*Move it to a module"):
        save(fitted, tmp_path / "x.transcendent")


def test_a_toml_file_and_python_give_the_same(tmp_path):
    (tmp_path / "x.toml").write_text("""
[detector]
class = "sklearn.linear_model.LogisticRegression"
[rejectors.ICE]
measure = "neighbour_ratio"
search = "recall"
random_state = 0
[rejectors.other]
type = "ICE"
measure = "Margin"
search = { objective = "precision", max_rejection = 0.2, constraints = ["recall >= 50%"] }
random_state = 0
""")
    made = build_rejectors(TomlTable.read(tmp_path / "x.toml"))
    search = ExactSearch("precision", max_rejection=0.2, constraints="recall >= 50%")
    python = {
        "ICE": WRAPPERS["ICE"](measure="neighbour_ratio", search="recall"),
        "other": WRAPPERS["ICE"](measure="margin", search=search),
    }
    for name, rejector in python.items():
        assert same(made[name].fit(X, Y), rejector.fit(X, Y))
        assert thresholds(made[name]) == thresholds(rejector)


def test_numbers_in_constraints():
    assert parse_constraint("error <= 1e-1") == (ErrorRate() <= 0.1)
    with pytest.raises(ValueError, match="did you mean 'f1'"):
        parse_constraint("F1 >= 0.5")


def test_one_versus_rest_chooses_its_measure():
    fitted = OneVsRestMeasure("auto").fit(DETECTOR.fit(X, Y), X, Y)
    assert isinstance(fitted.measures_[0], Margin)
