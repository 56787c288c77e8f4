"""Pending checkpoints: calls to the store, the tasks that hold them up, and the revocation of doubtful ones.

**Messages** from the checkpoint coordinator to the job master are values, handled once the handler has returned.

`StoreCalls` are background calls to the checkpoint store, with timeouts and detection of lost leadership. A store may
hang, such as a network file system whose server is down. A call that only reads, or only deletes unneeded files, is
abandoned after a timeout, and its late answer is ignored. If it matters whether a call was carried out, the job waits
for it, and the log says so.

`PendingCheckpoint` knows the tasks that must acknowledge it, and the acknowledgements so far.

`Stragglers` are the tasks that hold up a checkpoint: they have its barriers but have not acknowledged it. Pure. A task
that waits for the barrier of another task cannot acknowledge, and is not the one that holds the checkpoint up. So the
checkpoint waits for the missing tasks that do not read from another missing task.

`DoubtfulCheckpoints` revokes checkpoints that failed while their metadata was written, since they may be or become
visible (G8). A write that reports an error, or does not return in time, may still have succeeded, or may succeed later.
A later job master would start from any checkpoint that is visible. So the store is asked to revoke such a checkpoint,
repeatedly until it confirms, and no attempt of the job starts before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias, TypeVar

from penstock.base.errors import CallTimeoutError
from penstock.base.options import CHECKPOINTING_TIMEOUT_MS
from penstock.runtime.checkpoint.savepoints import SavepointRequest
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatus, SubtaskCheckpoint
from penstock.runtime.effects import Effects
from penstock.runtime.graph import Execution, ExecutionGraph, ExecutionState, ExecutionVertex
from penstock.runtime.ports import CheckpointStore, Clock
from penstock.runtime.protocol import AcknowledgeCheckpoint, ExecutionId, Failure
from penstock.runtime.records import MAX_WATERMARK
from penstock.state.operator_state import COMMITTABLE_MODE
from penstock.storage.leadership import DeposedError
from penstock.storage.metadata import CHANNEL_MODE, CheckpointMetadata, OperatorSubtaskState, StateFile


@dataclass(frozen=True, slots=True)
class CheckpointsFailed:
    """The job must restart: too many checkpoints failed, or a source ended for a savepoint that failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class CheckpointsSettled:
    """The outcome of every checkpoint is known."""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint that the job can restart from is complete."""


@dataclass(frozen=True, slots=True)
class SavepointSettled:
    """A requested savepoint is complete, at `path`, or has failed, for the reason `error`."""

    request: SavepointRequest
    path: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobDeposed:
    """Another job master has taken over the job."""

    error: DeposedError


CheckpointNews: TypeAlias = CheckpointCompleted | CheckpointsFailed | CheckpointsSettled | SavepointSettled | JobDeposed


T = TypeVar("T")


@dataclass
class _Waiting:
    what: str
    since_ms: int
    due_ms: int
    #: receives the timeout error; None for a call that must be waited for
    give_up: Callable[[BaseException], None] | None


class StoreCalls:
    """Makes store calls and reports lost leadership. After `patience_ms`, abandons a call or logs the wait for it."""

    def __init__(self, effects: Effects, tell: Callable[[JobDeposed], None], clock: Clock, patience_ms: int) -> None:
        self._effects = effects
        self._tell = tell
        self._clock = clock
        self._patience_ms = patience_ms
        self._waiting: dict[int, _Waiting] = {}
        self._made = 0

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work` like `Effects.run`, for callers with their own timeouts; skip `done` once deposed."""

        def answered(result: T | None, error: BaseException | None) -> None:
            if isinstance(error, DeposedError):
                self._tell(JobDeposed(error))
            else:
                done(result, error)

        self._effects.run(work, answered)

    def give_up_late(
        self, action: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Make a call that is harmless if carried out late; on timeout, `done` gets a `CallTimeoutError`."""
        self._watched(action, work, done, lambda error: done(None, error))

    def wait_for(
        self, action: str, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Make a call that must not be carried out after its caller has given up, so wait for it without a limit."""
        self._watched(action, work, done, None)

    def _watched(
        self,
        action: str,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        give_up: Callable[[BaseException], None] | None,
    ) -> None:
        self._made += 1
        number, now_ms = self._made, self._clock.steady_ms()
        self._waiting[number] = _Waiting(action, now_ms, now_ms + self._patience_ms, give_up)

        def answered(result: T | None, error: BaseException | None) -> None:
            if self._waiting.pop(number, None) is not None:
                done(result, error)

        self.run(work, answered)

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` is due."""
        return min((call.due_ms for call in self._waiting.values()), default=None)

    def on_time(self, now_ms: int) -> None:
        """Abandon overdue calls, or log that the job waits for them."""
        for number, call in list(self._waiting.items()):
            if now_ms < call.due_ms or number not in self._waiting:
                continue
            silence = f"the checkpoint store has not answered for {(now_ms - call.since_ms) // 1000} s"
            if call.give_up is None:
                call.due_ms = now_ms + self._patience_ms
                self._effects.log(f"{silence}; the job waits until it {call.what}")
            else:
                del self._waiting[number]
                call.give_up(CallTimeoutError(f"{silence} ({CHECKPOINTING_TIMEOUT_MS.key()})"))


class PendingCheckpoint:
    """Collects acknowledgements; once all have arrived, `metadata()` returns the result."""

    def __init__(
        self,
        checkpoint_id: int,
        timestamp_ms: int,
        begun_ms: int,
        graph: ExecutionGraph,
        bases: list[CheckpointMetadata],
        savepoint: SavepointRequest | None = None,
        savepoint_path: str | None = None,
        is_unaligned: bool = False,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        #: when it was triggered, for display
        self.timestamp_ms = timestamp_ms
        #: when it was triggered, for time-outs
        self.begun_ms = begun_ms
        #: when the last acknowledgement arrived
        self.acknowledged_ms: int | None = None
        self.savepoint = savepoint
        self.savepoint_path = savepoint_path
        #: Whether sources have ended for it, and so cannot continue if it fails.
        self.ends_sources = False
        #: The checkpoints whose files this one may build on: they must not be deleted while it is pending.
        self.bases = bases
        #: the last completed checkpoint when this one was triggered; 0 for none
        self.completed_id = bases[-1].checkpoint_id if bases else 0
        self.alignment_ms_max = 0
        self.held_back_bytes = 0
        #: whether it does not refer to files of earlier checkpoints
        self.is_full = False
        self.sync_ms_max = 0
        self.async_ms_max = 0
        self._graph = graph
        self._is_unaligned = is_unaligned
        executions = graph.executions()
        self._subtasks = len(executions)
        self.missing = {e.id for e in executions if e.state is not ExecutionState.FINISHED}
        self._finished = {e.id for e in executions if e.state is ExecutionState.FINISHED}
        #: tasks that were asked to send the barrier
        self._asked: set[ExecutionId] = set()
        #: tasks that have finished without a part, and so have not sent a barrier
        self._silent = set(self._finished)
        self._states: dict[ExecutionId, dict[str, OperatorSubtaskState]] = {}
        self._watermarks: dict[ExecutionId, dict[str, tuple[int, int]]] = {}
        self._parts: list[SubtaskCheckpoint] = []
        self.coordinators: dict[str, StateFile] = {}
        self.is_completing = False

    @property
    def acknowledged(self) -> int:
        """The number of subtasks that the checkpoint no longer waits for."""
        return self._subtasks - len(self.missing)

    def acknowledge(self, ack: AcknowledgeCheckpoint, now_ms: int) -> bool:
        """Add an acknowledgement received at `now_ms` (ms since the epoch); return whether it was the last one missing.

        Duplicates change nothing.
        """
        if ack.execution not in self.missing:
            return False
        self.missing.remove(ack.execution)
        self._states[ack.execution] = ack.operators
        self._watermarks[ack.execution] = ack.watermarks
        self.alignment_ms_max = max(self.alignment_ms_max, ack.alignment_ms)
        self.held_back_bytes += ack.held_back_bytes
        self.sync_ms_max = max(self.sync_ms_max, ack.sync_ms)
        self.async_ms_max = max(self.async_ms_max, ack.async_ms)
        self._parts.append(
            SubtaskCheckpoint(
                ack.execution.vertex,
                ack.execution.subtask,
                now_ms,
                max(0, now_ms - self.timestamp_ms),
                sum(file.length for state in ack.operators.values() for file in state.state_files()),
                ack.stored_bytes,
                ack.start_delay_ms,
                ack.alignment_ms,
                ack.held_back_bytes,
                ack.sync_ms,
                ack.async_ms,
                ack.processed_bytes,
                sum(_in_flight_bytes(state) for state in ack.operators.values()),
            )
        )
        if ack.finished:
            self._finished.add(ack.execution)
        return not self.missing

    def finish(self, execution: ExecutionId) -> bool:
        """Handle a task that has finished without a part of its own; return whether it was the last one missing.

        Its state is contained in the checkpoint that it waited for. Its channels have ended after its last records,
        which counts as the barrier.
        """
        if execution not in self.missing:
            return False
        self.missing.remove(execution)
        self._finished.add(execution)
        self._silent.add(execution)
        return not self.missing

    def ask(self, points: Iterable[Execution]) -> None:
        """Note the tasks that are asked to send the barrier."""
        self._asked.update(point.id for point in points)

    def cut_off(self, subtasks: Iterable[ExecutionVertex]) -> list[Execution]:
        """Return the subtasks that no barrier reaches unless they are asked, because all their producers are silent.

        A task may finish before it is asked, since it waits only for the previous checkpoint. A downstream task that
        took its part of that one before the end of its data, as happens without alignment, has yet to take its last
        part.
        """
        vertices = self._graph.vertices

        @cache  # all consumers of an edge may read from the same producers
        def are_silent(vertex: int, producers: range) -> bool:
            return all(vertices[vertex].subtasks[producer].current.id in self._silent for producer in producers)

        return [
            subtask.current
            for subtask in subtasks
            if subtask.current.id in self.missing
            and subtask.current.id not in self._asked
            and all(are_silent(*producers) for producers in self._graph.get_inputs(subtask))
        ]

    def record(
        self,
        status: CheckpointStatus,
        now_ms: int,
        state_bytes: int | None = None,
        failure: str | None = None,
        path: str | None = None,
        metadata_bytes: int = 0,
    ) -> CheckpointRecord:
        """Return a record for the history, as of `now_ms`, a steady time (ms)."""
        return CheckpointRecord(
            self.checkpoint_id,
            status,
            self.timestamp_ms,
            self.savepoint is not None,
            now_ms - self.begun_ms,
            sum(part.state_bytes for part in self._parts) if state_bytes is None else state_bytes,
            self.alignment_ms_max,
            self.held_back_bytes,
            self.sync_ms_max,
            self.async_ms_max,
            self._subtasks,
            self.acknowledged,
            self.savepoint_path or path,
            failure,
            self._is_unaligned and self.savepoint is None,
            self.savepoint is not None and self.savepoint.command.stop is not None,
            sum(part.stored_bytes for part in self._parts),
            tuple(self._parts),
            metadata_bytes,
        )

    def metadata(self, job_id: str) -> CheckpointMetadata:
        """Return the metadata to write."""
        assert not self.missing, f"checkpoint {self.checkpoint_id} lacks {len(self.missing)} acknowledgements"
        operators = []
        finished = self._finished_for_good()
        for job_vertex in self._graph.vertices:
            vertex = job_vertex.vertex
            for operator in vertex.operators:
                subtasks = {}
                for subtask in job_vertex.subtasks:
                    state = self._states.get(subtask.current.id, {}).get(operator.operator_id)
                    if state is None and subtask.current.id in self._finished:
                        state = self._carried(operator.operator_id, subtask.subtask)
                    if state:
                        subtasks[subtask.subtask] = state
                operators.append(
                    vertex.build_operator_state(
                        operator,
                        subtasks,
                        tuple(s.subtask for s in job_vertex.subtasks if s.current.id in finished),
                        self.coordinators.get(operator.operator_id),
                        self._collect_watermarks(operator.operator_id, job_vertex.subtasks),
                    )
                )
        return CheckpointMetadata(
            self.checkpoint_id,
            job_id,
            self._graph.job_graph.name,
            self.timestamp_ms,
            self.savepoint is not None,
            tuple(operators),
            self.savepoint_path,
            self.savepoint is not None and self.savepoint.command.stop is not None,
            self._graph.job_graph.edge_names(),
        )

    def _collect_watermarks(self, operator_id: str, subtasks: Iterable[ExecutionVertex]) -> dict[int, tuple[int, int]]:
        """Return an operator's watermarks by subtask, where time has begun; in a finished subtask, time is over."""
        watermarks = {}
        for subtask in subtasks:
            execution = subtask.current.id
            marks = self._watermarks.get(execution, {}).get(operator_id)
            if execution not in self._watermarks and execution in self._finished:
                marks = MAX_WATERMARK, MAX_WATERMARK
            if marks is not None:
                watermarks[subtask.subtask] = marks
        return watermarks

    def _carried(self, operator_id: str, subtask: int) -> OperatorSubtaskState | None:
        """Return the state that a finished subtask had at its end, from the previous checkpoint (G10).

        Its prepared committables are excluded: they were committed before the subtask was FINISHED.
        """
        # Nothing is carried over from the checkpoint that the job started from: its finished subtasks need no state any
        # more.
        operators = self.bases[-1].operators if self.bases else ()
        state = next((o.subtasks.get(subtask) for o in operators if o.operator_id == operator_id), None)
        if state is None:
            return None
        lists = {
            name: remaining
            for name, handles in state.operator.items()
            if (remaining := tuple(h for h in handles if h.mode not in (COMMITTABLE_MODE, CHANNEL_MODE)))
        }
        return OperatorSubtaskState(state.keyed, lists, state.native)

    def _finished_for_good(self) -> set[ExecutionId]:
        """Return the tasks that will not receive records after a recovery either.

        Without alignment, a task may reach the end of its data before its snapshot while an upstream task has not
        reached its own. After a recovery, the upstream task sends again.
        """
        finished = set[ExecutionId]()
        for job_vertex in self._graph.vertices:
            for subtask in job_vertex.subtasks:
                upstream = (producer.id for producer in self._graph.find_producers(subtask))
                if subtask.current.id in self._finished and finished.issuperset(upstream):
                    finished.add(subtask.current.id)
        return finished


def _in_flight_bytes(state: OperatorSubtaskState) -> int:
    """Return the size of the records in flight that a part stores."""
    handles = (handle for handles in state.operator.values() for handle in handles)
    return sum(handle.file.length for handle in handles if handle.mode == CHANNEL_MODE)


#: Stragglers are few: at most one in this many of the tasks that could have acknowledged, or a single task.
SHARE: Final = 4
#: Stragglers are late: the wait for them is at least this many times as long as all the others took.
TIMES: Final = 3


@dataclass(frozen=True)
class Stragglers:
    """The stragglers of a checkpoint.

    Attributes:
        checkpoint_id: the checkpoint.
        tasks: the stragglers.
        acknowledged: how many other tasks have acknowledged.
        acknowledged_after_ms: how long the last of these took.
        waited_ms: how long the checkpoint has waited since then.
    """

    checkpoint_id: int
    tasks: list[Execution]
    acknowledged: int
    acknowledged_after_ms: int
    waited_ms: int


def find_stragglers(graph: ExecutionGraph, pending: PendingCheckpoint) -> list[Execution]:
    """Return the tasks that a checkpoint waits for."""
    missing = pending.missing
    return [
        vertex.current
        for vertex in graph
        if vertex.current.id in missing and not any(e.id in missing for e in graph.find_producers(vertex))
    ]


def stragglers(graph: ExecutionGraph, pending: PendingCheckpoint, now_ms: int, patience_ms: int) -> Stragglers | None:
    """Return the few tasks that a checkpoint still waits for long after the others acknowledged it, or None."""
    last_ms, count = pending.acknowledged_ms, pending.acknowledged
    if pending.is_completing or last_ms is None:
        return None
    after_ms, waited_ms = last_ms - pending.begun_ms, now_ms - last_ms
    if waited_ms < max(patience_ms, TIMES * after_ms):
        return None
    tasks = find_stragglers(graph, pending)
    if len(tasks) > max(1, (count + len(tasks)) // SHARE):
        return None
    return Stragglers(pending.checkpoint_id, tasks, count, after_ms, waited_ms)


#: The delays before a revocation is repeated: after an error, and after a call that the store has not answered.
REVOKE_AGAIN_MS: Final = 1_000
REVOKE_UNANSWERED_MS: Final = 10_000


class DoubtfulCheckpoints:
    """See the module docstring. `on_revoked` is called when the store has revoked some."""

    def __init__(
        self,
        clock: Clock,
        effects: Effects,
        calls: StoreCalls,
        store: CheckpointStore,
        on_revoked: Callable[[], None],
    ) -> None:
        #: Checkpoints that are not revoked yet.
        self.open: dict[int, PendingCheckpoint] = {}
        #: Revoked checkpoints: they are invalid regardless of later writes by the store.
        self.revoked: set[int] = set()
        self._clock = clock
        self._effects = effects
        self._calls = calls
        self._store = store
        self._on_revoked = on_revoked
        self._again_ms: int | None = None
        #: checkpoints that were logged as blocking the job
        self._said: set[int] = set()

    def add(self, pending: PendingCheckpoint) -> None:
        """Add a failed checkpoint: revoke it, and all others that are open."""
        self.open[pending.checkpoint_id] = pending
        self._revoke()

    def clear(self) -> None:
        """Forget the open checkpoints: no attempt follows that they could mislead."""
        self.open.clear()
        self._again_ms = None

    def next_deadline(self) -> int | None:
        """Return the time (ms) when `on_time` is due."""
        return self._again_ms

    def on_time(self, now_ms: int) -> None:
        """Ask the store again if it has refused, or has not answered."""
        if self._again_ms is not None and now_ms >= self._again_ms:
            self._revoke()

    def _revoke(self) -> None:
        store, ids = self._store, list(self.open)
        self._again_ms = self._clock.steady_ms() + REVOKE_UNANSWERED_MS

        def work() -> None:
            for checkpoint_id in ids:
                store.revoke(checkpoint_id)

        def done(result: None, error: BaseException | None) -> None:
            open_ids = [checkpoint_id for checkpoint_id in ids if checkpoint_id in self.open]
            if not open_ids:
                return  # another call has revoked them, or the job is over
            if error is None:
                self._take_back(open_ids)
                return
            self._again_ms = self._clock.steady_ms() + REVOKE_AGAIN_MS
            self._say(open_ids[0], error)

        self._calls.run(work, done)

    def _take_back(self, ids: list[int]) -> None:
        for checkpoint_id in ids:
            del self.open[checkpoint_id]
            self.revoked.add(checkpoint_id)
        if not self.open:
            self._again_ms = None
        self._on_revoked()

    def _say(self, checkpoint_id: int, error: BaseException) -> None:
        if checkpoint_id not in self._said:
            self._said.add(checkpoint_id)
            self._effects.log(
                f"checkpoint {checkpoint_id} failed and may be visible all the same: the job does not restart until "
                f"the store has taken it back, which failed: {type(error).__name__}: {error}"
            )
