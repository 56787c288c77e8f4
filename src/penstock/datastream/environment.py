"""`Environment`: the sources, settings and execution of a program (E1), its dependencies, and its unfinished work.

Environments create streams, and streams reference their environment. So that neither module needs the other, an
environment is generic in its stream type, and `build_stream` creates the streams. Everything else that creates streams
(windows, joins, loops, …) is generic in the same way, and gets them from the environment.

`Dependencies` declares the files that a program's functions need on the machines that run them: Python files, archives,
interpreter, jars.

`PlanTaken` supports showing a program's plan without running it: the first `execute()` takes the plan and ends the
program. `penstock info` sets the callback in a process of its own. The exception that ends the program is not an
`Exception`, so the program's own `except Exception` does not catch it.

At the end of a program, warnings report unfinished work: pipelines never executed (`Unexecuted`), jobs still running
(`watch`).

Only scripts warn. Notebooks and interactive interpreters do not, because their users inspect objects there. Test runs
do not, because tests build programs only to inspect them. Forked processes do not, and neither do programs that fail,
because the traceback says more. An environment may have been collected by then, so this module holds only weak
references to its sinks, and their names.
"""

from __future__ import annotations

import atexit
import datetime
import logging
import os
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

from penstock.base import options
from penstock.base.configuration import Configuration, ExecutionConfig
from penstock.base.declared_values import fitting
from penstock.base.errors import ConfigurationError, MissingPathError, UnsupportedError, WrongTypeError, WrongValueError
from penstock.base.job import JobExecutionResult
from penstock.base.restart_strategy import RestartStrategyConfiguration
from penstock.base.time import Duration, to_millis
from penstock.base.typeinfo import TypeInformation
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.datastream.cache import Cache
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.datastream.data_frames import source_of_dataframe
from penstock.datastream.execution_mode import RuntimeExecutionMode
from penstock.datastream.operator_settings import OperatorSettings
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.drivers.client.iterations import compile_iterations
from penstock.drivers.client.submit import submit_when_leading
from penstock.drivers.logs import check_keys, log_to_stderr_by_default
from penstock.drivers.running_job import RunningJob, check_on_sigterm, ends_on_sigterm
from penstock.plan.job_graph import build_job_graph, build_plan, check_outside_of_loops
from penstock.plan.stream_graph import Plan
from penstock.plan.transformation import Transformation, Upstream, upstream_first
from penstock.runtime.connector import Boundedness, Source
from penstock.runtime.graph import JobGraph
from penstock.runtime.operators.connector import SourceOperator
from penstock.server.attachment import prepare as prepare_operations


class Dependencies:
    """The methods of an environment that declare the dependencies of a job."""

    _configuration: Configuration

    def add_python_file(self, file_path: str) -> None:
        """Make a .py file, a .zip or .egg, or a directory with packages importable where functions run.

        On Spark it is shipped to the executors (`addPyFile`), for this and every later job of the session. With
        `execution.target: local` it is added to this process's module search path.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        self._append(options.PYTHON_FILES, [_existing(file_path)])

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive (.zip, .tar.gz, .tgz, .jar), which is unpacked where functions run; on Spark only.

        A function finds it at `pyspark.SparkFiles.get(target_dir)`; on a cluster also as `target_dir` in its working
        directory.

        Args:
            archive_path: the archive's path on this machine.
            target_dir: the name of the directory for the unpacked archive; by default the archive's file name.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        path = _existing(archive_path)
        self._append(options.PYTHON_ARCHIVES, [f"{path}#{target_dir or os.path.basename(path)}"])

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python that runs the workers of a Spark session started by the job: a path on Spark's machines."""
        self._configuration.write(options.PYTHON_EXECUTABLE, python_exec)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages on the workers. This is not supported and raises NotImplementedError."""
        raise UnsupportedError(
            "workers do not install packages: install the requirements where Spark's workers run, or pack an "
            "environment (penstock package-env), ship it with add_python_archive and name its Python with "
            "set_python_executable"
        )

    def add_jars(self, *jars_path: str) -> None:
        """Add jars to a Spark session started by the job (`spark.jars`), such as those for Spark's own connectors.

        Penstock itself runs no JVM code, so Flink's Java connectors and functions have no effect.
        """
        self._append(options.SPARK_JARS, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Add URLs to the class path of Java user code. Penstock runs none, so this raises NotImplementedError."""
        raise UnsupportedError("Penstock does not run a user's JVM code; add jars for Spark itself with add_jars")

    def _append(self, option: options.Option[Any], values: Iterable[str]) -> None:
        before = self._configuration.read(option)
        self._configuration.write(option, ",".join([*([before] if before else []), *values]))


