"""Schemas and encoders, which convert between records and bytes at the edges of a job.

PyFlink's schemas and encoders only wrap Java classes. These do the work themselves and can be subclassed.

**Decoding in batches.** A source passes all fetched messages to a `DeserializationSchema`, which returns a
`Deserialized`: the records, the message that each came from, and the malformed messages. It never raises for a
malformed message: only the source knows where that message came from and how the user wants it handled.

`renderer` renders records of a declared type as text like Java's `toString`, for print and for files of lines.

`number_text` and `read_decimal` read number text in messages. Python accepts more forms than Java, whose rules Flink's
formats follow.
"""

from __future__ import annotations

import codecs
import copy
import csv
import datetime
import decimal
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, Final, Generic, Literal, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from penstock.base import typeinfo
from penstock.base.copies import with_own_results
from penstock.base.errors import FormatError, WrongValueError
from penstock.base.output_tag import OutputTag
from penstock.base.types import Row, values_by_names
from penstock.codecs.column_data import ColumnData

X = TypeVar("X")

#: How to handle unreadable data: fail the job, or skip and count it.
OnError = Literal["fail", "skip"]

#: Exceptions that parsing one record may raise; any other is a bug in the program rather than bad data. A
#: RecursionError comes from values that are nested too deeply.
BAD_RECORD: Final = (
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    csv.Error,
    msgspec.MsgspecError,
    RecursionError,
)


class BadMessage(NamedTuple):
    """A message that does not match the format.

    Attributes:
        place: its index among the messages, from 0.
        reason: a one-line description of the error, naming the invalid field if there is one.
        cause: the exception that it raised, if any.
    """

    place: int
    reason: str
    cause: BaseException | None = None


class Deserialized(NamedTuple):
    """The decoded messages, in order.

    Attributes:
        values: the records, as a list or as columns; together with their timestamps they make a batch.
        places: the message index of each record; None if each message is one record.
        bad: the malformed messages, in order.
        kinds: the row kind of each record, one byte each as in `Batch.kinds`; None if all are inserts.
    """

    values: list[Any] | ColumnData
    places: Sequence[int] | None = None
    bad: Sequence[BadMessage] = ()
    kinds: bytes | None = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The records; they must be columns."""
        assert isinstance(self.values, ColumnData)
        return self.values.columns

    def of_records(self, of_messages: Sequence[X]) -> Sequence[X]:
        """Select each record's entry from a sequence with one entry per message, such as timestamps."""
        return of_messages if self.places is None else [of_messages[position] for position in self.places]


def decode_each(decode: Callable[[bytes], Any], messages: Sequence[bytes]) -> Deserialized:
    """Decode messages one by one; `decode` returns None for a message without a record."""
    try:
        values = list(map(decode, messages))
        bad: list[BadMessage] = []
    except BAD_RECORD:
        values, bad = [], []
        for index, message in enumerate(messages):
            try:
                values.append(decode(message))
            except BAD_RECORD as error:
                values.append(None)
                bad.append(BadMessage(index, format_reason(error), error))
    if None not in values:
        return Deserialized(values)
    positions = [position for position, value in enumerate(values) if value is not None]
    return Deserialized([values[position] for position in positions], positions, bad)


def decode_records(decode: Callable[[X], Any], records: Iterable[X]) -> Deserialized:
    """Decode whole records one by one, each once; `decode` may reuse an object that it has returned.

    `decode` returns None for a record to leave out.
    """
    decode = with_own_results(decode)
    values: list[Any] = []
    positions: list[int] = []
    bad: list[BadMessage] = []
    for position, record in enumerate(records):
        try:
            value = decode(record)
        except BAD_RECORD as error:
            bad.append(BadMessage(position, format_reason(error), error))
            continue
        if value is not None:
            values.append(value)
            positions.append(position)
    return Deserialized(values, positions, bad)


