"""SQL aggregates by kernels, computed through partials of groups, which can be merged.

Partials are tables with the group's columns, whatever these are, followed by the columns of the aggregates. COUNT
DISTINCT adds a row for each value of a group. Its column `$distinct` identifies the call, and is NULL in the row of the
group itself.

`distinct_groups` finds groups without aggregates, with less work than grouping rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.columns import Aggregates, full
from penstock.runtime.operators.columnar.windows import read_times
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.sql.data.arrow import arrow_type, to_column, to_values
from penstock.sql.data.types import (
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarCharType,
)
from penstock.sql.logical.nodes import AggregateCall
from penstock.sql.stream.aggregates.numbers import fitted, quotient
from penstock.sql.typed import Constant, Field


def distinct_groups(table: pa.Table, keys: Sequence[str]) -> list[Any]:
    """Return the columns of the keys, with one row for each group.

    The window is usually the same for all rows, and an integer that is different in each row makes each a group.
    """
    columns = {name: full(table.column(name), 0) for name in keys}
    varying = [name for name, column in columns.items() if not _is_same(column)] or [keys[-1]]
    for name in varying:
        if not pa.types.is_integer(columns[name].type):
            continue
        values = pc.unique(columns[name])
        if len(values) == table.num_rows:
            return list(columns.values())
        if len(varying) == 1:
            return _fill_columns(columns, {name: values})
        break
    grouped = pa.TableGroupBy(table, varying, use_threads=False).aggregate([])
    return _fill_columns(columns, {name: grouped.column(name) for name in varying})


def _is_same(column: pa.Array) -> bool:
    """Return whether all rows of an integer column have the same value."""
    if not len(column) or not pa.types.is_integer(column.type) or column.null_count:
        return False
    numbers = column.to_numpy()
    return bool(numbers[0] == numbers[-1] and (numbers == numbers[0]).all())


def _fill_columns(columns: dict[str, Any], distinct: dict[str, Any]) -> list[Any]:
    """Return the columns of the groups. Columns that are not in `distinct` have one value for all groups."""
    rows = len(next(iter(distinct.values())))
    return [distinct[name] if name in distinct else pa.repeat(column[0], rows) for name, column in columns.items()]


#: Types whose values Arrow groups exactly as SQL does.
GROUPED: Final = (
    IntegralType,
    BooleanType,
    CharType,
    VarCharType,
    DateType,
    TimeType,
    TimestampType,
    LocalZonedTimestampType,
    DecimalType,
)
_ORDERED: Final = tuple(kind for kind in GROUPED if kind is not BooleanType)
#: Sums of decimals with more digits might exceed 38 digits.
_DIGITS_MAX: Final = 19
DISTINCT: Final = "$distinct"
#: If there are more runs of rows than this, all rows are grouped instead.
_RUNS_MAX: Final = 8
#: kernel of groups -> the function that computes the same for a whole column
_OF_ALL: Final = {"sum": pc.sum, "min": pc.min, "max": pc.max}
#: the watermark up to which windows of a pane have fired, see `penstock.runtime.operators.columnar.windows`
FIRED: Final = "$fired"


def is_by_kernel(call: AggregateCall) -> bool:
    """Return whether kernels can compute a call."""
    operands = call.operands
    if call.condition is not None and not isinstance(call.condition, Field):
        return False
    if call.function == "COUNT":
        if any(isinstance(operand, Constant) and operand.value is None for operand in operands):
            return False
        return not call.is_distinct or (len(operands) == 1 and _is_field(operands[0], GROUPED))
    if len(operands) != 1 or (call.is_distinct and call.function not in ("MIN", "MAX")):
        return False
    if call.function in ("SUM", "$SUM0", "SUM0", "AVG"):
        kind = operands[0].type
        if isinstance(kind, DecimalType):
            return isinstance(operands[0], Field) and kind.precision <= _DIGITS_MAX
        return _is_field(operands[0], (IntegralType, DoubleType))
    return call.function in ("MIN", "MAX") and _is_field(operands[0], _ORDERED)


def _is_field(operand: Any, kinds: tuple[type[DataType], ...]) -> bool:
    return isinstance(operand, Field) and isinstance(operand.type, kinds)


class ColumnAggregates(Aggregates):
    """See the module docstring.

    Args:
        calls: aggregates that kernels can compute.
        shares_panes: whether windows share panes, so that partials contain up to where these have fired.
    """

    def __init__(self, calls: Sequence[AggregateCall], shares_panes: bool) -> None:
        super().__init__([])
        self._calls = tuple(calls)
        self._shares_panes = shares_panes
        self._distinct = [index for index, call in enumerate(self._calls) if _is_counted_apart(call)]
        #: name -> the kernel that creates and merges it
        self._kernels: dict[str, str] = {}
        for index, call in enumerate(self._calls):
            if index in self._distinct:
                continue
            if call.function == "COUNT":
                self._kernels[f"{index}.count"] = "sum"
            elif call.function in ("MIN", "MAX"):
                self._kernels[f"{index}.best"] = call.function.lower()
            else:
                self._kernels[f"{index}.sum"] = "sum"
                if call.function == "AVG":
                    self._kernels[f"{index}.count"] = "sum"
        self._merges = dict(self._kernels)
        if shares_panes:
            self._merges[FIRED] = "max"
        self.names = [f"${index}" for index in range(len(self._calls))]
        self.partial_columns = list(self._merges)
        self._value_columns = [f"{index}.value" for index in self._distinct]
        self._more = [DISTINCT, *self._value_columns] if self._distinct else []

    @property
    def has_distinct(self) -> bool:
        """Whether a group has additional rows for values, see `settled`."""
        return bool(self._distinct)

    def describe(self) -> str:
        """Return a description of the aggregates, to check whether a snapshot belongs to the same ones."""
        return ", ".join(map(str, self._calls))

    def build_arguments(self, group: dict[str, Any], columns: pa.RecordBatch) -> pa.Table:
        """See `Aggregates`. A call that counts all rows has no column."""
        arrays = dict(group)
        for index, call in enumerate(self._calls):
            if index in self._distinct:
                arrays[f"{index}.value"] = _operand(call, columns)
            for part in ("best", "sum", "count"):
                name = f"{index}.{part}"
                if name not in self._kernels:
                    continue
                argument = _counted(call, columns) if part == "count" else _operand(call, columns)
                if argument is not None:
                    arrays[name] = argument
        return pa.table(arrays)

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """See `Aggregates`."""
        if not self._calls:
            return self._with_names(group, distinct_groups(arguments, group))
        names = arguments.column_names
        aggregations = [(name, kernel) for name, kernel in self._kernels.items() if name in names]
        counts_all = len(aggregations) < len(self._kernels)
        grouped = _grouped(arguments, group, [*aggregations, *([([], "count_all")] * counts_all)])
        results = dict(zip((name for name, _ in aggregations), grouped.columns[len(group) :], strict=False))
        partials = [results[name] if name in results else grouped.columns[-1] for name in self._kernels]
        main = self._with_names(group, [*grouped.columns[: len(group)], *partials])
        return pa.concat_tables([main, *self._collect_distinct(arguments, group)], promote_options="default")

    def _with_names(self, group: list[str], arrays: list[Any]) -> pa.Table:
        more = [pa.array(np.full(len(arrays[0]), MIN_TIMESTAMP))] if self._shares_panes else []
        return pa.Table.from_arrays([*arrays, *more], [*group, *self.partial_columns])

    def in_runs(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """Like `grouped`, but without grouping rows if most rows of each group are adjacent.

        Each group has one row of partials, even if its rows are in several runs: consumers rely on it, because they do
        not merge a single table of partials. `group`: the names of integer columns without NULL.
        """
        columns = [read_times(arguments, name) for name in group]
        begins = _begins(columns)
        types = arguments.schema.types
        # A sum of floats depends on the order of addition.
        if len(begins) > _RUNS_MAX or self._distinct or any(map(pa.types.is_floating, types)):
            return self.grouped(arguments, group)
        lengths = np.diff([*begins, arguments.num_rows])
        arrays: list[Any] = [arguments.column(name).take(pa.array(begins)) for name in group]
        for name, kernel in self._kernels.items():
            if name not in arguments.column_names:
                arrays.append(pa.array(lengths))
                continue
            column, compute = arguments.column(name), _OF_ALL[kernel]
            runs = zip(begins.tolist(), lengths.tolist(), strict=True)
            run_results = [pa.repeat(compute(column.slice(begin, length)), 1) for begin, length in runs]
            arrays.append(pa.concat_arrays(run_results))
        partials = self._with_names(group, arrays)
        groups = {tuple(column[begin] for column in columns) for begin in begins}
        return partials if len(groups) == len(begins) else self._merged(partials, group)

    def _collect_distinct(self, arguments: pa.Table, group: list[str]) -> list[pa.Table]:
        """Return tables with a row for each distinct value of a group."""
        tables = []
        for index in self._distinct:
            value = f"{index}.value"
            table = arguments.select([*group, value])
            if table.column(value).null_count:
                table = table.filter(pc.is_valid(table.column(value)))
            table = _grouped(table, [*group, value], [])
            rows = table.num_rows
            table = table.append_column(DISTINCT, pa.array(np.full(rows, index + 1, np.int16)))
            if self._shares_panes:
                table = table.append_column(FIRED, pa.array(np.full(rows, MIN_TIMESTAMP)))
            tables.append(table)
        return tables

    def merged(self, tables: Sequence[pa.Table], group: Sequence[str]) -> pa.Table:
        """Merge partials to one row for each group, and for each of its values."""
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        return self._merged(table, [*group, *self._more])

    def settled(self, partials: pa.Table, group: Sequence[str]) -> pa.Table:
        """Merge partials to one row for each group, counting its values."""
        flags = [f"{index}.flag" for index in self._distinct]
        of_call = partials.column(DISTINCT)
        for index, flag in zip(self._distinct, flags, strict=True):
            is_one = pc.fill_null(pc.equal(of_call, pa.scalar(index + 1, pa.int16())), False)
            partials = partials.append_column(flag, is_one.cast(pa.int64()))
        aggregations = [*self._merges.items(), *((flag, "sum") for flag in flags)]
        names = [*group, *self._merges, *(f"{index}.count" for index in self._distinct)]
        return _grouped(partials, list(group), aggregations).rename_columns(names)

    def _merged(self, table: pa.Table, group: list[str]) -> pa.Table:
        if self._merges:
            merged = _grouped(table, group, list(self._merges.items())).rename_columns([*group, *self._merges])
        else:
            merged = pa.Table.from_arrays(distinct_groups(table, group), group)
        return merged.select([name for name in table.schema.names if name in merged.schema.names])

    def results(self, partials: pa.Table) -> list[Any]:
        """Return an array for each call, computed from settled partials."""
        results = []
        for index, call in enumerate(self._calls):
            target_type = arrow_type(call.type)
            columns = {
                part: full(partials.column(name), 0)
                for part in ("best", "sum", "count")
                if (name := f"{index}.{part}") in partials.column_names
            }
            if call.function == "AVG":
                result = _mean(call, columns["sum"], columns["count"])
            else:
                (result,) = columns.values()
                if call.function in ("$SUM0", "SUM0"):
                    result = pc.fill_null(result, pa.scalar(0).cast(result.type))
            results.append(result if result.type == target_type else pc.cast(result, target_type, safe=False))
        return results


def _begins(columns: Sequence[Any]) -> Any:
    """Return where runs of equal rows begin in these columns, at least one."""
    changes = [column[1:] != column[:-1] for column in columns if column.min() != column.max()]
    if not changes:
        return np.zeros(1, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.logical_or.reduce(changes)) + 1])


def _is_counted_apart(call: AggregateCall) -> bool:
    return call.is_distinct and call.function == "COUNT"


def _operand(call: AggregateCall, columns: pa.RecordBatch) -> Any:
    """Return the operand of a call in each row: NULL in rows that its FILTER excludes."""
    (operand,) = call.operands
    assert isinstance(operand, Field)
    values = columns.column(operand.index)
    if isinstance(operand.type, DecimalType) and call.function not in ("MIN", "MAX", "COUNT"):
        values = values.cast(pa.decimal128(38, operand.type.scale))
    if isinstance(call.condition, Field):
        values = pc.if_else(pc.fill_null(columns.column(call.condition.index), False), values, None)
    return values


def _counted(call: AggregateCall, columns: pa.RecordBatch) -> Any:
    """Return 1 for the rows that a call counts, else 0. None if it counts all rows."""
    conditions = [
        pc.is_valid(columns.column(operand.index))
        for operand in call.operands
        if isinstance(operand, Field) and columns.column(operand.index).null_count
    ]
    if isinstance(call.condition, Field):
        conditions.append(pc.fill_null(columns.column(call.condition.index), False))
    if not conditions:
        return None
    counted = conditions[0]
    for condition in conditions[1:]:
        counted = pc.and_(counted, condition)
    return counted.cast(pa.int64())


def _mean(call: AggregateCall, total: Any, count: Any) -> Any:
    kind = call.type
    if isinstance(kind, DecimalType):
        totals = to_values(total, DecimalType(38, call.operands[0].type.scale))  # type: ignore[attr-defined]
        pairs = zip(totals, count.to_pylist(), strict=True)
        return to_column([None if value is None else fitted(quotient(value, n), kind) for value, n in pairs], kind)
    nonzero_count = pc.if_else(pc.greater(count, 0), count, pa.scalar(None, count.type))
    if isinstance(kind, DoubleType):
        return pc.divide(total, nonzero_count.cast(pa.float64()))
    return pc.divide(total, nonzero_count)


def _grouped(table: pa.Table, keys: list[str], aggregations: list[Any]) -> pa.Table:
    return pa.TableGroupBy(table, keys, use_threads=False).aggregate(aggregations)
