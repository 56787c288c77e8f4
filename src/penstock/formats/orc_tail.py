"""What the end of an ORC file says and Arrow does not hand on. The end is a message of Protocol Buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: the numbers of fields in ORC's definition (orc_proto.proto)
_FOOTER_OF_TAIL: Final = 2
_CALENDAR_OF_FOOTER: Final = 11
_JULIAN_GREGORIAN: Final = 1
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def has_julian_dates(tail: bytes) -> bool:
    """Whether the writer counts dates before 15 October 1582 by the Julian calendar, as Spark and Hive do.

    A file that does not say so has dates of the Gregorian calendar: Flink and Arrow write no calendar.

    Args:
        tail: the end of the file, uncompressed (`FileTail`).
    """
    for number, footer in _fields(tail):
        if number == _FOOTER_OF_TAIL and isinstance(footer, bytes):
            return any(field == (_CALENDAR_OF_FOOTER, _JULIAN_GREGORIAN) for field in _fields(footer))
    return False


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbers and values of a message's fields. It ends at what is no field."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        elif kind in (_FIXED_64, _FIXED_32):
            at += 8 if kind == _FIXED_64 else 4
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of a variable size, and where the next byte is."""
    number, shift = 0, 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            break
    return number, at
