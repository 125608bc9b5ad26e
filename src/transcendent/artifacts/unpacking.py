"""The size an archive would unpack to, computed before it is unpacked.

An artifact is an archive of compressed entries, and some of these are archives. A skops file is one with a
tree of nodes in ``schema.json``. Some nodes name a file with an array. A node may refer to another by its
identifier. So a small file can claim a huge value: zeros that are compressed, many nodes for one array, or
lists of the same list. Files that skops writes repeat nodes in full instead.
"""

import io
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from transcendent.errors import ArtifactError

_MAX_GROWTH = 64  # vocabularies, and dense rows that are mostly zeros, shrink to 1/40
_ALWAYS_ALLOWED = 1 << 24
_MAX_VISITS = 3  # per node
_PIECE = 1 << 16
_LOCAL_HEADER = struct.Struct("<26x2H")  # ends with the lengths of a name and of further fields
_ENDINGS = {"NdArrayNode": ".npy", "SparseMatrixNode": ".npz", "BytesNode": ".bin", "BytearrayNode": ".bin"}
_SIZED_BY_NUMBER = ("bytes_", "void")  # NumPy allocates as many bytes as the number that follows
_SCHEMA = "schema.json"

Node = dict[str, Any]


def max_unpacked(size: int) -> int:
    """Return how many bytes all entries of a file of this size may take in memory."""
    return _ALWAYS_ALLOWED + _MAX_GROWTH * size


def check_unpacked_sizes(entries: Mapping[str, bytes], limit: int) -> None:
    """Refuse entries whose arrays and archives claim more memory than the limit, all together."""
    left = limit
    for name, data in entries.items():
        try:
            claimed = _claimed(data, left) if name.endswith((".skops", ".npz")) else len(data)
        except (BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise ArtifactError(f"its {name} cannot be read: {error}.") from None
        if claimed > left:
            raise ArtifactError(
                f"its {name} has {len(data):,} bytes and would unpack to {claimed:,}: it may be a zip bomb."
            )
        left -= claimed


def content_of(archive: ZipFile, data: bytes, entry: ZipInfo) -> bytes:
    """Return the content of an entry; raise a `ValueError` unless it has exactly the size that it declares.

    Nothing beyond that size is unpacked. `ZipFile.read` unpacks up to 2 GiB before it looks at the size.
    """
    archive.open(entry).close()  # compares its header with the directory
    start = entry.header_offset + sum(_LOCAL_HEADER.unpack_from(data, entry.header_offset), start=30)
    packed = memoryview(data)[start : start + entry.compress_size]
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{entry.filename!r:.80} is compressed by a method that artifacts do not use")
    whole = len(packed) == entry.compress_size
    content = _inflated(packed, entry.file_size) if entry.compress_type == ZIP_DEFLATED else bytes(packed)
    if not whole or content is None or len(content) != entry.file_size:
        raise ValueError(f"{entry.filename!r:.80} does not have the {entry.file_size:,} bytes it declares")
    return content


def read_types(name: str, data: bytes) -> set[str]:
    """Return the names of all types in a skops file."""
    nodes = list(_nodes(_schema(data)))
    for node in nodes:
        _check_node(name, node)
    return {f"{node.get('__module__')}.{node.get('__class__')}" for node in nodes}


def _inflated(packed: memoryview, size: int) -> bytes | None:
    """Return what deflate made of a content of that size, or None if it made it of another."""
    decoder, content, fed = zlib.decompressobj(-zlib.MAX_WBITS), io.BytesIO(), 0
    while not decoder.eof and content.tell() <= size:
        piece: bytes | memoryview = decoder.unconsumed_tail
        if not piece:
            piece, fed = packed[fed : fed + _PIECE], fed + _PIECE
        try:
            more = decoder.decompress(piece, min(_PIECE, size + 1 - content.tell()))
        except zlib.error:
            return None
        if not more and not piece:
            return None
        content.write(more)
    whole = decoder.eof and not decoder.unused_data and fed >= len(packed)
    return content.getvalue() if whole and content.tell() == size else None


def _claimed(data: bytes, limit: int) -> int:
    """Return the bytes that an archive would take in memory, those of repeated references included."""
    total, sizes = _sizes(data, limit)
    if total > limit or _SCHEMA not in sizes:
        return total
    root = _schema(data)
    nodes = list(_nodes(root))
    arrays = {(node.get("__id__") or id(node), node["file"]) for node in nodes if "file" in node}
    if _count_visits(root, {}) > 1000 + _MAX_VISITS * len(nodes):
        raise ValueError("its lists hold each other, and may be a zip bomb")
    return max(total, sum(sizes[file] for _, file in arrays))


def _sizes(data: bytes, limit: int, *, nested: bool = False) -> tuple[int, dict[str, int]]:
    """Return the bytes that an archive and the archives in it would take in memory, and those of each file.

    Nothing is unpacked once the total is above the limit.
    """
    sizes = {}
    with ZipFile(io.BytesIO(data)) as archive:
        listed = archive.infolist()
        total = sum(entry.file_size for entry in listed)
        for entry in listed:
            if total > limit:
                break
            content, claimed = content_of(archive, data, entry), entry.file_size
            if entry.filename.endswith(".npy"):
                claimed = max(claimed, _array_size(content))
            elif entry.filename.endswith(".npz"):
                if nested:
                    raise ValueError("archives within archives within archives")
                claimed = max(claimed, _sizes(content, limit - total + claimed, nested=True)[0])
            total += claimed - entry.file_size
            sizes[entry.filename] = claimed
    return total, sizes


def _schema(data: bytes) -> Any:
    with ZipFile(io.BytesIO(data)) as archive:
        return json.loads(content_of(archive, data, archive.getinfo(_SCHEMA)))


def _array_size(content: bytes) -> int:
    """Return the bytes that NumPy allocates for the header of a ``.npy`` file."""
    file = io.BytesIO(content)
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
