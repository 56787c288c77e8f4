"""Parses and writes JSON objects of a row type with msgspec, in a fraction of the time that dicts take.

msgspec rejects values that do not match the type exactly, such as a number where the type is text. The schema then
falls back to `json_values`, which is more lenient. The two must agree on every message that msgspec accepts, so where
they might differ, this module parses the field as text and lets `json_values` convert it.
"""

from __future__ import annotations

import decimal
import itertools
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from penstock.base.basic_types import BasicType, BasicTypeInfo, TypeInformation
from penstock.base.composite_types import MapTypeInfo, RowTypeInfo, TupleTypeInfo
from penstock.base.types import Row
from penstock.codecs.json_text import check_utf8
from penstock.codecs.json_values import ARRAYS, BYTES, Convert, nullable, reader, writer
from penstock.codecs.row_batches import make_rows

_INTEGER_BITS: Final = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
_PLAIN: Final[dict[BasicType, Any]] = {
    BasicType.STRING: str,
    BasicType.CHAR: str,
    BasicType.BOOLEAN: bool,
    BasicType.FLOAT: float,
    BasicType.DOUBLE: float,
    BasicType.BIG_INT: int,
}


class StructReader:
    """Parses JSON objects into rows of a type.

    Args:
        row_type: the row type.
        is_strict: whether every field must be present.
    """

    def __init__(self, row_type: RowTypeInfo, is_strict: bool) -> None:
        self._names = tuple(row_type.get_field_names())
        struct, self._converts = _struct(row_type, is_strict)
        self._decode = msgspec.json.Decoder(struct, float_hook=decimal.Decimal).decode
        self._values = _build_getter(struct)

    def row(self, message: bytes) -> Row:
        """Return the row of an object. Raises one of `BAD_RECORD` if the object does not match the type exactly."""
        return self.rows([message])[0]

    def rows(self, messages: Sequence[bytes]) -> list[Row]:
        """Return the row of each object. Raises one of `BAD_RECORD` if any object does not match the type exactly."""
        if any(self._converts):
            return make_rows(self._names, map(list, zip(*self.columns(messages), strict=True)))
        check_utf8(b"\n".join(messages))
        return make_rows(self._names, map(list, map(self._values, map(self._decode, messages))))

    def columns(self, messages: Sequence[bytes]) -> list[Sequence[Any]]:
        """Return the values of each field. Raises one of `BAD_RECORD` if any object does not match the type exactly."""
        check_utf8(b"\n".join(messages))
        columns: list[Sequence[Any]] = list(zip(*map(self._values, map(self._decode, messages)), strict=True))
        return [
            column if convert is None else list(map(convert, column))
            for column, convert in zip(columns or [()] * len(self._names), self._converts, strict=True)
        ]


def _struct(row_type: RowTypeInfo, is_strict: bool) -> tuple[type[msgspec.Struct], list[Convert | None]]:
    """Return a struct class with fields f0, f1, ... and the converters from its field values to row values."""
    fields: list[Any] = []
    converts: list[Convert | None] = []
    for index, field in enumerate(row_type.get_field_types()):
        kind, convert = _typed(field, is_strict)
        fields.append((f"f{index}", kind | None) if is_strict else (f"f{index}", kind | None, None))
        converts.append(None if convert is None else nullable(convert))
    names = {f"f{position}": name for position, name in enumerate(row_type.get_field_names())}
    return msgspec.defstruct("Object", fields, rename=names, gc=False), converts


