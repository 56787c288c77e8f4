"""The steps of the checkpoint protocol at which a process can die, in one table, and histories that crash at them.

`CrashPoint`: each step has a name, the process that takes it, and the code location where it is observed: a method and
a condition on its calls. A crash before the step ends the process as the call begins; a crash after it, as the call
returns. The runtime is unaware of this table: `watched` wraps the methods in observers, and only within its block.

`CrashRun` is a history with planned crashes. `cover_all` crashes before and after every step of the protocol, in six
jobs and all modes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.cluster import SimulatedCluster
from penstock.drivers.simulation.connectors import SimulatedSource
from penstock.drivers.simulation.disk import METADATA
from penstock.drivers.simulation.faults import Faults, MasterKilled, Power, WorkerKilled
from penstock.drivers.simulation.outside_world import Outside
from penstock.drivers.simulation.scenario import (
    HEARTBEAT_INTERVAL_MS,
    MODES,
    Elasticity,
    FaultRates,
    Leaving,
    Scenario,
    Wishes,
    write_mode,
)
from penstock.drivers.simulation.simulation import History, Simulation
from penstock.drivers.simulation.topology import Stage, Topology
from penstock.drivers.simulation.worker import Worker
from penstock.runtime import protocol
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.pending import DoubtfulCheckpoints, PendingCheckpoint
from penstock.runtime.graph import ExecutionGraph, ExecutionState
from penstock.runtime.job.failover import PartRestart
from penstock.runtime.job.job_master import JobMaster
from penstock.runtime.job.recovery import JobRecovery
from penstock.runtime.job.rescaling import Departures, Rescaling
from penstock.runtime.job.slots import SlotPool
from penstock.runtime.job.sources import SourceCoordinator
from penstock.runtime.job.tasks import JobTasks
from penstock.runtime.operators.connector import SinkOperator, SourceOperator
from penstock.runtime.operators.record.process import EVENT_TIMERS
from penstock.runtime.task import stream_task as opening
from penstock.runtime.task.barriers import AlignedBarrierHandler, AtLeastOnceBarrierHandler, UnalignedBarrierHandler
from penstock.runtime.task.channels.input_gate import InputGate
from penstock.runtime.task.checkpoints import TaskCheckpoints, TaskSnapshots
from penstock.runtime.task.stream_task import StreamTask
from penstock.state.backend import HeapKeyedStateBackend
from penstock.storage.leadership import BEGUN, JobMark

MASTER, WORKER = "job master", "worker"
#: The job with several regions, and the jobs whose parallelism may change.
APART = ("apart",)
ELASTIC = ("keyed", "union", "shuffles", "counts", "wide")

Place = tuple[Any, str, Callable[..., bool]]


@dataclass(frozen=True)
class CrashPoint:
    """One step. `absent`: modes in which not every job has it, and why; `prelude`: the fault or request before it.

    `jobs`: the jobs that have it; None for all.
    """

    name: str
    owner: str
    places: tuple[Place, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    prelude: str | None = None
    jobs: tuple[str, ...] | None = None

    def select_job(self, job: str) -> str:
        """Return a job that has the step: the given one if possible."""
        return job if self.jobs is None or job in self.jobs else self.jobs[0]


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _sends(kind: type) -> Callable[..., bool]:
    return lambda cluster, worker_id, message: isinstance(message, kind)


def _tells(kind: type, state: str | None = None) -> Callable[..., bool]:
    return lambda worker, message: isinstance(message, kind) and (state is None or message.state == state)  # type: ignore[attr-defined]


def _is_told(*states: str) -> Callable[..., bool]:
    return lambda master, message: message.state in states


def _first_of_its_checkpoint(handler: Any, channel: Any, barrier: Any) -> bool:
    return bool(barrier.checkpoint_id > handler._latest_id)


def _subsumes(coordinator: Any, checkpoint_id: int, reason: str, *more: Any, **named: Any) -> bool:
    return reason.startswith("subsumed")


def _stops(cluster: Any, worker_id: str, message: Any) -> bool:
    return isinstance(message, protocol.TriggerCheckpoint) and message.stop is not None


def _ends_job(*args: Any) -> bool:
    """Return whether an argument of the method is a checkpoint that ends the job, pending or as metadata."""
    return any(
        getattr(arg, "ends_job", False) or getattr(getattr(arg, "savepoint", None), "stop", None) for arg in args
    )


def _has_ended(store: Any, mark: JobMark) -> bool:
    return mark.status != BEGUN


def _leaves_none(store: Any, path: str) -> bool:
    """Return whether the path is the metadata of the job's only checkpoint."""
    visible = [file for file in store.own_files() if file.endswith(METADATA)]
    return visible == [path]


