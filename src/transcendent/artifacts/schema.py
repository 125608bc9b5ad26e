"""What a skops file would unfold into, found out before skops unfolds it.

A skops file is a tree of nodes in ``schema.json``, some of which name a file with an array. A node may stand
for another by its identifier. That lets a small file claim a huge object: many nodes for one array, lists of
the same list. Files that skops writes spell out whatever they repeat.
"""

import io
import json
from collections.abc import Iterator
from typing import Any
from zipfile import ZipFile

from transcendent.artifacts.archives import most_unpacked
from transcendent.errors import ArtifactError

_ENDINGS = {
    "NdArrayNode": ".npy",
    "SparseMatrixNode": ".npz",
    "BytesNode": ".bin",
    "BytearrayNode": ".bin",
}
_MADE_OF_NUMBERS = ("bytes_", "void")  # NumPy makes as many bytes of a number as it says
_MOST_NODES = 3  # for every node there is

Node = dict[str, Any]


def read_schema(name: str, data: bytes) -> Node:
    """The tree of a skops file, refused if it would unfold to far more than the file is."""
    with ZipFile(io.BytesIO(data)) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        root = json.loads(archive.read("schema.json"))
    nodes = list(_nodes(root))
    claimed = sum(sizes[node["file"]] for node in _distinct(nodes) if "file" in node)
    if claimed > most_unpacked(data) or _visits(root) > 1000 + _MOST_NODES * len(nodes):
        raise ArtifactError(f"{name} in it would unfold to far more than it is: it may be a zip bomb.")
    for node in nodes:
        _check_node(name, node)
    return dict(root)


def type_names(root: Node) -> set[str]:
    """Module and name of every type in the tree."""
    return {f"{node.get('__module__')}.{node.get('__class__')}" for node in _nodes(root)}


def _check_node(name: str, node: Node) -> None:
    loader, kind = node.get("__loader__"), node.get("__class__")
    if "file" in node and not str(node["file"]).endswith(_ENDINGS.get(str(loader), "none")):
        raise ArtifactError(f"{name} in it takes {node['file']!r:.60} for something it is not.")
    if str(node.get("__module__")).startswith("scipy.sparse") and loader != "SparseMatrixNode":
        raise ArtifactError(f"{name} in it builds a sparse matrix out of something else than its file.")
    if loader == "NdArrayNode" and kind in _MADE_OF_NUMBERS:
        raise ArtifactError(f"{name} in it holds a numpy.{kind}, as no rejector does.")
    spread = (
        _items(node) if loader == "NdArrayNode" and node.get("type") == "json" and _is_table(node) else ()
    )
    if any(item.get("__class__") == "ndarray" for item in spread):
        raise ArtifactError(f"{name} in it holds a table of arrays, as no rejector does.")


def _is_table(node: Node) -> bool:
    return len(node["shape"]["content"]) != 1


def _items(node: Node) -> Iterator[Node]:
    """What NumPy would spread over a table: the items of a list, and of lists in it."""
    for item in node["content"]:
        yield item
        if item.get("__loader__") in ("ListNode", "TupleNode"):
            yield from _items(item)


def _nodes(tree: Any) -> Iterator[Node]:
    """Every node of the tree as it is written, the root first."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__loader__" in item:
                yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _distinct(nodes: list[Node]) -> Iterator[Node]:
    """Nodes without those that stand for an earlier one."""
    seen = set()
    for node in nodes:
        identifier = node.get("__id__")
        if not identifier or identifier not in seen:
            seen.add(identifier)
            yield node


def _visits(root: Any) -> int:
    """How many nodes a walk meets that follows identifiers, as skops's audit does."""
    known: dict[Any, int] = {}

    def visits(item: Any) -> int:
        if isinstance(item, list):
            return sum(map(visits, item))
        if not isinstance(item, dict):
            return 0
        identifier = item.get("__id__")
        if identifier and identifier in known:
            return known[identifier]
        count = ("__loader__" in item) + sum(map(visits, item.values()))
        if identifier:
            known[identifier] = count
        return count

    return visits(root)
