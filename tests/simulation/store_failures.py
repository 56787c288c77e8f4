"""A store that fails at its i-th operation, for every i: `python -m tests.simulation.store_failures`.

The i-th operation of the storage (of a worker or of the job master) is refused, breaks off half way, is done and
reports an error, is slow, or comes so late that the checkpoint has timed out meanwhile. Every history must keep every
promise.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from penstock.drivers.simulation.crash_points import planned_scenario
from penstock.drivers.simulation.scenario import MODES, FaultRates, Wishes
from penstock.drivers.simulation.scheduler import BackgroundJob, SimulatedBackground
from penstock.drivers.simulation.simulation import History, Simulation

JOBS = ("keyed", "union", "shuffles", "wide")
#: What a person asks of some of them.
WISHES = {"union": Wishes(("savepoint", "suspend"), 0.005, 0.1), "wide": Wishes(("cancel", "drain"), 0.005, 0.1)}
FAULTS = ("refused", "torn", "done-but-error")
SLOW_MS = 50
#: Beyond `execution.checkpointing.timeout` of the planned jobs.
LATE_MS = 2_500
DELAYS = {"slow": SLOW_MS, "late": LATE_MS}
KINDS = (*FAULTS, *DELAYS)


class FailingOperation:
    """Counts operations, and lets one of them fail."""

    def __init__(self, index: int, kind: str, is_over: Callable[[], bool]) -> None:
        self.index = index
        self.is_over = is_over
        self.kind = kind
        self.count = 0
        self.has_failed = False

    def is_next(self) -> bool:
        """Whether the operation that begins now is the one."""
        self.count += 1
        if self.count - 1 != self.index:
            return False
        self.has_failed = True
        return True

    def storage_fault(self, kinds: tuple[str, ...]) -> str | None:
        """Takes the place of `Faults.storage_fault`."""
        if self.kind not in FAULTS or self.is_over():
            return None
        possible = [kind for kind in kinds if kind.endswith(self.kind)]
        return possible[0] if possible and self.is_next() else None


@contextmanager
def delayed(operation: FailingOperation) -> Iterator[None]:
    """Background work number i, where the storage is used, begins so much later."""
    submit = SimulatedBackground.submit

    def submit_late(self: SimulatedBackground, work: Callable[[], Any], done: Callable[..., None]) -> None:
        if operation.kind not in DELAYS or not operation.is_next():
            submit(self, work, done)
            return
        job = BackgroundJob(self, work, done)
        self.jobs.append(job)
        self._engine.call_later(DELAYS[operation.kind], lambda: self._enable(job))

    SimulatedBackground.submit = submit_late  # type: ignore[method-assign]
    try:
        yield
    finally:
        SimulatedBackground.submit = submit  # type: ignore[method-assign]


def run(job: str, mode: str, kind: str, index: int) -> tuple[History, bool]:
    """One history, and whether the operation came."""
    scenario = planned_scenario(job, mode, "sim-1", random.Random(1), concurrent=False)
    scenario = replace(scenario, rates=FaultRates(), wishes=WISHES.get(job, Wishes()))
    simulation = Simulation(1, scenario=scenario)
    operation = FailingOperation(index, kind, lambda: simulation.faults.are_over)
    simulation.faults.storage_fault = operation.storage_fault  # type: ignore[method-assign]
    with delayed(operation):
        return simulation.run(), operation.has_failed


def run_all(jobs: tuple[str, ...] = JOBS, step: int = 1) -> Iterator[tuple[str, str, str, int, History]]:
    """Every `step`-th operation of every job failing in every way; the modes take turns."""
    for number, job in enumerate(jobs):
        mode = MODES[number % len(MODES)]
        for kind in KINDS:
            index = 0
            while True:
                history, has_failed = run(job, mode, kind, index)
                if not has_failed:
                    break
                yield job, mode, kind, index, history
                index += step


def main() -> None:
    """Run all, and print what broke."""
    begun = time.monotonic()
    count = broken = 0
    operations: dict[tuple[str, str, str], int] = {}
    for job, mode, kind, index, history in run_all():
        count += 1
        operations[(job, mode, kind)] = index + 1
        if history.violations:
            broken += 1
            print(f"{job}, {mode}, {kind} at operation {index}: {history.violations}")
    for (job, mode, kind), number in operations.items():
        print(f"{job:10} {mode:14} {kind:15} {number:4} operations")
    print(f"{count} histories in {time.monotonic() - begun:.0f} s, {broken} with violations")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
