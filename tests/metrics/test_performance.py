import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from transcendent import Decisions
from transcendent.metrics import F1, ErrorRate, Precision, Recall, performance, rejection_metrics
from transcendent.metrics.performance import SUBSETS, confusions, resample, subset_metrics
from transcendent.metrics.ratios import Tally


def decisions(labels, accepted, classes):
    n, k = len(labels), len(classes)
    zeros = np.zeros(n)
    return Decisions(
        labels=np.asarray(labels),
        accepted=np.asarray(accepted, dtype=bool),
        credibility=zeros,
        confidence=zeros,
        p_values=np.zeros((n, k)),
        classes=np.asarray(classes),
    )


def test_a_case_computed_by_hand():
    y = ["good", "good", "good", "bad", "bad", "bad"]
    labels = ["good", "bad", "good", "bad", "good", "bad"]
    accepted = [True, False, True, True, False, True]
    found = rejection_metrics(y, decisions(labels, accepted, ["bad", "good"]), pos_label="bad")
    assert found["baseline"] == {
        "objects": 6,
        "errors": 2,
        "error": 2 / 6,
        "f1": 4 / 6,
        "precision": 2 / 3,
        "recall": 2 / 3,
        "fpr": 1 / 3,
        "fnr": 1 / 3,
        "share": 1,
        "share_of_errors": 1,
    }
    assert found["kept"]["f1"] == 1
    assert found["kept"]["error"] == 0
    assert found["rejected"]["share"] == 2 / 6
    assert found["rejected"]["share_of_errors"] == 1
    assert found["rejected"]["f1"] == 0
    assert found["rejected"]["fpr"] == 1


labelled = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), min_size=1, max_size=40)


@pytest.mark.slow
@given(labelled, st.sampled_from([None, 0, 3]))
def test_agrees_with_scikit_learn(objects, pos_label):
    y, labels, accepted = (np.array(column) for column in zip(*objects, strict=True))
    found = rejection_metrics(y, decisions(labels, accepted, np.arange(4)), pos_label=pos_label)
    for subset, rows in zip(SUBSETS, (accepted | True, accepted, ~accepted), strict=True):
        assert found[subset]["objects"] == rows.sum()
        if not rows.any():
            assert np.isnan(
                [found[subset][m] for m in ("f1", "precision", "recall", "error", "fpr", "fnr")]
            ).all()
            continue
        asked = {"labels": np.arange(4) if pos_label is None else [pos_label], "average": "macro"}
        for name, score in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
            expected = score(y[rows], labels[rows], zero_division=np.nan, **asked)
            np.testing.assert_allclose(found[subset][name], expected)
        assert found[subset]["error"] == pytest.approx(np.mean(y[rows] != labels[rows]))


def test_rates_of_the_positive_class_against_scikit_learns_confusion_matrix():
    rng = np.random.default_rng(0)
    y, labels = rng.integers(2, size=(2, 200))
    (tn, fp), (fn, tp) = confusion_matrix(y, labels)
    found = performance(confusion_matrix(y, labels), positive=1)
    assert found["fpr"] == pytest.approx(fp / (fp + tn))
    assert found["fnr"] == pytest.approx(fn / (fn + tp))


def test_agrees_with_the_metrics_that_searches_optimise():
    counts = np.array([[50, 7], [9, 21]])
    tally = Tally(np.diagonal(counts), counts.sum(axis=1), counts.sum(axis=0))
    found = performance(counts, positive=1)
    for name, metric in (
        ("f1", F1()),
        ("precision", Precision()),
        ("recall", Recall()),
        ("error", ErrorRate()),
    ):
        assert found[name] == pytest.approx(float(metric.value(tally, tally, np.array([0, 1]))))


def test_a_class_the_detector_never_saw_counts_as_wrong():
    found = rejection_metrics([0, 1, 2], decisions([0, 1, 1], [True] * 3, [0, 1]))
    assert found["kept"]["errors"] == 1
    assert found["kept"]["recall"] == 1
    assert found["kept"]["precision"] == 0.5


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="2 labels for 1 decisions"):
        rejection_metrics([0, 1], decisions([0], [True], [0, 1]))
    with pytest.raises(ValueError, match="pos_label 7 is not one of"):
        rejection_metrics([0, 1], decisions([0, 1], [True, True], [0, 1]), pos_label=7)


def test_resampled_counts_are_those_of_redrawn_objects():
    """Means and variances of redrawn cells are those of the multinomial, and no object is lost."""
    counts = np.array([[[[30, 2], [3, 15]], [[5, 4], [0, 1]]], np.zeros((2, 2, 2), dtype=int)])
    drawn = np.concatenate(list(resample(counts, 20_000, np.random.default_rng(0))))
    assert (drawn.sum(axis=(2, 3, 4)) == [60, 0]).all()
    assert (drawn[:, 0, 1, 1, 0] == 0).all()
    share = counts[0] / 60
    assert np.abs(drawn[:, 0].mean(axis=0) - counts[0]).max() < 5 * np.sqrt(15 / 20_000)
    np.testing.assert_allclose(drawn[:, 0].var(axis=0), 60 * share * (1 - share), rtol=0.1, atol=1e-12)


def test_subsets_add_up():
    rng = np.random.default_rng(1)
    counts = confusions(*rng.integers(3, size=(2, 90)), rng.random(90) < 0.5, 3)
    found = subset_metrics(counts, None)
    assert found["objects"][0] == found["objects"][1:].sum() == 90
    assert found["share_of_errors"][1:].sum() == pytest.approx(1)
