"""Functions of JSON: queries, conversion of SQL values, and construction.

**Queries.** JSON_EXISTS, JSON_VALUE, JSON_QUERY and IS JSON.

**Conversion.** Rows and maps become objects with sorted keys, arrays become arrays, and bytes become base64 strings.
Temporal values become strings such as `1990-06-02T13:37:42.001`, with a trailing `Z` for TIMESTAMP_LTZ.

**Construction.** JSON_STRING, JSON_OBJECT, JSON_ARRAY, JSON, JSON_QUOTE and JSON_UNQUOTE. JSON_OBJECT, JSON_ARRAY and
JSON return strings, but JSON_OBJECT and JSON_ARRAY embed these results as JSON. Kernels see only columns, so an option
of the call lists such operands: `EMBEDDED 1 3`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.variant import Variant, double_text, name_order, text_in_quotes
from penstock.sql.data import types
from penstock.sql.data.arrow import Datum, Kernel
from penstock.sql.data.datetimes import format_timestamp
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.functions import definition, variants
from penstock.sql.functions.json_path import json_path
from penstock.sql.functions.type_rules import BYTES, TEXTS
from penstock.sql.parser.types import TypeParser
from penstock.sql.typed import FunctionCall, Typed

#: how a function handles an error or a path that finds nothing
Behaviour = Callable[[TableRuntimeError | None], Any]

_INT_MAX: Final = 2**31


def _input_type(call: definition.Operands, index: int) -> types.DataType | None:
    """Accept strings. Numbers and booleans are cast to STRING, which yields their JSON."""
    data_type = call.types[index]
    if isinstance(data_type, types.NumericType | types.BooleanType):
        return definition.STRING.nullable() if data_type.is_nullable else definition.STRING.not_null()
    return definition.TEXT.check(call, index)


def _input_of_query(call: definition.Operands, index: int) -> types.DataType | None:
    """Accept variants, too, whose JSON is queried."""
    return call.types[index] if isinstance(call.types[index], types.VariantType) else _input_type(call, index)


_JSON: Final = definition.where("<CHARACTER_STRING>", _input_type)
_JSON_OR_VARIANT: Final = definition.where("<CHARACTER_STRING>", _input_of_query)
_WITH_DEFAULTS: Final = tuple(
    definition.takes(_JSON_OR_VARIANT, definition.TEXT, *[definition.ANY] * count) for count in range(3)
)


def _lookup(text: str | Variant, path: str) -> tuple[Any, bool, TableRuntimeError | None]:
    """Return the value that a path finds, whether the path is lax, and the error, if any."""
    try:
        parsed_path, is_lax = json_path(path)
    except TableRuntimeError as wrong_path:
        return None, False, wrong_path
    value, wrong_text = variants.document(text if isinstance(text, str) else text.to_json())
    if wrong_text is not None:
        return None, is_lax, None if is_lax else wrong_text
    try:
        return parsed_path.read(value, is_lax), is_lax, None
    except TableRuntimeError as missing:
        return None, is_lax, missing


def _behaviour(call: definition.Operands, event: str, default: str) -> str:
    """Return the behaviour that the options set for an event: `NULL`, `ERROR`, `DEFAULT` and so on."""
    ending = f" ON {event}"
    return next((option.removesuffix(ending) for option in call.options if option.endswith(ending)), default)


def _returning(call: definition.Operands) -> types.DataType:
    """Return the type after RETURNING."""
    words = (" ON EMPTY", " ON ERROR", " WRAPPER")
    if not call.options or call.options[-1].endswith(words):
        return definition.STRING
    parser = TypeParser(call.options[-1])
    return parser.data_type().nullable()


# --- JSON_EXISTS -----------------------------------------------------------------------------------------------------


def _bind_exists(call: definition.Call) -> Kernel:
    behaviour = _behaviour(call.operands, "ERROR", "FALSE")

    def exists(text: str, path: str) -> bool | None:
        value, _, error = _lookup(text, path)
        if error is None:
            return value is not None
        if behaviour == "ERROR":
            raise error
        return {"TRUE": True, "FALSE": False}.get(behaviour)

    return definition.value_kernel(exists, call.types, call.result)


# --- JSON_VALUE ------------------------------------------------------------------------------------------------------


def _value_type(call: definition.Operands) -> types.DataType:
    data_type = _returning(call)
    if not isinstance(data_type, (*TEXTS, types.BooleanType, types.IntType, types.DoubleType)):
        raise ValidationError(f"Unsupported type {data_type} for RETURNING in JSON_VALUE()")
    return data_type


def _converter(data_type: types.DataType) -> Callable[[Any], Any]:
    if isinstance(data_type, TEXTS):
        return lambda value: variants.storable(variants.scalar_text(value))

    def convert(value: Any) -> Any:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if isinstance(data_type, types.BooleanType) and isinstance(value, bool):
            return value
        if isinstance(data_type, types.DoubleType) and is_number:
            return float(value)
        if (
            isinstance(data_type, types.IntType)
            and isinstance(value, int)
            and is_number
            and -_INT_MAX <= value < _INT_MAX
        ):
            return value
        raise TableRuntimeError(f"JSON_VALUE found {variants.write_json(value)}, which is no {data_type.nullable()}")

    return convert


def _bind_value(call: definition.Call) -> Kernel:
    convert = _converter(call.result)
    on_empty, on_error = (_behaviour(call.operands, event, "NULL") for event in ("EMPTY", "ERROR"))
    with_default = [option.rpartition(" ")[2] for option in call.options if option.startswith("DEFAULT ON ")]

    def otherwise(behaviour: str, error: TableRuntimeError, event: str, defaults: Sequence[Any]) -> Any:
        if behaviour == "ERROR":
            raise error
        default = defaults[with_default.index(event)] if behaviour == "DEFAULT" else None
        return None if default is None else convert(default)

    def extract_value(text: str | Variant | None, path: str | None, *defaults: Any) -> Any:
        if text is None or path is None:
            return None
        value, is_lax, error = _lookup(text, path)
        if error is None and not isinstance(value, dict | list) and value is not None:
            return convert(value)
        if error is None and (value is None or is_lax):
            empty = TableRuntimeError("Empty result of JSON_VALUE function is not allowed")
            return otherwise(on_empty, empty, "EMPTY", defaults)
        if error is None:
            value_text = variants.write_json(value)
            error = TableRuntimeError(
                f"Strict jsonpath mode requires scalar value, and the actual value is: '{value_text}'"
            )
        return otherwise(on_error, error, "ERROR", defaults)

    return definition.value_kernel(extract_value, call.types, call.result, takes_null=True)


# --- JSON_QUERY ------------------------------------------------------------------------------------------------------


def _query_type(call: definition.Operands) -> types.DataType:
    data_type = _returning(call)
    if isinstance(data_type, types.ArrayType):
        if not isinstance(data_type.element_type, types.VarCharType):
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
        raise TableRuntimeError(f"JSON_QUERY found {variants.write_json(value)}, which is no array")
    return [
        None
        if element is None
        else variants.storable(element if isinstance(element, str) else variants.write_json(element))
        for element in value
    ]


def _wrap(value: Any, wrapper: str) -> Any:
    if value is None or wrapper == "NEVER":
        return value
    return value if wrapper == "CONDITIONAL" and isinstance(value, list) else [value]


def _wrapper(call: definition.Operands) -> str:
    words = next((option for option in call.options if option.endswith("WRAPPER")), "WITHOUT WRAPPER").split()
    if "WITHOUT" in words:
        return "NEVER"
    return "CONDITIONAL" if "CONDITIONAL" in words else "ALWAYS"


def _bind_query(call: definition.Call) -> Kernel:
    gives_array = isinstance(call.result, types.ArrayType)
    convert: Callable[[Any], Any] = (
        _to_texts if gives_array else lambda value: variants.storable(variants.write_json(value))
    )
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
            value_text = f"'{value}'" if isinstance(value, str) else variants.scalar_text(value)
            message = f"Strict jsonpath mode requires array or object value, and the actual value is: '{value_text}'"
            return otherwise(on_error, TableRuntimeError(message))
        try:
            return convert(value)
        except TableRuntimeError as wrong:
            return otherwise(on_error, wrong)

    return definition.value_kernel(query, call.types, call.result)


# --- IS JSON ---------------------------------------------------------------------------------------------------------


def is_json(text: str | None, kind: str = "VALUE") -> bool:
    """Return whether a string is JSON of a kind: VALUE, OBJECT, ARRAY or SCALAR. False for NULL."""
    if text is None:
        return False
    value, error = variants.document(text)
    if error is not None:
        return False
    actual = "OBJECT" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else "SCALAR"
    return kind in ("VALUE", actual)


def _bind_is_json(kind: str, negated: bool, call: definition.Call) -> Kernel:
    if len(call.types) == 2:
        kind = str(call.value(1))
    holds = definition.value_kernel(lambda text: is_json(text, kind), call.types[:1], call.result, takes_null=True)

    def kernel(column: Datum, *words: Datum) -> Datum:
        result = holds(column)
        return pc.invert(result) if negated else result

    return kernel


def _kind(call: definition.Operands, index: int) -> types.DataType | None:
    return types.NullType() if call.value(index) in ("VALUE", "OBJECT", "ARRAY", "SCALAR") else None


def _is_json(name: str, kind: str, negated: bool) -> definition.ScalarFunction:
    return definition.scalar(
        name,
        definition.takes(definition.TEXT),
        definition.returns_not_null(definition.BOOLEAN_TYPE),
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

JSON_QUERY_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "JSON_EXISTS",
        definition.takes(_JSON, definition.TEXT),
        definition.returns_nullable(definition.BOOLEAN_TYPE),
        _bind_exists,
        "Returns TRUE if the path finds a value in the JSON string.",
        can_fail=True,
        usage="JSON_EXISTS(json, path [{TRUE | FALSE | UNKNOWN | ERROR} ON ERROR])",
        python_name="jsonExists",
        section="json",
    ),
    definition.scalar(
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
    definition.scalar(
        "JSON_QUERY",
        definition.takes(_JSON_OR_VARIANT, definition.TEXT),
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
    definition.scalar(
        "IS_JSON",
        (definition.takes(definition.TEXT), definition.takes(definition.TEXT, definition.where("<JSON_TYPE>", _kind))),
        definition.returns_not_null(definition.BOOLEAN_TYPE),
        partial(_bind_is_json, "VALUE", False),
        "Returns TRUE if the string is JSON of the kind VALUE, OBJECT, ARRAY or SCALAR.",
        usage="IS_JSON(string[, kind])",
        python_name="isJson",
        section="json",
    ),
)


#: writes a value that is not NULL
Writer = Callable[[Any], str]

_TEXT: Final = types.VarCharType(types.LENGTH_MAX)
_PLAIN: Final = (
    *TEXTS,
    *BYTES,
    types.BooleanType,
    types.NumericType,
    types.TimestampType,
    types.LocalZonedTimestampType,
    types.VariantType,
    types.NullType,
)
#: the characters that JSON escapes
_NEEDS_ESCAPES: Final = r'["\\\x00-\x1f]'


def becomes_json(data_type: types.DataType) -> bool:
    """Return whether values of a type can be written as JSON."""
    if isinstance(data_type, types.MapType):
        return isinstance(data_type.key_type, TEXTS) and becomes_json(data_type.value_type)
    if isinstance(data_type, types.MultisetType):
        return isinstance(data_type.element_type, TEXTS)
    if isinstance(data_type, types.ArrayType | types.RowType):
        return all(map(becomes_json, data_type.children()))
    return isinstance(data_type, _PLAIN)


def json_text(value: Any, data_type: types.DataType, session: definition.Session) -> str:
    """Write a value as JSON. Raises `ValidationError` for types without a JSON form."""
    return "null" if value is None else variants.storable(json_writer(data_type)(value))


@lru_cache(maxsize=256)
def json_writer(data_type: types.DataType) -> Writer:
    """Return the writer for a type. Raises `ValidationError` for types without a JSON form."""
    match data_type:
        case types.BooleanType():
            return lambda value: "true" if value else "false"
        case types.DoubleType() | types.FloatType():
            return _floating
        case types.DecimalType() | types.IntegralType():
            return str
        case types.TimestampType():
            return lambda value: f'"{_timestamp(value)}"'
        case types.LocalZonedTimestampType():
            return lambda value: f'"{_timestamp(value)}Z"'
        case types.VariantType():
            return _variant
        case types.NullType():
            return lambda value: "null"
        case types.MultisetType(element_type=element) if isinstance(element, TEXTS):
            return _object(str)
        case types.ArrayType(element_type=element) if not isinstance(data_type, types.MultisetType):
            return _array(json_writer(element))
        case types.MapType(key_type=key, value_type=item) if isinstance(key, TEXTS):
            return _object(json_writer(item))
        case types.RowType():
            return _row(data_type)
        case _ if isinstance(data_type, TEXTS):
            return text_in_quotes
        case _ if isinstance(data_type, BYTES):
            return lambda value: f'"{base64.b64encode(value).decode()}"'
    raise ValidationError(f"Type {data_type} is not scalar or cannot be converted into JSON.")


def json_column(column: Datum, data_type: types.DataType) -> Datum:
    """Convert a column to JSON, writing each distinct value once. NULL stays NULL."""
    if isinstance(data_type, types.NullType):
        return pa.scalar(None, pa.string())
    if isinstance(data_type, types.IntegralType):
        return column.cast(pa.string())
    if isinstance(data_type, types.BooleanType):
        return pc.if_else(column, "true", "false")
    if isinstance(data_type, TEXTS) and not pc.any(pc.match_substring_regex(_as_array(column), _NEEDS_ESCAPES)).as_py():
        return pc.binary_join_element_wise('"', column, '"', "")
    writer = json_writer(data_type)
    return definition.value_kernel(lambda value: variants.storable(writer(value)), (data_type,), _TEXT)(column)


def _as_array(column: Datum) -> pa.Array:
    return pa.array([column.as_py()], column.type) if isinstance(column, pa.Scalar) else column


def _floating(value: float) -> str:
    """Write a DOUBLE as Java's BigDecimal prints it. FLOAT is widened to DOUBLE; NaN and infinities become strings."""
    text = double_text(value + 0.0)  # -0.0 becomes 0.0
    return str(Decimal(text)) if math.isfinite(value) else f'"{text}"'


