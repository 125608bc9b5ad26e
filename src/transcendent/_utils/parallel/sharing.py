"""What all tasks of a call need, pickled once and opened once in each process."""

import pickle
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np

from transcendent._utils.arrays import AnyArray


class Shared:
    """A value that all tasks of a call need, pickled once and opened once in each process.

    The pickle is a few arrays of bytes that share memory with the value. Backends handle large arrays
    themselves: loky maps them into memory, and Dask sends this object to each worker once.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        self._pieces = [_as_bytes(piece) for piece in (head, *(buffer.raw() for buffer in buffers))]
        self._key = uuid4().hex
        self._value = value

    def __sizeof__(self) -> int:
        """The size, by which Dask decides whether to send this apart from the tasks."""
        return 1024 + sum(piece.nbytes for piece in self._pieces)

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key, "_pieces": self._pieces}

    def open(self) -> Any:
        """Return the value; in a process that did not make it, its arrays are read-only."""
        if "_value" not in vars(self):
            self._value = self._opened_before() or self._load()
        return self._value

    def _load(self) -> Any:
        global _last_mapped
        head, *buffers = (_kept(piece).data.toreadonly() for piece in self._pieces)
        value = pickle.loads(head, buffers=buffers)
        if self._mapped:
            _last_mapped = (self._key, value)
        return value

    def _opened_before(self) -> Any:
        """The value an earlier task opened: with memory maps every task brings a new instance of this."""
        return _last_mapped[1] if self._mapped and _last_mapped[0] == self._key else None

    @property
    def _mapped(self) -> bool:
        return any(isinstance(piece, np.memmap) for piece in self._pieces)


_last_mapped: tuple[str, Any] = ("", None)


def _kept(piece: AnyArray) -> AnyArray:
    """A second memory map: joblib waits until the ones it made are released."""
    if not isinstance(piece, np.memmap):
        return piece
    file: Any = piece.filename
    return np.memmap(file, dtype=np.uint8, mode="r", offset=piece.offset, shape=piece.shape)


def _as_bytes(piece: Any) -> AnyArray:
    return np.frombuffer(piece, dtype=np.uint8) if len(piece) else np.empty(0, dtype=np.uint8)
