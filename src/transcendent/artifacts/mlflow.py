"""Rejectors as MLflow models: the artifact inside an MLflow folder, loadable as ``pyfunc``.

The types to trust are never read from the model: they are an argument of `load_model`. ``mlflow.pyfunc`` does
not pass arguments on, so there they come from the environment variable ``TRANSCENDENT_TRUSTED``: type names
separated by spaces. In both cases ``TRANSCENDENT_PUBLIC_KEY`` names the public key that a signature must
match.
"""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from transcendent import __version__
from transcendent._utils.extras import extra
from transcendent.artifacts.artifact import load, save
from transcendent.artifacts.signatures import Key
from transcendent.decisions import declared
from transcendent.errors import ArtifactError

_FILE = "rejector.transcendent"


def save_model(rejector: Any, path: Any, *, signing_key: Key | None = None, **given: Any) -> None:
    """Save a fitted rejector as an MLflow model; further arguments go to ``mlflow.pyfunc.save_model``."""
    _write("save_model", rejector, signing_key, path=str(path), **given)


def log_model(rejector: Any, name: str, *, signing_key: Key | None = None, **given: Any) -> Any:
    """Log a fitted rejector to the current MLflow run; further arguments go to ``mlflow.pyfunc.log_model``.

    Returns
    -------
    ModelInfo
        MLflow's; its ``model_uri`` is the argument of `load_model`.
    """
    return _write("log_model", rejector, signing_key, name=name, **given)


def load_model(model_uri: str, *, trusted: Collection[str] = (), public_key: Key | None = None) -> Any:
    """Return the rejector in an MLflow model; the arguments are those of `load`."""
    folder = extra("mlflow.artifacts", "mlflow").download_artifacts(artifact_uri=model_uri)
    (path,) = Path(folder).rglob(_FILE)
    return load(path, trusted=trusted, public_key=public_key)


class DecidingModel:
    """A model for ``mlflow.pyfunc`` that turns rows into a frame of decisions."""

    def __init__(self, rejector: Any) -> None:
        self.rejector = rejector

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        """Return the decisions as a pandas DataFrame."""
        return self.rejector.decide(model_input).to_pandas()


def _load_pyfunc(path: str, model_config: Any = None) -> DecidingModel:  # noqa: ARG001
    """Load a model for MLflow; its configuration is ignored, since it may come from the model."""
    rejector = load(path, trusted=os.environ.get("TRANSCENDENT_TRUSTED", "").split())
    if declared(rejector).depends_on_others:
        raise ArtifactError(
            f"a decision of {type(rejector).__name__} depends on other objects, but MLflow may split rows: "
            "use transcendent.artifacts.mlflow.load_model(uri).decide(rows)."
        )
    return DecidingModel(rejector)


def _write(function: str, rejector: Any, signing_key: Key | None, **given: Any) -> Any:
    write = getattr(extra("mlflow.pyfunc", "mlflow"), function)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _FILE)
        save(rejector, path, signing_key=signing_key)
        requirements = given.pop("pip_requirements", [f"transcendent[mlflow]=={__version__}"])
        return write(loader_module=__name__, data_path=str(path), pip_requirements=requirements, **given)
