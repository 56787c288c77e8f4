"""A task's part in checkpoints: the snapshot, its storage and its restore (F2, G7), and the end of a task (F3, H1, H2).

`StateHistories` are the keyed state of a task that checkpoints have stored, for later checkpoints to build on. Keyed
state is written as histories: the files of the last completed checkpoint, plus one file with the changes since.

`SnapshotWriter` writes a task's part of a checkpoint: each capture stores itself in the part of its operator. A history
whose changes have outgrown its first file is merged into a single new file. All of this happens in the background. A
file that a checkpoint references never changes.

`TaskSnapshots` are a task's parts of checkpoints, from the capture to the acknowledgement. A part is stored in the
background once it is complete. Parts whose records in flight are still being captured wait here.

`Ending` is the end of a task: whether its data ended for good, and which checkpoint it waits for. The end of the data
is final when all input has drained: the operators have finished, and no more records will follow. Otherwise a savepoint
only suspends the job, and the operators keep their state.

After the end of its data, a task waits for its *last checkpoint*, which commits its last output: the first checkpoint
that it takes after that end, or the savepoint that ends the job. A later one also qualifies. With checkpoints off there
is nothing to wait for, unless a savepoint ends the job.

By then, the task's part of a later checkpoint may still be on its way to the store. The task waits for that part and
acknowledges it: a checkpoint can do without the part of a finished task, but a savepoint lists all files in its
directory. The task takes no more parts meanwhile, or slow storage and frequent checkpoints could keep it alive
indefinitely.

The barrier of a savepoint that ends the job belongs after the end of the data. If it arrives while the task drains, it
is held here until then.

`TaskCheckpoints`: the barrier handler triggers, and it takes the snapshot and answers. One step takes a part, in this
order: operators emit the records that must precede the barrier, the barrier leaves for the downstream tasks, all state
is captured. The part is then stored in the background.

`restore_operator` restores a checkpoint's state into the backends of a task's operators. Keyed state arrives as
histories, which the next checkpoint continues where possible.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from penstock.runtime.failure import is_final_at_first, is_outside
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.ports import Background, Clock, StateStorage
from penstock.runtime.protocol import AcknowledgeCheckpoint, ChannelId, DeclineCheckpoint, DeployTask, ExecutionId
from penstock.runtime.records import Buffer, CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.task.barriers import InFlight
from penstock.runtime.task.channels.in_flight import capture_channel
from penstock.runtime.task.channels.result_partition import ResultPartition
from penstock.runtime.task.operator_chain import OperatorChain
from penstock.runtime.task.processing import Phase, TaskLife
from penstock.state.backend import NativeFiles
from penstock.state.key_columns import COLUMNS_SCHEMA, merge_columns
from penstock.state.keys import key_group_range
from penstock.state.snapshot import NativeCapture, StateCapture, merge_keyed, read_operator
from penstock.storage import metadata
from penstock.storage.metadata import CHANNEL_MODE, ChannelState, Direction, parse_channel

#: Maximum number of files in a history before it is merged, whatever their sizes; not for histories of columns.
HISTORY_FILES_MAX: Final = 16
#: In a history of columns, this many files of similar size become one.
COLUMNS_FILES_MERGED: Final = 7
#: Files of columns are not merged beyond this size.
COLUMNS_FILE_BYTES: Final = 1 << 26


def _count_similar(files: Sequence[metadata.StateFile], size: int) -> int:
    """Return how many of the last files are not much larger than `size` bytes, and small enough together to merge."""
    count = total = 0
    for file in reversed(files):
        total += file.length
        if file.length > 2 * size or total + size > COLUMNS_FILE_BYTES:
            break
        count += 1
    return count


@dataclass(frozen=True)
class StoredState:
    """The keyed state of a task as stored by one checkpoint, for the next one to build on."""

    #: maps (operator id, state name) to a history of canonical files
    keyed: dict[tuple[str, str], metadata.KeyedStateHandle] = field(default_factory=dict)
    #: maps an operator id to a backend's own files
    native: dict[str, metadata.NativeStateHandle] = field(default_factory=dict)


class StateHistories:
    """The state of a task as stored by the last completed checkpoint, and by checkpoints still in progress."""

    def __init__(self) -> None:
        self.confirmed = StoredState()
        self._stored: dict[int, StoredState] = {}

    def on_stored(self, checkpoint_id: int, operators: dict[str, metadata.OperatorSubtaskState]) -> None:
        """Record the files that a checkpoint has written."""
        self._stored[checkpoint_id] = StoredState(
            {
                (operator_id, name): handles[0]
                for operator_id, state in operators.items()
                for name, handles in state.keyed.items()
            },
            {operator_id: state.native[0] for operator_id, state in operators.items() if state.native},
        )

    def on_complete(self, checkpoint_id: int) -> None:
        """Let later checkpoints build on the files of a completed checkpoint."""
        stored = self._stored.get(checkpoint_id)
        if stored is not None:
            self.confirmed = stored
        self._stored = {i: histories for i, histories in self._stored.items() if i > checkpoint_id}

    def validate(self, key_groups: tuple[int, int]) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        for stored in (self.confirmed, *self._stored.values()):
            ranges = {(h.first_key_group, h.last_key_group) for h in stored.keyed.values()}
            ranges |= {(h.first_key_group, h.last_key_group) for h in stored.native.values()}
            assert ranges <= {key_groups}, f"histories have the key groups {ranges}, and their task {key_groups}"
            for (_, name), keyed in stored.keyed.items():
                count = len(keyed.files)
                assert count, f"the history of state {name!r} has no file"
                assert count <= HISTORY_FILES_MAX or keyed.schema == COLUMNS_SCHEMA, (
                    f"the history of state {name!r} has {count} files"
                )


class SnapshotWriter:
    """Writes the captures of one checkpoint in the background.

    Where a task may run twice at the same time, `run` distinguishes the runs of one attempt, so that none writes a file
    of another.
    """

    def __init__(
        self,
        storage: StateStorage,
        checkpoint_id: int,
        execution: ExecutionId,
        key_groups: tuple[int, int],
        max_parallelism: int,
        savepoint_path: str | None = None,
        run: str = "",
        *,
        is_full: bool = False,
    ) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.savepoint_path = savepoint_path
        #: whether the snapshot references no files of earlier checkpoints; later ones build on it
        self.is_full = is_full
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._execution = execution
        self._run = run and f"{run}-"
        #: bytes written so far
        self.stored_bytes = 0

    def store(
        self, captures: Mapping[str, Sequence[StateCapture]], confirmed: StoredState
    ) -> dict[str, metadata.OperatorSubtaskState]:
        """Write all captures; return their locations by operator."""
        operators = {}
        try:
            for operator_id, states in captures.items():
                part = OperatorPart(operator_id, self, confirmed)
                for capture in states:
                    capture.write_capture(part)
                operators[operator_id] = part.whole()
        finally:
            for capture in chain.from_iterable(captures.values()):
                capture.discard()
        if self.savepoint_path is None:
            files = (file for state in operators.values() for file in state.state_files())
            self._storage.on_stored(self._checkpoint_id, files)
        return operators

    def write(self, operator_id: str, name: str, data: bytes) -> metadata.StateFile:
        """Store one file of an operator's state."""
        execution = self._execution
        self.stored_bytes += len(data)
        file_name = f"{operator_id}-{execution.subtask}-{execution.attempt}-{self._run}{name}"
        return self._storage.write(self._checkpoint_id, file_name, data, self.savepoint_path)

    def read(self, file: metadata.StateFile) -> bytes:
        """Read a file of a history."""
        return self._storage.read(file)


