"""A task's part in checkpoints: the barrier handler triggers, this module takes the snapshot and answers (F2, G7).

One step takes a part, in this order: operators emit the records that must precede the barrier, the barrier leaves for
the downstream tasks, all state is captured. The part is then stored in the background (`snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.checkpoint.channel_states import ChannelState, Direction
from penstock.core.ports import Clock, StateStorage
from penstock.core.protocol import ChannelId, DeclineCheckpoint, ExecutionId
from penstock.core.records import Buffer, CancelCheckpointMarker, CheckpointBarrier
from penstock.core.task.barriers import InFlight
from penstock.core.task.channels.in_flight import capture_channel
from penstock.core.task.channels.result_partition import ResultPartition
from penstock.core.task.ending import Ending, HeldBarrier
from penstock.core.task.operator_chain import OperatorChain
from penstock.core.task.phases import Phase, TaskLife
from penstock.core.task.snapshots import Part, TaskSnapshots


class TaskCheckpoints:
    """Implements `CheckpointTarget` for the barrier handler; `tell` sends to the job master."""

    def __init__(
        self,
        execution: ExecutionId,
        chain: OperatorChain,
        partitions: dict[int, ResultPartition],
        snapshots: TaskSnapshots,
        life: TaskLife,
        ending: Ending,
        storage: StateStorage,
        clock: Clock,
        tell: Callable[[Any], None],
    ) -> None:
        self._execution = execution
        self._chain = chain
        self._partitions = partitions
        self._snapshots = snapshots
        self._life = life
        self._ending = ending
        self._storage = storage
        self._clock = clock
        self._tell = tell

    def now_ms(self) -> int:
        """Return the processing time in ms."""
        return self._clock.now_ms()

    def trigger_checkpoint(
        self,
        barrier: CheckpointBarrier,
        alignment_ms: int,
        held_back_bytes: int,
        is_complete: bool = True,
        processed_bytes: int = 0,
    ) -> None:
        """Pass the barrier on and capture all state; store it in the background once the part is complete (F2, G7)."""
        if barrier.ends_job and self._life.phase is Phase.DRAINING:
            self._ending.hold(HeldBarrier(barrier, alignment_ms, held_back_bytes))
            return
        chain, checkpoint_id = self._chain, barrier.checkpoint_id
        begun_ms = self.now_ms()
        self._confirm(barrier.completed_id)  # the notification may not have arrived yet
        chain.prepare_snapshot(checkpoint_id)
        overtaken = self._forward(barrier)
        captures = chain.snapshot_state(checkpoint_id, barrier.savepoint_path is not None)
        for edge in chain.program.out_edges:
            owner = chain.program.operators[edge.operator].operator_id
            for channel, elements in overtaken.get(edge.edge, ()):
                capture = capture_channel(ChannelState(Direction.OUT, edge.edge, channel.consumer), elements)
                if capture is not None:
                    captures[owner].append(capture)
        self._ending.on_part_taken(barrier)
        now = self.now_ms()
        has_finished = self._ending.has_finished
        delay_ms = max(0, begun_ms - barrier.timestamp_ms - alignment_ms)
        part = Part(
            barrier,
            captures,
            has_finished,
            alignment_ms,
            held_back_bytes,
            now - begun_ms,
            now,
            delay_ms,
            processed_bytes,
            chain.watermarks(),
        )
        self._snapshots.add(part, is_complete)

    def _forward(self, barrier: CheckpointBarrier) -> dict[int, list[tuple[ChannelId, Buffer]]]:
        overtaken = {}
        for edge, partition in self._partitions.items():
            if barrier.is_unaligned and partition.supports_unaligned:
                overtaken[edge] = partition.overtake(barrier)
            else:
                partition.broadcast(barrier.forced_aligned(), flush=True)
        return overtaken

    def complete_checkpoint(self, checkpoint_id: int, in_flight: InFlight) -> None:
        """Add the records in flight ahead of the barrier to the part of a checkpoint."""
        if not self._snapshots.is_waiting(checkpoint_id):
            return
        captures = [
            capture_channel(ChannelState(Direction.IN, edge, producer), elements)
            for (edge, producer), elements in in_flight.items()
        ]
        # Without operators (they finished before the restored checkpoint), no records can have been in flight.
        operator_id = self._chain.contexts[0].operator_id if self._chain.contexts else ""
        self._snapshots.complete(checkpoint_id, operator_id, [c for c in captures if c is not None])

    def abort_checkpoint(self, checkpoint_id: int, reason: str) -> None:
        """Decline a checkpoint and notify the downstream tasks."""
        self._snapshots.forget(checkpoint_id)
        for partition in self._partitions.values():
            partition.broadcast(CancelCheckpointMarker(checkpoint_id), flush=True)
        self._tell(DeclineCheckpoint(self._execution, checkpoint_id, reason))

    def on_complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint by the coordinator."""
        self._confirm(checkpoint_id)
        for operator in self._chain.operators:
            operator.notify_checkpoint_complete(checkpoint_id)
        self._ending.on_complete(checkpoint_id)

    def _confirm(self, checkpoint_id: int) -> None:
        """Let incremental state build on a completed checkpoint from now on."""
        self._snapshots.histories.on_complete(checkpoint_id)
        self._storage.on_complete(checkpoint_id)
        for context in self._chain.contexts:
            context.keyed.confirm(checkpoint_id)
            context.columns.confirm(checkpoint_id)

    def on_aborted(self, checkpoint_id: int) -> None:
        """Handle the abort of a checkpoint by the coordinator."""
        self._snapshots.forget(checkpoint_id)
        self._ending.on_aborted(checkpoint_id)
        for operator in self._chain.operators:
            operator.notify_checkpoint_aborted(checkpoint_id)
