"""Reads the package for the reference: types as they are written, defaults and fields as Python sees them."""

import re
from collections.abc import Iterator
from typing import Any

import griffe

_VARIADIC = (griffe.ParameterKind.var_positional, griffe.ParameterKind.var_keyword)


class AsWritten(griffe.Extension):
    """Corrects what is read from docstrings, and adds the signatures that no method writes down."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through all classes and functions of a package."""
        for item in list(_classes_and_functions(pkg)):
            if item.is_class and "__init__" not in item.all_members and not _is_abstract(item):
                item.set_member("__init__", _constructor(item))
            if item.docstring is not None:
                _correct(item)


def _classes_and_functions(place: Any) -> Iterator[Any]:
    for item in place.members.values():
        if item.is_alias:
            continue
        if item.is_class or item.is_function:
            yield item
        if item.is_class or item.is_module:
            yield from _classes_and_functions(item)


def _is_abstract(item: Any) -> bool:
    """Whether it is a protocol, a base class or an error, none of which is called by users."""
    bases = " ".join(str(base) for base in item.bases)
    return bool(re.search(r"\b(ABC|Protocol)\b|(Error|Exception|Warning)$", bases))


def _constructor(item: Any) -> griffe.Function:
    """The signature of a named tuple, whose fields are its parameters, or of a class without parameters."""
    kind = griffe.ParameterKind.positional_or_keyword
    fields = item.members.values() if "NamedTuple" in map(str, item.bases) else ()
    given = [
        griffe.Parameter(f.name, kind=kind, default=f.value)
        for f in fields
        if f.is_attribute and f.annotation
    ]
    itself = griffe.Parameter("self", kind=kind)
    return griffe.Function("__init__", parameters=griffe.Parameters(itself, *given), parent=item)


def _correct(item: Any) -> None:
    written = dict(re.findall(r"^([\w*, ]+) : (.+)$", item.docstring.value, re.MULTILINE))
    types = {name: text for names, text in written.items() for name in [names, *names.split(", ")]}
    for section in item.docstring.parsed:
        if section.kind not in (
            griffe.DocstringSectionKind.parameters,
            griffe.DocstringSectionKind.attributes,
        ):
            continue
        for described in section.value:
            if types.get(described.name, "").startswith("{"):
                described.annotation = types[described.name]  # a set of choices would lose its quotes
            elif isinstance(described.annotation, griffe.ExprTuple):
                described.annotation.implicit = True  # "int, str or None" is no tuple
            if section.kind is griffe.DocstringSectionKind.parameters:
                described.value = _default(item, described.name)


def _default(item: Any, name: str) -> Any:
    parameters = {p.name: p for p in item.parameters}
    parameter = parameters.get(name.lstrip("*"))
    return None if parameter is None or parameter.kind in _VARIADIC else parameter.default
