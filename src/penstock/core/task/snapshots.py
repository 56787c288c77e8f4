"""A task's parts of checkpoints, from the capture to the acknowledgement (F2, G7).

A part is stored in the background once it is complete. Parts whose records in flight are still being captured wait
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.healing import is_final_at_first, is_outside
from penstock.core.ports import Background, Clock, StateStorage
from penstock.core.protocol import AcknowledgeCheckpoint, DeclineCheckpoint, DeployTask
from penstock.core.records import CheckpointBarrier
from penstock.core.task.histories import StateHistories
from penstock.core.task.snapshot_writer import SnapshotWriter
from penstock.state.captures import StateCapture
from penstock.state.key_groups import key_group_range
from penstock.storage.metadata import OperatorSubtaskState


@dataclass
class Part:
    """A task's part of one checkpoint: the captures and their timings. `finished`: it was taken after `finish`."""

    barrier: CheckpointBarrier
    captures: dict[str, list[StateCapture]]
    finished: bool
    alignment_ms: int
    held_back_bytes: int
    sync_ms: int
    captured_ms: int
    start_delay_ms: int
    processed_bytes: int
    watermarks: dict[str, tuple[int, int]]


class TaskSnapshots:
    """Stores and acknowledges parts. `tell` sends to the job master; `is_over` returns whether the task has ended."""

    def __init__(
        self,
        deployment: DeployTask,
        storage: StateStorage,
        background: Background,
        clock: Clock,
        tell: Callable[[Any], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.histories = StateHistories()
        self._execution = deployment.execution
        self._max_parallelism = deployment.max_parallelism
        self.key_groups = key_group_range(
            deployment.execution.subtask, deployment.max_parallelism, deployment.parallelism
        )
        self._storage = storage
        self._background = background
        self._clock = clock
        self._tell = tell
        self._is_over = is_over
        #: the most recent part
        self.last_part: Part | None = None
        self._incomplete: dict[int, Part] = {}
        self._storing: set[int] = set()
        #: Whether the store has answered since the task last checked; the task resets it.
        self.has_answer = False

    @property
    def is_storing(self) -> bool:
        """Whether a part that the coordinator may be waiting for is still being stored."""
        return bool(self._storing)

    def add(self, part: Part, is_complete: bool) -> None:
        """Store a part, immediately or when `complete` is called."""
        self.last_part = replace(part, captures={})
        if is_complete:
            self._store(part)
        else:
            self._incomplete[part.barrier.checkpoint_id] = part

    def complete(self, checkpoint_id: int, operator_id: str, in_flight: Sequence[StateCapture]) -> None:
        """Add the records in flight ahead of the barrier to the part, and store it."""
        part = self._incomplete.pop(checkpoint_id, None)
        if part is not None:
            if in_flight:
                part.captures[operator_id].extend(in_flight)
            self._store(part)

    def is_waiting(self, checkpoint_id: int) -> bool:
        """Return whether a part waits for `complete`."""
        return checkpoint_id in self._incomplete

    def forget(self, checkpoint_id: int) -> None:
        """Forget an aborted checkpoint. Stop waiting for a part of it that is being stored."""
        self._storing.discard(checkpoint_id)
        part = self._incomplete.pop(checkpoint_id, None)
        for captures in part.captures.values() if part is not None else ():
            for capture in captures:
                capture.discard()

    def validate(self, capturing_id: int | None) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        expected = set() if capturing_id is None else {capturing_id}
        assert self._incomplete.keys() == expected, (
            f"parts {sorted(self._incomplete)} wait for records in flight, and those of {sorted(expected)} are captured"
        )
        self.histories.validate(self.key_groups)

    def _store(self, part: Part) -> None:
        execution, barrier = self._execution, part.barrier
        writer = SnapshotWriter(
            self._storage,
            barrier.checkpoint_id,
            execution,
            self.key_groups,
            self._max_parallelism,
            barrier.savepoint_path,
            is_full=barrier.is_full,
        )
        confirmed = self.histories.confirmed

        def stored(operators: dict[str, OperatorSubtaskState] | None, error: BaseException | None) -> None:
            self._storing.discard(barrier.checkpoint_id)
            self.has_answer = True
            if self._is_over():
                return
            if operators is None:
                assert error is not None
                reason = f"{type(error).__name__}: {error}"
                heals = (is_final_at_first(error), is_outside(error))
                self._tell(DeclineCheckpoint(execution, barrier.checkpoint_id, reason, True, *heals))
                return
            if barrier.savepoint_path is None:
                self.histories.on_stored(barrier.checkpoint_id, operators)
            self._tell(
                AcknowledgeCheckpoint(
                    execution,
                    barrier.checkpoint_id,
                    operators,
                    part.finished,
                    part.alignment_ms,
                    part.held_back_bytes,
                    part.sync_ms,
                    self._clock.now_ms() - part.captured_ms,
                    part.start_delay_ms,
                    writer.stored_bytes,
                    part.processed_bytes,
                    part.watermarks,
                )
            )

        self._storing.add(barrier.checkpoint_id)
        self._background.submit(lambda: writer.store(part.captures, confirmed), stored)
