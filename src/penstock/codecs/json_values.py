"""JSON messages parsed like Jackson, whose rules Flink's formats follow, and conversion of parsed values to row types.

**Parsing.** msgspec parses most messages. It rejects a few that Jackson accepts: an unescaped control character in a
string, an unpaired surrogate, a number too large for 64 bits, a byte order mark. `parse_message` is the reference for
those.

**Conversion.** `reader` and `writer` convert single values between parsed JSON and row types. Dates, times and
timestamps are ISO-8601 text, in UTC unless a zone is given; bytes are base64; integers and decimals keep all their
digits.
"""

from __future__ import annotations

import base64
import codecs
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

import msgspec

from penstock.base import typeinfo
from penstock.base.errors import FormatError, WrongTypeError
from penstock.base.time import Instant
from penstock.base.types import Row, values_by_names
from penstock.codecs.pickling import make_rows
from penstock.codecs.serialization import BAD_RECORD, format_reason, number_text, read_decimal, to_whole

#: Python refuses to convert more digits, because conversion takes quadratic time
_INTEGER_DIGITS_MAX: Final = 4_000
#: an escaped surrogate, or the three bytes of one
_SURROGATES: Final = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
#: a negative zero, whose sign msgspec drops
_MINUS_ZERO: Final = re.compile(rb"-0[\s,\]}]")


class NumberText:
    """The text of a number that has a decimal point or an exponent."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def check_utf8(message: bytes) -> None:
    """Raise `UnicodeDecodeError` if a message is not UTF-8; msgspec does not check fields that it skips."""
    if not message.isascii():
        message.decode()


def parse_message(message: bytes) -> Any:
    """Parse a message with one JSON value into dicts, lists, strings, integers, `NumberText`, Booleans and None.

    The encoding is UTF-8, UTF-16 or UTF-32, detected from the first bytes. The last of several fields with the same
    name wins. An unpaired surrogate becomes a question mark. Strings may contain unescaped control characters such as a
    tab, because Flink's table formats accept them.

    Raises:
        FormatError: if the message is not JSON, or is nested too deeply.
        UnicodeDecodeError: if the bytes cannot be decoded.
    """
    return _parse(message, _DECODER)


def parse_strictly(message: bytes) -> Any:
    """Parse like `parse_message`, but reject unescaped control characters and return numbers as `Decimal`.

    These are the rules of Flink's DataStream schemas.
    """
    return _parse(message, _STRICT_DECODER)


def message_parser(keeps_digits: bool) -> Callable[[bytes], Any]:
    """Return a faster `parse_message`. Unless `keeps_digits`, a number with a point or an exponent may be a float."""
    parse_quickly = msgspec.json.Decoder(float_hook=NumberText if keeps_digits else None).decode

    def parse(message: bytes) -> Any:
        try:
            if not (keeps_digits and _MINUS_ZERO.search(message)):
                return parse_quickly(message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        return parse_message(message)

    return parse


def _parse(message: bytes, decoder: json.JSONDecoder) -> Any:
    text = _decode_message(message)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"JSON is malformed: {error.msg} (character {error.pos})") from error
    except RecursionError as error:
        raise FormatError("JSON is malformed: objects and arrays are nested too deeply") from error
    except ArithmeticError as error:
        raise FormatError("JSON is malformed: a number has too large an exponent") from error
    return _without_surrogates(value) if _SURROGATES.search(message) else value


def normalize_message(message: bytes) -> bytes:
    """Rewrite a message as equivalent JSON that msgspec parses. Raises as `parse_message` does."""
    return encode_json(parse_message(message))


def convert_to_float(number: float | NumberText) -> float:
    """Convert a number from `parse_message` to a float. An integer -0 becomes 0.0, as in msgspec."""
    if not isinstance(number, NumberText):
        return float(number)
    return 0.0 if number.text == "-0" else float(number.text)


def encode_json(value: Any) -> bytes:
    """Return a result of `parse_message` as compact JSON text; numbers keep their digits."""
    return _ENCODER.encode(value)


def _decode_message(message: bytes) -> str:
    encoding = json.detect_encoding(message)
    if encoding.startswith("utf-8"):
        # Java's writers may encode each half of a surrogate pair separately.
        return message.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
    return message.decode(encoding)


def _integer(digits: str) -> int | NumberText:
    if digits == "-0" or len(digits) >= _INTEGER_DIGITS_MAX:
        return NumberText(digits)  # NumberText keeps the sign of -0
    return int(digits)


def _strict_integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _INTEGER_DIGITS_MAX else Decimal(digits)


def _refuse_constant(word: str) -> NoReturn:
    raise FormatError(f"JSON is malformed: {word} is not a JSON value")


_DECODER: Final = json.JSONDecoder(
    parse_float=NumberText, parse_int=_integer, parse_constant=_refuse_constant, strict=False
)
_STRICT_DECODER: Final = json.JSONDecoder(
    parse_float=Decimal, parse_int=_strict_integer, parse_constant=_refuse_constant
)


def _write_number(value: Any) -> msgspec.Raw:
    if isinstance(value, NumberText):
        return msgspec.Raw(value.text.encode())
    raise WrongTypeError(f"not a JSON value: {value!r}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_write_number)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _joined(value)
    if isinstance(value, list):
        return [_without_surrogates(element) for element in value]
    if isinstance(value, dict):
        return {_joined(key): _without_surrogates(element) for key, element in value.items()}
    return value


def _joined(text: str) -> str:
    """Join surrogate pairs into single characters and replace unpaired surrogates with question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        paired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return paired.encode("utf-8", "replace").decode()
    return text