def _drains(task: Any, message: Any) -> bool:
    return message.stop is protocol.StopMode.DRAIN


def _is_last(master: Any, *more: Any) -> bool:
    return master.checkpoints.last is not None


def _is_final(task: Any, message: Any) -> bool:
    return bool(task.ending.is_last(message.checkpoint_id))


def _is_rescaled(rescaling: Any) -> bool:
    return rescaling._former is not None


def _has_left(departures: Any, checkpoint_id: int | None) -> bool:
    return bool(departures._moving)


def _of_part(tasks: Any, restored: Any, checkpoints: Any, part: Any = None) -> bool:
    return part is not None


def _is_not_drained(task: Any, drain: bool) -> bool:
    return not drain


def _is_restored(operator: Any) -> bool:
    return bool(operator.context.operator_state.is_restored)


NO_CONCURRENCY = "such checkpoints come one at a time"
NO_HOLDING = "no channel is held back"
RARE_HOLDING = "only a savepoint or a broadcast input holds a channel back, which not every job has"
NO_TIMEOUT = "nothing is aligned for a time"
NO_IN_FLIGHT = "nothing in flight is part of the checkpoint"
_ALIGNED_ONLY = {"at-least-once": NO_HOLDING, "unaligned": RARE_HOLDING}
_TIMED_ONLY = dict.fromkeys(("aligned", "at-least-once", "unaligned"), NO_TIMEOUT)
_UNALIGNED_ONLY = dict.fromkeys(("aligned", "at-least-once"), NO_IN_FLIGHT)
_CONCURRENT_ONLY = dict.fromkeys(("unaligned", "timed"), NO_CONCURRENCY)


def _master(name: str, owner: Any, method: str, when: Callable[..., bool] = _always, **more: Any) -> CrashPoint:
    return CrashPoint(name, MASTER, ((owner, method, when),), **more)


def _worker(name: str, owner: Any, method: str, when: Callable[..., bool] = _always, **more: Any) -> CrashPoint:
    return CrashPoint(name, WORKER, ((owner, method, when),), **more)


_send = (SimulatedCluster, "send")
_tell = (Worker, "send")

