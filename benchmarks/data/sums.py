"""The command line that the scripts of this folder share, and the check of what they build.

``SHA256SUMS`` has a sum for each array of the files that the published results rest on. It is a sum of
values, not of bytes on disk, so that neither compression nor the version of a library changes it.
"""

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

SUMS = Path(__file__).with_name("SHA256SUMS")


def run(description: str, name: str, build: Callable[[Path, Path], None]) -> None:
    """Build the files of a data set from SOURCE in TARGET, and compare their values with the sums."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the folder with the public files")
    parser.add_argument("target", type=Path, help="the folder to write to; TRANSCENDENT_DATA names it later")
    given = parser.parse_args()
    given.target.mkdir(parents=True, exist_ok=True)
    build(given.source, given.target)
    expected = [line.split("  ") for line in SUMS.read_text().splitlines()]
    different = 0
    for digest, array in expected:
        if array.startswith(name):
            found = digest_of(read(given.target, array))
            different += found != digest
            print(f"{array}: {'as published' if found == digest else f'differs, its sum is {found}'}")
    if different:
        raise SystemExit(
            f"{different} arrays differ from those that the published results rest on. The files are written "
            "and can be used; results will not be exactly those of docs/evidence/benchmarks.md."
        )


def read(folder: Path, array: str) -> Any:
    """Read an array that is named by its file and, of a table, the column: ``nvd_cve.parquet:desc``."""
    file, _, column = array.partition(":")
    match (folder / file).suffix:
        case ".npz":
            return sp.load_npz(folder / file)
        case ".parquet":
            return pq.read_table(folder / file, columns=[column])[column].to_numpy()
        case _:
            return np.array(list(json.loads((folder / file).read_text("utf-8")).items()))


def digest_of(values: Any) -> str:
    """Return the SHA-256 of values, however they are stored: a sparse matrix, numbers, times or texts."""
    if sp.issparse(values):
        matrix = sp.csr_matrix(values, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        sizes = np.array(matrix.shape)
        parts = [np.asarray(part, "<i8") for part in (sizes, matrix.indptr, matrix.indices)]
        content = b"".join(part.tobytes() for part in (*parts, np.asarray(matrix.data, "<f8")))
    elif values.dtype.kind == "M":
        return digest_of(values.astype("datetime64[s]").astype(str))
    else:
        content = json.dumps(values.tolist()).encode()
    return hashlib.sha256(content).hexdigest()
