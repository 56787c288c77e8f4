"""VARIANT: self-describing values as the two byte strings that Parquet, Spark and Iceberg store.

`metadata` is a dictionary of the names of fields, and `value` the value, whose objects refer to the names by number.
The same value can be written in many ways: numbers in wider types, names in any order, names that no object uses. A
`Variant` always has one form: the narrowest integers, and exactly the names that occur, sorted. So two variants with
the same bytes are equal, and others are not, which makes them keys of state, and lets columns compare bytes.

Values in Python are None, booleans, `int`, `float`, `Decimal`, `str`, `bytes`, `date`, `time`, `datetime` (with a zone
for an instant), `UUID`, and lists and dictionaries of these. A FLOAT of 32 bits is a `Single`, which is a `float`.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import FormatError, WrongTypeError

_VERSION: Final = 1
_SORTED: Final = 1 << 4
#: digits that a decimal of 4, 8 and 16 bytes holds
_DIGITS: Final = ((4, 9), (8, 18), (16, 38))
_SHORT_MAX: Final = 63
_NULL, _TRUE, _FALSE, _INT8, _DOUBLE, _DECIMAL4, _DATE, _INSTANT, _LOCAL, _FLOAT, _BINARY, _STRING = (
    0, 1, 2, 3, 7, 8, 11, 12, 13, 14, 15, 16,
)  # fmt: skip
_TIME, _INSTANT_NS, _LOCAL_NS, _UUID = 17, 18, 19, 20
_PRIMITIVE, _SHORT, _OBJECT, _ARRAY = range(4)
_EPOCH: Final = datetime(1970, 1, 1)
_DAY_ZERO: Final = _EPOCH.date().toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


class Single(float):
    """A float of 32 bits in a variant."""

    __slots__ = ()


def name_order(name: str) -> bytes:
    """Return the sort key of the names of an object: the order of UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Variant:
    """A value of type VARIANT; `of` makes one of a Python value, `of_bytes` of bytes that another program wrote.

    Examples:
        >>> from penstock.table.types import Variant
        >>> event = Variant.of({"kind": "click", "at": [3, 4.5]})
        >>> event.to_json()
        '{"at":[3,4.5],"kind":"click"}'
        >>> event.get_field("at").get_element(0).get()
        3
    """

    value: bytes
    metadata: bytes

    @classmethod
    def of(cls, value: Any) -> Variant:
        """Return the variant of a Python value. Raises `WrongTypeError` for a value that a variant cannot hold."""
        names = sorted(set(_names(value)), key=name_order)
        return cls(_encode(value, {name: index for index, name in enumerate(names)}), _metadata(names))

    @classmethod
    def of_bytes(cls, value: bytes, metadata: bytes) -> Variant:
        """Return the variant that these bytes mean. Raises `FormatError` if they are none."""
        return cls.of(decode(value, metadata))

    @classmethod
    def unpack(cls, data: bytes) -> Variant:
        """Return the variant that `pack` has made one byte string of."""
        names_end = 4 + int.from_bytes(data[:4], "little")
        return cls(data[names_end:], data[4:names_end])

    def pack(self) -> bytes:
        """Return the variant as one byte string; equal variants have equal ones."""
        return len(self.metadata).to_bytes(4, "little") + self.metadata + self.value

    def get(self) -> Any:
        """Return the value in Python."""
        return decode(self.value, self.metadata)

    def is_null(self) -> bool:
        """Return whether the value is JSON's null, which is not SQL's NULL."""
        return self.value[0] == _NULL

    def is_array(self) -> bool:
        """Return whether the value is an array."""
        return self.value[0] & 3 == _ARRAY

    def is_object(self) -> bool:
        """Return whether the value is an object."""
        return self.value[0] & 3 == _OBJECT

    def is_primitive(self) -> bool:
        """Return whether the value is neither an array nor an object."""
        return self.value[0] & 3 in (_PRIMITIVE, _SHORT)

    def get_array_size(self) -> int:
        """Return the number of elements. Raises `WrongTypeError` unless the value is an array."""
        return _Layout(self.value, 0, _ARRAY).count

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, sorted. Raises `WrongTypeError` unless the value is an object."""
        names = _read_names(self.metadata)
        return [names[index] for index in _Layout(self.value, 0, _OBJECT).ids()]

    def get_element(self, index: int) -> Variant | None:
        """Return an element, counted from 0; None outside the array. Raises `WrongTypeError` unless it is an array."""
        layout = _Layout(self.value, 0, _ARRAY)
        return self._part(layout.find_start(index)) if 0 <= index < layout.count else None

    def get_field(self, name: str) -> Variant | None:
        """Return a field; None if there is none of this name. Raises `WrongTypeError` unless the value is an object."""
        layout, names = _Layout(self.value, 0, _OBJECT), _read_names(self.metadata)
        for index, number in enumerate(layout.ids()):
            if names[number] == name:
                return self._part(layout.find_start(index))
        return None

    def to_json(self) -> str:
        """Return the value as JSON, as Flink writes it: numbers that are not finite have no quotes."""
        return json_text(self.get())

    def _part(self, start: int) -> Variant:
        # A part is encoded again, because its names are not those of the whole value.
        return Variant.of(_Decoder(self.value, _read_names(self.metadata)).read_value(start))

    def __str__(self) -> str:
        return self.to_json()

    def __repr__(self) -> str:
        return f"Variant({self.to_json()})"


# --- bytes -----------------------------------------------------------------------------------------------------------


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)


def _width(number: int) -> int:
    """Return how many bytes an offset needs: 1 to 4."""
    return max(1, (number.bit_length() + 7) // 8)


def _offsets(parts: Sequence[bytes], size: int) -> bytes:
    total, numbers = 0, [0]
    for part in parts:
        total += len(part)
        numbers.append(total)
    return b"".join([number.to_bytes(size, "little") for number in numbers])


def _metadata(names: Sequence[str]) -> bytes:
    texts = [name.encode("utf-8", "surrogatepass") for name in names]
    size = _width(max(sum(map(len, texts)), len(texts)))
    flags = _VERSION | (_SORTED if texts else 0) | (size - 1) << 6
    return bytes([flags]) + len(texts).to_bytes(size, "little") + _offsets(texts, size) + b"".join(texts)


def _primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


def _encode(value: Any, ids: Mapping[str, int]) -> bytes:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        if len(data) <= _SHORT_MAX:
            return bytes([len(data) << 2 | _SHORT]) + data
        return _primitive(_STRING, len(data).to_bytes(4, "little") + data)
    if value is None or value is True or value is False:
        return _primitive(_NULL if value is None else _TRUE if value else _FALSE)
    if isinstance(value, Mapping):
        names = sorted(value, key=name_order)
        return _container(_OBJECT, [_encode(value[name], ids) for name in names], [ids[name] for name in names])
    if isinstance(value, list | tuple):
        return _container(_ARRAY, [_encode(item, ids) for item in value])
    for kind, encode in _ENCODERS:
        if isinstance(value, kind):
            return encode(value)
    raise WrongTypeError(f"a variant cannot hold {value!r} of type {type(value).__name__}")


def _container(kind: int, parts: Sequence[bytes], ids: Sequence[int] | None = None) -> bytes:
    size, is_large = _width(sum(map(len, parts))), len(parts) > 255
    id_size = _width(max(ids, default=0)) if ids is not None else 1
    bits = size - 1 if ids is None else size - 1 | (id_size - 1) << 2
    bits |= is_large << (2 if ids is None else 4)
    numbers = b"".join([number.to_bytes(id_size, "little") for number in ids or ()])
    count = len(parts).to_bytes(4 if is_large else 1, "little")
    return bytes([bits << 2 | kind]) + count + numbers + _offsets(parts, size) + b"".join(parts)


def _encode_int(value: int) -> bytes:
    for index, size in enumerate((1, 2, 4, 8)):
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return _primitive(_INT8 + index, value.to_bytes(size, "little", signed=True))
    return _encode_decimal(Decimal(value))


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise WrongTypeError(f"a variant cannot hold the decimal {value}")
    unscaled = int("".join(map(str, digits))) * 10 ** max(0, exponent)
    scale = max(0, -exponent)
    for index, (size, most) in enumerate(_DIGITS):
        if unscaled < 10**most and scale <= most:
            number = (-unscaled if sign else unscaled).to_bytes(size, "little", signed=True)
            return _primitive(_DECIMAL4 + index, bytes([scale]) + number)
    raise WrongTypeError(f"a variant cannot hold the decimal {value}: it has more than 38 digits")


def _encode_moment(value: datetime) -> bytes:
    kind = _LOCAL if value.tzinfo is None else _INSTANT
    local = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return _primitive(kind, ((local - _EPOCH) // _MICROSECOND).to_bytes(8, "little", signed=True))


def _encode_bytes(value: bytes) -> bytes:
    return _primitive(_BINARY, len(value).to_bytes(4, "little") + bytes(value))


def _encode_time(value: time) -> bytes:
    since_midnight = datetime.combine(_EPOCH, value) - _EPOCH
    return _primitive(_TIME, (since_midnight // _MICROSECOND).to_bytes(8, "little"))


_ENCODERS: Final[tuple[tuple[type[Any], Callable[[Any], bytes]], ...]] = (
    (int, _encode_int),
    (Single, lambda value: _primitive(_FLOAT, struct.pack("<f", value))),
    (float, lambda value: _primitive(_DOUBLE, struct.pack("<d", value))),
    (Decimal, _encode_decimal),
    (datetime, _encode_moment),
    (date, lambda value: _primitive(_DATE, (value.toordinal() - _DAY_ZERO).to_bytes(4, "little", signed=True))),
    (bytes, _encode_bytes),
    (time, _encode_time),
    (UUID, lambda value: _primitive(_UUID, value.bytes)),
)


def _cut(data: bytes, begin: int, size: int) -> bytes:
    if size < 0 or begin + size > len(data):
        raise FormatError("a variant ends too early")
    return data[begin : begin + size]


def _read_names(metadata: bytes) -> list[str]:
    if not metadata or metadata[0] & 15 != _VERSION:
        raise FormatError(f"the metadata of a variant begins with {metadata[:1].hex() or 'nothing'}, and not version 1")
    try:
        size = (metadata[0] >> 6) + 1
        count, begin = int.from_bytes(_cut(metadata, 1, size), "little"), 1 + size
        ends = [
            int.from_bytes(metadata[at : at + size], "little")
            for at in range(begin, begin + len(_cut(metadata, begin, size * (count + 1))), size)
        ]
        text = begin + size * (count + 1)
        return [
            str(_cut(metadata, text + first, end - first), "utf-8", "surrogatepass") for first, end in pairwise(ends)
        ]
    except UnicodeDecodeError as error:
        raise FormatError(f"the names of a variant cannot be read: {error}") from error


class _Layout:
    """Where the parts of an array or object are."""

    def __init__(self, data: bytes, at: int, kind: int) -> None:
        header = data[at]
        if header & 3 != kind:
            raise WrongTypeError(f"the variant is no {'array' if kind == _ARRAY else 'object'}")
        bits = header >> 2
        self._data, self._size = data, (bits & 3) + 1
        self._id_size = 0 if kind == _ARRAY else (bits >> 2 & 3) + 1
        count_size = 4 if bits >> (2 if kind == _ARRAY else 4) & 1 else 1
        self.count = int.from_bytes(_cut(data, at + 1, count_size), "little")
        self._ids = at + 1 + count_size
        self._offsets = self._ids + self._id_size * self.count
        self._parts = self._offsets + len(_cut(data, self._offsets, self._size * (self.count + 1)))

    def ids(self) -> list[int]:
        """Return the numbers of the names."""
        starts = range(self._ids, self._offsets, self._id_size)
        return [int.from_bytes(self._data[start : start + self._id_size], "little") for start in starts]

    def find_start(self, index: int) -> int:
        """Return where a part begins."""
        at = self._offsets + self._size * index
        return self._parts + int.from_bytes(self._data[at : at + self._size], "little")


def decode(value: bytes, metadata: bytes) -> Any:
    """Return the value in Python. Raises `FormatError` for bytes that are no variant."""
    return _decode(value, _read_names(metadata))


def _decode(value: bytes, names: Sequence[str]) -> Any:
    try:
        return _Decoder(value, names).read_value(0)
    except FormatError:
        raise
    except (IndexError, struct.error, OverflowError, ValueError, RecursionError) as error:
        raise FormatError(f"a variant cannot be read: {error}") from error


class _Decoder:
    """Decodes the values of one variant."""

    def __init__(self, data: bytes, names: Sequence[str]) -> None:
        self._data, self._names = data, names
        #: how many more values there can be, each of which has a byte of its own
        self._left = len(data)

    def read_value(self, at: int) -> Any:
        """Return the value that begins at an index."""
        data, self._left = self._data, self._left - 1
        if self._left < 0:
            raise FormatError("parts of a variant overlap")
        header = data[at]
        kind, bits = header & 3, header >> 2
        if kind == _SHORT:
            return str(_cut(data, at + 1, bits), "utf-8", "surrogatepass")
        if kind == _PRIMITIVE:
            return _decode_primitive(bits, data, at + 1)
        layout = _Layout(data, at, kind)
        parts = [self.read_value(layout.find_start(index)) for index in range(layout.count)]
        return parts if kind == _ARRAY else dict(zip([self._names[i] for i in layout.ids()], parts, strict=True))


def _decode_primitive(kind: int, data: bytes, at: int) -> Any:
    def whole(size: int, begin: int = at) -> int:
        return int.from_bytes(_cut(data, begin, size), "little", signed=True)

    match kind:
        case 0 | 1 | 2:
            return (None, True, False)[kind]
        case 3 | 4 | 5 | 6:
            return whole(1 << kind - 3)
        case 7:
            return struct.unpack_from("<d", data, at)[0]
        case 8 | 9 | 10:
            number, digits = whole(4 << kind - 8, at + 1), _DIGITS[kind - 8][1]
            if abs(number) >= 10**digits or data[at] > digits:
                raise FormatError(f"a decimal of a variant has more than {digits} digits")
            return Decimal((number < 0, tuple(map(int, str(abs(number)))), -data[at]))
        case 11:
            return date.fromordinal(whole(4) + _DAY_ZERO)
        case 12 | 13 | 18 | 19:
            moment = _EPOCH + _whole_microseconds(whole(8), kind > 13) * _MICROSECOND
            return moment.replace(tzinfo=UTC) if kind in (_INSTANT, _INSTANT_NS) else moment
        case 14:
            return Single(struct.unpack_from("<f", data, at)[0])
        case 15 | 16:
            content = _cut(data, at + 4, int.from_bytes(_cut(data, at, 4), "little"))
            return content if kind == _BINARY else str(content, "utf-8", "surrogatepass")
        case 17:
            return (_EPOCH + whole(8) * _MICROSECOND).time()
        case 20:
            return UUID(bytes=_cut(data, at, 16))
    raise FormatError(f"a variant has a value of kind {kind}, which this version does not know")


def _whole_microseconds(number: int, is_in_nanoseconds: bool) -> int:
    if not is_in_nanoseconds:
        return number
    if number % 1000:
        raise FormatError(f"a variant has a time {number} ns after 1970, and times of variants have microseconds here")
    return number // 1000


# --- columns of files ------------------------------------------------------------------------------------------------

#: a variant in a file
STORED: Final = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
_MISSING: Final = object()


def is_of_spark(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of Spark's variants: the two byte strings, the metadata with a mark."""
    return pa.types.is_struct(kind) and any(b"variant" in (field.metadata or ()) for field in kind)