class OperatorPart:
    """One operator's part of a checkpoint in progress. Implements `CaptureWriter`."""

    def __init__(self, operator_id: str, snapshot: SnapshotWriter, confirmed: StoredState) -> None:
        self.max_parallelism = snapshot.max_parallelism
        self._operator_id = operator_id
        self._snapshot = snapshot
        self._key_groups = snapshot.key_groups
        self._is_savepoint = snapshot.savepoint_path is not None
        self._is_whole = self._is_savepoint or snapshot.is_full
        self._histories = {name: h for (owner, name), h in confirmed.keyed.items() if owner == operator_id}
        self._base = confirmed.native.get(operator_id)
        self._keyed: dict[str, tuple[metadata.KeyedStateHandle, ...]] = {}
        self._lists: dict[str, tuple[metadata.OperatorStateHandle, ...]] = {}
        self._native: tuple[metadata.NativeStateHandle, ...] = ()

    def whole(self) -> metadata.OperatorSubtaskState:
        """Return everything stored, including the states without changes."""
        for name, handle in self._histories.items():
            if name not in self._keyed and handle.schema == COLUMNS_SCHEMA:
                self._keyed[name] = (self._continued_columns(name, handle, []),)
            elif name not in self._keyed:
                self._keyed[name] = (self._continued(name, handle, handle.schema, []),)
        return metadata.OperatorSubtaskState(self._keyed, self._lists, self._native)

    def write_list(self, name: str, mode: str, count: int, data: bytes) -> None:
        """See `CaptureWriter`."""
        self._lists[name] = (metadata.OperatorStateHandle(mode, count, self._write(name, data)),)

    def write_columns(self, name: str, is_addition: bool, data: bytes) -> None:
        """See `CaptureWriter`."""
        history = self._histories.get(name) if is_addition else None
        self._keyed[name] = (self._continued_columns(name, history, [data]),)

    def write_changes(self, name: str, schema: str, is_whole: bool, data: bytes) -> None:
        """See `CaptureWriter`."""
        history = self._histories.get(name)
        if history is not None and (is_whole or schema != history.schema):
            history = None  # the changes are the whole state, possibly under a new schema
        self._keyed[name] = (self._continued(name, history, schema, [data]),)

    def _continued(
        self, name: str, handle: metadata.KeyedStateHandle | None, schema: str, changes: list[bytes]
    ) -> metadata.KeyedStateHandle:
        """Return a history with the changes appended; a savepoint or full checkpoint merges it into a single file."""
        history = handle.files if handle is not None else ()
        if not self._is_whole:
            if handle is not None and not changes:
                return handle
            grown = sum(file.length for file in history[1:]) + sum(map(len, changes))
            if not history or (grown <= history[0].length and len(history) < HISTORY_FILES_MAX):
                return metadata.KeyedStateHandle(
                    *self._key_groups, (*history, *(self._write(name, c) for c in changes)), schema
                )
        merged = merge_keyed([*map(self._snapshot.read, history), *changes])
        return metadata.KeyedStateHandle(*self._key_groups, (self._write(name, merged),), schema)

    def _continued_columns(
        self, name: str, handle: metadata.KeyedStateHandle | None, additions: list[bytes]
    ) -> metadata.KeyedStateHandle:
        """Return a history of columns with a file appended, which may be merged with the small files before it.

        A savepoint or full checkpoint copies all files, merged up to `COLUMNS_FILE_BYTES`. No more than that is in
        memory at a time, because state in columns may be larger than memory.
        """
        history = handle.files if handle is not None else ()
        if self._is_whole:
            return self._columns_handle(self._copied_columns(name, history, additions))
        files = list(history)
        for data in additions:
            while True:
                similar = _count_similar(files, len(data))
                if similar < COLUMNS_FILES_MERGED:
                    break
                data = merge_columns([*map(self._snapshot.read, files[-similar:]), data])
                del files[-similar:]
            files.append(self._write(name, data))
        return self._columns_handle(files)

    def _columns_handle(self, files: list[metadata.StateFile]) -> metadata.KeyedStateHandle:
        return metadata.KeyedStateHandle(*self._key_groups, tuple(files), COLUMNS_SCHEMA)

    def _copied_columns(
        self, name: str, history: Sequence[metadata.StateFile], additions: list[bytes]
    ) -> list[metadata.StateFile]:
        files: list[metadata.StateFile] = []
        waiting: list[bytes] = []
        for data in chain(map(self._snapshot.read, history), additions):
            if waiting and sum(map(len, waiting)) + len(data) > COLUMNS_FILE_BYTES:
                files.append(self._write(name, merge_columns(waiting)))
                waiting = []
            waiting.append(data)
        files.append(self._write(name, waiting[0] if len(waiting) == 1 else merge_columns(waiting)))
        return files

    def write_native(self, capture: NativeCapture) -> None:
        """Store the backend's own files, except those in the base checkpoint; in a savepoint, store canonical files."""
        if not self._is_savepoint:
            base = {} if self._base is None or self._is_whole else self._base.files
            files = capture.store(self._write, base)
            self._native = (
                metadata.NativeStateHandle(capture.backend, *self._key_groups, files, dict(capture.schemas)),
            )
            return
        exported: dict[str, tuple[metadata.StateFile, ...]] = {}
        for name, data in capture.export():
            exported[name] = (*exported.get(name, ()), self._write(name, data))
        for name, of_state in exported.items():
            handle = metadata.KeyedStateHandle(*self._key_groups, of_state, capture.schemas.get(name, ""))
            self._keyed[name] = (handle,)

    def _write(self, name: str, data: bytes) -> metadata.StateFile:
        return self._snapshot.write(self._operator_id, name, data)


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

        def stored(operators: dict[str, metadata.OperatorSubtaskState] | None, error: BaseException | None) -> None:
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


