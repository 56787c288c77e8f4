"""`StreamExecutor`: runs plans as streaming jobs, in STREAMING and, epoch by epoch, in MICRO_BATCH.

A `WritingJob` writes to tables, as a stream or as a batch. `build_step_describer` adds step metadata to JSON plans:
changelog modes, upsert keys and state ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from datetime import tzinfo
from typing import Any, Final

from penstock import __version__
from penstock.base.configuration import Configuration
from penstock.base.errors import CallTimeoutError, ConfigurationError, UnsupportedError
from penstock.base.options import STATE_BACKEND
from penstock.datastream.closeable_iterator import CloseableIterator
from penstock.datastream.data_stream import DataStream, StreamExecutionEnvironment
from penstock.drivers.running_job import JobClient, RunningJob
from penstock.plan.stream_graph import Plan
from penstock.plan.transformation import Transformation
from penstock.sql.analyzed_jobs import analyzed_job
from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.conversion import to_external
from penstock.sql.executor import ChangelogRow
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import ALL, SHORT, Node, Write, shown
from penstock.sql.logical.stored_plans import CatalogObjects, CompiledQueries, Objects, from_json, to_json
from penstock.sql.stream.bridge import RecordTarget
from penstock.sql.stream.planner import Planned, StreamPlanner
from penstock.sql.stream.planning.options import Lookups, of_connector, plan_options
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.connector import Connectors
from penstock.sql.tables.tables import PushDown, RecordedPushDown, TableWriter
from penstock.sql.user_functions.definition import call_settings


class WritingJob:
    """See `penstock.sql.executor.Job`."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job

    def wait(self, timeout_ms: int | None = None) -> None:
        """See `Job`."""
        try:
            self._job.get_job_execution_result().result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeoutError:
            raise CallTimeoutError(f"the job still runs after {timeout_ms} ms") from None

    def client(self) -> JobClient:
        """See `Job`."""
        return self._job

    def analyzed(self) -> str:
        """See `Job`."""
        return analyzed_job(self._job)


def build_step_describer(planner: StreamPlanner) -> Callable[[Transformation], dict[str, Any]]:
    """Return a function that describes a step: its fields, changelog mode, upsert keys and state id."""
    planned = {id(step): plan for step, plan in planner.steps}

    def facts(step: Transformation) -> dict[str, Any]:
        plan = planned.get(id(step))
        if plan is None:
            return {}
        state = {"stateId": step.uid_hash} if step.is_stateful else {}
        return {**_about_rows(planner, plan), **state}

    return facts


def _about_rows(planner: StreamPlanner, planned: Planned) -> dict[str, Any]:
    node = planner.rewritten(planned.node.input) if isinstance(planned.node, Write) else planned.node
    names = node.schema.names
    keys = [[names[index] for index in sorted(key)] for key in planner.upsert_keys.of(node)]
    return {
        "fields": names,
        "changelogMode": shown(planner.changes(node), planned.wants_before),
        "upsertKeys": sorted(keys),
    }


#: options of planning and display, which the runtime does not know
_OF_TABLES: Final = ("table.", "sql-client.")
_SHARES: Final = "table.optimizer.reuse-sub-plan-enabled"


def _steps_text(planner: StreamPlanner, plans: Sequence[Node], details: Sequence[str]) -> str:
    """Return the steps of plans as text, if the details ask for it with advice."""
    if "PLAN_ADVICE" not in details:
        return "== Streams ==\n" + "\n".join(planner.explained(plan) for plan in plans)
    advice: list[str] = []
    steps = "\n".join(planner.explained(plan, advice=advice) for plan in plans)
    texts = [f"advice[{number}]: {text}" for number, text in enumerate(advice, 1)]
    return f"== Streams With Advice ==\n{steps}\n\n" + ("\n".join(texts) or "No available advice...")