def _is_variant(stored: pa.DataType) -> bool:
    return stored == STORED or is_of_spark(stored)


def from_stored(column: pa.Array, stored: pa.DataType) -> pa.Array:
    """Return a column of a file or of Spark with each variant as packed bytes; `stored` says where variants are.

    A file may have parts of variants in columns of their own, `typed_value` (Spark calls it shredding).
    """
    if not holds_variants(stored):
        return column
    if _is_variant(stored):
        return _packed(column)
    if pa.types.is_struct(stored) and pa.types.is_struct(column.type):
        wanted = {field.name: field.type for field in stored}
        parts = [
            from_stored(part, wanted[field.name]) if field.name in wanted else part
            for field, part in zip(column.type, column.flatten(), strict=True)
        ]
        names = [field.name for field in column.type]
        return pa.StructArray.from_arrays(parts, names, mask=column.is_null() if column.null_count else None)
    if pa.types.is_map(stored) and pa.types.is_map(column.type):
        items = from_stored(column.items, stored.item_type)
        keys = from_stored(column.keys, stored.key_type)
        return pa.MapArray.from_arrays(_starts(column), keys, items)
    if pa.types.is_list(stored) and pa.types.is_list(column.type):
        return pa.ListArray.from_arrays(_starts(column), from_stored(column.values, stored.value_type))
    return column


