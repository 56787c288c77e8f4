"""JSON objects as columns, JSON values as internal values by type, and `JsonRules`, the options of JSON tables.

`JsonColumns` reads messages as columns: msgspec parses each message to the columns' types, and the values become Arrow
arrays. A message is read here only if every field has exactly the JSON type of its column. Any other message is left to
`JsonMessageDecoder`, which reads it by itself, so the result for a message does not depend on its neighbours. Arrow's
own JSON reader is not used: it aborts the process for some messages that are not objects. `value_reader` reads single
JSON values (see `penstock.sql.data.arrow` for the internal values).
"""

from __future__ import annotations

import base64
import decimal
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import FormatError, UnsupportedError
from penstock.codecs.arrow_columns import map_array
from penstock.codecs.json_values import NumberText, check_utf8, convert_to_float, encode_json
from penstock.codecs.serialization import parse_digits, to_whole
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type, to_column
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import DataType
from penstock.sql.functions.definition import Session
from penstock.sql.functions.text_casts import from_text_kernel, reader
from penstock.sql.functions.type_rules import INTEGERS
from penstock.sql.logical.nodes import RowSchema

#: the key of the option for NULL keys in maps
NULL_KEYS: Final = "map-null-key.mode"


@dataclass(frozen=True, slots=True)
class JsonRules:
    """The options of the format `json`.

    Attributes:
        null_keys: how a map entry with a NULL key is written: FAIL, DROP or LITERAL.
        null_key: the key written for NULL with LITERAL.
    """

    fails_on_missing: bool = False
    ignores_errors: bool = False
    is_iso: bool = False
    has_plain_decimals: bool = False
    leaves_out_nulls: bool = False
    null_keys: str = "FAIL"
    null_key: str = "null"


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
    return -parse_digits(digits[1:]) if digits.startswith("-") else parse_digits(digits.removeprefix("+"))


def _exact_whole(value: Any) -> int:
    if isinstance(value, NumberText):
        value = decimal.Decimal(value.text)
    whole = to_whole(value) if isinstance(value, float | decimal.Decimal) else None
    if whole is None:
        raise FormatError("it is no whole number, or too large")
    return whole


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


_STRING: Final = types.VarCharType(types.LENGTH_MAX)
_TEXTS: Final = (types.CharType, types.VarCharType)
_MOMENTS: Final = (types.TimestampType, types.LocalZonedTimestampType)
_NULL: Final = msgspec.Raw(b"null")
_NUMBER_STARTS: Final = frozenset(b"-0123456789")
#: below this number of texts a kernel takes longer than reading single values
_KERNEL_TEXTS_MIN: Final = 32
#: with more objects in memory, Python's cycle collector takes longer than parsing
_AT_ONCE: Final = 2048
#: if this many messages from the start are refused, the others are not tried
_TRIES: Final = 16
_REFUSED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Built(NamedTuple):
    """A column, and the indices of values that must be read singly; the column holds arbitrary values there."""

    array: pa.Array
    unread: Sequence[int] = ()


#: builds a column from values parsed by msgspec
BuildColumn = Callable[[Sequence[Any]], Built]


class ParsedColumns(NamedTuple):
    """Messages after parsing.

    Attributes:
        arrays: the columns; empty if no message was parsed.
        places: the index of each row's message.
        left: the indices of the other messages, in order.
    """

    arrays: list[pa.Array]
    places: Sequence[int]
    left: list[int]


class JsonColumns:
    """Reads messages of one object each as columns.

    Args:
        schema: the columns.
        rules: the options of the format.

    Raises:
        UnsupportedError: for types that JSON lacks; it names the column.
    """

    def __init__(self, schema: RowSchema, rules: JsonRules) -> None:
        fields = [(column.name, column.type) for column in schema]
        struct, self._builds = _struct(fields, rules)
        self._decode = msgspec.json.Decoder(struct).decode
        self._values = _build_getter(struct)
        self._tries = _TRIES

    def parse(self, messages: Sequence[bytes]) -> ParsedColumns:
        """Return the columns of all messages whose fields have exactly the columns' types."""
        parts = [
            self._parse(messages[start : start + _AT_ONCE], start)
            for start in range(0, max(len(messages), 1), _AT_ONCE)
        ]
        if len(parts) == 1:
            return parts[0]
        return ParsedColumns(
            [pa.concat_arrays(arrays) for arrays in zip(*(part.arrays for part in parts if part.places), strict=True)],
            list(itertools.chain.from_iterable(part.places for part in parts)),
            list(itertools.chain.from_iterable(part.left for part in parts)),
        )

    def _parse(self, messages: Sequence[bytes], start: int) -> ParsedColumns:
        objects, refused = self._objects(messages)
        if not objects:
            return ParsedColumns([], (), [start + index for index in refused])
        columns = list(zip(*map(self._values, objects), strict=True)) or [()] * len(self._builds)
        built = [build(column) for build, column in zip(self._builds, columns, strict=True)]
        arrays = [column.array for column in built]
        positions: Sequence[int] = range(start, start + len(messages))
        if refused:
            positions = [start + index for index in sorted(set(range(len(messages))).difference(refused))]
        unread = set(itertools.chain.from_iterable(column.unread for column in built))
        left = [start + index for index in refused]
        if unread:
            remaining = [row for row in range(len(positions)) if row not in unread]
            arrays = [array.take(pa.array(remaining, pa.int64())) for array in arrays]
            left = sorted([*left, *(positions[row] for row in unread)])
            positions = [positions[row] for row in remaining]
        return ParsedColumns(arrays, positions, left)

    def _objects(self, messages: Sequence[bytes]) -> tuple[list[Any], list[int]]:
        """Return the objects in messages, and the indices of messages that msgspec refuses."""
        objects: list[Any] = []
        left: list[int] = []
        decode = self._decode if _are_utf8(messages) else self._decode_checked
        remaining = iter(messages)
        while True:
            try:
                # The list keeps the objects before a refused message.
                objects.extend(map(decode, remaining))
                self._tries = _TRIES
                return objects, left
            except _REFUSED:
                left.append(len(objects) + len(left))
                if not objects and len(left) >= self._tries:
                    # Probably all messages have other types than the columns, such as objects in a string column.
                    self._tries = 1
                    return objects, list(range(len(messages)))

    def _decode_checked(self, message: bytes) -> Any:
        check_utf8(message)
        return self._decode(message)


