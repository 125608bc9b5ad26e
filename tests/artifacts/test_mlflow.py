"""Rejectors logged to and loaded from a real MLflow."""

import subprocess
import sys

import mlflow
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC

from tests.artifacts.test_refusals import OURS, THEIRS
from transcendent import InductiveEvaluator
from transcendent.artifacts.mlflow import load_model, log_model, save_model
from transcendent.baselines import CPReject
from transcendent.errors import ArtifactError

X, y = make_classification(400, random_state=0)
ROWS = pd.DataFrame(X, columns=[f"f{i}" for i in range(20)])
BOOSTER = "lightgbm.basic.Booster"

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's, about itself


@pytest.fixture
def tracked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="module")
def ice():
    return InductiveEvaluator(LinearSVC(random_state=0), random_state=0).fit(ROWS, y)


@pytest.mark.slow
def test_logged_and_loaded(ice, tracked):
    with mlflow.start_run():
        logged = log_model(ice, "gate", signing_key=OURS[0])
    expected = ice.decide(ROWS)
    frame = mlflow.pyfunc.load_model(logged.model_uri).predict(ROWS)
    assert frame["accepted"].tolist() == expected.accepted.tolist()
    assert frame["credibility"].tolist() == expected.credibility.tolist()
    back = load_model(logged.model_uri, public_key=OURS[1])
    np.testing.assert_array_equal(back.decide(ROWS).p_values, expected.p_values)
    with pytest.raises(ArtifactError, match="signature"):
        load_model(logged.model_uri, public_key=THEIRS[1])


@pytest.mark.slow
def test_a_folder_in_a_fresh_process(ice, tmp_path):
    save_model(ice, tmp_path / "model")
    ROWS.to_parquet(tmp_path / "rows.parquet")
    script = (
        "import mlflow, pandas\n"
        "model = mlflow.pyfunc.load_model('model')\n"
        "print(int(model.predict(pandas.read_parquet('rows.parquet'))['accepted'].sum()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == ice.decide(ROWS).accepted.sum()


def test_pyfunc_serves_none_whose_decisions_depend_on_other_objects(tmp_path):
    save_model(CPReject(LinearSVC(random_state=0), random_state=0).fit(X, y), tmp_path / "model")
    with pytest.raises(ArtifactError, match="depends on other objects"):
        mlflow.pyfunc.load_model(str(tmp_path / "model"))
    assert len(load_model(str(tmp_path / "model")).decide(X)) == len(X)


def test_only_the_environment_says_what_pyfunc_trusts(tmp_path, monkeypatch):
    boosted = InductiveEvaluator(LGBMClassifier(n_estimators=3, verbose=-1), random_state=0).fit(X, y)
    save_model(
        boosted, tmp_path / "model", metadata={"trusted": [BOOSTER]}, model_config={"trusted": [BOOSTER]}
    )
    with pytest.raises(ArtifactError, match="not trusted"):
        mlflow.pyfunc.load_model(str(tmp_path / "model"))
    with pytest.raises(ArtifactError, match="not trusted"):
        load_model(str(tmp_path / "model"))
    monkeypatch.setenv("TRANSCENDENT_TRUSTED", BOOSTER)
    assert len(mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(X)) == 400
    monkeypatch.setenv("TRANSCENDENT_PUBLIC_KEY", str(tmp_path / "key.pub"))
    (tmp_path / "key.pub").write_bytes(OURS[1])
    with pytest.raises(ArtifactError, match="not signed"):
        mlflow.pyfunc.load_model(str(tmp_path / "model"))