def to_stored(column: pa.Array, stored: pa.DataType) -> pa.Array:
    """Return a column with each variant as a file or Spark stores it: the inverse of `from_stored`."""
    if not holds_variants(stored):
        return column
    if _is_variant(stored):
        variants = [None if data is None else Variant.unpack(data) for data in column.to_pylist()]
        return pa.array(
            [None if it is None else {"metadata": it.metadata, "value": it.value} for it in variants], stored
        )
    if pa.types.is_struct(stored):
        parts = [to_stored(part, field.type) for field, part in zip(stored, column.flatten(), strict=True)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(stored), mask=mask)
    if pa.types.is_map(stored):
        keys, items = to_stored(column.keys, stored.key_type), to_stored(column.items, stored.item_type)
        return pa.MapArray.from_arrays(_starts(column), keys, items)
    return pa.ListArray.from_arrays(_starts(column), to_stored(column.values, stored.value_type))


def holds_variants(stored: pa.DataType) -> bool:
    """Return whether a type of a file or of Spark is a variant, or contains one."""
    if pa.types.is_struct(stored):
        return _is_variant(stored) or any(holds_variants(field.type) for field in stored)
    if pa.types.is_map(stored):
        return holds_variants(stored.key_type) or holds_variants(stored.item_type)
    return pa.types.is_list(stored) and holds_variants(stored.value_type)


