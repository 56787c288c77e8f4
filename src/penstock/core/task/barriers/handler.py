"""The interface of barrier handlers, and of the task that they work for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

from penstock.core.records import Buffer, CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.channels.input_gate import InputChannel, InputGate

#: The elements before the barrier in a task's channels: (edge, producing subtask) to elements, in order.
InFlight: TypeAlias = dict[tuple[int, int], Buffer]


class CheckpointTarget(Protocol):
    """The task, as seen by barrier handlers."""

    def trigger_checkpoint(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back_bytes: int,
        is_complete: bool = True,
        processed_bytes: int = 0,
    ) -> None:
        """Forward the barrier and capture all state; unless `is_complete`, `complete_checkpoint` follows.

        The figures describe the alignment: how long it took, and the bytes held back and processed meanwhile.
        """
        ...

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        """Complete the task's part, because everything in flight in the channels has been captured."""
        ...

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """Take no part in the checkpoint, and notify the job master and the tasks downstream."""
        ...

    def now_ms(self) -> int: ...


class BarrierHandler(ABC):
    """Decides from the barriers received when to take part in a checkpoint."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        self.gate = gate
        self.target = target

    @abstractmethod
    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Handle a barrier polled from a channel."""

    @abstractmethod
    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """Handle a cancel marker polled from a channel."""

    @abstractmethod
    def on_channel_ended(self, channel: InputChannel) -> None:
        """Handle the end of a channel, which delivers no more barriers."""

    def on_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most modes have nothing to do
        """Handle a checkpoint that the coordinator has aborted."""

    def on_overtaking_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """Handle a barrier that has overtaken the records of its channel."""
        raise AssertionError(
            f"barrier {barrier.checkpoint_id} overtook records; {type(self).__name__} does not support that"
        )

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None:  # noqa: B027 - only unaligned modes look
        """Handle a buffer that has arrived on a channel, at the end of its queue."""

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:  # noqa: B027 - as above
        """Handle the arrival of an overtaking barrier; `on_overtaking_barrier` follows in the task's turn."""

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` has something to do."""
        return None

    def on_time(self, now_ms: int) -> None:  # noqa: B027 - most modes have nothing to do
        """Do the work that is due."""

    @property
    def capturing_id(self) -> int | None:
        """The checkpoint whose part has been taken but is not complete yet."""
        return None

    @abstractmethod
    def validate(self) -> None:
        """Assert the invariants that hold between any two steps. Only the simulator calls this, never a running job."""
