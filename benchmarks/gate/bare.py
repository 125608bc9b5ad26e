"""A bare endpoint to compare the gate with: it validates, calls ``predict``, and keeps nothing.

Served twice: ``/loop`` computes on the event loop, ``/threads`` in FastAPI's threads. BARE_ARTIFACT names the
artifact.
"""

import os
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from fastapi import FastAPI
from pydantic import BaseModel

from transcendent import load
from transcendent.decisions import declared


class Sparse(BaseModel):
    id: str
    positions: list[int]
    values: list[float]


class Named(BaseModel):
    id: str
    features: dict[str, float | str | None]


class Sparsely(BaseModel):
    objects: list[Sparse]


class ByName(BaseModel):
    objects: list[Named]


app = FastAPI()
detector = declared(load(os.environ["BARE_ARTIFACT"])).fitted.detectors[0]  # the classifier itself
names = getattr(detector, "feature_names_in_", None)
width = detector.n_features_in_
Objects: Any = Sparsely if names is None else ByName


def rows_of(objects: Any) -> Any:
    if names is not None:
        return pd.DataFrame([each.features for each in objects], columns=names)
    starts = np.cumsum([0, *(len(each.positions) for each in objects)])
    positions = np.fromiter(chain.from_iterable(each.positions for each in objects), dtype=np.int32)
    values = np.fromiter(chain.from_iterable(each.values for each in objects), dtype=np.float64)
    return sp.csr_matrix((values, positions, starts), shape=(len(objects), width))


def predict(asked: Any) -> dict[str, Any]:
    labels = detector.predict(rows_of(asked.objects)).tolist()
    return {"labels": {each.id: label for each, label in zip(asked.objects, labels, strict=True)}}


@app.post("/loop")
async def on_the_loop(asked: Objects) -> dict[str, Any]:
    return predict(asked)


@app.post("/threads")
def in_threads(asked: Objects) -> dict[str, Any]:
    return predict(asked)