def _existing(path: str) -> str:
    plain = path.removeprefix("file://")
    if not os.path.exists(plain):
        raise MissingPathError(f"{path!r} does not exist, so it cannot be shipped with the job")
    return os.path.abspath(plain)


#: Called with the plan instead of running the job; empty in programs that run.
takers: Final[list[Callable[[Plan], None]]] = []


class PlanTaken(BaseException):
    """Raised at the first `execute()` when only the plan is wanted."""


_log = logging.getLogger("penstock.job")

_QUIET_WITH: Final = ("IPython", "pytest", "_pytest")


class Unexecuted:
    """The sinks of one environment that no job has executed yet."""

    def __init__(self) -> None:
        self._sinks: list[tuple[weakref.ref[Transformation], str]] = []
        #: whether the environment is not the program's own, but was created to plan a statement
        self.is_internal = False

    def add(self, sink: Transformation) -> None:
        """Add a sink of the program, whose name may still change."""
        if self.is_internal:
            return
        if not self._sinks:
            _left.unexecuted.append(self)
            _left.listen()
        self._sinks.append((weakref.ref(sink), sink.display_name))

    def names(self) -> str:
        """Return the names of the sinks; for collected sinks, the names at the time of `add`."""
        sinks = [(ref(), name) for ref, name in self._sinks]
        names = dict.fromkeys(name if sink is None else sink.display_name for sink, name in sinks)
        return ", ".join(map(repr, names))

    def clear(self) -> None:
        """Remove all sinks: they were executed, inspected, or dropped."""
        if self._sinks:
            self._sinks = []
            _left.unexecuted.remove(self)


class _Left:
    """The unfinished work of this process."""

    def __init__(self) -> None:
        self.unexecuted: list[Unexecuted] = []
        self.jobs: dict[RunningJob, str] = {}
        self._pid = 0

    def listen(self) -> None:
        """Register `tell` as the first exit handler, so that it runs before the handlers that end jobs and sessions."""
        self._pid = os.getpid()
        atexit.unregister(self.tell)
        atexit.register(self.tell)

    def tell(self) -> None:
        """Log warnings about unfinished work at the end of the program."""
        if os.getpid() != self._pid or _is_quiet():
            return
        unexecuted = list(self.unexecuted)
        # A job that has just ended may not have been removed yet.
        jobs = [name for job, name in list(self.jobs.items()) if not job.get_job_execution_result().done()]
        if unexecuted or jobs:
            log_to_stderr_by_default()
        for left in unexecuted:
            _log.warning(
                "the program ends, but the pipeline to %s was never executed: call env.execute()", left.names()
            )
        for name in jobs:
            _log.warning(
                "the program ends, and with it job %r, which is still running: wait for it with job.wait(), or end it "
                "with job.cancel() or job.stop_with_savepoint(...)",
                name,
            )


_left = _Left()


def watch(job: RunningJob, name: str) -> None:
    """Track a running job until its result is available."""
    _left.jobs[job] = name
    _left.listen()
    job.get_job_execution_result().add_done_callback(lambda _: _left.jobs.pop(job, None))


def _is_quiet() -> bool:
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
    has_failed = getattr(sys, "last_value", None) is not None
    return bool(is_interactive or has_failed or any(name in sys.modules for name in _QUIET_WITH))


DEFAULT_JOB_NAME = "Penstock Streaming Job"

#: The type of the streams that an environment creates.
StreamT = TypeVar("StreamT", bound=OperatorSettings)


