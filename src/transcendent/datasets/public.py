"""Public security data sets with times, read from the folder ``data_home``.

By default that is the folder in the environment variable ``TRANSCENDENT_DATA``.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, IntArray, check_sparse, group_equal_rows
from transcendent._utils.extras import extra
from transcendent.datasets.base import Dataset, existing

_VARIABLE = "TRANSCENDENT_DATA"
_BLOCK = "2012-01to2012-12"
_NVD_END = np.datetime64("2019-01-01")


def load_apigraph(data_home: str | Path | None = None, *, deduplicate: bool = False) -> Dataset:
    """Android apps as binary Drebin features, 2012 to 2018, a tenth of them malware (APIGraph).

    The apps of 2012 have no months; all have the time 2012-12, so that they come before 2013-01. The files
    list malware first within a month; here the apps of a month are in a fixed random order, so that nothing
    can be learnt from the order.

    Parameters
    ----------
    data_home : path or None
        Folder with ``apigraph_X.npz``, ``apigraph_meta.parquet`` and ``apigraph_features.json``; None is
        ``TRANSCENDENT_DATA``.
    deduplicate : bool
        Keep only one of the apps with equal features, month (2012 is one) and label: 222,768 of 320,315.

    Returns
    -------
    Dataset
        y is 1 for malware, times are months, X is CSR; ``extra["family"]`` is empty for goodware.

    Examples
    --------
    >>> from transcendent.datasets import load_apigraph
    >>> load_apigraph("data")  # doctest: +SKIP
    apigraph: 320,315 objects (0: 289,511, 1: 30,804), 1,159 columns, 2012-12..2018-12
    """
    folder = _folder(data_home)
    columns = _read_columns(folder / "apigraph_meta.parquet", ["month", "y", "family"])
    months = [_BLOCK[-7:] if month == _BLOCK else month for month in columns["month"].tolist()]
    positions: dict[str, int] = json.loads(existing(folder / "apigraph_features.json").read_text("utf-8"))
    order = np.random.default_rng(0).permutation(len(months))
    apps = Dataset(
        X=_read_matrix(folder / "apigraph_X.npz")[order],
        y=columns["y"].astype(np.int64)[order],
        times=np.array(months, dtype="datetime64[M]")[order],
        extra={"family": columns["family"].astype(str)[order]},
        feature_names=np.array(sorted(positions, key=positions.__getitem__)),
        name="apigraph",
    )
    return apps[_first_of_equal(apps)] if deduplicate else apps


def load_lamda(data_home: str | Path | None = None) -> Dataset:
    """Android malware of 154 families as binary features, 2013-06 to 2024-11, none of 2015 (LAMDA).

    Parameters
    ----------
    data_home : path or None
        Folder with ``lamda_malware_X.npz`` and ``lamda_malware_meta.parquet``; None is
        ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        y is the family, times are months, X is CSR, ``extra["hash"]`` identifies apps. ``vt_count`` leaks
        the label and is not read.

    Examples
    --------
    >>> from transcendent.datasets import load_lamda
    >>> load_lamda("data")  # doctest: +SKIP
    lamda: 51,411 objects (airpush: 4,772, dnotua: 4,961, dowgin: 6,611, 151 more classes), 4,561 columns, ...
    """
    folder = _folder(data_home)
    columns = _read_columns(folder / "lamda_malware_meta.parquet", ["year_month", "family", "hash"])
    return Dataset(
        X=_read_matrix(folder / "lamda_malware_X.npz"),
        y=columns["family"].astype(str),
        times=columns["year_month"].astype("datetime64[M]"),
        extra={"hash": columns["hash"].astype(str)},
        name="lamda",
    )


def load_nvd(data_home: str | Path | None = None) -> Dataset:
    """Texts of published vulnerabilities and how severe they are: HIGH, MEDIUM or LOW by CVSS version 2.

    Vulnerabilities published after 2018, which are few in the file (1,627 of 2020), and those without a
    severity are left out.

    Parameters
    ----------
    data_home : path or None
        Folder with ``nvd_cve.parquet``; None is ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        X is an array of texts, y the severity, times are the days of publication.

    Examples
    --------
    >>> from transcendent.datasets import load_nvd
    >>> load_nvd("data")  # doctest: +SKIP
    nvd: 111,114 objects (HIGH: 40,852, LOW: 9,143, MEDIUM: 61,119), 1988-10-01..2018-12-31
    """
    columns = _read_columns(_folder(data_home) / "nvd_cve.parquet", ["published", "desc", "sev2"])
    usable = (columns["published"] < _NVD_END) & np.array([bool(s) for s in columns["sev2"]])
    return Dataset(
        X=columns["desc"][usable],
        y=columns["sev2"][usable].astype(str),
        times=columns["published"][usable].astype("datetime64[D]"),
        name="nvd",
    )


def load_trec07p(data_home: str | Path | None = None) -> Dataset:
    """Mail of three months of 2007 as hashed words, two thirds of it spam (TREC): almost no drift.

    Parameters
    ----------
    data_home : path or None
        Folder with ``trec07p_X.npz`` and ``trec07p_meta.parquet``; None is ``TRANSCENDENT_DATA``.

    Returns
    -------
    Dataset
        y is 1 for spam, times are the seconds of arrival (UTC), X is CSR.

    Examples
    --------
    >>> from transcendent.datasets import load_trec07p
    >>> load_trec07p("data")  # doctest: +SKIP
    trec07p: 75,419 objects (0: 25,220, 1: 50,199), 131,072 columns, 2007-04-08T17:07:21..2007-07-06T11:04:53
    """
    folder = _folder(data_home)
    columns = _read_columns(folder / "trec07p_meta.parquet", ["received", "spam"])
    return Dataset(
        X=_read_matrix(folder / "trec07p_X.npz"),
        y=columns["spam"].astype(np.int64),
        times=columns["received"].astype("datetime64[s]"),
        name="trec07p",
    )


def _folder(data_home: str | Path | None) -> Path:
    folder = data_home or os.environ.get(_VARIABLE)
    if not folder:
        raise ValueError(
            f"no folder with the data is given: pass data_home= or set the environment variable {_VARIABLE}."
        )
    return Path(folder)


def _read_columns(path: Path, columns: list[str]) -> dict[str, AnyArray]:
    existing(path)
    table = extra("pyarrow.parquet", "frames").read_table(path, columns=columns)
    return {name: table[name].to_numpy() for name in columns}


def _read_matrix(path: Path) -> Any:
    matrix = sp.load_npz(existing(path))
    check_sparse(matrix, str(path))
    return sp.csr_matrix(matrix, dtype=np.float64)


def _first_of_equal(apps: Dataset) -> IntArray:
    groups, _ = group_equal_rows(apps.X)
    months = (apps.times - apps.times.min()).astype(np.intp)
    keys = np.ravel_multi_index((groups, months, apps.y), (len(apps), int(months.max()) + 1, 2))
    _, first = np.unique(keys, return_index=True)
    return np.sort(first)
