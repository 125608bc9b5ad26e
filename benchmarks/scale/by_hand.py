"""Scoring written by hand for one linear detector, as one would without this library."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from common import FEATURES, WORKERS, csr

CHUNK = 1 << 16
REPEATED = [
    "credibility",
    "confidence",
    "p_value[0]",
    "p_value[1]",
]  # the columns that a dictionary makes smaller and faster to write
RESULT = {"label": "int64", "accepted": "bool"} | dict.fromkeys(REPEATED, "float64")


@dataclass(frozen=True)
class ByHand:
    """A fitted two-class linear detector, its sorted calibration scores and its thresholds."""

    detector: Any
    bags: tuple[Any, Any]
    least_credibility: Any
    least_confidence: Any
    sparse: bool

    @classmethod
    def of(cls, rejector: Any, *, sparse: bool = False) -> "ByHand":
        calibration, result = rejector.calibration_, rejector.result_
        bags = [np.sort(calibration.scores[calibration.actual == c, c]) for c in (0, 1)]
        thresholds = (result.credibility_thresholds, result.confidence_thresholds)
        return cls(rejector.estimator_, (bags[0], bags[1]), *thresholds, sparse)

    @property
    def inputs(self) -> list[str]:
        return ["id", "columns"] if self.sparse else ["id", *FEATURES]

    def decide(self, X: Any) -> dict[str, Any]:
        """The detector is asked once; its answers in order walk through the sorted scores fastest."""
        decision = self.detector.decision_function(X)
        label = (decision > 0).astype(np.int64)
        p = np.empty((2, len(decision)))
        for start in range(0, len(decision), CHUNK):
            part = decision[start : start + CHUNK]
            order = np.argsort(part)
            for c, queries in enumerate((part[order], -part[order])):
                bag = self.bags[c]
                p[c, start : start + CHUNK][order] = (len(bag) - np.searchsorted(bag, queries)) / len(bag)
        credibility = np.where(label == 1, p[1], p[0])
        confidence = 1.0 - np.where(label == 1, p[0], p[1])
        accepted = credibility >= self.least_credibility[label]
        accepted &= confidence >= self.least_confidence[label]
        return {"label": label, "accepted": accepted} | dict(
            zip(REPEATED, (credibility, confidence, *p), strict=True)
        )

    def decide_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A partition of a Dask frame."""
        X = rows_of_lists(pa.array(frame["columns"])) if self.sparse else frame[FEATURES].to_numpy()
        return pd.DataFrame({"id": frame["id"].to_numpy()} | self.decide(X))

    def decide_batch(self, batch: Any) -> Any:
        """An Arrow batch."""
        if self.sparse:
            X = rows_of_lists(batch.column("columns"))
        else:
            X = np.empty((batch.num_rows, len(FEATURES)), order="F")
            for j, name in enumerate(FEATURES):
                X[:, j] = batch.column(name).to_numpy()
        return pa.record_batch({"id": batch.column("id")} | self.decide(X))


def rows_of_lists(lists: Any) -> Any:
    """CSR straight from Arrow's offsets."""
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    offsets = lists.offsets.to_numpy()
    return csr(lists.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])


def on_dask(
    by_hand: ByHand, table: Path | str, out: Path | str, storage: dict[str, Any] | None = None
) -> None:
    """On the current client's workers."""
    backend = {"dtype_backend": "pyarrow"} if by_hand.sparse else {}
    frame = dd.read_parquet(str(table), columns=by_hand.inputs, storage_options=storage, **backend)
    meta = pd.DataFrame({"id": pd.Series(dtype="int64")} | {c: pd.Series(dtype=t) for c, t in RESULT.items()})
    frame.map_partitions(by_hand.decide_frame, meta=meta).to_parquet(
        str(out), write_index=False, use_dictionary=REPEATED, storage_options=storage
    )


def processes() -> ProcessPoolExecutor:
    """Two that stay, so that no way pays for their start."""
    return ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"))


def on_processes(pool: ProcessPoolExecutor, by_hand: ByHand, table: Path, out: Path) -> None:
    """On two processes, each with every other file."""
    files = sorted(table.glob("*.parquet"))
    shares = [files[k::WORKERS] for k in range(WORKERS)]
    list(pool.map(decide_files, [by_hand] * WORKERS, shares, [out] * WORKERS))


def decide_files(by_hand: ByHand, files: Sequence[Path], out: Path) -> None:
    """In this process."""
    for path in files:
        with pq.ParquetFile(path) as file:
            batches = file.iter_batches(CHUNK, columns=by_hand.inputs, use_threads=False)
            decided = map(by_hand.decide_batch, batches)
            first = next(decided)
            with pq.ParquetWriter(out / path.name, first.schema, use_dictionary=REPEATED) as writer:
                writer.write_batch(first)
                for batch in decided:
                    writer.write_batch(batch)
