import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from transcendent.metrics import (
    F1,
    Accuracy,
    ClassRejectionRate,
    ErrorRate,
    MacroF1,
    Precision,
    Recall,
    RejectionRate,
)
from transcendent.metrics.ratios import position_of, resolve_metric
from transcendent.temporal.bias import positive_label
from transcendent.thresholds.counts import count


def subsets(seed, n_classes=3, n=300):
    rng = np.random.default_rng(seed)
    y, labels = rng.integers(0, n_classes, (2, n))
    values = rng.random((n, 1))
    counts = count(labels, y, values, n_classes)
    thresholds = rng.random((1, 1, n_classes)) * 0.8
    kept = values[:, 0] >= thresholds[0, 0, labels]
    tally = counts.kept(thresholds)
    return y, labels, kept, tally, counts.total - tally


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("of", ["kept", "rejected"])
def test_metrics_agree_with_scikit_learn(seed, of):
    y, labels, kept, tally_kept, tally_rejected = subsets(seed)
    rows = kept if of == "kept" else ~kept
    classes = np.arange(3)

    def value(metric):
        return metric.value(tally_kept, tally_rejected, classes)[0]

    for p in range(3):
        assert value(F1(p, of)) == pytest.approx(f1_score(y[rows] == p, labels[rows] == p))
        assert value(Precision(p, of)) == pytest.approx(precision_score(y[rows] == p, labels[rows] == p))
        assert value(Recall(p, of)) == pytest.approx(recall_score(y[rows] == p, labels[rows] == p))
        assert value(ClassRejectionRate(p)) == pytest.approx(np.mean(~kept[y == p]))
    assert value(Accuracy(of)) == pytest.approx(accuracy_score(y[rows], labels[rows]))
    assert value(ErrorRate(of)) == pytest.approx(1 - accuracy_score(y[rows], labels[rows]))
    assert value(MacroF1(of)) == pytest.approx(f1_score(y[rows], labels[rows], average="macro"))
    assert value(RejectionRate()) == pytest.approx(np.mean(~kept))


def test_undefined_is_nan_and_satisfies_nothing():
    counts = count(np.array([0, 1]), np.array([0, 1]), np.array([[0.5], [0.5]]), 2)
    kept = counts.kept(np.zeros((1, 1, 2)))
    rejected = counts.total - kept
    classes = np.arange(2)
    for metric in (F1(of="rejected"), ErrorRate(of="rejected"), MacroF1(of="rejected")):
        assert np.isnan(metric.value(kept, rejected, classes)[0])
        assert not (metric >= 0).satisfied(kept, rejected, classes)[0]
        assert not (metric <= 1).satisfied(kept, rejected, classes)[0]


def test_metrics_print_as_written():
    assert str(F1()) == "F1()"
    assert str(F1(of="rejected") <= 0.1) == "F1(of='rejected') <= 0.1"
    assert str(ClassRejectionRate("worm") <= 0.2) == "ClassRejectionRate(label='worm') <= 0.2"


def test_mistakes_are_explained():
    _, _, _, kept, rejected = subsets(0)
    with pytest.raises(ValueError, match="needs a pos_label"):
        F1().value(kept, rejected, np.arange(3))
    with pytest.raises(ValueError, match="pos_label 7 is not one of"):
        F1(7).value(kept, rejected, np.arange(3))
    with pytest.raises(ValueError, match="label 7 is not one of"):
        ClassRejectionRate(7).value(kept, rejected, np.arange(3))
    with pytest.raises(ValueError, match="of must be one of"):
        F1(1, of="all")
    for bound in (np.nan, np.inf, 95, -0.1):
        with pytest.raises(ValueError, match=r"F1\(\) lies between 0 and 1"):
            F1() >= bound  # noqa: B015
    with pytest.raises(TypeError, match="pass two constraints"):
        0.1 <= RejectionRate() <= 0.2  # noqa: B015
    assert (F1() >= np.float32(0.5)).bound == 0.5
    with pytest.raises(ValueError, match="there is no metric 'auc'"):
        resolve_metric("auc")
    with pytest.raises(ValueError, match="there is no metric 'recal'; did you mean 'recall'"):
        resolve_metric("recal")


@pytest.mark.parametrize(
    ("classes", "second"),
    [
        (["Malware", "benign"], "Malware"),
        (["BENIGN", "malware"], "malware"),
        (["BAD", "bad"], "bad"),
        ([0, 1], 1),
        ([False, True], True),
    ],
)
def test_capital_letters_do_not_decide_which_class_is_positive(classes, second):
    codes = np.array(classes)
    assert codes[position_of(None, codes)] == second
    assert positive_label(codes[[0, 1, 1]], None) == second
