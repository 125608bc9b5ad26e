"""A detector's answers from columns of scores."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from transcendent.tables.answers import ScoreColumns, class_codes, separation

FRAME = pd.DataFrame(
    {
        "s": [0.9, "0.2", 0.5, None, "n/a", np.inf],
        "sure": [0.9, 0.8, 0.6, 0.7, 0.7, 0.7],
        "said": ["bad", "good", "bad", "good", "error", "bad"],
        "good": [0.1, 0.8, 0.5, 0.2, 0.1, 0.0],
        "bad": [0.9, 0.2, 0.5, 0.8, 0.9, 1.0],
    }
)


def read(rows=slice(None), **given):
    answers, unanswered = ScoreColumns(**given).read(FRAME)
    return answers.labels[rows].tolist(), answers.scores[rows].tolist(), unanswered.tolist()


def test_one_score_is_high_for_the_second_class_and_columns_are_in_the_order_of_labels():
    labels, scores, unanswered = read(slice(3), scores=("s",), classes=("good", "bad"), answer=0.5)
    assert labels == ["bad", "good", "good"]  # above the number, not at it
    assert scores == [[-0.9, 0.9], [-0.2, 0.2], [-0.5, 0.5]]  # of bad, good: higher = stranger
    assert unanswered == [3, 4, 5]


def test_a_score_of_the_answer_itself_counts_for_that_answer():
    labels, scores, unanswered = read(
        slice(2), scores=("sure",), classes=("bad", "good"), answer="said", of_answer=True
    )
    assert labels == ["bad", "good"]
    assert scores == [[-0.9, 0.9], [0.8, -0.8]]
    assert unanswered == [4]  # "error" is no class


def test_a_column_per_class():
    labels, scores, _ = read(slice(2), scores=("good", "bad"), classes=("good", "bad"))
    assert labels == ["bad", "good"]
    assert scores == [[-0.9, -0.1], [-0.2, -0.8]]


def test_notes_of_an_artifact_are_read_or_refused():
    columns = ScoreColumns(("s",), (0, 1), 0.5)
    assert ScoreColumns.from_json(json.loads(json.dumps(asdict(columns)))) == columns
    for broken in ({}, {"scores": [1], "classes": [0, 1]}, {"scores": ["s"], "classes": [0]}, {"scores": 5}):
        with pytest.raises(ValueError, match="not columns of scores"):
            ScoreColumns.from_json(broken)


def test_labels_written_in_several_ways_are_one_class():
    assert class_codes(np.array([1.0, True, "1", " 1", "x", None], dtype=object), [0, 1]).tolist() == [
        *(1, 1, 1, 1, -1, -1)
    ]
    assert class_codes(np.array(["7", "007"]), ["007", "7"]).tolist() == [1, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2))
def test_separation_is_the_area_under_the_roc_curve(pairs):
    scores, second = np.array([s for s, _ in pairs], dtype=float), np.array([c for _, c in pairs])
    if second.all() or not second.any():
        assert np.isnan(separation(scores, second))
    else:
        assert separation(scores, second) == pytest.approx(roc_auc_score(second, scores))


def test_answers_read_as_numbers_cannot_name_classes_that_are_one_number():
    assert class_codes(np.array(["01", "1", "2"]), ["01", "1"]).tolist() == [0, 1, -1]
    with pytest.raises(ValueError, match="cannot tell classes such as 01 and 1 apart"):
        class_codes(np.array([1, 1]), ["01", "1"])
