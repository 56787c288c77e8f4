"""Aggregates of groups of records, computed through partials: see the package's docstring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.expressions import Aggregate, full


class _Partial(NamedTuple):
    """One column of an aggregate's partials: the kernels that create and merge it."""

    make: str
    merge: str
    options: Any = None


_KINDS: Final[dict[str, tuple[_Partial, ...]]] = {
    "count_all": (_Partial("sum", "sum"),),
    "count": (_Partial("count", "sum", pc.CountOptions(mode="only_valid")),),
    "sum": (_Partial("sum", "sum"),),
    "min": (_Partial("min", "min"),),
    "max": (_Partial("max", "max"),),
    "avg": (_Partial("sum", "sum"), _Partial("count", "sum", pc.CountOptions(mode="only_valid"))),
    "first": (_Partial("first", "first"),),
    "last": (_Partial("last", "last"),),
}


class Aggregates:
    """Several aggregates of the same groups.

    Partials are tables with the group's columns, whatever these are, followed by `partial_columns`.
    """

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = list(aggregates)
        self.names = [aggregate.name for aggregate in aggregates]
        self._partials = [
            (f"{index}.{number}", index, partial)
            for index, aggregate in enumerate(aggregates)
            for number, partial in enumerate(_KINDS[aggregate.kind])
        ]
        self.partial_columns = [name for name, _, _ in self._partials]

    def describe(self) -> str:
        """Return a description of the aggregates, to check whether a snapshot belongs to the same ones."""
        return ", ".join(f"{aggregate.kind}({aggregate.argument})" for aggregate in self._aggregates)

    def compute_partials(self, group: dict[str, Any], columns: pa.RecordBatch) -> pa.Table:
        """Return the partials of the records, one row for each group."""
        return self.grouped(self.build_arguments(group, columns), list(group))

    def build_arguments(self, group: dict[str, Any], columns: pa.RecordBatch) -> pa.Table:
        """Return the input of the partials: the group of each record, and the values to aggregate."""
        rows = columns.num_rows
        arguments: dict[str, Any] = {}
        for index, aggregate in enumerate(self._aggregates):
            if aggregate.kind != "count_all":
                arguments[f"a{index}"] = full(aggregate.argument.evaluate(columns), rows)
        return pa.table({**group, **arguments})

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """Return the partials of such a table for each group. `group`: the names of its columns, which come first."""
        counts = any(aggregate.kind == "count_all" for aggregate in self._aggregates)
        # Rows are counted once, with the count kernel, rather than by summing a column of ones.
        table = _grouped(
            arguments,
            group,
            [([], "count_all")] * counts
            + [
                (f"a{index}", partial.make, partial.options)
                for _, index, partial in self._partials
                if self._aggregates[index].kind != "count_all"
            ],
        )
        columns = iter(table.columns[len(group) + counts :])
        partials = [
            table.column(len(group)) if self._aggregates[index].kind == "count_all" else next(columns)
            for _, index, _ in self._partials
        ]
        return pa.Table.from_arrays([*table.columns[: len(group)], *partials], [*group, *self.partial_columns])

    def merged(self, tables: Sequence[pa.Table], group: Sequence[str]) -> pa.Table:
        """Merge partials to one row for each group; rows of earlier tables count as earlier."""
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        merged = _grouped(table, list(group), [(name, partial.merge) for name, _, partial in self._partials])
        return merged.rename_columns([*group, *self.partial_columns])

    def results(self, partials: pa.Table) -> list[Any]:
        """Return one array for each aggregate, computed from its partials."""
        arrays = []
        for index, aggregate in enumerate(self._aggregates):
            columns = [full(partials.column(name), 0) for name, of, _ in self._partials if of == index]
            if aggregate.kind == "avg":
                total, count = columns
                divisor = pc.if_else(pc.greater(count, 0), count, pa.scalar(None, count.type))
                arrays.append(pc.divide(pc.cast(total, pa.float64()), pc.cast(divisor, pa.float64())))
            else:
                arrays.append(columns[0])
        return arrays


def _grouped(table: pa.Table, keys: list[str], aggregations: list[Any]) -> pa.Table:
    """Group and aggregate; key columns come first. One thread: the task has one processor, and order matters."""
    return pa.TableGroupBy(table, keys, use_threads=False).aggregate(aggregations)
