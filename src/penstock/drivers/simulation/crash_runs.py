"""Histories with planned crashes: before and after every step of the protocol, in six jobs and all modes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.drivers.simulation.connectors import SimulatedSource
from penstock.drivers.simulation.crash_points import (
    BY_NAME,
    CRASH_POINTS,
    CrashPlan,
    CrashPoint,
    PlannedCrash,
)
from penstock.drivers.simulation.elasticity import Elasticity
from penstock.drivers.simulation.leaving import Leaving
from penstock.drivers.simulation.scenario import (
    HEARTBEAT_INTERVAL_MS,
    MODES,
    FaultRates,
    Scenario,
    Wishes,
    write_mode,
)
from penstock.drivers.simulation.simulation import History, Simulation
from penstock.drivers.simulation.topology import Stage, Topology

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
