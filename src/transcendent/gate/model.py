"""The rejector that a gate serves: loaded from an artifact, and asked about objects."""

import os
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import threadpoolctl

from transcendent._utils.arrays import AnyArray, BoolArray, take_rows
from transcendent.artifacts import open_artifact
from transcendent.artifacts.trial import try_out
from transcendent.decisions import Decisions
from transcendent.errors import ArtifactError
from transcendent.gate.features import Group, Layout, Problem
from transcendent.gate.settings import TRIED
from transcendent.rejectors import Traits


@dataclass(frozen=True)
class Model:
    """A rejector, and what the gate needs to know of it."""

    rejector: Any
    digest: str
    layout: Layout
    classes: list[Any]
    manifest: dict[str, Any]

    def decide(self, group: Group, problems: dict[int, Problem]) -> list[tuple[AnyArray, Any, Decisions]]:
        """Return places, rows and decisions; rows that the detector does not take become problems."""
        try:
            return [(group.places, group.rows, self.rejector.decide(group.rows))]
        except (ValueError, TypeError) as error:
            gaps = _gaps(group.rows)
            same_gaps = not sp.issparse(group.rows) and gaps.any() and (gaps == gaps[0]).all()
            alike = same_gaps or isinstance(error, TypeError)
            if len(group.places) == 1 or (alike and self._fails(take_rows(group.rows, slice(0, 1)))):
                found = Problem("", f"the detector does not take it: {_first_line(error)}")
                problems.update(dict.fromkeys(group.places.tolist(), found))
                return []
        lacking = gaps.any(axis=1)
        first = lacking if lacking.any() and not lacking.all() else np.arange(len(gaps)) < len(gaps) // 2
        parts = [
            Group(group.places[part], take_rows(group.rows, np.flatnonzero(part))) for part in (first, ~first)
        ]
        return [piece for part in parts for piece in self.decide(part, problems)]

    def _fails(self, row: Any) -> bool:
        try:
            self.rejector.decide(row)
        except (ValueError, TypeError):
            return True
        return False


def _gaps(rows: Any) -> BoolArray:
    """Return which values are missing, of sparse rows only whether any is."""
    if not sp.issparse(rows):
        return np.isnan(np.asarray(rows, dtype=np.float64))
    gaps = np.zeros((rows.shape[0], 1), dtype=bool)
    gaps[np.searchsorted(rows.indptr, np.flatnonzero(np.isnan(rows.data)), side="right") - 1] = True
    return gaps


def load_model(
    path: Path, trusted: Collection[str] = (), public_key: Path | None = None, threads: int = 1
) -> Model:
    """Load an artifact, tried out in another process unless the process that started this one has done so."""
    artifact = open_artifact(path, public_key=public_key)
    artifact.check(trusted)
    if os.environ.get(TRIED) != artifact.digest:
        try_out(artifact, trusted)
    rejector = artifact.rejector(trusted)
    _check_servable(path, rejector, artifact.manifest)
    features = artifact.manifest["features"]
    threadpoolctl.threadpool_limits(threads)
    traits = Traits.of(rejector)
    classes = np.asarray(traits.classes).tolist()
    model = Model(
        rejector, artifact.digest, Layout(features["count"], features["names"]), classes, artifact.manifest
    )
    _check_takes_numbers(path, model)
    return model


def _check_takes_numbers(path: Path, model: Model) -> None:
    """Refuse a detector that decides no numbers, such as one that encodes a column of words."""
    samples = [{"values": [value] * model.layout.width} for value in (0, 1)]
    samples.append({"positions": [0], "values": [1]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples:
            try:
                model.rejector.decide(model.layout.read([{"id": "0", **sample}]).groups[0].rows)
                return
            except (ValueError, TypeError) as error:
                reason = _first_line(error)
    raise ArtifactError(
        f"{path} cannot be served: its detector decides no rows of numbers ({reason}). If it has columns of "
        "words, encode them as numbers before the fit, or leave them out of it."
    )


def _check_servable(path: Path, rejector: Any, manifest: dict[str, Any]) -> None:
    traits = Traits.of(rejector)
    kind = manifest["rejector"]
    if traits.takes_labels:
        raise ArtifactError(f"{path} judges scores, not objects: a gate needs the detector too.")
    if traits.evolves or "Budget" in kind:
        raise ArtifactError(
            f"{path} holds a {kind}, whose decisions depend on other objects: save its evaluator."
        )
    if manifest["features"]["count"] is None:
        raise ArtifactError(f"{path} takes texts: a gate serves detectors of numbers.")


def _first_line(error: Exception) -> str:
    return f"{str(error).partition(chr(10))[0]:.300}"
