"""Collects a task's current figures from its parts.

The breakdown of a task's time into busy, back-pressured and idle, as in Flink.

A task is busy during a step and back-pressured while it waits for its consumers. It is idle while it waits for input,
or for its worker's thread while other tasks use it: a cheap function next to a slow one is not busy, and more subtasks
of it would not help. On a saturated worker, the busy times of all tasks add up to the worker's total time.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.metrics import HistogramFigures
from penstock.runtime.protocol import OperatorFigures, TaskFigures
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.channels.result_partition import QUEUED_BUFFERS_MAX, ResultPartition
from penstock.runtime.task.checkpoints import Part
from penstock.runtime.task.processing import ProcessingLoop


class TaskTimes:
    """Totals in ms, as of the last step. A step itself always counts as busy."""

    __slots__ = (
        "_longest_ms",
        "_since_ms",
        "_wait_ms",
        "back_pressured_ms",
        "busy_ms",
        "idle_ms",
        "is_back_pressured",
        "mailbox_latency",
    )

    def __init__(self, now_ms: int) -> None:
        self.busy_ms = 0
        self.back_pressured_ms = 0
        self.idle_ms = 0
        self._since_ms: int = now_ms
        #: whether it currently waits for its consumers
        self.is_back_pressured = False
        #: the delay until its worker handles mail; None before the second report
        self.mailbox_latency: HistogramFigures | None = None
        self._wait_ms = 0
        self._longest_ms = 0

    def stepped(self, begun_ms: int, ended_ms: int, is_back_pressured: bool) -> None:
        """Account for a step and the wait before it (steady-clock times), and note the reason of the next wait."""
        waited = begun_ms - self._since_ms
        if self.is_back_pressured:
            self.back_pressured_ms += waited
            self._wait_ms += waited
            self._longest_ms = max(self._longest_ms, self._wait_ms)
        else:
            self.idle_ms += waited
        self.busy_ms += ended_ms - begun_ms
        if not is_back_pressured:
            self._wait_ms = 0
        self._since_ms, self.is_back_pressured = ended_ms, is_back_pressured

    def take_longest_back_pressure(self) -> int:
        """Return and reset the longest wait for the consumers (ms), as of the last step."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms


def task_figures(
    times: TaskTimes,
    gate: InputGate,
    partitions: Iterable[ResultPartition],
    loop: ProcessingLoop | None,
    operators: tuple[OperatorFigures, ...],
    fired_timers: int,
    last_part: Part | None,
    initialization_ms: int,
    mails: int,
    mails_queued: int,
    buffers_per_channel: int,
) -> TaskFigures:
    """Return the `TaskFigures`; `loop` can be None before the task is open, `last_part` before its first checkpoint."""
    partitions = tuple(partitions)
    remote = [channel for channel in gate.channels if channel.is_remote]
    subpartitions = [subpartition for partition in partitions for subpartition in partition.subpartitions]
    return TaskFigures(
        times.busy_ms,
        times.back_pressured_ms,
        times.idle_ms,
        times.is_back_pressured,
        initialization_ms,
        gate.bytes_in.bytes,
        sum(partition.bytes_out.bytes for partition in partitions),
        sum(channel.buffers_arrived for channel in gate.channels),
        sum(subpartition.buffers_sent for subpartition in subpartitions),
        sum(len(channel.queue) for channel in gate.channels),
        sum(subpartition.queued for subpartition in subpartitions),
        mails,
        mails_queued,
        0 if last_part is None else last_part.start_delay_ms,
        0 if last_part is None else last_part.alignment_ms,
        operators,
        fired_timers,
        gate.remote_bytes,
        sum(channel.buffers_arrived for channel in remote),
        len(gate.channels) * buffers_per_channel,
        len(subpartitions) * QUEUED_BUFFERS_MAX,
        times.take_longest_back_pressure(),
        times.mailbox_latency,
        None if loop is None else loop.hold(),
        None if loop is None else loop.makes_watermarks(),
    )