def _build_getter(struct: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    names = struct.__struct_fields__
    return attrgetter(*names) if len(names) > 1 else msgspec.structs.astuple


def _typed(type_info: TypeInformation, is_strict: bool) -> tuple[Any, Convert | None]:
    """Return the type that msgspec parses and a converter to the row value, or None if they are the same."""
    if isinstance(type_info, RowTypeInfo):
        return _nested(type_info, is_strict)
    if type_info == BYTES:
        return str, reader(type_info, is_strict)
    if isinstance(type_info, ARRAYS):
        kind, convert = _typed(type_info.element_type, is_strict)
        return list[kind | None], _each(convert)  # type: ignore[valid-type]
    if isinstance(type_info, TupleTypeInfo):
        parts = [_typed(field, is_strict) for field in type_info.get_field_types()]
        return tuple[tuple(kind | None for kind, _ in parts)], _tuple([convert for _, convert in parts])  # type: ignore[misc]
    if isinstance(type_info, MapTypeInfo):
        key, (kind, convert) = reader(type_info.key_type_info, is_strict), _typed(type_info.value_type_info, is_strict)
        item = nullable(convert or _same)
        return dict[str, kind | None], lambda value: {key(k): item(v) for k, v in value.items()}  # type: ignore[valid-type]
    if isinstance(type_info, BasicTypeInfo):
        basic = type_info.basic_type
        if basic in _INTEGER_BITS:
            limit = 1 << _INTEGER_BITS[basic] - 1
            return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)], None
        if basic in _PLAIN:
            return _PLAIN[basic], None
        if basic is BasicType.BIG_DEC:
            # If the type were Decimal, msgspec would accept any text that Python's class does, such as "1_0".
            return Any, _decimal_reader(type_info)
    return str, reader(type_info, is_strict)  # dates and times


def _decimal_reader(type_info: BasicTypeInfo) -> Convert:
    read = reader(type_info, False)
    return lambda value: value if type(value) is decimal.Decimal else read(value)


def _nested(row_type: RowTypeInfo, is_strict: bool) -> tuple[Any, Convert]:
    names = tuple(row_type.get_field_names())
    struct, converts = _struct(row_type, is_strict)
    values_of = _build_getter(struct)
    each = [convert or _same for convert in converts]

    def convert(value: Any) -> Row:
        values = [of(part) for of, part in zip(each, values_of(value), strict=True)]
        return make_rows(names, (values,))[0]

    return struct, convert


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    element = nullable(convert)
    return lambda value: list(map(element, value))


def _tuple(converts: list[Convert | None]) -> Convert | None:
    if not any(converts):
        return None
    each = [nullable(convert or _same) for convert in converts]
    return lambda value: tuple(of(part) for of, part in zip(each, value, strict=True))


def _same(value: Any) -> Any:
    return value


class StructWriter:
    """Writes rows of a type as JSON objects, column by column; plain columns are passed through unconverted.

    Args:
        row_type: the row type.
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        names = row_type.get_field_names()
        fields = [(f"f{index}", Any) for index in range(len(names))]
        renamed = {f"f{index}": name for index, name in enumerate(names)}
        self._struct = msgspec.defstruct("Object", fields, rename=renamed, gc=False)
        self._writes = [(_is_plain(field), nullable(writer(field))) for field in row_type.get_field_types()]
        self._encode = msgspec.json.Encoder().encode

    def objects(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return each row's JSON object, given the values of each field. Raises as `writer` does for invalid values."""
        encodable = [
            column if is_plain(column) else list(map(write, column))
            for column, (is_plain, write) in zip(columns, self._writes, strict=True)
        ]
        return list(map(self._encode, itertools.starmap(self._struct, zip(*encodable, strict=True))))


def _is_plain(type_info: TypeInformation) -> Callable[[Sequence[Any]], bool]:
    """Return a predicate: whether msgspec writes all values of a column exactly as `writer` does."""
    basic = type_info.basic_type if isinstance(type_info, BasicTypeInfo) else None
    if basic in (BasicType.STRING, BasicType.CHAR):
        return lambda column: set(map(type, column)) <= {str, type(None)}
    if basic is BasicType.BOOLEAN:
        return lambda column: set(map(type, column)) <= {bool, type(None)}
    if basic in _INTEGER_BITS:
        limit = 1 << _INTEGER_BITS[basic] - 1
        return lambda column: set(map(type, column)) == {int} and -limit <= min(column) and max(column) < limit
    if basic is BasicType.DOUBLE:
        return lambda column: set(map(type, column)) == {float} and all(map(math.isfinite, column))
    return lambda column: False