def packed_type(stored: pa.DataType) -> pa.DataType:
    """Return a type of a file or of Spark with each variant as packed bytes."""
    if _is_variant(stored):
        return pa.binary()
    if pa.types.is_struct(stored):
        return pa.struct([field.with_type(packed_type(field.type)) for field in stored])
    if pa.types.is_map(stored):
        return pa.map_(packed_type(stored.key_type), packed_type(stored.item_type))
    return pa.list_(packed_type(stored.value_type)) if pa.types.is_list(stored) else stored


def _starts(column: pa.Array) -> pa.Array:
    """Return the offsets of lists or maps, NULL for those that are NULL."""
    if not column.null_count:
        return column.offsets
    missing = pa.concat_arrays([column.is_null(), pa.array([False])])
    return pc.if_else(missing, pa.scalar(None, pa.int32()), column.offsets)


def _packed(column: pa.Array) -> pa.Array:
    names = [] if not pa.types.is_struct(column.type) else [field.name for field in column.type]
    if not {"metadata", "value"} <= set(names) and "typed_value" not in names:
        raise FormatError(f"a column of type {column.type} is no variant")
    rebuild = _read_part(column.type)
    packed: list[bytes | None] = []
    for row in column.to_pylist():
        if row is None:
            packed.append(None)
            continue
        value = rebuild(row, _read_names(row["metadata"]))
        packed.append(Variant.of(None if value is _MISSING else value).pack())
    return pa.array(packed, pa.binary())


