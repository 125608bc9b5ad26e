"""Labelled objects as Parquet tables, to learn from or to fit on.

A table has the columns of the frame that the detector was fitted on, with their types, or ``positions`` and
``values`` if there was no frame. The names of all other columns begin with ``gate_``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray
from transcendent._utils.extras import extra
from transcendent.errors import TranscendentError
from transcendent.tables.layout import Layout

_ROWS = 5000
# Objects of dropped months come first: they have the smallest ids, so that all rows are in the order of ids.
# An accepted object with a rank of 1 or more was kept because a shadow disagreed: it is not of the audit.
_SOURCES = (
    "example",
    """(SELECT payload.*, item.received_at, item.model, payload.accepted AND item.rank >= 1 AS disagreed
    FROM item JOIN payload ON payload.id = item.id
    WHERE item.state = 1)""",
)
# The types in the fit may differ: numbers are numbers. So may names that are only shown.
_SAME_COLUMNS = """(CAST(:columns AS jsonb) IS NULL
    OR model.features - 'dtypes' - 'shown_names'
    = CAST(:columns AS jsonb) - 'dtypes' - 'shown_names')"""
# The label of an item is its last action; `state` is 1 only if that is a label. LATERAL finds each with one
# step in the index `label_item`; a window over all labels would sort them.
_LABELLED = f"""
SELECT kept.object_id AS id, last.label, kept.label AS predicted, kept.accepted, kept.probability,
    kept.accepted AND NOT kept.disagreed AND outside.source IS NULL AS audited,
    kept.received_at, last.written_at AS labelled_at, last.author, remark.reason, remark.note, outside.source,
    inferred.how AS inferred, model.digest AS model, model.features->'count' AS width, kept.id AS item,
    kept.features AS encoded, kept.context, kept.seen_at, kept.shown AS features
FROM {{}} AS kept JOIN model ON model.id = kept.model
JOIN LATERAL (SELECT * FROM label WHERE label.item = kept.id ORDER BY label.id DESC LIMIT 1) AS last ON true
LEFT JOIN remark ON remark.label = last.id LEFT JOIN outside_label AS outside ON outside.action = last.id
LEFT JOIN inferred ON inferred.label = last.id
WHERE (inferred.label IS NULL OR :inferred) AND outside.teach IS NOT FALSE
    AND starts_with(model.digest, :model) AND {_SAME_COLUMNS}
    AND (CAST(:since AS timestamptz) IS NULL OR last.written_at >= :since) ORDER BY kept.id
"""
# Of the last label of each other system, the newest that is to teach, if the item itself has no label. One
# with an action was the item's label, which was undone.
_OUTSIDE = f"""
SELECT payload.object_id AS id, last.label, payload.label AS predicted, payload.accepted, payload.probability,
    false AS audited, item.received_at, last.written_at AS labelled_at, last.author, said.reason,
    NULL AS note, last.source, NULL AS inferred,
    model.digest AS model, model.features->'count' AS width, item.id AS item,
    payload.features AS encoded, payload.context, payload.seen_at, payload.shown AS features
FROM (
    SELECT DISTINCT ON (item) * FROM (
        SELECT DISTINCT ON (item, source) * FROM outside_label ORDER BY item, source, id DESC
    ) AS of_source WHERE teach AND action IS NULL ORDER BY item, id DESC
) AS last
JOIN item ON item.id = last.item JOIN payload ON payload.id = last.item JOIN model ON model.id = item.model
LEFT JOIN outside_reason AS said ON said.outside = last.id
WHERE item.state <> 1 AND starts_with(model.digest, :model) AND {_SAME_COLUMNS}
    AND (CAST(:since AS timestamptz) IS NULL OR last.written_at >= :since) ORDER BY item.id
"""
_MODELS = f"""
SELECT digest, features FROM model WHERE starts_with(digest, :model) AND {_SAME_COLUMNS}
    AND (EXISTS (SELECT FROM item WHERE item.model = model.id AND item.state = 1)
        OR EXISTS (SELECT FROM example WHERE example.model = model.id)
        OR model.id IN (
            SELECT model FROM outside_label JOIN item ON item.id = outside_label.item WHERE teach
        )) ORDER BY id