def format_reason(error: BaseException) -> str:
    """Return a one-line reason why a record could not be read."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not {error.encoding}"
    return str(error).partition("\n")[0] or type(error).__name__


Renderer = Callable[[Any], str]

_ELEMENTS = (
    typeinfo.BasicArrayTypeInfo,
    typeinfo.ListTypeInfo,
    typeinfo.ObjectArrayTypeInfo,
    typeinfo.PrimitiveArrayTypeInfo,
)


def renderer(type_info: typeinfo.TypeInformation | None) -> Renderer:
    """Return the function that renders a record of this type; `str` if no type is declared.

    A ROW is `+I[1, a]`, a TUPLE `(1,a)`, a list `[1, 2]`, a MAP `{a=1}`; None is `null`, True is `true`, 1e10 as a
    DOUBLE or FLOAT `1.0E10`, a TIMESTAMP `2026-01-31 12:00:00.0`, a TIME `12:00:00`. Arrays look like lists.
    """
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return _row(type_info)
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        fields = [_or_null(field) for field in type_info.get_field_types()]
        return lambda value: f"({','.join([render(item) for render, item in zip(fields, value, strict=True)])})"
    if isinstance(type_info, _ELEMENTS):
        element = _or_null(type_info.element_type)
        return lambda value: f"[{', '.join(map(element, value))}]"
    if isinstance(type_info, typeinfo.MapTypeInfo):
        key, item = _or_null(type_info.key_type_info), _or_null(type_info.value_type_info)
        return lambda value: f"{{{', '.join([f'{key(k)}={item(v)}' for k, v in value.items()])}}}"
    return str if type_info is None or isinstance(type_info, typeinfo.PickledBytesTypeInfo) else _or_null(type_info)


def _row(type_info: typeinfo.RowTypeInfo) -> Renderer:
    fields = [_or_null(field) for field in type_info.get_field_types()]
    names = tuple(type_info.get_field_names())

    def render(value: Any) -> str:
        kind, values = "+I", value
        if isinstance(value, Row):
            kind, values = value.get_row_kind().short_string, values_by_names(value, names)
        return f"{kind}[{', '.join([render_field(item) for render_field, item in zip(fields, values, strict=True)])}]"

    return render


def _or_null(type_info: typeinfo.TypeInformation | None) -> Renderer:
    """Return the function that renders values within a record, and values of basic types."""
    inner = _inner(type_info)

    def render(value: Any) -> str:
        if value is None:
            return "null"
        if value is True or value is False:
            return "true" if value else "false"
        return inner(value)

    return render


def _inner(type_info: typeinfo.TypeInformation | None) -> Renderer:
    if isinstance(type_info, typeinfo.BasicTypeInfo):
        return {typeinfo.BasicType.DOUBLE: java_double, typeinfo.BasicType.FLOAT: java_float}.get(
            type_info.basic_type, str
        )
    if isinstance(type_info, typeinfo.TimestampTypeInfo):
        return _timestamp
    if isinstance(type_info, typeinfo.TimeTypeInfo):
        return _time
    if isinstance(type_info, (typeinfo.RowTypeInfo, typeinfo.TupleTypeInfo, typeinfo.MapTypeInfo, *_ELEMENTS)):
        return renderer(type_info)
    return str


def java_double(value: Any) -> str:
    """Format a number like Java's `Double.toString`."""
    return _java(float(value), repr(float(value)))


def java_float(value: Any) -> str:
    """Format a number in single precision like Java's `Float.toString`."""
    single = np.float32(value)
    return _java(float(single), str(single))


def _java(value: float, shortest: str) -> str:
    """Format the digits of `shortest`; use scientific notation below 0.001 and from 10,000,000 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(shortest):f}" if "e" in shortest else shortest
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def _timestamp(value: Any) -> str:
    if not isinstance(value, datetime.datetime):
        return str(value)
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _time(value: Any) -> str:
    return f"{value:%H:%M:%S}" if isinstance(value, datetime.time) else str(value)


__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]

T = TypeVar("T")


class SerializationSchema(ABC, Generic[T]):
    """Converts records to messages.

    Examples:
        >>> from penstock.common import SerializationSchema
        >>> class Lines(SerializationSchema):
        ...     def serialize(self, element):
        ...         return f"{element}!".encode()
        >>> Lines().serialize("tea")
        b'tea!'
    """

    @abstractmethod
    def serialize(self, element: T) -> bytes:
        """Return the message for a record.

        Raises:
            FormatError: if the record cannot be written in this format.
        """

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the message for each of many records; calls `serialize` for each by default.

        Raises:
            FormatError: if a record cannot be written in this format; the message shows the record.
        """
        records: Iterable[Any] = elements
        return list(map(self.serialize, records))


