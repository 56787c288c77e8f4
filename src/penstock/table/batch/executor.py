"""Runs plans in BATCH: queries in Spark, and INSERTs as batch jobs that read Spark's results."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.errors import UnsupportedError
from penstock.base.options import CONFIGURATION_STRICT, GLOBAL_JOB_PARAMETERS, RUNTIME_MODE
from penstock.base.typeinfo import Types
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.core.operators.sink.global_commit import CommittableWriterOperator, GlobalCommit
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.operators.source.source import SourceOperator
from penstock.core.task.channels.partitioners import GlobalPartitioner
from penstock.datastream.data_stream import StreamExecutionEnvironment
from penstock.drivers.spark.frame_source import DataFrameSource
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.drivers.unknown_keys import check_keys
from penstock.plan.description import Plan
from penstock.plan.transformation import Transformation, Upstream
from penstock.table.analyser.calls import Calls
from penstock.table.batch import packed
from penstock.table.batch.failures import failures_told
from penstock.table.batch.frames import shown_frame
from penstock.table.batch.kernels import BatchSession
from penstock.table.batch.planner import QUERIES
from penstock.table.batch.planning import BatchPlanner
from penstock.table.batch.query import BatchQuery
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.push_down import PushDown
from penstock.table.connectors.tables import TableReader, TableWriter
from penstock.table.functions.definition import Session
from penstock.table.plan.logical import Node, Scan, Write
from penstock.table.streaming.planning.table_options import of_connector
from penstock.table.streaming.rows.rows_operator import ToRowsOperator
from penstock.table.streaming.sinks.constraint_operator import ConstraintOperator
from penstock.table.streaming.sinks.constraints import collect_constraints
from penstock.table.streaming.sinks.sink_options import SinkOptions, sink_options
from penstock.table.streaming.writing_job import WritingJob
from penstock.table.user_functions.options import async_settings

#: prefixes of options for planning and display, which do not concern the runtime
_OF_TABLES = ("table.", "sql-client.")


class BatchExecutor:
    """Runs plans with the options of the session. `connectors` define how tables are read and written."""

    def __init__(self, connectors: Connectors) -> None:
        self._connectors = connectors
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

    def frame(self, plan: Node, options: Mapping[str, str], session: Session) -> Any:
        """Return the rows of a plan as a Spark DataFrame with the plan's column names. Nothing runs yet."""
        with self._planning(options, session) as (_, planner):
            return shown_frame(planner.frame(plan), plan.schema)

    def explain(
        self, plans: Sequence[Node], options: Mapping[str, str], session: Session, details: Sequence[str]
    ) -> str:
        """Return Spark's plan of each query; with JSON_EXECUTION_PLAN, also as JSON."""
        texts = []
        with self._planning(options, session) as (_, planner):
            for plan in plans:
                if isinstance(plan, Write):
                    self._writer(plan)
                frame = planner.frame(plan.input if isinstance(plan, Write) else plan)
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    frame.explain()
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
        raise UnsupportedError(
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
        settings = async_settings(options)
        carried = BatchSession(session.zone, session.legacy_cast, session.now(), settings, parameters)
        tables = PushDown(lambda scan: self._connectors.scan(of_connector(scan)))
        planner = BatchPlanner(
            QUERIES, spark.session, self._reader, carried, lambda: spark.slots_now() or 1, tables, Calls(session)
        )
        try:
            with failures_told("planning the query in Spark"):
                yield spark, planner
        finally:
            planner.close()

    def _reader(self, scan: Scan) -> TableReader:
        return self._connectors.reader(of_connector(scan))

    def _writer(self, plan: Write) -> TableWriter:
        if plan.overwrites:
            self._connectors.check_overwrites(of_connector(plan))
        if plan.conflict is not None:
            raise UnsupportedError(f"ON CONFLICT is not supported yet: table {'.'.join(plan.path)}")
        return self._connectors.writer(of_connector(plan))

    def _sink(self, environment: StreamExecutionEnvironment, frame: Any, plan: Write, options: SinkOptions) -> None:
        title = ".".join(plan.path)
        writer = self._writer(plan)
        types = plan.input.schema.types
        source = DataFrameSource(
            frame.mapInArrow(packed.Packing(tuple(types)), packed.SCHEMA), Types.PRIMITIVE_ARRAY(Types.BYTE()), None
        )

        def add(kind: str, operator: Any, *inputs: Transformation, **more: Any) -> Transformation:
            step = Transformation(kind, operator, tuple(map(Upstream, inputs)), **more)
            environment.add(step)
            return step

        reading = partial(SourceOperator, source, WatermarkStrategy.no_watermarks())
        transformation = add("Source", reading, name=f"Spark {title}", is_stateful=True, source=source)
        transformation = add("Columns", packed.UnpackOperator, transformation)
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
