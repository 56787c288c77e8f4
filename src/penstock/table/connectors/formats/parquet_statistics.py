"""Selects the row groups of Parquet files that may have rows for a query, by their statistics.

Files store the minimum, maximum and null count of each column in a row group. A condition is usable if it compares
columns with constants. Arrow's own filters give up if a column has a NULL, so conditions are evaluated here. Statistics
ignore NaN and may truncate strings, so an inequality (`<>`) on floats or strings is not usable; nor is a column whose
type in the file differs from the table's.

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
from penstock.table.data.values import to_scalar
from penstock.table.plan.row_schema import RowSchema
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Typed, separated

_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FLOATING: Final = (types.FloatType, types.DoubleType)
_TEXTS: Final = (types.CharType, types.VarCharType)
#: types whose bounds in statistics are integers
_WHOLE: Final = (types.IntegralType, types.DateType, types.TimestampType)
#: longer IN lists exclude hardly any row group, and each constant is compared with the statistics of every row group
_IN_MAX: Final = 1_000
#: the physical types of these in Parquet, whose bounds sort like the values
_WHOLE_IN_FILES: Final = ("INT32", "INT64")
_COMPARED: Final = (*_WHOLE, *_FLOATING, types.DecimalType, *_TEXTS)


class Figures(NamedTuple):
    """The statistics of a column in a row group; None if unknown. `nulls`: the number of NULLs in `rows` values."""

    rows: int
    least: Any = None
    greatest: Any = None
    nulls: int | None = None

    @property
    def has_bounds(self) -> bool:
        """Whether both bounds are known and in order. NaN compares with nothing, so it is not a valid bound."""
        return self.least is not None and self.greatest is not None and bool(self.least <= self.greatest)

    @property
    def has_only_nulls(self) -> bool:
        """Whether every value is NULL. A count is wrong if bounds contradict it or if it exceeds the number of rows."""
        return self.nulls == self.rows and self.least is None and self.greatest is None


@dataclass(frozen=True, slots=True)
class StatisticsFilter:
    """A condition that only compares columns of files with constants.

    Attributes:
        condition: the condition that rows must meet.
        columns: the index, name and type of each column.
    """

    condition: Typed
    columns: tuple[tuple[int, str, pa.DataType], ...]

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether a file has the columns with the expected types."""
        return all(name in schema.names and schema.field(name).type == kind for _, name, kind in self.columns)

    def has_times(self) -> bool:
        """Return whether the condition compares timestamps."""
        return any(pa.types.is_timestamp(kind) for _, _, kind in self.columns)

    def may_be_true(self, figures: Mapping[str, Figures]) -> bool:
        """Return whether a row group may have a row that meets the condition. `figures`: column statistics by name."""
        by_index = {index: figures[name] for index, name, _ in self.columns if name in figures}
        return len(by_index) < len(self.columns) or _may_be_true(self.condition, by_index)


def statistics_filter(condition: Typed, schema: RowSchema) -> StatisticsFilter:
    """Return the filter of a condition that `is_of_use`, over the columns of files."""
    read = sorted({node.index for node in condition.walk() if isinstance(node, Field)})
    return StatisticsFilter(
        condition, tuple((index, schema[index].name, arrow_type(schema[index].type)) for index in read)
    )


def is_of_use(condition: Typed) -> bool:
    """Return whether statistics can prove that no row in a row group meets a condition."""
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
            return len(among) <= _IN_MAX and all(_is_comparison("=", operands[0], constant) for constant in among)
        case function if function in _TURNED:
            left, right = operands
            return _is_comparison(function, left, right) or _is_comparison(_TURNED[function], right, left)
        case _:
            return False


def _is_comparison(function: str, column: Typed, constant: Typed) -> bool:
    """Return whether a column is compared with a constant of its own type in a way that statistics can decide."""
    if not isinstance(column, Field) or not isinstance(constant, Constant) or constant.value is None:
        return False
    if isinstance(column.type, _FLOATING) and constant.value != constant.value:
        return False
    if function == "<>" and isinstance(column.type, (*_FLOATING, *_TEXTS)):
        return False
    return isinstance(column.type, _COMPARED) and _fits(constant, column.type)


