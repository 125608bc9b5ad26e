"""Explanations of every rejector: true to its decisions, and changing nothing."""

import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from tests.contracts.test_rejectors import REJECTORS, SLOW, Own
from transcendent import (
    Answers,
    CombinedMeasure,
    CrossConformalEvaluator,
    InductiveEvaluator,
    RandomSearch,
    RejectionBudget,
    ScoreEvaluator,
    StreamingBudget,
)
from transcendent.explaining import Explanation, KnownObjects, explain
from transcendent.explaining.explanation import Requirement
from transcendent.explaining.wording import in_words, sentence
from transcendent.measures import NeighbourDistance, SecondOpinion

X, y = make_classification(500, n_informative=6, flip_y=0.1, random_state=0)
Y = np.array(["good", "malicious"])[y]
NEW = X[400:]
KNOWN = KnownObjects(X[:400], Y[:400])
fits = {}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in REJECTORS]
)
def fitted(request):
    if request.param not in fits:
        rejector = clone(REJECTORS[request.param])
        if hasattr(rejector, "count"):
            rejector.count = rejector.count and 20
        fits[request.param] = rejector.fit(X[:400], Y[:400])
    return fits[request.param]


def both(decisions):
    return int(np.flatnonzero(decisions.accepted)[0]), int(np.flatnonzero(decisions.rejected)[0])


def test_it_tells_what_was_decided_and_changes_nothing(fitted):
    before = pickle.dumps(fitted)
    decisions = pickle.loads(before).decide(NEW)
    for i in both(decisions):
        why = explain(fitted, NEW, i, KNOWN)
        assert why.label == decisions.labels[i]
        assert why.accepted == decisions.accepted[i]
        assert why.credibility == pytest.approx(decisions.credibility[i])
        assert why.confidence == pytest.approx(decisions.confidence[i])
        if decisions.p_values is not None:
            assert list(why.p_values) == ["good", "malicious"]
            assert list(why.p_values.values()) == pytest.approx(decisions.p_values[i])
        if decisions.doubt is not None:
            assert why.doubt == decisions.doubt[i]
        assert why.sentence.startswith("Accepted: " if why.accepted else "Doubted: ")
        assert len(why.nearest) == 5
        assert [each.distance for each in why.nearest] == sorted(each.distance for each in why.nearest)
        for needed in why.requirements:
            if why.accepted:
                assert needed.has >= needed.needs
        if not why.accepted and why.requirements:
            assert any(needed.has < needed.needs or fitted.budget is not None for needed in why.requirements)
        if why.score is not None:
            amounts = [each.amount for each in [*why.score.speak_for, *why.score.speak_against]]
            total = why.score.base + sum(amounts) + why.score.others + why.score.rest
            assert total == pytest.approx(why.score.score, rel=1e-9, abs=1e-9)
    after = pickle.loads(pickle.dumps(fitted)).decide(NEW)
    for name, column in decisions.columns().items():
        np.testing.assert_array_equal(getattr(after, name), column)


def test_it_is_plain_data(fitted):
    why = explain(fitted, NEW, 0, KNOWN)
    assert json.loads(json.dumps(why.to_dict(), allow_nan=False))["sentence"] == why.sentence
    assert " ".join(str(why).split()).startswith(why.sentence)
    assert "<table" in why._repr_html_()
    assert pickle.loads(pickle.dumps(why)) == why


def test_without_known_objects_it_compares_with_none(fitted):
    why = explain(fitted, NEW, 1)
    assert why.nearest == why.strange == []
    assert why.metric is None
    assert "closest" not in why.sentence


DETECTORS = {
    "exact": [LinearSVC(), make_pipeline(StandardScaler(), LogisticRegression()), BernoulliNB()],
    "occlusion": [RandomForestClassifier(10, random_state=0), HistGradientBoostingClassifier(max_iter=10)],
}


@pytest.mark.parametrize("method", DETECTORS)
def test_the_method_is_always_said(method):
    for detector in DETECTORS[method]:
        ice = InductiveEvaluator(detector, random_state=0).fit(X[:400], Y[:400])
        why = explain(ice, NEW, 3, KNOWN)
        assert why.score.method == method
        assert method in str(why)
        if method == "occlusion":
            assert explain(ice, NEW[3:4], 0).score is None  # there is nothing to replace values by
            assert explain(ice, NEW, 3).score.method == method
    frozen = InductiveEvaluator(FrozenEstimator(LinearSVC().fit(X[:200], Y[:200])), random_state=0)
    assert explain(frozen.fit(X[200:400], Y[200:400]), NEW, 3).score.method == "exact"


