"""Loops of a program: sequences of supersteps, and the bounded source that reads a loop's result (I3).

`SuperstepLoop` runs a sequence of supersteps, each a batch job that reads the output of the previous one. The output of
a superstep is valid once its job has succeeded; its input is then deleted. A failed superstep fails the loop. Recovery
within a superstep is that of batch execution; the loop uses nothing from a failed superstep.

`IterationSource` presents a loop as a bounded source: its supersteps run when a job that reads it starts.
"""

from __future__ import annotations

import atexit
import logging
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from typing import Any, Final

import cloudpickle

from penstock.base.accumulators import Aggregator, ConvergenceCriterion
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError, OperationError, WrongTimeError
from penstock.base.options import BATCH_SAVEPOINT_PATH, CACHE_DIR, CHECKPOINTING_DIR, RECOVERY_PATH, RUNTIME_MODE
from penstock.codecs import cloud
from penstock.connectors.cached import CachedSource, CachedSplit, directory_of_job, is_whole
from penstock.connectors.file.filesystem import absolute_path, join, remove_directory
from penstock.drivers.client.submit import submit
from penstock.drivers.directories import directory_of_this_process
from penstock.plan.job_graph import LoopPlan, build_job_graph, directory_of_role, operator_id_of_role
from penstock.plan.transformation import Transformation
from penstock.runtime import connector
from penstock.runtime.graph import JobGraph
from penstock.runtime.supersteps import AGGREGATE, RECORDS, Superstep

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


_WAIT_SECONDS: Final = 0.1


@dataclass
class LoopRules:
    """The settings of a loop apart from its step."""

    name: str
    max_iterations: int
    aggregators: dict[str, Aggregator[Any]] = field(default_factory=dict)
    criterion: tuple[str, ConvergenceCriterion[Any]] | None = None


class Iteration:
    """A loop: its plan, and its result once it has run. It runs once; all later jobs use its result.

    Args:
        plan: the step.
        rules: the other settings, which may change until the loop runs.
        result: the role of the result.
        goes_on: the role whose data end the loop when they are empty, or None.
    """

    def __init__(self, plan: LoopPlan, rules: LoopRules, result: str, goes_on: str | None) -> None:
        self._plan = plan
        self._rules = rules
        self._roles = (result, goes_on)
        self._id = uuid.uuid4().hex
        self._of_this_machine: str | None = None
        self._temporary: set[str] = set()
        self._lock = threading.Lock()
        self._jobs: LoopJobs | None = None
        self._result: str | None = None

    def compile(self, configuration: Configuration) -> None:
        """Build the jobs, so that errors in them are detected before any job runs."""
        if self._result is not None:
            return
        directory, stays = self._directory(configuration)
        settings = Configuration(configuration).write(RUNTIME_MODE, "BATCH")
        for option in (RECOVERY_PATH, BATCH_SAVEPOINT_PATH):
            settings.remove_config(option.key())
        programs = self._plan.programs(directory)
        compile_iterations(programs.prologue, configuration)
        self._aggregators()
        name = self._rules.name
        prologue = build_job_graph(programs.prologue, settings, name)
        step = build_job_graph(programs.step, settings, name)
        self._jobs = LoopJobs(name, prologue, step, programs.kept, directory, settings)
        if not stays and directory not in self._temporary:
            self._temporary.add(directory)
            atexit.register(remove_directory, directory)

    def run(self, check_cancelled: Callable[[], None]) -> str:
        """Run the loop unless it has already run; return the directory of the result."""
        while not self._lock.acquire(timeout=_WAIT_SECONDS):
            check_cancelled()
        try:
            if self._result is None:
                assert self._jobs is not None
                rules, (result, goes_on) = self._rules, self._roles
                end = LoopEnd(rules.max_iterations, result, goes_on, rules.criterion)
                try:
                    self._result = SuperstepLoop(self._jobs, end, self._aggregators(), check_cancelled).run()
                except BaseException:
                    self._of_this_machine = None  # the directory has been deleted
                    raise
            return self._result
        finally:
            self._lock.release()

    def _aggregators(self) -> bytes:
        for name, aggregator in self._rules.aggregators.items():
            try:
                cloudpickle.dumps(aggregator, protocol=5)
            except Exception as error:
                raise ConfigurationError(
                    f"iteration {self._rules.name!r}: aggregator {name!r} cannot be sent to workers: {error}"
                ) from error
        pickled: bytes = cloudpickle.dumps(self._rules.aggregators, protocol=5)
        return pickled

    def _directory(self, configuration: Configuration) -> tuple[str, bool]:
        """Return the data directory, and whether the result stays there because checkpoints of a stream refer to it."""
        checkpoints, cache = configuration.read(CHECKPOINTING_DIR), configuration.read(CACHE_DIR)
        leaves_nothing = (
            configuration.read(RUNTIME_MODE) == "BATCH" and configuration.read(BATCH_SAVEPOINT_PATH) is None
        )
        stays = checkpoints is not None and not leaves_nothing
        if checkpoints is not None and (stays or cache is None):
            return join(join(absolute_path(checkpoints), "iterations"), self._id), stays
        if cache is not None:
            return join(absolute_path(cache), f"iteration-{self._id}"), False
        if self._of_this_machine is None:
            self._of_this_machine = directory_of_this_process("penstock-iteration-")
        return self._of_this_machine, False


class IterationSource(connector.Source[Any, CachedSplit]):
    """A source that reads the result of a loop."""

    def __init__(self, iteration: Iteration) -> None:
        self._iteration: Iteration | None = iteration

    @property
    def iteration(self) -> Iteration:
        """The loop; available in the program only, because it is not sent to tasks."""
        if self._iteration is None:
            raise WrongTimeError("an iteration exists only in the program that created it, not in tasks")
        return self._iteration

    @property
    def boundedness(self) -> connector.Boundedness:
        """Bounded."""
        return connector.Boundedness.BOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {"_iteration": None}

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Run the supersteps."""
        self.iteration.run(check_cancelled)

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[CachedSplit], restored: Any | None
    ) -> connector.SplitEnumerator[CachedSplit]:
        """Return an enumerator of the result's files or, after a restore, of the files that the checkpoint names."""
        directory = self.iteration.run(lambda: None)
        return CachedSource(directory).create_enumerator(context, restored)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, CachedSplit]:
        """Return a reader of the files."""
        return CachedSource("").create_reader(context)


def compile_iterations(program: list[Transformation], configuration: Configuration) -> None:
    """Build the jobs of all loops whose results a program reads."""
    for transformation in program:
        if isinstance(transformation.source, IterationSource):
            transformation.source.iteration.compile(configuration)
