"""Parses JSON messages like Jackson, whose rules Flink's formats follow.

msgspec parses most messages. It rejects a few that Jackson accepts: an unescaped control character in a string, an
unpaired surrogate, a number too large for 64 bits, a byte order mark. `parse_message` is the reference for those.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

import msgspec

from penstock.base.errors import FormatError, WrongTypeError

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
