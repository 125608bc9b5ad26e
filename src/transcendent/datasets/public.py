"""Public security data sets with times, read from the folder ``data_home``.

The default folder is the environment variable ``TRANSCENDENT_DATA``. The data do not ship with the package:
the scripts in ``benchmarks/data`` of its repository build the files from what the authors publish.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, IntArray, check_sparse, group_equal_rows
from transcendent._utils.extras import extra
from transcendent.datasets.base import Dataset

_VARIABLE = "TRANSCENDENT_DATA"
_BLOCK = "2012-01to2012-12"
_NVD_END = np.datetime64("2019-01-01")
_SOURCES = {
    "apigraph": "the folder data/gen_apigraph_drebin of the public repository kim-min-sang/CKLD",
    "lamda": "the folder continual-learning of the public repository IQSeC-Lab/LAMDA, commit 475ae38",
    "nvd": "the yearly JSON feeds of the US National Vulnerability Database",
    "trec07p": "the TREC 2007 public spam corpus of the University of Waterloo",
}


def load_apigraph(data_home: str | Path | None = None, *, deduplicate: bool = False) -> Dataset:
    """Load Android apps of 2012 to 2018 as binary Drebin features, a tenth of them malware (APIGraph).

    ``benchmarks/data/apigraph.py`` builds the files from the folder ``data/gen_apigraph_drebin`` of the
    public repository kim-min-sang/CKLD. The apps of 2012 have no months, and get the time 2012-12. The files
    list malware first within a month. Here the apps of a month are in a fixed random order, so that the order
    does not leak the label.

    Parameters
    ----------
    data_home : path or None
        Folder with ``apigraph_X.npz``, ``apigraph_meta.parquet`` and ``apigraph_features.json``; by default
        ``TRANSCENDENT_DATA``.
    deduplicate : bool
        Keep one of several apps with equal features, time and label: 222,768 of 320,315.

    Returns
    -------
    Dataset
        320,315 apps: X is CSR with 1,159 columns, y is 1 for malware (30,804), times are months;
        ``extra["family"]`` is empty for goodware.
    """
    columns = _read_columns(data_home, "apigraph_meta.parquet", ["month", "y", "family"])
    months = [_BLOCK[-7:] if month == _BLOCK else month for month in columns["month"].tolist()]
    positions = json.loads(_find(data_home, "apigraph_features.json").read_text("utf-8"))
    order = np.random.default_rng(0).permutation(len(months))
    apps = Dataset(
        X=_read_matrix(data_home, "apigraph_X.npz")[order],
        y=columns["y"].astype(np.int64)[order],
        times=np.array(months, dtype="datetime64[M]")[order],
        extra={"family": columns["family"].astype(str)[order]},
        feature_names=np.array(sorted(positions, key=positions.__getitem__)),
        name="apigraph",
    )
    return apps[_first_of_equal(apps)] if deduplicate else apps


def load_lamda(data_home: str | Path | None = None) -> Dataset:
    """Load Android malware of 154 families as binary features, 2013-06 to 2024-11 without 2015 (LAMDA).

    ``benchmarks/data/lamda.py`` builds the files from the folder ``continual-learning`` of the public
    repository IQSeC-Lab/LAMDA, commit 475ae38.

    Parameters
    ----------
    data_home : path or None
        Folder with ``lamda_malware_X.npz`` and ``lamda_malware_meta.parquet``; by default
        ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        51,411 apps: X is CSR with 4,561 columns, y is the family, times are months, ``extra["hash"]``
        identifies apps. ``vt_count`` is not read, since it leaks the label.
    """
    columns = _read_columns(data_home, "lamda_malware_meta.parquet", ["year_month", "family", "hash"])
    return Dataset(
        X=_read_matrix(data_home, "lamda_malware_X.npz"),
        y=columns["family"].astype(str),
        times=columns["year_month"].astype("datetime64[M]"),
        extra={"hash": columns["hash"].astype(str)},
        name="lamda",
    )


def load_nvd(data_home: str | Path | None = None) -> Dataset:
    """Load descriptions of vulnerabilities with their severity: HIGH, MEDIUM or LOW by CVSS version 2.

    ``benchmarks/data/nvd.py`` builds the file from the yearly JSON feeds of the US National Vulnerability
    Database. Vulnerabilities without a severity are left out, and so are those published after 2018, of
    which the file has few (1,627 of 2020).

    Parameters
    ----------
    data_home : path or None
        Folder with ``nvd_cve.parquet``; by default ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        111,114 vulnerabilities: X is an array of texts, y the severity, times are the days of publication.
    """
    columns = _read_columns(data_home, "nvd_cve.parquet", ["published", "desc", "sev2"])
    usable = (columns["published"] < _NVD_END) & np.array([bool(s) for s in columns["sev2"]])
    return Dataset(
        X=columns["desc"][usable],
        y=columns["sev2"][usable].astype(str),
        times=columns["published"][usable].astype("datetime64[D]"),
        name="nvd",
    )


def load_trec07p(data_home: str | Path | None = None) -> Dataset:
    """Load mail of three months of 2007 as hashed words, two thirds spam, with almost no drift (TREC).

    ``benchmarks/data/trec07p.py`` builds the files from the TREC 2007 public spam corpus of the
    University of Waterloo.

    Parameters
    ----------
    data_home : path or None
        Folder with ``trec07p_X.npz`` and ``trec07p_meta.parquet``; by default ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        75,419 mails: X is CSR with 131,072 columns, y is 1 for spam, times are the seconds of arrival (UTC).
    """
    columns = _read_columns(data_home, "trec07p_meta.parquet", ["received", "spam"])
    return Dataset(
        X=_read_matrix(data_home, "trec07p_X.npz"),
        y=columns["spam"].astype(np.int64),
        times=columns["received"].astype("datetime64[s]"),
        name="trec07p",
    )


def _find(data_home: str | Path | None, file: str) -> Path:
    """Return the path of a file, or raise with its source. Its name begins with that of the data set."""
    name = file.partition("_")[0]
    built = f"benchmarks/data/{name}.py builds the files from {_SOURCES[name]}"
    folder = data_home or os.environ.get(_VARIABLE)
    if not folder:
        raise ValueError(
            f"{name} does not ship with the package: {built}. Pass their folder as data_home=, or set the "
            f"environment variable {_VARIABLE} to it."
        )
    if not (path := Path(folder) / file).is_file():
        raise FileNotFoundError(f"no file {path}; {built}.")
    return path


def _read_columns(data_home: str | Path | None, file: str, columns: list[str]) -> dict[str, AnyArray]:
    table = extra("pyarrow.parquet", "frames").read_table(_find(data_home, file), columns=columns)
    return {name: table[name].to_numpy() for name in columns}


def _read_matrix(data_home: str | Path | None, file: str) -> Any:
    path = _find(data_home, file)
    matrix = sp.load_npz(path)
    check_sparse(matrix, str(path))
    return sp.csr_matrix(matrix, dtype=np.float64)


def _first_of_equal(apps: Dataset) -> IntArray:
    """Return the first position of each group of apps with equal features, month and label."""
    groups, _ = group_equal_rows(apps.X)
    months = (apps.times - apps.times.min()).astype(np.intp)
    keys = np.ravel_multi_index((groups, months, apps.y), (len(apps), int(months.max()) + 1, 2))
    return np.sort(np.unique(keys, return_index=True)[1])
