"""The tasks of a job: deployed to workers, tracked through their states, cancelled (E4, E6), and described for people.

`TaskCancellation` decides how long cancelled tasks may take to end, and when to report unfinished ones. Pure: times
(ms) in, decisions out.

`stuck_workers` and `stuck_tasks` name cancelled tasks that have not ended, with their workers and the user functions
that have not returned.

`unwritten_side_outputs` reports side outputs that are read but never written, most likely due to a misspelt tag, when a
job has finished. A task counts the records of each side output that is read, in a counter that does not exist before
the first record. Side outputs for late records have a counter from the start, because they are usually empty.

`worker_name` and the functions after it describe tasks and their workers, for people who look for the cause of a delay.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from penstock.base.configuration import Configuration
from penstock.base.options import TASK_CANCELLATION_INTERVAL_MS, TASK_CANCELLATION_TIMEOUT_MS
from penstock.runtime import protocol
from penstock.runtime.accumulators import accumulator_values
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.effects import Effects
from penstock.runtime.graph import EXECUTION_MOVES, Execution, ExecutionGraph, ExecutionState, JobGraph, Subtask
from penstock.runtime.job.slots import SlotPool, deployments
from penstock.runtime.job.sources import AlignmentGroups
from penstock.runtime.ports import Clock
from penstock.runtime.task.operator_chain import side_output_counter
from penstock.runtime.task.stream_task import task_settings
from penstock.storage.metadata import CheckpointMetadata

#: How long cancelled tasks may take before the log reports them and, at least, before their workers are killed.
PATIENCE_MS: Final = 5_000


class TaskCancellation:
    """Watches cancelled tasks of one attempt until all of them have ended.

    Args:
        now_ms: when they were cancelled.
        interval_ms: how often to report unfinished tasks, after the first report.
        timeout_ms: after how long to kill their workers; 0 for never.
    """

    def __init__(self, now_ms: int, interval_ms: int, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._begun_ms = now_ms
        self._word_ms = now_ms + PATIENCE_MS
        self._deadline_ms = now_ms + timeout_ms if timeout_ms else None

    def hurry(self, now_ms: int) -> None:
        """Handle a repeated request to cancel: give tasks the minimum time for an orderly end, and no more."""
        deadline_ms = max(now_ms, self._begun_ms + PATIENCE_MS)
        self._deadline_ms = deadline_ms if self._deadline_ms is None else min(self._deadline_ms, deadline_ms)

    def waited_ms(self, now_ms: int) -> int:
        """Return how long (ms) the tasks have taken so far."""
        return now_ms - self._begun_ms

    def next_deadline(self) -> int:
        """Return when the next report or kill is due."""
        return self._word_ms if self._deadline_ms is None else min(self._word_ms, self._deadline_ms)

    def is_over(self, now_ms: int) -> bool:
        """Return whether to kill workers."""
        return self._deadline_ms is not None and now_ms >= self._deadline_ms

    def takes_word(self, now_ms: int) -> bool:
        """Return whether a report is due, and schedule the next one."""
        if now_ms < self._word_ms:
            return False
        self._word_ms = now_ms + self._interval_ms
        return True


def stuck_workers(graph: ExecutionGraph) -> dict[str, list[Execution]]:
    """Return the workers with cancelled tasks that have not ended, and those tasks."""
    stuck: dict[str, list[Execution]] = {}
    for execution in graph.executions():
        if execution.state is ExecutionState.CANCELING and execution.worker_id is not None:
            stuck.setdefault(execution.worker_id, []).append(execution)
    return dict(sorted(stuck.items()))


def stuck_tasks(graph: ExecutionGraph, slot_pool: SlotPool, cancellation: TaskCancellation, now_ms: int) -> str:
    """Describe the stuck tasks for the log."""
    workers = []
    for worker_id, executions in stuck_workers(graph).items():
        names = ", ".join(graph.get_subtask_name(execution) for execution in executions)
        at = slot_pool.whereabouts(worker_id)
        workers.append(f"{names} on worker {worker_id}" + (f", which does not return from {at}" if at else ""))
    limit_ms = cancellation.timeout_ms
    force = f"after {limit_ms} ms (task.cancellation.timeout), or " if limit_ms else ""
    return (
        f"tasks cancelled {cancellation.waited_ms(now_ms)} ms ago have not ended: "
        f"{'; '.join(workers)}. Their workers are killed {force}when the job is cancelled again"
    )


_E = ExecutionState


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task's change of state; `failure`: why the attempt fails; `is_end`: whether it has done all its work."""

    execution: Execution
    failure: protocol.Failure | None = None
    is_end: bool = False