def _timestamp(nanoseconds: int) -> str:
    day, _, time = format_timestamp(nanoseconds, 9).partition(" ")
    clock, _, fraction = time.partition(".")
    fraction = fraction.rstrip("0")
    return f"{day}T{clock}.{fraction}" if fraction else f"{day}T{clock}"


def _variant(value: Variant) -> str:
    return value.to_json()


def _or_null(write: Writer, value: Any) -> str:
    return "null" if value is None else write(value)


def _array(write: Writer) -> Writer:
    return lambda values: f"[{','.join(['null' if value is None else write(value) for value in values])}]"


def _object(write: Writer) -> Writer:
    def text(pairs: Sequence[tuple[str | None, Any]]) -> str:
        by_key: dict[str, Any] = {}
        for index, (key, value) in enumerate(pairs):
            if key is None:
                raise TableRuntimeError(
                    f"Key at index {index} was null. This is not supported during conversion to JSON."
                )
            by_key[key] = value
        ordered = sorted(by_key.items(), key=lambda pair: name_order(pair[0]))
        return "{" + ",".join([f"{text_in_quotes(key)}:{_or_null(write, value)}" for key, value in ordered]) + "}"

    return text


def _row(row: types.RowType) -> Writer:
    indices = sorted(range(len(row.fields)), key=lambda index: name_order(row.fields[index].name))
    parts = [
        (f"{text_in_quotes(row.fields[index].name)}:", index, json_writer(row.fields[index].data_type))
        for index in indices
    ]

    def text(values: Sequence[Any]) -> str:
        return "{" + ",".join([name + _or_null(write, values[index]) for name, index, write in parts]) + "}"

    return text


