"""The job master: runs one job from start to end, through failures. Events in, commands out.

Theory. The job's life cycle is a table (`runtime.graph.JOB_MOVES`). The master handles each event in one turn. The
decisions of a turn leave as effects, which the driver takes and carries out (`runtime.effects`). A part of the master
reports anything that concerns the whole job as news, which the master handles at the end of the turn. After a failure
it cancels the tasks of the failed regions, or all tasks. Their next attempt begins only when each of them has ended (or
its worker has), so two attempts of a task never run at once. A message of an earlier attempt carries its attempt
number, and the master ignores it. The next attempt starts from the last completed checkpoint, or from the beginning
(G8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from penstock.base import errors
from penstock.base.configuration import Configuration
from penstock.base.job import JobStatus
from penstock.base.options import FAILOVER_STRATEGY, HEARTBEAT_TIMEOUT_MS
from penstock.runtime import protocol
from penstock.runtime.checkpoint import pending
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.savepoints import TakeSavepoint
from penstock.runtime.checkpoint.statistics import CheckpointSettings
from penstock.runtime.effects import Effect, Timers, Turns, turn
from penstock.runtime.graph import JOB_MOVES, Execution, ExecutionGraph, ExecutionState, JobGraph
from penstock.runtime.job import recovery
from penstock.runtime.job.failover import JobFailures, Labeller, PartPhase, PartRestart
from penstock.runtime.job.rescaling import Departures, RescaleDue, RescalePhase, RescaleWaiter, Rescaling
from penstock.runtime.job.slots import Bounds, Patience, SlotPool
from penstock.runtime.job.slow_workers import SlowWorkers
from penstock.runtime.job.sources import JobSources, WatermarkHolds
from penstock.runtime.job.tasks import JobTasks, unacknowledged, unwritten_side_outputs, worker_name
from penstock.runtime.job.view import JobHistory, JobView, RescaleEnd, job_view, subtask_views
from penstock.runtime.ports import CheckpointStore, Clock
from penstock.storage.leadership import DeposedError
from penstock.storage.metadata import CheckpointMetadata

JobNews: TypeAlias = pending.CheckpointNews | recovery.RecoveryNews | RescaleDue

_S = JobStatus
_BLOCKED = (
    "The call in {} does not return and holds Python's global interpreter lock (GIL), so no other thread of the "
    "process can run. Call code that releases the lock, or run it in a process of its own"
)


class JobMaster:
    """Call `start`, then `on_message` and `on_time` until `is_done`; carry out `take_effects` after each call."""

    def __init__(
        self,
        job_graph: JobGraph,
        job_id: str,
        configuration: Configuration,
        *,
        clock: Clock,
        store: CheckpointStore,
        recover: bool = False,
        watches_heartbeats: bool = True,
        slots_max: int | None = None,
        labellers: Sequence[Labeller] = (),
    ) -> None:
        self.job_id = job_id
        self.status = _S.CREATED
        #: whether the job has ended and its workers have been released
        self.is_done = False
        self.failure: errors.PenstockError | None = None
        #: whether an earlier job master, or an earlier job of this name, had already brought it to its end
        self.had_ended = False
        self._configuration = configuration
        self._clock = clock
        self.turns = Turns[JobNews](self._handle_event)
        effects = self._effects = self.turns.effects
        self.history = JobHistory()
        self.history.moved(self.status, clock.now_ms())
        self._graph = ExecutionGraph(job_graph, clock)
        self._recovers = recover
        self._timers = Timers(clock)
        self._slot_pool = SlotPool(
            clock,
            effects,
            Patience.of(configuration),
            configuration.read(HEARTBEAT_TIMEOUT_MS) if watches_heartbeats else None,
            slots_max,
        )
        self._rescaling = Rescaling(
            self, self._graph, configuration, self._slot_pool, self._timers, clock, effects, self.turns.tell
        )
        self._failures = JobFailures(
            self._graph, job_id, configuration, self._slot_pool, self.history, labellers, effects, clock
        )
        self._part = PartRestart(self._graph)
        # With the adaptive scheduler a part that lacks a slot would wait, although the others could make room for it.
        self._restarts_regions = configuration.read(FAILOVER_STRATEGY) == "region" and not self._rescaling.is_adaptive
        self._is_given_up = False
        self._tasks = JobTasks(self._graph, job_id, configuration, self._slot_pool, effects, clock)
        self.departures = Departures(self._graph, self._slot_pool, self._tasks, self.history, effects, clock)
        self._sources = JobSources(self._graph, job_id, effects, self._timers.call_later, self.turns.tell)
        self.checkpoints = CheckpointCoordinator(
            CheckpointSettings.of(configuration),
            self._graph,
            job_id,
            list(self._sources.coordinators.values()),
            clock,
            effects,
            store,
            self.turns.tell,
            partial(unacknowledged, self._graph, self._slot_pool),
        )
        self._slow_workers = SlowWorkers(
            self._graph, configuration, self._slot_pool, self._tasks, self.checkpoints, clock, effects
        )
        self._watermark_holds = WatermarkHolds(self._graph, clock, effects, self._tasks.get_figures)
        self._savepoints = recovery.JobSavepoints(self, effects)
        self._recovery = recovery.JobRecovery(self, self._graph, configuration, store, effects, self.turns.tell)

    @property
    def job_graph(self) -> JobGraph:
        """The job, at its current parallelism."""
        return self._graph.job_graph

    def validate(self) -> None:
        """Assert the invariants that hold between any two turns. Only the simulator calls this, not a running job."""
        self.turns.validate()
        self._rescaling.validate()
        self.checkpoints.validate()
        self._slot_pool.validate()
        self._graph.validate()
        running = [
            e for e in self._graph.executions() if e.state not in (ExecutionState.CREATED, ExecutionState.SCHEDULED)
        ]
        is_partial = self._part.phase is not None
        assert not is_partial or self.status is _S.RESTARTING, "a part begins again while the job is RESTARTING"
        is_early = is_partial or self.is_being_rescaled
        assert self.status is not _S.RESTARTING or is_early or all(e.state.is_terminal for e in running), (
            "a job restarts when all its tasks have ended"
        )
        assert self.status is not _S.FAILED or self.failure is not None, "a failed job has a failure"
        assert self.status is not _S.FINISHED or self.failure is None, "a finished job has none"
        assert not self.is_done or len(self._slot_pool) == 0, "a job that is over has no workers"

    # --- driving ---------------------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return the effects of all turns since the last call, to be carried out in this order."""
        return self._effects.take()

    @turn
    def start(self) -> None:
        """Log the job's guarantees, and request its workers once it is known where the job begins."""
        for line in recovery.guarantees(self.job_graph, self.checkpoints.settings):
            self._effects.log(line)
        self._effects.tell_status(self.status.name, None)
        if self._recovers:
            self._recovery.recover()
        else:
            self._recovery.begin()

    def next_deadline(self) -> int | None:
        """Return when (ms) `on_time` is due."""
        pool = self._slot_pool
        times = [self.checkpoints.next_deadline(), self._timers.next_deadline()]
        if pool.wait is not None or pool.heartbeat_timeout_ms is not None:
            times.append(pool.next_deadline())
        if self._tasks.cancellation is not None:
            times.append(self._tasks.cancellation.next_deadline())
        known = [t for t in times if t is not None]
        return min(known) if known else None

    @turn
    def on_time(self) -> None:
        """Do everything that is due."""
        now = self._clock.steady_ms()
        if self.is_done:
            return
        pool = self._slot_pool
        if pool.heartbeat_timeout_ms is not None:
            for worker_id in pool.silent(now):
                self._effects.release(worker_id)
                silence = f"it was silent for {pool.heartbeat_timeout_ms} ms (heartbeat.timeout)"
                self._on_worker_lost(worker_id, silence, pool.blocked(worker_id))
        if pool.wait is not None:
            self._deploy_when_ready()
            if pool.is_timed_out(now):
                self._on_slots_timeout()
            elif (word := pool.word(now)) is not None:
                self._effects.log(word)
        if self._tasks.cancellation is not None:
            for worker_id, reason in self._tasks.take_stuck_workers(self._tasks.cancellation, now):
                self._effects.release(worker_id)
                self._on_worker_lost(worker_id, reason)
        while (call := self._timers.pop(now)) is not None and not self.is_done:
            call()
        if not self.is_done:
            self.checkpoints.on_time(now)

    @turn
    def cancel(self) -> None:
        """Cancel the job; it is done when all its tasks have ended. A second call ends tasks by force that do not."""
        self._cancel()

    @turn
    def suspend(self, error: DeposedError) -> None:
        """End at once, and leave everything to another job master, because the driver has lost leadership."""
        self._suspend(error)

    @turn
    def take_savepoint(self, command: TakeSavepoint, waiter: recovery.SavepointWaiter) -> None:
        """Take a savepoint, and end the job with it if the command says so; `waiter` is called once."""
        self._savepoints.take(command, waiter, self._clock.steady_ms())

    @turn
    def rescale(self, parallelism: Mapping[str, int], waiter: RescaleWaiter) -> None:
        """Change the parallelism of operators, see `Rescaling.ask`; `waiter` is called once."""
        if self.is_done or self.status in (_S.CANCELLING, _S.FAILING) or self.checkpoints.ends_job:
            self._effects.answer(waiter, None, "the job is coming to its end")
            return
        self._rescaling.ask(parallelism, waiter)

    @turn
    def trigger_checkpoint(self, is_full: bool = False) -> int | None:
        """Trigger a checkpoint by hand; return its id, or None if the job cannot take one, or another one, just now."""
        return self.checkpoints.trigger_now(is_full)

    def _cancel(self) -> None:
        if self.is_done:
            return
        if self.status is _S.CANCELLING:
            self._tasks.hurry()
            return
        self.checkpoints.stop("the job is cancelled")
        self._part.end()
        self._rescaling.interrupt()
        self._move(_S.CANCELLING, None)
        self._slot_pool.stop_waiting()
        self._tasks.cancel()
        self._after_tasks_ended()

    @turn
    def sweep(self) -> None:
        """Delete unneeded files of the job's checkpoints; the driver calls this after all workers have ended."""
        try:
            self.checkpoints.sweep()
        except Exception as error:  # noqa: BLE001 - the job has ended well or ill, whatever becomes of its files
            self._effects.log(f"checkpoint files may be left: {type(error).__name__}: {error}")

    def view(self) -> JobView:
        """Return the job's current state, for observers outside the master."""
        checkpoints = self.checkpoints
        return job_view(
            self.job_id,
            self.job_graph,
            self.status,
            self.history,
            subtask_views(self._graph, self._tasks.metrics),
            checkpoints.statistics,
            checkpoints.in_progress(),
            self._slow_workers.views(),
            now_ms=self._clock.now_ms(),
            configuration=self._configuration,
            workers_awaited=self._slot_pool.awaited,
        )

    def tasks_on(self, worker_id: str) -> frozenset[protocol.ExecutionId]:
        """Return the tasks whose work would be lost with a worker."""
        return frozenset(execution.id for execution in self._tasks.at_stake(worker_id))

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds of each vertex's parallelism, by vertex index."""
        return {vertex.index: self._rescaling.requirements[vertex.index] for vertex in self.job_graph.vertices}

    def accumulators(self) -> dict[str, Any]:
        """Return the users' accumulators, by name, as last reported in the current or the last attempt."""
        return self._tasks.accumulators()

    def _handle_event(self, news: JobNews) -> None:
        """Handle news from a part of the master, in the same turn."""
        match news:
            case recovery.AttemptFailed(failure) | pending.CheckpointsFailed(failure):
                self._fail(failure)
            case recovery.AttemptReady(restored):
                self._deploy(restored)
            case recovery.BeginKnown():
                self._acquire_slots()
            case pending.CheckpointCompleted():
                if self._rescaling.phase is RescalePhase.CHECKPOINTING:
                    self._rescaling.on_checkpoint_completed()
            case pending.CheckpointsSettled():
                self._on_checkpoints_settled()
            case RescaleDue():
                self._end_tasks_to_rescale()
            case recovery.JobGivenUp(error):
                self._give_up(error)
            case pending.JobDeposed(error):
                self._suspend(error)
            case recovery.JobHadEnded(status):
                self._end_as_before(status)
            case pending.SavepointSettled(request, path):
                self._savepoints.on_settled(news)
                if path is not None and request.command.cancels:
                    self._cancel()

    @turn
    def on_message(self, message: protocol.ToMaster) -> None:
        """Handle an event from a worker, or from the driver about a worker."""
        if self.is_done:
            return
        if isinstance(message, protocol.TaskMetrics):
            if self._tasks.on_metrics(message):
                self._watermark_holds.on_metrics(message)
        elif isinstance(message, protocol.Heartbeat):
            self._on_heartbeat(message)
        elif isinstance(message, protocol.AcknowledgeCheckpoint):
            if self._graph.find(message.execution) is not None:
                self.checkpoints.on_acknowledge(message)
        elif isinstance(message, protocol.DeclineCheckpoint):
            if self._graph.find(message.execution) is not None:
                self.checkpoints.on_decline(message)
        elif isinstance(message, protocol.TaskStateChanged):
            self._on_task_state(message)
        elif isinstance(message, protocol.EndOfDataReached):
            self._on_end_of_data(message)
        elif isinstance(message, protocol.ChannelStateRecovered):
            self._on_channel_state_recovered(message)
        elif isinstance(message, protocol.RequestSplit):
            self._sources.on_request(message)
        elif isinstance(message, protocol.SourceEvent):
            self._sources.on_event(message)
        elif isinstance(message, protocol.ReportWatermark):
            self._tasks.on_watermark(message)
        elif isinstance(message, protocol.ClientOutput):
            if self._graph.find(message.execution) is not None:
                self._effects.tell_client(message.operator_id, message.execution.subtask, message.payload)
        elif isinstance(message, protocol.RegisterWorker):
            self._on_register(message)
        elif isinstance(message, protocol.WorkerLost):
            self._on_worker_lost(message.worker_id, message.reason)
        elif isinstance(message, protocol.WorkerBlocked):
            self._on_worker_blocked(message)
        elif isinstance(message, protocol.WorkerLeaving):
            self._on_worker_leaving(message)
        elif isinstance(message, protocol.WorkerRequestFailed):
            self._on_request_failed(message.reason)

    # --- slots -----------------------------------------------------------------------------------------------------

    def _acquire_slots(self, is_settled: bool = False) -> None:
        """Acquire missing workers; once there are enough, begin the next attempt."""
        self._slot_pool.acquire(is_settled)
        self._deploy_when_ready()

    def _on_register(self, registration: protocol.RegisterWorker) -> None:
        self._slot_pool.register(registration)
        self._deploy_when_ready()
        self._rescaling.look()

    def _on_request_failed(self, reason: str) -> None:
        self._slot_pool.on_request_answered()
        if self._slot_pool.wait is None:
            self._rescaling.on_request_failed(reason)
        elif len(self._slot_pool) < self._slot_pool.sufficient:
            self._give_up(errors.JobExecutionError(self.job_graph.name, f"a worker could not be started: {reason}"))

    def _deploy_when_ready(self) -> None:
        if self._slot_pool.is_ready(self._clock.steady_ms()):
            self._slot_pool.stop_waiting()
            if self._part.phase is None and self._rescaling.choose():
                self._tasks.rescale()
                self._sources.rescale()
            self._recovery.prepare_attempt()

    def _on_slots_timeout(self) -> None:
        pool, patience = self._slot_pool, self._slot_pool.patience
        reason = (
            f"no more within {patience.request_ms} ms ({patience.request_option}); give Spark more cores, or lower the "
            "job's parallelism (parallelism.default)"
        )
        self._give_up(errors.SlotsUnavailableError(self.job_graph.name, pool.sufficient, len(pool), reason))

    @property
    def is_steady(self) -> bool:
        """Whether all tasks run, and are not about to be ended or restarted."""
        is_open = self._graph.is_ready_for_checkpoints and not self._tasks.awaits_start
        return self.status is _S.RUNNING and is_open and not self.checkpoints.ends_job

    def _end_tasks_to_rescale(self) -> None:
        """End all tasks after a checkpoint; they restart from it, at another parallelism or on other workers."""
        if not self.is_steady:
            self._rescaling.interrupt()
            return
        self.checkpoints.stop(f"the job is {self._rescaling.purpose}")
        self._move(_S.RESTARTING, f"to be {self._rescaling.purpose}, from {self._recovery.point}")
        self._tasks.cancel()
        self._after_tasks_ended()

    def _give_up(self, error: errors.PenstockError) -> None:
        """Fail the job, because a restart cannot help."""
        self.failure = error
        self._failures.remember_end(error)
        if self._part.phase is not None:
            self._is_given_up = True
            self._fail_all(str(error))  # the other tasks still run
            return
        self._slot_pool.stop_waiting()
        if self.status is not _S.FAILING:
            self._move(_S.FAILING, str(error))
        self._end(_S.FAILED)

    # --- deployment ------------------------------------------------------------------------------------------------

    def _on_checkpoints_settled(self) -> None:
        if self._is_placing and self._slot_pool.wait is None:
            self._recovery.prepare_attempt()

    @property
    def _is_placing(self) -> bool:
        return self.status is _S.CREATED or self._part.phase is PartPhase.PLACING

    @property
    def restarts_part(self) -> bool:
        """Whether only a part of the job restarts."""
        return self._part.phase is not None

    @property
    def is_being_rescaled(self) -> bool:
        """Whether all tasks are being ended, to restart at another parallelism or on other workers."""
        return self._rescaling.phase is RescalePhase.CANCELLING

    def begins(self, attempt: int) -> bool:
        """Return whether that attempt waits for the checkpoint to start from, if any."""
        return self._is_placing and attempt == self._graph.attempt

    def _deploy(self, restored: CheckpointMetadata | None) -> None:
        """Send the tasks to their workers, with the state of a checkpoint."""
        if len(self._slot_pool) < self.job_graph.slots_required:
            self._acquire_slots()  # a worker was lost while the checkpoint was being read
            return
        part = self._part.part
        self._tasks.deploy(restored, self.checkpoints, part)
        self._part.end()
        if restored is not None:
            self.checkpoints.on_restored(restored)
        self.departures.on_deployed(None if restored is None else restored.checkpoint_id)
        self._move(_S.RUNNING, None)
        if part is not None:
            self._sources.restart(part, restored)
            return
        self._rescaling.on_deployed()
        self.checkpoints.start()
        # Once the savepoint that ends the job is complete, only its output remains to be committed.
        if self.checkpoints.last is None:
            self._sources.start(restored)

    # --- tasks -----------------------------------------------------------------------------------------------------

    def _on_task_state(self, message: protocol.TaskStateChanged) -> None:
        change = self._tasks.on_state(message)
        if change is None:
            return
        execution = change.execution
        if change.failure is not None:
            self._fail(change.failure, execution)
        elif change.is_end:
            self.checkpoints.on_finished(execution)
            self.departures.let_go()
            if self.status is _S.RUNNING and self._graph.all_finished:
                self._end(_S.FINISHED)
        elif execution.state.is_terminal:
            self._after_tasks_ended()
        elif execution.state is ExecutionState.RUNNING:
            if self._graph.all_open:
                self._failures.on_running()
            self._tasks.start_when_open()
            self.checkpoints.serve_requests()
            self._rescaling.look()

    def _on_end_of_data(self, message: protocol.EndOfDataReached) -> None:
        execution = self._graph.find(message.execution)
        if execution is None:
            return
        execution.end_of_data = True
        if self._graph.is_at_its_end:
            self.checkpoints.trigger_soon()
        self.checkpoints.serve_requests()

    def _on_channel_state_recovered(self, message: protocol.ChannelStateRecovered) -> None:
        execution = self._graph.find(message.execution)
        if execution is not None:
            execution.awaits_channel_state = False
            self.checkpoints.serve_requests()
            self._rescaling.look()

    # --- failures --------------------------------------------------------------------------------------------------

    def _on_worker_lost(self, worker_id: str, reason: str, blocked: protocol.WorkerBlocked | None = None) -> None:
        is_news, registration = self._slot_pool.lose(worker_id)
        if not is_news:
            return
        self.departures.on_lost(worker_id)
        if registration is None:
            if self._slot_pool.wait is not None:
                self._acquire_slots()
            elif self.departures.is_move_due:
                self._slot_pool.request()
            return
        where = f"worker {worker_id} (process {registration.process_id} on {registration.host}) was lost: {reason}"
        lost = self._tasks.lose(worker_id)
        if lost and blocked is not None:
            reason = f"{where}. {_BLOCKED.format(blocked.at)}"
            failure = protocol.Failure(reason, traceback=blocked.stack, blocked_at=blocked.at)
            self._fail(failure, lost=lost, worker=registration)
        elif lost:
            self._fail(protocol.Failure(where), lost=lost, worker=registration)
        elif self._slot_pool.wait is not None:
            self._effects.log(where)
            self._acquire_slots()
        elif self._rescaling.wants_workers:
            self._slot_pool.request()

    def _on_worker_blocked(self, message: protocol.WorkerBlocked) -> None:
        if self._slot_pool.on_blocked(message):
            silence_ms = self._slot_pool.silence_ms(message.worker_id)
            blocked = f"is blocked: it was silent for {silence_ms} ms. {_BLOCKED.format(message.at)}"
            self._effects.log(f"{worker_name(self._slot_pool, message.worker_id)} {blocked}")

    def _on_worker_leaving(self, message: protocol.WorkerLeaving) -> None:
        """Handle a worker that will be taken away: it gets no more tasks, and its tasks move elsewhere."""
        is_known = self._slot_pool.registration(message.worker_id) is not None
        if is_known and not self.departures.begin(message.worker_id, message.reason):
            return
        if not self._tasks.at_stake(message.worker_id):
            self._effects.release(message.worker_id)
            self._on_worker_lost(message.worker_id, message.reason)
        elif self._slot_pool.wait is not None:
            self._acquire_slots()
        elif self.status is _S.RUNNING:
            self._slot_pool.request()
            self._rescaling.look()

    def _on_heartbeat(self, heartbeat: protocol.Heartbeat) -> None:
        self._slot_pool.on_heartbeat(heartbeat)
        stuck = self._slow_workers.on_heartbeat(heartbeat)
        if stuck is not None:
            self._effects.release(heartbeat.worker_id)
            self._on_worker_lost(heartbeat.worker_id, stuck)

    def _fail(
        self,
        failure: protocol.Failure,
        execution: Execution | None = None,
        lost: Sequence[Execution] = (),
        worker: protocol.RegisterWorker | None = None,
    ) -> None:
        """Handle a failure, of known tasks or not: cancel everything that depends on it, then restart or fail."""
        event = self._failures.event(failure, execution, lost, worker)
        is_news = self.status in (_S.RUNNING, _S.CREATED) or self._part.phase is not None
        if is_news and not (event.failed and self._part.expects(event.failed)):
            self.failure = event.error
            part = self._part.expand_to_regions(event.failed) if self._may_restart_part() else None
            self._rescaling.interrupt()
            if part is None:
                self._failures.remember(event)
                self._fail_all(str(event.error))
                return
            self._slot_pool.stop_waiting()
            self._part.begin(part)
            self._failures.remember(event, str(self._part))
            if self.status is _S.RUNNING:
                self._move(_S.RESTARTING, f"{self._part}: {event.error}")
            self._tasks.cancel(part)
            self.checkpoints.interrupt("a part of the job is recovering from a failure")
        elif event.failed and (self.status is _S.FAILING or self._part.phase is not None):
            self._failures.remember_too(event)
        self._after_tasks_ended()

    def _may_restart_part(self) -> bool:
        """Return whether a part may restart: not while tasks wait for all to open, or a savepoint ends the job."""
        runs = self.status in (_S.RUNNING, _S.RESTARTING) and len(self._graph.regions) > 1
        return self._restarts_regions and runs and not self._tasks.awaits_start and not self.checkpoints.ends_job

    def _fail_all(self, reason: str) -> None:
        """Cancel all tasks, then restart or fail."""
        self._part.end()
        self._slot_pool.stop_waiting()
        self.checkpoints.stop("the job is recovering from a failure")
        self._move(_S.FAILING, reason)
        self._tasks.cancel()
        self._after_tasks_ended()

    def _after_tasks_ended(self) -> None:
        """Take the next step if all tasks of this attempt, or of a part of it, have ended."""
        if self._part.has_ended:
            self._after_part_ended()
            return
        if self.is_being_rescaled and self._graph.all_terminal:
            self._tasks.on_cancelled()
            self._sources.close()
            self._begin_attempt(is_settled=True)
            return
        if self.status not in (_S.FAILING, _S.CANCELLING) or not self._graph.all_terminal:
            return
        self._tasks.on_cancelled()
        self._sources.close()
        if self.status is _S.CANCELLING:
            self._end(_S.CANCELED)
            return
        delay_ms = None if self._is_given_up else self._failures.restart_delay_ms(self.checkpoints)
        if delay_ms is None:
            self._end(_S.FAILED)
            return
        self._move(_S.RESTARTING, f"in {delay_ms} ms, from {self._recovery.point}")
        self._timers.call_later(delay_ms, self._restart)

    def _after_part_ended(self) -> None:
        self._tasks.on_cancelled()
        delay_ms = self._failures.restart_delay_ms(self.checkpoints)
        if delay_ms is None:
            self._is_given_up = True
            self._fail_all(str(self.failure))
            return
        self._part.phase = PartPhase.WAITING
        self._effects.log(f"{self._part} restart in {delay_ms} ms, from {self._recovery.point}; the others go on")
        part = self._part.part

        def begin() -> None:
            if self._part.phase is PartPhase.WAITING and self._part.part is part:
                self.history.restarts += 1
                self._graph.reset(part=part)
                self._part.phase = PartPhase.PLACING
                self._acquire_slots()

        self._timers.call_later(delay_ms, begin)

    def _restart(self) -> None:
        if self.status is _S.RESTARTING:
            self.history.restarts += 1
            self._begin_attempt()

    def _begin_attempt(self, is_settled: bool = False) -> None:
        """Begin the next attempt; with `is_settled`, with the slots already there."""
        self._graph.reset()
        self.departures.let_go()
        self._move(_S.CREATED, None)
        self._acquire_slots(is_settled)

    def _suspend(self, error: DeposedError) -> None:
        """End here, and leave everything to another job master, which has taken over the job."""
        if self.is_done:
            return
        self.failure = error
        self._part.end()
        self._failures.remember_end(error)
        self._rescaling.end(RescaleEnd.EXCEPTION_OCCURRED, "another job master leads")
        self.checkpoints.suspend()
        self._sources.close()
        self._move(_S.SUSPENDED, str(error))
        self._slot_pool.release_all()
        self._savepoints.on_end()

    def _end_as_before(self, status: JobStatus) -> None:
        """End a job that had already ended, and recorded its end, before this job master began."""
        self.had_ended = True
        if status is _S.CANCELED:
            self._move(_S.CANCELLING, None)
        elif status is _S.FAILED:
            self.failure = errors.JobExecutionError(
                self.job_graph.name, "it had failed before, and deleted its checkpoints"
            )
            self._move(_S.FAILING, None)
        self._end(status, is_known=True)

    def _end(self, status: JobStatus, is_known: bool = False) -> None:
        self._rescaling.end(RescaleEnd[f"JOB_{status.name}"], f"the job is {status.name}")
        self.checkpoints.end(f"the job is {status.name}")
        self._sources.close()
        if status is _S.FINISHED:
            self.failure = None
            if not self.history.restarts:
                for line in unwritten_side_outputs(self.job_graph, self._tasks.metrics.values()):
                    self._effects.log(line)
        settings = self.checkpoints.settings
        if not {_S.FAILED: settings.retain_on_failure, _S.CANCELED: settings.retain_on_cancel}.get(status, False):
            end = None if is_known else self.checkpoints.mark_of_end(self.job_graph.name, status.name)
            self.checkpoints.discard_all(end)
        last = self.checkpoints.last
        stopped = f"with savepoint {last.external_path}" if status is _S.FINISHED and last is not None else None
        self._move(status, stopped if self.failure is None else str(self.failure))
        self._slot_pool.release_all()
        self._savepoints.on_end()

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _move(self, status: JobStatus, reason: str | None) -> None:
        if status not in JOB_MOVES[self.status]:
            raise AssertionError(f"job {self.job_id}: {self.status.name} cannot become {status.name}")
        self.status, self.is_done = status, status.is_terminal_state()
        self.history.moved(status, self._clock.now_ms())
        self._effects.tell_status(status.name, reason)
