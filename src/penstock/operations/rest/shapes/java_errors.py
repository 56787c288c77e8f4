"""An error for Flink's own client: a `SerializedThrowable` object in Java's serialization format.

Without this object, the client does not recognize a failure and polls forever. The object holds only displayed data: no
cause, no Java stack, and no other error inside it.
"""

from __future__ import annotations

import struct
from typing import Final

#: The maximum number of characters of a text; such a Java string has at most 65,535 bytes.
CHARS_MAX: Final = 10_000

_STREAM: Final = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _STRING, _CLASS, _END = b"p", b"s", b"t", b"r", b"x"
#: Class flags: the fields follow in order; or the class has a method that writes them, followed by an end mark.
_PLAIN, _OWN_METHOD = b"\x02", b"\x03"
_TEXT: Final = "Ljava/lang/String;"


def serialized_throwable(class_name: str, text: str) -> bytes:
    """Serialize an error, with its text as its stack trace."""
    fields = [("fullStringifiedStackTrace", _TEXT), ("originalErrorClassName", _TEXT)]
    classes = [
        _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _PLAIN, fields),
        _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _PLAIN, []),
        _class("java.lang.Throwable", 0xD5C635273977B8CB, _OWN_METHOD, [("detailMessage", _TEXT)]),
    ]
    of_throwable, of_flink = _string(text) + _END, _string(text) + _string(class_name)
    return b"".join([_STREAM, _OBJECT, *classes, _NULL, of_throwable, of_flink])


def _class(name: str, version: int, flags: bytes, fields: list[tuple[str, str]]) -> bytes:
    described = b"".join(b"L" + _utf(field) + _string(kind) for field, kind in fields)
    head = _CLASS + _utf(name) + struct.pack(">Q", version) + flags + struct.pack(">H", len(fields))
    return head + described + _END


def _string(text: str) -> bytes:
    return _STRING + _utf(text[:CHARS_MAX])


def _utf(text: str) -> bytes:
    """Encode Java's modified UTF-8: NUL takes two bytes, and supplementary characters become two surrogates."""
    units = text.encode("utf-16-be", "surrogatepass")
    characters = "".join(chr(unit) for (unit,) in struct.iter_unpack(">H", units))
    encoded = characters.encode("utf-8", "surrogatepass").replace(b"\x00", b"\xc0\x80")
    return struct.pack(">H", len(encoded)) + encoded
