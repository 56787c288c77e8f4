"""Rows in Avro's binary encoding: one message, one record, without a file header.

Supported are records, enums, arrays, maps, fixed, unions, all primitive types, named references (recursive ones too),
and the logical types decimal, date, time and timestamp (milliseconds and microseconds). A record is a `Row` with names;
a union takes the first branch that fits the value. The writer's schema is the reader's: there is no schema resolution.
"""

from __future__ import annotations

import datetime
import decimal
import json
import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from penstock.base.errors import FormatError, UnsupportedError, WrongTypeError, shorten
from penstock.base.types import Row
from penstock.codecs.messages import Deserialized, decode_each
from penstock.codecs.serialization import DeserializationSchema, SerializationSchema

__all__ = ["AvroRowDeserializationSchema", "AvroRowSerializationSchema"]

_EPOCH = datetime.datetime(1970, 1, 1)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_VARINT_BYTES_MAX = 10
_ITEMS_MAX = 65_536  # of items that take no bytes, nulls, in one block
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_ERRORS = (ArithmeticError, AttributeError, EOFError, LookupError, TypeError, ValueError, RecursionError, struct.error)


class AvroRowDeserializationSchema(DeserializationSchema[Row]):
    """Reads rows from Avro records.

    Args:
        record_class: a Java class, which Penstock cannot use.
        avro_schema_string: the schema of the record, as JSON.

    Raises:
        TypeError: if no schema is given.
        NotImplementedError: if a Java class is given.
        FormatError: if the schema is not that of a record.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema_text = _schema_text(record_class, avro_schema_string)
        self._codec = _compile(self._schema_text)

    def deserialize(self, message: bytes) -> Row | None:
        """Returns the row of a message. A message that cannot be read is dropped if such messages are skipped.

        Raises:
            FormatError: if the message is not such a record, or holds more than one.
        """
        try:
            return self._record(message)
        except ValueError as error:
            if self.on_error == "skip":
                return None
            raise FormatError(f"cannot read Avro {shorten(repr(message))}: {error}") from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Returns the rows of many messages."""
        return decode_each(self._record, messages)

    def _record(self, message: bytes) -> Row:
        source = BytesIO(message)
        try:
            row: Row = self._codec.read(source)
        except _ERRORS as error:
            raise ValueError(str(error)) from error
        if source.read(1):
            raise ValueError("bytes are left after the record")
        return row

    def deserialize_many(self, message: bytes, count: int) -> list[Row]:
        """Returns the rows of so many records, one behind the other.

        Raises:
            FormatError: if the message is not made of such records, or holds more; it names the first bad one.
        """
        source = BytesIO(message)
        rows: list[Row] = []
        try:
            for _ in range(count):
                rows.append(self._codec.read(source))
        except _ERRORS as error:
            raise FormatError(f"cannot read Avro record {len(rows) + 1} of {count}: {error}") from error
        if source.read(1):
            raise FormatError(f"bytes are left after {count} Avro records")
        return rows

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._schema_text), self.malformed_handling()


class AvroRowSerializationSchema(SerializationSchema[Any]):
    """Writes rows, tuples, or dicts as Avro records.

    Args:
        record_class: a Java class, which Penstock cannot use.
        avro_schema_string: the schema of the record, as JSON.

    Raises:
        TypeError: if no schema is given.
        NotImplementedError: if a Java class is given.
        FormatError: if the schema is not that of a record.
    """

    def __init__(self, record_class: str | None = None, avro_schema_string: str | None = None) -> None:
        self._schema_text = _schema_text(record_class, avro_schema_string)
        self._codec = _compile(self._schema_text)

    def serialize(self, element: Any) -> bytes:
        """Returns the message for a record.

        Raises:
            FormatError: if the record does not fit the schema.
        """
        out = bytearray()
        try:
            self._codec.write(out, element)
        except _ERRORS as error:
            raise FormatError(f"cannot write {shorten(repr(element))} as Avro: {error}") from error
        return bytes(out)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self._schema_text)


class _Codec:
    """How values of one schema are recognised, written and read."""

    __slots__ = ("fits", "read", "write")

    def __init__(
        self,
        fits: Callable[[Any], bool],
        write: Callable[[bytearray, Any], None],
        read: Callable[[BytesIO], Any],
    ) -> None:
        self.fits = fits
        self.write = write
        self.read = read


def _schema_text(record_class: str | None, avro_schema_string: str | None) -> str:
    if record_class is not None:
        raise UnsupportedError("Avro record classes are Java; give the schema as avro_schema_string")
    if avro_schema_string is None:
        raise WrongTypeError("avro_schema_string must be given")
    return avro_schema_string


def _compile(text: str) -> _Codec:
    try:
        schema = json.loads(text)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise ValueError("it must describe a record")
        return _codec(schema, {}, "")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"not an Avro schema: {error!r}") from error


