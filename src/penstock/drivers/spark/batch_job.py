"""Batch execution on Spark: the whole job is one query; Spark does the exchanges and the recovery (I2).

`build_frames` translates a batch job to Spark data frames: a vertex is a `mapInArrow`, an exchange is Spark's shuffle
and sort.

`SparkBatchJob` runs the query.

`frame_of_job` returns a stream as a Spark data frame: the program so far, in batch execution, as a query that runs when
Spark reads it.
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError, PenstockError
from penstock.base.job import JobID
from penstock.base.typeinfo import TypeInformation
from penstock.codecs import cloud
from penstock.codecs.arrow_columns import arrow_type
from penstock.drivers.spark.batch_stage import INPUT_COLUMNS, SCHEMA, StageSettings, extract_failure, record_column
from penstock.drivers.spark.frames import DataFrameSource, RecordShape, arrow_schema, field_types
from penstock.drivers.spark.handle import SparkHandle, python_problem, short_reason
from penstock.drivers.spark.lockstep import TRIES_MAX, Meeting, check_slots, count_slots, open_meeting
from penstock.drivers.spark.route_stage import needed, routed, routed_edge
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.drivers.stepwise.job import BatchJob
from penstock.runtime.batch.exchange import HASH_BITS, MARK_PLACE, NO_KEY_PLACE, enumerate_splits, keeps_step
from penstock.runtime.batch.task import BatchVertex, batch_vertices
from penstock.runtime.connector import Source
from penstock.runtime.graph import JobEdge, JobGraph, JobVertex
from penstock.runtime.job.failover import batch_error
from penstock.runtime.master.steps import Last
from penstock.runtime.operators.connector import SinkOperator
from penstock.runtime.ports import JobListener
from penstock.runtime.task.channels.result_partition import ForwardPartitioner
from penstock.runtime.task.operator_chain import VertexProgram

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.drivers.spark.handle import Entry


_M32 = 0xFFFFFFFF
#: The sort order of a task's input, see `runtime.batch.exchange`.
ROW_ORDER = ("place", "timestamp", "edge", "sequence")
#: The last column of a data frame that a source reads: the subtask that reads the row.
SUBTASK_COLUMN = "_penstock_subtask"


def build_frames(
    job_graph: JobGraph,
    vertices: list[BatchVertex],
    session: SparkSession,
    is_local: bool,
    keeps: Callable[[int], bool],
    handed_over: StructType | None = None,
    meeting: Meeting | None = None,
) -> dict[int, DataFrame]:
    """Return a frame of output rows for every vertex, without running anything yet.

    `keeps` says which vertices' output Spark keeps. With `handed_over`, the last vertex's frame has that schema and
    holds the records that the vertex hands over.
    """
    return _Frames(job_graph, vertices, session, is_local, keeps, handed_over, meeting).all()


class _Frames:
    def __init__(
        self,
        job_graph: JobGraph,
        vertices: list[BatchVertex],
        session: SparkSession,
        is_local: bool,
        keeps: Callable[[int], bool],
        handed_over: StructType | None,
        meeting: Meeting | None,
    ) -> None:
        #: where tasks that work in lockstep meet
        self._meeting = meeting
        self._job_graph = job_graph
        self._vertices = vertices
        self._session = session
        self._is_local = is_local
        self._keeps = keeps
        self._handed_over = handed_over
        self._frames: dict[int, DataFrame] = {}
        #: The vertices that read a data frame. It may have fewer partitions than the vertex has subtasks.
        self._readers: set[int] = set()
        #: The edges whose rows carry the records in columns, with the shape of the records.
        self._columns: dict[int, RecordShape] = {}
        #: For each of these edges, the column with the time of its rows, see `route_stage.Routed`.
        self._times: dict[int, str | None] = {}

    def all(self) -> dict[int, DataFrame]:
        for vertex in self._job_graph.vertices:
            parallelism = vertex.parallelism
            source = next(iter(vertex.sources.values()), None)
            shape, splits = None, None
            if source is None:
                frame = self._build_input_frame(vertex)
            elif isinstance(source, DataFrameSource):
                shape = source.shape
                self._readers.add(vertex.index)
                edge = routed_edge(self._vertices[vertex.index])
                if edge is not None:
                    self._frames[vertex.index] = self._routed(vertex, source, edge)
                    continue
                frame = source.frame.coalesce(parallelism).selectExpr("*", f"spark_partition_id() AS {SUBTASK_COLUMN}")
            else:
                splits = enumerate_splits(source, parallelism)
                frame = self._session.range(0, parallelism, 1, parallelism)
            is_last = vertex is self._job_graph.vertices[-1]
            handed_over = self._handed_over if is_last else None
            stage = self._stage(vertex, splits, shape, handed_over)
            schema = row_type() if handed_over is None else handed_over
            output = frame.mapInArrow(stage, schema, barrier=self._keeps_step(vertex))
            self._frames[vertex.index] = output.persist() if self._keeps(vertex.index) else output
        return self._frames

    def _build_input_frame(self, vertex: JobVertex) -> DataFrame:
        edges = self._job_graph.get_inputs(vertex.index)
        parts = select_parts(edges, self._frames)
        is_read = {edge.source for edge in edges} <= self._readers
        if not is_read and is_in_place(edges):
            return parts[0].select(*INPUT_COLUMNS)
        if all(edge.index in self._columns for edge in edges):
            return self._routed_input(edges, parts, vertex.parallelism)
        columns = [name for edge in edges for name in self._list_record_columns(edge.index)]
        if is_read:
            parts.append(self._marks(edges[0].index, vertex.parallelism))
        frame = functools.reduce(lambda merged, other: merged.unionByName(other, allowMissingColumns=True), parts)
        frame = frame.repartition(vertex.parallelism, "slot")
        # Sort even if order does not matter to the operator: a task that runs again must distribute its output as
        # before, because some of it may have been read.
        return frame.sortWithinPartitions(*ROW_ORDER).select(*INPUT_COLUMNS, *columns)

    def _routed_input(self, edges: list[JobEdge], parts: list[DataFrame], parallelism: int) -> DataFrame:
        """Return the rows of edges whose records come from data frames, without shuffling values that can be derived.

        These are the target, which follows from the place; payloads; the edge, if there is only one; and the time, if
        it is a column.
        """
        from pyspark.sql import functions

        columns = [name for edge in edges for name in self._list_record_columns(edge.index)]
        marks = self._marks(edges[0].index, parallelism, f"{MARK_PLACE}L - id")
        frame = functools.reduce(
            lambda merged, other: merged.unionByName(other, allowMissingColumns=True), [*parts, marks]
        )
        numbers = ", ".join(map(str, slots(parallelism)))
        target = f"int(if(place >= 0, shiftright(place, {HASH_BITS}), {MARK_PLACE}L - place))"
        frame = frame.repartition(parallelism, functions.expr(f"array({numbers})[{target}]"))
        time = self._times[edges[0].index]
        if len(edges) > 1:
            return frame.sortWithinPartitions(*ROW_ORDER).select("edge", "place", "timestamp", *columns)
        if time is None:
            return frame.sortWithinPartitions("place", "timestamp", "sequence").select("place", "timestamp", *columns)
        timestamp = f"if(place >= 0, {needed(f'CAST({time} AS BIGINT)')}, NULL) AS timestamp"
        return frame.sortWithinPartitions("place", time, "sequence").selectExpr("place", timestamp, *columns)

    def _list_record_columns(self, edge: int) -> list[str]:
        return [record_column(edge, i) for i in range(len(self._columns[edge].names))] if edge in self._columns else []

    def _routed(self, vertex: JobVertex, source: DataFrameSource, edge: int) -> DataFrame:
        """Return the rows of the only edge out of a vertex whose records come from a data frame (`route_stage`)."""
        mine = self._vertices[vertex.index]
        routing = replace(mine, consumers={edge: replace(mine.consumers[edge], has_records=True)}, has_client=False)
        (output,) = self._job_graph.get_outputs(vertex.index)
        target = self._job_graph.vertices[output.target]
        settings = StageSettings(
            vertex.index, routing, None, {edge: slots(target.parallelism)}, frozenset(), source.shape
        )
        self._columns[edge] = source.shape
        make = functools.partial(make_stage, "route_stage", script=self._job_graph.script, is_local=self._is_local)
        is_only = len(self._job_graph.get_inputs(target.index)) == 1
        result = routed(source.frame.coalesce(vertex.parallelism), edge, settings, make, is_only=is_only)
        self._times[edge] = result.time
        return result.frame

    def _marks(self, edge: int, parallelism: int, position: str = f"{NO_KEY_PLACE}L") -> DataFrame:
        """Return a row for each subtask that identifies it; producers other than data frames send these themselves."""
        numbers = ", ".join(map(str, slots(parallelism)))
        return self._session.range(0, parallelism, 1, 1).selectExpr(
            f"{edge} AS edge",
            "int(id) AS target",
            f"{position} AS place",
            "CAST(NULL AS BIGINT) AS timestamp",
            "0L AS sequence",
            "X'' AS payload",
            f"array({numbers})[int(id)] AS slot",
        )

    def _keeps_step(self, vertex: JobVertex) -> bool:
        return self._meeting is not None and keeps_step(vertex)

    def _stage(
        self,
        vertex: JobVertex,
        splits: list[tuple[bytes, ...]] | None,
        shape: RecordShape | None,
        handed_over: StructType | None,
    ) -> Entry:
        outputs = self._job_graph.get_outputs(vertex.index)
        is_reader = vertex.index in self._readers
        forward = () if is_reader else (e.index for e in outputs if e.partitioning == ForwardPartitioner.name)
        settings = StageSettings(
            vertex.index,
            self._vertices[vertex.index],
            splits,
            {edge.index: slots(self._job_graph.vertices[edge.target].parallelism) for edge in outputs},
            frozenset(forward),
            shape,
            {edge: shape for edge, shape in self._columns.items() if edge in self._vertices[vertex.index].inputs},
            None if handed_over is None else arrow_schema(handed_over),
            meeting=self._meeting if self._keeps_step(vertex) else None,
        )
        return make_stage("batch_stage", settings, self._job_graph.script, self._is_local)


def select_parts(edges: list[JobEdge], frames: Mapping[int, DataFrame]) -> list[DataFrame]:
    """Return the rows of edges into one vertex, as one frame per producing vertex."""
    by_source: dict[int, list[int]] = {}
    for edge in edges:
        by_source.setdefault(edge.source, []).append(edge.index)
    return [frames[source].where(f"edge IN ({', '.join(map(str, indices))})") for source, indices in by_source.items()]


def is_in_place(edges: list[JobEdge]) -> bool:
    """Return whether there is one producer and its partitions already are the consumer's subtasks."""
    is_forward = all(edge.partitioning == ForwardPartitioner.name for edge in edges)
    return is_forward and len({edge.source for edge in edges}) == 1


