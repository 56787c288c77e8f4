"""Runs the query of a world in a setting, through the public API, as a program of a user does."""

from __future__ import annotations

import glob
import re
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.table.differential.files import can_be_files, write_files
from tests.table.differential.memory import RUNS, MemoryConnector, MemorySink, Run
from tests.table.differential.operators import get_planner_options, operators_of
from tests.table.differential.oracle import UnsuitableWorldError
from tests.table.differential.outputs import ZONE, Result, add_arrow, add_frame, row_converter
from tests.table.differential.plans import PlanFacts, collect_facts
from tests.table.differential.settings import Setting, is_in_order
from tests.table.differential.streams import can_be_stream, create_stream
from tests.table.differential.tables import Table
from tests.table.differential.worlds import World

from penstock.base.configuration import Configuration
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.drivers.client import submit as submitting
from penstock.sql.catalogs.columns import Schema
from penstock.sql.connectors.filesystem.connector import FilesystemConnector
from penstock.sql.data.types import LENGTH_MAX, VarCharType
from penstock.sql.formats import built_in_formats
from penstock.sql.logical.nodes import TimeAttribute
from penstock.sql.session.session import parse_zone
from penstock.sql.stream.executor import StreamExecutor
from penstock.sql.tables.connector import Connectors
from penstock.table.changelog_mode import ChangelogMode
from penstock.table.environment_settings import EnvironmentSettings
from penstock.table.table import Table as QueryTable
from penstock.table.table_environment import ExecutorOfMode, StreamTableEnvironment

T = TypeVar("T")

CONNECTORS: Final = Connectors(MemoryConnector(), FilesystemConnector(built_in_formats()))
#: how much processor time (s) a run may take; on a busy machine it may take longer by the clock
LIMIT_S: Final = 60.0
_CLOCK_LIMITS: Final = 6
#: how many changes may come out of a run: a subquery whose value changes often may send a hundred rows again each time
CHANGES_MAX: Final = 200_000
#: Spark for few rows: to compile code, or to plan again while they run, takes longer than they do
SPARK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
}
_CHECKPOINT_INTERVAL_MS: Final = 3
_TEXT: Final = VarCharType(LENGTH_MAX)
#: outputs by key, and the output without a key that takes their place where no columns tell rows apart
_BY_KEY: Final = {
    "INSERT by key": "INSERT of changes",
    "upsert stream": "changelog stream",
    "TO_CHANGELOG": "TO_CHANGELOG",
}
#: what takes the place of a stream
_INSERTED: Final = {"changelog stream": "INSERT of changes", "upsert stream": "INSERT by key"}
#: outputs by key whose values are Python's; keys that differ in nanoseconds alone are the same there
_WITH_MICROSECONDS: Final = frozenset({"upsert stream", "TO_CHANGELOG"})
_OUTER_JOIN: Final = re.compile(r"\b(LEFT|RIGHT|FULL)\b")
_OTHER_PARALLELISM: Final = {1: 3, 2: 1, 3: 4, 4: 2}
#: how long (s) all readers wait before the savepoint is taken
_SETTLED_S: Final = 0.01


class RunTimeoutError(Exception):
    """A run takes too long. The text has the stacks of the threads of its jobs."""


class TooMuchWorkError(UnsuitableWorldError):
    """A run is not worth its time: it sends more changes than `CHANGES_MAX`, or is busy for a limit below `LIMIT_S`."""


class WorldEnvironment(StreamTableEnvironment):
    """A table environment that knows the connectors of these tests alone."""

    @staticmethod
    def of(streams: StreamExecutionEnvironment) -> WorldEnvironment:
        """The environment beside that of streams."""
        settings = EnvironmentSettings.new_instance().build()
        made = WorldEnvironment(settings, ExecutorOfMode(CONNECTORS), streams.get_configuration())
        made._streams = streams
        return made

    def _stream(self, target: Any) -> Any:
        session = self._session
        executor = StreamExecutor(CONNECTORS)
        return executor.stream(self._streams, target, session.config.to_map(), session.manager.calls().session)

    def facts(self, query: QueryTable) -> PlanFacts:
        """What the planner of streams says of a query."""
        session = self._session
        return collect_facts(query._plan, CONNECTORS, session.config.to_map(), session.manager.calls().session)