class StreamExecutor:
    """Starts jobs for plans, with the options of the session. `connectors`: read and write the tables."""

    def __init__(self, connectors: Connectors) -> None:
        self.connectors = self._connectors = connectors

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> WritingJob:
        """Start one job that writes to all these tables."""
        environment, planner = self._begin(options, session)
        self._add_sinks(planner, plans)
        return WritingJob(environment.execute_async(name))

    def check_overwrites(self, plan: Write) -> None:
        """See `Executor`."""
        self._connectors.check_overwrites(of_connector(plan))

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """See `Executor`."""
        return self._connectors.options_up_to_now(options)

    def compile(
        self,
        plans: Sequence[Write],
        options: Mapping[str, str],
        session: Session,
        objects: Objects,
        stores: CatalogObjects,
    ) -> str:
        """Return the optimised plan of a job that writes to all these tables, as JSON; nothing runs."""
        requests = RecordedPushDown(self.push_down(), session)
        planner = self._begin(options, session, requests)[1]
        self._add_sinks(planner, plans)
        configuration = {key: value for key, value in options.items() if _is_stored(key)}
        return to_json(planner.compiled(configuration), __version__, objects, requests, stores)

    def write_compiled(
        self, queries: CompiledQueries, options: Mapping[str, str], session: Session, name: str | None = None
    ) -> WritingJob:
        """Start the job of a compiled plan."""
        environment, planner = self._begin({**options, **queries.configuration}, session)
        planner.restore(queries)
        self._add_sinks(planner, queries.writes)
        return WritingJob(environment.execute_async(name))

    def load(self, text: str, session: Session, objects: Objects, restores: CatalogObjects) -> CompiledQueries:
        """Return the queries of a compiled plan. Raises `ValidationError` if it does not fit the tables."""
        return from_json(text, objects, RecordedPushDown(self.push_down(), session), restores)

    def explain_compiled(
        self, queries: CompiledQueries, options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return the steps of the job of a compiled plan, as `explain` does."""
        environment, planner = self._begin({**options, **queries.configuration}, session)
        planner.restore(queries)
        text = _steps_text(planner, queries.writes, details)
        if "JSON_EXECUTION_PLAN" not in details:
            return text
        self._add_sinks(planner, queries.writes)
        return f"{text}\n\n== Physical Execution Plan ==\n{environment.plan().to_json(build_step_describer(planner))}"

    def attach(
        self,
        environment: StreamExecutionEnvironment,
        plans: Sequence[Write],
        options: Mapping[str, str],
        session: Session,
    ) -> None:
        """Add the writes to a DataStream program, which starts them."""
        self._add_sinks(self._planner(environment, options, session), plans)

    def stream(
        self,
        environment: StreamExecutionEnvironment,
        target: RecordTarget,
        options: Mapping[str, str],
        session: Session,
    ) -> DataStream:
        """Add the conversion of a plan's rows to records to a DataStream program."""
        upstreams = self._planner(environment, options, session).records(target)
        return DataStream(environment, upstreams, target.type_info)

    def _add_sinks(self, planner: StreamPlanner, plans: Sequence[Write]) -> None:
        for plan in plans:
            _check(plan)
            planner.sink(plan, self._writer(plan))

    def _writer(self, plan: Write) -> TableWriter:
        return self._connectors.writer(of_connector(plan))

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> CollectingStreamJob:
        """Start a job that sends the rows of a plan to the client."""
        environment, planner = self._begin(options, session)
        upstreams = planner.rows(plan, ALL, True, "collect")
        iterator = DataStream(environment, upstreams, None).execute_and_collect()
        assert isinstance(iterator, CloseableIterator)
        return CollectingStreamJob(iterator, plan, session.zone)

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Raise `ConfigurationError`: a stream cannot become a data frame."""
        raise ConfigurationError(
            "to_dataframe() needs batch execution: use EnvironmentSettings.in_batch_mode(), or "
            "SET 'execution.runtime-mode' = 'batch'"
        )

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return the steps of the job, each with its changelog mode.

        With PLAN_ADVICE also advice on them, and with JSON_EXECUTION_PLAN the job's operators.
        """
        if any(isinstance(plan, Write) for plan in plans):
            # Plan in a scratch environment, for the errors that only sinks raise.
            self._add_sinks(self._begin(options, session)[1], [plan for plan in plans if isinstance(plan, Write)])
        _, planner = self._begin(options, session)
        text = _steps_text(planner, plans, details)
        if "JSON_EXECUTION_PLAN" not in details:
            return text
        plan, planner = self._drawn(plans, options, session)
        return f"{text}\n\n== Physical Execution Plan ==\n{plan.to_json(build_step_describer(planner))}"

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Return the plan of the job, to inspect."""
        return self._drawn(plans, options, session)[0]

    def _drawn(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> tuple[Plan, StreamPlanner]:
        environment, planner = self._begin(options, session)
        for plan in plans:
            if isinstance(plan, Write):
                self._add_sinks(planner, [plan])
            else:
                planner.shown(plan)
        return environment.plan(), planner

    def compiler(self) -> StreamExecutor:
        """See `Executor`."""
        return self

    def push_down(self) -> PushDown:
        """Return the push-down, through which tables are read partially."""
        return PushDown(lambda scan: self._connectors.scan(of_connector(scan)))

    def _begin(
        self, options: Mapping[str, str], session: Session, tables: PushDown | None = None
    ) -> tuple[StreamExecutionEnvironment, StreamPlanner]:
        configuration = Configuration()
        for key, value in options.items():
            if not key.startswith(_OF_TABLES):
                configuration.set_string(key, value)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.mark_internal()
        return environment, self._planner(environment, options, session, tables)

    def _planner(
        self,
        environment: StreamExecutionEnvironment,
        options: Mapping[str, str],
        session: Session,
        tables: PushDown | None = None,
    ) -> StreamPlanner:
        environment.check_keys(key for key in options if key.startswith(_OF_TABLES))
        carried = StreamSession(session.zone, session.legacy_cast, call_settings(options))
        in_memory = environment.get_configuration().read(STATE_BACKEND) != "rocksdb"
        settings = replace(plan_options(options), is_in_memory=in_memory)
        if settings.parallelism is not None:
            environment.set_parallelism(settings.parallelism)
        shares = options.get(_SHARES, "true").lower() == "true"
        reader = self._connectors.reader
        tables = self.push_down() if tables is None else tables
        add, has_id = environment.add, environment.has_id
        lookups = Lookups(self._connectors.lookup, options, self._connectors.vector_search)
        return StreamPlanner(
            add, reader, carried, Calls(session), shares, settings, has_id, tables, lookups, self._writer
        )


#: options that say where and how a session works, and not what a query means
_OF_SESSIONS: Final = (
    "table.plan.",
    "table.dml-sync",
    "table.display.",
    "table.builtin-catalog-name",
    "table.builtin-database-name",
    "table.query-start.",
)


def _is_stored(key: str) -> bool:
    """Return whether a compiled plan keeps an option."""
    return key.startswith("table.") and not key.startswith(_OF_SESSIONS)


def _check(plan: Write) -> None:
    if plan.overwrites:
        raise UnsupportedError(f"INSERT OVERWRITE is not supported in streams: table {'.'.join(plan.path)}")


class CollectingStreamJob:
    """A job that sends its rows to the client."""

    def __init__(self, iterator: CloseableIterator, plan: Node, zone: tzinfo) -> None:
        assert iterator.job is not None
        self._found, self._job = iterator, iterator.job
        self._seen = [to_external(kind, zone) for kind in plan.schema.types]

    def rows(self) -> Iterator[ChangelogRow]:
        """Yield the rows as they arrive, until the job ends."""
        for kind, values in self.held_rows():
            yield kind, tuple([convert(value) for convert, value in zip(self._seen, values, strict=True)])

    def held_rows(self) -> Iterator[ChangelogRow]:
        """See `CollectingJob`."""
        for kind, values in self._found:
            yield SHORT[kind], values

    def wait(self, timeout_ms: int | None = None) -> None:
        """See `CollectingJob`."""
        self._found.wait(timeout_ms)

    def cancel(self) -> None:
        """Stop the job; its rows are not read anymore."""
        self._found.close()

    def client(self) -> JobClient:
        """See `Job`."""
        return self._job

    def analyzed(self) -> str:
        """See `Job`."""
        return analyzed_job(self._job)
