"""Changes of a running job's parallelism (D4, E3), and workers that leave in good order (E2).

`Departures` are workers that Spark is about to take away. The driver learns of it before the worker's process dies.
From then on the worker's slot gets no new tasks, and another worker is requested. When there are enough slots without
it, its tasks move: the job takes a checkpoint, ends its tasks, and restarts from the checkpoint, which is not a
failure. Then the worker is released. If no other slot becomes available, its tasks stay there. When the worker dies, it
is a lost worker like any other.

A worker with nothing at stake, because it runs no task and no running task reads its tasks' output, is released at
once.

`Rescaling` decides when a running job changes its parallelism, and to which value. The resource requirements bound the
parallelism of each vertex, and the available slots determine the possible parallelism. If that differs from the current
one, the job takes a checkpoint, ends its tasks, and restarts from that checkpoint. So rescaling is a restart without a
failure: nothing else in the protocol knows of it. Whenever all tasks restart, even after a failure, the job takes the
parallelism that is possible at that moment. Tasks move in the same way, at the same parallelism, off a worker that is
about to be taken away.

A user may request another parallelism. The adaptive scheduler adopts it as the new upper bounds at once. Otherwise the
job continues unchanged until the slots are available, and if they do not come, the requester gets an error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import WrongValueError
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.effects import Effects, Timers
from penstock.runtime.graph import ExecutionGraph, JobGraph
from penstock.runtime.job import view
from penstock.runtime.job.slots import ResourceRequirements, SlotPool, compute_requirements, is_adaptive, is_reactive
from penstock.runtime.job.tasks import JobTasks, task_names, worker_name
from penstock.runtime.ports import Clock


class Departures:
    """Tracks leaving workers, and whether tasks still have to move off them."""

    def __init__(
        self,
        graph: ExecutionGraph,
        slot_pool: SlotPool,
        tasks: JobTasks,
        history: view.JobHistory,
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
            view.DepartureRecord(
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


#: The delay (ms) before a checkpoint that could not be triggered is tried again.
RETRY_MS: Final = 100

#: Called once, with the parallelism of each vertex by its name, or with an error.
RescaleWaiter: TypeAlias = Callable[[Mapping[str, int] | None, str | None], None]


class RescalePhase(enum.Enum):
    """The phases of a change to another parallelism."""

    CHECKPOINTING = "CHECKPOINTING"
    CANCELLING = "CANCELLING"


@dataclass(frozen=True, slots=True)
class RescaleDue:
    """All tasks must restart from the last checkpoint, at another parallelism or on other workers."""


class RunningMaster(Protocol):
    """The job master, as rescaling sees it."""

    @property
    def is_steady(self) -> bool:
        """Whether all tasks run, and are not about to be ended or restarted."""
        ...

    @property
    def history(self) -> view.JobHistory: ...

    @property
    def checkpoints(self) -> CheckpointCoordinator: ...

    @property
    def departures(self) -> Departures: ...


@dataclass(frozen=True)
class _Request:
    """A request for another parallelism, and the waiter for its outcome."""

    requirements: ResourceRequirements
    waiter: RescaleWaiter


class Rescaling:
    """Holds the resource requirements of a job, and watches its slots for them."""

    def __init__(
        self,
        master: RunningMaster,
        graph: ExecutionGraph,
        configuration: Configuration,
        slot_pool: SlotPool,
        timers: Timers,
        clock: Clock,
        effects: Effects,
        tell: Callable[[RescaleDue], None],
    ) -> None:
        self._master = master
        self._graph = graph
        self._slot_pool = slot_pool
        self._timers = timers
        self._clock = clock
        self._effects = effects
        self._tell = tell
        self.is_adaptive = is_adaptive(configuration)
        stabilization_ms = configuration.read(options.EXECUTING_STABILIZATION_MS)
        if stabilization_ms is None:
            stabilization_ms = 0 if is_reactive(configuration) else 60_000
        self._stabilization_ms = stabilization_ms
        self._cooldown_ms = configuration.read(options.EXECUTING_COOLDOWN_MS)
        self._request_timeout_ms = configuration.read(options.SLOT_REQUEST_TIMEOUT_MS)
        self._failures_max = configuration.read(options.RESCALE_MAX_CHECKPOINT_FAILURES)
        max_delay_ms = configuration.read(options.RESCALE_MAX_DELAY_MS)
        self._max_delay_ms = (
            configuration.read(options.CHECKPOINTING_TIMEOUT_MS) if max_delay_ms is None else max_delay_ms
        )
        self._request: _Request | None = None
        #: the agreed requirements
        self.requirements = compute_requirements(graph.job_graph, configuration)
        self._require()
        self.phase: RescalePhase | None = None
        #: since when (ms) another parallelism has been possible
        self._noticed_ms: int | None = None
        self._rescaled_ms: int | None = None
        self._next_look_ms: int | None = None
        #: when (ms) the job is rescaled without a new checkpoint, and how many had failed when it began to wait for one
        self._patient_until_ms = 0
        self._failed_before = 0
        #: how often it has begun to rescale
        self._begun = 0
        self._cause = view.RescaleCause.NEW_RESOURCE_AVAILABLE
        #: how the job is being changed, for people
        self.purpose = "rescaled"
        #: the former parallelism, while it is being changed
        self._former: dict[int, int] | None = None

    def validate(self) -> None:
        """Assert the invariants that hold between any two turns. Only the simulator calls this, not a running job."""
        for vertex, parallelism in self._graph.parallelism.items():
            upper = self._graph.job_graph.vertices[vertex].parallelism_max
            assert 1 <= parallelism <= upper, f"vertex {vertex} has a parallelism that it can have"

    # --- what is wanted --------------------------------------------------------------------------------------------

    def ask(self, parallelism: Mapping[str, int], waiter: RescaleWaiter) -> None:
        """Request other parallelisms, by an operator's uid, id or name, or the name of its vertex."""
        try:
            vertex_parallelism = _by_vertex(self._graph.job_graph, parallelism)
            requirements = self.requirements.with_parallelism(vertex_parallelism, keeps_lower=self.is_adaptive)
        except WrongValueError as error:
            self._effects.answer(waiter, None, str(error))
            return
        if requirements.sufficient > (self._slot_pool.slots_max or requirements.sufficient):
            self._effects.answer(
                waiter,
                None,
                f"the job would need {requirements.sufficient} slots, but Spark has {self._slot_pool.slots_max}",
            )
            return
        self._refuse(view.RescaleEnd.RESOURCE_REQUIREMENTS_UPDATED, "it was asked for another parallelism since")
        self._request = request = _Request(requirements, waiter)
        names, now = {vertex.name: vertex.index for vertex in self._graph.job_graph.vertices}, self._graph.parallelism
        changed = {
            name: (now[v], requirements[v].upper) for name, v in names.items() if requirements[v].upper != now[v]
        }
        self._master.history.rescale_asked(view.RescaleRequest(self._clock.now_ms(), self._graph.attempt, changed))
        if self.is_adaptive:
            self.requirements = requirements
        self._require()
        self._slot_pool.request()
        self._timers.call_later(self._request_timeout_ms, lambda: self._on_request_timeout(request))
        self.look()

    @property
    def wants_workers(self) -> bool:
        """Whether the job can use more workers than its current tasks need."""
        return self.is_adaptive or self._request is not None or self._master.departures.is_move_due

    def _require(self) -> None:
        agreed, request = self.requirements, self._request
        desired = agreed.desired if request is None else max(agreed.desired, request.requirements.desired)
        self._slot_pool.require(agreed.sufficient, desired)

    def _on_request_timeout(self, request: _Request) -> None:
        if self._request is not request:
            return
        if self.phase is not None:  # rescaling is under way; if it fails, the request still needs an answer
            self._timers.call_later(RETRY_MS, lambda: self._on_request_timeout(request))
            return
        if self.is_adaptive:
            # The requirements remain: the job is rescaled when slots arrive.
            slots = f"there are {len(self._slot_pool)} of {request.requirements.desired} slots"
            self._answer(request, view.RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE, slots)
            return
        needed = request.requirements.sufficient
        self._refuse(
            view.RescaleEnd.NO_RESOURCES_OR_PARALLELISMS_CHANGE,
            f"it needs {needed} slots, and there are {len(self._slot_pool)} within {self._request_timeout_ms} ms "
            f"({options.SLOT_REQUEST_TIMEOUT_MS.key()}); the job goes on as it was",
        )

    def on_request_failed(self, reason: str) -> None:
        """Handle the failed start of a worker that the job can run without."""
        self._master.departures.on_request_failed(reason)
        if not self.is_adaptive:
            self._refuse(view.RescaleEnd.EXCEPTION_OCCURRED, f"a worker could not be started: {reason}")

    def _refuse(self, end: view.RescaleEnd, reason: str) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._master.history.rescale_ended(self._clock.now_ms(), end, reason)
            self._effects.answer(request.waiter, None, reason)
            self._require()
            self._slot_pool.request()

    def _answer(self, request: _Request, end: view.RescaleEnd | None = None, reason: str = "") -> None:
        """Answer a request with the job's parallelism: as requested, or as the slots allow (`end`)."""
        self._request = None
        self._master.history.rescale_ended(self._clock.now_ms(), end, reason)
        self._effects.answer(request.waiter, {v.name: v.parallelism for v in self._graph.job_graph.vertices}, None)

    # --- watching the slots ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Begin to rescale if possible and due; called when slots, tasks or requests have changed."""
        if self.phase is not None or not self._master.is_steady:
            return
        goal, now_ms = self._goal(), self._clock.steady_ms()
        moves = self._master.departures.is_move_due
        if goal is None or (goal == self._graph.parallelism and not moves):
            self._noticed_ms = None
            self._answer_if_reached()
            return
        if self._request is None:
            due_ms = self._due_ms(now_ms) if not moves else self._move_due_ms(goal, now_ms)
            if now_ms < due_ms:
                self._look_again(due_ms, now_ms)
                return
        self._cause = view.RescaleCause.WORKER_LEAVING if moves else view.RescaleCause.NEW_RESOURCE_AVAILABLE
        if self._request is not None:
            self._cause = view.RescaleCause.UPDATE_REQUIREMENT
        self._noticed_ms = None
        self.phase = RescalePhase.CHECKPOINTING
        self._patient_until_ms = now_ms + self._max_delay_ms
        self._failed_before = self._master.checkpoints.statistics.failed
        self.purpose = "moved" if goal == self._graph.parallelism else "rescaled"
        where = "off workers that are leaving" if self.purpose == "moved" else f"to {self._described(goal)}"
        self._effects.log(f"is to be {self.purpose} {where}, once a checkpoint is complete")
        self._begun += 1
        self._try_checkpoint(self._begun)

    def _goal(self) -> dict[int, int] | None:
        """Return the parallelism that the current slots allow: as requested, or else as agreed."""
        slots = len(self._slot_pool)
        requested = None if self._request is None else self._request.requirements.parallelism(slots)
        return requested or self.requirements.parallelism(slots)

    def _due_ms(self, now_ms: int) -> int:
        """Return when the job may be rescaled because slots have arrived."""
        if self._noticed_ms is None:
            self._noticed_ms = now_ms
        due_ms = now_ms if self._slot_pool.is_complete else self._noticed_ms + self._stabilization_ms
        return due_ms if self._rescaled_ms is None else max(due_ms, self._rescaled_ms + self._cooldown_ms)

    def _move_due_ms(self, goal: Mapping[int, int], now_ms: int) -> int:
        """Return when the job may move off a leaving worker: to fewer slots only if no other slot comes for a while."""
        if goal == self._graph.parallelism or self._slot_pool.is_complete:
            return now_ms
        if self._noticed_ms is None:
            self._noticed_ms = now_ms
        return self._noticed_ms + self._slot_pool.patience.stabilization_ms

    def _look_again(self, due_ms: int, now_ms: int) -> None:
        if self._next_look_ms is not None and self._next_look_ms <= due_ms:
            return
        self._next_look_ms = due_ms

        def again() -> None:
            self._next_look_ms = None
            self.look()

        self._timers.call_later(due_ms - now_ms, again)

    def _answer_if_reached(self) -> None:
        request = self._request
        if request is not None:
            requirements = request.requirements
            if self._graph.parallelism == requirements.parallelism(requirements.desired):
                self._answer(request)

    # --- the checkpoint --------------------------------------------------------------------------------------------

    def _try_checkpoint(self, begun: int) -> None:
        if self.phase is not RescalePhase.CHECKPOINTING or begun != self._begun:
            return
        if not self._master.is_steady:
            self.phase = None  # checked again when all tasks run
            return
        checkpoints, now_ms = self._master.checkpoints, self._clock.steady_ms()
        failed = checkpoints.statistics.failed - self._failed_before
        if now_ms >= self._patient_until_ms or failed >= self._failures_max:
            if checkpoints.latest is not None:
                self._go()
                return
            self.phase, self._rescaled_ms = None, now_ms
            self._effects.log(f"is not {self.purpose}: no checkpoint could be completed")
            if self._master.departures.is_move_due:
                self._look_again(now_ms + self._cooldown_ms, now_ms)
            reason = "no checkpoint could be completed, and without one the job would begin anew"
            self._refuse(view.RescaleEnd.EXCEPTION_OCCURRED, reason)
            return
        if not checkpoints.in_progress():
            checkpoints.trigger_now()
        self._timers.call_later(RETRY_MS, lambda: self._try_checkpoint(begun))

    def on_checkpoint_completed(self) -> None:
        """Handle the completed checkpoint that rescaling has waited for."""
        if self._master.is_steady:
            self._go()

    def _go(self) -> None:
        if self._goal() is None:  # a slot that the tasks were to move to was lost again
            self.phase = None
            return
        self.phase = RescalePhase.CANCELLING
        self._tell(RescaleDue())

    def interrupt(self) -> None:
        """Stop rescaling, because tasks restart for another reason, or the job ends."""
        self.phase = None

    # --- the next attempt ------------------------------------------------------------------------------------------

    def choose(self) -> bool:
        """Give all tasks, none yet deployed, the parallelism that the slots allow; return whether it changes."""
        is_planned, self.phase = self.phase is RescalePhase.CANCELLING, None
        goal = self._goal()
        assert goal is not None, "there are enough slots"
        request = self._request
        if request is not None and goal == request.requirements.parallelism(len(self._slot_pool)):
            self.requirements = request.requirements
            self._require()
        former = self._graph.parallelism
        if goal == former:
            return False
        if self._former is None:
            self._former = former
        if not is_planned:
            begins = self._rescaled_ms is None and not self._master.history.restarts
            self._cause = view.RescaleCause.INITIAL_SCHEDULE if begins else view.RescaleCause.RECOVERABLE_FAILOVER
        self._graph.rescale(goal)
        self._effects.log(f"runs at {self._described(goal, former)}: {len(self._slot_pool)} slots are there")
        return True

    def on_deployed(self) -> None:
        """Record the change after all tasks have been deployed."""
        former, self._former = self._former, None
        now = self._graph.parallelism
        if former is None or former == now:
            return
        if self._cause is not view.RescaleCause.INITIAL_SCHEDULE:
            self._rescaled_ms = self._clock.steady_ms()
        names = {vertex.index: vertex.name for vertex in self._graph.job_graph.vertices}
        changed = {names[v]: (former[v], now[v]) for v in now if former[v] != now[v]}
        latest = self._master.checkpoints.latest
        checkpoint_id = None if latest is None else latest.checkpoint_id
        record = view.RescaleRecord(self._clock.now_ms(), self._graph.attempt, self._cause, changed, checkpoint_id)
        self._master.history.rescaled(record)

    def end(self, end: view.RescaleEnd, reason: str) -> None:
        """End all requests, because the job ends or another job master has taken over."""
        self.phase = None
        request, self._request = self._request, None
        if request is not None:
            self._master.history.rescale_ended(self._clock.now_ms(), end, reason)
            self._effects.answer(request.waiter, None, reason)

    def _described(self, goal: Mapping[int, int], former: Mapping[int, int] | None = None) -> str:
        former = former or self._graph.parallelism
        vertices = self._graph.job_graph.vertices
        changes = (f"{p} of {vertices[v].name!r} (was {former[v]})" for v, p in goal.items() if p != former[v])
        return "parallelism " + ", ".join(changes)


def _by_vertex(job_graph: JobGraph, parallelism: Mapping[str, int]) -> dict[int, int]:
    """Return the requested parallelism by vertex index."""
    vertex_parallelism: dict[int, int] = {}
    for name, value in parallelism.items():
        vertices = [
            vertex.index
            for vertex in job_graph.vertices
            if vertex.name == name or any(name in (o.uid, o.operator_id, o.name) for o in vertex.operators)
        ]
        if len(vertices) != 1:
            known = ", ".join(repr(vertex.name) for vertex in job_graph.vertices)
            problem = "no operator has" if not vertices else "several operators have"
            raise WrongValueError(f"{problem} the uid, id or name {name!r}; the job's vertices are {known}")
        if vertex_parallelism.setdefault(vertices[0], value) != value:
            raise WrongValueError(f"{name!r} is in a vertex for which another parallelism was given, too")
    return vertex_parallelism