def _codec(schema: Any, named: dict[str, _Codec], namespace: str) -> _Codec:
    """The codec of a schema; `named` holds those defined so far, by full name."""
    if isinstance(schema, list):
        return _union([_codec(branch, named, namespace) for branch in schema])
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _primitive(schema)
        return named[schema if "." in schema or not namespace else f"{namespace}.{schema}"]
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in ("record", "enum", "fixed", "array", "map"):
        return _logical(schema, _codec(kind, named, namespace))
    if kind == "array":
        return _array(_codec(schema["items"], named, namespace))
    if kind == "map":
        return _map(_codec(schema["values"], named, namespace))
    name = schema["name"]
    space = name.rpartition(".")[0] or schema.get("namespace", namespace)
    full_name = name if "." in name or not space else f"{space}.{name}"
    if kind == "enum":
        codec = _enum(schema["symbols"])
    elif kind == "fixed":
        codec = _logical(schema, _fixed(schema["size"]))
    else:
        return _record(schema["fields"], named, full_name, space)
    named[full_name] = codec
    return codec


def _record(fields: list[dict[str, Any]], named: dict[str, _Codec], full_name: str, namespace: str) -> _Codec:
    names = tuple(field["name"] for field in fields)
    codecs: list[_Codec] = []

    def values_of(value: Any) -> Any:
        return [value[name] for name in names] if isinstance(value, dict) else value

    def fits(value: Any) -> bool:
        if isinstance(value, dict):
            return value.keys() == set(names)
        return isinstance(value, (Row, tuple, list)) and len(value) == len(names)

    def write(out: bytearray, value: Any) -> None:
        if not fits(value):
            raise ValueError(f"{value!r} is not of type {full_name}")
        for codec, item in zip(codecs, values_of(value), strict=True):
            codec.write(out, item)

    def read(source: BytesIO) -> Row:
        row = Row(*[codec.read(source) for codec in codecs])
        row.set_field_names(names)
        return row

    named[full_name] = codec = _Codec(fits, write, read)  # before its fields, which may refer to it
    codecs.extend(_codec(field["type"], named, namespace) for field in fields)
    return codec


def _union(branches: list[_Codec]) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        for index, branch in enumerate(branches):
            if branch.fits(value):
                write_long(out, index)
                branch.write(out, value)
                return
        raise ValueError(f"{value!r} fits no branch of the union")

    def read(source: BytesIO) -> Any:
        return branches[_read_index(source, len(branches))].read(source)

    return _Codec(lambda value: any(branch.fits(value) for branch in branches), write, read)


def _array(item: _Codec) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        if len(value):
            write_long(out, len(value))
            for element in value:
                item.write(out, element)
        out.append(0)

    def read(source: BytesIO) -> list[Any]:
        return [item.read(source) for _ in _items(source)]

    return _Codec(lambda value: isinstance(value, (list, tuple)) and all(map(item.fits, value)), write, read)


def _map(item: _Codec) -> _Codec:
    text = _primitive("string")

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(k, str) and item.fits(v) for k, v in value.items())

    def write(out: bytearray, value: Any) -> None:
        if len(value):
            write_long(out, len(value))
            for key, element in value.items():
                text.write(out, key)
                item.write(out, element)
        out.append(0)

    def read(source: BytesIO) -> dict[str, Any]:
        return {text.read(source): item.read(source) for _ in _items(source)}

    return _Codec(fits, write, read)


def _items(source: BytesIO) -> Any:
    """Yields once for each item of the blocks of an array or map; a negative count is followed by the block's size."""
    while count := read_long(source):
        if count < 0:
            read_long(source)
        if abs(count) > _ITEMS_MAX + source.getbuffer().nbytes:
            raise ValueError(f"{abs(count)} items in a message of {source.getbuffer().nbytes} bytes")
        yield from range(abs(count))


def _enum(symbols: list[str]) -> _Codec:
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    return _Codec(
        lambda value: isinstance(value, str) and value in indices,
        lambda out, value: write_long(out, indices[value]),
        lambda source: symbols[_read_index(source, len(symbols))],
    )


def _fixed(size_bytes: int) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        if len(value) != size_bytes:
            raise ValueError(f"{len(value)} bytes instead of {size_bytes}")
        out.extend(value)

    return _Codec(
        lambda value: isinstance(value, (bytes, bytearray)) and len(value) == size_bytes,
        write,
        lambda source: _read_exactly(source, size_bytes),
    )


