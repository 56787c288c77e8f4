"""Sequences of supersteps, each a batch job that reads the output of the previous one (I3).

The output of a superstep is valid once its job has succeeded; its input is then deleted. A failed superstep fails the
loop. Recovery within a superstep is that of batch execution; the loop uses nothing from a failed superstep.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.aggregators import ConvergenceCriterion
from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError, OperationError
from penstock.base.options import CACHE_DIR, CHECKPOINTING_DIR
from penstock.codecs import cloud
from penstock.connectors.cached import CachedSource, directory_of_job, is_whole
from penstock.connectors.file.filesystem import remove_directory
from penstock.core.graph.job_graph import JobGraph
from penstock.core.supersteps import AGGREGATE, RECORDS, Superstep
from penstock.drivers.client.submit import submit
from penstock.plan.iterations import directory_of_role, operator_id_of_role

_log = logging.getLogger("penstock.iterations")

#: The interval (s) at which a loop checks for cancellation while a superstep runs.
_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class LoopJobs:
    """The jobs of a loop: one that runs before it, and one that runs in each superstep.

    Attributes:
        name: the name of the iteration, for logs and errors.
        prologue: computes the input of the first superstep, and all data that no superstep changes.
        step: runs a superstep.
        kept: the roles of the data that no superstep changes.
        directory: the output directory of all jobs.
        configuration: the configuration of these jobs.
    """

    name: str
    prologue: JobGraph
    step: JobGraph
    kept: tuple[str, ...]
    directory: str
    configuration: Configuration


@dataclass(frozen=True)
class LoopEnd:
    """The end of a loop and its result.

    Attributes:
        max_iterations: the maximum number of supersteps.
        result: the role of the loop's result.
        goes_on: the role whose data end the loop when they are empty, or None.
        criterion: an aggregator's name, and the criterion that decides by its value when to end; or None.
    """

    max_iterations: int
    result: str
    goes_on: str | None
    criterion: tuple[str, ConvergenceCriterion[Any]] | None


class SuperstepLoop:
    """One run of a loop.

    Args:
        jobs: the jobs to run.
        end: when to end.
        aggregators: pickled: name -> `Aggregator`.
        check_cancelled: raises if the loop is to end.
    """

    def __init__(
        self,
        jobs: LoopJobs,
        end: LoopEnd,
        aggregators: bytes,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._jobs = jobs
        self._end = end
        self._check_cancelled = check_cancelled
        self._aggregators = aggregators
        #: role -> the directory of its current data, and its number of records
        self._directories: dict[str, str] = {}
        self._records: dict[str, int] = {}

    def run(self) -> str:
        """Run the loop; return the directory of the result, the only one that remains."""
        try:
            self._run(self._jobs.prologue, 0, {})
            self._run_supersteps()
        except BaseException:
            _remove(self._jobs.directory)
            raise
        for role, directory in self._directories.items():
            if role != self._end.result:
                _remove(directory)
        return self._directories[self._end.result]

    def _run_supersteps(self) -> None:
        name, aggregates = self._jobs.name, dict[str, Any]()
        goes_on = self._end.goes_on
        for number in range(1, self._end.max_iterations + 1):
            if goes_on is not None and self._records.get(goes_on) == 0:
                _log.info("iteration %r: ended after %d supersteps: the %s is empty", name, number - 1, goes_on)
                return
            before = dict(self._directories)
            begun = time.monotonic()
            aggregates = self._run(self._jobs.step, number, aggregates)
            seconds = time.monotonic() - begun
            for role, directory in before.items():
                if self._directories[role] != directory:
                    _remove(directory)
            _log.info("iteration %r: superstep %d: %s, %.2f s", name, number, self._figures(aggregates), seconds)
            if self._is_converged(number, aggregates):
                _log.info("iteration %r: ended after %d supersteps: converged", name, number)
                return
        if self._end.max_iterations:
            _log.info("iteration %r: ended after %d supersteps, the maximum", name, self._end.max_iterations)

    def _figures(self, aggregates: Mapping[str, Any]) -> str:
        of = [f"{n} records in the {role}" for role, n in self._records.items() if role not in self._jobs.kept]
        return ", ".join(of + [f"{name} = {value}" for name, value in aggregates.items()])

    def _is_converged(self, number: int, aggregates: Mapping[str, Any]) -> bool:
        if self._end.criterion is None:
            return False
        name, criterion = self._end.criterion
        try:
            return criterion.is_converged(number, aggregates[name])
        except Exception as error:
            raise JobExecutionError(
                self._jobs.name,
                f"the convergence criterion of aggregator {name!r} failed after superstep {number}: "
                f"{type(error).__name__}: {error}",
            ) from error

    # --- one job ---------------------------------------------------------------------------------------------------

    def _run(self, graph: JobGraph, number: int, previous: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job and take over its output; return the results of its aggregators."""
        superstep = Superstep(self._jobs.name, number, self._aggregators, cloud.dumps(dict(previous)))
        name = f"{self._jobs.name}, superstep {number}" if number else f"{self._jobs.name}, input"
        if not self._end.max_iterations:
            name = self._jobs.name  # without supersteps, this is the only job
        job_id, left = self._outcome(replace(self._reading(graph), name=name, superstep=superstep))
        for key, value in left.items():
            if isinstance(value, Exception):
                raise JobExecutionError(name, f"{key.partition(':')[2]}: {type(value).__name__}: {value}") from value
            if key.startswith(RECORDS):
                self._take_over(key.removeprefix(RECORDS), job_id, value)
        aggregates: dict[str, Any] = {}
        for aggregator_name, aggregator in pickle.loads(self._aggregators).items():
            aggregator.reset()
            aggregates[aggregator_name] = left.get(AGGREGATE + aggregator_name, aggregator.get_aggregate())
        return aggregates

    def _reading(self, graph: JobGraph) -> JobGraph:
        """Return the job with sources that read the current data."""
        now = {operator_id_of_role(role): CachedSource(path) for role, path in self._directories.items()}
        vertices = [
            replace(vertex, sources={id_: now.get(id_, source) for id_, source in vertex.sources.items()})
            for vertex in graph.vertices
        ]
        return replace(graph, vertices=tuple(vertices))

    def _take_over(self, role: str, job_id: str, records: int) -> None:
        directory = directory_of_job(directory_of_role(self._jobs.directory, role), job_id)
        if not is_whole(directory):
            raise OperationError(
                f"iteration {self._jobs.name!r}: this program does not find the output of its tasks in {directory}: on "
                f"a cluster set {CACHE_DIR.key()} or {CHECKPOINTING_DIR.key()} to a directory that all machines can "
                "reach"
            )
        self._directories[role], self._records[role] = directory, records

    def _outcome(self, graph: JobGraph) -> tuple[str, dict[str, Any]]:
        job = submit(graph, self._jobs.configuration, _Quiet())
        outcome = job.get_job_execution_result()
        try:
            while not wait([outcome], _LOOK_SECONDS).done:
                self._check_cancelled()
        except BaseException:
            job.end()
            raise
        self._check_cancelled()
        return str(job.get_job_id()), dict(outcome.result().get_all_accumulator_results())


class _Quiet:
    """The listener of a superstep's job; the loop itself logs the progress."""

    def on_job_status(self, status: str, reason: str | None) -> None:
        """Do nothing."""

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None:
        """Do nothing."""

    def on_log(self, line: str) -> None:
        """Log the line."""
        _log.info(line)


def _remove(directory: str) -> None:
    try:
        remove_directory(directory)
    except Exception as error:  # noqa: BLE001 - left-over files are no reason to fail
        _log.warning("%s could not be deleted: %s", directory, error)
