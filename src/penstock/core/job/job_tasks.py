"""The tasks of a job: deployed to workers, tracked through their states, cancelled (E4, E6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.options import TASK_CANCELLATION_INTERVAL_MS, TASK_CANCELLATION_TIMEOUT_MS
from penstock.core.accumulators import accumulator_values
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.effects import Effects
from penstock.core.graph.execution_graph import Execution, ExecutionGraph
from penstock.core.graph.regions import Subtask
from penstock.core.graph.states import EXECUTION_MOVES, ExecutionState
from penstock.core.job.cancellation import TaskCancellation
from penstock.core.job.scheduler import deployments
from penstock.core.job.slot_pool import SlotPool
from penstock.core.job.stuck_tasks import stuck_tasks, stuck_workers
from penstock.core.job.watermark_alignment import AlignmentGroups
from penstock.core.ports import Clock
from penstock.core.protocol import (
    AnnounceWatermark,
    CancelTask,
    Failure,
    ReportWatermark,
    StartTask,
    TaskFigures,
    TaskMetrics,
    TaskStateChanged,
)
from penstock.core.task.settings import task_settings
from penstock.storage.metadata import CheckpointMetadata

_E = ExecutionState


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task's change of state; `failure`: why the attempt fails; `is_end`: whether it has done all its work."""

    execution: Execution
    failure: Failure | None = None
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
        self.metrics: dict[tuple[int, int], TaskMetrics] = {}
        self._graph = graph
        self._job_id = job_id
        self._slot_pool = slot_pool
        self._effects = effects
        self._clock = clock
        self._settings = task_settings(configuration)
        self._cancellation = TaskCancellation(
            configuration.read(TASK_CANCELLATION_INTERVAL_MS), configuration.read(TASK_CANCELLATION_TIMEOUT_MS)
        )
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

    def on_metrics(self, message: TaskMetrics) -> bool:
        """Store a task's report; return whether the task belongs to the current attempt."""
        if self._graph.find(message.execution) is None:
            return False
        self.metrics[(message.execution.vertex, message.execution.subtask)] = message
        return True

    def get_figures(self, vertex: int, subtask: int) -> TaskFigures | None:
        """Return the figures that a subtask last reported."""
        reported = self.metrics.get((vertex, subtask))
        return None if reported is None else reported.figures

    def on_state(self, message: TaskStateChanged) -> TaskChange | None:
        """Handle a task's new state; return None if nothing changes."""
        execution = self._graph.find(message.execution)
        if execution is None or execution.state.is_terminal:
            return None
        if message.state not in _E.__members__:
            reason = f"task {self._graph.get_subtask_name(execution)} reported the state {message.state[:40]!r}"
            return TaskChange(execution, Failure(reason))
        state, former = _E(message.state), execution.state
        if former is _E.CANCELING and not state.is_terminal:
            return None
        if state not in EXECUTION_MOVES[former]:
            reason = f"task {self._graph.get_subtask_name(execution)} cannot become {state.value} from {former.value}"
            return TaskChange(execution, Failure(reason))
        execution.move(state)
        if state is _E.FINISHED and former is not _E.CANCELING:
            return TaskChange(execution, is_end=True)
        if state is _E.FAILED:
            execution.failure = message.failure
            return TaskChange(execution, message.failure or Failure("a task failed without giving a reason"))
        return TaskChange(execution)

    def start_when_open(self) -> None:
        """Let the tasks process records once all are open."""
        if self.awaits_start and self._graph.all_open:
            self.awaits_start = False
            for execution in self._graph.executions():
                self._effects.send(execution.worker_id, StartTask(execution.id))

    def on_watermark(self, message: ReportWatermark) -> None:
        """Align a source with others: announce how far it may read."""
        execution = self._graph.find(message.execution)
        if execution is None or execution.state.is_terminal:
            return
        allowed_ms = self._alignment.on_report(message.operator_id, message.execution.subtask, message.watermark_ms)
        if allowed_ms is not None:
            self._effects.send(execution.worker_id, AnnounceWatermark(execution.id, message.operator_id, allowed_ms))

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
                self._effects.send(execution.worker_id, CancelTask(execution.id))
        self._cancellation.begin(self._clock.steady_ms())

    def hurry(self) -> None:
        """Handle a repeated request to cancel."""
        self._cancellation.hurry(self._clock.steady_ms())

    def on_cancelled(self) -> None:
        """Stop watching cancelled tasks, because all of them have ended."""
        self._cancellation.end()

    def next_deadline(self) -> int | None:
        """Return when (ms) `take_stuck_workers` is due."""
        return self._cancellation.next_deadline()

    def take_stuck_workers(self, now_ms: int) -> list[tuple[str, str]]:
        """Return the workers to end by force because their tasks do not end, with reasons; or log a line about them.

        Each worker is returned once.
        """
        if not self._cancellation.is_over(now_ms):
            if self._cancellation.takes_word(now_ms):
                self._effects.log(stuck_tasks(self._graph, self._slot_pool, self._cancellation, now_ms))
            return []
        waited_ms = self._cancellation.waited_ms(now_ms)
        self._cancellation.end()
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
