"""`BatchExecutor`: runs plans in BATCH, queries in Spark, and INSERTs as batch jobs that read Spark's results.

`QUERIES` maps each kind of node to the function that plans it in batch. `failures_told` translates Spark's errors to
Penstock's. A `BatchQuery` runs in Spark in the background and returns its rows to the program. `shown_frame` returns a
result as a Spark DataFrame, in the form that Spark programs expect. `Packing` carries columns from Spark to the sinks
of a job: one record per batch, as an Arrow stream.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import Any, Final, NoReturn

import pyarrow as pa

from penstock.base import errors
from penstock.base.configuration import Configuration
from penstock.base.job import CompletableFuture, JobExecutionResult, JobID, JobStatus
from penstock.base.options import CONFIGURATION_STRICT, GLOBAL_JOB_PARAMETERS, RUNTIME_MODE
from penstock.base.typeinfo import Types
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.drivers.logs import check_keys
from penstock.drivers.running_job import JobClient, completed
from penstock.drivers.spark.frames import DataFrameSource, with_variants
from penstock.drivers.spark.handle import SparkHandle, short_reason
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.drivers.spark.table_queries import QueryThreads, arrow_batches, describe_executed_plan
from penstock.plan.stream_graph import Plan
from penstock.plan.transformation import Transformation, Upstream
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.connector import CommittableWriterOperator, GlobalCommit, SinkOperator, SourceOperator
from penstock.runtime.records import Batch
from penstock.runtime.task.channels.result_partition import GlobalPartitioner
from penstock.sql.analyzer.calls import Calls
from penstock.sql.data.arrow import to_values
from penstock.sql.data.conversion import to_external
from penstock.sql.data.errors import TableRuntimeError
from penstock.sql.data.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    MultisetType,
    RowType,
    has_variants,
    is_of_spark,
    quoted,
)
from penstock.sql.executor import ChangelogRow
from penstock.sql.functions.definition import Session
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import MatchRecognize, Node, RowSchema, Scan, Write
from penstock.sql.spark import aggregates as aggregations
from penstock.sql.spark import planning as leaves
from penstock.sql.spark import relations, windows
from penstock.sql.spark import relations as joins
from penstock.sql.spark import windows as patterns
from penstock.sql.spark.kernels import BatchSession
from penstock.sql.spark.native import RAISED
from penstock.sql.spark.planning import BatchPlanner
from penstock.sql.spark.stored import from_stored, spark_type
from penstock.sql.stream.executor import WritingJob
from penstock.sql.stream.planning.options import SinkOptions, of_connector, sink_options
from penstock.sql.stream.rows.rows import ToRowsOperator
from penstock.sql.stream.sinks import ConstraintOperator, collect_constraints
from penstock.sql.tables.connector import Connectors
from penstock.sql.tables.tables import PushDown, TableReader, TableWriter
from penstock.sql.user_functions.definition import call_settings

#: turns each kind of node into a query
QUERIES: Final[dict[type[logical.Node], Callable[[BatchPlanner, Any], str]]] = {
    logical.Scan: leaves.scan,
    logical.Values: leaves.values,
    logical.ArrowRows: leaves.arrow_rows,
    logical.Project: relations.project,
    logical.Filter: relations.filtered,
    logical.WatermarkAssigner: relations.passed_on,
    logical.Join: joins.join,
    logical.TemporalJoin: joins.looked_up,
    logical.Aggregate: aggregations.aggregate,
    logical.Distinct: aggregations.distinct,
    logical.Correlate: relations.correlate,
    logical.MLPredictTableFunction: relations.ml_predict,
    logical.VectorSearchTableFunction: relations.vector_search,
    logical.SetOperation: relations.set_operation,
    logical.Sort: relations.sort,
    logical.Over: windows.over,
    logical.Rank: windows.rank,
    logical.WindowTable: windows.window_table,
    MatchRecognize: patterns.match,
    logical.ProcessTableFunction: relations.process,
}


_OF_KERNELS: Final = re.compile(r"\bTableRuntimeError: (.*)")
_OF_SPARK: Final = re.compile(re.escape(RAISED) + r"(.*?)(?: SQLSTATE.*)?$", re.MULTILINE)


@contextmanager
def failures_told(doing: str) -> Iterator[None]:
    """Raise `TableRuntimeError` for a value that a function rejects, and `OperationError` for other failures."""
    try:
        yield
    except errors.PenstockError:
        raise
    except Exception as error:
        text = str(error)
        matches = _OF_KERNELS.findall(text) or _OF_SPARK.findall(text)
        if matches:
            raise TableRuntimeError(matches[-1].strip()) from None
        raise errors.OperationError(f"{doing} failed: {short_reason(error)}") from error


_THREADS: Final = QueryThreads()


class BatchQuery:
    """See `CollectingJob`. All rows are inserts, and are available when the query has ended."""

    def __init__(self, spark: SparkHandle, frame: Any, types: list[DataType], zone: tzinfo) -> None:
        self._spark = spark
        self._types = types
        self._seen = [to_external(kind, zone) for kind in types]
        self._tag = f"penstock-query-{uuid.uuid4().hex}"
        self._name = "a query of tables"
        self._result: Future[list[pa.RecordBatch]] = Future()
        self._is_cancelled = False
        self._frame = frame
        self._began = time.monotonic()
        self._client = BatchQueryClient(self)
        _THREADS.start(partial(self._run, frame))

    def _run(self, frame: Any) -> None:
        try:
            with failures_told("the query"):
                self._spark.begin(self._tag, self._name)
                self._result.set_result(arrow_batches(frame))
        except Exception as error:  # noqa: BLE001 - goes to whoever waits
            self._result.set_exception(error)

    def rows(self) -> Iterator[ChangelogRow]:
        """Yield the rows, in the order of the query if it has one."""
        for kind, values in self.held_rows():
            yield kind, tuple([convert(value) for convert, value in zip(self._seen, values, strict=True)])

    def held_rows(self) -> Iterator[ChangelogRow]:
        """See `CollectingJob`."""
        for batch in self._result.result():
            for number, (column, kind) in enumerate(zip(batch.columns, self._types, strict=False), 1):
                if column.null_count and isinstance(kind, DecimalType) and not kind.is_nullable:
                    raise TableRuntimeError(
                        f"Column {number} of the query is NOT NULL, and a decimal has too many digits for {kind}, so "
                        "it is NULL. Cast to a type with more digits, or use TRY_CAST"
                    )
            columns = [
                to_values(from_stored(column, kind), kind)
                for column, kind in zip(batch.columns, self._types, strict=False)
            ]
            rows: Any = zip(*columns, strict=True) if columns else [()] * batch.num_rows
            for values in rows:
                yield "+I", values

    def wait(self, timeout_ms: int | None = None) -> None:
        """See `CollectingJob`. Rows can be read when the query has ended."""
        try:
            self._result.result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeoutError:
            raise errors.CallTimeoutError(f"the query still runs after {timeout_ms} ms") from None

    def cancel(self) -> None:
        """Cancel the query, whose rows are not needed any more."""
        if not self._result.done():
            self._is_cancelled = True
            self._spark.interrupt(self._tag)

    def client(self) -> JobClient:
        """See `Job`."""
        return self._client

    def analyzed(self) -> str:
        """See `Job`: Spark's operators, with Spark's metrics."""
        status = f"Query {self._client.get_job_id()} is {self.status().name}"
        return f"== Analyzed Query ==\n{status}\n\n{describe_executed_plan(self._frame)}"

    def _outcome(self, done: Future[list[pa.RecordBatch]]) -> JobExecutionResult:
        """Return the result of the query as a job result. Raises the error that made the query fail."""
        if done.exception() is not None and self._is_cancelled:
            raise errors.JobExecutionError(self._name, "it was cancelled")
        done.result()
        return JobExecutionResult(self._client.get_job_id(), int((time.monotonic() - self._began) * 1000))

    def status(self) -> JobStatus:
        """Return the status of the query: running or ended."""
        if not self._result.done():
            return JobStatus.RUNNING
        if self._result.exception() is None:
            return JobStatus.FINISHED
        return JobStatus.CANCELED if self._is_cancelled else JobStatus.FAILED

    def outcome(self) -> Future[JobExecutionResult]:
        """Return a future that completes when the query has ended."""
        outcome: CompletableFuture[JobExecutionResult] = CompletableFuture()

        def on_done(done: Future[list[pa.RecordBatch]]) -> None:
            try:
                outcome.complete(self._outcome(done))
            except Exception as error:  # noqa: BLE001 - goes to the caller that asked
                outcome.complete_exceptionally(error)

        self._result.add_done_callback(on_done)
        return outcome


class BatchQueryClient(JobClient):
    """The client of a query in Spark. The query has no state, so savepoint calls fail with `CheckpointError`."""

    def __init__(self, query: BatchQuery) -> None:
        self._query = query
        self._job_id = JobID.generate()

    def get_job_id(self) -> JobID:
        """Return the id of the job."""
        return self._job_id

    def get_job_status(self) -> Future[JobStatus]:
        """Return the status of the query."""
        return completed(self._query.status())

    def cancel(self) -> Future[None]:
        """Cancel the query; see `JobClient`."""
        self._query.cancel()
        return completed(None)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Future[str]:
        """Always fail; see the class."""
        return _no_savepoint()

    def get_accumulators(self) -> Future[dict[str, Any]]:
        """Return an empty dictionary, because queries have no accumulators."""
        return completed({})

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        """Return the outcome of the query, once it has ended; raises JobExecutionError if it was cancelled."""
        return self._query.outcome()


def _no_savepoint() -> Future[str]:
    refused: CompletableFuture[str] = CompletableFuture()
    refused.complete_exceptionally(
        errors.CheckpointError("a query in batch execution has no savepoints: it keeps no state")
    )
    return refused


def shown_frame(frame: Any, schema: RowSchema) -> Any:
    """Return the columns under their names. Raises `UnsupportedError` for types that Spark does not have."""
    texts = []
    for index, field in enumerate(schema):
        if not is_of_spark(field.type):
            raise errors.UnsupportedError(
                f"column '{field.name}' is {field.type}, which Spark does not have: cast it to what Spark has, such as "
                "TIMESTAMP(6), STRING or BIGINT, before to_dataframe()"
            )
        kind = _shown(field.type)
        text = f"c{index}" if kind == spark_type(field.type) else f"CAST(c{index} AS {kind})"
        texts.append(f"{text} AS {quoted(field.name)}")
    shown = frame.selectExpr(*texts)
    if not any(map(has_variants, schema.types)):
        return shown
    return with_variants(shown, ", ".join(f"{quoted(field.name)} {_shown(field.type, 'VARIANT')}" for field in schema))


def _shown(kind: DataType, variant: str = "BINARY") -> str:
    """Return the type in Spark SQL, with the names of fields. `variant`: the type of variants."""
    if isinstance(kind, RowType):
        fields = [f"{quoted(field.name)}:{_shown(field.data_type, variant)}" for field in kind.fields]
        return f"STRUCT<{','.join(fields)}>"
    if isinstance(kind, MultisetType):
        return f"MAP<{_shown(kind.element_type, variant)},INT>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_shown(kind.element_type, variant)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_shown(kind.key_type, variant)},{_shown(kind.value_type, variant)}>"
    return spark_type(kind, variant)


#: the schema of a DataFrame of packed batches
SCHEMA: Final = "batch BINARY"


@dataclass(frozen=True, slots=True)
class Packing:
    """A function for Spark's `mapInArrow` that packs columns of these types."""

    types: tuple[DataType, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, each packed into one row."""
        for batch in batches:
            if batch.num_rows:
                columns = [from_stored(array, kind) for array, kind in zip(batch.columns, self.types, strict=False)]
                decoded = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, decoded.schema) as writer:
                    writer.write_batch(decoded)
                yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["batch"])


class UnpackOperator(StreamOperator):
    """Emits the columns of packed batches."""

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Unpack each record."""
        for packed in batch.values:
            with pa.ipc.open_stream(packed) as reader:
                for columns in reader:
                    self.output.collect(ColumnBatch(columns))


#: prefixes of options for planning and display, which do not concern the runtime
_OF_TABLES = ("table.", "sql-client.")


class BatchExecutor:
    """Runs plans with the options of the session. `connectors` define how tables are read and written."""

    def __init__(self, connectors: Connectors) -> None:
        self.connectors = self._connectors = connectors
        self._reported_keys: set[str] = set()

    def collect(self, plan: Node, options: Mapping[str, str], session: Session) -> BatchQuery:
        """Start a query that returns the rows of a plan to the client."""
        with self._planning(options, session) as (spark, planner):
            return BatchQuery(spark, planner.frame(plan), plan.schema.types, session.zone)

    def write(
        self, plans: Sequence[Write], options: Mapping[str, str], session: Session, name: str | None = None
    ) -> WritingJob:
        """Start one job that writes to all these tables."""
        environment = StreamExecutionEnvironment.get_execution_environment(_configuration(options))
        environment.mark_internal()
        of_sinks = sink_options(options)
        with self._planning(options, session) as (_, planner):
            for frame, plan in zip(planner.frames([plan.input for plan in plans]), plans, strict=True):
                self._sink(environment, frame, plan, of_sinks)
        return WritingJob(environment.execute_async(name))

    def compiler(self) -> NoReturn:
        """Raise `UnsupportedError`: plans are compiled for streams."""
        raise errors.UnsupportedError("The compiled plan feature is not supported in batch mode.")

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark DataFrame with the plan's column names. Nothing runs yet."""
        with self._planning(options, session) as (_, planner):
            return shown_frame(planner.frame(plan), plan.schema)

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return Spark's plan of each query; with JSON_EXECUTION_PLAN, also as JSON, with ESTIMATED_COST Spark's sizes.

        Raises:
            UnsupportedError: for PLAN_ADVICE, as in Flink.
        """
        if "PLAN_ADVICE" in details:
            raise errors.UnsupportedError("EXPLAIN PLAN_ADVICE is not supported under batch mode.")
        texts = []
        with self._planning(options, session) as (_, planner):
            for plan in plans:
                if isinstance(plan, Write):
                    self._writer(plan)
                frame = planner.frame(plan.input if isinstance(plan, Write) else plan)
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    frame.explain("cost" if "ESTIMATED_COST" in details else None)
                texts.append(output.getvalue().strip())
        text = "\n\n".join(texts) + "\n"
        if "JSON_EXECUTION_PLAN" not in details:
            return text
        nodes = [
            {"id": number, "type": "Spark SQL", "pact": "Operator", "contents": plan}
            for number, plan in enumerate(texts, start=1)
        ]
        return f"{text}\n== Physical Execution Plan ==\n{json.dumps({'nodes': nodes}, indent=2)}"

    def plan(self, plans: Sequence[Node], options: Mapping[str, str], session: Session) -> Plan:
        """Raise `UnsupportedError`, because Spark plans batch queries."""
        raise errors.UnsupportedError(
            "a picture of a plan is one of a stream, and in batch Spark plans the query: use explain(), or "
            "to_dataframe().explain()"
        )

    @contextmanager
    def _planning(self, options: Mapping[str, str], session: Session) -> Iterator[tuple[SparkHandle, BatchPlanner]]:
        configuration = _configuration(options)
        check_keys(options, configuration.read(CONFIGURATION_STRICT), self._reported_keys)
        spark = obtain_spark(configuration.to_dict(), 1)
        hand_back(spark, 1)  # the query takes slots when it runs
        spark.ship_package()
        spark.ship_dependencies(configuration)
        parameters = tuple(sorted(configuration.read(GLOBAL_JOB_PARAMETERS).items()))
        settings = call_settings(options)
        carried = BatchSession(session.zone, session.legacy_cast, session.now(), settings, parameters)
        tables = PushDown(lambda scan: self._connectors.scan(of_connector(scan)))
        slots = lambda: spark.slots_now() or 1  # noqa: E731
        calls = Calls(session)
        planner = BatchPlanner(
            QUERIES, spark.session, self._reader, carried, slots, tables, calls, options, self._vectors
        )
        try:
            with failures_told("planning the query in Spark"):
                yield spark, planner
        finally:
            planner.close()

    def check_overwrites(self, plan: Write) -> None:
        """See `Executor`."""
        self._connectors.check_overwrites(of_connector(plan))

    def options_up_to_now(self, options: Mapping[str, str]) -> dict[str, str]:
        """See `Executor`."""
        return self._connectors.options_up_to_now(options)

    def _vectors(self, scan: Scan, column: int) -> Any:
        return self._connectors.vector_search(of_connector(scan), column)

    def _reader(self, scan: Scan) -> TableReader:
        return self._connectors.reader(of_connector(scan))

    def _writer(self, plan: Write) -> TableWriter:
        if plan.overwrites:
            self.check_overwrites(plan)
        if plan.conflict is not None:
            raise errors.UnsupportedError(f"ON CONFLICT is not supported yet: table {'.'.join(plan.path)}")
        return self._connectors.writer(of_connector(plan))

    def _sink(self, environment: StreamExecutionEnvironment, frame: Any, plan: Write, options: SinkOptions) -> None:
        title = ".".join(plan.path)
        writer = self._writer(plan)
        types = plan.input.schema.types
        source = DataFrameSource(
            frame.mapInArrow(Packing(tuple(types)), SCHEMA), Types.PRIMITIVE_ARRAY(Types.BYTE()), None
        )

        def add(kind: str, operator: Any, *inputs: Transformation, **more: Any) -> Transformation:
            step = Transformation(kind, operator, tuple(map(Upstream, inputs)), **more)
            environment.add(step)
            return step

        reading = partial(SourceOperator, source, WatermarkStrategy.no_watermarks())
        transformation = add("Source", reading, name=f"Spark {title}", is_stateful=True, source=source)
        transformation = add("Columns", UnpackOperator, transformation)
        checks = collect_constraints(plan.schema, options.nested, options.length)
        if checks:
            operator = partial(ConstraintOperator, checks, options.drops_null, options.length)
            transformation = add("Constraint Enforcer", operator, transformation)
        if not writer.takes_columns:
            transformation = add("Rows", partial(ToRowsOperator, types, writer.takes_text), transformation)
        sink = writer.sink
        if not sink.commits_globally:
            add("Sink", partial(SinkOperator, sink), transformation, name=f"Sink {title}", is_stateful=True, sink=sink)
            return
        writers = partial(CommittableWriterOperator, sink)
        transformation = add("Sink", writers, transformation, name=f"Sink {title}", is_stateful=True, sink=sink)
        committer = Transformation(
            "Committer",
            partial(SinkOperator, GlobalCommit(sink)),
            (Upstream(transformation, GlobalPartitioner()),),
            name=f"Sink {title}: Committer",
            parallelism=1,
            is_stateful=True,
            sink=sink,
        )
        environment.add(committer)


def _configuration(options: Mapping[str, str]) -> Configuration:
    configuration = Configuration()
    for key, value in options.items():
        if not key.startswith(_OF_TABLES):
            configuration.set_string(key, value)
    configuration.write(RUNTIME_MODE, "BATCH")
    return configuration