def _fits(constant: Constant, kind: DataType) -> bool:
    try:
        return bool(to_scalar(constant.value, constant.type).type == arrow_type(kind))
    except pa.ArrowException:
        return False


def _may_be_true(condition: Typed, figures: Mapping[int, Figures]) -> bool:
    assert isinstance(condition, FunctionCall)
    operands = condition.operands
    match condition.function:
        case "AND":
            return all(_may_be_true(operand, figures) for operand in operands)
        case "OR":
            return any(_may_be_true(operand, figures) for operand in operands)
        case "IS NULL":
            return _get_figures(operands[0], figures).nulls != 0
        case "IS NOT NULL":
            return not _get_figures(operands[0], figures).has_only_nulls
        case "IN":
            return any(_may_compare("=", operands[0], constant, figures) for constant in separated(operands[1:]))
        case function:
            left, right = operands
            if isinstance(left, Field):
                return _may_compare(function, left, right, figures)
            return _may_compare(_TURNED[function], right, left, figures)


def _get_figures(column: Typed, figures: Mapping[int, Figures]) -> Figures:
    assert isinstance(column, Field)
    return figures[column.index]


def _may_compare(function: str, column: Typed, constant: Typed, figures: Mapping[int, Figures]) -> bool:
    """Return whether a value between the bounds may satisfy the comparison."""
    column_figures = _get_figures(column, figures)
    if column_figures.has_only_nulls:
        return False
    if not column_figures.has_bounds:
        return True
    value = _held(constant)
    return _BETWEEN[function](column_figures.least, column_figures.greatest, value)


def _held(constant: Typed) -> Any:
    assert isinstance(constant, Constant)
    scalar = to_scalar(constant.value, constant.type)
    return scalar.value if isinstance(constant.type, types.DateType | types.TimestampType) else scalar.as_py()


_BETWEEN: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda least, greatest, value: bool(least <= value <= greatest),
    "<>": lambda least, greatest, value: not least == greatest == value,
    "<": lambda least, greatest, value: bool(operator.lt(least, value)),
    "<=": lambda least, greatest, value: bool(operator.le(least, value)),
    ">": lambda least, greatest, value: bool(operator.gt(greatest, value)),
    ">=": lambda least, greatest, value: bool(operator.ge(greatest, value)),
}


def select_row_groups(file: Any, filters: Sequence[StatisticsFilter]) -> frozenset[int]:
    """Return the row groups of a `pyarrow.parquet.ParquetFile` that may have a row that satisfies all filters."""
    schema = file.schema_arrow
    fitting = [predicate for predicate in filters if predicate.fits(schema)]
    kinds = {name: kind for predicate in fitting for _, name, kind in predicate.columns}
    row_groups = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        figures = {}
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema in kinds:
                figures[column.path_in_schema] = _read(column, group.num_rows, kinds[column.path_in_schema])
        if all(predicate.may_be_true(figures) for predicate in fitting):
            row_groups.append(number)
    return frozenset(row_groups)


def _read(column: Any, rows: int, kind: pa.DataType) -> Figures:
    statistics = column.statistics
    if statistics is None:
        return Figures(rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max or column.physical_type == "INT96":
        return Figures(rows, nulls=nulls)
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        if statistics.physical_type not in _WHOLE_IN_FILES:  # INT96 bounds have no order
            return Figures(rows, nulls=nulls)
        return Figures(rows, statistics.min_raw, statistics.max_raw, nulls)
    try:
        return Figures(rows, statistics.min, statistics.max, nulls)
    except UnicodeDecodeError:  # a string truncated within a character
        return Figures(rows, nulls=nulls)


def list_leaves(schema: pa.Schema) -> list[str] | None:
    """Return the names of Parquet's leaf columns, including nested fields; None if a name contains a dot."""
    leaves = [leaf for field in schema for leaf in _leaves("", field)]
    return None if None in leaves else [leaf for leaf in leaves if leaf is not None]


def _leaves(around: str, field: pa.Field) -> list[str | None]:
    if "." in field.name:
        return [None]
    if not pa.types.is_struct(field.type):
        return [around + field.name]
    return [leaf for child in field.type for leaf in _leaves(f"{around}{field.name}.", child)] or [None]
