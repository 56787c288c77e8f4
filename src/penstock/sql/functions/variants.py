"""VARIANT, self-describing values parsed from JSON; and JSON text by the rules of Jackson, which Flink uses.

Parsed JSON values are dictionaries, lists, strings, integers, decimals (which keep every digit), booleans and None.
Text after the first value is ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from penstock.sql.data import types
from penstock.sql.data.arrow import Kernel
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions import definition
from penstock.sql.functions.numbers import double_text
from penstock.sql.functions.type_rules import BYTES, TEXTS
from penstock.state.keys import NAN

_BLANKS: Final = " \t\r\n"
#: a nesting depth that Python can handle
_NESTED_AT_MOST: Final = 300
_NAMED_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES: Final = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_NAMED_ESCAPES})


class JsonTextError(TableRuntimeError):
    """Raised for invalid JSON."""


class Document(NamedTuple):
    """The value of a JSON text, or the error in it."""

    value: Any
    error: JsonTextError | None = None


def _no_constant(word: str) -> NoReturn:
    raise JsonTextError(f"{word} is no value of JSON")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonTextError("an object has the same key twice")
    return members


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


def read_json(text: str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """Parse the first value of a string. Raises `JsonTextError` if it is not valid JSON."""
    begin = 0
    while begin < len(text) and text[begin] in _BLANKS:
        begin += 1
    try:
        value, end = decoder.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise JsonTextError(f"{error.msg} (line: {error.lineno}, column: {error.colno})") from error
    except (ValueError, ArithmeticError) as error:
        raise JsonTextError(str(error)) from error
    except RecursionError as error:
        raise JsonTextError("objects and arrays are nested too deeply") from error
    if end < len(text) and not isinstance(value, dict | list | str):
        _check_end(value, text, end)
    if text.count("[") + text.count("{") > _NESTED_AT_MOST and _depth_exceeds(value, _NESTED_AT_MOST):
        raise JsonTextError(f"objects and arrays are nested more than {_NESTED_AT_MOST} deep")
    return value


def reader(keeps_last: bool) -> json.JSONDecoder:
    """Create a decoder. Fractions without an exponent become decimals. Duplicate keys need `keeps_last`."""
    return json.JSONDecoder(
        parse_float=lambda digits: float(digits) if "e" in digits or "E" in digits else Decimal(digits),
        parse_constant=_no_constant,
        object_pairs_hook=None if keeps_last else _without_repeats,
    )


def _check_end(value: object, text: str, end: int) -> None:
    """Raise `JsonTextError` unless whitespace follows a number, or if a letter or digit follows a keyword."""
    following = text[end]
    is_number = value is not None and not isinstance(value, bool)
    wrong = following not in _BLANKS if is_number else following.isidentifier() or following.isdigit()
    if wrong:
        line, column = text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end)
        raise JsonTextError(f"Unexpected character {following!r} (line: {line}, column: {column})")


def _depth_exceeds(value: Any, most: int) -> bool:
    level: list[Any] = [value]
    for _ in range(most + 1):
        level = [
            part
            for container in level
            if isinstance(container, dict | list)
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True


@lru_cache(maxsize=4096)
def document(text: str) -> Document:
    """Parse a string. Results are cached, so callers must not modify the value."""
    try:
        return Document(read_json(text))
    except JsonTextError as error:
        return Document(None, error)


def text_in_quotes(text: str) -> str:
    """Return a string as a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def key_order(key: str) -> bytes:
    """Return the sort key of an object key: the order of UTF-16 code units."""
    return key.encode("utf-16-be", "surrogatepass")


def write_json(value: object) -> str:
    """Write a value without whitespace, with sorted keys."""
    if isinstance(value, str):
        return text_in_quotes(value)
    if isinstance(value, dict):
        keys = sorted(value, key=key_order)
        return "{" + ",".join([f"{text_in_quotes(key)}:{write_json(value[key])}" for key in keys]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_json, value)) + "]"
    return "null" if value is None else scalar_text(value)


