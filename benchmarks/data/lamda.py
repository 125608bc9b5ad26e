"""Build the files of ``load_lamda`` from the public repository IQSeC-Lab/LAMDA.

python benchmarks/data/lamda.py LAMDA/continual-learning TARGET

SOURCE is that folder of a clone at commit 475ae38. Of its files, ``YYYY_test_filtered.parquet`` of all years
and ``YYYY_train_filtered.parquet`` of 2017, 2021, 2023 and 2024 are read: malware with the columns hash,
label, family, vt_count and year_month, and one column ``feat_N`` per feature. Later commits have the whole
benchmark in another place. The source is not kept here: the sums are those of the files that the published
results rest on, and this script was tried on a small source in the same layout only.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from sums import run

COLUMNS = ["hash", "label", "family", "vt_count", "year_month"]
TRAINING = ("2017", "2021", "2023", "2024")


def build(source: Path, target: Path) -> None:
    files = [*source.glob("*_test_filtered.parquet")]
    files += [file for year in TRAINING for file in source.glob(f"{year}_train_filtered.parquet")]
    if not files:
        raise SystemExit(f"{source} has no files *_filtered.parquet: give continual-learning of a clone.")
    tables, matrices = [], []
    for file in sorted(files):
        table = pq.read_table(file)
        n_features = sum(name.startswith("feat_") for name in table.column_names)
        dense = [table[f"feat_{i}"].to_numpy().astype(np.uint8) for i in range(n_features)]
        matrices.append(sp.csr_matrix(np.column_stack(dense)))
        tables.append(table.select(COLUMNS))
    sp.save_npz(target / "lamda_malware_X.npz", sp.vstack(matrices, format="csr"))
    pq.write_table(pa.concat_tables(tables), target / "lamda_malware_meta.parquet")


if __name__ == "__main__":
    run(str(__doc__), "lamda", build)