class DeserializationSchema(ABC, Generic[T]):
    """Converts messages to records.

    Attributes:
        on_error: how a source handles a message that is not in this format: `fail`, unless `skip_malformed` was called.
        malformed_output: the side output for such messages, if any.

    Examples:
        >>> from penstock.common import DeserializationSchema
        >>> class Numbers(DeserializationSchema):
        ...     def deserialize(self, message):
        ...         return int(message)
        >>> Numbers().deserialize(b"42")
        42
    """

    on_error: OnError = "fail"
    malformed_output: OutputTag | None = None

    @abstractmethod
    def deserialize(self, message: bytes) -> T | None:
        """Return the record of a message, or None to drop the message.

        Raises:
            FormatError: if the message is not in this format.
        """

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the records of many messages and the malformed messages; see `Deserialized`.

        Sources call only this method. By default it calls `deserialize` for each message, which may reuse an object
        that it has already returned.
        """
        return decode_each(with_own_results(self.deserialize), messages)

    def skip_malformed(self, output: OutputTag | None = None) -> Self:
        """Return a copy of this schema that makes sources skip malformed messages.

        Skipped messages are counted in the metric `malformed_records`. By default a malformed message fails the job.

        Args:
            output: a side output of the source. It receives a tuple for each such message: the split (for Kafka, topic
                and partition), the position in it, the reason, and the message's bytes.
        """
        changed = copy.copy(self)
        changed.on_error, changed.malformed_output = "skip", output
        return changed

    def malformed_handling(self) -> dict[str, Any]:
        """Return the settings of `skip_malformed`, for schemas that pickle as their constructor's arguments."""
        return {"on_error": self.on_error, "malformed_output": self.malformed_output}

    def is_end_of_stream(self, next_element: T) -> bool:
        """Return whether the record marks the end of the stream; False unless overridden."""
        return False

    def get_produced_type(self) -> typeinfo.TypeInformation:
        """Return the type of the records; any Python object, unless overridden."""
        return typeinfo.Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """Converts text to and from the bytes of a character set.

    Raises:
        LookupError: if the character set is unknown.

    Examples:
        >>> from penstock.common import SimpleStringSchema
        >>> SimpleStringSchema().serialize("tea"), SimpleStringSchema("latin-1").deserialize(b"tea")
        (b'tea', 'tea')
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = codecs.lookup(charset).name

    def serialize(self, element: str) -> bytes:
        """Return the encoded text."""
        if not isinstance(element, str):
            raise FormatError(f"SimpleStringSchema writes str, not {type(element).__name__}: {element!r}")
        try:
            return element.encode(self._charset)
        except UnicodeError as error:
            raise FormatError(f"cannot write {element!r} as {self._charset}: {error}") from error

    def serialize_batch(self, elements: Sequence[Any] | ColumnData) -> list[bytes]:
        """Return the encoded form of many texts."""
        charset = self._charset
        try:
            return [element.encode(charset) for element in elements]
        except (AttributeError, UnicodeError):
            return super().serialize_batch(elements)

    def deserialize(self, message: bytes) -> str:
        """Return the text; invalid bytes become the replacement character, as in Java."""
        return message.decode(self._charset, errors="replace")

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the texts of many messages."""
        charset = self._charset
        return Deserialized([message.decode(charset, "replace") for message in messages])

    def get_produced_type(self) -> typeinfo.TypeInformation:
        """Text."""
        return typeinfo.Types.STRING()


class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """Passes bytes through unchanged.

    Examples:
        >>> from penstock.common import ByteArraySchema
        >>> ByteArraySchema().deserialize(b"tea")
        b'tea'
    """

    def __init__(self) -> None:
        super().__init__()

    def serialize(self, element: bytes) -> bytes:
        """Return the record itself, which must be bytes."""
        return _require_bytes(element, "ByteArraySchema writes bytes")

    def deserialize(self, message: bytes) -> bytes:
        """Return the message itself."""
        return message

    def deserialize_batch(self, messages: Sequence[bytes]) -> Deserialized:
        """Return the messages themselves."""
        return Deserialized(list(messages))

    def get_produced_type(self) -> typeinfo.TypeInformation:
        """Bytes."""
        return typeinfo.Types.PRIMITIVE_ARRAY(typeinfo.Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema[Any]):
    """Uses one bytes field of a row as the message, for example as the key of a Kafka record.

    Args:
        field_index: the index of the field, from 0.

    Raises:
        ValueError: if the index is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise WrongValueError(f"the position of a field must not be negative: {field_index}")
        self._field_index = field_index

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of the field, or empty bytes if the field is None."""
        if self._field_index >= len(element):
            raise FormatError(f"no field {self._field_index} in {element!r}")
        field = element[self._field_index]
        return b"" if field is None else _require_bytes(field, f"field {self._field_index} must hold bytes")


