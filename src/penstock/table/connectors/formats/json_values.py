"""JSON values as internal values (see `data.values`), by type."""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable
from typing import Any, Final

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.json_text import NumberText, convert_to_float, encode_json
from penstock.table.connectors.formats.json_rules import JsonRules
from penstock.table.data import logical_types as types
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import DataType
from penstock.table.functions.cast_from_text import reader
from penstock.table.functions.definition import Session
from penstock.table.functions.type_rules import INTEGERS

#: reads one value that is not null; raises one of `BAD` for an invalid value
ReadValue = Callable[[Any], Any]
BAD: Final = (ValueError, TypeError, ArithmeticError, FormatError, TableRuntimeError)

_BLANKS: Final = "".join(map(chr, range(33)))  # Java's trim() removes these
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_WHOLE: Final = re.compile(r"[+-]?\d+")


def value_reader(kind: DataType, rules: JsonRules, what: str) -> ReadValue:
    """Return the function that reads values of a type. Raises `UnsupportedError`, naming `what`, for other types."""
    match kind:
        case types.BooleanType():
            return _boolean
        case types.IntegralType():
            bits = 8 * 2 ** INTEGERS.index(type(kind)) - 1
            return lambda value: _whole(value, bits)
        case types.FloatType() | types.DoubleType():
            of_text = reader(kind, Session())
            return lambda value: _float_of_text(value, of_text) if isinstance(value, str) else _float(value)
        case types.DecimalType():
            from_text = reader(kind, Session())
            return lambda value: from_text(_scalar_text(value))
        case types.CharType() | types.VarCharType():
            return _text
        case types.BinaryType() | types.VarBinaryType():
            return lambda value: base64.b64decode(_given_text(value), validate=True)
        case types.DateType() | types.TimeType():
            of_text = reader(kind, Session())
            return lambda value: of_text(_given_text(value))
        case types.TimestampType() | types.LocalZonedTimestampType():
            return _moment(kind, rules.is_iso)
        case types.RowType():
            return _row(kind, rules, what)
        case types.MultisetType(element_type=element):
            return _map(element, types.IntType(), rules, what)
        case types.MapType(key_type=key, value_type=item):
            return _map(key, item, rules, what)
        case types.ArrayType(element_type=element):
            read = nullable(value_reader(element, rules, what), rules)
            return lambda value: [read(element) for element in _given(value, list, "an array")]
        case _:
            raise UnsupportedError(f"{what} of type {kind} has no form in JSON")


def nullable(read: ReadValue, rules: JsonRules) -> ReadValue:
    """Return a function for nullable values. Invalid values become NULL if errors are ignored."""

    def read_nullable(value: Any) -> Any:
        if value is None:
            return None
        if not rules.ignores_errors:
            return read(value)
        try:
            return read(value)
        except BAD:
            return None

    return read_nullable


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = _scalar_text(value).strip().lower()
    if text not in ("true", "false"):
        raise FormatError("it is neither true nor false")
    return text == "true"


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, bool):
        raise FormatError("it is no number")
    number = (
        value if isinstance(value, int) else _parse_integer(value) if isinstance(value, str) else _exact_whole(value)
    )
    if not -(2**bits) <= number < 2**bits:
        raise FormatError(f"it is no number of {bits + 1} bits")
    return number


def _parse_integer(text: str) -> int:
    digits = text.strip(_BLANKS)
    if _WHOLE.fullmatch(digits) is None:
        raise FormatError("it is no whole number")
    return int(digits)


def _exact_whole(value: Any) -> int:
    if isinstance(value, NumberText):
        value = decimal.Decimal(value.text)
    if not isinstance(value, float | decimal.Decimal) or value != int(value):
        raise FormatError("it is no whole number")
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool | list | dict):
        raise FormatError("it is no number")
    return convert_to_float(value)


def _float_of_text(text: str, read: Callable[[str], Any]) -> float:
    """Return the same float as a cast, which is slow; the usual form of a number is parsed by Python."""
    number: float = float(text) if _NUMBER.fullmatch(text) else read(text)
    return number


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _scalar_text(value: Any) -> str:
    if isinstance(value, list | dict):
        raise FormatError("it is no single value")
    return str(value)


def _given_text(value: Any) -> str:
    text: str = _given(value, str, "a text")
    return text


def _given(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise FormatError(f"it is not {name}")
    return value


def _moment(kind: DataType, is_iso: bool) -> ReadValue:
    session = Session()
    to = types.TimestampType(kind.precision)  # type: ignore[attr-defined]
    of_text = reader(to, session)
    is_zoned = isinstance(kind, types.LocalZonedTimestampType)

    def read(value: Any) -> Any:
        text = _given_text(value).strip()
        if is_zoned:
            if not text.endswith("Z"):
                raise FormatError("a point on the time line ends with Z")
            text = text[:-1]
        if ("T" in text) is not is_iso:
            raise FormatError(f"there must be {'a T' if is_iso else 'a space'} between day and time")
        return of_text(text.replace("T", " "))

    return read


def _row(kind: types.RowType, rules: JsonRules, what: str) -> ReadValue:
    fields = [(field.name, nullable(value_reader(field.data_type, rules, what), rules)) for field in kind.fields]

    def read(value: Any) -> tuple[Any, ...]:
        given = _given(value, dict, "an object")
        return tuple(of(_field(given, name, rules)) for name, of in fields)

    return read


def _field(given: dict[str, Any], name: str, rules: JsonRules) -> Any:
    if rules.fails_on_missing and name not in given:
        raise FormatError(f"Could not find field with name '{name}'.")
    return given.get(name)


def _map(key: DataType, item: DataType, rules: JsonRules, what: str) -> ReadValue:
    if not isinstance(key, types.CharType | types.VarCharType):
        raise UnsupportedError(f"{what}: JSON only has maps and multisets with texts as keys, not {key}")
    read = nullable(value_reader(item, rules, what), rules)
    return lambda value: [(name, read(item)) for name, item in _given(value, dict, "an object").items()]