Part: TypeAlias = Callable[[Any, Sequence[str]], Any]


def _read_part(kind: pa.DataType) -> Part:
    """Return what makes a value of the columns `value` and `typed_value`, given the names of the metadata."""
    typed_type = next((field.type for field in kind if field.name == "typed_value"), None)
    typed_part = None if typed_type is None else _read_typed_part(typed_type)

    def part(row: dict[str, Any], names: Sequence[str]) -> Any:
        typed, value = row.get("typed_value"), row.get("value")
        rest = _MISSING if value is None else _decode(value, names)
        if typed is None or typed_part is None:
            return rest
        known = typed_part(typed, names)
        return {**known, **rest} if isinstance(known, dict) and isinstance(rest, dict) else known

    return part


def _read_typed_part(kind: pa.DataType) -> Part:
    if pa.types.is_struct(kind):
        parts = {field.name: _read_part(field.type) for field in kind}

        def fields(row: dict[str, Any], names: Sequence[str]) -> Any:
            values = {name: part(row[name], names) for name, part in parts.items() if row[name] is not None}
            return {name: value for name, value in values.items() if value is not _MISSING}

        return fields
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _read_part(kind.value_type)
        return lambda rows, names: [element(row, names) for row in rows]
    if pa.types.is_float32(kind):
        return lambda value, names: Single(value)
    if pa.types.is_fixed_size_binary(kind):
        return lambda value, names: UUID(bytes=value)
    return lambda value, names: value


