"""Labelled objects as Parquet tables, to learn from or to fit on."""

from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, FloatArray
from transcendent._utils.extras import extra

_ROWS = 5000
# The label of an item is its last action; `state` is 1 only if that is a label. LATERAL finds each with one
# step in the index `label_item`; a window over all labels would sort them.
_LABELLED = """
SELECT payload.object_id AS id, last.label, payload.label AS predicted, payload.accepted, payload.probability,
    item.received_at, last.written_at AS labelled_at, last.author, last.reason, last.note,
    model.digest AS model, model.features->'count' AS width, item.id AS item, payload.features
FROM item JOIN payload ON payload.id = item.id JOIN model ON model.id = item.model
JOIN LATERAL (SELECT * FROM label WHERE label.item = item.id ORDER BY label.id DESC LIMIT 1) AS last ON true
WHERE item.state = 1 ORDER BY item.id
"""


class Labelled(NamedTuple):
    """Labelled objects of a quarantine.

    Attributes
    ----------
    X : sparse matrix of shape (n, features)
    y : array of shape (n,)
        The analysts' labels, of the type of ``classes`` if those were given, else text.
    probability : array of shape (n,)
        The chance of having been kept: 1 for rejected objects, the audit rate for accepted ones.
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
        table = table.filter([label in known for label in table["label"].to_pylist()])
    widths = set(table["width"].to_pylist())
    if len(widths) > 1:
        raise ValueError(
            f"the objects have {sorted(widths)} features, from different models: "
            "split the file by its column 'model'."
        )
    starts = np.concatenate([[0], np.cumsum(table["positions"].combine_chunks().value_lengths().to_numpy())])
    positions = table["positions"].combine_chunks().flatten().to_numpy()
    values = table["values"].combine_chunks().flatten().to_numpy()
    X = sp.csr_matrix((values, positions, starts), shape=(len(table), widths.pop() if widths else 0))
    y = _labels(table["label"].to_pylist(), classes)
    return Labelled(X, y, table["probability"].to_numpy(), table["accepted"].to_numpy(), table)


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


def schema() -> Any:
    """Return the columns of the exported table."""
    pa = extra("pyarrow", "gate")
    moment = pa.timestamp("us", tz="UTC")
    return pa.schema(
        {
            **dict.fromkeys(("id", "label", "predicted"), pa.string()),
            "accepted": pa.bool_(),
            "probability": pa.float64(),
            "received_at": moment,
            "labelled_at": moment,
            **dict.fromkeys(("author", "reason", "note", "model"), pa.string()),
            "width": pa.int32(),
            "item": pa.int64(),
            "positions": pa.list_(pa.int32()),
            "values": pa.list_(pa.float64()),
        }
    )


def export_labelled(engine: Any, target: Any) -> int:
    """Write all labelled objects to a path or a file as Parquet, and return their number."""
    from sqlalchemy import text

    from transcendent.gate.features import decode

    pa, pq = extra("pyarrow", "gate"), extra("pyarrow.parquet", "gate")
    written, reading = 0, engine.connect().execution_options(yield_per=_ROWS)
    with reading as connection, pq.ParquetWriter(target, schema()) as writer:
        for part in connection.execute(text(_LABELLED)).mappings().partitions(_ROWS):
            rows = []
            for row in part:
                positions, values = decode(bytes(row["features"]))
                rows.append({**row, "positions": positions, "values": values})
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema()))
            written += len(rows)
    return written