class JobTasks:
    """The tasks of the current attempt. The job master decides how the job reacts to their changes."""

    def __init__(
        self,
        graph: ExecutionGraph,
        job_id: str,
        configuration: Configuration,
        slot_pool: SlotPool,
        effects: Effects,
        clock: Clock,
    ) -> None:
        #: the tasks' latest reports, by vertex and subtask
        self.metrics: dict[tuple[int, int], protocol.TaskMetrics] = {}
        self._graph = graph
        self._job_id = job_id
        self._slot_pool = slot_pool
        self._effects = effects
        self._clock = clock
        self._settings = task_settings(configuration)
        self._cancellation_interval_ms = configuration.read(TASK_CANCELLATION_INTERVAL_MS)
        self._cancellation_timeout_ms = configuration.read(TASK_CANCELLATION_TIMEOUT_MS)
        #: watches cancelled tasks, while some have not ended
        self.cancellation: TaskCancellation | None = None
        self._alignment = AlignmentGroups(graph.job_graph.vertices)
        #: whether open tasks wait until all others are open
        self.awaits_start = False

    def accumulators(self) -> dict[str, Any]:
        """Return the users' accumulators, by name, as last reported in the current or the last attempt."""
        return accumulator_values(pair for task in self.metrics.values() for pair in task.accumulators)

    def rescale(self) -> None:
        """Adapt to a change of the job's tasks."""
        self._alignment = AlignmentGroups(self._graph.job_graph.vertices)

    def deploy(
        self,
        restored: CheckpointMetadata | None,
        checkpoints: CheckpointCoordinator,
        part: frozenset[Subtask] | None = None,
    ) -> None:
        """Send all tasks, or the tasks of a part, to their workers, with the state of a checkpoint."""
        self.metrics = {} if part is None else {task: m for task, m in self.metrics.items() if task not in part}
        self._alignment.reset(part)
        slots, addresses = self._slot_pool.assign(self._graph.job_graph.slots())
        # Operators detect state that does not fit when they open; until then nothing may be processed (H4).
        self.awaits_start = part is None and restored is not None and restored is checkpoints.initial
        for worker_id, message in deployments(
            self._graph,
            self._job_id,
            slots,
            addresses,
            self._settings,
            restored,
            checkpoints.last is not None,
            self.awaits_start,
            checkpoints.forerunners,
            part,
        ):
            execution = self._graph.find(message.execution)
            assert execution is not None
            execution.worker_id = worker_id
            execution.awaits_channel_state = any(edge.awaits_channel_state for edge in message.inputs)
            execution.move(_E.SCHEDULED)
            execution.move(_E.DEPLOYING)
            self._effects.send(worker_id, message)

    def on_metrics(self, message: protocol.TaskMetrics) -> bool:
        """Store a task's report; return whether the task belongs to the current attempt."""
        if self._graph.find(message.execution) is None:
            return False
        self.metrics[(message.execution.vertex, message.execution.subtask)] = message
        return True

    def get_figures(self, vertex: int, subtask: int) -> protocol.TaskFigures | None:
        """Return the figures that a subtask last reported."""
        reported = self.metrics.get((vertex, subtask))
        return None if reported is None else reported.figures

    def on_state(self, message: protocol.TaskStateChanged) -> TaskChange | None:
        """Handle a task's new state; return None if nothing changes."""
        execution = self._graph.find(message.execution)
        if execution is None or execution.state.is_terminal:
            return None
        if message.state not in _E.__members__:
            reason = f"task {self._graph.get_subtask_name(execution)} reported the state {message.state[:40]!r}"
            return TaskChange(execution, protocol.Failure(reason))
        state, former = _E(message.state), execution.state
        if former is _E.CANCELING and not state.is_terminal:
            return None
        if state not in EXECUTION_MOVES[former]:
            reason = f"task {self._graph.get_subtask_name(execution)} cannot become {state.value} from {former.value}"
            return TaskChange(execution, protocol.Failure(reason))
        execution.move(state)
        if state is _E.FINISHED and former is not _E.CANCELING:
            return TaskChange(execution, is_end=True)
        if state is _E.FAILED:
            execution.failure = message.failure
            return TaskChange(execution, message.failure or protocol.Failure("a task failed without giving a reason"))
        return TaskChange(execution)

    def start_when_open(self) -> None:
        """Let the tasks process records once all are open."""
        if self.awaits_start and self._graph.all_open:
            self.awaits_start = False
            for execution in self._graph.executions():
                self._effects.send(execution.worker_id, protocol.StartTask(execution.id))

    def on_watermark(self, message: protocol.ReportWatermark) -> None:
        """Align a source with others: announce how far it may read."""
        execution = self._graph.find(message.execution)
        if execution is None or execution.state.is_terminal:
            return
        allowed_ms = self._alignment.on_report(message.operator_id, message.execution.subtask, message.watermark_ms)
        if allowed_ms is not None:
            self._effects.send(
                execution.worker_id, protocol.AnnounceWatermark(execution.id, message.operator_id, allowed_ms)
            )

    # --- cancelling ------------------------------------------------------------------------------------------------

    def cancel(self, part: frozenset[Subtask] | None = None) -> None:
        """Cancel all tasks, or the tasks of a part, that have not ended."""
        for execution in self._graph.executions(part):
            if execution.state.is_terminal or execution.state is _E.CANCELING:
                continue
            if execution.state in (_E.CREATED, _E.SCHEDULED):
                execution.move(_E.CANCELED)
            else:
                execution.move(_E.CANCELING)
                self._effects.send(execution.worker_id, protocol.CancelTask(execution.id))
        self.cancellation = TaskCancellation(
            self._clock.steady_ms(), self._cancellation_interval_ms, self._cancellation_timeout_ms
        )

    def hurry(self) -> None:
        """Handle a repeated request to cancel."""
        if self.cancellation is not None:
            self.cancellation.hurry(self._clock.steady_ms())

    def on_cancelled(self) -> None:
        """Stop watching cancelled tasks, because all of them have ended."""
        self.cancellation = None

    def take_stuck_workers(self, cancellation: TaskCancellation, now_ms: int) -> list[tuple[str, str]]:
        """Return the workers to end by force because their tasks do not end, with reasons; or log a line about them.

        Each worker is returned once.
        """
        if not cancellation.is_over(now_ms):
            if cancellation.takes_word(now_ms):
                self._effects.log(stuck_tasks(self._graph, self._slot_pool, cancellation, now_ms))
            return []
        waited_ms = cancellation.waited_ms(now_ms)
        self.cancellation = None
        reason = f"its tasks did not end within {waited_ms} ms of cancellation"
        whereabouts = {worker_id: self._slot_pool.whereabouts(worker_id) for worker_id in stuck_workers(self._graph)}
        return [(worker_id, reason + (f", at {at}" if at else "")) for worker_id, at in whereabouts.items()]

    def lose(self, worker_id: str) -> list[Execution]:
        """Fail the tasks whose work is lost with a worker, and return them."""
        lost = self.at_stake(worker_id)
        for execution in lost:
            if not execution.state.is_terminal:
                execution.move(_E.FAILED)
        return lost

    def at_stake(self, worker_id: str) -> list[Execution]:
        """Return the tasks whose work would be lost with a worker."""
        return [
            execution
            for execution in self._graph.executions()
            if execution.worker_id == worker_id
            # The last output of a finished task, including its end, may be lost on the way.
            and (not execution.state.is_terminal or self._graph.has_running_consumer(execution))
        ]