#: functions whose results JSON_OBJECT and JSON_ARRAY embed as JSON
_MAKES_JSON: Final = frozenset(("JSON_OBJECT", "JSON_ARRAY", "JSON"))
#: functions that embed JSON
EMBEDDING: Final = frozenset(("JSON_OBJECT", "JSON_ARRAY"))
MISPLACED_JSON: Final = (
    "The JSON() function is currently only supported inside JSON_ARRAY() or as the VALUE param of JSON_OBJECT()"
)


def embedded_operands(name: str, operands: Sequence[Typed]) -> tuple[str, ...]:
    """Return the option that lists the operands of a call that are JSON already."""
    if name not in EMBEDDING:
        return ()
    indices = [
        str(index)
        for index, operand in enumerate(operands)
        if isinstance(operand, FunctionCall) and operand.function in _MAKES_JSON
    ]
    return (f"EMBEDDED {' '.join(indices)}",) if indices else ()


def _embedded(call: definition.Call) -> frozenset[int]:
    embedded = next((option for option in call.options if option.startswith("EMBEDDED ")), "EMBEDDED")
    return frozenset(map(int, embedded.split()[1:]))


def _texts(call: definition.Call, operands: Sequence[Datum], indices: Sequence[int]) -> list[Datum]:
    """Return operands as columns of JSON. NULL stays NULL."""
    ready = _embedded(call)
    return [operands[index] if index in ready else json_column(operands[index], call.types[index]) for index in indices]


