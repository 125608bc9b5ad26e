"""Share a value between the tasks of a call."""

import pickle
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np

from transcendent._utils.arrays import AnyArray


class Shared:
    """A value that all tasks of a call need, pickled once and opened once in each process.

    The pickle is a few arrays of bytes that share memory with the value. Backends handle large arrays
    themselves: loky maps them into memory, and Dask sends this instance to each worker once.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        self._pieces = [np.asarray(memoryview(piece)) for piece in (head, *(b.raw() for b in buffers))]
        self._key = uuid4().hex
        self._value = value

    def __sizeof__(self) -> int:
        """Return the size, by which Dask decides whether to send this apart from the tasks."""
        return 1024 + sum(piece.nbytes for piece in self._pieces)

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key, "_pieces": self._pieces}

    def open(self) -> Any:
        """Return the value; in a process that did not make it, its arrays are read-only."""
        global _last_mapped
        if "_value" not in vars(self):
            # With memory maps, every task brings a new instance, so the last value is kept outside of it.
            mapped = any(isinstance(piece, np.memmap) for piece in self._pieces)
            if mapped and _last_mapped[0] == self._key:
                return _last_mapped[1]
            head, *buffers = (_map_again(piece).data.toreadonly() for piece in self._pieces)
            self._value = pickle.loads(head, buffers=buffers)
            if mapped:
                _last_mapped = (self._key, self._value)
        return self._value


_last_mapped: tuple[str, Any] = ("", None)


def _map_again(piece: AnyArray) -> AnyArray:
    """Return a second memory map, since joblib waits until its own are released."""
    if not isinstance(piece, np.memmap):
        return piece
    file: Any = piece.filename
    return np.memmap(file, dtype=np.uint8, mode="r", offset=piece.offset, shape=piece.shape)
