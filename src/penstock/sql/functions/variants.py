"""VARIANT, self-describing values parsed from JSON; and JSON text by the rules of Jackson, which Flink uses.

Parsed JSON values are dictionaries, lists, strings, integers, decimals (which keep every digit), booleans and None.
Text after the first value is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

from penstock.codecs.variant import Variant, double_text, name_order, text_in_quotes
from penstock.sql.data import types
from penstock.sql.data.arrow import Kernel
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.functions import definition

_BLANKS: Final = " \t\r\n"
#: a nesting depth that Python can handle
_NESTED_AT_MOST: Final = 300


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


def write_json(value: object) -> str:
    """Write a value without whitespace, with sorted keys."""
    if isinstance(value, str):
        return text_in_quotes(value)
    if isinstance(value, dict):
        keys = sorted(value, key=name_order)
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


def parse(text: str, keeps_last: bool = False) -> Variant:
    """Return the variant of a JSON text. Raises `TableRuntimeError` if it is invalid.

    With `keeps_last`, the last of several equal keys wins; otherwise they are an error.
    """
    try:
        return Variant.of(_normal(read_json(text, _READERS[keeps_last])))
    except JsonTextError as error:
        raise TableRuntimeError(f"Failed to parse json string: {text}, {error}") from error


_READERS: Final = {keeps_last: reader(keeps_last) for keeps_last in (False, True)}


def _normal(value: Any) -> Any:
    """Convert numbers that no exact type holds to floats."""
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_normal, value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return Decimal(value) if len(str(abs(value))) <= types.PRECISION_MAX else float(value)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        fits = len(digits) <= types.PRECISION_MAX and -int(exponent) <= types.PRECISION_MAX
        return (value if value else value.copy_abs()) if fits else float(value)
    return value


def variant_item(value: Variant | None, key: int | str | None) -> Variant | None:
    """Evaluate ITEM: an element by its index, counted from 1, or a field by its name; None if there is none.

    Raises `TableRuntimeError` unless the value is an array, for an index, or an object, for a name.
    """
    if value is None or key is None:
        return None
    if isinstance(key, str):
        if not value.is_object():
            raise TableRuntimeError(
                "String key access on variant requires an object variant, but a non-object variant was provided."
            )
        return value.get_field(key)
    if not value.is_array():
        raise TableRuntimeError(
            "Integer index access on variant requires an array variant, but a non-array variant was provided."
        )
    return value.get_element(key - 1)


# --- functions -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _try_parse(text: str, keeps_last: bool) -> Variant | TableRuntimeError:
    try:
        return parse(text, keeps_last)
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