def run_world(world: World, setting: Setting, limit_s: float = LIMIT_S) -> Result:
    """Run the query of a world.

    Raises what the job raises, `RunTimeoutError` after a limit, and `TooMuchWorkError`. A run that was busy for less
    than `LIMIT_S` may only have much to do, so a lower limit tells of runs that wait, and leaves others out.
    """
    run_id = uuid.uuid4().hex
    run = RUNS[run_id] = Run(dict(world.tables), is_batch=setting.mode == "BATCH")
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-differential-") as folder, operators_of(setting.operators):
            return _within(limit_s, run, lambda: _WorldRun(world, setting, run_id, run, Path(folder)).result())
    finally:
        RUNS.pop(run_id, None)


def plan_facts(world: World) -> PlanFacts:
    """What the planner of streams says of the query of a world."""
    run_id = uuid.uuid4().hex
    RUNS[run_id] = run = Run(dict(world.tables))
    try:
        environment = _WorldRun(world, Setting(), run_id, run, Path())._environment(1)
        return environment.facts(environment.sql_query(world.query))
    finally:
        RUNS.pop(run_id, None)


# --- the limit --------------------------------------------------------------------------------------------------------


def _within(limit_s: float, run: Run, work: Callable[[], T]) -> T:
    """Do something in a thread of its own, within limits after which its jobs are cancelled."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised below, whatever it is
            errors.append(error)

    with _watched_jobs() as jobs:
        thread = threading.Thread(target=answer, name="differential run", daemon=True)
        thread.start()
        started, used = time.monotonic(), time.process_time()
        while thread.is_alive():
            thread.join(0.5)
            is_slow = time.process_time() - used > limit_s
            if is_slow or time.monotonic() - started > limit_s * _CLOCK_LIMITS or run.written > CHANGES_MAX:
                break
        if thread.is_alive():
            stacks = _stacks()
            for job in jobs:
                job.cancel()
            thread.join(5)
            if run.written > CHANGES_MAX:
                raise TooMuchWorkError(f"more than {CHANGES_MAX:,} changes")
            if is_slow and limit_s < LIMIT_S:
                raise TooMuchWorkError(f"more than {limit_s:.0f} s of processor time")
            seconds = time.monotonic() - started
            raise RunTimeoutError(
                f"still running after {seconds:.0f} s, {time.process_time() - used:.0f} s of them busy\n{stacks}"
            )
    if errors:
        raise errors[0]
    return answers[0]


@contextmanager
def _watched_jobs() -> Iterator[list[Any]]:
    """The jobs that are submitted while it is open."""
    jobs: list[Any] = []
    submit = submitting._submit

    def watch(*arguments: Any) -> Any:
        job = submit(*arguments)
        jobs.append(job)
        return job

    submitting._submit = watch  # type: ignore[assignment]
    try:
        yield jobs
    finally:
        submitting._submit = submit


def _stacks() -> str:
    frames = sys._current_frames()
    texts = []
    for thread in threading.enumerate():
        if thread.name.startswith(("penstock-job", "differential")) and thread.ident in frames:
            texts.append(f"{thread.name}\n{''.join(traceback.format_stack(frames[thread.ident])[-6:])}")
    return "\n".join(texts)


def _checkpoint_id(path: str) -> int:
    return int(path.rsplit("-", 1)[1])


# --- one run ----------------------------------------------------------------------------------------------------------


class _WorldRun:
    """The jobs of one run: one, or two where a savepoint is between them."""

    def __init__(self, world: World, setting: Setting, run_id: str, run: Run, folder: Path) -> None:
        self._world = world
        self._setting = setting
        self._run_id = run_id
        self._run = run
        self._folder = folder
        self._formats: dict[str, str] = {}

    def result(self) -> Result:
        """Run the jobs, and give what came of them."""
        setting, run = self._setting, self._run
        if setting.disturbance != "none":
            run.hold_at = setting.stop_at
            run.waits_for_stop = setting.disturbance == "savepoint"
            run.failures_left = int(setting.disturbance == "failure")
            run.has_epochs = setting.mode == "MICRO_BATCH"
        environment = self._environment(setting.parallelism)
        query = environment.sql_query(self._world.query)
        schema = query._plan.schema
        result = Result(schema.names, list(schema.types), setting.output)
        output = self._output(environment, query, result)
        output(environment, query, result)
        return result

    def _output(
        self, environment: WorldEnvironment, query: QueryTable, result: Result
    ) -> Callable[[WorldEnvironment, QueryTable, Result], None]:
        """How the result is collected. Where no columns tell rows apart, nothing is written by key.

        A stream has one event time, and no row without it, so rows of several or of outer joins are inserted.
        """
        times = [column for column in query._plan.schema if column.time is TimeAttribute.ROWTIME]
        if len(times) > 1 or (times and _OUTER_JOIN.search(self._world.query)):
            result.output = _INSERTED.get(result.output, result.output)
        if result.output in _BY_KEY:
            cut = result.places_with_nanoseconds() if result.output in _WITH_MICROSECONDS else set()
            keys = [key for key in environment.facts(query).upsert_keys if key and cut.isdisjoint(key)]
            if keys:
                result.key = self._longer(min(keys, key=lambda key: (len(key), key)), result)
            else:
                result.output = _BY_KEY[result.output]
        return {
            "collect": self._collect,
            "to_pandas": lambda _, query, result: add_frame(result, query.to_pandas()),
            "to_arrow": lambda _, query, result: add_arrow(result, query.to_arrow()),
            "INSERT of changes": self._insert,
            "INSERT by key": self._insert,
            "statement set": self._insert,
            "changelog stream": self._stream,
            "upsert stream": self._stream,
            "TO_CHANGELOG": self._collect_changelog,
        }[result.output]

    def _longer(self, key: tuple[int, ...], result: Result) -> tuple[int, ...]:
        """A primary key: of a table now and then with one more column than those by which the query replaces rows."""
        others = [place for place in range(len(result.types)) if place not in key]
        if result.output != "INSERT by key" or not others or self._setting.batch not in (7, 64):
            return key
        return tuple(sorted((*key, others[0])))

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _collect(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        convert = row_converter(result.types, parse_zone(ZONE))
        with environment.execute_sql(self._world.query).collect() as rows:
            result.changes += self._run.counted(map(convert, rows))
        result.has_changes, result.has_microseconds = self._setting.mode != "BATCH", True

    def _collect_changelog(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        """The changes as rows that say in a column what they are; those of a key without the previous rows."""
        convert = row_converter([_TEXT, *result.types], parse_zone(ZONE))
        mapping = "'INSERT', '+I', 'UPDATE_BEFORE', '-U', 'UPDATE_AFTER', '+U', 'DELETE', '-D'"
        if result.key is not None:
            mapping = "'INSERT, UPDATE_AFTER', '+I', 'DELETE', '-D'"
        name = "change_kind"
        arguments = f"input => TABLE ({self._world.query}), op => DESCRIPTOR({name}), op_mapping => MAP[{mapping}]"
        with environment.execute_sql(f"SELECT * FROM TO_CHANGELOG({arguments})").collect() as rows:
            for _, (kind, *values) in self._run.counted(map(convert, rows)):
                result.changes.append((kind, tuple(values)))
        result.has_microseconds, result.drops_null_keys = True, False

    def _insert(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        def start(environment: WorldEnvironment) -> Any:
            self._create_sink(environment, environment.sql_query(self._world.query), result)
            if result.output != "statement set":
                return environment.execute_sql(f"INSERT INTO result_sink {self._world.query}").get_job_client()
            statements = environment.create_statement_set()
            name = self._copied()
            columns = ", ".join(f"{column.name} {column.kind.type}" for column in self._world.tables[name].columns)
            environment.execute_sql(f"CREATE TABLE copy_sink ({columns}) WITH ({self._options('copy')})")
            statements.add_insert_sql(f"INSERT INTO copy_sink SELECT * FROM {name}")
            statements.add_insert_sql(f"INSERT INTO result_sink {self._world.query}")
            return statements.execute().get_job_client()

        self._run_jobs(environment, start)
        result.changes += self._run.committed.get("result", [])

    def _create_sink(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        key = result.key or ()
        columns = [
            f"`{name}` {kind.not_null() if place in key else kind}"
            for place, (name, kind) in enumerate(zip(result.names, result.types, strict=True))
        ]
        if key:
            columns.append(f"PRIMARY KEY ({', '.join(result.names[place] for place in key)}) NOT ENFORCED")
        changes = "all"
        if not key and self._setting.parallelism % 2 and environment.facts(query).is_append_only:
            changes = "inserts"
        if key:
            changes = "upserts, deletes by key" if self._setting.batch % 2 else "upserts"
        options = self._options("result", changes)
        environment.execute_sql(f"CREATE TABLE result_sink ({', '.join(columns)}) WITH ({options})")

    def _copied(self) -> str:
        """The table that the other INSERT of a statement set reads, too."""
        return sorted(self._world.tables)[0]

    def _options(self, table: str, changes: str = "all") -> str:
        return f"'connector' = 'memory', 'run' = '{self._run_id}', 'table' = '{table}', 'changes' = '{changes}'"

    def _stream(self, environment: WorldEnvironment, query: QueryTable, result: Result) -> None:
        convert = row_converter(result.types, parse_zone(ZONE))
        result.has_microseconds = True

        def changes_of(environment: WorldEnvironment) -> Any:
            table = environment.sql_query(self._world.query)
            if result.key is None:
                return environment.to_changelog_stream(table)
            builder = Schema.new_builder()
            for place, (name, kind) in enumerate(zip(result.names, result.types, strict=True)):
                builder.column(name, str(kind.not_null() if place in result.key else kind))
            builder.primary_key(*(result.names[place] for place in result.key))
            return environment.to_changelog_stream(table, builder.build(), ChangelogMode.upsert())

        if self._setting.disturbance != "savepoint":
            with changes_of(environment).execute_and_collect() as rows:
                result.changes += self._run.counted(map(convert, rows))
            return

        def start(environment: WorldEnvironment) -> Any:
            sink = MemorySink(self._run_id, "result", convert)
            # Several subtasks of a sink would take the changes of one producer in turns.
            changes_of(environment).sink_to(sink).uid("result sink").set_parallelism(1)
            return environment._streams.execute_async("changelog")

        self._run_jobs(environment, start)
        result.changes += self._run.committed.get("result", [])

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _run_jobs(self, environment: WorldEnvironment, start: Callable[[WorldEnvironment], Any]) -> None:
        """Run a job to its end; with a savepoint on the way, another job from there on."""
        client = start(environment)
        if self._setting.disturbance == "savepoint":
            path = self._stop(client)
            self._run.hold_at, self._run.waits_for_stop = None, False
            if path is not None:
                parallelism = self._setting.parallelism
                if not is_in_order(self._world):
                    parallelism = _OTHER_PARALLELISM[parallelism]
                client = start(self._environment(parallelism, path))
        client.get_job_execution_result().result()

    def _stop(self, client: Any) -> str | None:
        """Stop a job with a savepoint once its readers wait; None if it has ended by itself.

        A job of epochs ends when no reader has rows, and leaves its last checkpoint.
        """
        if self._setting.mode == "MICRO_BATCH":
            client.get_job_execution_result().result()
            return max(glob.glob(str(self._folder / "checkpoints" / "*" / "chk-*")), key=_checkpoint_id, default=None)
        waited_since: float | None = None
        while waited_since is None or time.monotonic() - waited_since < _SETTLED_S:
            if client.get_job_execution_result().done():
                return None
            if not self._run.everyone_waits():
                waited_since = None
            elif waited_since is None:
                waited_since = time.monotonic()
            time.sleep(0.002)
        path: str = client.stop_with_savepoint(False, str(self._folder / "savepoints")).result()
        return path

    def _environment(self, parallelism: int, path: str | None = None) -> WorldEnvironment:
        """An environment with the tables of the world. `path`: of the savepoint that the job starts from."""
        configuration = Configuration.from_dict(self._configuration(parallelism))
        if path is not None:
            configuration.set_string("execution.state-recovery.path", path)
        environment = WorldEnvironment.of(StreamExecutionEnvironment.get_execution_environment(configuration))
        for table in self._world.tables.values():
            self._create(environment, table)
        for name, query in self._world.views().items():
            environment.execute_sql(f"CREATE VIEW {name} AS {query}")
        return environment

    def _configuration(self, parallelism: int) -> dict[str, str]:
        setting = self._setting
        options = {
            "execution.target": "local",
            "execution.runtime-mode": setting.mode,
            "parallelism.default": str(parallelism),
            "penstock.source.batch-records": str(setting.batch),
            "state.backend.type": "rocksdb" if setting.backend == "rocksdb" else "hashmap",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "0 ms",
            "execution.checkpointing.dir": str(self._folder / "checkpoints"),
            "table.local-time-zone": ZONE,
            "table.exec.sink.not-null-enforcer": "DROP",
            **get_planner_options(setting.operators),
            **dict(self._world.options),
        }
        if setting.mode == "BATCH":
            return {**options, **SPARK, "execution.target": "spark"}
        if setting.mode == "MICRO_BATCH":
            options["execution.micro-batch.max-records"] = str(setting.batch)
        if setting.checkpoints != "none":
            options["execution.checkpointing.interval"] = f"{_CHECKPOINT_INTERVAL_MS} ms"
            options["execution.checkpointing.unaligned.enabled"] = str(setting.checkpoints == "unaligned").lower()
        if setting.bundles != "none":
            size = setting.bundles.removesuffix(" rows")
            bundles = {"enabled": "true", "allow-latency": "1 h", "size": size}
            options |= {f"table.exec.mini-batch.{key}": value for key, value in bundles.items()}
        if setting.output == "INSERT by key" and setting.batch in (1, 65536):
            # The sink's own rows by key, which a query has only where its keys and those of the table differ.
            options["table.exec.sink.upsert-materialize"] = "FORCE"
        if setting.lifetime != "for ever":
            options["table.exec.state.ttl"] = setting.lifetime
        if setting.results == "early":
            early = {"enabled": "true", "delay": "0 s"}
            options |= {f"table.exec.emit.early-fire.{key}": value for key, value in early.items()}
        return options

    def _create(self, environment: WorldEnvironment, table: Table) -> None:
        """Create a table of the world, perhaps behind a view of a `Table` that all queries share."""
        source = self._setting.source
        if source == "streams" and can_be_stream(table) and self._setting.mode != "BATCH":
            create_stream(environment, environment._streams, table)
            return
        name = f"stored_{table.name}" if source == "views" else table.name
        columns = []
        for place, column in enumerate(table.columns):
            kind = column.kind.type.not_null() if place in table.key else column.kind.type
            columns.append(f"`{column.name}` {kind}")
        if table.delay_ms is not None:
            columns.append(f"WATERMARK FOR ts AS ts - INTERVAL '{table.delay_ms / 1000:.3f}' SECOND")
        if table.key:
            columns.append("PRIMARY KEY (k) NOT ENFORCED")
        options = self._options(table.name)
        if source == "files" and can_be_files(table) and self._setting.mode != "BATCH":
            folder = self._folder / table.name
            if table.name not in self._formats:
                self._formats[table.name] = write_files(table, folder)
            options = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = '{self._formats[table.name]}'"
        if table.has_late_rows:
            options += ", 'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '1'"
        environment.execute_sql(f"CREATE TABLE {name} ({', '.join(columns)}) WITH ({options})")
        if source == "views":
            environment.create_temporary_view(table.name, environment.from_path(name))
