"""Planted bugs in the alignment of tasks with a broadcast input, in unaligned modes."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.runtime.graph import JobGraph
from penstock.runtime.task import stream_task as stream_task_module
from penstock.runtime.task.barriers import ForcedAlignedBarrierHandler, build_barrier_handler
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.checkpoints import TaskCheckpoints


def let_barriers_overtake_on_broadcast_edges() -> Any:
    """As they do elsewhere, and as they did before."""
    return mock.patch.object(JobGraph, "vertices_forced_aligned", return_value=set())


def let_a_barrier_overtake_on_the_way_to_a_task_that_aligns() -> Any:
    def forward(original: Any, checkpoints: Any, barrier: Any) -> Any:
        for partition in checkpoints._partitions.values():
            partition.supports_unaligned = True
        return original(checkpoints, barrier)

    return around(TaskCheckpoints, "_forward", forward)


def stop_aligning_at_the_time_out_everywhere() -> Any:
    def handler_for(settings: Any, gate: Any, target: Any, supports_unaligned: bool) -> Any:
        return build_barrier_handler(settings, gate, target, True)

    return mock.patch.object(stream_task_module, "build_barrier_handler", handler_for)


def capture_what_a_barrier_in_band_is_behind() -> Any:
    def forward(original: Any, checkpoints: Any, barrier: Any) -> Any:
        overtaken = original(checkpoints, barrier)
        for edge, partition in checkpoints._partitions.items():
            if barrier.is_unaligned and edge not in overtaken:
                queued = [(s.channel, [e for b in s._queue for e in b] + s._open) for s in partition.subpartitions]
                overtaken[edge] = queued
        return overtaken

    return around(TaskCheckpoints, "_forward", forward)


def do_not_hold_back_what_a_broadcast_waits_for() -> Any:
    def hold_back(original: Any, handler: Any, channel: Any) -> None:
        original(handler, channel)
        if isinstance(handler, ForcedAlignedBarrierHandler):
            handler.gate.unblock_all()

    return around(ForcedAlignedBarrierHandler, "_hold_back", hold_back)


def forget_barriers_in_band_on_broadcast_edges() -> Any:
    def broadcast(original: Any, partition: Any, event: Any, flush: bool = False) -> None:
        if partition.supports_unaligned or getattr(event, "alignment_timeout_ms", None) is None:
            original(partition, event, flush)

    return around(ResultPartition, "broadcast", broadcast)


#: As `mutants.MUTANTS`.
MUTANTS_OF_BROADCASTS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    let_barriers_overtake_on_broadcast_edges: (("in-flight",), 9),
    let_a_barrier_overtake_on_the_way_to_a_task_that_aligns: (("task-failed",), 9),
    stop_aligning_at_the_time_out_everywhere: (("in-flight",), 5),
    capture_what_a_barrier_in_band_is_behind: (("in-flight", "output"), 129),
    do_not_hold_back_what_a_broadcast_waits_for: (("output",), 271),
    forget_barriers_in_band_on_broadcast_edges: (("stalled",), 5),
}