#: The maximum number of workers named, and of tasks named for each.
NAMED_MAX: Final = 4


def worker_name(slot_pool: SlotPool, worker_id: str | None) -> str:
    """Return a worker's description, such as `worker worker-3 (host h2, process 123)`."""
    registration = slot_pool.registration(worker_id)
    if registration is None:
        return f"worker {worker_id}, which is gone"
    return f"worker {worker_id} (host {registration.host}, process {registration.process_id})"


def tasks_by_worker(executions: Iterable[Execution]) -> dict[str | None, list[Execution]]:
    """Group tasks by worker, keeping their order."""
    by_worker: dict[str | None, list[Execution]] = {}
    for execution in executions:
        by_worker.setdefault(execution.worker_id, []).append(execution)
    return by_worker


def task_names(graph: ExecutionGraph, executions: list[Execution]) -> str:
    """Return the names of tasks, as in `'Map (2/4)' and 'Sink (2/4)'`."""
    names = [f"'{graph.get_subtask_name(execution)}'" for execution in executions]
    if len(names) > NAMED_MAX:
        names[NAMED_MAX - 1 :] = [f"{len(names) - NAMED_MAX + 1} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def unacknowledged(graph: ExecutionGraph, slot_pool: SlotPool, executions: Iterable[Execution]) -> str:
    """Describe the tasks that have not acknowledged a checkpoint, their workers, and their current user functions."""
    by_worker = tasks_by_worker(executions)
    parts = []
    for worker_id, of_worker in list(by_worker.items())[:NAMED_MAX]:
        verb = "has" if len(of_worker) == 1 else "have"
        at = slot_pool.whereabouts(worker_id) if worker_id is not None else ""
        where = f"{task_names(graph, of_worker)} on {worker_name(slot_pool, worker_id)}"
        parts.append(f"{where} {verb} not acknowledged" + (f"; it is at {at}" if at else ""))
    remaining = sum(len(of_worker) for of_worker in list(by_worker.values())[NAMED_MAX:])
    if remaining:
        parts.append(f"neither have {remaining} tasks of {len(by_worker) - NAMED_MAX} other workers")
    return "; ".join(parts)


def unwritten_side_outputs(job_graph: JobGraph, metrics: Iterable[protocol.TaskMetrics]) -> list[str]:
    """Return a line for each side output that no task has counted; all tasks of the job must have reported."""
    counters: dict[int, set[str]] = {}
    for task in metrics:
        counters.setdefault(task.execution.vertex, set()).update(task.counters)
    return [
        f"the program reads side output {tag_id!r} of operator {name!r}, but it received no records; does the function "
        "write to another tag?"
        for vertex in job_graph.vertices
        for name, tag_id in vertex.side_outputs
        if vertex.index in counters and side_output_counter(tag_id) not in counters[vertex.index]
    ]
