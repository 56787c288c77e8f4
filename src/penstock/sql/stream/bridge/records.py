"""A data stream that is read as a table, and the operator that converts its records to columns.

How to convert the rows of a plan to records of a stream.

Converts rows of a table to records of a data stream.

Event time of rows whose source emits watermarks itself.

Event time of the splits of a table, computed where the table is read, separately for each split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import UnsupportedError
from penstock.base.typeinfo import TypeInformation
from penstock.base.watermark_strategy import BatchWatermarks, WatermarkStrategy
from penstock.plan.transformation import Upstream
from penstock.runtime.columns.batch import ColumnBatch, as_columns, get_row_kinds
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.watermarks import EVENT_TIME, AssignerError
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import DELETE, INSERTS, SHORT, Changes, Node, RowSchema
from penstock.sql.logical.records import RecordLayout, RecordShape
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.rows import without_update_before
from penstock.sql.stream.rows.watermarks import (
    REJECTED_ROWS,
    NullTimeError,
    NullTimes,
    RowTimes,
    TimedRows,
    check_times,
)
from penstock.sql.typed import FunctionCall, Typed


@dataclass(frozen=True, eq=False)
class RecordStream:
    """The source of records, their layout, and the row kinds that they may have, one byte each.

    Instances are compared by identity, because their columns do not identify their records.
    """

    upstreams: tuple[Upstream, ...]
    layout: RecordLayout
    kinds: bytes


class FromRecordsOperator(StreamOperator):
    """Converts records to columns and keeps their timestamps.

    Args:
        layout: the layout of the records.
        kinds: the row kinds that records may have.
        names: the names of the columns within streams.
        required: the indexes of NOT NULL columns, each with its name in the table.
        key: the columns that a deletion has; empty if it has all.
        session: provides the time zone of times that have none.
    """

    def __init__(
        self,
        layout: RecordLayout,
        kinds: bytes,
        names: Sequence[str],
        required: Sequence[tuple[int, str]],
        key: Sequence[int],
        session: StreamSession,
    ) -> None:
        self._layout = layout
        self._allowed = kinds
        self._names = list(names)
        self._required = list(required)
        self._key = frozenset(key)
        self._session = session

    def open(self) -> None:
        """Create the converter of records."""
        self._columns = self._layout.open(self._session.zone, self.context.operator_name)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert records to columns."""
        kinds = get_row_kinds(batch)
        if kinds is not None:
            self._check_kinds(kinds, batch)
        columns = self._columns(batch)
        for column_index, name in self._required:
            if columns[column_index].null_count:
                self._check_null(columns[column_index], column_index, name, kinds, batch)
        if isinstance(batch, ColumnBatch):
            times = batch.rowtimes
        else:
            times = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
        self.output.collect(ColumnBatch(pa.RecordBatch.from_arrays(columns, self._names), times, kinds))

    def _check_kinds(self, kinds: bytes, batch: Batch) -> None:
        for kind, record in zip(kinds, batch.values, strict=True):
            if kind not in self._allowed:
                known = ", ".join(SHORT[allowed] for allowed in self._allowed)
                raise UserCodeError(self.context.operator_name, record) from TableRuntimeError(
                    f"the stream may have rows of the kinds {known} and has one of the kind {SHORT[kind]}: read it "
                    "with from_changelog_stream and a changelog mode that has this kind"
                )

    def _check_null(self, column: pa.Array, column_index: int, name: str, kinds: bytes | None, batch: Batch) -> None:
        for index, valid in enumerate(column.is_valid().to_pylist()):
            has_key_alone = self._key and column_index not in self._key and kinds is not None and kinds[index] == DELETE
            if not valid and not has_key_alone:
                raise UserCodeError(self.context.operator_name, batch.values[index]) from TableRuntimeError(
                    f"column '{name}' is NOT NULL, and the record has no value for it: declare the column as one that "
                    "may be NULL, in a Schema or in the type of the stream"
                )


