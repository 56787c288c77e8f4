"""JSON objects parsed and written by msgspec as a row type says, in a fraction of the time that dicts take.

msgspec refuses what is not exactly of the type, such as a number where the type is text. The schema then reads that
message by `json_values`, which takes more. So what is read here must come out as it does there; where the two might
differ, the type stays a text here, and the function of `json_values` converts it.
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
    """Reads JSON objects as rows of a type.

    Args:
        row_type: the rows.
        is_strict: whether every field must be there.
    """

    def __init__(self, row_type: RowTypeInfo, is_strict: bool) -> None:
        self._names = tuple(row_type.get_field_names())
        struct, self._converts = _struct(row_type, is_strict)
        self._decode = msgspec.json.Decoder(struct, float_hook=decimal.Decimal).decode
        self._values = _values_of(struct)

    def row(self, message: bytes) -> Row:
        """The row of an object. Raises one of `BAD_RECORD` for what is not exactly of the type."""
        return self.rows([message])[0]

    def rows(self, messages: Sequence[bytes]) -> list[Row]:
        """The row of each object. Raises one of `BAD_RECORD` if one of them is not exactly of the type."""
        if any(self._converts):
            return make_rows(self._names, map(list, zip(*self.columns(messages), strict=True)))
        check_utf8(b"\n".join(messages))
        return make_rows(self._names, map(list, map(self._values, map(self._decode, messages))))

    def columns(self, messages: Sequence[bytes]) -> list[Sequence[Any]]:
        """The values of each field. Raises one of `BAD_RECORD` if an object is not exactly of the type."""
        check_utf8(b"\n".join(messages))
        columns: list[Sequence[Any]] = list(zip(*map(self._values, map(self._decode, messages)), strict=True))
        return [
            column if convert is None else list(map(convert, column))
            for column, convert in zip(columns or [()] * len(self._names), self._converts, strict=True)
        ]


def _struct(row_type: RowTypeInfo, is_strict: bool) -> tuple[type[msgspec.Struct], list[Convert | None]]:
    """A class for the objects, with fields f0, f1 and so on, and what turns the values of each into the row's."""
    fields: list[Any] = []
    converts: list[Convert | None] = []
    for place, field in enumerate(row_type.get_field_types()):
        kind, convert = _typed(field, is_strict)
        fields.append((f"f{place}", kind | None) if is_strict else (f"f{place}", kind | None, None))
        converts.append(None if convert is None else nullable(convert))
    names = {f"f{place}": name for place, name in enumerate(row_type.get_field_names())}
    return msgspec.defstruct("Object", fields, rename=names, gc=False), converts


def _values_of(struct: type[msgspec.Struct]) -> Callable[[Any], tuple[Any, ...]]:
    names = struct.__struct_fields__
    return attrgetter(*names) if len(names) > 1 else msgspec.structs.astuple


def _typed(type_info: TypeInformation, is_strict: bool) -> tuple[Any, Convert | None]:
    """As what msgspec parses values of a type, and what turns those into the row's; None where they are the same."""
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
            # As Decimal, msgspec would read any text that Python's class takes, such as "1_0".
            return Any, _decimal_reader(type_info)
    return str, reader(type_info, is_strict)  # dates and times


def _decimal_reader(type_info: BasicTypeInfo) -> Convert:
    read = reader(type_info, False)
    return lambda value: value if type(value) is decimal.Decimal else read(value)


def _nested(row_type: RowTypeInfo, is_strict: bool) -> tuple[Any, Convert]:
    names = tuple(row_type.get_field_names())
    struct, converts = _struct(row_type, is_strict)
    values_of = _values_of(struct)
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
    """Writes rows of a type as JSON objects, column by column; where a column is plain nothing happens to its values.

    Args:
        row_type: the rows.
    """

    def __init__(self, row_type: RowTypeInfo) -> None:
        names = row_type.get_field_names()
        fields = [(f"f{place}", Any) for place in range(len(names))]
        renamed = {f"f{place}": name for place, name in enumerate(names)}
        self._struct = msgspec.defstruct("Object", fields, rename=renamed, gc=False)
        self._writes = [(_is_plain(field), nullable(writer(field))) for field in row_type.get_field_types()]
        self._encode = msgspec.json.Encoder().encode

    def objects(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """The object of each row, of the values of each field. Raises what `writer` does for a value that is none."""
        shown = [
            column if is_plain(column) else list(map(write, column))
            for column, (is_plain, write) in zip(columns, self._writes, strict=True)
        ]
        return list(map(self._encode, itertools.starmap(self._struct, zip(*shown, strict=True))))


def _is_plain(type_info: TypeInformation) -> Callable[[Sequence[Any]], bool]:
    """Whether msgspec writes all values of a column as `writer` has them written."""
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