def test_members_of_a_combined_measure():
    parts = ["auto", SecondOpinion(BernoulliNB()), SecondOpinion(BernoulliNB()), NeighbourDistance(1)]
    for bag in ("class", "all"):
        measure = CombinedMeasure(parts, bag=bag)
        for evaluator in (
            InductiveEvaluator(LinearSVC(), measure=measure, random_state=0),
            CrossConformalEvaluator(LinearSVC(), measure=measure, cv=3, random_state=0, verbose=False),
        ):
            evaluator.fit(X[:400], Y[:400])
            why = explain(evaluator, NEW, 2)
            assert list(why.members) == [
                "Margin",
                "second opinion of BernoulliNB 1",
                "second opinion of BernoulliNB 2",
                "NeighbourDistance",
            ]
            pairs = zip(evaluator.judges_, evaluator.answers(NEW[2:3]), strict=True)
            p = np.mean([judge.calibration_.member_p_values(own.scores)[0] for judge, own in pairs], axis=0)
            assert list(why.members["NeighbourDistance"].values()) == pytest.approx(p[:, 3])
            assert why.pooled == (bag == "all")
            assert ("of that class" in why.sentence) == (bag == "class" and why.votes is None)


def test_what_it_would_take_by_confidence():
    search = RandomSearch("accuracy", max_rejection=0.3, on="both", random_state=0)
    ice = InductiveEvaluator(LinearSVC(), search=search, random_state=0).fit(X[:400], Y[:400])
    decisions = ice.decide(NEW)
    for i in np.flatnonzero(decisions.rejected)[:10]:
        why = explain(ice, NEW, int(i))
        code = int(decisions.labels[i] == "malicious")
        for needed in why.requirements:
            assert needed.needs == getattr(ice.result_, f"{needed.what}_thresholds")[code]
            assert needed.has == getattr(decisions, needed.what)[i]


def test_the_budget_of_a_period_is_the_least_trusted_that_was_accepted():
    held = RejectionBudget(InductiveEvaluator(LinearSVC(), random_state=0), count=20).fit(X[:400], Y[:400])
    decisions = held.decide(NEW)
    i = both(decisions)[1]
    (needed,) = explain(held, NEW, i).requirements
    assert needed.needs == decisions.credibility[decisions.accepted].min()
    assert "least trusted" in explain(held, NEW, i).sentence


def test_a_budget_that_accepts_some_of_equal_objects_says_so():
    held = RejectionBudget(InductiveEvaluator(LinearSVC(), random_state=0), count=2).fit(X[:400], Y[:400])
    copies = np.repeat(NEW[:1], 5, axis=0)
    why = explain(held, copies, int(np.flatnonzero(held.decide(copies).rejected)[0]))
    assert "it has as much, but the budget does not accept all that have" in str(why)
    assert "needed)" not in why.sentence


def test_decisions_that_were_made_before_are_explained_as_they_were():
    stream = StreamingBudget(InductiveEvaluator(LinearSVC(), random_state=0), rate=0.2, window=50)
    stream.fit(X[:400], Y[:400])
    decisions = stream.decide(NEW)
    state = stream.decided_, stream.rejected_
    for i in both(decisions):
        assert explain(stream, NEW, i, decisions=decisions).accepted == decisions.accepted[i]
    assert (stream.decided_, stream.rejected_) == state


def test_scores_without_a_detector():
    suspicion = X[:, 0] + 0.3 * RNG.normal(size=len(X)) + y
    labels, scores = (suspicion > 0.5).astype(int), np.column_stack([suspicion, -suspicion])
    judge = ScoreEvaluator().fit(Answers(labels[:400], scores[:400]), y[:400])
    why = explain(judge, Answers(labels[400:], scores[400:]), 0)
    assert why.score is None
    assert set(why.p_values) == {0, 1}
    stacked = ScoreEvaluator().fit(Answers(labels, np.stack([scores, scores**3], axis=2)), y)
    assert list(explain(stacked, Answers([1], [[[0.0, 0.0], [0.1, 0.1]]]), 0).members) == [
        "score 1",
        "score 2",
    ]