class EndOfTask(enum.Enum):
    """The end of a task's data: final, or a suspension."""

    #: For good: the operators have finished.
    FINISHED = "FINISHED"
    #: By a savepoint: another job continues from there.
    SUSPENDED = "SUSPENDED"


class HeldBarrier(NamedTuple):
    """A barrier that waits for the end of the data, and the cost of its alignment."""

    barrier: CheckpointBarrier
    alignment_ms: int
    held_back_bytes: int


class Ending:
    """See the module docstring."""

    def __init__(self, has_checkpoints: bool) -> None:
        #: How the data ended; None before that.
        self.how: EndOfTask | None = None
        self.last_checkpoint_id: int | None = None
        #: Whether the last checkpoint is complete.
        self.is_committed = False
        self.held: HeldBarrier | None = None
        self._has_checkpoints = has_checkpoints

    @property
    def has_finished(self) -> bool:
        """Whether the data has ended for good."""
        return self.how is EndOfTask.FINISHED

    @property
    def may_close(self) -> bool:
        """Whether the task, after the end of its data, no longer needs to wait for a checkpoint."""
        return self.is_committed or not (self._has_checkpoints or self.last_checkpoint_id is not None)

    def on_stop(self, savepoint_id: int) -> None:
        """Wait for the completion of the savepoint that ends a source, even with checkpoints off."""
        assert self.how is None, "a source is stopped before its data has ended"
        self.last_checkpoint_id = savepoint_id

    def hold(self, held_barrier: HeldBarrier) -> None:
        """Hold the barrier of the savepoint that ends the job, because it arrived before the end of the data."""
        assert held_barrier.barrier.ends_job, (
            f"barrier {held_barrier.barrier.checkpoint_id} ends no job, and waits for nothing"
        )
        assert self.how is None, "a barrier behind the end of the data is not held"
        self.held = held_barrier

    def on_end_of_data(self, how: EndOfTask) -> HeldBarrier | None:
        """Record how the data ended, and return the barrier that waited for it."""
        assert self.how is None, "the data of a task ends once"
        self.how = how
        held_barrier, self.held = self.held, None
        return held_barrier

    def on_part_taken(self, barrier: CheckpointBarrier) -> None:
        """Note that the task has taken its part of a checkpoint, which may be the last one."""
        if self.how is None:
            return
        # Without checkpoints, tasks learn of a savepoint's completion only if the savepoint ends the job.
        is_first = self._has_checkpoints and self.last_checkpoint_id is None
        if is_first or barrier.ends_job:
            self.last_checkpoint_id = barrier.checkpoint_id

    def is_last(self, checkpoint_id: int) -> bool:
        """Return whether this checkpoint, once complete, commits the end of the task."""
        return self.last_checkpoint_id is not None and checkpoint_id >= self.last_checkpoint_id

    def on_complete(self, checkpoint_id: int) -> None:
        """Handle the completion of a checkpoint."""
        self.is_committed = self.is_committed or self.is_last(checkpoint_id)

    def on_aborted(self, checkpoint_id: int) -> None:
        """Stop holding the barrier of an aborted checkpoint."""
        if self.held is not None and self.held.barrier.checkpoint_id == checkpoint_id:
            self.held = None

    def validate(self) -> None:
        """Assert the invariants that hold between steps. The simulator calls this; a running job never does."""
        assert not self.is_committed or self.last_checkpoint_id is not None, (
            "an end is committed by the last checkpoint, which there must be"
        )
        assert self.held is None or self.how is None, "no barrier is held behind the end of the data"


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