def make_stage(module: str, settings: Any, script: bytes, is_local: bool) -> Entry:
    """Return the function that Spark runs for each task of a vertex: `run_stage` of a module in this package.

    It is pickled by value and does not refer to Penstock. `script` holds the definitions of the user's script.
    """
    payload = cloud.dumps(settings)
    paths = tuple(path or os.getcwd() for path in sys.path) if is_local else ()

    def stage(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import importlib
        import sys as worker_sys

        worker_sys.path.extend(path for path in paths if path not in worker_sys.path)
        as_main = importlib.import_module("penstock.codecs.cloud").as_main
        with as_main(script):
            yield from importlib.import_module(f"penstock.drivers.spark.{module}").run_stage(payload, batches)

    return stage


@functools.cache
def row_type() -> StructType:
    """Return the Spark type of rows (`SCHEMA`). Spark's parser, for a DDL string, is slow on first use."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

    kinds = {"int32": IntegerType(), "int64": LongType(), "binary": BinaryType()}
    return StructType([StructField(field.name, kinds[str(field.type)]) for field in SCHEMA])


@functools.cache
def slots(partitions: int) -> list[int]:
    """Return, for each partition, a number that Spark's `repartition(partitions, column)` sends there.

    Spark partitions by the Murmur3 hash of the column (seed 42) modulo the number of partitions. This function tries
    numbers until each partition has one.
    """
    numbers: dict[int, int] = {}
    candidate = 0
    while len(numbers) < partitions:
        numbers.setdefault(_murmur3(candidate) % partitions, candidate)
        candidate += 1
    return [numbers[partition] for partition in range(partitions)]


def _murmur3(value: int, seed: int = 42) -> int:
    """Return Spark's hash of an int as a signed 32-bit number."""
    block = value & _M32
    block = block * 0xCC9E2D51 & _M32
    block = (block << 15 | block >> 17) & _M32
    block = block * 0x1B873593 & _M32
    digest = (seed ^ block) & _M32
    digest = (digest << 13 | digest >> 19) & _M32
    digest = digest * 5 + 0xE6546B64 & _M32
    digest ^= 4
    digest ^= digest >> 16
    digest = digest * 0x85EBCA6B & _M32
    digest ^= digest >> 13
    digest = digest * 0xC2B2AE35 & _M32
    digest ^= digest >> 16
    signed: int = struct.unpack("<i", struct.pack("<I", digest))[0]
    return signed


def last_rows(frame: DataFrame, vertex: int) -> Any:
    """Return a vertex's rows for the client: (vertex, operator, kind, sequence, payload)."""
    return frame.where("edge < 0").selectExpr(
        f"{vertex} AS vertex", "target AS operator", "edge AS kind", "sequence", "payload"
    )


#: The slots of a job whose tasks do not wait for each other: it needs none of its own.
SLOTS = 1


class SparkBatchJob(BatchJob):
    """See the module docstring."""

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, spark: SparkHandle
    ) -> None:
        super().__init__(job_graph, configuration, listener)
        #: Computed once, because it requires unpickling the programs.
        self._with_sink = {vertex.index for vertex in job_graph.vertices if has_sink(vertex)}
        self.vertices = [
            replace(mine, reaches_client=not job_graph.get_outputs(vertex.index) or vertex.index in self._with_sink)
            for mine, vertex in zip(self.vertices, job_graph.vertices, strict=True)
        ]
        self._spark = spark
        self._tag = f"penstock-{self._job_id}"

    def run_tasks(self) -> Iterator[Last]:
        """Run one Spark job for all sinks; the output of vertices with several readers is kept meanwhile."""
        self._spark.ship_package()
        self._spark.ship_dependencies(self.configuration)
        check_slots(self.job_graph, self._spark)
        self._spark.begin(self._tag, self._spark.pages.describe(self.job_graph.name, str(self._job_id)))
        tell = self.listener.on_log
        with open_meeting(self.job_graph, self._spark, tell) as meeting:
            yield from self._run_frames(meeting)

    def _run_frames(self, meeting: Meeting | None) -> Iterator[Last]:
        frames = build_frames(
            self.job_graph,
            self.vertices,
            self._spark.session,
            self._spark.is_local,
            self._keeps,
            meeting=meeting,
        )
        persisted = [frame for index, frame in frames.items() if self._keeps(index)]
        ends = [
            last_rows(frames[vertex.index], vertex.index)
            for vertex in self.job_graph.vertices
            if not self.job_graph.get_outputs(vertex.index) or vertex.index in self._with_sink
        ]
        last = functools.reduce(lambda merged, other: merged.union(other), ends)
        try:
            for tries_left in reversed(range(TRIES_MAX if meeting is not None else 1)):
                self.check_cancelled()
                try:
                    rows = last.collect()
                    break
                except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
                    self.check_cancelled()
                    failure = spark_failure(error, self.job_graph)
                    # Spark itself retries all other stages.
                    if not tries_left or extract_failure(str(error)) is not None or failure.suppresses_restart:
                        raise failure from None
                    self.listener.on_log(f"{self.job_graph.name}: begins again: {failure}")
            for row in rows:
                yield Last(row[0], row[1], row[2], row[3], bytes(row[4]))
        finally:
            for frame in persisted:
                frame.unpersist()

    def _keeps(self, vertex: int) -> bool:
        readers = {edge.target for edge in self.job_graph.get_outputs(vertex)}
        return len(readers) + (vertex in self._with_sink) > 1

    def reads_splits(self, source: Source[Any, Any]) -> bool:
        """Return whether a source is read by its splits; data frames are read in place."""
        return not isinstance(source, DataFrameSource)

    def interrupt(self) -> None:
        """Cancel the Spark job."""
        self._spark.interrupt(self._tag)

    def release(self) -> None:
        """Release the session."""
        hand_back(self._spark, count_slots(self.job_graph))


