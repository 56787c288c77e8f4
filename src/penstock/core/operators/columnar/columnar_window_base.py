"""Shared base of windows over columns: partials that are merged from time to time, late records, and the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError, WrongTypeError
from penstock.core.columns.aggregates import Aggregates
from penstock.core.columns.batch import ColumnBatch, as_columns
from penstock.core.columns.expressions import KERNEL_ERRORS, Aggregate, full
from penstock.core.columns.keys import ColumnKey
from penstock.core.operators.base import StreamOperator, UserCodeError
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.operators.window.kept_windows import ALL_SLOTS, FIRED_WINDOWS, OPEN_WINDOWS, SESSIONS, has_windows
from penstock.core.records import MIN_TIMESTAMP, Batch
from penstock.state.captures import StateCapture
from penstock.state.errors import StateError
from penstock.state.key_columns import ColumnsCapture

#: Partials are merged when they have more rows than this, and than twice the rows after the last merge.
PARTIALS_MAX: Final = 1 << 16
#: The number of records that are grouped at once: with fewer, a call's overhead takes most of the time.
_RECORDS_AT_ONCE: Final = 1 << 14
#: State of the operators that keep windows record by record.
_BY_RECORD: Final = (OPEN_WINDOWS, FIRED_WINDOWS, SESSIONS, *ALL_SLOTS)


class ColumnarWindowBase(StreamOperator):
    """Keeps tables of partials: the key columns, the window columns and the aggregate columns.

    In batch execution its input need not come key by key, because it holds a row for each group and not the records.
    """

    state_name: ClassVar[str]

    def __init__(self, key: ColumnKey, aggregates: Sequence[Aggregate], late_tag: str | None) -> None:
        self.key = key
        self.aggregates = Aggregates(aggregates)
        self._late_tag = late_tag
        #: names that no user column has
        self.key_names = [f"key.{index}" for index in range(len(key.names))]
        self.watermark = MIN_TIMESTAMP
        #: tables of records that have not become partials yet
        self._waiting: list[pa.Table] = []
        self._records_waiting = 0
        self._schema_waiting: pa.Schema | None = None
        self._group: list[str] = []
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._merged_rows = 0
        self._schema: pa.Schema | None = None

    def late_outputs(self) -> tuple[str, ...]:
        """Return the tag of the operator's late output, if it has one."""
        return () if self._late_tag is None else (self._late_tag,)

    def about(self) -> str:
        """Describe the state, see `ColumnStates`."""
        raise NotImplementedError

    def merge(self, parts: list[pa.Table]) -> pa.Table:
        """Merge partials into one row for each group."""
        raise NotImplementedError

    # --- the table -------------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Restore the table."""
        restored = self.context.columns.take(self.state_name, self.about())
        for name in _BY_RECORD:
            if has_windows(self.context.keyed, name):
                raise StateError(
                    f"{self.context.operator_name}: the snapshot holds windows that were kept record by record (state "
                    f"{name!r}). Restore the operator's previous definition, or give it a new uid to start without "
                    "windows"
                )
        if restored is not None and restored.num_rows:
            self._schema = restored.schema
            self.put([restored])

    def take(self, records: ColumnBatch, group: dict[str, Any]) -> None:
        """Take records with the columns of their groups. They become partials once there are many, or when needed."""
        arguments = self._by_kernel(len(records), lambda: self.aggregates.build_arguments(group, records.columns))
        is_other = arguments.schema != self._schema_waiting
        if is_other:
            self._settle()
            self._schema_waiting, self._group = arguments.schema, list(group)
        self._waiting.append(arguments)
        self._records_waiting += len(records)
        if is_other or self._records_waiting >= _RECORDS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        """Turn the waiting records into partials."""
        if self._waiting:
            tables, self._waiting, self._records_waiting = self._waiting, [], 0
            together = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
            self.add(self._by_kernel(together.num_rows, lambda: self.grouped(together, self._group)))

    def _by_kernel(self, records: int, compute: Callable[[], pa.Table]) -> pa.Table:
        try:
            return compute()
        except KERNEL_ERRORS as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {records} records") from error

    def grouped(self, arguments: pa.Table, group: list[str]) -> pa.Table:
        """Return the partials of records, see `Aggregates`."""
        return self.aggregates.grouped(arguments, group)

    def add(self, partials: pa.Table) -> None:
        """Add partials; merge all of them once there are many."""
        if not partials.num_rows:
            return
        if self._schema is None:
            self._schema = partials.schema
        elif partials.schema != self._schema:
            partials = self._cast(partials)
        self._parts.append(partials)
        self._rows += partials.num_rows
        if self._rows > max(PARTIALS_MAX, 2 * self._merged_rows):
            self.put([self.table()])

    def _cast(self, partials: pa.Table) -> pa.Table:
        try:
            return partials.cast(self._schema)
        except (pa.ArrowException, ValueError) as error:
            raise WrongTypeError(
                f"{self.context.operator_name}: the types of columns changed from {_types(self._schema)} to "
                f"{_types(partials.schema)}, and their values do not fit: {error}"
            ) from error

    def table(self) -> pa.Table | None:
        """Return all partials, merged; None if the operator holds nothing."""
        self._settle()
        if len(self._parts) > 1:
            self.put([self.merge(self._parts)])
        return self._parts[0] if self._parts else None

    def put(self, parts: list[pa.Table]) -> None:
        """Replace all partials with these merged ones."""
        self._parts = [part for part in parts if part.num_rows]
        self._rows = self._merged_rows = sum(part.num_rows for part in self._parts)

    def take_due(self, name: str, last: int) -> pa.Table:
        """Remove the partials whose value in a time column is at most `last`, at least one, and return them merged.

        The others stay unmerged: while one source is ahead of another there are many, and they would be merged again at
        every watermark.
        """
        self._waiting, still_waiting = _split(self._waiting, name, last)
        self._settle()
        self._waiting, self._records_waiting = still_waiting, sum(table.num_rows for table in still_waiting)
        near, far = _split(self._parts, name, last)
        self._parts, self._rows = far, sum(part.num_rows for part in far)
        self._merged_rows = min(self._merged_rows, self._rows)
        return self.merge(near) if len(near) > 1 else near[0]

    def put_back(self, part: pa.Table) -> None:
        """Add these merged partials again; all others are later."""
        if part.num_rows:
            self._parts.insert(0, part)
            self._rows += part.num_rows
            self._merged_rows += part.num_rows

    @property
    def parts(self) -> list[pa.Table]:
        """The partials, unmerged."""
        self._settle()
        return self._parts

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture all state, including the merged table."""
        captures = super().snapshot_state(checkpoint_id)
        table = self.table()
        if table is None and self._schema is not None:
            table = self._schema.empty_table()
        if table is not None:
            names = tuple(self.key_names)
            captures.append(ColumnsCapture(self.state_name, self.to_capture(table), names, self.about()))
        return captures

    def to_capture(self, table: pa.Table) -> pa.Table:
        """Return the table in the form that a snapshot holds."""
        return table

    # --- records ---------------------------------------------------------------------------------------------------

    def to_column_batch(self, batch: Batch) -> ColumnBatch:
        """Return the batch as columns, with timestamps."""
        records = as_columns(batch, self.context.operator_name)
        if records.kinds is not None:
            raise UnsupportedError(
                f"{self.context.operator_name}: windows of columns accept inserts only, but these records update or "
                "delete others"
            )
        if records.rowtimes is None:
            raise WrongTypeError(
                f"{self.context.operator_name}: event-time windows need timestamps, but these records have none; give "
                "the source a WatermarkStrategy with_timestamp_column, or call assign_timestamps_and_watermarks"
            )
        return records

    def compute_partials(self, records: ColumnBatch, group: dict[str, Any]) -> pa.Table:
        """Return the partials of records by group."""
        return self._by_kernel(len(records), lambda: self.aggregates.compute_partials(group, records.columns))

    def key_columns(self, records: ColumnBatch) -> dict[str, Any]:
        """Return the key columns under the names that they have here."""
        return dict(zip(self.key_names, self.key.select_columns(records.columns), strict=True))

    def late(self, records: ColumnBatch) -> None:
        """Handle records that come too late for all their windows."""
        if self._late_tag is None:
            self.context.count(LATE_RECORDS, len(records))
        else:
            self.output.collect_side(self._late_tag, records)

    def emit(self, partials: pa.Table, starts: Any, ends: Any) -> None:
        """Emit the results of windows, one row for each."""
        self.context.fired_timers += len(partials)
        keys = [full(partials.column(name), 0) for name in self.key_names]
        arrays = [*keys, pa.array(starts), pa.array(ends), *self.aggregates.results(partials)[: self.shown]]
        names = [*self.key.names, "window_start", "window_end", *self.aggregates.names[: self.shown]]
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(arrays, names), ends - 1))

    @property
    def shown(self) -> int:
        """The number of aggregates that the user asked for."""
        return len(self.aggregates.names)

    def end_keys(self) -> None:
        """Fire all windows."""
        super().end_keys()
        self.watermark = MIN_TIMESTAMP


def _split(tables: Sequence[pa.Table], name: str, last: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """Return the rows whose value in a time column is at most `last`, and the other rows."""
    near: list[pa.Table] = []
    far: list[pa.Table] = []
    for table in tables:
        is_near = read_times(table, name) <= last
        rows = int(np.count_nonzero(is_near))
        if rows in (0, len(is_near)):
            (near if rows else far).append(table)
        elif is_near[:rows].all():  # rows mostly come in the order of their times
            near.append(table.slice(0, rows))
            far.append(table.slice(rows))
        else:
            near.append(table.filter(pa.array(is_near)))
            far.append(table.filter(pa.array(~is_near)))
    return near, far


def read_times(table: pa.Table, name: str) -> Any:
    """Return a column of integers as a numpy array."""
    return full(table.column(name), 0).to_numpy(zero_copy_only=False)


def lowest(parts: Sequence[pa.Table], name: str) -> int | None:
    """Return the least value of a column of integers; None without rows."""
    return min((int(np.min(read_times(part, name))) for part in parts if part.num_rows), default=None)


def _types(schema: pa.Schema) -> str:
    return ", ".join(str(field.type) for field in schema)