def _are_utf8(messages: Sequence[bytes]) -> bool:
    try:
        check_utf8(b"\n".join(messages))
    except UnicodeDecodeError:
        return False
    return True


def _struct(fields: Iterable[tuple[str, DataType]], rules: JsonRules) -> tuple[type[msgspec.Struct], list[BuildColumn]]:
    """Return a class for objects with these fields, and the builder of each field's column."""
    definitions: list[Any] = []
    names: dict[str, str] = {}
    builds: list[BuildColumn] = []
    for index, (name, kind) in enumerate(fields):
        parsed, build = _column(kind, rules, name)
        default = () if rules.fails_on_missing else (_NULL if parsed is msgspec.Raw else None,)
        definitions.append((f"f{index}", parsed, *default))
        names[f"f{index}"] = name
        builds.append(build)
    return msgspec.defstruct("Object", definitions, rename=names, gc=False, eq=False), builds


def _build_getter(struct: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    names = struct.__struct_fields__
    return attrgetter(*names) if len(names) > 1 else msgspec.structs.astuple


def _column(kind: DataType, rules: JsonRules, description: str) -> tuple[Any, BuildColumn]:
    """Return the type that msgspec parses values to, and the builder of their column."""
    match kind:
        case types.BooleanType():
            return bool | None, _plain(kind)
        case types.IntegralType():
            limit = 1 << 8 * 2 ** INTEGERS.index(type(kind)) - 1
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None, _plain(kind)
        case types.FloatType() | types.DoubleType():
            return float | None, _plain(kind)
        case types.DecimalType():
            return msgspec.Raw, _decimals(kind)
        case types.CharType() | types.VarCharType():
            return str | None, _plain(kind)
        case types.DateType() | types.TimeType() | types.TimestampType() | types.LocalZonedTimestampType():
            return str | None, _times(kind, rules, description)
        case types.RowType() if kind.fields:
            struct, builds = _struct([(field.name, field.data_type) for field in kind.fields], rules)
            return struct | None, _row_column(kind, struct, builds)
        case types.MultisetType(element_type=element) if isinstance(element, _TEXTS):
            return _map_column(kind, element, types.IntType(), rules, description)
        case types.MapType(key_type=key, value_type=item) if isinstance(key, _TEXTS):
            return _map_column(kind, key, item, rules, description)
        case types.ArrayType(element_type=element) if not isinstance(kind, types.MultisetType):
            parsed, build = _column(element, rules, description)
            return list[parsed] | None, _array(kind, build)  # type: ignore[valid-type]
    return str | None, _each(kind, value_reader(kind, rules, description))


def _plain(kind: DataType) -> BuildColumn:
    target_type = arrow_type(kind)
    return lambda values: Built(pa.array(values, target_type))


def _each(kind: DataType, read: ReadValue) -> BuildColumn:
    """Return a builder that reads values one by one."""

    def build(values: Sequence[Any]) -> Built:
        results: list[Any] = []
        unread: list[int] = []
        for index, value in enumerate(values):
            try:
                results.append(None if value is None else read(value))
            except BAD:
                results.append(None)
                unread.append(index)
        return Built(to_column(results, kind), unread)

    return build


def _texts(kind: DataType, read: ReadValue, prepare: Callable[[pa.Array], pa.Array]) -> BuildColumn:
    """Return a builder that reads texts with a kernel, after `prepare` has nulled texts unsuitable for the kernel."""
    build_each = _each(kind, read)
    kernel = from_text_kernel(_STRING, kind, Session(), True)

    def build(values: Sequence[Any]) -> Built:
        if len(values) < _KERNEL_TEXTS_MIN:
            return build_each(values)
        texts = pa.array(values, pa.string())
        array = kernel(prepare(texts))
        if array.null_count == texts.null_count:
            return Built(array)
        unread = pc.and_(texts.is_valid(), array.is_null())
        return Built(array, np.flatnonzero(unread.to_numpy(zero_copy_only=False)).tolist())

    return build


def _decimals(kind: types.DecimalType) -> BuildColumn:
    """Return a builder for decimals, which msgspec leaves as raw digits."""
    build_texts = _texts(kind, value_reader(kind, JsonRules(), ""), lambda texts: texts)

    def build(values: Sequence[msgspec.Raw]) -> Built:
        texts: list[str | None] = []
        unread: list[int] = []
        for index, raw in enumerate(map(bytes, values)):
            if raw[0] in _NUMBER_STARTS:
                texts.append(raw.decode())
            else:
                texts.append(None)
                if raw != b"null":
                    unread.append(index)
        built = build_texts(texts)
        return Built(built.array, [*built.unread, *unread]) if unread else built

    return build


def _times(kind: DataType, rules: JsonRules, description: str) -> BuildColumn:
    read = value_reader(kind, rules, description)
    if not isinstance(kind, _MOMENTS):
        return _texts(kind, read, lambda texts: texts)
    is_zoned = isinstance(kind, types.LocalZonedTimestampType)
    nothing = pa.scalar(None, pa.string())

    def prepare(texts: pa.Array) -> pa.Array:
        has_t = pc.match_substring(texts, "T")
        texts = pc.if_else(has_t if rules.is_iso else pc.invert(has_t), texts, nothing)
        if rules.is_iso:
            texts = pc.replace_substring(texts, "T", " ")
        if is_zoned:
            texts = pc.if_else(pc.ends_with(texts, "Z"), texts, nothing)
            texts = pc.utf8_slice_codeunits(texts, 0, -1)
        return texts

    return _texts(kind, read, prepare)


def _row_column(kind: types.RowType, struct: type[msgspec.Struct], builds: Sequence[BuildColumn]) -> BuildColumn:
    fields = list(arrow_type(kind))
    values_of = _build_getter(struct)
    nothing = struct(*[_NULL if parsed is msgspec.Raw else None for parsed in struct.__annotations__.values()])

    def build(values: Sequence[Any]) -> Built:
        missing = None
        try:
            rows = list(map(values_of, values))
        except (AttributeError, TypeError):  # a value is None
            missing = pa.array([value is None for value in values], pa.bool_())
            rows = [values_of(nothing if value is None else value) for value in values]
        columns = list(zip(*rows, strict=True)) or [()] * len(builds)
        built = [build_field(column) for build_field, column in zip(builds, columns, strict=True)]
        array = pa.StructArray.from_arrays([column.array for column in built], fields=fields, mask=missing)
        return Built(array, sorted({index for column in built for index in column.unread}))

    return build


def _array(kind: DataType, build_elements: BuildColumn) -> BuildColumn:
    target_type = arrow_type(kind)

    def build(values: Sequence[Any]) -> Built:
        ends, elements = _flattened(values)
        built = build_elements(elements)
        return Built(
            pa.ListArray.from_arrays(_offsets(values, ends), built.array, type=target_type), _owners(ends, built)
        )

    return build


def _map_column(
    kind: DataType, key: DataType, item: DataType, rules: JsonRules, description: str
) -> tuple[Any, BuildColumn]:
    target_type = arrow_type(kind)
    build_keys = _plain(key)
    parsed, build_items = _column(item, rules, description)

    def build(values: Sequence[Any]) -> Built:
        ends, keys = _flattened(values)
        items = list(itertools.chain.from_iterable(value.values() for value in values if value is not None))
        built = build_items(items)
        offsets = _offsets(values, ends)
        array = map_array(offsets, build_keys(keys).array, built.array, target_type)
        return Built(array, _owners(ends, built))

    return dict[str, parsed] | None, build  # type: ignore[valid-type]


def _flattened(values: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """Return the end of each value in the list of all elements, and that list."""
    try:
        return list(itertools.accumulate(map(len, values))), list(itertools.chain.from_iterable(values))
    except TypeError:  # a value is None
        return _flattened([() if value is None else value for value in values])


def _offsets(values: Sequence[Any], ends: Sequence[int]) -> pa.Array:
    offsets: Sequence[int | None] = [0, *ends]
    if None in values:
        starts = zip(offsets, values, strict=False)
        offsets = [*(None if value is None else start for start, value in starts), offsets[-1]]
    return pa.array(offsets, pa.int32())


def _owners(ends: Sequence[int], built: Built) -> Sequence[int]:
    """Return the indices of the values with unread elements."""
    if not built.unread:
        return ()
    return sorted(set(np.searchsorted(ends, built.unread, side="right").tolist()))
