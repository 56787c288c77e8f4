"""What can be said of row groups of Parquet without reading them: which of them have no row that a query wants.

Files say the least and the greatest value of each column in a row group, and how many are NULL. A condition is of use
when it compares columns with constants. Arrow's own filters give up where a column has a NULL, so this is worked out
here. NaN is in no such figures, and texts may be cut short in them, so an inequality (`<>`) with one of these is of no
use; nor is a column that has another type in a file than in the table.

A statistic is used only if it can be compared. Writers differ: some put NaN into the bounds, swap them, or count NULLs
wrongly. Such a statistic excludes nothing, so the row group is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.table.data import logical_types as types
from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.logical_types import DataType
from penstock.table.data.values import scalar_of
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed, separated

_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FLOATING: Final = (types.FloatType, types.DoubleType)
_TEXTS: Final = (types.CharType, types.VarCharType)
#: types whose values are whole numbers in figures
_WHOLE: Final = (types.IntegralType, types.DateType, types.TimestampType)
#: more constants than this exclude hardly any row group, and are compared with the figures of each of them
_IN_MAX: Final = 1_000
#: how Parquet stores them, with bounds in the order of the values
_WHOLE_IN_FILES: Final = ("INT32", "INT64")
_COMPARED: Final = (*_WHOLE, *_FLOATING, types.DecimalType, *_TEXTS)


class Figures(NamedTuple):
    """What a row group says of a column: None where it does not. `nulls`: how many of `rows` values are NULL."""

    rows: int
    least: Any = None
    greatest: Any = None
    nulls: int | None = None

    @property
    def has_bounds(self) -> bool:
        """Whether both bounds are known and in order. NaN is in order with nothing, so it is not a bound."""
        return self.least is not None and self.greatest is not None and bool(self.least <= self.greatest)

    @property
    def has_only_nulls(self) -> bool:
        """Whether every value is NULL. A count that bounds contradict, or above the number of rows, is wrong."""
        return self.nulls == self.rows and self.least is None and self.greatest is None


@dataclass(frozen=True, slots=True)
class StatisticsFilter:
    """A condition that only compares columns of files with constants.

    Attributes:
        condition: what is to be true of rows.
        columns: the names and types of the columns, by their places.
    """

    condition: Typed
    columns: tuple[tuple[int, str, pa.DataType], ...]

    def fits(self, schema: pa.Schema) -> bool:
        """Whether a file has the columns as they are meant."""
        return all(name in schema.names and schema.field(name).type == kind for _, name, kind in self.columns)

    def has_times(self) -> bool:
        """Whether it compares timestamps."""
        return any(pa.types.is_timestamp(kind) for _, _, kind in self.columns)

    def may_be_true(self, figures: Mapping[str, Figures]) -> bool:
        """Whether a row group may have a row for which it is true. `figures`: of its columns, by their names."""
        by_place = {place: figures[name] for place, name, _ in self.columns if name in figures}
        return len(by_place) < len(self.columns) or _may_be_true(self.condition, by_place)


def statistics_filter(condition: Typed, schema: RowSchema) -> StatisticsFilter:
    """A condition that `is_of_use`, over the columns of files."""
    read = sorted({one.index for one in condition.walk() if isinstance(one, Field)})
    return StatisticsFilter(
        condition, tuple((place, schema[place].name, arrow_type(schema[place].type)) for place in read)
    )


def is_of_use(condition: Typed) -> bool:
    """Whether figures of row groups can say that a condition is true for none of their rows."""
    if not isinstance(condition, FunctionCall):
        return False
    operands = condition.operands
    match condition.function:
        case "AND" | "OR":
            return all(map(is_of_use, operands))
        case "IS NULL" | "IS NOT NULL":
            return isinstance(operands[0], Field) and isinstance(operands[0].type, _COMPARED)
        case "IN":
            among = separated(operands[1:])
            return len(among) <= _IN_MAX and all(_is_comparison("=", operands[0], one) for one in among)
        case function if function in _TURNED:
            left, right = operands
            return _is_comparison(function, left, right) or _is_comparison(_TURNED[function], right, left)
        case _:
            return False


def _is_comparison(function: str, column: Typed, constant: Typed) -> bool:
    """Whether a column is compared with a constant of its own kind, and figures know what follows."""
    if not isinstance(column, Field) or not isinstance(constant, Constant) or constant.value is None:
        return False
    if isinstance(column.type, _FLOATING) and constant.value != constant.value:
        return False
    if function == "<>" and isinstance(column.type, (*_FLOATING, *_TEXTS)):
        return False
    return isinstance(column.type, _COMPARED) and _fits(constant, column.type)


def _fits(constant: Constant, kind: DataType) -> bool:
    try:
        return bool(scalar_of(constant.value, constant.type).type == arrow_type(kind))
    except pa.ArrowException:
        return False


def _may_be_true(condition: Typed, figures: Mapping[int, Figures]) -> bool:
    assert isinstance(condition, FunctionCall)
    operands = condition.operands
    match condition.function:
        case "AND":
            return all(_may_be_true(one, figures) for one in operands)
        case "OR":
            return any(_may_be_true(one, figures) for one in operands)
        case "IS NULL":
            return _figures_of(operands[0], figures).nulls != 0
        case "IS NOT NULL":
            return not _figures_of(operands[0], figures).has_only_nulls
        case "IN":
            return any(_may_compare("=", operands[0], one, figures) for one in separated(operands[1:]))
        case function:
            left, right = operands
            if isinstance(left, Field):
                return _may_compare(function, left, right, figures)
            return _may_compare(_TURNED[function], right, left, figures)


def _figures_of(column: Typed, figures: Mapping[int, Figures]) -> Figures:
    assert isinstance(column, Field)
    return figures[column.index]


def _may_compare(function: str, column: Typed, constant: Typed, figures: Mapping[int, Figures]) -> bool:
    """Whether some value between the least and the greatest one compares so."""
    found = _figures_of(column, figures)
    if found.has_only_nulls:
        return False
    if not found.has_bounds:
        return True
    value = _held(constant)
    return _BETWEEN[function](found.least, found.greatest, value)


def _held(constant: Typed) -> Any:
    assert isinstance(constant, Constant)
    scalar = scalar_of(constant.value, constant.type)
    return scalar.value if isinstance(constant.type, types.DateType | types.TimestampType) else scalar.as_py()


_BETWEEN: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, greatest, value: bool(least <= value <= greatest),
    "<>": lambda least, greatest, value: not least == greatest == value,
    "<": lambda least, greatest, value: bool(operator.lt(least, value)),
    "<=": lambda least, greatest, value: bool(operator.le(least, value)),
    ">": lambda least, greatest, value: bool(operator.gt(greatest, value)),
    ">=": lambda least, greatest, value: bool(operator.ge(greatest, value)),
}


def groups_of(file: Any, filters: Sequence[StatisticsFilter]) -> frozenset[int]:
    """The row groups of a file (a `pyarrow.parquet.ParquetFile`) that may have a row for which all filters are true."""
    schema = file.schema_arrow
    fitting = [one for one in filters if one.fits(schema)]
    kinds = {name: kind for one in fitting for _, name, kind in one.columns}
    found = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        figures = {}
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in kinds:
                figures[column.path_in_schema] = _read(column, group.num_rows, kinds[column.path_in_schema])
        if all(one.may_be_true(figures) for one in fitting):
            found.append(number)
    return frozenset(found)


def _read(column: Any, rows: int, kind: pa.DataType) -> Figures:
    told = column.statistics
    if told is None:
        return Figures(rows)
    nulls = told.null_count if told.has_null_count else None
    if not told.has_min_max or column.physical_type == "INT96":
        return Figures(rows, nulls=nulls)
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if told.physical_type not in _WHOLE_IN_FILES:  # INT96, whose bounds have no order
            return Figures(rows, nulls=nulls)
        return Figures(rows, told.min_raw, told.max_raw, nulls)
    try:
        return Figures(rows, told.min, told.max, nulls)
    except UnicodeDecodeError:  # a text that was cut within a character
        return Figures(rows, nulls=nulls)


def leaves_of(schema: pa.Schema) -> list[str] | None:
    """The names of columns and of fields in rows, as Parquet counts them; None where a name has a point in it."""
    found = [leaf for field in schema for leaf in _leaves("", field)]
    return None if None in found else [one for one in found if one is not None]


def _leaves(around: str, field: pa.Field) -> list[str | None]:
    if "." in field.name:
        return [None]
    if not pa.types.is_struct(field.type):
        return [around + field.name]
    return [leaf for one in field.type for leaf in _leaves(f"{around}{field.name}.", one)] or [None]
