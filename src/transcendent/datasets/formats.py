"""Loaders of the file formats in which authors publish data sets."""

import csv
import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction import DictVectorizer

from transcendent._utils.arrays import AnyArray, IntArray, chunks
from transcendent.datasets.base import Dataset, check_file

_FLOAT_BYTES = 4
_ROWS_AT_ONCE = 4096
_EMBER_COLUMNS = ("sha256", "appeared", "label", "avclass")
_DATE = re.compile(r"(?<!\d)(\d{4})([/-])(\d{2})\2(\d{2})(?!\d)")


def load_tesseract(X_path: str | Path, y_path: str | Path, meta_path: str | Path) -> Dataset:
    """Load Android apps from the JSON files of TESSERACT and Transcendent.

    Parameters
    ----------
    X_path : path
        A list with a dict ``{feature: value}`` per app (``extended-features-X.json``). The ``"sha256"``
        among the features of older releases is dropped.
    y_path : path
        A list with 0 or 1 (malware) per app; older releases wrap each label in a list.
    meta_path : path
        A list with a dict per app: ``"dex_date"`` is its time, ``"sha256"`` (optional) its hash.

    Returns
    -------
    Dataset
        X is CSR with ``feature_names``, y is 1 for malware, times are in seconds, and ``extra["sha256"]`` is
        there if the metadata have it.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from transcendent.datasets import load_tesseract
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, content in {
    ...     "X": [{"permission::SEND_SMS": 1}, {"activity::Main": 1}],
    ...     "y": [1, 0],
    ...     "meta": [{"dex_date": "2014-03-01T00:00:00"}, {"dex_date": "2014-02-01 00:00:00"}],
    ... }.items():
    ...     _ = (folder / f"{name}.json").write_text(json.dumps(content))
    >>> load_tesseract(folder / "X.json", folder / "y.json", folder / "meta.json")
    tesseract: 2 objects (0: 1, 1: 1), 2 columns, 2014-02-01T00:00:00..2014-03-01T00:00:00
    """
    apps, meta = _read_records(X_path), _read_records(meta_path)
    labels = [label[0] if isinstance(label, list) and label else label for label in _read_list(y_path)]
    _check_equal_counts({X_path: len(apps), y_path: len(labels), meta_path: len(meta)})
    hashes = [about.get("sha256") for about in meta]
    _check_hashes([app.pop("sha256", None) for app in apps], hashes, X_path, meta_path)
    vectorizer = DictVectorizer()
    return Dataset(
        X=sp.csr_matrix(vectorizer.fit_transform(apps)),
        y=_as_binary(labels, y_path),
        times=_parse_times([str(m.get("dex_date")) for m in meta], "%Y-%m-%dT%H:%M:%S", "s", meta_path),
        extra={"sha256": np.array(hashes)} if all(hashes) else {},
        feature_names=vectorizer.get_feature_names_out(),
        name="tesseract",
    )


def load_ember(
    folder: str | Path,
    width: int = 2381,
    *,
    subset: Literal["train", "test"] | None = None,
    keep_unlabelled: bool = False,
) -> Dataset:
    """Load Windows programs from the vectorised files of EMBER.

    The features stay on disk, memory-mapped, if the selected objects are consecutive rows of one file in
    order of time. Otherwise they are copied into memory, with ``4 * width`` bytes per object: 7.6 GB for the
    800,000 labelled programs of EMBER 2018. Reading a million rows of metadata takes ten seconds and 1 GB.

    Parameters
    ----------
    folder : path
        The folder with ``X_train.dat``, ``y_train.dat``, ``X_test.dat``, ``y_test.dat`` (float32) and
        ``metadata.csv`` (``sha256``, ``appeared``, ``subset``, ``label`` and optionally ``avclass``).
    width : int
        Number of features: 2381 in version 2, 2351 in version 1.
    subset : {"train", "test"} or None
        The subset to read; None reads both.
    keep_unlabelled : bool
        Whether to keep programs without a label, which have the label -1.

    Returns
    -------
    Dataset
        X is float32, y is 1 for malware, times are months; ``extra`` has ``"sha256"`` and, if the metadata
        have it, ``"avclass"``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from transcendent.datasets import load_ember
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.eye(3, dtype=np.float32).tofile(folder / "X_train.dat")
    >>> np.array([0, -1, 1], dtype=np.float32).tofile(folder / "y_train.dat")
    >>> rows = ["a,2018-02,train,0", "b,2018-01,train,-1", "c,2018-01,train,1"]
    >>> text = "\\n".join(["sha256,appeared,subset,label", *rows])
    >>> _ = (folder / "metadata.csv").write_text(text)
    >>> load_ember(folder, width=3, subset="train")
    ember: 2 objects (0: 1, 1: 1), 3 columns, 2018-01..2018-02
    """
    if subset not in ("train", "test", None):
        raise ValueError(f'subset must be "train", "test" or None, got {subset!r}.')
    subsets = ("train", "test") if subset is None else (subset,)
    files = {name: _map_features(Path(folder), name, width) for name in subsets}
    metadata = Path(folder) / "metadata.csv"
    columns = _read_metadata(metadata, {name: y for name, (_, y) in files.items()})
    labels = np.concatenate([y for _, y in files.values()])
    times = _parse_times(columns["appeared"].tolist(), "%Y-%m", "M", metadata)
    kept = np.flatnonzero(labels >= (-1 if keep_unlabelled else 0))
    order = kept[np.argsort(times[kept], kind="stable")]
    return Dataset(
        X=_gather([X for X, _ in files.values()], order),
        y=labels[order],
        times=times[order],
        extra={name: columns[name][order] for name in ("sha256", "avclass") if name in columns},
        name="ember",
    )


