"""Archives of arrays, refused before unpacking if they would unpack to more than they should."""

import io
import math
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np

from transcendent._utils.arrays import AnyArray, from_npz
from transcendent.errors import ArtifactError

# Arrays are stored as they are; only sparse matrices inside skops files are compressed, and real ones do not
# shrink to a twentieth.
_MOST_GROWTH = 20
_ALWAYS_ALLOWED = 1 << 24


def read_arrays(name: str, data: bytes) -> dict[str, AnyArray]:
    """The arrays in a ``.npz`` file, if they are no larger than it says."""
    check_unpacked_size(name, data)
    return from_npz(io.BytesIO(data))


def most_unpacked(data: bytes) -> int:
    """How many bytes an archive may unpack to."""
    return _ALWAYS_ALLOWED + _MOST_GROWTH * len(data)


def check_unpacked_size(name: str, data: bytes) -> None:
    """Refuse an archive whose files, or arrays in them, claim far more room than the archive takes."""
    limit = most_unpacked(data)
    try:
        claimed = _claimed(data, limit, depth=0)
    except (BadZipFile, ValueError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArtifactError(f"{name} in it cannot be read: {error}.") from None
    if claimed > limit:
        raise ArtifactError(
            f"{name} in it has {len(data):,} bytes and would unpack to {claimed:,}: it may be a zip bomb."
        )


def _claimed(data: bytes, limit: int, depth: int) -> int:
    """Bytes that reading everything in an archive would take, archives inside it included."""
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
                if depth > 0:
                    raise ValueError("archives within archives within archives")
                total += _claimed(archive.read(entry), limit, depth + 1)
        return total


def _array_size(file: BinaryIO | Any) -> int:
    """What the header of a ``.npy`` file makes NumPy allocate."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"an array of format {version}")
    shape, _, dtype = readers[version](file)
    return math.prod(shape) * max(dtype.itemsize, 1)
