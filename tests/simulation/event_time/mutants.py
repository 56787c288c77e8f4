"""Planted bugs in what checkpoints hold of event time, and in where inputs that end meet idle ones."""

from __future__ import annotations

from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.runtime.checkpoint.pending import PendingCheckpoint
from penstock.runtime.job import slots as scheduler
from penstock.runtime.records import MIN_TIMESTAMP
from penstock.runtime.task.channels.input_gate import WatermarkValve
from penstock.runtime.task.operator_chain import OperatorChain


def begin_event_time_again_after_a_restart() -> Any:
    return mock.patch.object(scheduler, "restored_watermarks", return_value={})


def leave_event_time_out_of_checkpoints() -> Any:
    return mock.patch.object(PendingCheckpoint, "_collect_watermarks", return_value={})


def tell_no_operator_of_restored_event_time() -> Any:
    """The valve knows it, and passes watermarks up to there on to nobody."""

    def resume(original: Any, chain: Any, watermarks: Any) -> None:
        chain.watermark = max(watermarks.values(), default=MIN_TIMESTAMP)

    return around(OperatorChain, "resume_event_time", resume)


def count_ended_inputs_as_active() -> Any:
    """A task is idle only where all of its inputs are."""

    def settle(original: Any, valve: Any) -> Any:
        before = valve._idle
        change = original(valve)
        if not before and valve._idle and len(valve._idle_ones()) < len(valve._watermarks):
            valve._idle = False
            return change._replace(idle=None)
        return change

    return around(WatermarkValve, "_settle", settle)


#: Each with a seed that is known to find it.
MUTANTS: dict[Mutant, int] = {
    begin_event_time_again_after_a_restart: 31,
    leave_event_time_out_of_checkpoints: 31,
    tell_no_operator_of_restored_event_time: 31,
    count_ended_inputs_as_active: 2,
}