def load_hidost(libsvm_path: str | Path, dates_path: str | Path) -> Dataset:
    """Load PDF documents from the libsvm files of Hidost.

    Parameters
    ----------
    libsvm_path : path
        Features and labels (0 or -1, and 1 for malware); lines may end in a comment.
    dates_path : path
        A text file with a date (``YYYY/MM/DD`` or ``YYYY-MM-DD``) for each document: a list of paths, or the
        libsvm file itself if its comments have the dates. The first date of a line counts. Lines without a
        date are skipped.

    Returns
    -------
    Dataset
        X is CSR, y is 1 for malware, times are days.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from transcendent.datasets import load_hidost
    >>> path = Path(tempfile.mkdtemp()) / "w08-train.libsvm"
    >>> _ = path.write_text("1 1:1 3:1 # pdf/2012/08/02/a.pdf\\n0 2:1 # pdf/2012/08/01/b.pdf\\n")
    >>> load_hidost(path, path)
    hidost: 2 objects (0: 1, 1: 1), 3 columns, 2012-08-01..2012-08-02
    """
    try:
        X, y = load_svmlight_file(str(check_file(libsvm_path)))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{libsvm_path} is not a libsvm file: {error}") from error
    with check_file(dates_path).open(encoding="utf-8", errors="replace") as lines:
        dates = ["-".join(match.group(1, 3, 4)) for match in map(_DATE.search, lines) if match]
    _check_equal_counts({libsvm_path: len(y), f"the dates of {dates_path}": len(dates)})
    return Dataset(
        X=sp.csr_matrix(X),
        y=_as_binary(np.where(y == -1, 0, y).tolist(), libsvm_path),
        times=_parse_times(dates, "%Y-%m-%d", "D", dates_path),
        name="hidost",
    )