def spark_failure(error: BaseException, job_graph: JobGraph) -> PenstockError:
    """Convert an exception from Spark to the error of the job: the task's error with its location, if a task failed."""
    task_failure = extract_failure(str(error))
    if task_failure is None:
        failure_of_spark = JobExecutionError(job_graph.name, f"Spark: {short_reason(error)}")
        failure_of_spark.suppresses_restart = python_problem(str(error)) is not None
        return failure_of_spark
    vertex, subtask, failure = task_failure
    return batch_error(failure, job_graph, vertex, subtask)


def has_sink(vertex: JobVertex) -> bool:
    """Return whether a vertex contains a sink."""
    program: VertexProgram = pickle.loads(vertex.program)
    return any(isinstance(chained.factory(), SinkOperator) for chained in program.operators)


def frame_of_job(
    job_graph: JobGraph, configuration: Configuration, schema: str | StructType | None, known: Any, owner: str
) -> DataFrame:
    """Return the records that the job's last vertex hands over as a data frame, without running anything yet.

    Args:
        job_graph: a job for batch execution.
        configuration: its settings.
        schema: the frame's schema, as DDL or a `StructType`; None to derive it.
        known: the known type of the records: a `TypeInformation`, the source that they come from, or None.
        owner: the operator that the records come from, for errors.

    Raises:
        ConfigurationError: if the columns cannot be derived.
        PenstockError: if Spark cannot be started.
    """
    spark = obtain_spark(configuration.to_dict(), 1)
    hand_back(spark, 1)  # a query takes a slot only while it runs
    spark.ship_package()
    spark.ship_dependencies(configuration)
    vertices = [replace(vertex, has_client=False) for vertex in batch_vertices(job_graph, str(JobID.generate()))]
    frame_schema = derive_schema(schema, known, spark.session, owner, "to_dataframe()")
    frames = build_frames(job_graph, vertices, spark.session, spark.is_local, lambda vertex: False, frame_schema)
    return frames[job_graph.vertices[-1].index]


def derive_schema(schema: Any, known: Any, session: SparkSession, owner: str, caller: str) -> StructType:
    """Return the schema of a frame: the given one, or that of the records' known type; see `frame_of_job`.

    Raises:
        ConfigurationError: if the columns cannot be derived; `caller` is the method that could be given a schema.
    """
    if schema is not None:
        frame_schema: StructType = session.createDataFrame([], schema).schema
        return frame_schema
    if isinstance(known, DataFrameSource):
        return known.frame.schema
    fields = field_types(known) if isinstance(known, TypeInformation) else None
    if fields is None:
        raise ConfigurationError(
            f"the columns of the records of {owner!r} are unknown: give {caller} a schema, such as 'name STRING, count "
            "BIGINT', or the operator before it an output_type, such as Types.ROW_NAMED(['name', 'count'], "
            "[Types.STRING(), Types.LONG()])"
        )
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([(name, arrow_type(field)) for name, field in fields]))
