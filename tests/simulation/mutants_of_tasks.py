"""Planted bugs in tasks and their state that `validate` finds, whatever becomes of the output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

from tests.simulation.planting import Mutant, around

from penstock.runtime.task.barriers import AlignedBarrierHandler, UnalignedBarrierHandler
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.channels.result_partition import Subpartition
from penstock.runtime.task.processing import ProcessingLoop
from penstock.runtime.task.stream_task import StreamTask
from penstock.state.backend import HeapKeyedStateBackend


def keep_recovered_output_until_a_flush() -> Any:
    def recover(subpartition: Any, elements: Any) -> None:
        subpartition._queue.appendleft(elements)

    return mock.patch.object(Subpartition, "recover", recover)


def return_credit_twice() -> Any:
    def poll(original: Any, gate: Any) -> Any:
        polled = original(gate)
        if polled is not None and not polled[0].queue:
            gate._return_credit(polled[0])
        return polled

    return around(InputGate, "poll", poll)


def close_when_the_next_message_comes() -> Any:
    def on_complete(task: Any, message: Any) -> None:
        task._checkpoints.on_complete(message.checkpoint_id)

    return mock.patch.object(StreamTask, "_on_complete", on_complete)


def go_on_capturing_for_an_aborted_checkpoint() -> Any:
    return mock.patch.object(UnalignedBarrierHandler, "on_aborted", AlignedBarrierHandler.on_aborted)


def align_on_what_was_given_up_before() -> Any:
    def on_aborted(original: Any, barriers: Any, checkpoint_id: int) -> None:
        original(barriers, checkpoint_id)
        barriers._aborted.clear()

    return around(AlignedBarrierHandler, "on_aborted", on_aborted)


def take_input_ahead_of_barriers_that_wait() -> Any:
    """After some steps for barriers alone."""

    def passes_input_over(original: Any, loop: Any) -> bool:
        is_due: bool = original(loop)
        if is_due and loop._gate.overtaking:
            loop._take_turn(loop._clock.now_ms())
        return is_due

    return around(ProcessingLoop, "passes_input_over", passes_input_over)


def capture_what_is_held_back_too() -> Any:
    def capture(original: Any, barriers: Any, *about: Any) -> None:
        original(barriers, *about[:3])

    return around(UnalignedBarrierHandler, "_capture", capture)


def restore_the_keys_of_others_too() -> Any:
    def restore_canonical(
        original: Any, backend: Any, name: str, files: Iterable[bytes], key_groups: Any = None, *more: Any
    ) -> Any:
        return original(backend, name, files, (0, backend.max_parallelism - 1), *more)

    return around(HeapKeyedStateBackend, "restore_canonical", restore_canonical)


#: As `mutants.MUTANTS`.
MUTANTS_OF_TASKS: dict[Mutant, tuple[tuple[str, ...], int]] = {
    keep_recovered_output_until_a_flush: (("invalid",), 214),
    return_credit_twice: (("invalid",), 1),
    close_when_the_next_message_comes: (("invalid",), 1),
    go_on_capturing_for_an_aborted_checkpoint: (("invalid",), 12),
    align_on_what_was_given_up_before: (("invalid",), 14),
    capture_what_is_held_back_too: (("invalid",), 9),
    restore_the_keys_of_others_too: (("invalid",), 57),
    take_input_ahead_of_barriers_that_wait: (("invalid",), 374),
}
