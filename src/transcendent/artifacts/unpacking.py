"""The size an archive would unpack to, computed before it is unpacked.

A skops file is an archive with a tree of nodes in ``schema.json``. Some nodes name a file with an array. A
node may refer to another by its identifier. So a small file can claim a huge value: many nodes for one array,
or lists of the same list. Files that skops writes repeat nodes in full instead.
"""

import io
import json
import math
from collections.abc import Iterator
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from transcendent.errors import ArtifactError

# Arrays are not compressed. Only sparse matrices inside skops files are, and real ones do not shrink to 1/20.
_MAX_GROWTH = 20
_ALWAYS_ALLOWED = 1 << 24
_MAX_VISITS = 3  # per node
_ENDINGS = {"NdArrayNode": ".npy", "SparseMatrixNode": ".npz", "BytesNode": ".bin", "BytearrayNode": ".bin"}
_SIZED_BY_NUMBER = ("bytes_", "void")  # NumPy allocates as many bytes as the number that follows

Node = dict[str, Any]


def check_unpacked_size(name: str, data: bytes) -> None:
    """Refuse an archive whose files or arrays claim to be far larger than the archive."""
    limit = _max_unpacked(data)
    try:
        claimed = _claimed(data, limit)
    except (BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArtifactError(f"its {name} cannot be read: {error}.") from None
    if claimed > limit:
        raise ArtifactError(
            f"its {name} has {len(data):,} bytes and would unpack to {claimed:,}: it may be a zip bomb."
        )


def read_types(name: str, data: bytes) -> set[str]:
    """Return the names of all types in a skops file; refuse a file that would unpack to far more."""
    check_unpacked_size(name, data)
    with ZipFile(io.BytesIO(data)) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        root = json.loads(archive.read("schema.json"))
    nodes = list(_nodes(root))
    arrays = {(node.get("__id__") or id(node), node["file"]) for node in nodes if "file" in node}
    claimed = sum(sizes[file] for _, file in arrays)
    if claimed > _max_unpacked(data) or _count_visits(root, {}) > 1000 + _MAX_VISITS * len(nodes):
        raise ArtifactError(f"its {name} would unpack to far more than its size: it may be a zip bomb.")
    for node in nodes:
        _check_node(name, node)
    return {f"{node.get('__module__')}.{node.get('__class__')}" for node in nodes}


def _max_unpacked(data: bytes) -> int:
    return _ALWAYS_ALLOWED + _MAX_GROWTH * len(data)


def _claimed(data: bytes, limit: int, *, nested: bool = False) -> int:
    """Return the bytes that an archive and the archives in it would take in memory."""
    with ZipFile(io.BytesIO(data)) as archive:
        listed = archive.infolist()
        total = sum(entry.file_size for entry in listed)
        for entry in listed:
            if total > limit:
                break
            if entry.filename.endswith(".npy"):
                with archive.open(entry) as file:
                    total += _array_size(file)
            elif entry.filename.endswith(".npz"):
                if nested:
                    raise ValueError("archives within archives within archives")
                total += _claimed(archive.read(entry), limit, nested=True)
        return total


def _array_size(file: Any) -> int:
    """Return the bytes that NumPy allocates for the header of a ``.npy`` file."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"an array of format {version}")
    shape, _, dtype = readers[version](file)
    return math.prod(shape) * max(dtype.itemsize, 1)


def _nodes(tree: Any) -> Iterator[Node]:
    """Yield every node of the tree once, without following identifiers."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__loader__" in item:
                yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _count_visits(item: Any, known: dict[Any, int]) -> int:
    """Return the number of nodes in a walk that follows identifiers, as the audit of skops does."""
    if isinstance(item, list):
        return sum(_count_visits(each, known) for each in item)
    if not isinstance(item, dict):
        return 0
    identifier = item.get("__id__")
    if identifier and identifier in known:
        return known[identifier]
    count = ("__loader__" in item) + sum(_count_visits(value, known) for value in item.values())
    if identifier:
        known[identifier] = count
    return count


def _check_node(name: str, node: Node) -> None:
    loader, kind = node.get("__loader__"), node.get("__class__")
    if "file" in node and not str(node["file"]).endswith(_ENDINGS.get(str(loader), "none")):
        raise ArtifactError(f"its {name} reads {node['file']!r:.60} as another type of file.")
    if str(node.get("__module__")).startswith("scipy.sparse") and loader != "SparseMatrixNode":
        raise ArtifactError(f"its {name} builds a sparse matrix from other values than its file.")
    if loader != "NdArrayNode":
        return
    if kind in _SIZED_BY_NUMBER:
        raise ArtifactError(f"its {name} holds a numpy.{kind}, which rejectors do not have.")
    several_axes = node.get("type") == "json" and len(node["shape"]["content"]) != 1
    if several_axes and any(item.get("__class__") == "ndarray" for item in _items(node)):
        raise ArtifactError(f"its {name} holds an array of arrays, which rejectors do not have.")


def _items(node: Node) -> Iterator[Node]:
    """Yield the items of a list and of lists in it, which NumPy would spread over several axes."""
    for item in node["content"]:
        yield item
        if item.get("__loader__") in ("ListNode", "TupleNode"):
            yield from _items(item)
