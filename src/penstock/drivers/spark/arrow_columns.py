"""Arrow columns from their buffers.

`pyarrow.array` asks of whatever it is given whether it is from pandas, and imports pandas for that: half a second of
processor time in every Python worker. To build a column from its buffers takes none of that, and no longer otherwise.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa


def numbers(values: Any) -> pa.Array:
    """A column of a NumPy array of numbers, whose memory it shares."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def numbers_or_null(values: Sequence[int | None]) -> pa.Array:
    """A column of integers (int64), some of which may be missing."""
    try:
        return numbers(np.array(values, np.int64))
    except TypeError:  # NumPy knows no missing integer
        found = np.fromiter((value is not None for value in values), np.bool_, len(values))
        filled = np.fromiter((0 if value is None else value for value in values), np.int64, len(values))
        validity = pa.py_buffer(np.packbits(found, bitorder="little"))
        return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(filled)])


def binary(items: Sequence[bytes]) -> pa.Array:
    """A column of bytes."""
    offsets = array("i", accumulate(map(len, items), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(items))]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)
