"""Encodings and hashes of strings (character sets, Base64, URLs, digests), and HASH_CODE, Java's hash codes."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final
from urllib.parse import quote_plus, unquote_plus

from penstock.base.errors import UnsupportedError
from penstock.sql.data import types
from penstock.sql.data.arrow import Kernel
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions import definition
from penstock.sql.functions.characters import units
from penstock.sql.functions.type_rules import is_text

# --- bytes -----------------------------------------------------------------------------------------------------------


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _codec(charset: str) -> str:
    """Return Python's name of a character set."""
    try:
        name = codecs.lookup(charset.strip()).name
        "".encode(name)
    except (LookupError, ValueError) as error:
        raise TableRuntimeError(f"there is no character set {charset!r}") from error
    return name


def _encode(text: str, charset: str) -> bytes:
    codec = _codec(charset)
    if codec == "utf-16":  # Java writes a byte order mark, and big-endian
        return b"\xfe\xff" + text.encode("utf-16-be") if text else b""
    return text.encode(codec, "replace")


def _decode(raw: bytes, charset: str) -> str:
    codec = _codec(charset)
    if codec == "utf-16" and raw[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        codec = "utf-16-be"
    return raw.decode(codec, "replace")


def _to_base64(value: str | bytes) -> str:
    return base64.b64encode(_bytes(value)).decode()


def _from_base64(value: str | bytes) -> str:
    raw = _bytes(value)
    bare = raw.rstrip(b"=")
    missing = -len(bare) % 4
    if len(raw) - len(bare) not in (0, missing) or missing == 3:
        raise TableRuntimeError("FROM_BASE64 met a text that ends in the middle of a unit")
    try:
        return base64.b64decode(bare + b"=" * missing, validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise TableRuntimeError(f"FROM_BASE64 met a text that is not Base64: {error}") from error


# --- addresses of the web --------------------------------------------------------------------------------------------

_WRONG_PERCENT: Final = re.compile("%(?![0-9a-fA-F]{2})")
_DEPTH: Final = 10


def _url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(text: str) -> str | None:
    return None if _WRONG_PERCENT.search(text) else unquote_plus(text)


def _url_decode_again(text: str, depth: int = _DEPTH) -> str | None:
    """Decode until nothing changes, at most `depth` times. Stop early if a later pass finds an invalid escape."""
    for turn in range(depth):
        decoded = _url_decode(text)
        if decoded is None:
            return text if turn else None
        if decoded == text:
            break
        text = decoded
    return text


def _depth(call: definition.Operands, index: int) -> types.DataType | None:
    value = call.value(index)
    if isinstance(value, int) and value <= 0:
        raise ValidationError(f"URL_DECODE_RECURSIVE decodes at least once, not {value} times")
    return definition.INTEGER.check(call, index)


# --- hashes ----------------------------------------------------------------------------------------------------------

_LENGTHS: Final = (224, 256, 384, 512)


def _hash(algorithm: str, value: str | bytes) -> str:
    return hashlib.new(algorithm, _bytes(value), usedforsecurity=False).hexdigest()


def _sha2(value: str | bytes, length: int) -> str:
    if length not in _LENGTHS:
        raise TableRuntimeError(f"Unsupported algorithm: SHA-{length}")
    return _hash(f"sha{length}", value)


def _sha2_type(call: definition.Operands) -> types.DataType:
    length = call.value(1)
    if isinstance(length, int) and length not in _LENGTHS:
        raise ValidationError(f"Unsupported algorithm: SHA-{length}")
    return definition.returns(types.VarCharType(128))(call)


def _build_hash_kernel(algorithm: str) -> Callable[[definition.Call], Kernel]:
    return lambda call: definition.value_kernel(partial(_hash, algorithm), call.types, call.result)


_VALUE: Final = definition.either(definition.TEXT, definition.BINARY)

ENCODINGS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "ENCODE",
        definition.takes(definition.TEXT, definition.TEXT),
        definition.returns(definition.BYTES_TYPE),
        definition.per_value(_encode),
        "Encodes the string to bytes in a character set, such as UTF-8 or ISO-8859-1.",
        can_fail=True,
        section="string",
        usage="ENCODE(string, charset)",
    ),
    definition.scalar(
        "DECODE",
        definition.takes(definition.BINARY, definition.TEXT),
        definition.returns(definition.STRING),
        definition.per_value(_decode),
        "Decodes bytes to a string in a character set, such as UTF-8 or ISO-8859-1.",
        can_fail=True,
        section="string",
        usage="DECODE(bytes, charset)",
    ),
    definition.scalar(
        "TO_BASE64",
        definition.takes(_VALUE),
        definition.returns(definition.STRING),
        definition.per_value(_to_base64),
        "Encodes a string or bytes in Base64.",
        python_name="toBase64",
        section="string",
        usage="TO_BASE64(string)",
    ),
    definition.scalar(
        "FROM_BASE64",
        definition.takes(_VALUE),
        definition.returns(definition.STRING),
        definition.per_value(_from_base64),
        "Decodes a Base64 string.",
        python_name="fromBase64",
        can_fail=True,
        section="string",
        usage="FROM_BASE64(string)",
    ),
    definition.scalar(
        "URL_ENCODE",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_url_encode),
        "Encodes the string for a URL, such as `a%2Fb`.",
        section="string",
        usage="URL_ENCODE(string)",
    ),
    definition.scalar(
        "URL_DECODE",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_url_decode),
        "Decodes a URL-encoded string; returns NULL if it is invalid.",
        section="string",
        usage="URL_DECODE(string)",
    ),
    definition.scalar(
        "URL_DECODE_RECURSIVE",
        definition.takes(
            definition.TEXT, definition.literal(definition.where("<INTEGER_NUMERIC>", _depth)), optional=1
        ),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_url_decode_again),
        "Repeats URL_DECODE until the result no longer changes, at most `depth` times, by default ten.",
        section="string",
        usage="URL_DECODE_RECURSIVE(string[, depth])",
    ),
    *(
        definition.scalar(
            name,
            definition.takes(_VALUE),
            definition.returns(types.CharType(length)),
            _build_hash_kernel(name.lower()),
            f"Returns the {name} hash in hexadecimal digits.",
            section="hash",
            usage=f"{name}(string)",
        )
        for name, length in (
            ("MD5", 32),
            ("SHA1", 40),
            ("SHA224", 56),
            ("SHA256", 64),
            ("SHA384", 96),
            ("SHA512", 128),
        )
    ),
    definition.scalar(
        "SHA2",
        definition.takes(_VALUE, definition.INTEGER),
        _sha2_type,
        definition.per_value(_sha2),
        "Returns the SHA-2 hash of 224, 256, 384 or 512 bits in hexadecimal digits.",
        can_fail=True,
        section="hash",
        usage="SHA2(string, bits)",
    ),
)


