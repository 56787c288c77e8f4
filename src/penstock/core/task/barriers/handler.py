"""The interface of all barrier handling, and of the task that it works for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

from penstock.core.records import Buffer, CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.channels.input_gate import InputChannel, InputGate

#: What was before the barrier in a task's channels: (edge, producing subtask) to elements, in order.
InFlight: TypeAlias = dict[tuple[int, int], Buffer]


class CheckpointTarget(Protocol):
    """The task, as barrier handling sees it."""

    def trigger_checkpoint(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back_bytes: int,
        is_complete: bool = True,
        processed_bytes: int = 0,
    ) -> None:
        """Pass the barrier on and capture all state; when not `is_complete`, `complete_checkpoint` follows.

        The figures are those of the alignment: how long it took, and what was held back and processed meanwhile.
        """
        ...

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        """All that was in flight in the channels is captured: the task's part is whole."""
        ...

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """The task takes no part in the checkpoint: tell the job master and the tasks downstream."""
        ...

    def now_ms(self) -> int: ...


class BarrierHandler(ABC):
    """Decides when the barriers that were seen make a checkpoint."""

    def __init__(self, gate: InputGate, target: CheckpointTarget) -> None:
        self.gate = gate
        self.target = target

    @abstractmethod
    def on_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """A barrier was polled from a channel."""

    @abstractmethod
    def on_cancel_marker(self, channel: InputChannel, marker: CancelCheckpointMarker) -> None:
        """A cancel marker was polled from a channel."""

    @abstractmethod
    def on_channel_ended(self, channel: InputChannel) -> None:
        """A channel has ended: it will deliver no more barriers."""

    def on_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - most modes have nothing to do
        """The coordinator has given the checkpoint up."""

    def on_overtaking_barrier(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:
        """A barrier has overtaken the records of its channel."""
        raise AssertionError(
            f"barrier {barrier.checkpoint_id} overtook records; {type(self).__name__} does not support that"
        )

    def on_arrival(self, channel: InputChannel, buffer: Buffer) -> None:  # noqa: B027 - only unaligned modes look
        """A buffer has arrived on a channel, after whatever waits there."""

    def on_barrier_arrival(self, channel: InputChannel, barrier: CheckpointBarrier) -> None:  # noqa: B027 - as above
        """An overtaking barrier has arrived; `on_overtaking_barrier` follows in the task's turn."""

    def next_deadline(self) -> int | None:
        """When (ms) `on_time` has something to do."""
        return None

    def on_time(self, now_ms: int) -> None:  # noqa: B027 - most modes have nothing to do
        """Do what is due."""

    @property
    def capturing_id(self) -> int | None:
        """The checkpoint of which the part was taken, and is not whole yet."""
        return None

    @abstractmethod
    def validate(self) -> None:
        """Assert what holds between any two steps. The simulator calls this; a running job never does."""