CRASH_POINTS = (
    # The coordinator.
    _master("checkpoint decided", CheckpointCoordinator, "_trigger"),
    _master("id taken", PendingCheckpoint, "__init__"),
    _master("enumerators captured", SourceCoordinator, "snapshot"),
    _master("barriers asked of a source", *_send, _sends(protocol.TriggerCheckpoint)),
    _master("acknowledgement received", CheckpointCoordinator, "on_acknowledge"),
    _master("all acknowledged", CheckpointCoordinator, "_complete"),
    _master("metadata written", MemoryStore, "write_partial"),
    _master("metadata visible", MemoryStore, "make_visible"),
    _master("completion taken in", CheckpointCoordinator, "_on_visible"),
    _master("completion told to a task", *_send, _sends(protocol.NotifyCheckpointComplete)),
    _master(
        "older subsumed", CheckpointCoordinator, "_abort", _subsumes, absent=_CONCURRENT_ONLY, prelude="concurrent"
    ),
    _master("files listed", MemoryStore, "listing"),
    _master("file deleted", MemoryStore, "delete_file"),
    _master("abort decided", CheckpointCoordinator, "_abort", prelude="write"),
    _master("abort told to a task", *_send, _sends(protocol.NotifyCheckpointAborted), prelude="write"),
    _master("doubtful checkpoint revoked", MemoryStore, "put_revocation", prelude="doubt"),
    _master("revocation taken in", DoubtfulCheckpoints, "_take_back", prelude="doubt"),
    # The cluster.
    _master("worker registered", JobMaster, "_on_register"),
    _master("slots taken", JobMaster, "_deploy"),
    _master("deployment sent", *_send, _sends(protocol.DeployTask)),
    _master("deployment answered", JobMaster, "_on_task_state", _is_told("INITIALIZING", "RUNNING")),
    _master("splits sent", *_send, _sends(protocol.AssignSplits)),
    _master("end of data heard", JobMaster, "_on_end_of_data"),
    _master("task heard to have finished", JobMaster, "_on_task_state", _is_told("FINISHED")),
    _master("loss of a worker heard", JobMaster, "_on_worker_lost", prelude="worker"),
    _master("cancellation sent", *_send, _sends(protocol.CancelTask), prelude="worker"),
    _master("new attempt begun", JobMaster, "_begin_attempt", prelude="worker"),
    _master("checkpoint read through before recovery", MemoryStore, "verify", prelude="worker"),
    _master("number of the new job master taken", MemoryStore, "take_number", prelude="master"),
    _master("what the new job master found recorded", MemoryStore, "put_found", prelude="master"),
    _master("completed checkpoints loaded", MemoryStore, "load_checkpoint", prelude="master"),
    _master("recovery taken in", JobRecovery, "_on_recovery_read", prelude="master"),
    _master("end of the job marked", MemoryStore, "put_mark", _has_ended),
    _master("last checkpoint deleted", MemoryStore, "delete_file", _leaves_none),
    _master("end found by a new job master", JobMaster, "_end_as_before", prelude="end"),
    # Regions that restart on their own.
    _master("part cancelled", PartRestart, "begin", prelude="worker", jobs=APART),
    _master("tasks of a part ended", JobMaster, "_after_part_ended", prelude="worker", jobs=APART),
    _master("part deployed", JobTasks, "deploy", _of_part, prelude="worker", jobs=APART),
    _master("splits come back", SourceCoordinator, "reset_reader", prelude="worker", jobs=APART),
    # Rescaling.
    _master("other parallelism asked for", Rescaling, "ask", prelude="rescale", jobs=ELASTIC),
    _master("checkpoint to rescale from there", Rescaling, "_go", prelude="rescale", jobs=ELASTIC),
    _master("tasks cancelled to rescale", JobMaster, "_end_tasks_to_rescale", prelude="rescale", jobs=ELASTIC),
    _master("other parallelism taken", ExecutionGraph, "rescale", prelude="rescale", jobs=ELASTIC),
    _master("deployed at another parallelism", Rescaling, "on_deployed", _is_rescaled, prelude="rescale", jobs=ELASTIC),
    # Workers that leave gracefully.
    _master("departure of a worker heard", JobMaster, "_on_worker_leaving", prelude="leaving", jobs=ELASTIC),
    _master("worker taken for one that leaves", SlotPool, "leave", prelude="leaving", jobs=ELASTIC),
    _master("checkpoint to leave from there", Rescaling, "_go", prelude="leaving", jobs=ELASTIC),
    _master("tasks moved off a worker", Departures, "on_deployed", _has_left, prelude="leaving", jobs=ELASTIC),
    _master("worker that leaves let go", SlotPool, "dismiss", prelude="leaving", jobs=ELASTIC),
    # The end of a job by a savepoint, and its successor.
    _master("savepoint asked for", CheckpointCoordinator, "request_savepoint", prelude="stop"),
    _master("end asked of a source", *_send, _stops, prelude="stop"),
    _master("last savepoint made whole", MemoryStore, "complete_savepoint", prelude="stop"),
    _master("last savepoint visible, to users", MemoryStore, "publish_savepoint", prelude="stop"),
    _master("last savepoint visible, to the job too", MemoryStore, "complete", _ends_job, prelude="stop"),
    _master("last savepoint taken in", CheckpointCoordinator, "_on_visible", _ends_job, prelude="stop"),
    _master("attempt that only commits begun", JobMaster, "_deploy", _is_last, prelude="stop and fail"),
    _master("savepoint to begin from read", JobRecovery, "_on_savepoint_read", prelude="stop"),
    _master("savepoint given up", MemoryStore, "discard_savepoint", prelude="stop badly"),
    _master("savepoint beside the job visible", MemoryStore, "publish_savepoint", prelude="savepoint"),
    _master("cancelled with a savepoint", JobMaster, "_cancel", prelude="cancel"),
    _worker("source ended for a savepoint", StreamTask, "finish_data", _is_not_drained, prelude="stop"),
    _worker("source drained for a savepoint", StreamTask, "_on_trigger", _drains, prelude="drain"),
    _worker("savepoint's file uploaded", MemoryStore, "upload_for_savepoint", prelude="stop"),
    _worker("what the last savepoint holds committed", StreamTask, "_skip_finished", prelude="stop and fail"),
    # The tasks.
    CrashPoint(
        "barrier first seen",
        WORKER,
        (
            (AlignedBarrierHandler, "on_barrier", _first_of_its_checkpoint),
            (AtLeastOnceBarrierHandler, "on_barrier", _first_of_its_checkpoint),
            (UnalignedBarrierHandler, "on_overtaking_barrier", _first_of_its_checkpoint),
        ),
    ),
    _worker("channel held back", InputGate, "block", absent=_ALIGNED_ONLY),
    _worker("channels released", InputGate, "unblock_all", absent=_ALIGNED_ONLY),
    _worker("alignment timed out", UnalignedBarrierHandler, "_give_up_aligning", absent=_TIMED_ONLY),
    _worker("in-flight records captured", TaskCheckpoints, "complete_checkpoint", absent=_UNALIGNED_ONLY),
    _worker("barrier forwarded", TaskCheckpoints, "_forward"),
    _worker("synchronous part done", TaskCheckpoints, "trigger_checkpoint"),
    _worker("upload begun", TaskSnapshots, "_store"),
    _worker("file uploaded", MemoryStore, "upload"),
    _worker("acknowledgement sent", *_tell, _tells(protocol.AcknowledgeCheckpoint)),
    _worker("completion heard", StreamTask, "_on_complete"),
    _worker("last completion heard", StreamTask, "_on_complete", _is_final),
    _worker("abort heard", StreamTask, "_on_aborted", prelude="write"),
    _worker("sink prepared", SinkOperator, "snapshot_state"),
    _worker("transaction committed", Outside, "commit"),
    _worker("commit done with", SinkOperator, "notify_checkpoint_complete"),
    _worker("end of data reached", StreamTask, "finish_data"),
    _worker("end of data told", *_tell, _tells(protocol.EndOfDataReached)),
    _worker("task finished", StreamTask, "_end", lambda task, state, failure=None: state is ExecutionState.FINISHED),
    _worker("restore: task begun", StreamTask, "_initialize", prelude="worker"),
    _worker("restore: state read", opening, "restore_operator", prelude="worker"),
    _worker(
        "restore: timers in place",
        HeapKeyedStateBackend,
        "restore",
        lambda backend, name, *more: name == EVENT_TIMERS,
        prelude="worker",
    ),
    _worker(
        "restore: channels refilled", opening.Opening, "_recover_channel", absent=_UNALIGNED_ONLY, prelude="worker"
    ),
    _worker("restore: source sought", SourceOperator, "initialize_state", _is_restored, prelude="worker"),
    _worker("restore: committed again", SinkOperator, "_commit_restored", prelude="worker"),
)
BY_NAME = {point.name: point for point in CRASH_POINTS}