def test_a_rejector_of_ones_own():
    why = explain(Own(), NEW, 0, KnownObjects(X[:400], y[:400]))
    assert why.accepted
    assert why.score is None
    assert "credibility of 1" in why.sentence


RNG = np.random.default_rng(0)


def messy(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(3, 1, n)),
            "vendor": rng.choice(["acme", "umbrella", "initech", None], n, p=[0.5, 0.3, 0.1, 0.1]),
            "signed": rng.random(n) < 0.7,
            "country": rng.choice(["DE", "US", "=cmd()", "<b>x</b>"], n),
        }
    )
    signal = (frame["vendor"] == "umbrella") * 2.0 - frame["signed"] + rng.normal(0, 0.5, n)
    return frame, np.where(signal > 0.3, "bad", "fine")


def messy_detector(last):
    text = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder(handle_unknown="ignore")
    )
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_pipeline(
        make_column_transformer((text, ["vendor", "country"]), (numbers, ["size"]), remainder="passthrough"),
        last,
    )


@pytest.mark.parametrize("last", [LogisticRegression(), RandomForestClassifier(20, random_state=0)])
def test_messy_frames_keep_the_names_that_people_know(last):
    frame, labels = messy(600, 0)
    ice = InductiveEvaluator(messy_detector(last), random_state=0).fit(frame[:400], labels[:400])
    new = frame[400:].reset_index(drop=True)
    known = KnownObjects(frame[:400], labels[:400], ids=np.arange(400))
    decisions = ice.decide(new)
    for i in range(30):
        why = explain(ice, new, i, known)
        assert why.accepted == decisions.accepted[i]
        named = [each.name for each in [*why.score.speak_for, *why.score.speak_against, *why.strange]]
        assert set(named) <= set(frame.columns)
        assert {each.name: each.value for each in why.strange}.get("vendor", 0) in (0, None, *new["vendor"])
    assert "<b>" not in why._repr_html_().replace("<strong>", "")
    new.loc[0, ["vendor", "size"]] = ["never seen", 1e6]
    why = explain(ice, new, 0, known)
    assert {"vendor = never seen", "size = 1000000.0"} <= set(why.only_here)
    assert {"vendor", "size"} <= {each.name for each in why.strange}
    assert next(each for each in why.strange if each.name == "vendor").n_alike == 0


