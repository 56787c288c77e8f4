"""Collects a task's current figures from its parts."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.protocol import OperatorFigures, TaskFigures
from penstock.core.task.channels.input_gate import InputGate
from penstock.core.task.channels.result_partition import QUEUED_BUFFERS_MAX, ResultPartition
from penstock.core.task.processing import ProcessingLoop
from penstock.core.task.snapshots import Part
from penstock.core.task.task_times import TaskTimes


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