def scalar_text(value: object) -> str:
    """Return the text of a number, boolean or string, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal) and not value:
        value = value.copy_abs()
    return double_text(value) if isinstance(value, float) else str(value)


def storable(text: str) -> str:
    """Combine surrogate pairs into characters and replace lone surrogates with `?`."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\ufffd", "?")
    return text


_WIDE: Final = Context(prec=400)
_BITS: Final[dict[type[types.DataType], int]] = {
    types.TinyIntType: 8,
    types.SmallIntType: 16,
    types.IntType: 32,
    types.BigIntType: 64,
}


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A value of type VARIANT.

    `value` is None, a boolean, a number (`int`, `Decimal` or `float`), a string, bytes, or a list or dictionary of
    these. Variants are equal as in `penstock.state.equality`: NaN equals NaN, and the order of an object's keys does
    not matter.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and _canonical(self.value) == _canonical(other.value)

    def __hash__(self) -> int:
        return hash(_canonical(self.value))

    @classmethod
    def of_json(cls, text: str, keeps_last: bool = False) -> Variant:
        """Parse JSON. Raises `TableRuntimeError` if it is invalid.

        With `keeps_last`, the last of several equal keys wins; otherwise they are an error.
        """
        try:
            return cls(_normal(read_json(text, _READERS[keeps_last])))
        except JsonTextError as error:
            raise TableRuntimeError(f"Failed to parse json string: {text}, {error}") from error

    def json(self) -> str:
        """Return the value as JSON."""
        return _text(self.value)

    def item(self, key: int | str) -> Variant | None:
        """Return an array element by its index, counted from 1, or an object's value by its key; None if missing.

        Raises `TableRuntimeError` unless the value is an array, for an index, or an object, for a key.
        """
        if isinstance(key, int):
            if not isinstance(self.value, list):
                raise TableRuntimeError(f"Expected an array to take the element {key} of, and not {self.json()}")
            return Variant(self.value[key - 1]) if 1 <= key <= len(self.value) else None
        if not isinstance(self.value, dict):
            raise TableRuntimeError(f"Expected an object to take the field {key!r} of, and not {self.json()}")
        return Variant(self.value[key]) if key in self.value else None

    def __str__(self) -> str:
        return self.json()