@dataclass(frozen=True)
class PlannedCrash:
    """The owner of a step dies before or after taking it for the nth time; or all processes die in a power cut."""

    point: str
    is_after: bool
    occurrence: int = 1
    cuts_power: bool = False

    def __str__(self) -> str:
        power = ", with the power" if self.cuts_power else ""
        return f"{'after' if self.is_after else 'before'} {self.point!r} for the {self.occurrence}. time{power}"


class CrashPlan:
    """A sequence of crashes: each is armed once the previous one has happened."""

    current: CrashPlan | None = None

    def __init__(self, crashes: list[PlannedCrash], faults: Faults, power: Power, log: Callable[[str], None]) -> None:
        self.left = list(crashes)
        self._faults = faults
        self._power = power
        self._log = log
        self._seen = 0

    def reached(self, point: CrashPoint, is_after: bool) -> None:
        """Record a step; raise if the process taking the step is to die."""
        if not self.left or self.left[0].point != point.name or self.left[0].is_after != is_after:
            return
        faults = self._faults
        is_own = faults.in_master if point.owner == MASTER else faults.in_worker
        if not is_own:
            return
        self._seen += 1
        if self._seen < self.left[0].occurrence:
            return
        self._seen = 0
        crash = self.left.pop(0)
        self._log(f"planned crash: {crash}")
        if crash.cuts_power:
            self._power.fail()
        raise MasterKilled if point.owner == MASTER else WorkerKilled