def test_a_planted_value_comes_first():
    """Among twelve binary features, one that the neighbours never have and that moves the score."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 400)
    rows = (rng.random((800, 12)) < np.where(labels == 1, 0.9, 0.1)[:, None]).astype(float)
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(rows, labels)
    planted = np.zeros((1, 12))
    planted[0, 7] = 1
    why = explain(ice, planted, 0, KnownObjects(rows[rows[:, 7] == 0], labels[rows[:, 7] == 0]))
    assert why.label == 0
    assert why.strange[0].name == "column 7"
    assert (why.strange[0].value, why.strange[0].usual, why.strange[0].n_alike) == (1.0, 0.0, 0)
    without = ice.answer(np.zeros((1, 12))).scores[0, 0]
    assert why.strange[0].effect == pytest.approx(ice.answer(planted).scores[0, 0] - without)
    assert why.only_here == ["column 7"]


def test_all_forms_of_rows_are_explained_alike():
    rows = (RNG.random((300, 8)) < 0.4).astype(float)
    labels = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(sp.csr_matrix(rows), labels)
    told = [
        explain(ice, form(rows[:9]), 4, KnownObjects(form(rows), labels))
        for form in (sp.csr_matrix, sp.csc_array, sp.coo_array, np.asarray, np.ndarray.tolist)
    ]
    told.append(explain(ice, rows[:9], 4, KnownObjects(sp.csr_array(rows), labels)))
    told.append(explain(ice, sp.csr_array(rows[:9]), 4, KnownObjects(rows, labels)))
    for each in told[1:]:
        assert each == told[0]
    names = [f"column {j}" for j in range(8)]
    framed = KnownObjects(pd.DataFrame(rows), labels)
    assert explain(ice, pd.DataFrame(rows[:9]), 4, framed, names=names) == told[0]
    with pytest.raises(ValueError, match="X is a DataFrame, the known objects are a ndarray"):
        explain(ice, pd.DataFrame(rows[:9]), 4, KnownObjects(rows, labels))


def test_words_of_texts():
    texts = np.array(
        [f"{'cheap pills now' if k % 2 else 'the meeting is at'} {k % 7} oclock" for k in range(200)]
    )
    spam = np.where(np.arange(200) % 2, "spam", "ham")
    spam[::17] = "ham"
    ice = InductiveEvaluator(make_pipeline(TfidfVectorizer(), LinearSVC()), random_state=0).fit(texts, spam)
    why = explain(ice, texts[:3], 1, KnownObjects(texts[:100], spam[:100]))
    assert {each.name for each in why.score.speak_for} & {"cheap", "pills", "now"}
    assert why.metric == "cosine"
    assert why.nearest[0].distance == pytest.approx(0, abs=1e-6)


def test_names_can_be_given():
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:400], Y[:400])
    names = [f"f{j}" for j in range(X.shape[1])]
    assert explain(ice, NEW, 0, names=names).score.speak_for[0].name in names
    assert explain(ice, NEW, 0).score.speak_for[0].name.startswith("column ")
    framed = InductiveEvaluator(LinearSVC(), random_state=0).fit(
        pd.DataFrame(X[:400], columns=names), Y[:400]
    )
    assert explain(framed, pd.DataFrame(NEW, columns=names), 0).score.speak_for[0].name in names


ICE = InductiveEvaluator(LinearSVC(), random_state=0).fit(X[:400], Y[:400])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"i": 100}, "i=100 must be the position of a row, 0 to 99"),
        ({"i": -1}, "i=-1 must be"),
        ({"i": True}, "i=True must be"),
        ({"i": 0, "n": 0}, "n=0 must be"),
        ({"i": 0, "names": ["a"]}, "1 names for 20 columns"),
        ({"i": 0, "known": KnownObjects(X[:9, :5], Y[:9])}, r"other columns \(5\) than X \(20\)"),
        ({"i": 0, "decisions": ICE.decide(NEW[:5])}, "5 decisions about 100 rows"),
    ],
)
def test_bad_input_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        explain(ICE, NEW, **given)


def test_known_objects_that_cannot_be_decided_are_named():
    gaps = np.where(RNG.random((400, 20)) < 0.2, np.nan, X[:400])
    with pytest.raises(ValueError, match=r"known objects cannot be decided: Input X contains NaN"):
        explain(ICE, NEW, 0, KnownObjects(gaps, Y[:400]))


def test_what_cannot_decide_is_refused():
    with pytest.raises(TypeError, match="not a rejector"):
        explain(LinearSVC(), NEW, 0)


def test_a_row_with_a_gap_is_refused_as_in_deciding():
    rows = NEW.copy()
    rows[0, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        explain(ICE, rows, 0, KNOWN)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "no calibration object looks"),
        (1.0, "all calibration objects look"),
        (0.003, "3 in 1,000 calibration objects look"),
        (0.001, "1 in 1,000 calibration objects looks"),
        (0.0149, "1 in 100 calibration objects looks"),
        (0.41, "41 in 100 calibration objects look"),
        (0.99999, "almost all calibration objects look"),
        (0.00001, "less than 1 in 10,000 calibration objects looks"),
    ],
)
def test_shares_in_words(share, said):
    assert in_words(share, "calibration objects") == said


@pytest.mark.parametrize(
    ("has", "needs", "said"),
    [
        (0.03, 0.15, "only 3 in 100 calibration objects of that class look at least as strange (15 in 100 "),
        (
            0.121,
            0.123,
            "only 121 in 1,000 calibration objects of that class look at least as strange (123 in",
        ),
        (0.0, 0.004, "no calibration object of that class looks at least as strange (4 in 1,000 needed)"),
        (
            0.002,
            0.1,
            "only 2 in 1,000 calibration objects of that class look at least as strange (100 in 1,000",
        ),
    ],
)
def test_the_sentence_says_what_is_needed(has, needs, said):
    found = {
        "label": "malware",
        "accepted": False,
        "credibility": has,
        "pooled": False,
        "votes": None,
        "doubt": None,
        "p_values": {"malware": has, "goodware": 0.0},
        "requirements": [Requirement("credibility", has, needs)],
        "nearest": [],
    }
    assert f"called malware, but {said}" in sentence(found, within_budget=False)
    alone = found | {"requirements": [Requirement("credibility", needs, needs)]}
    assert "needed" not in sentence(alone, within_budget=False)


def test_the_sentence_says_what_the_object_is_like():
    labels = np.array(["goodware"] * 4 + ["malware"])
    rows = np.array([[1.0, 1, 0, 0, 0]] * 3 + [[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]])
    found = {"accepted": True, "label": 1, "votes": None, "p_values": {}, "credibility": 1.0, "doubt": None}

    def said(known, row, **given):
        near = [known.neighbour(j, d) for j, d in enumerate(known.distances(row))]
        everything = {**found, "requirements": [], "nearest": near, "metric": known.metric, **given}
        return sentence(everything, within_budget=False)

    known = KnownObjects(rows, labels, times=np.full(5, "2013-04"))
    same = "it has the same features as goodware of 2013-04 (4 of the 5 nearest are goodware)."
    assert said(known, rows[:1]).endswith(same)
    doubted = {"accepted": False, "doubt": "like nothing known"}
    unlike = "; it is unlike the calibration objects"  # but some are known that were labelled since
    equal = f"{unlike}, but has the same features as goodware of 2013-04 (4 of the 5 nearest are goodware)."
    assert said(known, rows[:1], **doubted).endswith(equal)
    assert f"{unlike}; closest to " in said(known, np.array([[1.0, 0, 0, 0, 0]]), **doubted)
    multiples = KnownObjects(sp.csr_matrix(rows[:4] * 3), labels[:4])
    assert said(multiples, sp.csr_matrix(rows[:1])).endswith("; closest to goodware (distance 0.000).")
    own = KnownObjects(rows[[4, 0, 1]], ["malware", "goodware", "goodware"])
    assert said(own, np.array([[1.0, 1, 0, 1, 1]])).endswith("(1 of the 3 nearest is malware).")


def test_equally_near_objects_with_different_labels_are_named_as_such():
    rows = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]])
    found = {"accepted": True, "label": 1, "votes": None, "p_values": {}, "credibility": 1.0, "doubt": None}

    def said(labels, distances):
        near = [KnownObjects(rows, labels).neighbour(j, d) for j, d in enumerate(distances)]
        everything = {**found, "requirements": [], "nearest": near, "metric": "Jaccard"}
        return sentence(everything, within_budget=False).rpartition("; it")[2].rpartition("strange; ")[2]

    divided = "the 4 nearest are divided: 2 good, 2 bad"
    assert divided in said(["good", "bad", "good", "bad"], [0.1, 0.2, 0.3, 0.4])
    both = said(["good", "bad", "good", "good"], [0.125, 0.125, 0.3, 0.4])
    assert "equally close to good and bad (distance 0.125; 3 of the 4 nearest are good)" in both
    assert " has the same features as good and bad (" in said(["good", "bad"] * 2, [0, 0, 0, 0.5])
    assert "closest to good (distance 0.050)." in said(["good"] * 4, [0.05, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("n", "one_class", "usual", "compared"),
    [(49, False, False, True), (50, False, True, True), (60, True, False, True), (8, False, False, False)],
)
def test_few_known_objects_do_not_tell_what_is_usual(n, one_class, usual, compared):
    rows = (np.random.default_rng(0).random((400, 8)) < 0.4).astype(float)
    labels = (rows[:, 0] + rows[:, 1] > 0).astype(int)
    ice = InductiveEvaluator(LinearSVC(), random_state=0).fit(rows, labels)
    known = rows[:n], np.ones(n, int) if one_class else np.arange(n) % 2
    why = explain(ice, [[1.0, 1, 0, 0, 0, 0, 0, 1]], 0, KnownObjects(*known))
    assert why.score.base_of == ("usual values" if usual else "no values")
    assert (why.n_compared >= 5) == compared
    assert bool(why.strange) <= compared


def test_control_characters_and_tags_in_names_are_harmless():
    names = [f"\x1b[31m<script>{j}" for j in range(X.shape[1])]
    why = explain(ICE, NEW, 0, KNOWN, names=names)
    assert "\x1b" not in str(why)
    assert not re.search(r"<script", why._repr_html_())
    assert isinstance(why, Explanation)