"""
_MAX_CELLS = 2_000_000
_MAX_EXACT = 1 << 53  # above it, a whole number may have lost digits
_METADATA = b"transcendent"


class Labelled(NamedTuple):
    """Labelled objects of a quarantine.

    Attributes
    ----------
    X : frame or sparse matrix of shape (n, features), or array of n texts
        As the detector was fitted on them: a frame if it was fitted on one.
    y : array of shape (n,)
        The analysts' labels, of the type of ``classes`` if those were given, else text.
    probability : array of shape (n,)
        The chance of having been kept: 1 for rejected objects, the audit rate for accepted ones, and more
        for those that were kept because a shadow disagreed.
    audited : bool array of shape (n,)
        Whether the object was accepted and drawn for the audit.
    table : pyarrow.Table
        All columns.
    """

    X: Any
    y: AnyArray
    probability: FloatArray
    audited: BoolArray
    table: Any


def read_labelled(
    path: Any, classes: Any = None, *, unknown: Literal["refuse", "drop"] = "refuse"
) -> Labelled:
    """Read labelled objects that ``transcendent gate quarantine export`` or `GateClient.labelled` returned.

    Parameters
    ----------
    path : path or file
        A Parquet file.
    classes : sequence or None
        The detector's ``classes_``. Labels are stored as text and converted back to these, so that "1"
        becomes the number 1.
    unknown : {"refuse", "drop"}
        Whether to raise on labels that are not classes, such as "unclear", or to drop their objects.
    """
    table = extra("pyarrow.parquet", "gate").read_table(path)
    if classes is not None and unknown == "drop":
        known = set(map(str, np.asarray(classes).tolist()))
        table = table.filter([label in known for label in table["gate_label"].to_pylist()])
    X = _sparse(table) if "gate_width" in table.column_names else _frame(table)
    y = _labels(table["gate_label"].to_pylist(), classes)
    audited = table["gate_audited"].to_numpy() & table["gate_source"].is_null().to_numpy()
    return Labelled(X, y, table["gate_probability"].to_numpy(), audited, table)


def _sparse(table: Any) -> Any:
    widths = table["gate_width"].unique().to_pylist()
    starts = np.concatenate([[0], np.cumsum(table["positions"].combine_chunks().value_lengths().to_numpy())])
    positions = table["positions"].combine_chunks().flatten().to_numpy()
    values = table["values"].combine_chunks().flatten().to_numpy()
    return sp.csr_matrix((values, positions, starts), shape=(len(table), widths[0] if widths else 0))


def _frame(table: Any) -> Any:
    """Return the features with the types of the fit; whole numbers are int64 if none is missing."""
    names = [name for name in table.column_names if not name.startswith("gate_")]
    described = (table.schema.metadata or {}).get(_METADATA)
    if described is None:  # another program wrote the file
        return table.select(names).to_pandas()
    layout, types = Layout.described(json.loads(described)), extra("pyarrow.types", "gate")
    columns = {name: table[name].combine_chunks().to_numpy(zero_copy_only=False) for name in names}
    frame = layout.frame(columns)
    whole = [name for name in names if types.is_int64(table[name].type) and not table[name].null_count]
    return frame.astype(dict.fromkeys(whole, np.int64)) if whole else frame


def _labels(texts: list[str], classes: Any) -> AnyArray:
    if classes is None:
        return np.array(texts, dtype=np.str_)
    known = np.asarray(classes)
    places = {str(label): place for place, label in enumerate(known.tolist())}
    if unknown := sorted(set(texts) - places.keys()):
        raise ValueError(
            f"the labels {unknown[:5]} are not among {list(places)[:5]}: unknown='drop' drops their objects."
        )
    return known[[places[each] for each in texts]]


class ColumnsDifferError(TranscendentError, ValueError):
    """Objects of models with different columns cannot be written together."""


class _FractionError(Exception):
    """A number in a column of whole numbers is not whole; the argument is the column."""


def schema(layout: Layout | None = None, types: Mapping[str, str] | None = None) -> Any:
    """Return the columns of the exported table; ``types`` are the Arrow types of numbers by column."""
    pa = extra("pyarrow", "gate")
    moment = pa.timestamp("us", tz="UTC")
    own = {
        **dict.fromkeys(("id", "label", "predicted"), pa.string()),
        "accepted": pa.bool_(),
        "probability": pa.float64(),
        "audited": pa.bool_(),
        "received_at": moment,
        "labelled_at": moment,
        **dict.fromkeys(("author", "reason", "note", "model"), pa.string()),
        "item": pa.int64(),
        "source": pa.string(),
        "inferred": pa.string(),
        "context": pa.string(),
        "seen_at": moment,
        **({"features": pa.string()} if layout is not None and layout.scores else {}),
    }
    added = {f"gate_{name}": kind for name, kind in own.items()}
    if layout is None or layout.names is None:
        lists = {"positions": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
        return pa.schema({**lists, **added, "gate_width": pa.int32()})
    kinds = {"boolean": pa.bool_(), "text": pa.string()}
    features = {
        name: kinds.get(layout.kinds.get(name, "number")) or pa.type_for_alias((types or {})[name])
        for name in layout.names
    }
    description = json.dumps(layout.description()).encode()
    return pa.schema({**features, **added}, metadata={_METADATA: description})


def export_labelled(
    engine: Any,
    target: Any,
    *,
    model: str = "",
    since: datetime | None = None,
    columns: dict[str, Any] | None = None,
    opinions: int = 1,
    inferred: bool = False,
) -> int:
    """Write labelled objects to a path or a file as Parquet, and return their number.

    ``model`` is a digest, or how it begins: only objects that this model decided are written. Models with
    different columns cannot be written together; ``columns``, the description of a layout, leaves out those
    with others. With ``since``, only objects labelled then or later are. With ``opinions=2``, only objects
    on whose label two analysts agree are, with that label. Labels that nobody gave are left out unless
    ``inferred``.
    """
    fractions: set[str] = set()
    wanted = {"model": model, "since": since, "inferred": inferred}
    wanted["columns"] = None if columns is None else json.dumps(columns)
    while True:
        try:
            return _export(engine, target, wanted, fractions, opinions)
        except _FractionError as error:  # write the file again, with this column as fractions
            fractions.add(str(error))
            if hasattr(target, "truncate"):
                target.seek(0)
                target.truncate()


def _export(engine: Any, target: Any, wanted: dict[str, Any], fractions: set[str], opinions: int) -> int:
    from sqlalchemy import text

    pa, pq = extra("pyarrow", "gate"), extra("pyarrow.parquet", "gate")
    # Labels that are only recorded are the opinion of one system alone.
    sources = [*map(_LABELLED.format, _SOURCES), *([_OUTSIDE] if opinions == 1 else [])]
    options = {"yield_per": _ROWS, "isolation_level": "REPEATABLE READ"}  # the models are those of all rows
    with engine.connect().execution_options(**options) as connection:
        models = connection.execute(text(_MODELS), wanted).mappings().all()
        layout = _common_layout(models)
        columns = schema(layout, _number_types(layout, models, fractions))
        at_once = min(_ROWS, max(1, _MAX_CELLS // max(1, layout.width)))
        written = 0
        with pq.ParquetWriter(target, columns) as writer:
            for part in chain.from_iterable(
                connection.execute(text(sql), wanted).mappings().partitions(at_once) for sql in sources
            ):
                if opinions > 1 and not (part := _agreed(connection, part)):
                    continue
                rows = {f"gate_{name}": [row[name] for row in part] for name in part[0]}
                rows |= _features(layout, map(bytes, rows["gate_encoded"]), columns)
                arrays = [pa.array(rows[each.name], each.type) for each in columns]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=columns))
                written += len(part)
    return written


def _agreed(connection: Any, part: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the objects on whose label two analysts agree, with that label."""
    from transcendent.gate.opinions import opinions_on

    said = opinions_on(connection, [row["item"] for row in part])
    agreed = [(row, said[row["item"]].agreed) for row in part]
    return [{**row, "label": label} for row, label in agreed if label is not None]


