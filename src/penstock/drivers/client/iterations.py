"""A loop of a program as a bounded source: its supersteps run when a job that reads it starts (I3)."""

from __future__ import annotations

import atexit
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import cloudpickle

from penstock.base.aggregators import Aggregator, ConvergenceCriterion
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, WrongTimeError
from penstock.base.options import (
    BATCH_SAVEPOINT_PATH,
    CACHE_DIR,
    CHECKPOINTING_DIR,
    RECOVERY_PATH,
    RUNTIME_MODE,
)
from penstock.connectors.cached import CachedSource, CachedSplit
from penstock.connectors.file.filesystem import absolute_path, join, remove_directory
from penstock.core.connector import (
    Boundedness,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from penstock.drivers.client.superstep_loop import LoopEnd, LoopJobs, SuperstepLoop
from penstock.drivers.held_directory import directory_of_this_process
from penstock.plan.iterations import LoopPlan
from penstock.plan.job_graph import build_job_graph
from penstock.plan.transformation import Transformation

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


class IterationSource(Source[Any, CachedSplit]):
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
    def boundedness(self) -> Boundedness:
        """Bounded."""
        return Boundedness.BOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {"_iteration": None}

    def prepare(self, check_cancelled: Callable[[], None]) -> None:
        """Run the supersteps."""
        self.iteration.run(check_cancelled)

    def create_enumerator(
        self, context: SplitEnumeratorContext[CachedSplit], restored: Any | None
    ) -> SplitEnumerator[CachedSplit]:
        """Return an enumerator of the result's files or, after a restore, of the files that the checkpoint names."""
        directory = self.iteration.run(lambda: None)
        return CachedSource(directory).create_enumerator(context, restored)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, CachedSplit]:
        """Return a reader of the files."""
        return CachedSource("").create_reader(context)


def compile_iterations(program: list[Transformation], configuration: Configuration) -> None:
    """Build the jobs of all loops whose results a program reads."""
    for transformation in program:
        if isinstance(transformation.source, IterationSource):
            transformation.source.iteration.compile(configuration)
