"""Handles rows with a NULL event time: they fail the job, or they leave the stream and are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.errors import shorten
from penstock.core.columns.batch import ColumnBatch, describe_origin
from penstock.core.operators.base import UserCodeError
from penstock.core.records import MIN_TIMESTAMP
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.flat import milliseconds
from penstock.table.plan.changes import DELETE, UPDATE_BEFORE

#: the tag of the side output with the rows that leave the stream
REJECTED_ROWS: Final = "null-time"
_VALUE_CHARS_MAX: Final = 80


class NullTimeError(TableRuntimeError):
    """Raised for a row with a NULL event time. `record`: the row, for error messages."""

    def __init__(self, message: str, record: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.record)


class TimedRows(NamedTuple):
    """Rows with timestamps, their event times as a column, and the rejected rows or None."""

    batch: ColumnBatch
    times: pa.Array
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
