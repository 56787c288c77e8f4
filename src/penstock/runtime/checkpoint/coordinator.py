"""The checkpoint coordinator: triggers checkpoints, collects acknowledgements, completes and notifies (G6).

Theory. A checkpoint exists once its metadata is visible in the store, and not before. Only then does the coordinator
notify tasks, so everything that they commit after that is covered by a checkpoint that a recovery will find. Ids only
increase. A completed checkpoint subsumes all older pending ones. Savepoints are taken one at a time and without
concurrent checkpoints, see `savepoints`.

The job master drives the coordinator, which never runs on its own; `on_time` drives its timers. Its decisions leave as
effects; events that concern the whole job leave as messages to the job master, which handles them after the handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from penstock.runtime import protocol
from penstock.runtime.checkpoint import statistics
from penstock.runtime.checkpoint.pending import (
    CheckpointCompleted,
    CheckpointNews,
    CheckpointsFailed,
    CheckpointsSettled,
    DoubtfulCheckpoints,
    PendingCheckpoint,
    SavepointSettled,
    StoreCalls,
    Stragglers,
    find_stragglers,
    stragglers,
)
from penstock.runtime.checkpoint.savepoints import Choice, Forerunners, SavepointRequest, forerunners, savepoint_path
from penstock.runtime.effects import Effects
from penstock.runtime.failure import is_final_at_first, is_outside
from penstock.runtime.graph import Execution, ExecutionGraph
from penstock.runtime.ports import CheckpointStore, Clock
from penstock.storage.leadership import BEGUN, JobMark, LeftByJobs
from penstock.storage.metadata import CheckpointMetadata, StateFile, checksum, encode_metadata, garbage

#: The longest pause (ms) after a checkpoint that took longer than the interval. Longer intervals do not add a pause.
PAUSE_MS_MAX: Final = 100
#: How long (ms) the id of a full checkpoint triggered by interval answers a request for a full one.
ANSWER_MS_MAX: Final = 60_000
#: The delay (ms) before a failed last checkpoint is retried, in a job that only waits for it.
LAST_CHECKPOINT_RETRY_MS: Final = 1_000


class EnumeratedSource(Protocol):
    """A source with a split enumerator, as seen by checkpoints."""

    @property
    def operator_id(self) -> str: ...

    def snapshot(self, checkpoint_id: int, completed_id: int) -> bytes:
        """Return the enumerator's current state; raise its errors. `completed_id`: the last completed checkpoint."""
        ...