@contextmanager
def watched() -> Iterator[None]:
    """Keep observers in place for the current plan."""
    with ExitStack() as stack:
        for point in CRASH_POINTS:
            for owner, method, when in point.places:
                observer = _observer(point, getattr(owner, method), when)
                stack.enter_context(mock.patch.object(owner, method, observer))
        yield


def _observer(point: CrashPoint, original: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    def observed(*args: Any, **kwargs: Any) -> Any:
        plan = CrashPlan.current
        if plan is None or not plan.left or plan.left[0].point != point.name or not when(*args, **kwargs):
            return original(*args, **kwargs)
        plan.reached(point, is_after=False)
        result = original(*args, **kwargs)
        plan.reached(point, is_after=True)
        return result

    return observed


#: The most histories to try until a planned crash happens in one.
TRIES_MAX = 40
KEYS = 4
#: The first crash for steps that are only taken after a failure.
PRELUDES = {
    "worker": PlannedCrash("completion heard", True),
    "master": PlannedCrash("completion told to a task", True),
    "stop and fail": PlannedCrash("last completion heard", False),
    "stop badly": PlannedCrash("savepoint's file uploaded", False),
    "end": PlannedCrash("end of the job marked", True),
}
#: The request for steps that are only taken on that request.
WISHES = {
    "stop": "suspend",
    "stop badly": "suspend",
    "stop and fail": "suspend",
    "drain": "drain",
    "cancel": "cancel",
    "savepoint": "savepoint",
    "rescale": "rescale",
    "leaving": "leave",
}

Inputs = tuple[tuple[int, str], ...]

#: Each job is a list of stages without their sources' data: (kind, parallelism, inputs, size in ms).
JOBS: dict[str, tuple[tuple[str, int, Inputs, int], ...]] = {
    "keyed": (("source", 2, (), 0), ("buckets", 2, ((0, "hash"),), 30), ("sink", 2, ((1, "forward"),), 0)),
    "union": (
        ("source", 2, (), 0),
        ("source", 1, (), 0),
        ("buckets", 2, ((0, "hash"), (1, "hash")), 100),
        ("sink", 1, ((2, "rebalance"),), 0),
    ),
    "shuffles": (
        ("source", 3, (), 0),
        ("map", 2, ((0, "rebalance"),), 0),
        ("buckets", 2, ((1, "hash"),), 30),
        ("sink", 2, ((2, "rebalance"),), 0),
    ),
    "two sinks": (
        ("source", 2, (), 0),
        ("session", 3, ((0, "hash"),), 60),
        ("buckets", 2, ((1, "hash"),), 100),
        ("sink", 2, ((2, "hash"),), 0),
        ("sink", 2, ((0, "broadcast"),), 0),
    ),
    "counts": (
        ("source", 2, (), 0),
        ("count", 2, ((0, "hash"),), 0),
        ("reduce", 2, ((1, "hash"),), 0),
        ("buckets", 2, ((0, "hash"),), 30),
        ("sink", 2, ((2, "forward"), (3, "hash")), 0),
    ),
    "wide": (
        ("source", 4, (), 0),
        ("sliding", 4, ((0, "hash"),), 60),
        ("buckets", 1, ((1, "hash"),), 100),
        ("sink", 1, ((2, "forward"),), 0),
    ),
}

#: Jobs for the steps that no other job has.
SPECIAL_JOBS: dict[str, tuple[tuple[str, int, Inputs, int], ...]] = {
    "apart": (("source", 3, (), 0), ("map", 3, ((0, "forward"),), 0), ("sink", 3, ((1, "forward"),), 0)),
}


def planned_scenario(job: str, mode: str, world: str, chance: random.Random, concurrent: bool) -> Scenario:
    """Build a scenario with planned faults only; intervals are short so that much happens."""
    stages = []
    for index, (kind, parallelism, inputs, size_ms) in enumerate({**JOBS, **SPECIAL_JOBS}[job]):
        stage = Stage(kind, parallelism, inputs, size_ms=size_ms)
        if kind == "source":
            stage.source = SimulatedSource(world, index, parallelism + 1, 10, KEYS, True)
        stages.append(stage)
    write = Configuration().write
    write(options.CHECKPOINTING_INTERVAL_MS, 5 if concurrent else chance.choice((5, 20)))
    write(options.CHECKPOINTING_MAX_CONCURRENT, 3 if concurrent and mode in ("aligned", "at-least-once") else 1)
    write(options.CHECKPOINTING_TOLERABLE_FAILURES, 1_000)
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 2)))
    write(options.CHECKPOINTING_TIMEOUT_MS, 2_000)
    write(options.RESTART_STRATEGY, "fixed-delay")
    write(options.FIXED_DELAY_ATTEMPTS, 1_000_000)
    write(options.FIXED_DELAY_MS, 10)
    write(options.BUFFERS_PER_CHANNEL, chance.choice((1, 2)))
    write(options.NETWORK_BUFFER_RECORDS, chance.choice((1, 4)))
    write(options.SOURCE_BATCH_RECORDS, 3)
    write(options.BUFFER_TIMEOUT_MS, 5)
    write(options.MAX_PARALLELISM, 7)
    write(options.HEARTBEAT_TIMEOUT_MS, 5 * HEARTBEAT_INTERVAL_MS)
    configuration = write(options.HEARTBEAT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS)
    write_mode(configuration, mode, chance.choice((1, 3)))
    rates = FaultRates(slow_channel=0.2, slow_background=0.2, slow_executor=0.3)
    return Scenario(Topology(world, KEYS, stages), mode, configuration, rates, 0, 0.05, 10, False)


