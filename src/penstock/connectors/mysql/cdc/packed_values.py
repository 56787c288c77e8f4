"""Packed values of the log: DECIMAL, and MySQL's binary JSON as the text that a query returns.

MariaDB has no binary JSON: its JSON is text.

Source: MySQL's `sql-common/json_binary.h` and `strings/decimal.cc` describe the forms.
"""

from __future__ import annotations

import base64
import decimal
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from penstock.base.errors import FormatError

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE: Final = 15
_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
#: the layouts of the integers of fixed size
_LAYOUTS: Final = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
#: characters that MySQL escapes in strings
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_SHORT_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

#: how far a DOUBLE's point may be from its first digit to be written without an exponent
_POINT_MAX: Final = 15
#: more digits than a DECIMAL of any server
_WIDE: Final = decimal.Context(prec=100)
#: the number of bytes for 0 to 9 digits
_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def find_decimal_decoder(precision: int, scale: int) -> Callable[[bytes, int], tuple[Decimal, int]]:
    """Return the decoder of a DECIMAL at an offset; it also returns the offset after the value."""
    whole = precision - scale
    # groups of nine digits: (bytes, digits) of each, the incomplete ones at both ends
    groups = [(_DIGIT_BYTES[whole % 9], whole % 9)] if whole % 9 else []
    groups += [(4, 9)] * (whole // 9)
    fraction = [(4, 9)] * (scale // 9)
    fraction += [(_DIGIT_BYTES[scale % 9], scale % 9)] if scale % 9 else []
    size = sum(length for length, _ in groups + fraction)
    mask, from_bytes = (1 << (8 * size)) - 1, int.from_bytes
    top = 1 << (8 * size - 1)
    parts: list[tuple[int, int, int]] = []
    at = 0
    for length, digits in groups + fraction:
        at += length
        parts.append((8 * (size - at), (1 << (8 * length)) - 1, 10**digits))

    def decode(data: bytes, at: int) -> tuple[Decimal, int]:
        end = at + size
        bits = from_bytes(data[at:end], "big") ^ top
        is_negative = bits & top
        if is_negative:
            bits ^= mask
        number = 0
        for shift, ones, power in parts:
            number = number * power + ((bits >> shift) & ones)
        return Decimal(-number if is_negative else number).scaleb(-scale, _WIDE), end

    return decode


def decode_json(data: bytes) -> str:
    """Return the text of a value.

    Raises:
        FormatError: if the bytes are not a valid value.
    """
    if not data:
        return "null"  # ALTER TABLE leaves empty values in a NOT NULL column
    try:
        return _decode(data[0], data, 1)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"a JSON value of the log cannot be read: {error}") from error


def _decode(kind: int, data: bytes, at: int) -> str:
    """Return the text of a value of a kind, whose bytes begin at `at`."""
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        return _decode_container(data, at, kind == _LARGE_OBJECT, True)
    if kind in (_SMALL_ARRAY, _LARGE_ARRAY):
        return _decode_container(data, at, kind == _LARGE_ARRAY, False)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _LAYOUTS:
        return str(struct.unpack_from(_LAYOUTS[kind], data, at)[0])
    if kind == _DOUBLE:
        return format_double(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        length, at = _read_length(data, at)
        return _quote(data[at : at + length].decode())
    if kind == _OPAQUE:
        return _decode_opaque(data, at)
    raise FormatError(f"a JSON value of the log has the unknown type {kind}")


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length with seven bits per byte, and the offset after it."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return length, at


def _decode_container(data: bytes, begin: int, is_large: bool, is_object: bool) -> str:
    size, layout = (4, "<I") if is_large else (2, "<H")
    read = struct.Struct(layout).unpack_from
    (count,) = read(data, begin)
    entries = begin + 2 * size
    keys: list[str] = []
    if is_object:
        for index in range(count):
            at = entries + index * (size + 2)
            (offset,) = read(data, at)
            (length,) = struct.unpack_from("<H", data, at + size)
            keys.append(_quote(data[begin + offset : begin + offset + length].decode()))
        entries += count * (size + 2)
    values = []
    for index in range(count):
        at = entries + index * (size + 1)
        kind = data[at]
        is_inline = kind in (_LITERAL, _INT16, _UINT16) or (is_large and kind in (_INT32, _UINT32))
        values.append(_decode(kind, data, at + 1 if is_inline else begin + read(data, at + 1)[0]))
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _decode_opaque(data: bytes, at: int) -> str:
    """Return the text of an SQL value within JSON."""
    kind = data[at]
    length, at = _read_length(data, at + 1)
    value = data[at : at + length]
    if kind == 246:
        return _decode_decimal(value)
    if kind in (10, 7, 12):
        bits = int.from_bytes(value, "little")
        micros, time, date = bits & 0xFFFFFF, bits >> 24 & 0x1FFFF, bits >> 41
        months, day = date >> 5, date & 31
        text = f"{months // 13:04}-{months % 13:02}-{day:02}"
        if kind != 10:
            text += f" {time >> 12:02}:{time >> 6 & 63:02}:{time & 63:02}.{micros:06}"
        return f'"{text}"'
    if kind == 11:
        bits = int.from_bytes(value, "little", signed=True)
        sign, bits = ("-", -bits) if bits < 0 else ("", bits)
        micros, time = bits & 0xFFFFFF, bits >> 24
        return f'"{sign}{time >> 12 & 0x3FF:02}:{time >> 6 & 63:02}:{time & 63:02}.{micros:06}"'
    # MySQL breaks base64 into lines of 76 characters, and JSON text escapes the line ends.
    text = base64.encodebytes(value).decode().rstrip("\n").replace("\n", "\\n")
    return f'"base64:type{kind}:{text}"'


def _decode_decimal(value: bytes) -> str:
    number, _ = find_decimal_decoder(value[0], value[1])(value, 2)
    return format(number, "f")


def _quote(text: str) -> str:
    escape = _ESCAPED.sub(lambda match: _SHORT_ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}"), text)
    return f'"{escape}"'


def format_double(value: float) -> str:
    """Return the text that MySQL gives a DOUBLE within JSON: the shortest that reads the same, with a point or an e."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # where the point is, counted from the first digit
    minus = "-" if sign else ""
    if not any(digits):
        return f"{minus}0.0"
    if point <= -_POINT_MAX or (point > _POINT_MAX and point >= len(text)):
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    if point >= len(text):
        return f"{minus}{text.ljust(point, '0')}.0"
    return f"{minus}{text[:point]}.{text[point:]}"
