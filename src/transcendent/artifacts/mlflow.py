"""Rejectors as MLflow models: the artifact inside an MLflow folder, loadable as ``pyfunc``.

What to trust is never read from the model. `load_model` takes it as arguments. ``mlflow.pyfunc.load_model``
passes none on, so ``TRANSCENDENT_TRUSTED`` in the environment holds names of types, separated by blanks. For
both, ``TRANSCENDENT_PUBLIC_KEY`` names the public key that models have to be signed with.
"""

import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from transcendent import __version__
from transcendent._utils.extras import extra
from transcendent.artifacts.artifact import load, save
from transcendent.artifacts.container import Key

_FILE = "rejector.transcendent"


def save_model(rejector: Any, path: Any, *, signing_key: Key | None = None, **given: Any) -> None:
    """Save a fitted rejector as an MLflow model; further arguments go to ``mlflow.pyfunc.save_model``."""
    _with_artifact(
        rejector, signing_key, extra("mlflow.pyfunc", "mlflow").save_model, path=str(path), **given
    )


def log_model(rejector: Any, name: str, *, signing_key: Key | None = None, **given: Any) -> Any:
    """Log a fitted rejector to the current MLflow run; further arguments go to ``mlflow.pyfunc.log_model``.

    Returns
    -------
    ModelInfo
        MLflow's; its ``model_uri`` is what `load_model` takes.
    """
    return _with_artifact(
        rejector, signing_key, extra("mlflow.pyfunc", "mlflow").log_model, name=name, **given
    )


def load_model(model_uri: str, *, trusted: Collection[str] = (), public_key: Key | None = None) -> Any:
    """The rejector itself, from wherever MLflow keeps it; the arguments are those of `load`."""
    folder = extra("mlflow.artifacts", "mlflow").download_artifacts(artifact_uri=model_uri)
    (path,) = Path(folder).rglob(_FILE)
    return load(path, trusted=trusted, public_key=public_key)


class DecidingModel:
    """What ``mlflow.pyfunc`` calls: rows in, a frame of decisions out."""

    def __init__(self, rejector: Any) -> None:
        self.rejector = rejector

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        """Labels, and which of them to accept, as a pandas DataFrame."""
        return self.rejector.decide(model_input).to_pandas()


def _load_pyfunc(path: str, model_config: Any = None) -> DecidingModel:  # noqa: ARG001
    """MLflow's way in; the configuration may come from the model, so the environment alone is asked."""
    return DecidingModel(load(path, trusted=os.environ.get("TRANSCENDENT_TRUSTED", "").split()))


def _with_artifact(rejector: Any, signing_key: Key | None, write: Callable[..., Any], **given: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _FILE)
        save(rejector, path, signing_key=signing_key)
        requirements = given.pop("pip_requirements", [f"transcendent[mlflow]=={__version__}"])
        return write(loader_module=__name__, data_path=str(path), pip_requirements=requirements, **given)
