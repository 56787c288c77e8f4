"""Failures at each step of an epoch, a savepoint, an end and a back-fill: the driver dies there, or the step fails."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.core.master.steps import Cancelled
from penstock.drivers.simulation.connectors import SimulatedSource
from penstock.drivers.simulation.crash_runs import JOBS, KEYS
from penstock.drivers.simulation.scenario import FaultRates, Scenario
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise.batch import BatchSimulation, batch_scenario
from penstock.drivers.simulation.stepwise.history import StepwiseSimulation
from penstock.drivers.simulation.stepwise.scenario import StepwiseScenario
from penstock.drivers.simulation.stepwise.world import DriverKilled
from penstock.drivers.simulation.topology import Stage, Topology

#: The most runs to try until a crash happens.
TRIES_MAX: Final = 30

#: Each step, and its precondition: a person's request, or one of "fill" and "batch" (such a job), "again" (another job
#: continues), "fail" (an earlier failure), "doubt" (a checkpoint whose completion was reported as failed).
STEPS: Final[dict[str, str | None]] = {
    "PrepareSources": None,
    "MarkJob BEGUN with a savepoint": "suspend",
    "Join": "suspend",
    "TakeOver": "again",
    "Load": "suspend",
    "ReadThrough": "again",
    "OpenSources": None,
    "DealSplits": None,
    "RunEpoch": None,
    "SnapshotSources": None,
    "Complete of the checkpoint": None,
    "Revoke": "doubt",
    "Deliver": None,
    "DeleteGarbage": None,
    "EndForerunners": "again",
    "DeleteJobs": "again",
    "Wait": "fail",
    "RunEpoch of a savepoint": "savepoint",
    "Complete of the savepoint": "savepoint",
    "Answer": "savepoint",
    "Complete of the savepoint that ends the job": "drain",
    "Deliver of the savepoint that ends the job": "drain",
    "MarkJob FINISHED with a savepoint": "suspend",
    "RunEpoch of the last epoch": None,
    "Complete of the checkpoint that ends the job": None,
    "MarkJob FINISHED": None,
    "CheckLeads": None,
    "EndSinks": None,
    "ClaimSavepoint": "fill",
    "CheckClaim": "fill",
    "EmptySavepoint": "fill",
    "ReleaseSavepoint": "fill",
    "BeginCommits of a batch": "batch",
    "RunTasks of a batch": "batch",
    "Deliver of a batch": "batch",
    "EndSinks of a batch": "batch",
}
#: Points within steps.
WITHIN: Final[dict[str, str | None]] = {
    "within RunEpoch": None,
    "within Deliver": None,
    "within DeleteGarbage": None,
    "within Complete of the savepoint that ends the job": "drain",
    "within RunTasks of a batch": "batch",
    "within Deliver of a batch": "batch",
}
#: A person cancels the job while it takes a savepoint.
CANCELLED: Final = "cancelled in a savepoint"
#: Steps that drivers perform on their own, and that therefore do not fail.
NEVER_FAIL: Final = ("Answer", "Wait", "EndForerunners", "EndSinks", "EndSinks of a batch")
DIES, FAILS, FAILS_FOR_GOOD = HOWS = ("dies", "fails", "fails for good")
POINTS: Final[dict[str, str | None]] = {
    **{f"{when} {step}": prelude for step, prelude in STEPS.items() for when in ("before", "after")},
    **WITHIN,
    CANCELLED: "savepoint",
}


def applies(point: str, how: str) -> bool:
    """Return whether that failure can happen at that point."""
    if point == CANCELLED:
        return how == FAILS
    if POINTS[point] in ("batch", "doubt") and how == FAILS_FOR_GOOD:
        return False  # a batch as a whole never restarts, and a checkpoint is only in doubt before a restart
    if how == DIES or point.startswith("within Deliver"):
        return True
    return point.startswith("before") and not point.endswith(NEVER_FAIL)


def select_jobs(point: str, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the jobs in which it can happen: a batch emits only the final values of running counts."""
    return tuple(job for job in jobs if job != "counts") if POINTS[point] == "batch" else jobs