def _common_layout(models: Sequence[Mapping[str, Any]]) -> Layout:
    """Return the columns of all models; raise if they differ."""
    layouts = [Layout.described(each["features"]) for each in models] or [Layout(0)]
    for each, layout in zip(models, layouts, strict=False):
        if (layout.names, layout.kinds, layout.width) != (
            layouts[-1].names,
            layouts[-1].kinds,
            layouts[-1].width,
        ):
            digests = f"{each['digest'][:12]} and {models[-1]['digest'][:12]}"
            raise ColumnsDifferError(
                f"the labelled objects are of models with different columns, such as {digests}: export those "
                f"of one model (--model DIGEST), such as --model {models[-1]['digest'][:12]}."
            )
    return layouts[-1]


def _number_types(layout: Layout, models: Sequence[Mapping[str, Any]], fractions: set[str]) -> dict[str, str]:
    """Return the Arrow type of each column of numbers: the one it had in every fit, or else float64."""
    found = [Layout.described(each["features"]).dtypes for each in models]
    types = {}
    for name in layout.names or ():
        dtypes = {each.get(name, "float64") for each in found}
        whole = all(dtype.startswith(("int", "uint")) for dtype in dtypes) and name not in fractions
        types[name] = "int64" if whole else "float32" if dtypes == {"float32"} else "float64"
    return types


def _features(layout: Layout, encoded: Iterable[bytes], columns: Any) -> dict[str, Any]:
    """Return the columns with features."""
    from transcendent.gate.features import decode

    rows = list(map(decode, encoded))
    if layout.names is None:
        return {
            "positions": [positions for positions, _ in rows],
            "values": [values for _, values in rows],
        }
    cells = np.zeros((len(rows), layout.width), dtype=object if layout.text else np.float64)
    for row, (positions, values) in zip(cells, rows, strict=True):
        row[positions] = values
    kinds = [layout.kinds.get(name, "number") for name in layout.names]
    return {
        name: _cells(column, kind, columns.field(name))
        for name, column, kind in zip(layout.names, cells.T, kinds, strict=True)
    }


def _cells(column: AnyArray, kind: str, stored: Any) -> Any:
    """Return a column for Arrow, with nulls for missing values."""
    pa = extra("pyarrow", "gate")
    if kind == "text":
        return [cell if isinstance(cell, str) else None for cell in column]
    numbers = column.astype(np.float64)
    missing = np.isnan(numbers)
    known = np.where(missing, 0, numbers)
    if kind == "number" and pa.types.is_integer(stored.type):
        if np.any(known != np.round(known)) or np.abs(known).max(initial=0) > _MAX_EXACT:
            raise _FractionError(stored.name)
        known = known.astype(np.int64)
    return pa.array(known == 1 if kind == "boolean" else known, stored.type, mask=missing)