class ToRecordsOperator(StreamOperator):
    """Converts rows to records. Watermarks pass unchanged.

    Args:
        shape: the shape of a record.
        rowtime: the index of the column that becomes the timestamp of a record; None for records without timestamps.
        keeps_before: whether previous rows of updates (UPDATE_BEFORE) become records. Otherwise they are deletions:
            the query sends them only if no new row needs to follow, such as in a join with a further condition.
        session: provides the time zone of instants.
        names: the names of the columns, for errors.
    """

    def __init__(
        self,
        shape: RecordShape,
        rowtime: int | None,
        keeps_before: bool,
        session: StreamSession,
        names: Sequence[str],
    ) -> None:
        self._names = tuple(names)
        self._shape = shape
        self._rowtime = rowtime
        self._keeps_before = keeps_before
        self._session = session

    def open(self) -> None:
        """Create the converter of values."""
        self._records = self._shape.open(self._session.zone)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Convert columns to records."""
        records = as_columns(batch, self.context.operator_name)
        if not self._keeps_before:
            records = without_update_before(records)
        if len(records):
            self.output.collect(Batch(self._records(records), self._times(records)))

    def _times(self, batch: ColumnBatch) -> list[int] | None:
        if self._rowtime is None:
            return None
        times = batch.columns.column(self._rowtime)
        check_times(batch, self._rowtime, self._names, self.context.operator_name, "a stream with timestamps")
        return list(milliseconds(times).tolist())


@dataclass(frozen=True)
class RecordTarget:
    """A plan and the records to create from its rows.

    Attributes:
        plan: produces the rows.
        schema: the columns as declared by the user; NULL in a NOT NULL column fails the job.
        shape: the shape of a record.
        type_info: the type of the records.
        accepts: the changes that the stream accepts.
        wants_before: whether updates include the previous row (UPDATE_BEFORE).
        rowtime: the index of the column that becomes the timestamp of a record, if any.
        key: the indexes of the primary key columns if rows are replaced by key; else empty.
        title: the name of the stream in errors.
    """

    plan: Node
    schema: RowSchema
    shape: RecordShape
    type_info: TypeInformation
    accepts: Changes = INSERTS
    wants_before: bool = True
    rowtime: int | None = None
    key: tuple[int, ...] = ()
    title: str = "*anonymous_datastream_sink*"

    def operator(self, session: StreamSession) -> Callable[[], StreamOperator]:
        """Return the factory of the operator."""
        names = tuple(self.plan.schema.names)
        return partial(ToRecordsOperator, self.shape, self.rowtime, self.wants_before, session, names)

    def check_key(self, changes: Changes, keys: Callable[[], frozenset[frozenset[int]]]) -> None:
        """Raise `UnsupportedError` if rows replace others by a key of the plan that is not the declared one."""
        if self.wants_before or changes == INSERTS or frozenset(self.key) in keys():
            return
        names = ", ".join(self.schema.names[index] for index in self.key)
        raise UnsupportedError(
            f"the rows of the table are not told apart by the primary key ({names}), so without the rows before "
            "updates nobody can tell which row is replaced: use ChangelogMode.all(), or declare the columns by which "
            "the query groups its rows as the primary key"
        )


def is_source_watermark(expression: Typed) -> bool:
    """Return whether an expression is SOURCE_WATERMARK(), possibly in a cast."""
    while isinstance(expression, FunctionCall) and expression.function == "CAST":
        (expression,) = expression.operands
    return isinstance(expression, FunctionCall) and expression.function == "SOURCE_WATERMARK"


class SourceWatermarkOperator(StreamOperator):
    """Sets the timestamps of rows from their time attribute. Watermarks pass unchanged.

    Args:
        column: the index of the time attribute.
        null_times: handles rows with a NULL event time.
    """

    makes_watermarks = True

    def __init__(self, column: int, null_times: NullTimes) -> None:
        self._column = column
        self._null_times = null_times

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit the rows with their timestamps."""
        records = as_columns(batch, self.context.operator_name)
        try:
            timed = self._null_times.take_out(records, records.columns.column(self._column))
        except NullTimeError as error:
            raise UserCodeError(self.context.operator_name, error.record) from error
        self.output.collect(timed.batch)


@dataclass(frozen=True)
class TableTime:
    """How to compute the event time of a table's rows.

    Args:
        time: the event time, an expression over the columns that are read.
        watermark: the watermark, an expression over these columns followed by the time.
        width: the number of columns that are read.
        session: the session of the reading operator.
        null_times: handles rows with a NULL event time.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
    """

    time: Typed
    watermark: Typed
    width: int
    session: StreamSession
    null_times: NullTimes
    gap: int = 0

    def strategy(self) -> WatermarkStrategy:
        """Return the watermark strategy for a source."""
        return WatermarkStrategy.for_batches(partial(SplitWatermarks, self))


class SplitWatermarks(BatchWatermarks):
    """Computes times and watermarks of one split."""

    def __init__(self, of_table: TableTime) -> None:
        session = of_table.session.open(_no_clock)
        self._evaluate = Evaluator([of_table.time], session)
        marks = Evaluator([of_table.watermark], session)
        self._row_times = RowTimes(of_table.width, of_table.watermark, marks, of_table.gap)
        self._null_times = of_table.null_times
        self.side_tag = REJECTED_ROWS if of_table.null_times.is_rejecting else None
        self._timed: TimedRows | None = None

    def assign(self, batch: Any) -> ColumnBatch:
        """See `BatchWatermarks`."""
        records = as_columns(batch, "a table")
        (times,) = self._evaluate(Columns.of(records.columns))
        try:
            self._timed = self._null_times.take_out(records, times)
        except NullTimeError as error:
            raise AssignerError(error.record, EVENT_TIME) from error
        return self._timed.batch

    def left_out(self) -> ColumnBatch | None:
        """See `BatchWatermarks`."""
        return None if self._timed is None else self._timed.rejected

    def follow(self, batch: Any) -> Iterable[tuple[ColumnBatch, int | None]]:
        """See `BatchWatermarks`. The batch must be the one whose times were computed last."""
        assert self._timed is not None
        return self._row_times.follow(batch, Columns([*batch.columns.columns, self._timed.times], len(batch)))


def _no_clock() -> int:
    raise UnsupportedError("a watermark that is worked out where a table is read cannot ask for the time")
