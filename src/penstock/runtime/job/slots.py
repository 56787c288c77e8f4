"""The slots of a job: the workers that have them, the parallelism that they allow, and the tasks placed in them (E3).

`assign_slots` and `deployments` place tasks, and build their deployment messages: slot sharing. Pure.

`ResourceRequirements` are bounds for the parallelism of each vertex, and the parallelism that the available slots
allow. Pure. Vertices that a forward edge connects have the same parallelism: subtask i feeds subtask i. Each slot
sharing group first gets the slots that it needs at least; further slots go one by one to the group that has fewest and
wants more. A vertex gets as many subtasks as its groups have slots, up to its upper bound. Flink's adaptive scheduler
works like this.

`SlotPool` holds the workers of a job: requested, registered, watched by their heartbeats, lost. One worker has one
slot. The pool tracks which workers are present and which are still to come. The job master decides how the job reacts
to the loss of a worker. A worker that is about to be taken away is present, but its slot no longer counts and gets no
new tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import WrongValueError
from penstock.runtime import protocol
from penstock.runtime.checkpoint.restore import edges_with_new_producers, is_rescaled, taken_over
from penstock.runtime.checkpoint.statistics import restored_watermarks
from penstock.runtime.effects import Effects
from penstock.runtime.graph import FORWARD, ExecutionGraph, ExecutionVertex, JobGraph, JobVertex, Slot, Subtask
from penstock.runtime.ports import Clock
from penstock.storage.metadata import CheckpointMetadata, OperatorState, state_of_subtask


def assign_slots(
    slots: Sequence[Slot], worker_ids: Collection[str], former: Mapping[Slot, str] | None = None
) -> dict[Slot, str]:
    """Return the worker of each slot: its former worker, which may have copies of its state, or else a free one."""
    assigned = {slot: worker for slot, worker in (former or {}).items() if slot in slots and worker in worker_ids}
    occupied = set(assigned.values())
    free = iter([worker for worker in worker_ids if worker not in occupied])
    return {slot: assigned.get(slot) or next(free) for slot in slots}


def deployments(
    graph: ExecutionGraph,
    job_id: str,
    slots: Sequence[str],
    addresses: Mapping[str, str],
    settings: protocol.TaskSettings,
    restored: CheckpointMetadata | None,
    commits_only: bool = False,
    awaits_start: bool = False,
    forerunners: tuple[str, ...] = (),
    part: frozenset[Subtask] | None = None,
) -> list[tuple[str, protocol.DeployTask]]:
    """Return (worker id, message) for every subtask, or for every subtask of a part.

    Subtask i of every vertex is in slot i: forward edges stay in a worker. With `commits_only` each task commits what
    the checkpoint holds, and ends. With `awaits_start` no task begins before all are open.
    """
    states = {o.operator_id: o for o in restored.operators} if restored is not None else {}
    rescaled = {e.index for e in graph.job_graph.edges if is_rescaled(e, graph.job_graph, states)}
    awaited = edges_with_new_producers(graph.job_graph, states)
    forced_aligned = graph.job_graph.vertices_forced_aligned()
    first_slots = graph.job_graph.first_slots()
    attempts = graph.attempts
    watermarks = restored_watermarks(restored, graph.job_graph)
    if commits_only:
        settings = msgspec.structs.replace(settings, checkpointing=False)
    return [
        (
            slots[first_slots[v.vertex.slot_sharing_group] + v.subtask],
            msgspec.structs.replace(
                _deployment(
                    graph,
                    v,
                    job_id,
                    slots,
                    addresses,
                    settings,
                    restored,
                    states,
                    rescaled,
                    awaited,
                    forced_aligned,
                    commits_only,
                ),
                awaits_start=awaits_start,
                watermarks=dict(watermarks.get(v.id, {})),
                forerunners=forerunners,
                attempts=attempts,
            ),
        )
        for v in graph
        if part is None or v.id in part
    ]


def _deployment(
    graph: ExecutionGraph,
    subtask: ExecutionVertex,
    job_id: str,
    slots: Sequence[str],
    addresses: Mapping[str, str],
    settings: protocol.TaskSettings,
    restored: CheckpointMetadata | None,
    states: Mapping[str, OperatorState],
    rescaled: Collection[int],
    awaited: Collection[int],
    forced_aligned: Collection[int],
    commits_only: bool,
) -> protocol.DeployTask:
    vertex, job = subtask.vertex, graph.job_graph
    inputs, outputs = [], []
    index, first_slots = subtask.subtask, job.first_slots()
    for edge in job.get_inputs(vertex.index):
        source = job.vertices[edge.source]
        channels = tuple((p, slots[first_slots[source.slot_sharing_group] + p]) for p in job.producers(edge, index))
        supports_unaligned = vertex.index not in forced_aligned
        inputs.append(
            protocol.InputChannels(edge.index, edge.input_index, channels, supports_unaligned, edge.index in awaited)
        )
    for edge in job.get_outputs(vertex.index):
        target = job.vertices[edge.target]
        channels = tuple((c, slots[first_slots[target.slot_sharing_group] + c]) for c in job.consumers(edge, index))
        supports_unaligned = target.index not in forced_aligned
        outputs.append(protocol.OutputChannels(edge.index, channels, target.max_parallelism, supports_unaligned))
    peers = {worker for group in (*inputs,) for _, worker in group.producers}
    peers |= {worker for out in outputs for _, worker in out.consumers}
    operators = [states[o.operator_id] for o in vertex.operators if o.operator_id in states]
    return protocol.DeployTask(
        execution=subtask.current.id,
        job_id=job_id,
        task_name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        program=vertex.program,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        peers={worker: addresses[worker] for worker in sorted(peers)},
        settings=settings,
        restored_checkpoint_id=None if restored is None else restored.checkpoint_id,
        restored={
            o.operator_id: state_of_subtask(o, subtask.subtask, vertex.parallelism, vertex.max_parallelism, rescaled)
            for o in operators
        },
        finished_on_restore=commits_only or (bool(operators) and all(o.fully_finished for o in operators)),
        taken_over=tuple(
            (e.index, files)
            for e in job.get_outputs(vertex.index)
            if e.index in rescaled and (files := taken_over(e, subtask.subtask, job, states))
        ),
        sends_channel_state=tuple(e.index for e in job.get_outputs(vertex.index) if e.index in awaited),
        builds_on_restored=restored is not None and restored.job_id == job_id and not restored.is_savepoint,
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """The lowest and the highest parallelism of a vertex."""

    lower: int
    upper: int


class ResourceRequirements:
    """The bounds of all vertices of a job, and the slots and parallelisms that follow from them.

    Args:
        job_graph: the job, at any parallelism.
        bounds: by vertex index.
    """

    def __init__(self, job_graph: JobGraph, bounds: Mapping[int, Bounds]) -> None:
        self._job_graph = job_graph
        self._units = _connected_by_forward(job_graph)
        self._bounds: dict[int, Bounds] = {}
        for unit in self._units:
            lower, upper = max(bounds[v].lower for v in unit), min(bounds[v].upper for v in unit)
            self._bounds.update(dict.fromkeys(unit, Bounds(min(lower, upper), upper)))

    def __getitem__(self, vertex: int) -> Bounds:
        return self._bounds[vertex]

    @property
    def sufficient(self) -> int:
        """The minimum number of slots that the job can run with."""
        return sum(self._slots_of_groups(lower=True).values())

    @property
    def desired(self) -> int:
        """The maximum number of slots that the job can use."""
        return sum(self._slots_of_groups(lower=False).values())

    def parallelism(self, slots: int) -> dict[int, int] | None:
        """Return the parallelism of each vertex, by vertex index, with that many slots; None if they are too few."""
        if slots < self.sufficient:
            return None
        shares, limits = self._slots_of_groups(lower=True), self._slots_of_groups(lower=False)
        for _ in range(slots - sum(shares.values())):
            hungry = [group for group, share in shares.items() if share < limits[group]]
            if not hungry:
                break
            shares[min(hungry, key=shares.__getitem__)] += 1
        vertices = self._job_graph.vertices
        return {
            vertex: min(self._bounds[vertex].upper, *(shares[vertices[member].slot_sharing_group] for member in unit))
            for unit in self._units
            for vertex in unit
        }

    def with_parallelism(self, upper: Mapping[int, int], *, keeps_lower: bool) -> ResourceRequirements:
        """Return requirements with other parallelisms of some vertices, and of those tied to them by forward edges.

        `keeps_lower`: whether they are only upper bounds, so that the vertices may run at less.

        Raises:
            ValueError: if a parallelism is impossible, or if two vertices that a forward edge connects are to differ.
        """
        bounds = dict(self._bounds)
        for vertex, parallelism in upper.items():
            _check(self._job_graph.vertices[vertex], parallelism)
            for other in next(unit for unit in self._units if vertex in unit):
                if upper.get(other, parallelism) != parallelism:
                    name, peer = self._job_graph.vertices[vertex].name, self._job_graph.vertices[other].name
                    raise WrongValueError(
                        f"{name!r} is to have parallelism {parallelism} and {peer!r} {upper[other]}, but forward edges "
                        "connect them: give them one parallelism, or rebalance between them"
                    )
                _check(self._job_graph.vertices[other], parallelism)
                lower = min(self._bounds[other].lower, parallelism) if keeps_lower else parallelism
                bounds[other] = Bounds(lower, parallelism)
        return ResourceRequirements(self._job_graph, bounds)

    def _slots_of_groups(self, *, lower: bool) -> dict[str, int]:
        slots: dict[str, int] = {}
        for vertex in self._job_graph.vertices:
            bounds, group = self._bounds[vertex.index], vertex.slot_sharing_group
            slots[group] = max(slots.get(group, 0), bounds.lower if lower else bounds.upper)
        return slots


def _check(vertex: JobVertex, parallelism: int) -> None:
    if not 1 <= parallelism <= vertex.parallelism_max:
        raise WrongValueError(
            f"{vertex.name!r} can have a parallelism from 1 to {vertex.parallelism_max}, not {parallelism}"
        )


def compute_requirements(job_graph: JobGraph, configuration: Configuration) -> ResourceRequirements:
    """Return a job's requirements: as its program sets, less with the adaptive scheduler, any in reactive mode."""
    lowest = configuration.read(options.ADAPTIVE_MIN_PARALLELISM)

    def bounds(vertex: JobVertex) -> Bounds:
        upper = vertex.parallelism_max if is_reactive(configuration) else vertex.parallelism
        return Bounds(min(lowest, upper) if is_adaptive(configuration) else upper, upper)

    return ResourceRequirements(job_graph, {vertex.index: bounds(vertex) for vertex in job_graph.vertices})


