"""Columns of tables and their changes, for tables of SQL and for rows of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import FormatError, OperationError
from penstock.codecs.arrow_columns import exact_cast
from penstock.connectors.mysql.cdc.reader import DELETE, UPDATE_AFTER, UPDATE_BEFORE, Change, Output
from penstock.connectors.mysql.cdc.tables import ColumnDefinition, TableDefinition
from penstock.connectors.mysql.cdc.values import ValueSettings, make_text
from penstock.runtime.columns import ColumnBatch

#: the types of metadata columns
METADATA_TYPES: Final[Mapping[str, pa.DataType]] = {
    "database_name": pa.string(),
    "table_name": pa.string(),
    "op_ts": pa.timestamp("ms", "UTC"),
    "row_kind": pa.string(),
}
_SHORT: Final = ("+I", "-U", "+U", "-D")
_UPDATE: Final = bytes((UPDATE_BEFORE, UPDATE_AFTER))


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the output.

    Attributes:
        name: its name in the output.
        column: the column of the tables; None for metadata of the change.
        type: its type.
        metadata: one of `METADATA_TYPES`.
    """

    name: str
    column: str | None
    type: pa.DataType
    metadata: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether the column is read as text."""
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))

    @property
    def is_number(self) -> bool:
        """Whether the column is read as a number, also if it is a TINYINT(1)."""
        return bool(pa.types.is_integer(self.type) or pa.types.is_decimal(self.type) or pa.types.is_floating(self.type))


class ColumnOutput(Output[Any]):
    """Makes columns of changes; an update is the row before and the row after.

    Args:
        outputs: the columns.
        values: how values are read.
    """

    def __init__(self, outputs: Sequence[OutputColumn], values: ValueSettings) -> None:
        self._outputs = outputs
        self._values = values
        self._batches: list[pa.RecordBatch] = []
        self._kinds = bytearray()
        self._readers: dict[int, tuple[TableDefinition, list[_Reader]]] = {}
        #: the rows that are no columns yet: those of one definition, so that small transactions share a batch
        self._pending: _Pending | None = None

    @staticmethod
    def factory(outputs: Sequence[OutputColumn], values: ValueSettings) -> Callable[[], ColumnOutput]:
        """Return what makes an output; it can be pickled."""
        return partial(ColumnOutput, tuple(outputs), values)

    def add_changes(self, definition: TableDefinition, changes: Sequence[Change], meta: Mapping[str, Any]) -> None:
        """See `Output`.

        Raises:
            OperationError: if the table has no column of a name.
            FormatError: if a value does not fit the declared type; maybe only from `take`.
        """
        pending = self._pending
        if pending is None or pending.definition is not definition:
            self._build()
            pending = self._pending = _Pending(definition, self._find_readers(definition))
        rows, kinds = pending.rows, pending.kinds
        before_count = len(rows)
        for _, kind, before, after in changes:
            if kind == UPDATE_AFTER:
                rows += (before, after)
                kinds += _UPDATE
            else:
                rows.append(before if kind == DELETE else after)
                kinds.append(kind)
        pending.times.append((meta["op_ts"], len(rows) - before_count))

    def _build(self) -> None:
        """Make columns of the pending rows."""
        pending, self._pending = self._pending, None
        if pending is None or not pending.rows:
            return
        arrays = [reader(pending) for reader in pending.readers]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, [output.name for output in self._outputs]))
        self._kinds += pending.kinds

    def take(self, max_records: int) -> ColumnBatch | None:
        """See `Output`."""
        self._build()
        if not self._batches:
            return None
        batches, self._batches = self._batches, []
        kinds, self._kinds = bytes(self._kinds), bytearray()
        columns = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        return ColumnBatch(columns, None, kinds if any(kinds) else None)

    def _find_readers(self, definition: TableDefinition) -> list[_Reader]:
        entry = self._readers.get(id(definition))
        if entry is None or entry[0] is not definition:
            entry = self._readers[id(definition)] = (
                definition,
                [self._make_reader(output, definition) for output in self._outputs],
            )
        return entry[1]

    def _make_reader(self, output: OutputColumn, definition: TableDefinition) -> _Reader:
        if output.column is None:
            return partial(_read_metadata, output, definition)
        position = definition.find(output.column)
        if position is None:
            names = ", ".join(column.name for column in definition.columns)
            raise OperationError(
                f"table {definition.table_id} has no column {output.column!r}, or not any more; it has {names}. "
                "Declare other columns"
            )
        column = definition.columns[position]
        natural = self._values.convert(column)
        to_text = make_text(column) if output.is_text and not pa.types.is_string(natural) else None
        return partial(_read_column, output, column, position, natural, to_text)


@dataclass(slots=True)
class _Pending:
    """Rows of a definition: their values, their kinds, and the time (ms) of so many of them."""

    definition: TableDefinition
    readers: list[_Reader]
    rows: list[Any] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    times: list[tuple[int, int]] = field(default_factory=list)


_Reader = Callable[[_Pending], pa.Array]


def _read_metadata(output: OutputColumn, definition: TableDefinition, pending: _Pending) -> pa.Array:
    if output.metadata == "row_kind":
        values: list[Any] = [_SHORT[kind] for kind in pending.kinds]
    elif output.metadata == "op_ts":
        values = [time for time, count in pending.times for _ in range(count)]
    else:
        table_id = definition.table_id
        values = [table_id.schema if output.metadata == "database_name" else table_id.table] * len(pending.rows)
    return pa.array(values, METADATA_TYPES[output.metadata or ""]).cast(output.type)


def _read_column(
    output: OutputColumn,
    column: ColumnDefinition,
    position: int,
    natural: pa.DataType,
    to_text: Callable[[Any], str] | None,
    pending: _Pending,
) -> pa.Array:
    values = [row[position] for row in pending.rows]
    if to_text is not None:
        return pa.array([v if v is None or isinstance(v, str) else to_text(v) for v in values], pa.string())
    try:
        return exact_cast(pa.array(values, natural), output.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise FormatError(
            f"column {column.name!r} is a {column.kind}, and a value of it does not fit the declared type "
            f"{output.type}: {error}"
        ) from error