# --- text ------------------------------------------------------------------------------------------------------------

_NAMED_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_NAMED_ESCAPES})


def text_in_quotes(text: str) -> str:
    """Return a string as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def json_text(value: Any) -> str:
    """Return a value of a variant as Flink writes it in JSON; names come in the order of the object."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return text_in_quotes(value)
        case Single():
            return float_text(value)
        case float():
            return double_text(value)
        case Decimal():
            return _plain(value)
        case dict():
            return "{" + ",".join([f"{text_in_quotes(name)}:{json_text(item)}" for name, item in value.items()]) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case datetime():
            return f'"{_moment_text(value)}"'
        case _:
            return f"{value}" if isinstance(value, int) else f'"{value}"'


def _moment_text(value: datetime) -> str:
    text = value.isoformat()
    if not value.microsecond:
        return text
    text, zone = (text[:-6], text[-6:]) if value.tzinfo else (text, "")
    return f"{text.rstrip('0')}{zone}"


def _plain(number: Decimal) -> str:
    """Return a decimal without an exponent and without trailing zeros."""
    text = f"{number if number else number.copy_abs():f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def double_text(value: float) -> str:
    """Return the shortest exact text of a DOUBLE: `1.5`, `1.0E10`, `NaN`, `Infinity`."""
    return _special(value) or _plain_or_scientific(Decimal(repr(value)), value)


def float_text(value: float) -> str:
    """Return the text of a FLOAT, which has fewer digits than a DOUBLE."""
    return _special(value) or _plain_or_scientific(Decimal(np.format_float_scientific(np.float32(value))), value)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return ("-0.0" if math.copysign(1, value) < 0 else "0.0") if value == 0 else ""


def _plain_or_scientific(number: Decimal, value: float) -> str:
    sign, digits, _ = number.normalize().as_tuple()
    digit_text = "".join(map(str, digits))
    exponent = number.adjusted()
    prefix = "-" if sign else ""
    if not -3 <= exponent < 7:
        return f"{prefix}{digit_text[0]}.{digit_text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{prefix}0.{'0' * (-exponent - 1)}{digit_text}"
    integer = digit_text[: exponent + 1].ljust(exponent + 1, "0")
    return f"{prefix}{integer}.{digit_text[exponent + 1 :] or '0'}"