@dataclass(frozen=True)
class CrashRun:
    """One history with planned crashes; equal fields give equal histories."""

    seed: int
    job: str
    mode: str
    crashes: tuple[PlannedCrash, ...]
    prelude: str | None = None
    #: the request of a person, or an announcement by Spark
    wish: str | None = None

    def run(self, is_traced: bool = False) -> tuple[History, bool]:
        """Run the history; return it, and whether all planned crashes happened. Only within `watched()`."""
        chance = random.Random(self.seed)
        scenario = planned_scenario(self.job, self.mode, f"sim-{self.seed}", chance, self.prelude == "concurrent")
        if self.wish == "rescale":
            # Often, because a requested parallelism may be the current one.
            elasticity = Elasticity(f"rescaling of {scenario.topology.world}", False, 4, 0, 0.005, 0.1)
            scenario = replace(scenario, elasticity=elasticity)
        elif self.wish == "leave":
            leaving = Leaving(f"when workers of {scenario.topology.world} leave", 4, 0.005, 0.1, 20_000, 60_000)
            scenario = replace(scenario, leaving=leaving)
        elif self.wish is not None:
            scenario = replace(scenario, wishes=Wishes((self.wish,), 0.005, 0.1))
        simulation = Simulation(self.seed, is_traced, scenario=scenario)
        if self.prelude == "write":
            simulation.faults.planned_storage = ["write-refused"]
        elif self.prelude == "doubt":
            simulation.faults.planned_storage = ["complete-done-but-error"]
        crashes = list(self.crashes)
        if self.prelude in PRELUDES:
            first = PRELUDES[self.prelude]
            is_once = self.wish is not None or self.prelude == "end"
            occurrence = 1 if is_once else chance.randint(1, 12)
            crashes.insert(0, PlannedCrash(first.point, first.is_after, occurrence))
        plan = CrashPlan.current = CrashPlan(crashes, simulation.faults, simulation.power, simulation.log.write)
        try:
            history = simulation.run()
        finally:
            CrashPlan.current = None
        return history, not plan.left


