"""What rows hold, in one form for dense rows, sparse rows and frames."""

from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from transcendent._utils.arrays import AnyArray, BoolArray, IntArray
from transcendent._utils.digests import row_entries

_KEY_BYTES = 16
_ENTRY = np.dtype([("column", "<i8"), ("value", "<f8")])

Cells = list[tuple[int, Any]]


class ContentItems(NamedTuple):
    """Which row has which pair of a column and a value, as zeros and ones; and the pairs."""

    rows: Any
    columns: IntArray
    values: list[Any]


@dataclass(frozen=True)
class Content:
    """The content of n rows.

    ``keys`` are equal for equal rows. ``numbers`` has the numbers other than 0, as CSR. ``others`` has for
    each row the columns and values of its other cells, which are NaN among the numbers.
    """

    keys: AnyArray
    numbers: Any
    others: list[Cells]

    @classmethod
    def of(cls, X: Any) -> Self:
        """Return the content of rows of any type."""
        keys: list[str] = []
        blocks: list[Any] = []
        others: list[Cells] = []
        for numbers, cells in row_entries(X):
            keys += _keys(numbers, cells)
            blocks.append(numbers)
            others += cells
        n_columns = X.shape[1] if len(getattr(X, "shape", ())) == 2 else 1
        stacked = sp.vstack(blocks, format="csr") if blocks else sp.csr_array((0, n_columns))
        return cls(np.array(keys, dtype=f"U{2 * _KEY_BYTES}"), stacked, others)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: IntArray) -> "Content":
        return Content(self.keys[rows], self.numbers[rows], [self.others[row] for row in rows])

    def are_binary(self) -> BoolArray:
        """Return which rows have only zeros and ones."""
        other = np.concatenate([[0], np.cumsum(self.numbers.data != 1)])
        ends = self.numbers.indptr
        return np.asarray(other[ends[1:]] == other[ends[:-1]])

    def are_empty(self) -> BoolArray:
        """Return which rows have only zeros."""
        return np.asarray(np.diff(self.numbers.indptr) == 0)

    def binary(self, rows: Any = slice(None)) -> Any:
        """Return rows of zeros and ones in single precision, which counts up to 16 million exactly."""
        return sp.csr_array(self.numbers[rows], dtype=np.float32)

    def items(self) -> ContentItems:
        """Return which pairs of a column and a value the rows have; zeros are left out."""
        columns, bits = self.numbers.indices.astype(np.int64), self.numbers.data.view(np.int64)
        texts, held = self._number_others()
        order = np.lexsort((texts, bits, columns))
        keys = np.stack([columns, bits, texts])[:, order]
        is_first = np.any(np.diff(keys, axis=1, prepend=-1) != 0, axis=0)
        codes = np.empty(len(order), dtype=np.int64)
        codes[order] = np.cumsum(is_first) - 1
        first = order[is_first]
        values = [held[texts[at] - 1] if texts[at] else self.numbers.data[at].item() for at in first]
        ones = np.ones(len(codes), dtype=np.float64)
        shape = (len(self), len(first))
        return ContentItems(
            sp.csr_array((ones, codes, self.numbers.indptr), shape=shape), columns[first], values
        )

    def _number_others(self) -> tuple[IntArray, list[Any]]:
        """Return the number of each entry's text, 0 for numbers, and the texts; the first has number 1."""
        numbered: dict[str, int] = {}
        held: list[Any] = []
        texts = np.zeros(self.numbers.nnz, dtype=np.int64)
        for row, cells in enumerate(self.others):
            start, end = self.numbers.indptr[row : row + 2]
            for column, value in cells:
                at = start + np.searchsorted(self.numbers.indices[start:end], column)
                texts[at] = numbered.setdefault(repr(value), len(numbered) + 1)
                if len(numbered) > len(held):
                    held.append(value)
        return texts, held


def content_keys(X: Any) -> AnyArray:
    """Return a text of 32 hexadecimal digits for each row, the same for rows with the same content.

    The form does not matter: dense, sparse in any order of entries and with duplicate entries, which count as
    their sum, or a frame of any library. Columns are compared by position. 0 equals -0 and False, and all
    missing values are equal. Numbers are compared in double precision.

    Parameters
    ----------
    X : array, sparse matrix, frame or list of n rows
        The rows.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from transcendent.explaining import content_keys
    >>> X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])
    >>> keys = content_keys(X)
    >>> bool(keys[0] == keys[1]), bool(keys[0] == keys[2])
    (True, False)
    >>> bool(np.all(keys == content_keys(sp.csr_array(X))))
    True
    """
    return Content.of(X).keys


def _keys(numbers: Any, others: list[Cells]) -> list[str]:
    entries = np.empty(numbers.nnz, dtype=_ENTRY)
    entries["column"], entries["value"] = numbers.indices, numbers.data
    content, keys = memoryview(entries.tobytes()), []
    ends = (numbers.indptr.astype(np.int64) * _ENTRY.itemsize).tolist()
    for (start, end), cells in zip(pairwise(ends), others, strict=True):
        digest = blake2b(content[start:end], digest_size=_KEY_BYTES)
        if cells:
            digest.update(repr(cells).encode("utf-8", "surrogatepass"))
        keys.append(digest.hexdigest())
    return keys