def restore_operator(
    restored: metadata.OperatorSubtaskState,
    context: OperatorContext,
    storage: StateStorage,
    key_groups: tuple[int, int],
    histories: StateHistories | None,
    recover_channel: Callable[[ChannelState, list[object]], None],
) -> None:
    """Load an operator's part of a checkpoint into its backends, restricted to the subtask's own key groups (D4).

    A history of exactly these key groups continues: the next checkpoint only appends to it. The next checkpoint writes
    the whole state if the parallelism or classes have changed, or without `histories`, because the files then belong to
    another job.
    """
    keyed = context.keyed
    if restored.native:
        keyed.restore_native([_to_native_files(handle, storage) for handle in restored.native])
        if histories is not None and _is_whole(restored.native, key_groups):
            histories.confirmed.native[context.operator_id] = restored.native[0]
    for name, handles in restored.keyed.items():
        if handles and handles[0].schema == COLUMNS_SCHEMA:
            goes_on = _is_whole(handles, key_groups) and histories is not None
            for handle in handles:
                written = (handle.first_key_group, handle.last_key_group)
                files = map(storage.read, handle.files)
                context.columns.restore(name, files, written, key_groups, keyed.max_parallelism, goes_on)
            if goes_on:
                assert histories is not None
                histories.confirmed.keyed[(context.operator_id, name)] = handles[0]
            continue
        goes_on = keyed.adds_to_canonical and _is_whole(handles, key_groups) and histories is not None
        for handle in handles:
            files = map(storage.read, handle.files)
            goes_on = keyed.restore_canonical(name, files, key_groups, goes_on, handle.schema)
        if goes_on:
            assert histories is not None
            histories.confirmed.keyed[(context.operator_id, name)] = handles[0]
    for name, lists in restored.operator.items():
        for state in lists:
            items = read_operator(storage.read(state.file))[state.first :: state.step]
            if state.mode == CHANNEL_MODE:
                recover_channel(parse_channel(name), items)
            else:
                context.operator_state.restore(name, state.mode, items)


def _is_whole(
    handles: Sequence[metadata.KeyedStateHandle | metadata.NativeStateHandle], key_groups: tuple[int, int]
) -> bool:
    return len(handles) == 1 and (handles[0].first_key_group, handles[0].last_key_group) == key_groups


def _to_native_files(handle: metadata.NativeStateHandle, storage: StateStorage) -> NativeFiles:
    read = {name: partial(storage.read, file) for name, file in handle.files.items()}
    return NativeFiles(handle.backend, handle.first_key_group, handle.last_key_group, read, handle.schemas)
