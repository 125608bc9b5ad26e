"""A bare endpoint to compare the gate with: it validates, calls ``predict``, and keeps nothing.

Served twice: ``/loop`` computes on the event loop, ``/threads`` in FastAPI's threads. BARE_ARTIFACT names the
artifact.
"""

import os
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp
from fastapi import FastAPI
from pydantic import BaseModel

from transcendent import load
from transcendent.decisions import declared


class Sparse(BaseModel):
    id: str
    positions: list[int]
    values: list[float]


class Objects(BaseModel):
    objects: list[Sparse]


app = FastAPI()
detector = declared(load(os.environ["BARE_ARTIFACT"])).fitted.detectors[0]  # the classifier itself
width = detector.n_features_in_


def predict(asked: Objects) -> dict[str, Any]:
    starts = np.cumsum([0, *(len(each.positions) for each in asked.objects)])
    positions = np.fromiter(chain.from_iterable(each.positions for each in asked.objects), dtype=np.int32)
    values = np.fromiter(chain.from_iterable(each.values for each in asked.objects), dtype=np.float64)
    rows = sp.csr_matrix((values, positions, starts), shape=(len(asked.objects), width))
    labels = detector.predict(rows).tolist()
    return {"labels": {each.id: label for each, label in zip(asked.objects, labels, strict=True)}}


@app.post("/loop")
async def on_the_loop(asked: Objects) -> dict[str, Any]:
    return predict(asked)


@app.post("/threads")
def in_threads(asked: Objects) -> dict[str, Any]:
    return predict(asked)
