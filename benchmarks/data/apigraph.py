"""Build the files of ``load_apigraph`` from the public repository kim-min-sang/CKLD.

python benchmarks/data/apigraph.py CKLD/data/gen_apigraph_drebin TARGET

SOURCE is that folder of a clone (commit 1764c7c): ``2012-01to2012-12_selected.npz``, a file
``YYYY-MM_selected.npz`` per month until 2018-12, ``family_idx.json`` and the names of the features. The sums
are those of the files built from it.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from sums import run

ENDING = "_selected.npz"


def build(source: Path, target: Path) -> None:
    files = sorted(source.glob(f"*{ENDING}"))
    if not files:
        raise SystemExit(f"{source} has no files *{ENDING}: give data/gen_apigraph_drebin of a clone.")
    numbers: dict[str, int] = json.loads((source / "family_idx.json").read_text("utf-8"))
    names = {number: name if number else "" for name, number in numbers.items()}
    matrices, families, months = [], [], []
    for file in files:
        with np.load(file) as arrays:  # y_mal_family is a pickle, and names what the numbers say
            matrices.append(sp.csr_matrix(arrays["X_train"].astype(np.uint8)))
            families.append(arrays["y_train"].astype(np.int64))
        months += [file.name.removesuffix(ENDING)] * len(families[-1])
    family = np.concatenate(families)
    columns = {
        "month": months,
        "y": (family > 0).astype(np.uint8),
        "fam_id": family,
        "family": [names[number] for number in family.tolist()],
    }
    sp.save_npz(target / "apigraph_X.npz", sp.vstack(matrices, format="csr"))
    pq.write_table(pa.table(columns), target / "apigraph_meta.parquet")
    (features,) = source.glob("*_selected_training_features.json")
    shutil.copyfile(features, target / "apigraph_features.json")


if __name__ == "__main__":
    run(str(__doc__), "apigraph", build)