class CheckpointCoordinator:
    """See the module docstring."""

    def __init__(
        self,
        settings: statistics.CheckpointSettings,
        graph: ExecutionGraph,
        job_id: str,
        sources: Sequence[EnumeratedSource],
        clock: Clock,
        effects: Effects,
        store: CheckpointStore,
        tell: Callable[[CheckpointNews], None],
        unacknowledged: Callable[[Iterable[Execution]], str],
    ) -> None:
        self.settings = settings
        self.statistics = statistics.CheckpointStatistics()
        #: Completed checkpoints that are retained, oldest first.
        self.completed: list[CheckpointMetadata] = []
        self._graph = graph
        self._job_id = job_id
        self._sources = sources
        self._clock = clock
        self._effects = effects
        self._store = store
        self._tell = tell
        #: describes the tasks that have not acknowledged a checkpoint, and their locations
        self._unacknowledged = unacknowledged
        #: calls to the checkpoint store, also those of the job's recovery
        self.calls = StoreCalls(effects, tell, clock, settings.timeout_ms)
        #: The savepoint or foreign checkpoint that the job started from, if any.
        self.initial: CheckpointMetadata | None = None
        #: The savepoint that ends the job, once it is complete: no checkpoint follows.
        self.last: CheckpointMetadata | None = None
        #: the jobs that this one continues: their files are deleted once it has a checkpoint of its own
        self._forerunners = Forerunners()
        self._replaces_forerunners = False
        self._has_deleted_forerunners = False
        #: Directories of aborted savepoints: tasks may write into them until they have ended.
        self.given_up: list[str] = []
        self._requests: deque[SavepointRequest] = deque()
        self._pending: dict[int, PendingCheckpoint] = {}
        #: Checkpoints whose metadata is being written, aborted or not: they may become visible, so their files are
        #: kept. Unless the job is over, one that becomes visible is complete, and a recovery waits for the outcome.
        self._writing: dict[int, PendingCheckpoint] = {}
        self._doubtful = DoubtfulCheckpoints(clock, effects, self.calls, store, self._on_revoked)
        self._last_id = 0
        self._running = False
        self._next_ms: int | None = None
        self._is_full_due = False
        #: the full checkpoint triggered by interval that a request waits for: its id, and when it began
        self._full: tuple[int, int] | None = None
        self._failures_in_a_row = 0
        self._collecting = False
        self._collect_again = False
        #: damaged checkpoints that were skipped since the job last ran
        self._dropped: list[CheckpointMetadata] = []
        self._keeps_all = False
        #: how the job has ended; recorded before its checkpoints are deleted
        self._mark: JobMark | None = None
        #: whether the job's start is being recorded; its end must not be recorded before that
        self._is_marking_begin = False

    def validate(self) -> None:
        """Assert the invariants between two turns. The simulator calls this; a running job never does."""
        ids = [metadata.checkpoint_id for metadata in self.completed]
        assert ids == sorted(set(ids)), f"kept checkpoints are in order, not {ids}"
        assert all(checkpoint_id <= self._last_id for checkpoint_id in (*ids, *self._pending, *self._writing)), (
            "no checkpoint has an id that was never allocated"
        )
        open_ones = [pending for pending in self._pending.values() if not pending.is_completing]
        assert self._running or not open_ones, "no checkpoint is pending while the job does not run"
        assert self._next_ms is None or self._running, "no checkpoint is due while the job does not run"
        savepoints = [pending for pending in open_ones if pending.savepoint is not None]
        assert len(savepoints) <= 1, "savepoints are taken one after another"
        limit = self.settings.concurrent_max
        assert len(open_ones) <= limit + len(savepoints), f"{len(open_ones)} checkpoints are pending at once"
        assert not any(pending.cut_off(self._graph) for pending in open_ones), "barriers can reach every task"
        assert self.last is None or not open_ones, "nothing follows the savepoint that ends the job"
        assert self._failures_in_a_row >= 0, "failures are counted from 0"

    # --- driven by the job master ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to trigger checkpoints: all tasks have been deployed."""
        self._running = True
        self._dropped.clear()
        self._failures_in_a_row = 0
        if self.settings.interval_ms is not None:
            self._next_ms = self._clock.steady_ms() + self.settings.interval_ms

    def stop(self, reason: str) -> None:
        """Abort all pending checkpoints; trigger none until `start`."""
        self._running = False
        self._next_ms = None
        self.interrupt(reason)

    def interrupt(self, reason: str) -> None:
        """Abort all pending checkpoints: a part of the job restarts while the others continue."""
        for pending in list(self._pending.values()):
            if not pending.is_completing:
                self._abort(pending.checkpoint_id, reason, counts=False)

    @property
    def ends_job(self) -> bool:
        """Whether a savepoint that ends the job is pending or complete: sources end for it."""
        savepoints = (pending.savepoint for pending in self._pending.values())
        return self.last is not None or any(s is not None and s.command.stop is not None for s in savepoints)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome of every checkpoint is known; the job master is notified when this becomes true again.

        No attempt starts before that. It would start from an older checkpoint, and sinks would remove output that only
        the doubtful one covers. If that one became visible, a later job master would start from it, without its output.
        """
        return not self._doubtful.open and not any(pending.is_completing for pending in self._pending.values())

    def next_deadline(self) -> int | None:
        """Return the time (ms) when `on_time` is due."""
        times = [p.begun_ms + self.settings.timeout_ms for p in self._pending.values()]
        if (again_ms := self._doubtful.next_deadline()) is not None:
            times.append(again_ms)
        times += [request.deadline_ms for request in self._requests]
        times += [request.again_ms for request in self._requests if request.again_ms is not None]
        if (calls_ms := self.calls.next_deadline()) is not None:
            times.append(calls_ms)
        if self._next_ms is not None and self._admits():
            times.append(self._next_ms)
        return min(times) if times else None

    def on_time(self, now_ms: int) -> None:
        """Abort checkpoints that have timed out; trigger those due now."""
        was_settled = self.is_settled
        for pending in list(self._pending.values()):
            if now_ms >= pending.begun_ms + self.settings.timeout_ms:
                # The next checkpoint may be faster, so this failure is not final.
                reason = f"not complete within {self.settings.timeout_ms} ms: {self._what_is_missing(pending)}"
                self._doubt(pending)
                self._abort(pending.checkpoint_id, reason, self._running, (False, True))
        self._doubtful.on_time(now_ms)
        self.calls.on_time(now_ms)
        self._tell_if_settled_now(was_settled)
        for request in [r for r in self._requests if now_ms >= r.deadline_ms]:
            self._requests.remove(request)
            why = request.declined or "not all tasks were running"
            self._refuse(request, f"it could not start within {self.settings.timeout_ms} ms: {why}")
        self._try_again(now_ms)
        if self._next_ms is not None and now_ms >= self._next_ms and self._admits():
            self._schedule_next(now_ms)
            if self._graph.is_ready_for_checkpoints:
                self._trigger_by_interval()

    def _what_is_missing(self, pending: PendingCheckpoint) -> str:
        if pending.is_completing:
            return "the store has not yet answered for its metadata"
        tasks = find_stragglers(self._graph, pending)
        behind = len(pending.missing) - len(tasks)
        return self._unacknowledged(tasks) + (f"; nor have {behind} tasks that read from these" if behind else "")

    def stragglers(self, now_ms: int, patience_ms: int) -> list[Stragglers]:
        """Return, per checkpoint, the few tasks that acknowledge more than `patience_ms` later than all others."""
        reports = (stragglers(self._graph, pending, now_ms, patience_ms) for pending in self._pending.values())
        return [report for report in reports if report is not None]

    def request_savepoint(self, request: SavepointRequest) -> None:
        """Take a savepoint as soon as all tasks run and are ready for it, and no checkpoint is pending."""
        ending = [r for r in self._waiting() if r.command.stop is not None]
        if self.last is not None or ending:
            self._refuse(request, "the job is already being stopped with a savepoint")
            return
        self._requests.append(request)
        self.serve_requests()

    def _waiting(self) -> list[SavepointRequest]:
        return [*(p.savepoint for p in self._pending.values() if p.savepoint is not None), *self._requests]

    def serve_requests(self) -> None:
        """Begin the next requested savepoint, if possible; called whenever that may have changed."""
        if not self._requests or not self._running or self._pending or not self._graph.is_ready_for_checkpoints:
            return
        request = self._requests[0]
        if request.again_ms is not None or (request.command.stop is not None and not self._all_may_end()):
            return
        self._requests.popleft()
        if self._trigger(request) is None:
            self._refuse(
                request, "no task is left to take the savepoint, or a source's enumerator could not be captured"
            )

    def _all_may_end(self) -> bool:
        """Return whether all tasks below finished ones are ready for a savepoint that ends the job.

        Such a task declines the savepoint until it has read its inputs to their end. Sources that have ended in the
        meantime could not continue, and the job would restart.
        """
        points = self._graph.injection_points()
        return not self._ends_sources(points) or all(
            execution.end_of_data or self._is_source(execution) for execution in points
        )

    def _ends_sources(self, points: list[Execution]) -> bool:
        return any(self._is_source(execution) and not execution.end_of_data for execution in points)

    def _is_source(self, execution: Execution) -> bool:
        return bool(self._graph.job_graph.vertices[execution.id.vertex].sources)

    def _try_again(self, now_ms: int) -> None:
        """Retry postponed savepoints that are due."""
        due = [
            pending_request
            for pending_request in self._requests
            if pending_request.again_ms is not None and now_ms >= pending_request.again_ms
        ]
        for request in due:
            request.again_ms = None
        if due:
            self.serve_requests()

    def _refuse(self, request: SavepointRequest, reason: str) -> None:
        self._tell(SavepointSettled(request, None, reason))

    def end(self, reason: str) -> None:
        """Abort all pending checkpoints and refuse all requests: the job is over."""
        self.stop(reason)
        for checkpoint_id in list(self._pending):
            self._abort(checkpoint_id, reason, counts=False)
        self._doubtful.clear()
        requests, self._requests = self._requests, deque()
        for request in requests:
            self._refuse(request, reason)

    def suspend(self) -> None:
        """Stop completing checkpoints, notifying tasks and deleting files: another job master leads the job."""
        requests = self._waiting()
        self._running, self._next_ms = False, None
        self._pending.clear()
        self._doubtful.clear()
        self._requests.clear()
        for request in requests:
            self._refuse(request, "the job was suspended, because another job master leads")
        self.keep_all()

    def trigger_soon(self) -> None:
        """Do not wait for the interval: all data was processed, and only a checkpoint is missing (F6)."""
        if self._running and self._next_ms is not None:
            self._next_ms = self._clock.steady_ms()

    def on_acknowledge(self, ack: protocol.AcknowledgeCheckpoint) -> None:
        """Handle the acknowledgement of a task, whose part is stored."""
        pending = self._pending.get(ack.checkpoint_id)
        if pending is not None and not pending.is_completing:
            if ack.execution in pending.missing:
                pending.acknowledged_ms = self._clock.steady_ms()
            if pending.acknowledge(ack, self._clock.now_ms()):
                self._complete(pending)

    def on_decline(self, decline: protocol.DeclineCheckpoint) -> None:
        """Handle a task that cannot take part."""
        pending = self._pending.get(decline.checkpoint_id)
        # A task that had finished before the trigger arrived is not missing, see `on_finished`.
        is_missed = pending is not None and decline.execution in pending.missing
        if pending is not None and not pending.is_completing and (is_missed or not decline.is_unready):
            execution = self._graph.find(decline.execution)
            name = decline.execution if execution is None else f"'{self._graph.get_subtask_name(execution)}'"
            reason = f"declined by {name}: {decline.reason}"
            heals = (decline.is_final_at_first, decline.is_outside)
            self._abort(decline.checkpoint_id, reason, decline.is_failure, heals, decline.is_unready)

    def on_finished(self, execution: Execution) -> None:
        """Handle a task that has ended successfully: it will not acknowledge any further checkpoint, and need not."""
        for pending in list(self._pending.values()):
            if pending.is_completing:
                continue
            if pending.finish(execution.id):
                self._complete(pending)
            else:
                self._ask(pending, pending.cut_off(self._graph.find_consumers(execution)))

    def recover(self, completed: Iterable[CheckpointMetadata], last_id: int) -> None:
        """Continue where another job master stopped: with its checkpoints, oldest first, and with higher ids."""
        self.completed = list(completed)
        self._keeps_all = False
        self._last_id = max([self._last_id, last_id, *(metadata.checkpoint_id for metadata in self.completed)])
        if self.completed and self.completed[-1].ends_job:
            self.last = self.completed[-1]

    def begin_from(self, initial: CheckpointMetadata) -> None:
        """Start from another job's checkpoint or savepoint; new ids are higher than its id."""
        self.initial = initial
        self._last_id = max(self._last_id, initial.checkpoint_id)

    def on_restored(self, checkpoint: CheckpointMetadata) -> None:
        """Record that tasks were deployed that start from a checkpoint."""
        known = next((r for r in self.statistics.history if r.checkpoint_id == checkpoint.checkpoint_id), None)
        path = checkpoint.external_path or (None if known is None else known.path)
        self.statistics = self.statistics.with_restored(
            statistics.RestoredRecord(checkpoint.checkpoint_id, self._clock.now_ms(), checkpoint.is_savepoint, path)
        )

    def continues(self, left: LeftByJobs, choice: Choice) -> None:
        """Note that the job continues where others of its name stopped."""
        self._forerunners = forerunners(left, choice, self.settings.retain_on_cancel, self._job_id)

    @property
    def forerunners(self) -> tuple[str, ...]:
        """The jobs that this one continues, until it has a checkpoint of its own."""
        return () if self._replaces_forerunners else self._forerunners.job_ids

    @property
    def _forerunners_to_delete(self) -> tuple[str, ...]:
        return self._forerunners.to_delete if self._replaces_forerunners and not self._has_deleted_forerunners else ()

    def mark_of_end(self, job_name: str, status: str) -> JobMark | None:
        """Return how the job ends, for a program that starts it again; None if it is not expected to have checkpoints.

        Also None for a job that failed before it had a checkpoint of its own: once fixed, it can start where this one
        started.
        """
        if (self.settings.interval_ms is None and self.last is None) or (status == "FAILED" and self.forerunners):
            return None
        last, now = self.last, self._clock.now_ms()
        if last is None or status != "FINISHED":
            return JobMark(self._job_id, job_name, status, now, discards=True)
        return JobMark(self._job_id, job_name, status, now, last.external_path, last.is_drained, discards=True)

    def mark_begin(self, job_name: str, path: str | None) -> None:
        """Record the job's start, from a path or from scratch; files of earlier jobs of its name are not its own."""
        mark, store = JobMark(self._job_id, job_name, BEGUN, self._clock.now_ms(), path), self._store

        def done(result: None, error: BaseException | None) -> None:
            self._is_marking_begin = False
            if error is not None:
                self._effects.log(f"could not record the start of the job: {type(error).__name__}: {error}")
            if self._collect_again and not self._collecting:
                self._collect_garbage()

        if self.settings.interval_ms is not None:
            self._is_marking_begin = True
            self.calls.run(lambda: store.mark_job(mark), done)

    def in_progress(self) -> list[statistics.CheckpointRecord]:
        """Return the pending checkpoints, oldest first."""
        now_ms = self._clock.steady_ms()
        return [pending.record(statistics.CheckpointStatus.IN_PROGRESS, now_ms) for pending in self._pending.values()]

    @property
    def latest(self) -> CheckpointMetadata | None:
        """The checkpoint to recover from."""
        return self.completed[-1] if self.completed else self.initial

    @property
    def before_latest(self) -> CheckpointMetadata | None:
        """The checkpoint that a recovery can fall back to if the latest one is damaged.

        The savepoint that ends the job does not have a fallback, because its output may have been committed.
        """
        return self.completed[-2] if len(self.completed) > 1 and self.last is None else None

    def drop_latest(self) -> None:
        """Drop the latest checkpoint, which turned out to be damaged, and recover from the one before (G11).

        Its files stay until the job runs again: if it does not, the user may repair them.
        """
        self._dropped.append(self.completed.pop())

    def keep_all(self) -> None:
        """Delete nothing, because the coordinator does not know which files to keep."""
        self._keeps_all = True

    @property
    def knows_what_to_keep(self) -> bool:
        """Whether files that are not retained may be deleted; not while a recovery has yet to look."""
        return not self._keeps_all

    def discard_all(self, mark: JobMark | None) -> None:
        """Record how the job has ended, if not done yet, and delete its checkpoints: it needs no recovery any more."""
        self._mark = mark
        self._replaces_forerunners |= mark is not None
        self.completed.clear()
        self._dropped.clear()
        self._keeps_all = False
        self._has_deleted_forerunners = False  # a deposed job master may have continued for a while
        self._collect_garbage()

    def sweep(self) -> None:
        """Delete unneeded files, when the job is over and all its workers have ended. Does IO."""
        for path in self.given_up:
            self._store.discard_savepoint(path)
        self._say_how_it_ended()
        if not self._keeps_all:
            self._store.delete(garbage(self._store.listing(), self.completed + self._dropped, 1 << 62))
            if self._forerunners_to_delete:
                self._store.delete_jobs(self._forerunners_to_delete)

    def _say_how_it_ended(self) -> None:
        """Record how the job ended. This comes first: a job with deleted checkpoints looks like a new one. Does IO."""
        if self._mark is not None:
            self._store.mark_job(self._mark)
            self._mark = None

    def trigger_now(self, is_full: bool = False) -> int | None:
        """Trigger a checkpoint manually; return its id, or None if the job cannot take one, or another one, now.

        A job's checkpoints may follow each other without a gap. So if a full one cannot begin, the next checkpoint by
        interval is full. A repeated request within `ANSWER_MS_MAX` returns its id.
        """
        if is_full and (checkpoint_id := self._take_full()) is not None:
            return checkpoint_id
        if self._admits() and self._graph.is_ready_for_checkpoints:
            self._is_full_due &= not is_full
            return self._trigger(is_full=is_full)
        self._is_full_due |= is_full and self._running and self.settings.interval_ms is not None
        return None

    def _take_full(self) -> int | None:
        """Return the id of the full checkpoint by interval that a request waits for. It is returned once."""
        full, self._full = self._full, None
        is_fresh = full is not None and self._clock.steady_ms() - full[1] <= ANSWER_MS_MAX
        return full[0] if full is not None and is_fresh else None

    def _trigger_by_interval(self) -> None:
        is_full = self._is_full_due
        checkpoint_id = self._trigger(is_full=is_full)
        if is_full and checkpoint_id is not None:
            self._is_full_due, self._full = False, (checkpoint_id, self._clock.steady_ms())

    # --- triggering ------------------------------------------------------------------------------------------------

    def _admits(self) -> bool:
        is_free = (
            self._running
            and self.last is None
            and all(pending_request.again_ms is not None for pending_request in self._waiting())
        )
        return is_free and len(self._pending) < self.settings.concurrent_max

    def _schedule_next(self, now_ms: int) -> None:
        assert self.settings.interval_ms is not None
        self._next_ms = now_ms + self.settings.interval_ms

    def _trigger(self, request: SavepointRequest | None = None, *, is_full: bool = False) -> int | None:
        points = self._graph.injection_points()
        if not points:
            return None
        self._last_id += 1
        path = None
        if request is not None:
            path = savepoint_path(request.command.directory, self._job_id, self._last_id, self._graph.attempt)
        now_ms, begun_ms = self._clock.now_ms(), self._clock.steady_ms()
        pending = PendingCheckpoint(
            self._last_id,
            now_ms,
            begun_ms,
            self._graph,
            list(self.completed),
            request,
            path,
            self.settings.unaligned,
        )
        self.statistics = self.statistics.with_triggered()
        try:
            for source in self._sources:
                state = source.snapshot(pending.checkpoint_id, pending.completed_id)
                pending.coordinators[source.operator_id] = StateFile(len(state), checksum(state), data=state)
        except Exception as error:  # noqa: BLE001 - a connector's error fails the checkpoint, not the job master
            reason = f"the snapshot of a source's enumerator failed: {type(error).__name__}: {error}"
            record = pending.record(statistics.CheckpointStatus.FAILED, begun_ms, failure=reason)
            self.statistics = self.statistics.with_failed(record, counts=request is None)
            if request is None:
                self._fail_when_too_many(reason)
            return None
        pending.is_full = is_full
        self._pending[pending.checkpoint_id] = pending
        if request is not None and request.command.stop is not None:
            pending.ends_sources = self._ends_sources(points)
        self._ask(pending, points)
        return pending.checkpoint_id

    def _ask(self, pending: PendingCheckpoint, points: list[Execution]) -> None:
        """Ask tasks to send a checkpoint's barrier."""
        stop = None if pending.savepoint is None else pending.savepoint.command.stop
        pending.ask(points)
        for execution in points:
            message = protocol.TriggerCheckpoint(
                execution.id,
                pending.checkpoint_id,
                pending.timestamp_ms,
                pending.savepoint_path,
                pending.completed_id,
                stop,
                pending.is_full,
            )
            self._effects.send(execution.worker_id, message)

    # --- completing ------------------------------------------------------------------------------------------------

    def _complete(self, pending: PendingCheckpoint) -> None:
        pending.is_completing = True
        self._writing[pending.checkpoint_id] = pending
        metadata = pending.metadata(self._job_id)
        store = self._store

        def complete() -> tuple[str, int]:
            return store.complete(metadata, pending.savepoint_path), len(encode_metadata(metadata))

        def done(written: tuple[str, int] | None, error: BaseException | None) -> None:
            was_settled = self.is_settled
            del self._writing[pending.checkpoint_id]
            if self._pending.get(pending.checkpoint_id) is not pending:
                self._collect_garbage()  # the job is over
                self._discard(pending)
            elif error is not None:
                reason = f"its metadata could not be written: {type(error).__name__}: {error}"
                heals = (is_final_at_first(error), is_outside(error))
                self._doubt(pending)
                self._abort(pending.checkpoint_id, reason, self._running, heals)
            else:
                assert written is not None
                self._on_visible(pending, metadata, *written)
            self._tell_if_settled_now(was_settled)

        self.calls.run(complete, done)

    def _tell_if_settled_now(self, was_settled: bool) -> None:
        if self.is_settled and not was_settled:
            self._tell(CheckpointsSettled())

    def _doubt(self, pending: PendingCheckpoint) -> None:
        """Revoke a checkpoint that fails while its metadata is written, unless no recovery would consider it."""
        savepoint = pending.savepoint
        if pending.is_completing and (savepoint is None or savepoint.command.stop is not None):
            self._doubtful.add(pending)

    def _on_revoked(self) -> None:
        self._collect_garbage()
        self._tell_if_settled_now(False)

    def _on_visible(
        self, pending: PendingCheckpoint, metadata: CheckpointMetadata, path: str, metadata_bytes: int
    ) -> None:
        del self._pending[pending.checkpoint_id]
        now = self._clock.steady_ms()
        completed = statistics.CheckpointStatus.COMPLETED
        record = pending.record(completed, now, metadata.state_bytes, path=path, metadata_bytes=metadata_bytes)
        self.statistics = self.statistics.with_completed(record)
        if pending.savepoint is not None:
            if pending.savepoint.command.stop is not None:
                self.last = metadata
                self.completed.append(metadata)
                self._replaces_forerunners = True
                self._notify(lambda e: protocol.NotifyCheckpointComplete(e.id, pending.checkpoint_id))
            self._tell(SavepointSettled(pending.savepoint, pending.savepoint_path, None))
            if not pending.savepoint.command.cancels:  # otherwise the job is about to end
                self.serve_requests()
            return
        self._failures_in_a_row = 0
        self._replaces_forerunners = True
        self.completed.append(metadata)
        for newer in self._pending.values():
            newer.bases.append(metadata)
        for older in [i for i in self._pending if i < pending.checkpoint_id]:
            self._abort(older, f"subsumed by checkpoint {pending.checkpoint_id}", counts=False)
        del self.completed[: -self.settings.retained]
        self._delete_initial()
        self._collect_garbage()
        if self._next_ms is not None:
            self._next_ms = max(self._next_ms, now + self._pause_ms(now - pending.begun_ms))
        self._notify(lambda e: protocol.NotifyCheckpointComplete(e.id, pending.checkpoint_id))
        self._tell(CheckpointCompleted())
        self.serve_requests()

    def _pause_ms(self, took_ms: int) -> int:
        """Return the pause before the next checkpoint after one that took `took_ms`.

        If a short interval is shorter still, checkpoints would follow one another immediately. Each of them interrupts
        all tasks, so records would hardly make progress.
        """
        interval_ms, pause_ms = self.settings.interval_ms, self.settings.min_pause_ms
        if interval_ms is None or interval_ms >= PAUSE_MS_MAX or took_ms < interval_ms:
            return pause_ms
        return max(pause_ms, min(took_ms, PAUSE_MS_MAX))

    def _delete_initial(self) -> None:
        """Delete a claimed savepoint, which the job does not need once it has a checkpoint of its own (H4)."""
        initial, self.initial = self.initial, None
        path = initial.external_path if initial is not None and self.settings.claims_initial else None
        if path is not None:
            store = self._store
            self.calls.run(lambda: store.delete_savepoint(path), lambda result, error: None)

    def _abort(
        self,
        checkpoint_id: int,
        reason: str,
        counts: bool = True,
        heals: tuple[bool, bool] = (False, False),
        is_unready: bool = False,
    ) -> None:
        """Abort a checkpoint; `heals`: whether the failure is final at first, and whether it lies outside (`Failure`).

        `is_unready`: a task could not take part at that moment; a savepoint is retried.
        """
        pending = self._pending.pop(checkpoint_id)
        counts = counts and pending.savepoint is None
        record = pending.record(statistics.CheckpointStatus.FAILED, self._clock.steady_ms(), failure=reason)
        self.statistics = self.statistics.with_failed(record, counts=counts)
        if pending.savepoint is not None:
            self._abort_savepoint(pending, pending.savepoint, reason, is_unready)
            return
        self._collect_garbage()
        self._notify(lambda e: protocol.NotifyCheckpointAborted(e.id, checkpoint_id))
        if counts:
            self._fail_when_too_many(f"checkpoint {checkpoint_id}: {reason}", *heals)
        if self._next_ms is not None and self._graph.is_at_its_end:
            self._next_ms = min(self._next_ms, self._clock.steady_ms() + LAST_CHECKPOINT_RETRY_MS)
        self.serve_requests()

    def _abort_savepoint(
        self, pending: PendingCheckpoint, savepoint: SavepointRequest, reason: str, is_unready: bool
    ) -> None:
        """Abort a savepoint; if sources have ended for it, restart the job, because they cannot continue.

        The restart does not count as a fault of the job, however often it happens, because a user requested the stop.
        """
        if pending.checkpoint_id not in self._writing:
            self._discard(pending)  # otherwise once its visibility is known
        self._collect_garbage()
        self._notify(lambda e: protocol.NotifyCheckpointAborted(e.id, pending.checkpoint_id))
        if is_unready and self._running:  # `on_time` refuses requests that have waited too long
            savepoint.put_off(self._clock.steady_ms(), reason)
            self._requests.appendleft(savepoint)
        else:
            self._refuse(savepoint, reason)
        if self._running and pending.ends_sources:
            failure = protocol.Failure(f"stopping with a savepoint failed: {reason}", is_outside=True)
            self._tell(CheckpointsFailed(failure))
        else:
            self.serve_requests()

    def _discard(self, pending: PendingCheckpoint) -> None:
        """Delete the files of an aborted savepoint, unless it is complete."""
        path, store = pending.savepoint_path, self._store
        if path is not None:
            self.given_up.append(path)
            self.calls.run(lambda: store.discard_savepoint(path), lambda result, error: None)

    def _fail_when_too_many(self, reason: str, is_final_at_first: bool = False, is_outside: bool = False) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row > self.settings.tolerable_failures:
            tolerable = f"execution.checkpointing.tolerable-failed-checkpoints is {self.settings.tolerable_failures}"
            text = f"{reason} ({tolerable})"
            self._tell(
                CheckpointsFailed(protocol.Failure(text, is_final_at_first=is_final_at_first, is_outside=is_outside))
            )

    def _notify(self, message: Callable[[Execution], protocol.ToWorker]) -> None:
        if not self._running:
            return  # the tasks are being cancelled; the next attempt restores this information
        for execution in self._graph.executions():
            if not execution.state.is_terminal:
                self._effects.send(execution.worker_id, message(execution))

    def _collect_garbage(self) -> None:
        """Delete unneeded files in the background; calls in the meantime cause one more run afterwards."""
        if self._keeps_all:
            return
        if self._collecting or (self._is_marking_begin and self._mark is not None):
            self._collect_again = True
            return
        self._collecting = True
        self._collect_again = False
        store = self._store
        live = {**self._pending, **self._writing, **self._doubtful.open}
        revoked = frozenset(self._doubtful.revoked)
        retained = self.completed + self._dropped + [base for pending in live.values() for base in pending.bases]
        oldest_live_id = min(live, default=self._last_id + 1)

        forerunners = self._forerunners_to_delete

        def done(result: None, error: BaseException | None) -> None:
            self._collecting = False
            self._has_deleted_forerunners |= bool(forerunners) and error is None
            if self._collect_again:
                self._collect_garbage()

        says_end = self._mark is not None

        def work() -> None:
            if says_end:
                self._say_how_it_ended()
            store.delete(garbage(store.listing(), retained, oldest_live_id, revoked))
            if forerunners:
                store.delete_jobs(forerunners)

        if says_end:
            self.calls.wait_for("has recorded how the job ended", work, done)
        else:
            self.calls.give_up_late("has deleted old checkpoints", work, done)


def enumerator_state(metadata: CheckpointMetadata, operator_id: str) -> StateFile | None:
    """Return the enumerator state of a source in a checkpoint; None if the source is new."""
    return next((o.coordinator for o in metadata.operators if o.operator_id == operator_id), None)
