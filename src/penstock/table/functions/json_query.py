"""Functions that query JSON: JSON_EXISTS, JSON_VALUE, JSON_QUERY and IS JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc

from penstock.table.data.errors import TableRuntimeError, ValidationError
from penstock.table.data.logical_types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntType,
    NullType,
    NumericType,
    VarCharType,
)
from penstock.table.data.values import Datum, Kernel
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.json_documents import document, scalar_text, storable, write_json
from penstock.table.functions.json_path_parser import json_path
from penstock.table.functions.kernels import value_kernel
from penstock.table.functions.signatures import (
    ANY,
    BOOLEAN_TYPE,
    STRING,
    TEXT,
    returns_not_null,
    returns_nullable,
    takes,
    where,
)
from penstock.table.functions.type_rules import TEXTS
from penstock.table.sql.type_parser import TypeParser

#: how a function handles an error or a path that finds nothing
Behaviour = Callable[[TableRuntimeError | None], Any]

_INT_MAX: Final = 2**31


def _input_type(call: Operands, index: int) -> DataType | None:
    """Accept strings. Numbers and booleans are cast to STRING, which yields their JSON."""
    data_type = call.types[index]
    if isinstance(data_type, NumericType | BooleanType):
        return STRING.nullable() if data_type.is_nullable else STRING.not_null()
    return TEXT.check(call, index)


_JSON: Final = where("<CHARACTER_STRING>", _input_type)
_WITH_DEFAULTS: Final = tuple(takes(_JSON, TEXT, *[ANY] * count) for count in range(3))


def _lookup(text: str, path: str) -> tuple[Any, bool, TableRuntimeError | None]:
    """Return the value that a path finds, whether the path is lax, and the error, if any."""
    try:
        parsed_path, is_lax = json_path(path)
    except TableRuntimeError as wrong_path:
        return None, False, wrong_path
    value, wrong_text = document(text)
    if wrong_text is not None:
        return None, is_lax, None if is_lax else wrong_text
    try:
        return parsed_path.read(value, is_lax), is_lax, None
    except TableRuntimeError as missing:
        return None, is_lax, missing


def _behaviour(call: Operands, event: str, default: str) -> str:
    """Return the behaviour that the options set for an event: `NULL`, `ERROR`, `DEFAULT` and so on."""
    ending = f" ON {event}"
    return next((option.removesuffix(ending) for option in call.options if option.endswith(ending)), default)


def _returning(call: Operands) -> DataType:
    """Return the type after RETURNING."""
    words = (" ON EMPTY", " ON ERROR", " WRAPPER")
    if not call.options or call.options[-1].endswith(words):
        return STRING
    parser = TypeParser(call.options[-1])
    return parser.data_type().nullable()


# --- JSON_EXISTS -----------------------------------------------------------------------------------------------------


def _bind_exists(call: Call) -> Kernel:
    behaviour = _behaviour(call.operands, "ERROR", "FALSE")

    def exists(text: str, path: str) -> bool | None:
        value, _, error = _lookup(text, path)
        if error is None:
            return value is not None
        if behaviour == "ERROR":
            raise error
        return {"TRUE": True, "FALSE": False}.get(behaviour)

    return value_kernel(exists, call.types, call.result)


# --- JSON_VALUE ------------------------------------------------------------------------------------------------------


def _value_type(call: Operands) -> DataType:
    data_type = _returning(call)
    if not isinstance(data_type, (*TEXTS, BooleanType, IntType, DoubleType)):
        raise ValidationError(f"Unsupported type {data_type} for RETURNING in JSON_VALUE()")
    return data_type


def _converter(data_type: DataType) -> Callable[[Any], Any]:
    if isinstance(data_type, TEXTS):
        return lambda value: storable(scalar_text(value))

    def convert(value: Any) -> Any:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if isinstance(data_type, BooleanType) and isinstance(value, bool):
            return value
        if isinstance(data_type, DoubleType) and is_number:
            return float(value)
        if isinstance(data_type, IntType) and isinstance(value, int) and is_number and -_INT_MAX <= value < _INT_MAX:
            return value
        raise TableRuntimeError(f"JSON_VALUE found {write_json(value)}, which is no {data_type.nullable()}")

    return convert


def _bind_value(call: Call) -> Kernel:
    convert = _converter(call.result)
    on_empty, on_error = (_behaviour(call.operands, event, "NULL") for event in ("EMPTY", "ERROR"))
    with_default = [option.rpartition(" ")[2] for option in call.options if option.startswith("DEFAULT ON ")]

    def otherwise(behaviour: str, error: TableRuntimeError, event: str, defaults: Sequence[Any]) -> Any:
        if behaviour == "ERROR":
            raise error
        default = defaults[with_default.index(event)] if behaviour == "DEFAULT" else None
        return None if default is None else convert(default)

    def extract_value(text: str | None, path: str | None, *defaults: Any) -> Any:
        if text is None or path is None:
            return None
        value, is_lax, error = _lookup(text, path)
        if error is None and not isinstance(value, dict | list) and value is not None:
            return convert(value)
        if error is None and (value is None or is_lax):
            empty = TableRuntimeError("Empty result of JSON_VALUE function is not allowed")
            return otherwise(on_empty, empty, "EMPTY", defaults)
        if error is None:
            value_text = write_json(value)
            error = TableRuntimeError(
                f"Strict jsonpath mode requires scalar value, and the actual value is: '{value_text}'"
            )
        return otherwise(on_error, error, "ERROR", defaults)

    return value_kernel(extract_value, call.types, call.result, takes_null=True)


# --- JSON_QUERY ------------------------------------------------------------------------------------------------------


def _query_type(call: Operands) -> DataType:
    data_type = _returning(call)
    if isinstance(data_type, ArrayType):
        if not isinstance(data_type.element_type, VarCharType):
            kind = data_type.element_type
            raise ValidationError(f"Unsupported array element type '{kind}' for RETURNING ARRAY in JSON_QUERY()")
        for event in ("EMPTY", "ERROR"):
            if _behaviour(call, event, "NULL") == "EMPTY OBJECT":
                message = f"Illegal on {event.lower()} behavior 'EMPTY OBJECT' for return type: {data_type}"
                raise ValidationError(message)
    elif not isinstance(data_type, TEXTS):
        raise ValidationError(f"Unsupported type '{data_type}' for RETURNING in JSON_QUERY()")
    return data_type


def _to_texts(value: Any) -> list[str | None]:
    """Return the elements of an array as strings: strings unchanged, other values as JSON."""
    if not isinstance(value, list):
        raise TableRuntimeError(f"JSON_QUERY found {write_json(value)}, which is no array")
    return [
        None if element is None else storable(element if isinstance(element, str) else write_json(element))
        for element in value
    ]


def _wrap(value: Any, wrapper: str) -> Any:
    if value is None or wrapper == "NEVER":
        return value
    return value if wrapper == "CONDITIONAL" and isinstance(value, list) else [value]


def _wrapper(call: Operands) -> str:
    words = next((option for option in call.options if option.endswith("WRAPPER")), "WITHOUT WRAPPER").split()
    if "WITHOUT" in words:
        return "NEVER"
    return "CONDITIONAL" if "CONDITIONAL" in words else "ALWAYS"


def _bind_query(call: Call) -> Kernel:
    gives_array = isinstance(call.result, ArrayType)
    convert: Callable[[Any], Any] = _to_texts if gives_array else lambda value: storable(write_json(value))
    empties: dict[str, Any] = {"EMPTY": [] if gives_array else "[]", "EMPTY ARRAY": [] if gives_array else "[]"}
    empties["EMPTY OBJECT"] = "{}"
    wrapper = _wrapper(call.operands)
    on_empty, on_error = (_behaviour(call.operands, event, "NULL") for event in ("EMPTY", "ERROR"))

    def otherwise(behaviour: str, error: TableRuntimeError) -> Any:
        if behaviour == "ERROR":
            raise error
        return empties.get(behaviour)

    def query(text: str, path: str) -> Any:
        value, is_lax, error = _lookup(text, path)
        if error is not None:
            return otherwise(on_error, error)
        value = _wrap(value, wrapper)
        if value is None or (is_lax and not isinstance(value, dict | list)):
            return otherwise(on_empty, TableRuntimeError("Empty result of JSON_QUERY function is not allowed"))
        if not isinstance(value, dict | list):
            value_text = f"'{value}'" if isinstance(value, str) else scalar_text(value)
            message = f"Strict jsonpath mode requires array or object value, and the actual value is: '{value_text}'"
            return otherwise(on_error, TableRuntimeError(message))
        try:
            return convert(value)
        except TableRuntimeError as wrong:
            return otherwise(on_error, wrong)

    return value_kernel(query, call.types, call.result)


# --- IS JSON ---------------------------------------------------------------------------------------------------------


def is_json(text: str | None, kind: str = "VALUE") -> bool:
    """Return whether a string is JSON of a kind: VALUE, OBJECT, ARRAY or SCALAR. False for NULL."""
    if text is None:
        return False
    value, error = document(text)
    if error is not None:
        return False
    actual = "OBJECT" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else "SCALAR"
    return kind in ("VALUE", actual)


def _bind_is_json(kind: str, negated: bool, call: Call) -> Kernel:
    if len(call.types) == 2:
        kind = str(call.value(1))
    holds = value_kernel(lambda text: is_json(text, kind), call.types[:1], call.result, takes_null=True)

    def kernel(column: Datum, *words: Datum) -> Datum:
        result = holds(column)
        return pc.invert(result) if negated else result

    return kernel


def _kind(call: Operands, index: int) -> DataType | None:
    return NullType() if call.value(index) in ("VALUE", "OBJECT", "ARRAY", "SCALAR") else None


def _is_json(name: str, kind: str, negated: bool) -> ScalarFunction:
    return scalar(
        name,
        takes(TEXT),
        returns_not_null(BOOLEAN_TYPE),
        partial(_bind_is_json, kind, negated),
        f"Returns TRUE if the string is {'not ' if negated else ''}"
        f"{'valid JSON' if kind == 'VALUE' else f'a JSON {kind.lower()}'}.",
        usage=f"string {name}",
        section="json",
    )


_TESTS: Final = tuple(
    _is_json(f"IS {'NOT ' if negated else ''}JSON{suffix}", suffix.strip() or "VALUE", negated)
    for negated in (False, True)
    for suffix in ("", " VALUE", " OBJECT", " ARRAY", " SCALAR")
)

FUNCTIONS: tuple[ScalarFunction, ...] = (
    scalar(
        "JSON_EXISTS",
        takes(_JSON, TEXT),
        returns_nullable(BOOLEAN_TYPE),
        _bind_exists,
        "Returns TRUE if the path finds a value in the JSON string.",
        can_fail=True,
        usage="JSON_EXISTS(json, path [{TRUE | FALSE | UNKNOWN | ERROR} ON ERROR])",
        python_name="jsonExists",
        section="json",
    ),
    scalar(
        "JSON_VALUE",
        _WITH_DEFAULTS,
        _value_type,
        _bind_value,
        "Extracts the scalar at the path from a JSON string, as STRING, BOOLEAN, INT or DOUBLE.",
        can_fail=True,
        usage="JSON_VALUE(json, path [RETURNING type] [{NULL | ERROR | DEFAULT value} ON EMPTY] "
        "[{NULL | ERROR | DEFAULT value} ON ERROR])",
        python_name="jsonValue",
        section="json",
    ),
    scalar(
        "JSON_QUERY",
        takes(_JSON, TEXT),
        _query_type,
        _bind_query,
        "Extracts the object or array at the path from a JSON string, as STRING or ARRAY<STRING>.",
        can_fail=True,
        usage="JSON_QUERY(json, path [RETURNING type] [{WITHOUT | WITH [CONDITIONAL | UNCONDITIONAL]} [ARRAY] WRAPPER] "
        "[{NULL | ERROR | EMPTY ARRAY | EMPTY OBJECT} ON EMPTY] "
        "[{NULL | ERROR | EMPTY ARRAY | EMPTY OBJECT} ON ERROR])",
        python_name="jsonQuery",
        section="json",
    ),
    *_TESTS,
    scalar(
        "IS_JSON",
        (takes(TEXT), takes(TEXT, where("<JSON_TYPE>", _kind))),
        returns_not_null(BOOLEAN_TYPE),
        partial(_bind_is_json, "VALUE", False),
        "Returns TRUE if the string is JSON of the kind VALUE, OBJECT, ARRAY or SCALAR.",
        usage="IS_JSON(string[, kind])",
        python_name="isJson",
        section="json",
    ),
)
