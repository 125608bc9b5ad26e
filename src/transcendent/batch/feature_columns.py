"""The columns with features, checked against those the rejector was fitted on."""

from typing import Any

from transcendent._utils.extras import extra
from transcendent._utils.text import some
from transcendent.batch.rows import ArrowRows, are_lists
from transcendent.decisions import declared
from transcendent.tables.layout import Layout


def find_rows(rejector: Any, schema: Any, features: Any, values: str | None) -> ArrowRows:
    """Return a reader of the columns with features, checked against those the rejector was fitted on."""
    fitted = declared(rejector).fitted
    names, width = list(() if fitted.feature_names is None else fitted.feature_names), fitted.n_features
    whole = isinstance(features, str)
    chosen = (features,) if isinstance(features, str) else tuple(names if features is None else features)
    if not chosen:
        raise ValueError(
            "the rejector was not fitted on columns with names: name the columns with its features, in the "
            f"same order (features=[...]), or the one with whole rows. The table has {some(schema.names, 8)}."
        )
    for name in (*chosen, *([values] if values else [])):
        check_column(schema, name)
    if whole:
        _check_whole(schema, chosen[0], values, width)
    elif names and list(chosen) != names:
        raise ValueError(f"the rejector was fitted on the columns {some(names, 8)}, in this order.")
    elif width is not None and len(chosen) != width:
        raise ValueError(f"the rejector was fitted on {width} features, but {len(chosen)} columns are named.")
    elif not names:
        for name in chosen:
            _check_numbers(name, schema.field(name).type)
    return ArrowRows(Layout(width or 0, names or None), chosen, whole, values)


def check_column(schema: Any, name: str) -> None:
    """Raise if the table has no column of this name."""
    if name not in schema.names:
        raise ValueError(f"the table has no column {name!r}; it has {some(schema.names, 8)}.")


def _check_whole(schema: Any, name: str, values: str | None, width: int | None) -> None:
    types, kind = extra("pyarrow", "dask").types, schema.field(name).type
    if values:
        for column in map(schema.field, (name, values)):
            if not are_lists(column.type):
                raise ValueError(f"values need columns of lists; {column.name!r} holds {column.type}.")
        _check_numbers(values, schema.field(values).type.value_type)
    if types.is_fixed_size_list(kind):
        _check_numbers(name, kind.value_type)
        if width not in (None, kind.list_size):
            raise ValueError(f"the rejector was fitted on {width} features; {name!r} holds {kind.list_size}.")
    elif are_lists(kind):
        if not types.is_integer(kind.value_type):
            raise ValueError(f"{name!r} holds {kind}, not lists of the integer positions that are not zero.")
        if width is None:
            raise ValueError("sparse rows need a rejector that knows its number of features.")
    elif not (types.is_string(kind) or types.is_large_string(kind)):
        raise ValueError(f"the column {name!r} holds {kind}: neither lists nor text.")


def _check_numbers(name: str, kind: Any) -> None:
    types = extra("pyarrow", "dask").types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ValueError(f"the column {name!r} holds {kind}, not numbers.")
