"""Calibration in a folder is calibration in memory, bit by bit."""

import os
import tracemalloc

import numpy as np
import pytest
from joblib import parallel_config

from transcendent import (
    F1,
    Error,
    ExactSearch,
    GridSearch,
    QuartileSearch,
    RandomSearch,
    RejectionRate,
    ScoreEvaluator,
)
from transcendent import arrays as arrays_module
from transcendent import pvalues as pvalues_module
from transcendent.artifacts import load, save
from transcendent.errors import CalibrationError, CalibrationWarning, InfeasibleError
from transcendent.evaluators import in_folder as in_folder_module
from transcendent.thresholds import counts as counts_module

FILES = ["actual.npy", "bag-0.npy", "bag-1.npy", "confidence.npy", "credibility.npy", "predicted.npy"]


def use_chunks_of(size, monkeypatch):
    for module in (arrays_module, counts_module):
        monkeypatch.setattr(module, "_CHUNK", size)
    monkeypatch.setattr(in_folder_module, "_ROWS", size + 1)
    monkeypatch.setattr(pvalues_module, "_ROWS", size + 2)


@pytest.fixture
def small_chunks(monkeypatch):
    use_chunks_of(97, monkeypatch)


def draw(n, n_classes=2, decimals=2, seed=0):
    """Scores with ties, true labels and answers that are mostly right."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    scores = (rng.normal(size=(n, n_classes)) - 1.5 * np.eye(n_classes)[y]).round(decimals)
    return scores, y, scores.argmin(axis=1)


def mapped(folder, *arrays):
    out = []
    for i, array in enumerate(arrays):
        np.save(folder / f"{i}.npy", array)
        out.append(np.load(folder / f"{i}.npy", mmap_mode="r"))
    return out


def assert_same(ours, plain, scores, labels):
    assert ours.classes_.tolist() == plain.classes_.tolist()
    for a, b in zip(ours.calibration_.table.bags, plain.calibration_.table.bags, strict=True):
        assert isinstance(a, np.memmap)
        assert a.tolist() == b.tolist()
    pairs = zip(*(v.calibration_.credibility_and_confidence() for v in (ours, plain)), strict=True)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    for name in ("credibility_thresholds", "confidence_thresholds", "value", "bound", "rejection_rate"):
        np.testing.assert_array_equal(getattr(ours.result_, name), getattr(plain.result_, name), name)
    a, b = (v.decide(scores, labels) for v in (ours, plain))
    assert np.array_equal(a.p_values, b.p_values)
    assert a.accepted.tolist() == b.accepted.tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("p_value", ["paper", "plus_one", "smoothed"])
@pytest.mark.parametrize("calibration_label", ["predicted", "true"])
def test_the_numbers_are_the_same(tmp_path, small_chunks, n_classes, p_value, calibration_label):
    scores, y, labels = draw(1000, n_classes)
    vendor = ScoreEvaluator(p_value=p_value, calibration_label=calibration_label, random_state=3)
    plain = ScoreEvaluator(**vendor.get_params()).fit(scores, y, labels)
    with parallel_config("threading", n_jobs=2):
        vendor.fit(*mapped(tmp_path, scores, y, labels), folder=tmp_path / "calibration")
    assert_same(vendor, plain, *draw(300, n_classes, seed=1)[::2])


@pytest.mark.parametrize(
    "search",
    [
        ExactSearch("f1", on="confidence"),
        ExactSearch("rejection_rate", max_rejection=None, constraints=F1() >= 0.85),
        ExactSearch("accuracy", constraints=RejectionRate() >= 0.05),
        ExactSearch("f1", max_rejection=0.3, constraints=Error(of="rejected") >= 0.2),
        ExactSearch("macro_f1"),
        RandomSearch("f1", random_state=0, on="both"),
        RandomSearch("f1", random_state=0),
        GridSearch("f1", steps=7, on="both"),
        QuartileSearch(on="both"),
    ],
    ids=str,
)
def test_every_search_finds_the_same(tmp_path, small_chunks, search):
    scores, y, labels = draw(1000)
    ours = ScoreEvaluator().fit(*mapped(tmp_path, scores, y, labels), folder=tmp_path)
    plain = ScoreEvaluator().fit(scores, y, labels)
    assert_same(ours.rethreshold(search), plain.rethreshold(search), *draw(300, seed=1)[::2])


def test_labels_of_any_kind_and_scores_of_any_width(tmp_path):
    scores, y, labels = draw(500)
    names = np.array(["ham", "spam"])
    narrow = scores.astype(np.float32)
    ours = ScoreEvaluator().fit(narrow, names[y], names[labels], folder=str(tmp_path))
    plain = ScoreEvaluator().fit(narrow, names[y], names[labels])
    assert_same(ours, plain, scores, names[labels])
    other_order = {"classes": ["spam", "ham"]}
    swapped = narrow[:, ::-1].tolist()
    ours = ScoreEvaluator().fit(swapped, names[y], names[labels], **other_order, folder=tmp_path)
    plain = ScoreEvaluator().fit(swapped, names[y], names[labels], **other_order)
    assert_same(ours, plain, scores, names[labels])


@pytest.mark.filterwarnings("ignore::transcendent.errors.CalibrationWarning")
def test_the_only_member_of_a_class(tmp_path):
    scores, y, labels = draw(200)
    y[:] = 0
    y[7] = 1
    search = ExactSearch("accuracy", max_rejection=0.5)
    ours = ScoreEvaluator(search=search).fit(scores, y, labels, folder=tmp_path)
    plain = ScoreEvaluator(search=search).fit(scores, y, labels)
    assert_same(ours, plain, scores, labels)


def test_only_whole_files_are_left(tmp_path):
    scores, y, labels = draw(500)
    ScoreEvaluator().fit(scores, y, labels, folder=tmp_path / "deep" / "calibration")
    assert sorted(os.listdir(tmp_path / "deep" / "calibration")) == FILES


def test_an_earlier_evaluator_keeps_its_numbers_when_the_folder_is_used_again(tmp_path):
    first, second = draw(500), draw(700, seed=1)
    earlier = ScoreEvaluator().fit(*first, folder=tmp_path)
    ScoreEvaluator().fit(*second, folder=tmp_path)
    assert_same(earlier, ScoreEvaluator().fit(*first), *second[::2])


def test_memory_does_not_hold_a_number_for_every_object(tmp_path, monkeypatch):
    use_chunks_of(5000, monkeypatch)
    rng, n = np.random.default_rng(0), 200_000
    y = rng.integers(0, 2, n).astype(np.uint8)
    suspicion = np.where(y == 1, 2.5, -2.5) + rng.normal(size=n)
    given = mapped(tmp_path, np.column_stack([suspicion, -suspicion]), y, (suspicion > 0).astype(np.uint8))
    peaks = []
    for folder in (tmp_path / "calibration", None):
        tracemalloc.start()
        ScoreEvaluator().fit(*given, folder=folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[0] < 8 * n < peaks[1]


def test_artifacts_hold_the_objects_themselves(tmp_path):
    scores, y, labels = draw(500)
    ours = ScoreEvaluator().fit(*mapped(tmp_path, scores, y, labels), folder=tmp_path / "calibration")
    save(ours, tmp_path / "vendor.transcendent")
    again = load(tmp_path / "vendor.transcendent")
    assert again.decide(scores, labels).accepted.tolist() == ours.decide(scores, labels).accepted.tolist()


def test_reversed_scores_are_noticed(tmp_path, small_chunks):
    scores, y, labels = draw(500)
    with pytest.warns(CalibrationWarning, match="stranger for their own class"):
        ScoreEvaluator(search=QuartileSearch()).fit(-scores, y, labels, folder=tmp_path)


def test_infeasible_thresholds_can_be_searched_again(tmp_path):
    scores, y, labels = draw(500)
    vendor = ScoreEvaluator(search=ExactSearch("f1", constraints=F1() >= 0.9999, max_rejection=0.01))
    with pytest.raises(InfeasibleError):
        vendor.fit(scores, y, labels, folder=tmp_path)
    assert_same(vendor.rethreshold("auto"), ScoreEvaluator().fit(scores, y, labels), scores, labels)


def test_bad_input_is_refused(tmp_path):
    scores, y, labels = draw(500)
    for bad in (np.nan, np.inf):
        broken = scores.copy()
        broken[400, 1] = bad
        with pytest.raises(ValueError, match="NaN or infinity"):
            ScoreEvaluator().fit(broken, y, labels, folder=tmp_path)
    assert not list(tmp_path.glob("bag*"))
    with pytest.raises(ValueError, match="differ in length: 500, 499, 500"):
        ScoreEvaluator().fit(scores, y[:-1], labels, folder=tmp_path)
    with pytest.raises(ValueError, match=r"\(objects, classes\) = \(500, 2\), got \(500, 3\)"):
        ScoreEvaluator().fit(np.zeros((500, 3)), y, labels, folder=tmp_path)
    with pytest.raises(ValueError, match=r"\(objects, classes\) = \(500, 2\), got \(500, 2, 2\)"):
        ScoreEvaluator().fit(np.stack([scores, scores], axis=2), y, labels, folder=tmp_path)
    with pytest.raises(ValueError, match=r"labels has labels outside the classes .*\[7\]"):
        ScoreEvaluator().fit(scores, y, np.where(labels == 1, 7, 0), folder=tmp_path)
    with pytest.raises(CalibrationError, match="no calibration object has the label 2"):
        ScoreEvaluator().fit(np.zeros((500, 3)), y, labels, classes=[0, 1, 2], folder=tmp_path)
    with pytest.raises(ValueError, match="at least two distinct classes"):
        ScoreEvaluator().fit(np.zeros((0, 2)), [], [], folder=tmp_path)
    with pytest.raises(ValueError, match="integer random_state"):
        ScoreEvaluator(p_value="smoothed").fit(scores, y, labels, folder=tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    scores, y, labels = draw(100)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ScoreEvaluator().fit(scores, y, labels, folder=tmp_path / "file")
    (tmp_path / "closed").mkdir(mode=0o500)
    if not os.access(tmp_path / "closed", os.W_OK):
        with pytest.raises(PermissionError, match="closed"):
            ScoreEvaluator().fit(scores, y, labels, folder=tmp_path / "closed")