def is_adaptive(configuration: Configuration) -> bool:
    """Return whether the job runs with fewer slots than it wants."""
    return configuration.read(options.SCHEDULER) == "adaptive" or is_reactive(configuration)


def is_reactive(configuration: Configuration) -> bool:
    """Return whether the job takes all available slots."""
    return configuration.read(options.SCHEDULER_MODE) is not None


def _connected_by_forward(job_graph: JobGraph) -> list[list[int]]:
    """Return the vertices, grouped where forward edges connect them, in order."""
    unit_of = {vertex.index: [vertex.index] for vertex in job_graph.vertices}
    for edge in job_graph.edges:
        group, other = unit_of[edge.source], unit_of[edge.target]
        if edge.partitioning == FORWARD and group is not other:
            group += other
            unit_of.update(dict.fromkeys(other, group))
    return [unit for vertex, unit in unit_of.items() if vertex == min(unit)]


#: How long a job waits for slots before the log says so, and how often the log repeats it.
PATIENCE_MS: Final = 10_000
WORD_INTERVAL_MS: Final = 30_000
#: The minimum number of outstanding worker requests while a job takes all available workers.
ENDLESS_MIN: Final = 2


@dataclass(frozen=True)
class Patience:
    """How long a job waits for slots.

    Attributes:
        request_ms: how long for the slots that it needs; None for no limit.
        request_option: the option that sets it.
        stabilization_ms: how long for more slots, once it has the ones that it needs.
        is_endless: whether it takes all available slots, and keeps requesting.
    """

    request_ms: int | None
    request_option: str
    stabilization_ms: int = 0
    is_endless: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> Patience:
        """Read the options."""
        if not is_adaptive(configuration):
            return cls(configuration.read(options.SLOT_REQUEST_TIMEOUT_MS), options.SLOT_REQUEST_TIMEOUT_MS.key())
        endless = is_reactive(configuration)
        request_ms, stabilization_ms = None if endless else 300_000, 0 if endless else 10_000
        if (set_ms := configuration.read(options.SUBMISSION_WAIT_MS)) is not None:
            request_ms = set_ms
        if (set_ms := configuration.read(options.SUBMISSION_STABILIZATION_MS)) is not None:
            stabilization_ms = set_ms
        return cls(request_ms, options.SUBMISSION_WAIT_MS.key(), stabilization_ms, endless)