def _canonical(value: Any) -> Any:
    """Return a nested value as a dictionary key. In Python, but not in a variant, True equals 1."""
    if isinstance(value, dict):
        return frozenset((key, _canonical(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_canonical, value))
    if isinstance(value, bool):
        return bool, value
    return NAN if value != value else value


_READERS: Final = {keeps_last: reader(keeps_last) for keeps_last in (False, True)}


def _normal(value: Any) -> Any:
    """Sort keys and convert numbers to the smallest type that holds them."""
    if isinstance(value, dict):
        return {key: _normal(value[key]) for key in sorted(value, key=key_order)}
    if isinstance(value, list):
        return list(map(_normal, value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return Decimal(value) if len(str(abs(value))) <= types.PRECISION_MAX else float(value)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        fits = len(digits) <= types.PRECISION_MAX and -int(exponent) <= types.PRECISION_MAX
        return value if fits else float(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join([f"{text_in_quotes(key)}:{_text(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return text_in_quotes(value)
    if isinstance(value, Decimal):
        return _plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{double_text(value)}"'
    return "null" if value is None else scalar_text(value)


def _plain(number: Decimal) -> str:
    """Return a decimal without an exponent and without trailing zeros."""
    text = f"{number if number else number.copy_abs():f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- for other functions ---------------------------------------------------------------------------------------------


def variant_item(value: Variant | None, key: int | str | None) -> Variant | None:
    """Evaluate ITEM: `value[key]`. See `Variant.item`."""
    return None if value is None or key is None else value.item(key)


def variant_cast(value: Variant | None, data_type: types.DataType) -> Any:
    """Cast a variant to a scalar type. Raises `TableRuntimeError` if that would change the value.

    Cast to a string, a variant is its JSON. JSON's null becomes NULL.
    """
    if value is None or isinstance(data_type, types.VariantType):
        return value
    if isinstance(data_type, TEXTS):
        return storable(value.json())
    raw = value.value
    if raw is None:
        return None
    cast = _select_cast(type(data_type))
    result = None if cast is None else cast(raw, data_type)
    if result is None:
        raise TableRuntimeError(f"Cannot cast the VARIANT {value.json()} to {data_type.nullable()}")
    return result


def _select_cast(kind: type[types.DataType]) -> Callable[[Any, types.DataType], Any] | None:
    if kind in _BITS:
        return _to_whole
    if issubclass(kind, BYTES):
        return lambda raw, to: raw if isinstance(raw, bytes) else None
    return {
        types.BooleanType: _to_boolean,
        types.DecimalType: _to_decimal,
        types.FloatType: _to_float,
        types.DoubleType: _to_double,
    }.get(kind)


def _is_number(raw: Any) -> bool:
    return isinstance(raw, int | float | Decimal) and not isinstance(raw, bool)


def _to_boolean(raw: Any, to: types.DataType) -> bool | None:
    return raw if isinstance(raw, bool) else None


def _to_whole(raw: Any, to: types.DataType) -> int | None:
    if not _is_number(raw) or (isinstance(raw, float) and not math.isfinite(raw)) or raw != int(raw):
        return None
    most = 2 ** (_BITS[type(to)] - 1)
    return int(raw) if -most <= raw < most else None


def _to_double(raw: Any, to: types.DataType) -> float | None:
    return float(raw) if _is_number(raw) else None


def _to_float(raw: Any, to: types.DataType) -> float | None:
    if not _is_number(raw):
        return None
    with np.errstate(over="ignore"):
        result = float(np.float32(float(raw)))
    return None if math.isinf(result) and not math.isinf(float(raw)) else result


def _to_decimal(raw: Any, to: types.DataType) -> Decimal | None:
    assert isinstance(to, types.DecimalType)
    if not _is_number(raw) or (isinstance(raw, float) and not math.isfinite(raw)):
        return None
    exact = Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)
    if exact.adjusted() >= to.precision - to.scale and exact != 0:
        return None
    result = exact.quantize(Decimal(1).scaleb(-to.scale), ROUND_HALF_UP, _WIDE)
    return result if result == exact else None


# --- functions -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _try_parse(text: str, keeps_last: bool) -> Variant | TableRuntimeError:
    try:
        return Variant.of_json(text, keeps_last)
    except TableRuntimeError as error:
        return error


def _parse(is_try: bool) -> Callable[[definition.Call], Kernel]:
    def parsed(text: str, keeps_last: bool = False) -> Variant | None:
        outcome = _try_parse(text, keeps_last)
        if isinstance(outcome, Variant):
            return outcome
        if is_try:
            return None
        raise outcome

    return lambda call: definition.value_kernel(parsed, call.types, call.result)


_PARSES: Final = definition.takes(definition.TEXT, definition.AS_BOOLEAN, optional=1)

FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "PARSE_JSON",
        _PARSES,
        definition.returns(types.VariantType()),
        _parse(False),
        "Parses a JSON string. A duplicate key is an error unless the second argument is TRUE.",
        can_fail=True,
        usage="PARSE_JSON(string[, boolean])",
        python_name="parseJson",
        section="variant",
    ),
    definition.scalar(
        "TRY_PARSE_JSON",
        _PARSES,
        definition.nullable(definition.returns(types.VariantType())),
        _parse(True),
        "Like PARSE_JSON, but returns NULL for a string that is not valid JSON.",
        usage="TRY_PARSE_JSON(string[, boolean])",
        python_name="tryParseJson",
        section="variant",
    ),
)
