"""I/O and time metrics of one subtask, or of several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.core.job.view import JobView, SubtaskView
from penstock.operations.rest.shapes.numbers import Number, Spread, spread
from penstock.operations.rest.shapes.times import SPENT, status_durations


class IOMetrics(msgspec.Struct, frozen=True, rename="kebab"):
    """Totals of the current attempt; a value is complete once all its tasks have reported it."""

    read_bytes: int
    read_bytes_complete: bool
    write_bytes: int
    write_bytes_complete: bool
    read_records: int
    read_records_complete: bool
    write_records: int
    write_records_complete: bool
    accumulated_backpressured_time: int
    accumulated_idle_time: int
    accumulated_busy_time: Number


class Aggregated(msgspec.Struct, frozen=True, rename="kebab"):
    """The same metrics as distributions over subtasks."""

    metrics: dict[str, Spread]
    status_duration: dict[str, Spread]


Total = tuple[int, int, int, int, int, int, int]
_NAMES: Final = (
    "read-bytes",
    "write-bytes",
    "read-records",
    "write-records",
    "accumulated-backpressured-time",
    "accumulated-idle-time",
    "accumulated-busy-time",
)


def totals(subtask: SubtaskView) -> Total:
    """Return the metrics of a subtask, in the order of `_NAMES`; zeros before its first report."""
    metrics = subtask.metrics
    if metrics is None:
        return (0, 0, 0, 0, 0, 0, 0)
    of_time = metrics.figures
    if of_time is None:
        return (0, 0, metrics.records_in, metrics.records_out, 0, 0, 0)
    return (
        of_time.bytes_in,
        of_time.bytes_out,
        metrics.records_in,
        metrics.records_out,
        of_time.back_pressured_ms,
        of_time.idle_ms,
        of_time.busy_ms,
    )


def io_metrics(subtasks: Sequence[SubtaskView]) -> IOMetrics:
    """Return the sums of some subtasks' metrics."""
    bytes_in, bytes_out, records_in, records_out, back_pressured, idle, busy = (
        sum(column) for column in zip(*map(totals, subtasks), strict=True)
    )
    counted = all(subtask.metrics is not None for subtask in subtasks)
    measured = all(subtask.metrics is not None and subtask.metrics.figures is not None for subtask in subtasks)
    return IOMetrics(
        bytes_in,
        measured,
        bytes_out,
        measured,
        records_in,
        counted,
        records_out,
        counted,
        back_pressured,
        idle,
        busy if measured else "NaN",
    )


def aggregated(view: JobView, subtasks: Sequence[SubtaskView]) -> Aggregated:
    """Return the distribution of each metric over some subtasks."""
    columns = zip(*map(totals, subtasks), strict=True)
    durations = [status_durations(view, subtask) for subtask in subtasks]
    spent: Callable[[str], Spread] = lambda name: spread([max(0, by_state[name]) for by_state in durations])  # noqa: E731
    return Aggregated(
        {name: spread(column) for name, column in zip(_NAMES, columns, strict=True)},
        {state.name: spent(state.name) for state in SPENT},
    )
