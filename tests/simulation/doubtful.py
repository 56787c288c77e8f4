"""Histories in which a checkpoint's metadata is written, and the job master does not hear of it.

The n-th time, the answer is lost, or the write comes after the checkpoint's time-out. In the first case the store
refuses deletions and revocations for a while. The job restarts, and its job master may die at any moment after that.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from penstock.base import options
from penstock.drivers.simulation.checkpoint_store import MemoryStore
from penstock.drivers.simulation.crash_points import planned_scenario
from penstock.drivers.simulation.disk import METADATA, PARTIAL
from penstock.drivers.simulation.scenario import MODES, FaultRates
from penstock.drivers.simulation.scheduler import BackgroundJob, SimulatedBackground
from penstock.drivers.simulation.simulation import History, Simulation
from penstock.runtime.checkpoint.coordinator import CheckpointCoordinator

JOBS: Final = ("keyed", "union", "shuffles", "wide")
LOST, LATE = KINDS = ("lost", "late")
#: Beyond the checkpoints' time-out of planned jobs, and as long as it takes until the next attempt runs (ms).
LATE_MS: Final = (1_990, 2_120)
#: How likely the job master dies after an action of the protocol.
DEATHS: Final = {LOST: 0.02, LATE: 0.2}
#: How often deletions, and revocations, fail after an answer was lost.
REFUSED_MAX: Final = 3


class Doubt:
    """Lets it happen once."""

    def __init__(self, seed: int, kind: str, simulation: Simulation) -> None:
        self._chance = random.Random(f"doubt {seed}")
        self._nth = self._chance.randint(2, 8)
        self._kind = kind
        self._faults = simulation.faults
        self._engine = simulation.engine
        self._count = 0
        self._refused = Counter[str]()
        self.has_happened = False
        #: whether the job master may die: from the lost answer, or the late write, on
        self._may_die = False
        self._kills_master_after = self._faults.kills_master_after

    def storage_fault(self, kinds: tuple[str, ...]) -> str | None:
        """In the place of that of `Faults`."""
        if self._faults.are_over:
            return None
        if self._kind == LOST and "complete-done-but-error" in kinds and self._is_the_one():
            return "complete-done-but-error"
        refused = next((kind for kind in ("delete-refused", "revoke-refused") if kind in kinds), None)
        if self._kind == LATE or not self.has_happened or refused is None or self._refused[refused] == REFUSED_MAX:
            return None
        self._refused[refused] += 1
        return refused

    def kills_master_after(self, is_protocol: bool) -> bool:
        """In the place of that of `Faults`."""
        return self._may_die and self._kills_master_after(is_protocol)

    def submit(self, background: SimulatedBackground, work: Callable[[], Any], done: Callable[..., None]) -> bool:
        """Whether a piece of work comes late."""
        if self._kind != LATE or "_complete" not in work.__qualname__ or not self._is_the_one():
            return False

        def write() -> Any:
            self._may_die = True
            return work()

        job = BackgroundJob(background, write, done)
        background.jobs.append(job)
        self._engine.call_later(self._chance.randint(*LATE_MS), lambda: background._enable(job))
        return True

    def _is_the_one(self) -> bool:
        self._count += 1
        if self._count != self._nth:
            return False
        self.has_happened, self._may_die = True, self._kind == LOST
        return True


def run_doubtful(seed: int, kind: str) -> tuple[History, bool]:
    """One history, and whether it happened in it."""
    job, mode = JOBS[seed % len(JOBS)], MODES[seed // len(JOBS) % len(MODES)]
    scenario = planned_scenario(job, mode, f"sim-{seed}", random.Random(seed), concurrent=False)
    scenario.configuration.write(options.CHECKPOINTING_TOLERABLE_FAILURES, 0)
    scenario = replace(scenario, rates=FaultRates(master_kill_after_protocol=DEATHS[kind], master_kills_max=1))
    simulation = Simulation(seed, scenario=scenario)
    doubt = Doubt(seed, kind, simulation)
    submit = SimulatedBackground.submit

    def submit_late(self: SimulatedBackground, work: Callable[[], Any], done: Callable[..., None]) -> None:
        if not doubt.submit(self, work, done):
            submit(self, work, done)

    with (
        mock.patch.object(simulation.faults, "storage_fault", doubt.storage_fault),
        mock.patch.object(simulation.faults, "kills_master_after", doubt.kills_master_after),
        mock.patch.object(SimulatedBackground, "submit", submit_late),
    ):
        return simulation.run(), doubt.has_happened


# --- planted bugs ----------------------------------------------------------------------------------------------------


def revoke_nothing() -> Any:
    return mock.patch.object(CheckpointCoordinator, "_doubt", return_value=None)


def begin_before_it_is_revoked() -> Any:
    settled = property(lambda self: not any(pending.is_completing for pending in self._pending.values()))
    return mock.patch.object(CheckpointCoordinator, "is_settled", settled)


def write_over_revocations() -> Any:
    def make_visible(self: MemoryStore, directory: str, checkpoint_id: int) -> None:
        self._disk.rename(f"{directory}/{PARTIAL}", f"{directory}/{METADATA}")

    return mock.patch.object(MemoryStore, "make_visible", make_visible)


#: Each with how it happens where it is found.
PLANTED: dict[Callable[[], Any], str] = {
    revoke_nothing: LOST,
    begin_before_it_is_revoked: LOST,
    write_over_revocations: LATE,
}