@dataclass
class _Worker:
    registration: protocol.RegisterWorker
    heard_ms: int
    #: its location in user code at its last heartbeat, if it had been there for a while
    whereabouts: str = ""
    #: where its process is blocked, if so
    blocked: protocol.WorkerBlocked | None = None
    #: its process's resource usage, as last reported
    process: protocol.ProcessFigures | None = None
    #: whether it will be taken away
    is_leaving: bool = False


@dataclass
class SlotWait:
    """The wait of a job for its slots.

    Attributes:
        begun_ms: when it began.
        word_ms: when the log next says that the job waits.
        is_settled: whether the job takes the present slots as soon as they suffice.
        deadline_ms: until when the job waits; None for no limit.
    """

    begun_ms: int
    word_ms: int
    is_settled: bool
    deadline_ms: int | None = None


@dataclass
class SlotPool:
    """The slots of a job that can run with `sufficient` of them, and wants up to `desired`.

    Args:
        clock: the clock for heartbeats and waiting times.
        effects: receives requests for workers and their release.
        patience: how long the job waits for its slots.
        heartbeat_timeout_ms: how long a worker may be silent; None if heartbeats are not watched.
        slots_max: how many slots there can be, if known.
        sufficient: the minimum number of slots that the job can run with.
        desired: the maximum number of slots that the job can use.
    """

    clock: Clock
    effects: Effects
    patience: Patience
    heartbeat_timeout_ms: int | None
    slots_max: int | None = None
    sufficient: int = 0
    desired: int = 0
    #: None while the job does not wait for slots
    wait: SlotWait | None = field(init=False, default=None)
    #: since when (ms) there have been enough slots
    _sufficient_ms: int | None = field(init=False, default=None)
    _workers: dict[str, _Worker] = field(init=False, default_factory=dict)
    _lost: set[str] = field(init=False, default_factory=set)
    _requested: int = field(init=False, default=0)
    #: the worker of each slot since the last deployment
    _slots: dict[Slot, str] = field(init=False, default_factory=dict)

    def validate(self) -> None:
        """Assert the invariants that hold between any two turns. Only the simulator calls this, not a running job."""
        assert self._requested >= 0, "workers on their way are counted from 0"
        assert self.sufficient <= self.desired, "a job wants at least what it needs"
        assert self._lost.isdisjoint(self._workers), "a worker that is lost does not come again"

    @property
    def awaited(self) -> int:
        """The number of workers that were requested and are still to come."""
        return self._requested

    def __len__(self) -> int:
        """Return the number of slots that can take tasks."""
        return len(self._staying)

    @property
    def _staying(self) -> list[str]:
        return [worker_id for worker_id, worker in self._workers.items() if not worker.is_leaving]

    @property
    def leaving(self) -> list[str]:
        """The present workers that will be taken away."""
        return [worker_id for worker_id, worker in self._workers.items() if worker.is_leaving]

    @property
    def is_complete(self) -> bool:
        """Whether there are as many workers as the job wants, or as are possible."""
        return len(self) >= self._possible

    @property
    def _possible(self) -> int:
        return self.desired if self.slots_max is None else min(self.desired, self.slots_max)

    def is_ready(self, now_ms: int) -> bool:
        """Return whether a waiting job can begin: with all slots, or with enough after waiting for more."""
        if self.wait is None or self._sufficient_ms is None:
            return False
        return (
            self.is_complete or self.wait.is_settled or now_ms >= self._sufficient_ms + self.patience.stabilization_ms
        )

    @property
    def registrations(self) -> list[protocol.RegisterWorker]:
        return [worker.registration for worker in self._workers.values()]

    def registration(self, worker_id: str | None) -> protocol.RegisterWorker | None:
        """Return a worker's registration; None if the worker is not present."""
        worker = None if worker_id is None else self._workers.get(worker_id)
        return None if worker is None else worker.registration

    def acquire(self, is_settled: bool = False) -> None:
        """Wait for the slots, and request missing workers that were not requested yet.

        `is_settled`: the slots were already checked, and the job begins with the present ones.
        """
        now_ms = self.clock.steady_ms()
        if self.wait is None:
            self.wait = SlotWait(now_ms, now_ms + PATIENCE_MS, is_settled)
            self._sufficient_ms = None
        self.wait.deadline_ms = None if self.patience.request_ms is None else now_ms + self.patience.request_ms
        self._note_sufficiency()
        self.request()

    def request(self) -> None:
        """Request missing workers, but no more than are useful."""
        needed = self._possible - len(self)
        if self.patience.is_endless:
            # The possible number is unknown: request as many as are present, and again when these have arrived.
            needed = min(needed, max(self.sufficient - len(self), len(self), ENDLESS_MIN))
        missing = max(0, needed) - self._requested
        self._requested += missing
        if missing > 0:
            self.effects.request_workers(missing)
        elif missing < 0:
            self.effects.withdraw_workers(-missing)

    def require(self, sufficient: int, desired: int) -> None:
        """Change the numbers of slots that the job needs and wants."""
        self.sufficient, self.desired = sufficient, desired
        self._note_sufficiency()

    def _note_sufficiency(self) -> None:
        if len(self) < self.sufficient:
            self._sufficient_ms = None
        elif self._sufficient_ms is None:
            self._sufficient_ms = self.clock.steady_ms()

    def stop_waiting(self) -> None:
        """Stop waiting, because the slots are there or no longer needed."""
        self.wait = None

    def register(self, registration: protocol.RegisterWorker) -> None:
        """Add a worker, unless it has died since and its loss was reported first."""
        if registration.worker_id in self._lost:
            return
        self.on_request_answered()
        self._workers[registration.worker_id] = _Worker(registration, self.clock.steady_ms())
        if len(self) > max(self.desired, len(self._slots)):
            self.dismiss(registration.worker_id)
            return
        self._note_sufficiency()
        if self.patience.is_endless:
            self.request()

    def on_request_answered(self) -> None:
        """Count down the requested workers: one of them has come, or will not come."""
        self._requested = max(0, self._requested - 1)

    def on_heartbeat(self, heartbeat: protocol.Heartbeat) -> None:
        """Record a worker's heartbeat."""
        worker = self._workers.get(heartbeat.worker_id)
        if worker is not None:
            worker.heard_ms = self.clock.steady_ms()
            worker.whereabouts = heartbeat.whereabouts
            worker.blocked = None
            worker.process = heartbeat.process or worker.process

    def on_blocked(self, blocked: protocol.WorkerBlocked) -> bool:
        """Record where a worker's process is blocked, until its next heartbeat; return whether this is new."""
        worker = self._workers.get(blocked.worker_id)
        if worker is None:
            return False
        former, worker.blocked = worker.blocked, blocked
        return former is None or former.at != blocked.at

    def blocked(self, worker_id: str) -> protocol.WorkerBlocked | None:
        """Return where a worker's process is blocked; None if it is not, as far as is known."""
        worker = self._workers.get(worker_id)
        return None if worker is None else worker.blocked

    def whereabouts(self, worker_id: str) -> str:
        """Return the user-defined function that does not return, as last reported; empty without a report."""
        worker = self._workers.get(worker_id)
        return "" if worker is None else worker.whereabouts

    def silence_ms(self, worker_id: str) -> int:
        """Return how long ago (ms) a worker was last heard; 0 if it is not present."""
        worker = self._workers.get(worker_id)
        return 0 if worker is None else self.clock.steady_ms() - worker.heard_ms

    def process(self, worker_id: str) -> protocol.ProcessFigures | None:
        """Return the resource usage of a worker's process, as last reported."""
        worker = self._workers.get(worker_id)
        return None if worker is None else worker.process

    def leave(self, worker_id: str) -> protocol.RegisterWorker | None:
        """Mark a worker as leaving: its slot gets no new tasks. Return its registration if this is new."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.is_leaving:
            return None
        worker.is_leaving = True
        self._note_sufficiency()
        return worker.registration

    def lose(self, worker_id: str) -> tuple[bool, protocol.RegisterWorker | None]:
        """Remove a lost worker; return whether that is new, and its registration (None if it never registered)."""
        worker = self._workers.pop(worker_id, None)
        if worker_id in self._lost:
            return False, None
        self._lost.add(worker_id)
        self._note_sufficiency()
        if worker is None:
            self.on_request_answered()
            return True, None
        return True, worker.registration

    def assign(self, slots: Sequence[Slot]) -> tuple[list[str], dict[str, str]]:
        """Return the worker of each slot, from the last deployment where possible, and the addresses of all workers.

        Workers that the job cannot use are released.
        """
        self._slots = assign_slots(slots, self._staying, self._slots)
        busy = set(self._slots.values())
        for worker_id in [w for w in self._staying if w not in busy][: max(0, len(self) - self.desired)]:
            self.dismiss(worker_id)
        addresses = {name: worker.registration.data_address for name, worker in self._workers.items()}
        return list(self._slots.values()), addresses

    def dismiss(self, worker_id: str) -> None:
        """Release a worker that the job cannot use."""
        self.effects.release(worker_id)
        self._workers.pop(worker_id, None)
        self._lost.add(worker_id)

    def release_all(self) -> None:
        """Release all workers."""
        for worker_id in list(self._workers):
            self.effects.release(worker_id)
        self._workers.clear()

    # --- time --------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return when (ms) a heartbeat timeout, a limit of the wait for slots, or a log line about it is due."""
        times = []
        if self.wait is not None:
            times.append(self.wait.word_ms)
            if self.wait.deadline_ms is not None:
                times.append(self.wait.deadline_ms)
            if self._sufficient_ms is not None:
                times.append(self._sufficient_ms + self.patience.stabilization_ms)
        if self._workers and self.heartbeat_timeout_ms is not None:
            times.append(min(worker.heard_ms for worker in self._workers.values()) + self.heartbeat_timeout_ms)
        return min(times, default=None)

    def is_timed_out(self, now_ms: int) -> bool:
        """Return whether the job has waited too long for slots."""
        wait = self.wait
        return wait is not None and wait.deadline_ms is not None and now_ms >= wait.deadline_ms

    def word(self, now_ms: int) -> str | None:
        """Return the log line for a job that waits for slots; None if no line is due."""
        wait = self.wait
        if wait is None or now_ms < wait.word_ms:
            return None
        wait.word_ms = now_ms + WORD_INTERVAL_MS
        text = f"waiting for slots for {(now_ms - wait.begun_ms) // 1000} s: wanted {self.desired}, got {len(self)}"
        if self._sufficient_ms is not None:
            wait_ms = self._sufficient_ms + self.patience.stabilization_ms - now_ms
            return f"{text}; the job begins with them in {wait_ms // 1000} s"
        if wait.deadline_ms is None:
            return text if self.sufficient == self.desired else f"{text}, needed {self.sufficient}"
        return f"{text}; the job fails in {(wait.deadline_ms - now_ms) // 1000} s ({self.patience.request_option})"

    def silent(self, now_ms: int) -> Collection[str]:
        """Return the workers that have been silent for too long."""
        timeout_ms = self.heartbeat_timeout_ms
        if timeout_ms is None:
            return ()
        return [name for name, worker in self._workers.items() if now_ms - worker.heard_ms >= timeout_ms]