@dataclass
class CrashTable:
    """Results of the runs, by step. `cuts_power`: whether all processes die at the step, or only its owner."""

    cuts_power: bool = False
    covered: Counter[tuple[str, str]] = field(default_factory=Counter)
    wanted: Counter[tuple[str, str]] = field(default_factory=Counter)
    histories: int = 0
    missed: list[str] = field(default_factory=list)
    failed: list[tuple[CrashRun, list[str]]] = field(default_factory=list)

    def cover(self, point: CrashPoint, is_after: bool, job: str, mode: str) -> None:
        """Run histories until the crash has happened in one."""
        self.wanted[(point.name, mode)] += 1
        for attempt in range(TRIES_MAX):
            occurrence = random.Random(f"{point.name} {job} {attempt}").randint(1, 3) if attempt < TRIES_MAX // 2 else 1
            crash = PlannedCrash(point.name, is_after, occurrence, self.cuts_power)
            run = CrashRun(attempt, job, mode, (crash,), point.prelude, WISHES.get(point.prelude or ""))
            history, happened = run.run()
            self.histories += 1
            if history.violations:
                self.failed.append((run, history.violations))
            if happened:
                self.covered[(point.name, mode)] += 1
                return
        self.missed.append(f"{'after' if is_after else 'before'} {point.name!r} in {job!r}, {mode}")


def cover_all(table: CrashTable, jobs: tuple[str, ...] = tuple(JOBS)) -> Iterator[CrashPoint]:
    """Crash at every step; yield each step when it is done."""
    for point in CRASH_POINTS:
        for mode in MODES:
            if mode not in point.absent:
                for job in jobs if point.jobs is None else point.jobs:
                    for is_after in (False, True):
                        table.cover(point, is_after, job, mode)
        yield point


def random_pair(seed: int) -> CrashRun:
    """Draw two consecutive crashes at random steps."""
    chance = random.Random(f"pair {seed}")
    job, mode = chance.choice(tuple(JOBS)), chance.choice(MODES)
    names = [point.name for point in CRASH_POINTS if mode not in point.absent and point.jobs is None]
    first = chance.choice([name for name in names if BY_NAME[name].prelude is None])
    crashes = tuple(PlannedCrash(n, chance.random() < 0.5, chance.randint(1, 6)) for n in (first, chance.choice(names)))
    preludes = [BY_NAME[crash.point].prelude for crash in crashes]
    wish = next((WISHES[p] for p in preludes if p in WISHES), chance.choice((None, "suspend", "drain", "cancel")))
    return CrashRun(seed, job, mode, crashes, wish=wish)
