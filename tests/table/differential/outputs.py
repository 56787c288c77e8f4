"""Results as users get them, as values that all outputs have in common."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from tests.table.differential.memory import Change

from penstock.base.types import Row
from penstock.sql.data.arrow import arrow_type, to_values
from penstock.sql.data.conversion import to_internal
from penstock.sql.data.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
)

#: the time zone of the sessions
ZONE: Final = "Europe/Berlin"
_US_NS: Final = 1_000
_COUNT: Final = IntType(False)


@dataclass
class Result:
    """What a run gave.

    Args:
        names: of the columns.
        types: of the columns.
        changes: in the order in which they came; `+I` alone where the output has only the rows that are left.
        output: how they were collected, which may be another output than the setting's where the query allows no such.
        has_changes: whether the changes are all that the query sends, so that each can be checked.
        key: the places of the columns by which rows replace others; None where retractions name whole rows.
        drops_null_keys: whether rows with NULL in a column of the key are dropped, as a table with a primary key does.
        has_microseconds: whether values are cut to microseconds, as Python's datetime has them.
        null_is_nan: the places of columns in which NULL became NaN, in arrays too, as in NumPy.
        faults: what is wrong with the result as a whole.
    """

    names: list[str]
    types: list[DataType]
    output: str
    changes: list[Change] = field(default_factory=list)
    has_changes: bool = True
    key: tuple[int, ...] | None = None
    drops_null_keys: bool = True
    has_microseconds: bool = False
    null_is_nan: frozenset[int] = frozenset()
    faults: list[str] = field(default_factory=list)

    def places_with_nanoseconds(self) -> set[int]:
        """The columns that Python's datetime cuts short."""
        return {place for place, kind in enumerate(self.types) if has_nanoseconds(kind)}


def row_converter(types: Iterable[DataType], zone: datetime.tzinfo) -> Callable[[Row], Change]:
    """A function from a `Row` to a change."""
    converters = [to_internal(kind, zone) for kind in types]

    def convert(row: Row) -> Change:
        values = tuple(held(value) for held, value in zip(converters, row, strict=True))
        return row.get_row_kind().short_string, values

    return convert


def add_arrow(result: Result, table: pa.Table) -> None:
    """Take the rows of an Arrow table."""
    columns = []
    for name, column, kind in zip(result.names, table.columns, result.types, strict=True):
        if isinstance(kind, LocalZonedTimestampType) and column.type.tz != ZONE:
            result.faults.append(f"column {name} is in the zone {column.type.tz}, not in that of the session, {ZONE}")
        columns.append(to_values(one_chunk(column), kind))
    _add_columns(result, columns, table.num_rows)


def add_frame(result: Result, frame: Any) -> None:
    """Take the rows of a pandas data frame."""
    columns = []
    null_is_nan = set()
    for place, kind in enumerate(result.types):
        series = frame.iloc[:, place]
        is_float = isinstance(kind, DoubleType | FloatType) and series.dtype.kind == "f"
        if is_float or (isinstance(kind, ArrayType) and series.dtype == object):
            null_is_nan.add(place)
        if isinstance(kind, LocalZonedTimestampType):
            series = _in_utc(series, result, result.names[place])
        wanted = arrow_type(kind)
        if series.dtype == object:
            columns.append([_of_object(value, kind) for value in series])
            continue
        column = one_chunk(pa.Array.from_pandas(series))
        columns.append(to_values(column.cast(wanted) if column.type != wanted else column, kind))
    result.null_is_nan = frozenset(null_is_nan)
    _add_columns(result, columns, len(frame))


def _of_object(value: Any, kind: DataType) -> Any:
    """A value of a column of Python objects. Rows are `Row`, tuples or dicts, maps also lists of pairs."""
    if value is None or (isinstance(value, float) and value != value and not isinstance(kind, DoubleType | FloatType)):
        return None
    match kind:
        case RowType():
            fields = list(value.values()) if isinstance(value, dict) else list(value)
            return tuple(_of_object(one, type_) for one, type_ in zip(fields, kind.field_types(), strict=True))
        case MapType() | MultisetType():
            of_pairs = (kind.key_type, kind.value_type) if isinstance(kind, MapType) else (kind.element_type, _COUNT)
            pairs = value.items() if isinstance(value, dict) else value
            return [tuple(map(_of_object, pair, of_pairs)) for pair in pairs]
        case ArrayType():
            return [_of_object(element, kind.element_type) for element in value]
        case _:
            return to_internal(kind, datetime.UTC)(value)


def _in_utc(series: Any, result: Result, name: str) -> Any:
    zone = getattr(series.dtype, "tz", None)
    if zone is None and series.dtype.kind == "M":
        return series.dt.tz_localize(ZONE).dt.tz_convert("UTC")
    if zone is not None and str(zone) != ZONE:
        result.faults.append(f"column {name} is in the zone {zone}, not in that of the session, {ZONE}")
    return series


def _add_columns(result: Result, columns: list[list[Any]], rows: int) -> None:
    result.has_changes = False
    result.changes += [("+I", values) for values in (zip(*columns, strict=True) if columns else [()] * rows)]


def one_chunk(column: Any) -> pa.Array:
    """A column as one array."""
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def has_nanoseconds(kind: DataType) -> bool:
    """Whether values have digits that `cut_to_microseconds` cuts off."""
    return isinstance(kind, TimestampType | LocalZonedTimestampType) and kind.precision > 6


def cut_to_microseconds(value: Any, kind: DataType) -> Any:
    """A point in time as Python's datetime has it; other values as they are."""
    if isinstance(kind, TimestampType | LocalZonedTimestampType) and value is not None:
        return value // _US_NS * _US_NS
    return value