def _read_list(path: str | Path) -> list[Any]:
    try:
        content = json.loads(check_file(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, list) or not content:
        raise ValueError(f"{path} must be a list with an entry per object, got {content!r:.80}.")
    return content


def _read_records(path: str | Path) -> list[dict[str, Any]]:
    records = _read_list(path)
    for position, record in enumerate(records):
        if not isinstance(record, dict):
            raise ValueError(f"{path}: entry {position} must be a dict, got {record!r:.80}.")
    return records


def _check_equal_counts(counts: dict[str | Path, int]) -> None:
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{path}: {count}" for path, count in counts.items())
        raise ValueError(f"the files have different numbers of objects ({listed}).")


def _check_hashes(inner: list[Any], outer: list[Any], X_path: str | Path, meta_path: str | Path) -> None:
    for position, pair in enumerate(zip(inner, outer, strict=True)):
        if all(pair) and str(pair[0]).lower() != str(pair[1]).lower():
            raise ValueError(
                f"{X_path} and {meta_path} are not in the same order: sha256 of entry {position} differs."
            )


def _as_binary(labels: list[Any], path: str | Path) -> IntArray:
    if unknown := [label for label in labels if label not in (0, 1)]:
        raise ValueError(f"{path} must have only the labels 0 and 1, got {unknown[0]!r}.")
    return np.array(labels, dtype=np.intp)


def _parse_times(texts: Sequence[str], pattern: str, unit: str, path: str | Path) -> AnyArray:
    """Parse times with T or a space before the hour, each distinct text once."""
    parsed = {}
    for text in set(texts):
        try:
            parsed[text] = datetime.strptime(text.replace(" ", "T"), pattern)
        except ValueError:
            where = f"{path}: object {texts.index(text)}"
            raise ValueError(f"{where} has no valid date: {text!r}.") from None
    return np.array([parsed[text] for text in texts], dtype=f"datetime64[{unit}]")


def _map_features(folder: Path, subset: str, width: int) -> tuple[AnyArray, IntArray]:
    """Return the memory-mapped features of a subset, and its labels."""
    X_path, y_path = check_file(folder / f"X_{subset}.dat"), check_file(folder / f"y_{subset}.dat")
    n_rows, rest = divmod(y_path.stat().st_size, _FLOAT_BYTES)
    if rest or not n_rows:
        raise ValueError(f"{y_path} is empty or truncated: {y_path.stat().st_size} bytes.")
    expected = n_rows * width * _FLOAT_BYTES
    if X_path.stat().st_size != expected:
        raise ValueError(
            f"{X_path} has {X_path.stat().st_size} bytes, but {n_rows} labels in {y_path.name} with {width} "
            f"features each need {expected}: the file is truncated, or width is wrong."
        )
    labels = np.fromfile(y_path, dtype="<f4")
    if not np.isin(labels, (-1, 0, 1)).all():
        found = np.unique(labels)[:5].tolist()
        raise ValueError(f"{y_path} must have only the labels -1, 0 and 1, got {found}.")
    return np.memmap(X_path, dtype="<f4", mode="r", shape=(n_rows, width)), labels.astype(np.intp)


def _read_metadata(path: Path, labels: dict[str, IntArray]) -> dict[str, AnyArray]:
    """Return the columns of the metadata, subset by subset, with labels checked against ``labels``."""
    with check_file(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := {"sha256", "appeared", "subset", "label"} - set(reader.fieldnames or ()):
            raise ValueError(f"{path} has no column {', '.join(sorted(missing))}.")
        names = [name for name in reader.fieldnames or () if name in _EMBER_COLUMNS]
        rows: dict[str, list[list[str]]] = {subset: [] for subset in labels}
        for record in reader:
            if record["subset"] in rows:
                rows[record["subset"]].append([record[name] or "" for name in names])
    parts = [_check_metadata(path, names, rows[subset], subset, y) for subset, y in labels.items()]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _check_metadata(
    path: Path, names: list[str], rows: list[list[str]], subset: str, labels: IntArray
) -> dict[str, AnyArray]:
    _check_equal_counts({f"{subset} rows of {path}": len(rows), f"y_{subset}.dat": len(labels)})
    columns = {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    listed = np.array([label.removesuffix(".0") for label in columns["label"].tolist()])
    differ = np.flatnonzero(listed != labels.astype(str))
    if len(differ):
        raise ValueError(f"{path}: the label of {subset} row {differ[0]} differs from y_{subset}.dat.")
    return columns


def _gather(files: list[AnyArray], order: IntArray) -> AnyArray:
    """Return rows of the concatenated files: a view of consecutive rows of one file, otherwise a copy."""
    starts = np.cumsum([0, *map(len, files)])
    if len(order) and np.all(np.diff(order) == 1):
        (inside,) = np.flatnonzero((starts[:-1] <= order[0]) & (order[0] < starts[1:]))
        if order[-1] < starts[inside + 1]:
            return files[inside][order[0] - starts[inside] : order[-1] + 1 - starts[inside]]
    gathered = np.empty((len(order), files[0].shape[1]), dtype=np.float32)
    destination = np.full(starts[-1], -1)
    destination[order] = np.arange(len(order))
    for start, file in zip(starts, files, strict=False):
        for rows in chunks(len(file), _ROWS_AT_ONCE):
            targets = destination[start + rows.start : start + rows.stop]
            gathered[targets[targets >= 0]] = file[rows][targets >= 0]
    return gathered