def planned(job: str, world: str, chance: random.Random, prelude: str | None, how: str) -> StepwiseScenario:
    """Build the scenario of a job with planned faults only."""
    stages = []
    for index, (kind, parallelism, inputs, size_ms) in enumerate(JOBS[job]):
        stage = Stage(kind, parallelism, inputs, size_ms=size_ms)
        if kind == "source":
            stage.source = SimulatedSource(world, index, parallelism + 1, 10, KEYS, prelude != "fill", pauses=0.0)
        stages.append(stage)
    write = Configuration().write
    write(options.RUNTIME_MODE, "MICRO_BATCH")
    write(options.CHECKPOINTING_DIR, "disk")
    write(options.MICRO_BATCH_RECORDS_MAX, 3)
    write(options.CHECKPOINTING_NUM_RETAINED, chance.choice((1, 2)))
    write(options.RESTART_STRATEGY, "fixed-delay")
    write(options.FIXED_DELAY_ATTEMPTS, 0 if how == FAILS_FOR_GOOD else 1_000)
    write(options.FIXED_DELAY_MS, 10)
    configuration = write(options.MAX_PARALLELISM, 7)
    rates = FaultRates(user_errors_max=1, user_error=0.05) if prelude == "fail" else FaultRates()
    if prelude == "batch":
        return batch_scenario(Topology(world, KEYS, stages), rates, 0.0, 0, 0.0, 0.0)
    scenario = Scenario(Topology(world, KEYS, stages), "aligned", configuration, rates, 10, 0.0, 0, False)
    return StepwiseScenario(scenario, prelude == "fill", 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StepwiseCrash:
    """One history with a failure at one point; equal fields give equal histories.

    `how`: the driver dies, the step fails once and the job restarts, or the step fails and there is no restart.
    """

    seed: int
    job: str
    point: str
    occurrence: int
    how: str = DIES

    def run(self, is_traced: bool = False) -> tuple[History, bool]:
        """Run the history; return it, and whether the failure happened."""
        chance = random.Random(f"{self}")
        prelude = POINTS[self.point]
        world = f"stepwise-{self.seed}"
        scenario = planned(self.job, world, chance, prelude, self.how)
        kind = BatchSimulation if prelude == "batch" else StepwiseSimulation
        simulation = kind(self.seed, scenario, is_traced)
        wishes = ("checkpoint", "savepoint", "suspend", "drain", "cancel")
        if prelude in wishes:
            simulation.wish = prelude, chance.randint(1, 4)
        elif prelude is None or prelude == "again":
            simulation.wish = chance.choice(wishes), chance.randint(1, 6)
        reached = has_begun_again = 0

        def on_point(point: str) -> None:
            nonlocal reached, has_begun_again
            if prelude == "again" and not has_begun_again and point == "after DeleteGarbage":
                has_begun_again = 1
                raise DriverKilled
            if prelude == "doubt" and not has_begun_again and point == "after Complete of the checkpoint":
                has_begun_again = 1
                raise OSError("planned: the checkpoint is complete, and the answer was lost")
            if self.point == CANCELLED and point == "before RunEpoch of a savepoint" and not reached:
                reached = 1
                raise Cancelled
            if point == self.point:
                reached += 1
                if reached == self.occurrence:
                    simulation.write(f"planned: {point}, {self.how}")
                    if self.how == DIES:
                        raise DriverKilled
                    raise OSError("planned: the step failed")

        simulation.on_point = on_point
        history = simulation.run()
        return history, reached >= self.occurrence


@dataclass
class StepwiseTable:
    """Results of the runs, by point."""

    covered: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    histories: int = 0
    failed: list[tuple[StepwiseCrash, list[str]]] = field(default_factory=list)

    @property
    def missed(self) -> list[str]:
        """The points that were not reached in every job."""
        return [point for point, possible in self.wanted.items() if self.covered.get(point, 0) < possible]

    def cover(self, point: str, how: str, job: str) -> None:
        """Run histories until the failure has happened in one."""
        name = f"{point}, {how}"
        self.wanted[name] = self.wanted.get(name, 0) + 1
        for attempt in range(TRIES_MAX):
            occurrence = random.Random(f"{point} {job} {attempt}").randint(1, 3) if attempt < TRIES_MAX // 2 else 1
            crash = StepwiseCrash(attempt, job, point, occurrence, how)
            history, happened = crash.run()
            self.histories += 1
            if history.violations:
                self.failed.append((crash, history.violations))
            if happened:
                self.covered[name] = self.covered.get(name, 0) + 1
                return


def cover_all_steps(
    table: StepwiseTable, jobs: tuple[str, ...] = tuple(JOBS), points: Iterable[str] = tuple(POINTS)
) -> Iterator[str]:
    """Fail at every point, or at some points only; yield each point when it is done."""
    for point in points:
        for how in HOWS:
            if applies(point, how):
                for job in select_jobs(point, jobs):
                    table.cover(point, how, job)
                yield f"{point}, {how}"
