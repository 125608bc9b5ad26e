"""Artifacts are tried out in another process."""

import io
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import LinearSVC

from transcendent import Answers, InductiveEvaluator, ScoreEvaluator
from transcendent.artifacts import open_artifact, sandbox, save
from transcendent.errors import ArtifactError

X, y = make_classification(300, random_state=0)
TREE = "sklearn.tree._tree.Tree"


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(sandbox, "_tried", set())


@pytest.fixture
def saved(tmp_path):
    def keep(rejector):
        save(rejector, tmp_path / "x")
        return open_artifact(tmp_path / "x")

    return keep


def ice(detector, rows=X):
    return InductiveEvaluator(detector, random_state=0).fit(rows, y)


@pytest.mark.slow
def test_an_honest_artifact_is_tried_once(saved, monkeypatch):
    artifact = saved(ice(LinearSVC()))
    sandbox.try_out(artifact)
    monkeypatch.setattr(sandbox, "_run", lambda *_: "was started again")
    sandbox.try_out(artifact)
    with pytest.raises(ArtifactError, match="started again"):
        sandbox.try_out(artifact, [TREE])


def test_a_process_that_crashes(saved, monkeypatch):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(sandbox, "_CODE", crash)
    with pytest.raises(ArtifactError, match=r"ended by SIGSEGV\. .* only a signature says who made it"):
        sandbox.try_out(saved(ice(LinearSVC())))


@pytest.mark.slow
def test_a_process_out_of_memory(saved):
    wide = ice(make_pipeline(PolynomialFeatures(2), LinearSVC()))
    expansion = wide.detectors_[0].estimator.steps[0][1]
    expansion.set_params(degree=14).fit(X)
    with pytest.raises(ArtifactError, match=r"needed more than [\d,]+ MB of memory"):
        sandbox.try_out(saved(wide))


def test_a_process_out_of_time(saved, monkeypatch):
    texts = np.array([" ".join(f"w{int(3 * v) % 7}" for v in row) for row in X], dtype=object)
    endless = ice(make_pipeline(CountVectorizer(), LinearSVC()), texts)
    endless.detectors_[0].estimator.steps[0][1].token_pattern = r"(?:\w+ ?)+!"
    monkeypatch.setattr(sandbox, "TIMEOUT", 3)
    with pytest.raises(ArtifactError, match="took more than 3 seconds"):
        sandbox.try_out(saved(endless))


@pytest.mark.slow
def test_what_the_process_refuses_is_refused(saved):
    with pytest.raises(ArtifactError, match=f"not trusted: {re.escape(TREE)}"):
        sandbox.try_out(saved(ice(RandomForestClassifier(2, random_state=0))))


class TestInThisProcess:
    """Run the task of the other process in this one, which is faster."""

    def answer(self, monkeypatch, capsys, artifact, rows=None):
        task = sandbox.pickle.dumps(({"seconds": 60, "memory": 1 << 40}, artifact, [], rows))
        monkeypatch.setattr(sandbox, "_limit", lambda **_: None)
        monkeypatch.setattr(sandbox.sys, "stdin", io.TextIOWrapper(io.BytesIO(task)))
        sandbox.answer()
        return sandbox.TrialOutcome(**sandbox.json.loads(capsys.readouterr().out.splitlines()[-1]))

    @pytest.mark.parametrize(
        "rejector",
        [
            lambda: ice(LinearSVC(), pd.DataFrame(X).rename(columns=str)),
            lambda: ice(
                make_pipeline(CountVectorizer(), LinearSVC()), np.array(["good day", "cheap pills"])[y]
            ),
            lambda: ice(MultinomialNB(), np.abs(X)),
            lambda: ScoreEvaluator().fit(Answers(y, X[:, :2]), y),
        ],
        ids=["frame", "text", "numbers from 0", "scores"],
    )
    def test_rows_of_its_kind(self, saved, monkeypatch, capsys, rejector):
        fitted, decided = rejector(), []
        kind = type(fitted)
        original = kind.decide

        def decide(self, *given):
            decisions = original(self, *given)
            decided.append(len(decisions))
            return decisions

        monkeypatch.setattr(kind, "decide", decide)
        assert self.answer(monkeypatch, capsys, saved(fitted)) == sandbox.TrialOutcome()
        assert decided

    def test_given_rows(self, saved, monkeypatch, capsys):
        seen = []
        monkeypatch.setattr(InductiveEvaluator, "decide", lambda self, rows: seen.append(rows))
        self.answer(monkeypatch, capsys, saved(ice(LogisticRegression())), X[:3])
        np.testing.assert_array_equal(seen[0], X[:3])
        assert {rows.shape[1] for rows in seen} == {20}

    def test_rows_nobody_knows_before(self, saved, monkeypatch, capsys):
        seen = []
        monkeypatch.setattr(InductiveEvaluator, "decide", lambda self, rows: seen.append(rows))
        artifact = saved(ice(LogisticRegression()))
        for _ in range(2):
            self.answer(monkeypatch, capsys, artifact)
        first, second = (seen[0], seen[1], seen[2].toarray()), (seen[3], seen[4], seen[5].toarray())
        for once, again in zip(first, second, strict=True):
            assert once.shape == again.shape
            assert (once != again).any()

    def test_no_memory(self, saved, monkeypatch, capsys):
        def decide(*_):
            raise MemoryError

        monkeypatch.setattr(InductiveEvaluator, "decide", decide)
        assert "MB of memory" in self.answer(monkeypatch, capsys, saved(ice(LinearSVC()))).died

    def test_a_refusal(self, saved, monkeypatch, capsys):
        forest = saved(ice(RandomForestClassifier(2, random_state=0)))
        assert "not trusted" in self.answer(monkeypatch, capsys, forest).refused

    def test_an_attribute_that_another_version_would_have(self, saved, monkeypatch, capsys):
        empty = ice(LinearSVC())
        del empty.detectors_[0].estimator.coef_
        artifact = saved(empty)
        assert self.answer(monkeypatch, capsys, artifact) == sandbox.TrialOutcome()
        artifact.manifest["versions"]["scikit-learn"] = "1.2.3"
        refused = self.answer(monkeypatch, capsys, artifact).refused
        assert re.search(r"coef_.*It was written under scikit-learn 1\.2\.3 and is read under", refused)
