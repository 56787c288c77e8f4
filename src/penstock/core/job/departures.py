"""Workers that Spark is about to take away, and that leave in good order (E2).

The driver learns of it before the worker's process dies. From then on the worker's slot gets no new tasks, and another
worker is requested. When there are enough slots without it, its tasks move: the job takes a checkpoint, ends its tasks,
and restarts from the checkpoint (`rescaling`), which is not a failure. Then the worker is released. If no other slot
becomes available, its tasks stay there. When the worker dies, it is a lost worker like any other.

A worker with nothing at stake, because it runs no task and no running task reads its tasks' output, is released at
once.
"""

from __future__ import annotations

from penstock.core.effects import Effects
from penstock.core.graph.execution_graph import ExecutionGraph
from penstock.core.job.history import DepartureRecord, JobHistory
from penstock.core.job.job_tasks import JobTasks
from penstock.core.job.slot_pool import SlotPool
from penstock.core.job.workers_of_tasks import task_names, worker_name
from penstock.core.ports import Clock


class Departures:
    """Tracks leaving workers, and whether tasks still have to move off them."""

    def __init__(
        self,
        graph: ExecutionGraph,
        slot_pool: SlotPool,
        tasks: JobTasks,
        history: JobHistory,
        effects: Effects,
        clock: Clock,
    ) -> None:
        self._graph = graph
        self._slot_pool = slot_pool
        self._tasks = tasks
        self._history = history
        self._effects = effects
        self._clock = clock
        #: leaving workers whose tasks still have to move
        self._moving: set[str] = set()

    def begin(self, worker_id: str, reason: str) -> bool:
        """Record that a worker will be taken away; return whether that is new."""
        name = worker_name(self._slot_pool, worker_id)
        registration = self._slot_pool.leave(worker_id)
        if registration is None:
            return False
        tasks = self._tasks.at_stake(worker_id)
        if tasks:
            self._moving.add(worker_id)
        outcome = (
            f"{task_names(self._graph, tasks)} move to another worker" if tasks else "it has no tasks, and is let go"
        )
        self._effects.log(f"{name} is leaving: {reason}; {outcome}")
        self._history.departs(
            DepartureRecord(
                self._clock.now_ms(),
                worker_id,
                registration.host,
                registration.process_id,
                reason,
                tuple(self._graph.get_subtask_name(task) for task in tasks),
            )
        )
        return True

    @property
    def is_move_due(self) -> bool:
        """Whether a leaving worker has something at stake."""
        return any(self._tasks.at_stake(worker_id) for worker_id in self._slot_pool.leaving)

    def let_go(self) -> None:
        """Release leaving workers with nothing at stake."""
        for worker_id in self._slot_pool.leaving:
            if not self._tasks.at_stake(worker_id):
                self._slot_pool.dismiss(worker_id)

    def on_deployed(self, checkpoint_id: int | None) -> None:
        """Record the workers whose tasks have moved in time, after a deployment from that checkpoint."""
        self.let_go()
        for worker_id in sorted(self._moving.difference(self._slot_pool.leaving)):
            self._moving.remove(worker_id)
            self._history.departed(worker_id, self._clock.now_ms(), checkpoint_id)

    def on_lost(self, worker_id: str) -> None:
        """Forget a worker that was lost before its tasks moved."""
        self._moving.discard(worker_id)

    def on_request_failed(self, reason: str) -> None:
        """Log that tasks stay on leaving workers, because a replacement could not be started."""
        if self.is_move_due:
            names = ", ".join(self._slot_pool.leaving)
            self._effects.log(f"tasks stay on {names} until it is gone: a worker could not be started: {reason}")