def _primitive(kind: str) -> _Codec:
    match kind:
        case "null":
            return _checked(_Codec(lambda value: value is None, lambda out, value: None, lambda source: None), kind)
        case "boolean":
            return _checked(_Codec(lambda v: isinstance(v, bool), lambda out, v: out.append(v), _read_boolean), kind)
        case "int" | "long":
            high = 1 << (31 if kind == "int" else 63)
            return _checked(
                _Codec(
                    lambda v: isinstance(v, int) and not isinstance(v, bool) and -high <= v < high,
                    write_long,
                    read_long,
                ),
                kind,
            )
        case "float" | "double":
            form = struct.Struct("<f" if kind == "float" else "<d")
            return _checked(
                _Codec(
                    lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
                    lambda out, v: out.extend(form.pack(v)),
                    lambda source: form.unpack(_read_exactly(source, form.size))[0],
                ),
                kind,
            )
        case "bytes":
            return _checked(_Codec(lambda v: isinstance(v, (bytes, bytearray)), _write_bytes, _read_bytes), kind)
        case _:
            return _checked(
                _Codec(
                    lambda v: isinstance(v, str),
                    lambda out, v: _write_bytes(out, v.encode()),
                    lambda source: _read_bytes(source).decode(),
                ),
                kind,
            )


def _checked(codec: _Codec, kind: str) -> _Codec:
    """The same codec, refusing to write a value that does not fit."""

    def write(out: bytearray, value: Any) -> None:
        if not codec.fits(value):
            raise ValueError(f"{value!r} is not of type {kind}")
        codec.write(out, value)

    return _Codec(codec.fits, write, codec.read)


def _logical(schema: dict[str, Any], base: _Codec) -> _Codec:
    """The codec of a logical type over its base; the base itself for a type that is not known, as Avro demands."""
    match schema.get("logicalType"):
        case "date":
            epoch = _EPOCH.date()
            return _mapped(
                base,
                lambda v: isinstance(v, datetime.date) and not isinstance(v, datetime.datetime),
                lambda v: (v - epoch).days,
                lambda days: epoch + datetime.timedelta(days=days),
            )
        case "time-millis" | "time-micros" as name:
            unit = _MILLISECOND if name.endswith("millis") else _MICROSECOND
            return _mapped(
                base,
                lambda v: isinstance(v, datetime.time),
                lambda v: (datetime.datetime.combine(_EPOCH, v.replace(tzinfo=None)) - _EPOCH) // unit,
                lambda count: (_EPOCH + count * unit).time(),
            )
        case "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros" as name:
            unit = _MILLISECOND if name.endswith("millis") else _MICROSECOND
            return _mapped(
                base,
                lambda v: isinstance(v, datetime.datetime),
                lambda v: (_utc(v) - _EPOCH) // unit,
                lambda count: _EPOCH + count * unit,
            )
        case "decimal":
            return _decimal(base, schema.get("scale", 0), schema.get("size"))
        case _:
            return base


def _mapped(
    base: _Codec, fits: Callable[[Any], bool], lower: Callable[[Any], Any], lift: Callable[[Any], Any]
) -> _Codec:
    def write(out: bytearray, value: Any) -> None:
        if not fits(value):
            raise ValueError(f"{value!r} is not of the logical type")
        base.write(out, lower(value))

    return _Codec(fits, write, lambda source: lift(base.read(source)))


def _decimal(base: _Codec, scale: int, size_bytes: int | None) -> _Codec:
    def lower(value: decimal.Decimal) -> bytes:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or exponent < -scale:
            raise ValueError(f"{value} has more than {scale} decimals")
        unscaled: int = int("".join(map(str, digits))) * 10 ** (exponent + scale) * (-1 if sign else 1)
        length = size_bytes or unscaled.bit_length() // 8 + 1
        return unscaled.to_bytes(length, "big", signed=True)

    def lift(data: bytes) -> decimal.Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return decimal.Decimal((int(unscaled < 0), digits, -scale))

    return _mapped(base, lambda value: isinstance(value, decimal.Decimal), lower, lift)


def _utc(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def write_long(out: bytearray, value: int) -> None:
    """Zigzag, then seven bits a byte, the lowest first."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_long(source: BytesIO) -> int:
    """What `write_long` wrote. Raises `EOFError` at the end, and `ValueError` for what is no number."""
    result = 0
    for position in range(_VARINT_BYTES_MAX):
        byte = _read_exactly(source, 1)[0]
        result |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1)
    raise ValueError(f"a number of more than {_VARINT_BYTES_MAX} bytes")


def _read_index(source: BytesIO, count: int) -> int:
    index = read_long(source)
    if not 0 <= index < count:
        raise ValueError(f"index {index} of {count}")
    return index


def _read_boolean(source: BytesIO) -> bool:
    return _read_exactly(source, 1) != b"\0"


def _write_bytes(out: bytearray, value: bytes) -> None:
    write_long(out, len(value))
    out.extend(value)


def _read_bytes(source: BytesIO) -> bytes:
    size_bytes: int = read_long(source)
    return _read_exactly(source, size_bytes)


def _read_exactly(source: BytesIO, size_bytes: int) -> bytes:
    data: bytes = source.read(size_bytes) if size_bytes >= 0 else b""
    if len(data) != size_bytes:
        raise EOFError(f"{size_bytes} bytes expected, {len(data)} left")
    return data
