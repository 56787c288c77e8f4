"""Random columns for each type."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.arrow_types import NANOSECONDS
from penstock.table.connectors.chance import Chance, Integers
from penstock.table.connectors.datagen.fields import MAX, MIN, FieldOptions
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType, DecimalType

_EXACT: Final = Context(prec=100)
_HEXADECIMAL: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that get values: their numbers, and the times (ms) at which they are due."""

    numbers: Integers
    times: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    def chance(self, path: str) -> Chance:
        """Return the random draws for a field; they are independent of those for other fields."""
        return Chance(zlib.crc32(path.encode()), self.numbers)

    def elements(self, count: int) -> Rows:
        """Return a row for each of `count` elements of each row."""
        numbers = np.repeat(self.numbers, count) * count + np.tile(np.arange(count), len(self))
        return Rows(numbers, np.repeat(self.times, count))


#: generates the values of a field for rows
Make = Callable[[Rows], pa.Array]


def truth_values(path: str) -> Make:
    """Generate booleans."""
    return lambda rows: pa.array(rows.chance(path).below(2, 0) == 1)


def whole_numbers(field: FieldOptions, kind: DataType, least: int, greatest: int) -> Make:
    """Generate integers from `min` to `max`, both inclusive, by default from `least` to `greatest`."""
    low, high = (int(bound) for bound in _bounds(field, Decimal(least), Decimal(greatest)))
    target_type = arrow_type(kind)
    plain = pa.int32() if target_type == pa.int32() else pa.int64()

    def make(rows: Rows) -> pa.Array:
        bits = rows.chance(field.path).bits(0)
        size = high - low + 1
        # The full 64-bit range has 2**64 numbers, one more than 64 bits can represent.
        drawn = bits if size == 1 << 64 else bits % np.uint64(size)
        array = pa.array((drawn + np.uint64(low % (1 << 64))).view(np.int64))
        return array.cast(plain).view(target_type) if pa.types.is_temporal(target_type) else array.cast(target_type)

    return make


def fractions(field: FieldOptions, kind: DataType, greatest: float) -> Make:
    """Generate floats from `min` up to `max`."""
    low, high = (float(bound) for bound in _bounds(field, Decimal(-greatest), Decimal(greatest)))

    def make(rows: Rows) -> pa.Array:
        unit = rows.chance(field.path).unit(0)
        # Not low + unit * (high - low), which overflows for the widest range.
        return pa.array(low * (1.0 - unit) + high * unit).cast(arrow_type(kind))

    return make


def decimals(field: FieldOptions, kind: DecimalType) -> Make:
    """Generate decimals from `min` to `max` with the scale of the type."""
    unit = Decimal(1).scaleb(-kind.scale)
    greatest = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT)
    low, high = _bounds(field, -greatest, greatest)
    first, last = (int(_EXACT.divide(bound, unit)) for bound in (low, high))

    def make(rows: Rows) -> pa.Array:
        chance = rows.chance(field.path)
        # Two draws give enough digits for a long number.
        upper, lower = chance.bits(0).tolist(), chance.bits(1).tolist()
        drawn = [
            (upper_bits << 64 | lower_bits) % (last - first + 1)
            for upper_bits, lower_bits in zip(upper, lower, strict=True)
        ]
        return pa.array([Decimal(first + number).scaleb(-kind.scale, _EXACT) for number in drawn], arrow_type(kind))

    return make


def texts(path: str, length: int, *, varies: bool) -> Make:
    """Generate hexadecimal strings of `length` digits, or with `varies` of 1 up to `length`."""

    def make(rows: Rows) -> pa.Array:
        drawn = _bytes(rows, path, -(-length // 2))
        digits = np.empty((len(rows), drawn.shape[1] * 2), np.uint8)
        digits[:, 0::2] = _HEXADECIMAL[drawn >> 4]
        digits[:, 1::2] = _HEXADECIMAL[drawn & 15]
        return _cut(rows, path, digits[:, :length], pa.string(), varies=varies)

    return make


def binaries(path: str, length: int, *, varies: bool) -> Make:
    """Generate byte strings of `length` bytes, or with `varies` of 1 up to `length`."""
    return lambda rows: _cut(rows, path, _bytes(rows, path, length), pa.binary(), varies=varies)


def _bytes(rows: Rows, path: str, count: int) -> Any:
    """Return `count` bytes for each row."""
    parts = max(-(-count // 8), 1)
    return rows.elements(parts).chance(path).bits(0).view(np.uint8).reshape(len(rows), parts * 8)[:, :count]


def _cut(rows: Rows, path: str, content: Any, kind: pa.DataType, *, varies: bool) -> pa.Array:
    count, width = content.shape
    lengths = np.full(count, width)
    if varies and width:
        lengths = 1 + rows.chance(path).below(width, 1)
        content = content[np.arange(width) < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content).tobytes())]
    return pa.Array.from_buffers(kind, count, buffers)


def days() -> Make:
    """Generate the dates on which rows are due."""
    return lambda rows: pa.array((rows.times // 86_400_000).astype(np.int32)).view(pa.date32())


def times_of_day(digits: int) -> Make:
    """Generate the times of day at which rows are due."""
    return lambda rows: pa.array((_truncate_times(rows.times, digits) % 86_400_000).astype(np.int32)).view(
        pa.time32("ms")
    )


def moments(path: str, kind: DataType, digits: int, max_past_ms: int) -> Make:
    """Generate the timestamps at which rows are due, or up to `max_past_ms` earlier."""
    target_type = arrow_type(kind)
    factor = NANOSECONDS["ms"] // NANOSECONDS[target_type.unit]

    def make(rows: Rows) -> pa.Array:
        past = rows.chance(path).below(max_past_ms, 0) if max_past_ms else 0
        return pa.array(_truncate_times(rows.times - past, digits) * factor).view(target_type)

    return make


def _truncate_times(times_ms: Integers, digits: int) -> Integers:
    """Truncate times to the fractional second digits of a type."""
    unit = 10 ** max(3 - digits, 0)
    cut: Integers = times_ms // unit * unit
    return cut


def with_nulls(path: str, rate: float, make: Make) -> Make:
    """Replace a fraction of the values by NULL."""

    def made(rows: Rows) -> pa.Array:
        array = make(rows)
        missing = rows.chance(path).unit(7) < rate
        indices = pa.array(np.arange(len(rows)), mask=missing)
        return array.take(indices)

    return made


def _bounds(field: FieldOptions, least: Decimal, greatest: Decimal) -> tuple[Decimal, Decimal]:
    bounds = []
    for option, default in ((MIN, least), (MAX, greatest)):
        text = field.options.read(option)
        try:
            value = default if text is None else Decimal(text)
        except InvalidOperation as error:
            raise field.wrong(option, f"{text!r} is no number") from error
        if not least <= value <= greatest:
            raise field.wrong(option, f"{value} is not between {least} and {greatest}")
        bounds.append(value)
    if bounds[0] > bounds[1]:
        raise field.wrong(MIN, f"it is above 'max': {bounds[0]} > {bounds[1]}")
    return bounds[0], bounds[1]
