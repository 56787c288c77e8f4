"""Arrow columns as NumPy arrays and back, without copying numbers; NULLs are kept separately."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def flat_values(column: pa.Array) -> Any:
    """Return the values of a column of numbers or timestamps as integers or floating-point numbers.

    The values at NULLs are arbitrary.
    """
    stored = _stored(column.type)
    _, data = column.buffers()
    if data is None:
        return np.empty(0, stored)
    return np.frombuffer(data, stored, len(column), column.offset * stored.itemsize)


def milliseconds(times: pa.Array) -> Any:
    """Return timestamps as a NumPy array of milliseconds since 1970."""
    if times.type.unit != "ms":
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    return times.view(pa.int64()).to_numpy(zero_copy_only=False) if times.null_count else flat_values(times)


def flat_value(value: pa.Scalar) -> Any:
    """Return a single value likewise; 0 for NULL."""
    if not value.is_valid:
        return 0
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def is_flat(kind: pa.DataType) -> bool:
    """Return whether the values of a type are numbers in NumPy: integers, floating-point numbers, dates and times."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def validity(column: pa.Array | pa.Scalar, rows: int) -> Any:
    """Return a bit per row, 0 for NULL, lowest bit of a byte first; None if no row is NULL."""
    if isinstance(column, pa.Scalar):
        return None if column.is_valid else np.zeros(-(-rows // 8), np.uint8)
    if not column.null_count:
        return None
    first, skipped = divmod(column.offset, 8)
    if skipped:
        return np.packbits(as_mask(column.is_valid()), bitorder="little")
    return np.frombuffer(column.buffers()[0], np.uint8, -(-rows // 8), first)


def from_flat(values: Any, kind: pa.DataType, valid: Any) -> pa.Array:
    """Return a column of NumPy values. `valid`: see `validity`. If the types differ, values are truncated to bits."""
    data = pa.py_buffer(np.ascontiguousarray(values, _stored(kind)))
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else pa.py_buffer(valid), data])


def apply_validity(column: pa.Array, values: Any, kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type, NULL where `column` is. If types differ, values are truncated to bits."""
    return from_flat(values, kind, validity(column, len(column)))


def truths(answers: pa.Array) -> pa.Array:
    """Return a boolean column with false for NULL."""
    return pc.fill_null(answers, False) if answers.null_count else answers


def as_mask(answers: pa.Array) -> Any:
    """Return a boolean column without NULLs as a NumPy mask."""
    first, skipped = divmod(answers.offset, 8)
    _, data = answers.buffers()
    if data is None:
        return np.empty(0, bool)
    packed = np.frombuffer(data, np.uint8, offset=first)
    return np.unpackbits(packed, count=skipped + len(answers), bitorder="little")[skipped:].view(bool)


def as_answers(mask: Any) -> pa.Array:
    """Return a NumPy mask as a boolean column."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))], 0)


def drop_masked_nulls(column: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the column without its NULLs if a mask excludes them all, and unchanged otherwise.

    The values of the former NULLs are arbitrary. Arrow filters a column without NULLs several times faster.
    """
    if not column.null_count or column.offset or mask.offset or pa.types.is_nested(column.type):
        return column
    buffers = column.buffers()
    size = -(-len(mask) // 8)
    chosen, valid = (np.frombuffer(buffer, np.uint8, size) for buffer in (mask.buffers()[1], buffers[0]))
    missing = chosen & ~valid
    if len(mask) % 8:
        missing[-1] &= (1 << len(mask) % 8) - 1
    return column if missing.any() else pa.Array.from_buffers(column.type, len(column), [None, *buffers[1:]], 0)


@cache
def _stored(kind: pa.DataType) -> np.dtype[Any]:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype() if is_number else {32: np.int32, 64: np.int64}[kind.bit_width])
