"""One history of jobs whose masters work step by step, from one seed.

The masters, tasks and split enumerators are the same ones that run on Spark. The clock, storage, the outside world and
the driver are simulated: steps fail, tasks run twice, and the driver dies before, after and within each step. However a
job ends, the next one starts where a user would start it: from the newest checkpoint under the job's name, or from the
savepoint that it was given. In the end the sinks must hold exactly the output of a plain computation over all records.
"""

from __future__ import annotations

from typing import Final

from penstock.base import options
from penstock.drivers.simulation.answers import check_exact
from penstock.drivers.simulation.file_sinks import hidden, left_open
from penstock.drivers.simulation.jobs import Job
from penstock.drivers.simulation.reference import outputs
from penstock.drivers.simulation.savepoint_checks import consumed
from penstock.drivers.simulation.simulation import History
from penstock.drivers.simulation.stepwise.driver import Driver
from penstock.drivers.simulation.stepwise.scenario import FILLED
from penstock.drivers.simulation.stepwise.world import DriverKilled, StepwiseWorld

JOBS_MAX: Final = 60
#: After this many jobs no more faults are injected.
FAULTY_JOBS: Final = 20


class StepwiseSimulation(StepwiseWorld):
    """Runs one history."""

    def run(self) -> History:
        """Run the whole history."""
        status = "?"
        with self.around.present():
            path, is_filled = None, not self.scenario.fills_first
            for number in range(JOBS_MAX):
                if number == FAULTY_JOBS:
                    self.faults.are_over = True
                job = self._job(number, path, not is_filled)
                self.tasks.begin_driver()
                driver = Driver(self, job, path)
                try:
                    status = driver.run().name
                except DriverKilled:
                    self.seen["driver stopped" if driver.is_stopped else "driver killed"] += 1
                    self.on_driver_death()
                    status = "?"
                driver.check_answers()
                if status == "FAILED":
                    self.outsiders.on_failure(str(driver.master.failure))
                if self.violations:
                    break
                path = driver.goes_on_from
                if driver.is_back_fill or (path == FILLED and FILLED not in self.disk.savepoints):
                    # If a power cut removed the savepoint before a job started from it, no user knows of it yet.
                    is_filled = FILLED in self.disk.savepoints
                    path = FILLED if is_filled else None
                elif (status == "FINISHED" and driver.is_at_end()) or self.violations:
                    break
            else:
                self.violations.append(f"stalled: {JOBS_MAX} jobs, the last one {status}")
            self.power.is_over = True
            self.stopped.end()
            self.tasks.end()
            self.outsiders.end()
            self._check_output()
            self._check_hidden_files()
        return self.history("epochs", status)

    def _job(self, number: int, path: str | None, fills: bool) -> Job:
        job = self.jobs.now if number == 0 else self.jobs.begin(path, as_it_was=True)
        self.jobs.accept()
        if fills:
            job.in_tempo("BATCH", FILLED)
            if FILLED not in self.disk.savepoints:
                for left in self.disk.below(FILLED):  # a user would choose another path or check for files first
                    self.disk.unlink(left)
        elif path is not None:
            self.stopped.kill_those_that_may_lead()
        else:
            job.configuration.write(options.RECOVERY_FROM_LATEST, True)
        self.write(f"job {job.job_id}: {job.graph.mode}, from {path or 'the newest'}")
        return job

    # --- what must hold --------------------------------------------------------------------------------------------

    def _check_hidden_files(self) -> None:
        """Check that no job that ended well left hidden files, its own or its predecessors' (G9).

        Hidden files are those in progress or closed but not visible. Exceptions: files that a power cut restored, that
        could not be removed, or that were begun later than others assumed; files that a savepoint may name; files of
        unrelated jobs; and files that an outsider has put back.
        """
        is_excused = self.faults.seen["power-cut"] or self.seen["driver stopped"] or self.tasks.seen["file step failed"]
        if is_excused or self.tasks.seen["cut off"] or self.outsiders.seen["file moved away"]:
            return
        paths = left_open(self.disk) if self.disk.savepoints else hidden(self.disk)
        left = [path for path in paths if not self.outsiders.may_leave(path)]
        if left:
            self.violations.append(f"leaked-file: {len(left)} files that nobody needs are left: {left[0]}")

    def _check_output(self) -> None:
        topology = self.scenario.scenario.topology
        read = {} if self.drained is None else consumed(self.disk, self.drained)
        expected = outputs(topology, read)
        for sink in (stage.uid for stage in topology.stages if stage.kind == "sink"):
            flaw = check_exact(sink, expected[sink], self.read_sink_output(sink))
            if flaw is not None:
                self.violations.append(flaw)


def run_stepwise_seed(seed: int, is_traced: bool = False) -> History:
    """Run the history of a seed."""
    return StepwiseSimulation(seed, is_traced=is_traced).run()