Convert = Callable[[Any], Any]

ARRAYS: Final = (
    typeinfo.BasicArrayTypeInfo,
    typeinfo.ListTypeInfo,
    typeinfo.ObjectArrayTypeInfo,
    typeinfo.PrimitiveArrayTypeInfo,
)
BYTES: Final = typeinfo.PrimitiveArrayTypeInfo(typeinfo.BasicTypeInfo(typeinfo.BasicType.BYTE))

# Reading -------------------------------------------------------------------------------------------------------------


def reader(type_info: typeinfo.TypeInformation, strict: bool) -> Convert:
    """Return a function that converts a parsed JSON value, not None, to a value of the type."""
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return row_reader(type_info, strict)
    if type_info == BYTES:
        return lambda value: base64.b64decode(value, validate=True)
    if isinstance(type_info, ARRAYS):
        element = nullable(reader(type_info.element_type, strict))
        return lambda value: [element(item) for item in _expect(list, value)]
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        return _tuple_reader([nullable(reader(field, strict)) for field in type_info.get_field_types()])
    if isinstance(type_info, typeinfo.MapTypeInfo):
        key, item = reader(type_info.key_type_info, strict), nullable(reader(type_info.value_type_info, strict))
        return lambda value: {key(k): item(v) for k, v in _expect(dict, value).items()}
    if isinstance(type_info, typeinfo.DateTypeInfo):
        return datetime.date.fromisoformat
    if isinstance(type_info, typeinfo.TimeTypeInfo):
        return lambda value: datetime.time.fromisoformat(value).replace(tzinfo=None)
    if isinstance(type_info, typeinfo.TimestampTypeInfo):
        return _read_timestamp
    if isinstance(type_info, typeinfo.BasicTypeInfo):
        return _basic_reader(type_info)
    raise WrongTypeError(f"{type_info!r} cannot be read from JSON")


def row_reader(row_type: typeinfo.RowTypeInfo, strict: bool) -> Convert:
    """Return a function that converts a parsed JSON object to a row; its errors name the field."""
    names = tuple(row_type.get_field_names())
    readers = [nullable(reader(field, strict)) for field in row_type.get_field_types()]

    def read(value: Any) -> Row:
        fields = _expect(dict, value)
        if strict and (missing := [name for name in names if name not in fields]):
            raise FormatError(f"missing {', '.join(missing)}")
        values = []
        for name, read_field in zip(names, readers, strict=True):
            try:
                values.append(read_field(fields.get(name)))
            except BAD_RECORD as error:
                raise FormatError(f"field {name!r}: {format_reason(error)}") from error
        return make_rows(names, (values,))[0]

    return read


def _tuple_reader(readers: list[Convert]) -> Convert:
    def read(value: Any) -> tuple[Any, ...]:
        return tuple(reader(item) for reader, item in zip(readers, _expect(list, value), strict=True))

    return read


