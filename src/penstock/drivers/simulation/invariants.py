"""What must hold, during a history and at its end. Breaches are collected, each with its kind as the first word."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from penstock.common.job_status import JobStatus
from penstock.core.checkpoint.coordinator import CheckpointCoordinator
from penstock.core.protocol import DeclineCheckpoint, TaskStateChanged, ToMaster
from penstock.drivers.simulation.answers import SHOWN_MAX, check_exact, check_order, check_superset
from penstock.drivers.simulation.reference import outputs
from penstock.drivers.simulation.worker import Worker

if TYPE_CHECKING:
    from penstock.drivers.simulation.simulation import Simulation

FOUND_MAX = 10


class Invariants:
    """Watches one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._found: list[str] = []
        self._coordinator: CheckpointCoordinator | None = None
        self._completed = 0
        self._last_id = 0

    # --- during the history ----------------------------------------------------------------------------------------

    def raised(self, error: Exception) -> None:
        """The core, or the simulator, raised."""
        self._found.append("raised: " + "".join(traceback.format_exception(error)))

    def stalled(self, dump: str) -> None:
        """The job did not finish though nothing stood in its way."""
        self._found.append(f"stalled:\n{dump}")

    def before_master(self, message: ToMaster) -> None:
        """A message reaches the job master: no task of now may fail, nor decline for a missing file, but as planned."""
        if not isinstance(message, TaskStateChanged | DeclineCheckpoint) or len(self._found) >= FOUND_MAX:
            return
        master = self._simulation.master
        if master._graph.find(message.execution) is None:
            return
        if isinstance(message, DeclineCheckpoint):
            if "is missing" in message.reason and message.checkpoint_id in master.checkpoints._pending:
                self._found.append(f"missing-file: checkpoint {message.checkpoint_id}: {message.reason}")
            return
        failure = message.failure
        if failure is not None and "planned" not in failure.reason:
            self._found.append(f"task-failed: {failure.operator_name}: {failure.traceback or failure.reason}")

    def after_master(self) -> None:
        """The job master had its turn: completed checkpoints have growing ids, and all their files."""
        simulation = self._simulation
        checkpoints = simulation.master.checkpoints
        if checkpoints is not self._coordinator:
            self._coordinator, self._completed = checkpoints, 0
        if checkpoints.statistics.completed == self._completed:
            return
        self._completed = checkpoints.statistics.completed
        last_id = checkpoints.statistics.last_id
        if last_id <= self._last_id:
            self._found.append(f"checkpoint-id: {last_id} completed after {self._last_id}")
        self._last_id = last_id
        ids = [m.checkpoint_id for m in checkpoints.completed]
        if ids != sorted(set(ids)):
            self._found.append(f"checkpoint-id: the kept checkpoints are {ids}")
        self._check_files()

    def _check_files(self) -> None:
        simulation = self._simulation
        for metadata in simulation.master.checkpoints.completed:
            missing = simulation.store.missing_files(metadata)
            if missing:
                self._found.append(
                    f"missing-file: kept checkpoint {metadata.checkpoint_id} lacks {missing[:SHOWN_MAX]}"
                )

    def on_release(self, worker: Worker) -> None:
        """The job master lets a worker go: at the end of the job nothing of it may be left there."""
        if self._simulation.master.status is not JobStatus.FINISHED:
            return
        executor = worker.executor
        if executor.tasks:
            self._found.append(f"leaked-task: {worker.worker_id} has {[str(t.execution) for t in executor.tasks]}")
        if executor._consumers or executor._producers:
            self._found.append(f"leaked-channel: {worker.worker_id} has {[*executor._consumers, *executor._producers]}")

    # --- at the end ------------------------------------------------------------------------------------------------

    def at_end(self) -> list[str]:
        """All that was found."""
        simulation = self._simulation
        self._found += [f"outside: {v}" for v in simulation.outside.violations]
        self._found += [f"storage: {v}" for v in simulation.store.violations]
        if not simulation.process.is_done:
            return self._found
        if simulation.master.status is not JobStatus.FINISHED:
            reason = simulation.master.failure
            self._found.append(f"failed: the job ended {simulation.master.status.name}: {reason}")
            return self._found
        self._check_output()
        self._check_leaks()
        return self._found

    def _check_output(self) -> None:
        simulation = self._simulation
        totals = simulation.process.totals
        may_repeat = simulation.scenario.mode == "at-least-once" and (
            totals.masters > 1 or totals.restarts + simulation.master.restarts > 0
        )
        for sink, expected in outputs(simulation.scenario.topology).items():
            records = simulation.outside.committed.get(sink, [])
            stage = simulation.scenario.topology.stages[int(sink.removeprefix("sink-"))]
            if may_repeat:
                found = [check_superset(sink, expected, records)]
            else:
                found = [check_exact(sink, expected, records)]
                if simulation.scenario.mode != "at-least-once":
                    found.append(check_order(sink, stage, records))
            self._found += [line for line in found if line is not None]

    def _check_leaks(self) -> None:
        simulation = self._simulation
        left = simulation.store.leftovers()
        if left:
            self._found.append(f"leaked-file: {len(left)} files are left: {left[:SHOWN_MAX]}")
        if simulation.cluster.workers:
            self._found.append(f"leaked-worker: {sorted(simulation.cluster.workers)}")
        if simulation.process.background.jobs:
            self._found.append(f"leaked-work: {len(simulation.process.background.jobs)} background jobs of the master")
