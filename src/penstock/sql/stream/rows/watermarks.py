"""Event time of rows: watermarks are computed from the columns of each row.

`NullTimes` handles rows with a NULL event time: they fail the job, or they leave the stream and are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import shorten
from penstock.runtime.columns import ColumnBatch, as_columns, describe_origin
from penstock.runtime.operators.base import UserCodeError
from penstock.runtime.operators.watermarks import NULL_TIME_RECORDS
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP, Batch
from penstock.sql.data.arrow import milliseconds, time_unit
from penstock.sql.data.datetimes import MILLISECOND_NS
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.row_data import RowData
from penstock.sql.data.types import DataType, DayTimeIntervalType, LocalZonedTimestampType, TimestampType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.logical.nodes import DELETE, UPDATE_BEFORE
from penstock.sql.stream.rows.state_ttl import EvaluatingOperator, StreamSession
from penstock.sql.typed import Constant, Field, FunctionCall, Typed

#: the tag of the side output with the rows that leave the stream
REJECTED_ROWS: Final = "null-time"
_VALUE_CHARS_MAX: Final = 80
#: the greatest of a few numbers is found sooner in Python than in NumPy
_FEW: Final = 32


class NullTimeError(TableRuntimeError):
    """Raised for a row with a NULL event time. `record`: the row, for error messages."""

    def __init__(self, message: str, record: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.record)


class TimedRows(NamedTuple):
    """Rows with timestamps, their event times as a column, and the rejected rows or None.

    `times` is None if the timestamps are the event times and no other columns are needed (`RowTimes.needs_columns`).
    """

    batch: ColumnBatch
    times: pa.Array | None
    rejected: ColumnBatch | None


@dataclass(frozen=True)
class NullTimes:
    """Handles the rows of a table that have a NULL event time.

    A deletion is never an error, because it may consist of the key alone. Rejecting rows has the effect of WHERE time
    IS NOT NULL. In a table that is updated by key, a row with a NULL event time deletes the previous row of its key. In
    other tables all changes of such rows are rejected, deletions included.

    Args:
        column: the name of the time attribute, for errors.
        table: the name of the table, for errors.
        names: the names of the columns, for errors.
        remedy: a sentence of advice for the user, for errors.
        is_rejecting: whether rows with a NULL event time leave the stream; otherwise they fail the job.
        by_key: whether the table is updated by key.
        as_inserts: whether rejected rows become inserts, without deletions, because the table has no previous rows of
            updates.
    """

    column: str
    table: str
    names: tuple[str, ...]
    remedy: str
    is_rejecting: bool = False
    by_key: bool = False
    as_inserts: bool = False

    def take_out(self, batch: ColumnBatch, times: pa.Array) -> TimedRows:
        """Assign timestamps and reject rows. Deletions with a NULL event time get the lowest timestamp.

        Raises:
            NullTimeError: for a row with a NULL event time, if such rows fail the job.
        """
        if not times.null_count:
            return TimedRows(batch.with_rowtimes(milliseconds(times)), times, None)
        is_timed = times.is_valid().to_numpy(zero_copy_only=False)
        kinds = np.frombuffer(batch.kinds or bytes(len(batch)), np.uint8)
        is_fault = ~is_timed & (kinds != DELETE)
        if not self.is_rejecting:
            if is_fault.any():
                raise self._error(batch, int(np.flatnonzero(is_fault)[0]))
            return _timed(batch, times, is_timed, None)
        leaves = is_fault if self.as_inserts else ~is_timed
        rejected = None
        if leaves.any():
            left = batch.where(leaves)
            rejected = ColumnBatch(left.data, None, None if self.as_inserts else left.kinds)
        stays = is_timed
        if self.by_key:
            stays = is_timed | (kinds != UPDATE_BEFORE)
            batch = ColumnBatch(batch.data, None, np.where(is_fault, DELETE, kinds).astype(np.uint8).tobytes())
        if not stays.all():
            batch, times, is_timed = batch.where(stays), times.filter(pa.array(stays)), is_timed[stays]
        return _timed(batch, times, is_timed, rejected)

    def _error(self, batch: ColumnBatch, index: int) -> NullTimeError:
        origin = describe_origin(batch, index)
        return NullTimeError(
            f"RowTime field should not be null: column '{self.column}' of table {self.table} is NULL in a "
            f"row{origin and ' '}{origin}. {self.remedy}",
            describe_row(batch.columns, index, self.names),
        )


def _timed(batch: ColumnBatch, times: pa.Array, is_timed: Any, rejected: ColumnBatch | None) -> TimedRows:
    """Assign the lowest timestamp to rows with a NULL event time."""
    filled = milliseconds(times.fill_null(pa.scalar(0, times.type)))
    return TimedRows(batch.with_rowtimes(np.where(is_timed, filled, MIN_TIMESTAMP)), times, rejected)


def check_times(batch: ColumnBatch, column: int, names: Sequence[str], operator_name: str, step: str) -> None:
    """Refuse rows with a NULL event time in a step that works by event time.

    Args:
        batch: the rows.
        column: the index of the event time.
        names: the names of the columns, for errors.
        operator_name: the operator, for errors.
        step: the part of the query, such as `OVER`, for errors.

    Raises:
        UserCodeError: from a `NullTimeError`, with the first such row.
    """
    times = batch.columns.column(column)
    if times.null_count:
        index = int(np.flatnonzero(times.is_null().to_numpy(zero_copy_only=False))[0])
        name = names[column] if column < len(names) else f"{column + 1}"
        error = NullTimeError(
            f"RowTime field should not be null: column '{name}' is NULL in a row, and {step} needs the event time of "
            f"every row. Filter such rows out by WHERE {name} IS NOT NULL"
        )
        raise UserCodeError(operator_name, describe_row(batch.columns, index, names)) from error


def describe_row(columns: pa.RecordBatch, index: int, names: Sequence[str]) -> dict[str, Any]:
    """Return a row for error messages: numbers and None unchanged, other values as shortened text."""
    return {name: _shown(column[index]) for name, column in zip(names, columns.columns, strict=False)}


def _shown(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_integer(value.type) or pa.types.is_floating(value.type) or pa.types.is_boolean(value.type):
        return value.as_py()
    return shorten(str(value), _VALUE_CHARS_MAX)


def assign_times(batch: ColumnBatch, times: Sequence[int | None]) -> TimedRows | None:
    """Assign the event times (ns) of a few rows as timestamps; return None if any is NULL.

    Their columns need to have milliseconds, and nothing else may need the column (`RowTimes.needs_columns`).
    """
    if None in times:
        return None
    milliseconds_of_rows = [time // MILLISECOND_NS for time in times if time is not None]
    return TimedRows(batch.with_rowtimes(np.array(milliseconds_of_rows, np.int64)), None, None)


def has_milliseconds(kind: DataType) -> bool:
    """Return whether a column of this type has points in time in milliseconds."""
    return isinstance(kind, TimestampType | LocalZonedTimestampType) and time_unit(kind.precision) == "ms"


class RowTimes:
    """The times of rows, and the watermarks that follow them, for one stream or one split of a table.

    The watermark of a row is the value of the expression, as in Flink: a later row with exactly that time is late.

    Args:
        column: the index of the time attribute among the columns that `evaluate` takes.
        expression: the watermark; NULL leaves event time unchanged.
        evaluate: the evaluator of the expression.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
    """

    def __init__(self, column: int, expression: Typed, evaluate: Evaluator, gap: int = 0) -> None:
        self._column = column
        self._evaluate = evaluate
        self._gap = gap
        self._follows_time = _follows(expression, column)
        self._delay_ms = _delay_ms(expression) if self._follows_time else None
        self._pending = MIN_TIMESTAMP
        #: the number of rows since the last watermark that was due by `gap`
        self._rows = 0

    @property
    def needs_columns(self) -> bool:
        """Whether watermarks need more than timestamps: not if they trail event times in milliseconds."""
        return self._delay_ms is None

    def follow(self, timed: ColumnBatch, columns: Columns | None) -> Iterator[tuple[ColumnBatch, int | None]]:
        """Yield rows in parts, each with the watermark after it, or None where no watermark is due.

        `columns`: the operands of the expression, for the same rows; None if the timestamps are the event times and
        suffice.
        """
        times = None if columns is None else columns[self._column]
        marks = None
        if columns is not None and not self._follows_time:
            (marks,) = self._evaluate(columns)
        start = 0
        for stop in self._cuts(len(timed)):
            part = timed.slice(start, stop) if stop - start < len(timed) else timed
            if start < stop:
                self._follow(timed, times, marks, start, stop)
            start = stop
            yield part, None if self._rows else self._pending

    def _follow(
        self, timed: ColumnBatch, times: pa.Array | None, marks: pa.Array | None, start: int, stop: int
    ) -> None:
        """Record the highest watermark of the rows from `start` up to `stop`."""
        if self._delay_ms is not None and (times is None or times.type.unit == "ms"):
            rowtimes = timed.rowtimes[start:stop]
            highest_ms = max(rowtimes.tolist()) if len(rowtimes) <= _FEW else int(rowtimes.max())
            self._pending = max(self._pending, highest_ms - self._delay_ms)
            return
        assert times is not None, "only timestamps that are event times come without them"
        if marks is None:
            highest = self._of_latest(times.slice(start, stop - start))
        else:
            highest = pc.max(marks.slice(start, stop - start))
        if highest.is_valid:
            self._pending = max(self._pending, int(milliseconds(pa.array([highest]))[0]))

    def _of_latest(self, times: pa.Array) -> pa.Scalar:
        """Return the watermark of the latest row."""
        latest = pa.array([pc.max(times)], times.type)
        (marks,) = self._evaluate(Columns([latest] * (self._column + 1), 1))
        return marks[0]

    def _cuts(self, rows: int) -> Iterator[int]:
        """Yield the ends of the parts of a batch. A watermark is due after a part if the row count is then 0."""
        if not self._gap:
            yield rows
            return
        stop = 0
        while stop < rows:
            part = min(self._gap - self._rows, rows - stop)
            self._rows = (self._rows + part) % self._gap
            stop += part
            yield stop


class WatermarkAssignerOperator(EvaluatingOperator):
    """Emits a watermark after each batch, or every `gap` rows, if event time has advanced.

    Watermarks from upstream are dropped, except the last one.

    Args:
        column: the index of the time attribute, whose value is the timestamp of a row.
        expression: the watermark, over the columns of a row, see `RowTimes`.
        session: the session of the operator.
        null_times: handles rows with a NULL event time.
        gap: the number of rows between watermarks; 0 for one watermark after each batch.
        idle_ms: after how long (ms) without rows the stream is idle; 0 for never. Rejected rows do not count.
    """

    makes_watermarks = True

    def __init__(
        self,
        column: int,
        expression: Typed,
        session: StreamSession,
        null_times: NullTimes,
        gap: int = 0,
        idle_ms: int = 0,
    ) -> None:
        self._column = column
        self._expression = expression
        self._session = session
        self._null_times = null_times
        self._gap = gap
        self._idle_ms = idle_ms
        self._watermark = MIN_TIMESTAMP
        self._is_idle = False

    def open(self) -> None:
        """Create the evaluator of the expression."""
        evaluate = Evaluator([self._expression], self.running(self._session))
        self._times = RowTimes(self._column, self._expression, evaluate, self._gap)
        if self._null_times.is_rejecting:
            self.context.count(NULL_TIME_RECORDS, 0)
        self._last_row_ms = self.context.now_ms()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Emit rows with their timestamps, followed by watermarks."""
        records = as_columns(batch, self.context.operator_name)
        timed, times, rejected = self._assign(records)
        if rejected is not None:
            self.context.count(NULL_TIME_RECORDS, len(rejected))
            self.output.collect_side(REJECTED_ROWS, rejected)
            if not len(timed):
                return
        if self._idle_ms:
            self._wake()
        try:
            columns = None if times is None else Columns.of(timed.columns)
            for part, watermark in self._times.follow(timed, columns):
                self.output.collect(part)
                if watermark is not None:
                    self._advance(watermark)
        except TableRuntimeError as error:
            raise UserCodeError(self.context.operator_name, f"a batch of {len(timed)} rows") from error

    def _assign(self, records: ColumnBatch) -> TimedRows:
        """Assign timestamps and reject rows."""
        data, column = records.data, self._column
        if isinstance(data, RowData) and not self._times.needs_columns and has_milliseconds(data.layout.types[column]):
            timed = assign_times(records, [row[column] for row in data.tuples])
            if timed is not None:
                return timed
        try:
            return self._null_times.take_out(records, data.column(column))
        except NullTimeError as error:
            raise UserCodeError(self.context.operator_name, error.record) from error

    def _advance(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self.output.emit_watermark(watermark)

    def process_watermark(self, timestamp: int) -> None:
        """Pass on only the last watermark."""
        if timestamp == MAX_WATERMARK:
            self._wake()
            self._watermark = timestamp
            self.output.emit_watermark(timestamp)

    # --- idleness -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._last_row_ms = self.context.now_ms()
        if self._is_idle:
            self._is_idle = False
            self.output.emit_status(False)

    def process_status(self, idle: bool) -> None:
        """Pass on the upstream status, unless idleness is detected here."""
        if not self._idle_ms:
            self.output.emit_status(idle)

    def next_timer_ms(self) -> int | None:
        """Return when the stream becomes idle if no row arrives."""
        is_asked = self._idle_ms and not self._is_idle and self._watermark != MAX_WATERMARK
        return self._last_row_ms + self._idle_ms if is_asked else None

    def on_processing_time(self, now_ms: int) -> None:
        """Mark the stream as idle when it is due, so that others do not wait for it."""
        due = self.next_timer_ms()
        if due is not None and due <= now_ms:
            self._is_idle = True
            self.output.emit_status(True)


def _follows(expression: Typed, column: int) -> bool:
    """Return whether an expression depends on a time alone and increases with it."""
    if isinstance(expression, FunctionCall) and expression.function == "-":
        expression, other = expression.operands
        if not isinstance(other, Constant):
            return False
    return isinstance(expression, Field) and expression.index == column


def _delay_ms(expression: Typed) -> int | None:
    """Return how far a watermark trails the time that it follows; None if that varies."""
    if isinstance(expression, Field):
        return 0
    delay = expression.children()[1]
    if not isinstance(delay, Constant) or not isinstance(delay.type, DayTimeIntervalType):
        return None
    return delay.value if isinstance(delay.value, int) else None