class Encoder(Generic[T]):
    """Writes records to a file one after the other.

    Args:
        encode: returns a record's bytes, including the line end.

    Examples:
        >>> import io
        >>> from penstock.common import Encoder
        >>> file = io.BytesIO()
        >>> Encoder.simple_string_encoder().encode(("tea", 2), file)
        >>> file.getvalue().decode().splitlines()
        ["('tea', 2)"]
    """

    def __init__(self, encode: Callable[[T], bytes]) -> None:
        self._encode = encode

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder[Any]:
        """Return an encoder that writes each record as a line of text.

        Records of a declared type are formatted as in Flink: a TUPLE as `(hi,1)`, a ROW as `+I[hi, 1]`, a boolean as
        `true`, a double as `1.0E10`. All others are formatted by `str`.

        Raises:
            LookupError: if the character set is unknown.
        """
        return Encoder(_StringLine(codecs.lookup(charset_name).name))

    def for_type(self, type_info: typeinfo.TypeInformation | None) -> Encoder[T]:
        """Return the encoder for records of a declared type, or of none; by default the type has no effect."""
        encode = getattr(self, "_encode", None)  # a subclass may not set `_encode`
        return Encoder(encode.for_type(type_info)) if isinstance(encode, _StringLine) else self

    def encode(self, element: T, stream: BinaryIO) -> None:
        """Write a record at the stream's position."""
        stream.write(self._encode(element))


class _StringLine:
    """Formats a record as a line of text; a class, so that encoders can be pickled."""

    def __init__(self, charset: str, type_info: typeinfo.TypeInformation | None = None) -> None:
        self._charset = charset
        self._type_info = type_info
        self._render: Callable[[Any], str] | None = None

    def for_type(self, type_info: typeinfo.TypeInformation | None) -> _StringLine:
        return _StringLine(self._charset, type_info)

    def __call__(self, element: Any) -> bytes:
        render = self._render
        if render is None:
            render = self._render = renderer(self._type_info)
        return f"{render(element)}\n".encode(self._charset)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_render": None}


class BulkWriter(ABC, Generic[T]):
    """Writes records to one file in a format that buffers them, such as Parquet."""

    @abstractmethod
    def add_element(self, element: T) -> None:
        """Add a record, which may stay in memory until `flush`."""

    @abstractmethod
    def flush(self) -> None:
        """Write the buffered records."""

    @abstractmethod
    def finish(self) -> None:
        """Write the buffered records and the file footer; leave the stream open."""


class BulkWriterFactory(ABC, Generic[T]):
    """Creates a `BulkWriter` for each file."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter[T]:
        """Return a writer for a new, empty file."""


def _require_bytes(value: Any, rule: str) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise FormatError(f"{rule}, not {type(value).__name__}: {value!r}")
    return bytes(value)


def number_text(text: str) -> str:
    """Strip surrounding whitespace.

    Raises:
        FormatError: if the text contains an underscore, which Python accepts as a digit separator.
    """
    if "_" in text:
        raise FormatError(f"{text!r} is not a number")
    return text.strip()


#: No number of a type has as many digits before the point.
_DIGITS_MAX: Final = 400
_TOO_LARGE: Final = 10**_DIGITS_MAX


def parse_digits(digits: str) -> int:
    """Return the integer of ASCII digits, or one that is too large for every type if there are very many.

    Python refuses to parse thousands of digits, by an error that no caller expects.
    """
    significant = digits.lstrip("0")
    return int(significant or 0) if len(significant) < _DIGITS_MAX else _TOO_LARGE


def to_whole(number: float | decimal.Decimal) -> int | None:
    """Return a number as an integer; None if it has a fraction, or is too large for every type.

    A number such as 1e999999999 is never written out: that would take all memory.
    """
    if isinstance(number, decimal.Decimal):
        if not number.is_finite() or number.adjusted() >= _DIGITS_MAX:
            return None
    elif not math.isfinite(number):
        return None
    whole = int(number)
    return whole if whole == number else None


def read_decimal(text: str) -> decimal.Decimal:
    """Parse a decimal number.

    Raises:
        FormatError: if it is NaN or infinite, which Java's `BigDecimal` cannot represent, or contains an underscore.
        ArithmeticError: if the text is not a number.
    """
    value = decimal.Decimal(number_text(text))
    if not value.is_finite():
        raise FormatError(f"{text!r} is not a decimal number")
    return value