class Environment(Dependencies, ABC, Generic[StreamT]):
    """Collects a program's transformations and runs them; implements `StreamExecutionEnvironment`."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration
        self._transformations: list[Transformation] = []
        self._caches: list[Cache] = []
        self._left_out: set[Transformation] = set()
        self._reported_keys: set[str] = set()
        self._unexecuted = Unexecuted()

    @abstractmethod
    def build_stream(self, upstreams: tuple[Upstream, ...], type_info: TypeInformation | None = None) -> StreamT:
        """Create the stream that reads `upstreams`; called by streams."""

    # --- settings ----------------------------------------------------------------------------------------------------

    def get_configuration(self) -> Configuration:
        """Return the settings; changes take effect at the next `execute`.

        Examples:
            >>> env.get_configuration().set_string("pipeline.name", "cups").get_string("pipeline.name", "")
            'cups'
        """
        return self._configuration

    def configure(self, configuration: Configuration) -> None:
        """Add settings."""
        self._configuration.add_all(configuration)

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings, under PyFlink's names."""
        return ExecutionConfig(self._configuration)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks for operators that do not set their own.

        Raises:
            ConfigurationError: if it is less than 1.

        Examples:
            >>> env.set_parallelism(2).get_parallelism()
            2
        """
        self._configuration.write(options.PARALLELISM, parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism."""
        return self._configuration.read(options.PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of keyed state; it is fixed for the lifetime of a job's state."""
        self._configuration.write(options.MAX_PARALLELISM, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups."""
        return self._configuration.read(options.MAX_PARALLELISM)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Set the execution mode of the program: streaming (the default), batch, automatic or micro-batch (I1).

        Examples:
            >>> from penstock.datastream import RuntimeExecutionMode
            >>> batch = env.set_runtime_mode(RuntimeExecutionMode.BATCH)
            >>> cups = batch.from_elements(("ann", 2), ("ann", 3)).key_by(lambda cup: cup[0])
            >>> cups.sum(1).collect()
            [('ann', 5)]
        """
        self._configuration.write(options.RUNTIME_MODE, execution_mode.value)
        return self

    def set_buffer_timeout(self, timeout_millis: int | Duration | datetime.timedelta) -> Self:
        """Set the age (ms) at which a network buffer is sent even if not full; 0 sends immediately, -1 never."""
        value = timeout_millis if isinstance(timeout_millis, int) else to_millis(timeout_millis)
        self._configuration.write(options.BUFFER_TIMEOUT_MS, value)
        return self

    def get_buffer_timeout(self) -> int:
        """Return the buffer timeout in ms."""
        return self._configuration.read(options.BUFFER_TIMEOUT_MS)

    def disable_operator_chaining(self) -> Self:
        """Run every operator as its own task (B4)."""
        self._configuration.write(options.OPERATOR_CHAINING_ENABLED, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators are chained."""
        return self._configuration.read(options.OPERATOR_CHAINING_ENABLED)

    def enable_checkpointing(
        self,
        interval: int | Duration | datetime.timedelta,
        mode: CheckpointingMode | None = None,
    ) -> Self:
        """Take a checkpoint every `interval` (ms or a duration): state survives failures exactly once (G5, J).

        An interval below 10 ms logs a warning.

        Args:
            interval: the time from the start of one checkpoint to that of the next: ms, or a duration; at least 1 ms.
            mode: the guarantee; None leaves it as configured, by default EXACTLY_ONCE.

        Raises:
            ConfigurationError: if the interval is less than 1 ms.

        Examples:
            >>> env.enable_checkpointing(10_000).get_checkpoint_interval()
            10000
        """
        self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            self._configuration.write(options.CHECKPOINTING_MODE, mode.value)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval in ms; -1 if checkpointing is off."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the checkpoint settings."""
        return CheckpointConfig(self._configuration)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Alias of `get_checkpointing_mode`."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers overtake records (G5)."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether unaligned checkpoints are forced."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set the directory for savepoints without one of their own."""
        self._configuration.write(options.SAVEPOINT_DIR, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory for savepoints without one of their own; None if not set."""
        return self._configuration.read(options.SAVEPOINT_DIR)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Register a group by its name; an unregistered group can be used by name alone.

        Raises:
            NotImplementedError: for a group with resources of its own.
        """
        slot_sharing_group.check_is_available()
        return self

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return False: operators with different maximum parallelism are always separate tasks."""
        return False

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """Set the restart strategy after a failure."""
        restart_strategy_configuration.apply_to(self._configuration)

    @property
    def is_checkpointed(self) -> bool:
        """Whether checkpointing is on."""
        return self._configuration.read(options.CHECKPOINTING_INTERVAL_MS) is not None

    # --- sources -----------------------------------------------------------------------------------------------------

    def from_source(
        self,
        source: Source[Any, Any],
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> StreamT:
        """Create a stream of a source's records, with event time as defined by the strategy.

        Args:
            source: the description of the source.
            watermark_strategy: assigns event times and watermarks; `WatermarkStrategy.no_watermarks()` for none.
            source_name: the name of the operator in plans, errors and metrics.
            type_info: the type of the records; None if it is not declared.

        Examples:
            >>> from penstock.common import WatermarkStrategy
            >>> from penstock.datastream.connectors import NumberSequenceSource
            >>> env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers").collect()
            [1, 2, 3]
        """
        transformation = Transformation(
            "Source",
            partial(SourceOperator, source, watermark_strategy),
            name=source_name,
            is_stateful=True,
            parallelism_limit=source.max_parallelism(),
            source=source,
            output_type=type_info,
            alignment=watermark_strategy.alignment,
        )
        self.add(transformation)
        return self.build_stream((Upstream(transformation),))

    def add_source(
        self,
        source_func: Source[Any, Any],
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> StreamT:
        """Older name of `from_source`, without watermarks; there is only one kind of source.

        Raises:
            TypeError: if it is not a `Source`.
        """
        if not isinstance(source_func, Source):
            raise WrongTypeError(
                f"{source_func!r} is not a Source: implement penstock.runtime.connector.Source, use from_collection() "
                "or a DataGeneratorSource"
            )
        return self.from_source(source_func, WatermarkStrategy.no_watermarks(), source_name, type_info)

    def from_collection(self, collection: Iterable[Any], type_info: TypeInformation | None = None) -> StreamT:
        """Create a bounded stream of these values in their order, from one subtask; with `Types.ROW`, of rows.

        Mutable values are copied, because they may change later or appear several times.

        Args:
            collection: the records, read at once; the job carries them.
            type_info: the type of the records; None if it is not declared.

        Examples:
            >>> from penstock.common import Types
            >>> env.from_collection([("tea", 2)], Types.TUPLE([Types.STRING(), Types.INT()])).collect()
            [('tea', 2)]
        """
        values = list(collection)
        convert = fitting(type_info)
        if convert is not None:
            values = list(map(convert, values))
        return self.from_source(
            CollectionSource(values), WatermarkStrategy.no_watermarks(), "Collection Source", type_info
        )

    def from_elements(self, *elements: Any) -> StreamT:
        """Create a bounded stream of these values.

        Examples:
            >>> env.from_elements("tea", "milk").collect()
            ['tea', 'milk']
        """
        return self.from_collection(elements)

    def socket_text_stream(self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0) -> StreamT:
        """Create a stream of the text that a server sends, split at the delimiter; not replayable after a failure (J).

        Args:
            hostname: the host to connect to.
            port: the port of the server.
            delimiter: the separator between two records.
            max_retry: how often to reconnect, once a second; 0 for never, a negative number for no limit.
        """
        source = SocketTextSource(hostname, port, delimiter, max_retry)
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Socket Stream")

    def from_dataframe(
        self,
        df: Any,
        type_info: TypeInformation | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
    ) -> StreamT:
        """Create a stream of the rows of a Spark data frame, as `Row`s with the names of its columns (I1, I2).

        With a `Types.TUPLE` they are tuples, with a `Types.ROW_NAMED` rows of those names, and with a basic type the
        values of the single column. Batch execution on Spark reads the frame in place; otherwise Spark writes a copy of
        it before the job begins, below `execution.checkpointing.dir` if that is set.

        A streaming frame (`df.isStreaming`) creates an unbounded stream, in micro-batch execution on Spark: each batch
        that Spark finds is an epoch, and checkpoints record how far the frame has been read (docs/micro-batch.md).

        Raises:
            ConfigurationError: if the type does not fit the columns, or a streaming frame keeps state in Spark or
                belongs to a Spark Connect session.
        """
        source = source_of_dataframe(self._configuration, df, type_info)
        strategy = watermark_strategy or WatermarkStrategy.no_watermarks()
        return self.from_source(source, strategy, "Data Frame Source", type_info)

    def add(self, transformation: Transformation) -> None:
        """Add a transformation to the program; called by streams."""
        self._transformations.append(transformation)
        if transformation.sink is not None:
            self._unexecuted.add(transformation)

    def mark_internal(self) -> None:
        """Mark the environment as planning a statement: none of its pipelines is reported as never executed."""
        self._unexecuted.is_internal = True

    def has_id(self, uid_hash: str) -> bool:
        """Return whether a transformation of the program has this id."""
        return any(transformation.uid_hash == uid_hash for transformation in self._transformations)

    def leave_out(self, transformations: list[Transformation]) -> None:
        """Let `execute` skip transformations that became a data frame, unless other parts of the program need them."""
        self._left_out.update(transformations)

    # --- execution ---------------------------------------------------------------------------------------------------

    def job_graph(self, job_name: str | None = None) -> JobGraph:
        """Return the job graph of the program; raises `ConfigurationError` if the program contradicts itself."""
        self._unexecuted.clear()
        return self._job_graph(job_name)[0]

    def _job_graph(self, job_name: str | None) -> tuple[JobGraph, list[Cache]]:
        self._check_not_empty()
        self._check_name(job_name)
        program, caches = self._program()
        return build_job_graph(program, self._configuration, self._name(job_name)), caches

    def _program(self) -> tuple[list[Transformation], list[Cache]]:
        """Return the transformations to run, upstream first, and the caches to fill.

        The transformations are the added ones, their dependencies in programs executed earlier, and the sinks of these
        caches.
        """
        writers = {id(cache.transformation): (cache, cache.plan()) for cache in self._caches}
        program = upstream_first(self._ends())
        check_outside_of_loops(program)
        compile_iterations(program, self._configuration)
        caches = []
        for transformation in list(program):
            cache, writer = writers.get(id(transformation), (None, None))
            if cache is not None and writer is not None:
                is_latest = self._configuration.read(options.RECOVERY_FROM_LATEST)
                if is_latest or self._configuration.read(options.RECOVERY_PATH) is not None:
                    option = options.RECOVERY_FROM_LATEST.key() if is_latest else options.RECOVERY_PATH.key()
                    raise ConfigurationError(
                        f"{option}: a job that resumes from a savepoint reads only the remaining records, so it cannot "
                        "cache a stream"
                    )
                program.append(writer)
                caches.append(cache)
        return program, caches

    def check_keys(self, keys: Iterable[str] = ()) -> None:
        """Warn once about each unknown key, or raise if the configuration is strict; called when a job starts.

        Args:
            keys: keys of options that are not in the configuration, such as options of tables.
        """
        is_strict = self._configuration.read(options.CONFIGURATION_STRICT)
        check_keys({*self._configuration.key_set(), *keys}, is_strict, self._reported_keys)

    def create_cache(self, upstreams: tuple[Upstream, ...]) -> Cache:
        """Create a cache for the records of a stream; called by `DataStream.cache`."""
        cache = Cache(upstreams, self._configuration.read(options.CACHE_DIR))
        self._caches.append(cache)
        return cache

    def _name(self, job_name: str | None) -> str:
        return job_name or self._configuration.read(options.PIPELINE_NAME) or DEFAULT_JOB_NAME

    def _check_name(self, job_name: str | None) -> None:
        if self._name(job_name) == DEFAULT_JOB_NAME and self._configuration.read(options.RECOVERY_FROM_LATEST):
            raise ConfigurationError(
                f"{options.RECOVERY_FROM_LATEST.key()} finds jobs by their name: give this job its own name with "
                "execute(name) "
                f"or {options.PIPELINE_NAME.key()}"
            )

    def _check_not_empty(self) -> None:
        if not self._ends():
            raise WrongValueError("there is nothing to execute: the program has no sources and no transformations")

    def _ends(self) -> list[Transformation]:
        return [transformation for transformation in self._transformations if transformation not in self._left_out]

    def ends_so_far(self) -> tuple[list[str], bool]:
        """Return the names of the program's sinks so far, and whether all its input is bounded; called by streams."""
        sinks = list(dict.fromkeys(t.display_name for t in self._ends() if t.sink is not None))
        sources = [t.source for t in upstream_first(self._ends()) if t.source is not None]
        return sinks, all(source.boundedness is Boundedness.BOUNDED for source in sources)

    def build_program_part(self, upstreams: Iterable[Upstream]) -> list[Transformation]:
        """Return the part of the program that produces these streams, upstream first; called by streams."""
        part = self._above(upstreams)
        check_outside_of_loops(part)
        compile_iterations(part, self._configuration)
        return part

    def _above(self, upstreams: Iterable[Upstream]) -> list[Transformation]:
        for cache in self._caches:
            cache.plan()
        return upstream_first([upstream.transformation for upstream in upstreams])

    def describe_plan(self, upstreams: Iterable[Upstream]) -> Plan:
        """Return the plan of that part, for display."""
        part = self._above(upstreams)
        return build_plan(part, self._configuration, self._name(None))

    def plan(self, job_name: str | None = None) -> Plan:
        """Return the plan of the program, for display as text, Mermaid or SVG; a notebook renders it as a picture."""
        self._check_not_empty()
        self._unexecuted.clear()
        return build_plan(self._program()[0], self._configuration, self._name(job_name))

    def explain(self) -> str:
        """Return the plan of the program as text.

        Examples:
            >>> _ = env.from_elements("tea").map(str.upper).print()
            >>> print(env.explain())
            Penstock Streaming Job: 1 vertices, 1 slots
            [0] parallelism 1
                Collection Source (state)
                Map
                Print (state)
        """
        return self.plan().to_text()

    def get_execution_plan(self) -> str:
        """Return the plan of the program, operator by operator, as JSON in the format of Flink's plans."""
        return self.plan().to_json()

    def close(self) -> None:
        """Discard the program that was not executed, and delete cached records; running jobs continue."""
        self._unexecuted.clear()
        self._transformations, self._left_out = [], set()
        for cache in self._caches:
            cache.invalidate()

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait for its end; raises `JobExecutionError` if it fails.

        Ctrl-C cancels it; the option `penstock.on-sigterm` sets the reaction to SIGTERM.

        Args:
            job_name: the name in lists, logs and Spark's pages; None for the option `pipeline.name`.

        Returns:
            The job's runtime in ms and its accumulators.

        Raises:
            ValueError: if the program is empty.
            JobExecutionError: if the job fails.

        Examples:
            >>> _ = env.from_elements("tea").print()
            >>> result = env.execute("cups")
            tea
        """
        check_on_sigterm(self._configuration)
        job = self.execute_async(job_name)
        with ends_on_sigterm(job, self._configuration):
            return job.wait()

    def execute_async(self, job_name: str | None = None) -> RunningJob:
        """Run the program and return at once. The environment is then ready for the next one, even if this one fails.

        With `high-availability.type`, it returns once this driver leads the job.

        Args:
            job_name: the name in lists, logs and Spark's pages; None for the option `pipeline.name`.

        Returns:
            The running job: a `JobClient`, with `wait()` besides.

        Raises:
            ValueError: if the program is empty.

        Examples:
            >>> _ = env.from_elements("tea").map(str.upper)
            >>> job = env.execute_async("cups")
            >>> result = job.get_job_execution_result().result(timeout=60)
        """
        if takers:
            takers[-1](self.plan(job_name))
            raise PlanTaken
        try:
            self.check_keys()
            job_graph, caches = self._job_graph(job_name)
        finally:
            self._unexecuted.clear()
            self._transformations, self._left_out = [], set()
        for cache in caches:
            cache.invalidate()
        prepare_operations(self._configuration)
        job = submit_when_leading(job_graph, self._configuration)
        watch(job, job_graph.name)
        for cache in caches:
            cache.set_writer(job.get_job_execution_result())
        return job