def _joined(parts: Sequence[Datum], begin: str, end: str) -> Datum:
    """Join parts with commas and enclose them in brackets. NULL is omitted."""
    if not parts:
        return pa.scalar(begin + end)
    inside = pc.binary_join_element_wise(*parts, ",", null_handling="skip") if len(parts) > 1 else parts[0]
    return pc.binary_join_element_wise(begin, pc.fill_null(inside, ""), end, "")


def _bind_object(call: definition.Call) -> Kernel:
    keeps_null = "ABSENT ON NULL" not in call.options
    indices: dict[str, list[int]] = {}
    for index in range(0, len(call.types), 2):
        indices.setdefault(str(call.value(index)), []).append(index + 1)
    names = sorted(indices, key=name_order)

    def part(operands: Sequence[Datum], name: str) -> Datum:
        label = f"{text_in_quotes(name)}:"
        texts = _texts(call, operands, indices[name][-1:] if keeps_null else indices[name][::-1])
        text = texts[0] if len(texts) == 1 else pc.coalesce(*texts)
        return pc.binary_join_element_wise(label, pc.fill_null(text, "null") if keeps_null else text, "")

    return lambda *operands: _joined([part(operands, name) for name in names], "{", "}")


def _bind_array(call: definition.Call) -> Kernel:
    keeps_null = "NULL ON NULL" in call.options

    def kernel(*operands: Datum) -> Datum:
        texts = _texts(call, operands, range(len(operands)))
        return _joined([pc.fill_null(text, "null") for text in texts] if keeps_null else texts, "[", "]")

    return kernel