def _wrapped(number: int) -> int:
    """Wrap a number to a signed 32-bit integer."""
    return (number + 2**31) % 2**32 - 2**31


def _of_long(number: int) -> int:
    bits = number & 0xFFFFFFFFFFFFFFFF
    return _wrapped(bits ^ bits >> 32)


def _of_text(text: str) -> int:
    """Return the absolute value of a string's hash code."""
    code = 0
    for unit in units(text):
        code = (code * 31 + ord(unit)) & 0xFFFFFFFF
    return _wrapped(abs(_wrapped(code)))


def _of_double(number: float) -> int:
    return _of_long(int.from_bytes(struct.pack(">d", number), "big"))


def _of_float(number: float) -> int:
    return int.from_bytes(struct.pack(">f", number), "big", signed=True)


def _of_decimal(number: Decimal) -> int:
    """Return the hash code of the unscaled value, computed from its 32-bit words, combined with the scale."""
    sign, digits, exponent = number.as_tuple()
    rest, code = int("".join(map(str, digits))), 0
    words = []
    while rest:
        rest, word = divmod(rest, 2**32)
        words.append(word)
    for word in reversed(words):
        code = (31 * code + word) & 0xFFFFFFFF
    return _wrapped(31 * (-code if sign else code) - int(exponent))


def _of_timestamp(nanoseconds: int) -> int:
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    return _wrapped(31 * _of_long(milliseconds) + rest)


def _select_hash(data_type: types.DataType) -> Callable[[Any], int]:
    if is_text(data_type):
        return _of_text
    if isinstance(data_type, types.BooleanType):
        return lambda value: 1231 if value else 1237
    if isinstance(data_type, types.BigIntType):
        return _of_long
    if isinstance(data_type, types.DecimalType):
        return _of_decimal
    if isinstance(data_type, types.IntegralType | types.DateType | types.TimeType):
        return int
    if isinstance(data_type, types.DoubleType):
        return _of_double
    if isinstance(data_type, types.FloatType):
        return _of_float
    if isinstance(data_type, types.TimestampType | types.LocalZonedTimestampType):
        return _of_timestamp
    raise UnsupportedError(f"HASH_CODE has no hash of values of type {data_type}")


def _hash_code(call: definition.Call) -> Kernel:
    return definition.value_kernel(_select_hash(call.types[0]), call.types, call.result)


HASH_CODE_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "HASH_CODE",
        definition.takes(
            definition.either(definition.TEXT, definition.BOOLEAN, definition.NUMERIC, definition.POINT_IN_TIME)
        ),
        definition.returns(definition.INT),
        _hash_code,
        "Returns the Java hash code of the value; for strings, its absolute value.",
        section="hash",
        usage="HASH_CODE(value)",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*ENCODINGS_FUNCTIONS, *HASH_CODE_FUNCTIONS)