def _basic_reader(type_info: typeinfo.BasicTypeInfo) -> Convert:
    kind = type_info.basic_type
    if kind is typeinfo.BasicType.BOOLEAN:
        return _read_boolean
    if kind in (typeinfo.BasicType.STRING, typeinfo.BasicType.CHAR):
        return _read_text
    if kind in (typeinfo.BasicType.FLOAT, typeinfo.BasicType.DOUBLE):
        return lambda value: float(value) if isinstance(_scalar(value), str) else convert_to_float(value)
    if kind is typeinfo.BasicType.BIG_DEC:
        return lambda value: read_decimal(value) if isinstance(value, str) else decimal.Decimal(_scalar(value))
    if kind is typeinfo.BasicType.INSTANT:
        return _read_instant

    def read_integer(value: Any) -> int:
        exact = _scalar(value)
        number = int(exact) if isinstance(exact, str) else to_whole(exact)
        if number is None or not type_info.accepts(number):
            raise FormatError(f"{value!r} is not of type {type_info}")
        return number

    return read_integer


def _read_boolean(value: Any) -> bool:
    text = value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).strip().lower())
    if text is None:
        raise FormatError(f"{value!r} is not a Boolean")
    return text


def _read_text(value: Any) -> str:
    """Return strings unchanged, and any other JSON value as its JSON text."""
    if isinstance(value, NumberText):
        return value.text
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=float)


def _read_timestamp(value: Any) -> datetime.datetime:
    """Parse a timestamp without a zone; text with a zone is converted to UTC."""
    moment = datetime.datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)


def _read_instant(value: Any) -> Instant:
    elapsed = _read_timestamp(value) - datetime.datetime(1970, 1, 1)
    return Instant(elapsed // datetime.timedelta(seconds=1), elapsed.microseconds * 1_000)


def _scalar(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise FormatError(f"{value!r} is not a number")
    if isinstance(value, str):
        return number_text(value)
    return value


def _expect(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"{value!r} is not {'an object' if kind is dict else 'an array'}")
    return value


def nullable(convert: Convert) -> Convert:
    """Return a converter that also accepts None."""
    return lambda value: None if value is None else convert(value)


# Writing -------------------------------------------------------------------------------------------------------------


def writer(type_info: typeinfo.TypeInformation) -> Convert:
    """Return a function that converts a value of the type, not None, to one that `json.dumps` accepts."""
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return _row_writer(type_info)
    if type_info == BYTES:
        return lambda value: base64.b64encode(bytes(b & 0xFF for b in value)).decode()
    if isinstance(type_info, ARRAYS):
        element = nullable(writer(type_info.element_type))
        return lambda value: [element(item) for item in value]
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        writers = [nullable(writer(field)) for field in type_info.get_field_types()]
        return lambda value: [writer(item) for writer, item in zip(writers, value, strict=True)]
    if isinstance(type_info, typeinfo.MapTypeInfo):
        item = nullable(writer(type_info.value_type_info))
        return lambda value: {str(k): item(v) for k, v in value.items()}
    if isinstance(type_info, (typeinfo.DateTypeInfo, typeinfo.TimeTypeInfo)):
        return lambda value: value.isoformat()
    if isinstance(type_info, typeinfo.TimestampTypeInfo):
        return lambda value: value.isoformat() + ("" if value.tzinfo else "Z")
    if isinstance(type_info, typeinfo.BasicTypeInfo):
        return _basic_writer(type_info)
    raise WrongTypeError(f"{type_info!r} cannot be written as JSON")


def _row_writer(row_type: typeinfo.RowTypeInfo) -> Convert:
    names = tuple(row_type.get_field_names())
    writers = [nullable(writer(field)) for field in row_type.get_field_types()]

    def write(value: Any) -> dict[str, Any]:
        values = [value.get(name) for name in names] if isinstance(value, dict) else value
        if isinstance(value, Row):
            values = values_by_names(value, names)
        return {name: writer(item) for name, writer, item in zip(names, writers, values, strict=True)}

    return write


def _basic_writer(type_info: typeinfo.BasicTypeInfo) -> Convert:
    if type_info.basic_type is typeinfo.BasicType.INSTANT:
        return _write_instant

    def write(value: Any) -> Any:
        if not type_info.accepts(value):
            raise FormatError(f"{value!r} is not of type {type_info}")
        if isinstance(value, decimal.Decimal):
            return _plain_number(value)
        # JSON has no NaN or infinity; they are written as text, which the reader accepts.
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return write


def _plain_number(value: decimal.Decimal) -> Any:
    """Return a decimal as a JSON number if no digit is lost, else as text, which the reader also accepts."""
    whole = to_whole(value)
    if whole is not None:
        return whole
    return float(value) if value.is_finite() and decimal.Decimal(repr(float(value))) == value else str(value)


def _write_instant(value: Instant) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(
        seconds=value.seconds, microseconds=value.nanos // 1_000
    )
    return moment.isoformat() + "Z"