def _bind_string(call: definition.Call) -> Kernel:
    return lambda column: json_column(column, call.types[0])


def _json(text: str) -> str | None:
    """Parse JSON and write it without whitespace. A blank string is NULL."""
    if not text.strip():
        return None
    value, error = variants.document(text)
    if error is not None:
        raise TableRuntimeError(f"Invalid JSON string in JSON(value) function: {error}")
    return variants.storable(variants.write_json(value))


# --- quotes ----------------------------------------------------------------------------------------------------------

_QUOTED: Final = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNQUOTED: Final = {escape[1]: char for char, escape in _QUOTED.items()}


def _quote(text: str) -> str:
    """Return a string as a JSON string in ASCII."""
    if text.isascii():
        return f'"{text.translate(_ASCII_QUOTED)}"'
    return f'"{"".join([_QUOTED.get(char) or _ascii(char) for char in text])}"'


def _ascii(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


_ASCII_QUOTED: Final = {code: _QUOTED.get(chr(code)) or _ascii(chr(code)) for code in range(128)}


def _unquote(text: str) -> str:
    """Return the value of a JSON string, or any other text unchanged."""
    if not (is_json(text) and text[0] == text[-1] == '"'):
        return text
    chars: list[str] = []
    position, end = 1, len(text) - 1
    while position < end:
        char = text[position]
        position += 1
        if char != "\\" or position >= end:
            chars.append(char)
            continue
        escape = text[position]
        position += 1
        if escape in _UNQUOTED:
            chars.append(_UNQUOTED[escape])
            continue
        try:
            chars.append(chr(int(text[position : position + 4], 16)))
        except ValueError:
            return text
        position += 4
    return variants.storable("".join(chars))


# --- the functions ---------------------------------------------------------------------------------------------------


def _json_operand(call: definition.Operands, index: int) -> types.DataType | None:
    data_type = call.types[index]
    return data_type if becomes_json(data_type) or isinstance(data_type, types.NullType) else None


def _key(call: definition.Operands, index: int) -> types.DataType | None:
    return None if call.value(index) in (None, definition.UNKNOWN) else definition.TEXT.check(call, index)


def _may_have_null_keys(call: definition.Operands) -> bool:
    return any(map(_has_nullable_keys, call.types))


def _has_nullable_keys(data_type: types.DataType) -> bool:
    if isinstance(data_type, types.MapType) and data_type.key_type.is_nullable:
        return True
    return any(map(_has_nullable_keys, data_type.children()))


_VALUE: Final = definition.where("<JSON_ARGUMENT>", _json_operand)
_KEY: Final[definition.Operand] = definition.literal(definition.Operand(definition.TEXT.label, _key))

JSON_CONSTRUCTION_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "JSON_STRING",
        definition.takes(_VALUE),
        definition.returns(definition.STRING),
        _bind_string,
        "Serializes a value of any type to JSON.",
        can_fail=_may_have_null_keys,
        usage="JSON_STRING(value)",
        python_name="jsonString",
        section="json",
    ),
    definition.scalar(
        "JSON_OBJECT",
        (definition.takes(), definition.takes(_KEY, _VALUE, repeated=2)),
        definition.returns_not_null(definition.STRING),
        _bind_object,
        "Creates a JSON object of the keys and values. Keys are constants.",
        can_fail=_may_have_null_keys,
        usage="JSON_OBJECT([[KEY] key VALUE value, ...] [{NULL | ABSENT} ON NULL])",
        python_name="jsonObject",
        section="json",
        is_folded=False,
    ),
    definition.scalar(
        "JSON_ARRAY",
        (definition.takes(), definition.takes(_VALUE, repeated=1)),
        definition.returns_not_null(definition.STRING),
        _bind_array,
        "Creates a JSON array of the values.",
        can_fail=_may_have_null_keys,
        usage="JSON_ARRAY([value, ...] [{NULL | ABSENT} ON NULL])",
        python_name="jsonArray",
        section="json",
        is_folded=False,
    ),
    definition.scalar(
        "JSON",
        definition.takes(definition.TEXT),
        definition.returns_nullable(definition.STRING),
        definition.per_value(_json),
        "Inserts a JSON string into JSON_OBJECT or JSON_ARRAY unquoted, as a JSON value.",
        can_fail=True,
        usage="JSON(string)",
        python_name="json",
        section="json",
        is_folded=False,
    ),
    definition.scalar(
        "JSON_QUOTE",
        definition.takes(definition.TEXT),
        definition.returns(definition.STRING),
        definition.per_value(_quote),
        "Quotes the string as a JSON value, escaping special and non-ASCII characters.",
        usage="JSON_QUOTE(string)",
        python_name="jsonQuote",
        section="json",
    ),
    definition.scalar(
        "JSON_UNQUOTE",
        definition.takes(definition.TEXT),
        definition.returns(definition.STRING),
        definition.per_value(_unquote),
        "Unquotes a JSON string value. A string that is not a quoted JSON string is returned unchanged.",
        usage="JSON_UNQUOTE(string)",
        python_name="jsonUnquote",
        section="json",
    ),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*JSON_QUERY_FUNCTIONS, *JSON_CONSTRUCTION_FUNCTIONS)
