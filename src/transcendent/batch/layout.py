"""Where the features are in a table, checked against what the rejector was fitted on."""

from typing import Any

from transcendent._utils.extras import extra
from transcendent.batch.rows import Layout


def find_layout(rejector: Any, schema: Any, features: Any, values: str | None) -> Layout:
    """Where the features are, checked against what the rejector was fitted on."""
    names = list(getattr(rejector, "feature_names_in_", ()))
    width = getattr(rejector, "n_features_in_", None)
    whole = isinstance(features, str)
    chosen = (features,) if isinstance(features, str) else tuple(features if features is not None else names)
    if not chosen:
        raise ValueError(
            "the rejector was not fitted on columns with names: say which hold its features, in the same "
            f"order (features=[...]), or which one holds whole rows. There are {_some(schema.names)}."
        )
    for name in (*chosen, *([values] if values else [])):
        if name not in schema.names:
            raise ValueError(f"the table has no column {name!r}; there are {_some(schema.names)}.")
    if not whole:
        _check_columns(schema, chosen, names, width)
    else:
        _check_whole(schema.field(chosen[0]), schema.field(values) if values else None, width)
    return Layout(chosen, whole, values, width, bool(names) and not whole)


def _check_columns(schema: Any, chosen: tuple[str, ...], names: list[str], width: int | None) -> None:
    if names and list(chosen) != names:
        raise ValueError(f"the rejector was fitted on the columns {_some(names)}, in this order.")
    if width is not None and len(chosen) != width:
        raise ValueError(
            f"the rejector was fitted on {width} features; features names {len(chosen)} columns."
        )
    if not names:
        for name in chosen:
            _check_numbers(name, schema.field(name).type)


def _check_numbers(name: str, kind: Any) -> None:
    types = extra("pyarrow", "dask").types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise ValueError(f"the column {name!r} holds {kind}, not numbers.")


def _check_whole(field: Any, values: Any, width: int | None) -> None:
    types = extra("pyarrow", "dask").types
    lists = _holds_lists(field.type)
    if values is not None:
        if not lists or not _holds_lists(values.type):
            wrong = values if lists else field
            raise ValueError(f"values go with a column of lists; {wrong.name!r} holds {wrong.type}.")
        _check_numbers(values.name, values.type.value_type)
    if types.is_fixed_size_list(field.type):
        _check_numbers(field.name, field.type.value_type)
        if width is not None and field.type.list_size != width:
            raise ValueError(
                f"the rejector was fitted on {width} features; {field.name!r} holds {field.type.list_size}."
            )
    elif lists:
        if not types.is_integer(field.type.value_type):
            raise ValueError(
                f"{field.name!r} holds {field.type}: lists are of positions that are not zero, as integers."
            )
        if width is None:
            raise ValueError("sparse rows need a rejector that knows its number of features.")
    elif not (types.is_string(field.type) or types.is_large_string(field.type)):
        raise ValueError(f"the column {field.name!r} holds {field.type}: neither lists nor text.")


def _holds_lists(kind: Any) -> bool:
    types = extra("pyarrow", "dask").types
    return bool(types.is_list(kind) or types.is_large_list(kind))


def find_identifier(schema: Any, given: str | None, noted: str | None) -> str | None:
    """The column that names objects: what was asked for, or what the artifact notes, if it is there."""
    if given is not None and given not in schema.names:
        raise ValueError(f"the table has no column {given!r}; there are {_some(schema.names)}.")
    return given if given is not None or noted not in schema.names else noted


def _some(names: Any) -> str:
    return ", ".join(map(str, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
