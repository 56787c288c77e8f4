"""Maps the keys of rows to 64-bit integers by kernels: rows with the same key have the same number.

The key of a single integer or temporal column is its own number. Other keys are hashed, once for each distinct value.
Then two keys may share a number, so a lookup by number must also compare the columns (`same_keys`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.state.key_bytes import key_bytes
from penstock.state.key_columns import distinct_keys

#: mixes the columns of a key
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)
_NULL: Final = 0x5851F42D4C957F2D


def is_own_number(types: Sequence[pa.DataType]) -> bool:
    """Return whether keys of these columns are their own numbers, so that only NULL requires a comparison."""
    return len(types) == 1 and _is_whole(types[0])


def key_hashes(columns: Sequence[pa.Array]) -> Any:
    """Return the number of each row's key, as a NumPy array of int64. Floats must have one form of NaN and of zero."""
    hashes = [_hashes(column) for column in columns]
    if len(hashes) == 1:
        return hashes[0]
    mixed = hashes[0].view(np.uint64)
    for column_hashes in hashes[1:]:
        mixed = (mixed ^ (mixed >> _SHIFT)) * _FACTOR + column_hashes.view(np.uint64)
    return mixed.view(np.int64)


def same_keys(columns: Sequence[pa.Array], other: Sequence[pa.Array]) -> Any:
    """Return a mask of the rows with equal keys in both, which are columns in canonical form. NULL equals NULL."""
    same = np.ones(len(columns[0]), np.bool_)
    for left, right in zip(columns, other, strict=True):
        if pa.types.is_floating(left.type):
            # Compare the bits, so that NaN equals NaN.
            equal = pa.array(_bits(left) == _bits(right), mask=_nothing(left) | _nothing(right))
        elif pa.types.is_nested(left.type):
            codes, _ = distinct_keys([pa.concat_arrays([left, right])])
            equal = pa.array(codes[: len(left)] == codes[len(left) :])
        else:
            equal = pc.equal(left, right)
        equal = pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
        same &= equal | (_nothing(left) & _nothing(right))
    return same


def _nothing(column: pa.Array) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _bits(column: pa.Array) -> Any:
    return column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)


def _is_whole(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_signed_integer(kind)
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_duration(kind)
    )


def _hashes(column: pa.Array) -> Any:
    kind = column.type
    if _is_whole(kind):
        if not pa.types.is_integer(kind):
            column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        hashes = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        hashes = hashes.astype(np.int64, copy=False)
    elif pa.types.is_floating(kind):
        hashes = _bits(column)
    else:
        codes, values = distinct_keys([column])
        hashes = np.fromiter(map(_hash, values), np.int64, len(values))[codes]
    if column.null_count:
        hashes = np.where(_nothing(column), _NULL, hashes)
    return hashes


def _hash(value: Any) -> int:
    return xxhash.xxh3_64_intdigest(key_bytes(value)) - (1 << 63)
