"""The values of columns as NumPy sees them in Arrow's memory, and back; NULLs stay apart and nothing is copied."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def flat_values(column: pa.Array) -> Any:
    """The values of a column of numbers or of points in time as whole or floating-point numbers.

    Where a value is NULL there is any number.
    """
    stored = _stored(column.type)
    _, data = column.buffers()
    if data is None:
        return np.empty(0, stored)
    return np.frombuffer(data, stored, len(column), column.offset * stored.itemsize)


def milliseconds(times: pa.Array) -> Any:
    """Points in time as a numpy array of milliseconds since 1970."""
    if times.type.unit != "ms":
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    return times.view(pa.int64()).to_numpy(zero_copy_only=False) if times.null_count else flat_values(times)


def flat_value(value: pa.Scalar) -> Any:
    """The same of a single value; 0 for NULL."""
    if not value.is_valid:
        return 0
    return value.value if pa.types.is_temporal(value.type) else value.as_py()


def is_flat(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers to NumPy: whole and floating-point ones, dates, and points in time."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return is_number or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def validity(column: pa.Array | pa.Scalar, rows: int) -> Any:
    """A bit for each row, 0 where it is NULL, the lowest bit of a byte first; None where no row is NULL."""
    if isinstance(column, pa.Scalar):
        return None if column.is_valid else np.zeros(-(-rows // 8), np.uint8)
    if not column.null_count:
        return None
    first, skipped = divmod(column.offset, 8)
    if skipped:
        return np.packbits(as_mask(column.is_valid()), bitorder="little")
    return np.frombuffer(column.buffers()[0], np.uint8, -(-rows // 8), first)


def from_flat(values: Any, kind: pa.DataType, valid: Any) -> pa.Array:
    """A column of NumPy's values. `valid`: see `validity`. Where types differ, values are cut to bits."""
    data = pa.py_buffer(np.ascontiguousarray(values, _stored(kind)))
    return pa.Array.from_buffers(kind, len(values), [None if valid is None else pa.py_buffer(valid), data])


def with_validity_of(column: pa.Array, values: Any, kind: pa.DataType) -> pa.Array:
    """Values as a column of a type, NULL where another column is NULL. Where types differ, values are cut to bits."""
    return from_flat(values, kind, validity(column, len(column)))


def truths(answers: pa.Array) -> pa.Array:
    """Answers with false for NULL."""
    return pc.fill_null(answers, False) if answers.null_count else answers


def as_mask(answers: pa.Array) -> Any:
    """Answers without NULL as NumPy's booleans."""
    first, skipped = divmod(answers.offset, 8)
    _, data = answers.buffers()
    if data is None:
        return np.empty(0, bool)
    packed = np.frombuffer(data, np.uint8, offset=first)
    return np.unpackbits(packed, count=skipped + len(answers), bitorder="little")[skipped:].view(bool)


def as_answers(mask: Any) -> pa.Array:
    """NumPy's booleans as answers."""
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(np.packbits(mask, bitorder="little"))], 0)


def without_nulls_of(column: pa.Array, mask: pa.Array) -> pa.Array:
    """The column without its NULLs, which are any values then, if a mask leaves them all out; else as it is.

    Arrow filters a column without NULLs several times faster.
    """
    if not column.null_count or column.offset or mask.offset or pa.types.is_nested(column.type):
        return column
    buffers = column.buffers()
    size = -(-len(mask) // 8)
    chosen, valid = (np.frombuffer(one, np.uint8, size) for one in (mask.buffers()[1], buffers[0]))
    missing = chosen & ~valid
    if len(mask) % 8:
        missing[-1] &= (1 << len(mask) % 8) - 1
    return column if missing.any() else pa.Array.from_buffers(column.type, len(column), [None, *buffers[1:]], 0)


@cache
def _stored(kind: pa.DataType) -> np.dtype[Any]:
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return np.dtype(kind.to_pandas_dtype() if is_number else {32: np.int32, 64: np.int64}[kind.bit_width])
