"""Micro-batch execution with streaming data frames, and the start of all Spark jobs that work step by step.

Spark's Structured Streaming decides when an epoch begins. One query reads all streaming frames of the program. Each of
its batches is an epoch, run in the job's own thread while Spark waits; the other sources of the program are read in the
same epochs. Without an interval the query reads all available data and ends (`availableNow`), and epochs of the other
sources follow until one finds nothing. With an interval (`processingTime`) an epoch without a batch runs when Spark has
found nothing for that long, so timers and other sources progress. Savepoints are taken between two epochs, also while
Spark waits for data.

**Exactly once.** The epoch's checkpoint holds the batch's id and Spark's position, and Spark may commit the batch only
when that checkpoint is complete. So a job that begins from any checkpoint makes Spark continue after the batch that the
checkpoint covers, whatever happened to Spark's own location. Spark repeats that batch, and the job skips it. An epoch
that fails is run again with the same batch, as the restart strategy says; a query that fails begins again from the last
checkpoint.

`archive_position` returns the position of Spark's streaming query, as bytes for Penstock's checkpoints. A query's
checkpoint location contains all data that Spark needs to continue: `metadata`, the query's id; `offsets/<n>`, the end
of each batch; `sources/`, the notes of each source; `commits/<n>`, the completed batches. An archive is taken while
batch n is being processed, and contains all of that except the commits. It has the offsets of batch n and of the one
before it, where batch n begins. Of a log of files it has the last `*.compact` and the files that follow it. A location
that is made from the archive lacks the commit of batch n, so Spark repeats batch n, and a job that has completed it
skips it. Only Penstock's checkpoint decides whether a batch is complete. Log entries that Spark has written since do
not affect the archive.

`StreamingFrameSource` is a streaming data frame as a source of micro-batch jobs. Spark finds the data, and reports how
far the frame has been read. In one epoch the source emits one of Spark's batches. The source's enumerator keeps Spark's
position in the job's checkpoints; its readers read nothing themselves.

`FrameQuery` is one Spark query that reads the streaming data frames of a job and passes its batches to the job's
thread. The frames are combined into one frame, so that there is one log of offsets. It has a column for each of them,
and the number of the frame that a row comes from. Spark calls back in its own thread, which waits until a checkpoint of
the job includes the batch. If the job ends before that, the query is stopped while the call still waits. Spark then
begins no further trigger, which would report the batch to its sources as complete.

The query's checkpoint location is a directory of this process, removed at its end, or by the next query if the process
is killed.

`StreamingFramesMaster` and `SparkStreamingFramesJob` run the epochs of such a job.

`submit_stepwise` selects the kind of Spark job for a job graph and starts it.
"""

from __future__ import annotations

import enum
import functools
import io
import queue
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.base import errors
from penstock.base.configuration import Configuration
from penstock.base.typeinfo import TypeInformation
from penstock.drivers.directories import HeldDirectory
from penstock.drivers.spark.batch_job import SparkBatchJob, slots, spark_failure
from penstock.drivers.spark.epoch_job import SparkEpochJob
from penstock.drivers.spark.frames import RecordShape, build_record_shape
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.lockstep import count_slots
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.drivers.stepwise.job import StepwiseJob, Table
from penstock.runtime import connector
from penstock.runtime.epochs.coordinator import EpochWork, Task
from penstock.runtime.graph import BACK_FILL, JobGraph, JobVertex
from penstock.runtime.master.epochs import EpochMaster
from penstock.runtime.master.steps import Last, Step, Steps
from penstock.runtime.ports import JobListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_COMPACT = ".compact"


@dataclass(frozen=True)
class QueryPosition:
    """The last batch that a checkpoint covers; travels in the enumerators' state.

    `sources`: the operator ids of the sources that the query reads, in its order. `archive`: see the module docstring;
    the first of the sources has the bytes, the others keep it empty.
    """

    batch_id: int
    sources: tuple[str, ...]
    archive: bytes


def archive_position(location: Path, batch_id: int) -> bytes:
    """Archive the data that the query needs to repeat batch `batch_id`. Call it while Spark waits for that batch's end.

    Raises:
        PenstockError: if the query keeps state of its own, which is more than a position.
    """
    if any(path.is_file() for path in location.glob("state/**/*")):
        raise errors.OperationError(
            "a streaming data frame keeps state in Spark (an aggregation, a join, dropDuplicates), which Penstock's "
            "checkpoints do not hold: move that part after from_dataframe()"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_needed(location, batch_id)):
            name = path.relative_to(location).as_posix()
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def lay_out(archive: bytes, location: Path) -> None:
    """Create a checkpoint location from an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(location)


def _needed(location: Path, batch_id: int) -> Iterator[Path]:
    yield location / "metadata"
    yield location / "offsets" / str(batch_id)
    if batch_id > 0:
        yield location / "offsets" / str(batch_id - 1)
    sources = location / "sources"
    for directory in [sources, *(path for path in sources.rglob("*") if path.is_dir())]:
        if directory.is_dir():
            yield from _of_log(directory)


def _of_log(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory, without files that a compact one replaces and a file system's own files."""
    files = [path for path in directory.iterdir() if path.is_file() and not path.name.startswith(".")]
    numbers = {path: number for path in files if (number := path.name.removesuffix(_COMPACT)).isdecimal()}
    last = max((int(numbers[path]) for path in numbers if path.name.endswith(_COMPACT)), default=-1)
    for path in files:
        is_replaced = path in numbers and (
            int(numbers[path]) < last or (int(numbers[path]) == last and not path.name.endswith(_COMPACT))
        )
        if not is_replaced:
            yield path


#: Parts of a query that keep state if their input is a stream.
_WITH_STATE: Final = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "GlobalLimit",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
}


class StreamingFrameSource(connector.Source[Any, Any]):
    """Reads a streaming data frame, in micro-batch execution on Spark.

    Args:
        frame: the data frame.
        type_info: the type of its records, see `build_record_shape`.

    Raises:
        ConfigurationError: if the type does not fit the frame's columns, the frame keeps state in Spark, or its
            session is a Spark Connect session.
    """

    def __init__(self, frame: DataFrame, type_info: TypeInformation | None) -> None:
        if "connect" in type(frame).__module__:
            raise errors.ConfigurationError(
                "a streaming data frame of a Spark Connect session cannot be a source: Spark would run the job's "
                "epochs on its server; use a classic Spark session, or a Penstock source"
            )
        stateful = _stateful_part(frame)
        if stateful is not None:
            raise errors.ConfigurationError(
                f"the streaming data frame keeps state in Spark ({stateful}), which Penstock's checkpoints do not "
                "hold: move that part after from_dataframe()"
            )
        self.shape = build_record_shape(type_info, list(frame.columns))
        self._type_info = type_info
        self._frame: DataFrame | None = frame
        #: The position of the last processed batch, set by the job or on restore.
        self.position: QueryPosition | None = None

    @property
    def frame(self) -> DataFrame:
        """The data frame. It exists only in the program, because it is not pickled."""
        if self._frame is None:
            raise errors.WrongTimeError("a data frame exists only in the program that created it, not in tasks")
        return self._frame

    @property
    def boundedness(self) -> connector.Boundedness:
        """Unbounded, although a job without an interval ends when all available data has been read."""
        return connector.Boundedness.CONTINUOUS_UNBOUNDED

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_frame": None, "position": None}

    def of_one_job(self) -> StreamingFrameSource:
        """Return the same source with a position of its own."""
        return StreamingFrameSource(self.frame, self._type_info)

    def check_execution_mode(self, mode: str, is_local: bool) -> None:
        """Raise an error if the job does not run in micro-batch execution on Spark."""
        if mode != "MICRO_BATCH":
            raise errors.ConfigurationError(
                f"a streaming data frame needs micro-batch execution, but execution.runtime-mode is {mode}: call "
                "set_runtime_mode(RuntimeExecutionMode.MICRO_BATCH)"
            )
        if is_local:
            raise errors.ConfigurationError(
                "a streaming data frame needs Spark, but execution.target is local: set it to spark"
            )

    def create_enumerator(
        self, context: connector.SplitEnumeratorContext[Any], restored: Any | None
    ) -> connector.SplitEnumerator[Any]:
        """Create an enumerator that keeps the position, or continues from a restored one."""
        if restored is not None and not isinstance(restored, QueryPosition):
            raise errors.CheckpointError(
                "the state of this source belongs to another kind of source and is not the position of a streaming "
                "data frame: give the source a new uid, and set execution.state-recovery.ignore-unclaimed-state"
            )
        self.position = restored
        return _PositionKeeper(self)

    def create_reader(self, context: connector.SourceReaderContext) -> connector.SourceReader[Any, Any]:
        """Create a reader without data: Spark's batch reaches the task as the task's input."""
        return _NoReader()


class _PositionKeeper(connector.SplitEnumerator[Any]):
    def __init__(self, source: StreamingFrameSource) -> None:
        self._source = source

    def start(self) -> None:
        pass

    def handle_split_request(self, subtask_index: int) -> None:
        pass

    def add_splits_back(self, splits: Sequence[Any], subtask_index: int) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> QueryPosition | None:
        return self._source.position


class _NoReader(connector.SourceReader[Any, Any]):
    def poll_next(self, max_records: int) -> connector.InputStatus:
        return connector.InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Any]) -> None:
        pass

    def no_more_splits(self) -> None:
        pass

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        return []


def _stateful_part(frame: DataFrame) -> str | None:
    """Return the name of a part of the frame's query that keeps state; None if no part does."""
    for node in _nodes(frame._jdf.queryExecution().analyzed()):
        if node.isStreaming():
            name = str(node.nodeName())
            children = node.children()
            streams = sum(bool(children.apply(i).isStreaming()) for i in range(children.size()))
            if name in _WITH_STATE or (name == "Join" and streams > 1):
                return name
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


#: How often to check whether Spark has registered the stop of the query.
STOP_LOOK_SECONDS = 0.01


class StreamingBatch:
    """One batch of the query. Its rows may be read several times until the batch is released."""

    def __init__(self, frame: DataFrame, batch_id: int) -> None:
        self.batch_id = batch_id
        self._frame = frame
        self._is_over = threading.Event()

    @property
    def session(self) -> SparkSession:
        """The session of the batch; all frames that are combined with it must come from this session."""
        return self._frame.sparkSession

    def select_records(self, number: int) -> DataFrame:
        """Return the rows of one of the frames, in a column `record`."""
        from pyspark.sql import functions as sql

        return self._frame.where(f"source = {number}").select(sql.col(f"record{number}").alias("record"))

    def release(self) -> None:
        """Let Spark continue with the next batch."""
        self._is_over.set()

    def wait(self) -> None:
        """Wait for the release, in Spark's thread."""
        self._is_over.wait()


class FrameQuery:
    """See the module docstring. The query begins on construction; call `close` to end it.

    Args:
        frames: the frames to read, in the order of the archive.
        archive: the position to continue from; None to begin from the start.
        interval_ms: how often Spark looks for data; None to end when all available data has been read.
        name: the query's name on Spark's pages.

    Raises:
        Exception: whatever Spark raises when the query cannot begin.
    """

    def __init__(self, frames: Sequence[DataFrame], archive: bytes | None, interval_ms: int | None, name: str) -> None:
        self._batches: queue.SimpleQueue[StreamingBatch] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._at_hand: StreamingBatch | None = None
        self._is_closed = False
        self._directory = HeldDirectory("penstock-query-")
        self._location = self._directory.path
        try:
            if archive is not None:
                lay_out(archive, self._location)
            self._query = self._start(frames, interval_ms, name)
        except BaseException:
            self._directory.remove()
            raise

    def _start(self, frames: Sequence[DataFrame], interval_ms: int | None, name: str) -> StreamingQuery:
        writer = _as_one(frames).writeStream.foreachBatch(self._take).queryName(name)
        writer = writer.option("checkpointLocation", self._location.as_uri())
        if interval_ms is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        """Take a batch; Spark calls this for each batch in a thread of its own."""
        batch = StreamingBatch(frame, batch_id)
        with self._lock:
            if self._is_closed:
                return
            self._at_hand = batch
        self._batches.put(batch)
        batch.wait()

    def next(self, for_ms: int) -> StreamingBatch | None:
        """Return the next batch if one comes within the given time; the caller must release it."""
        try:
            return self._batches.get(timeout=for_ms / 1000)
        except queue.Empty:
            return None

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more batches.

        Raises:
            Exception: the exception that the query failed with.
        """
        if self._query.isActive:
            return False
        failure = self._query.exception()
        if failure is not None:
            raise failure
        return True

    @property
    def is_looking(self) -> bool:
        """Whether Spark is processing a trigger, so that a batch may come soon."""
        return bool(self._query.status["isTriggerActive"])

    def archive(self, batch_id: int) -> bytes:
        """Return the query's position including the current batch."""
        return archive_position(self._location, batch_id)

    def close(self) -> None:
        """End the query; a batch in progress does not count as complete."""
        stopper = threading.Thread(target=self._query.stop, name="penstock-stop-query", daemon=True)
        stopper.start()
        try:
            # Once the query is inactive, Spark begins no more triggers; it waits for the call in progress.
            while self._query.isActive and stopper.is_alive():
                stopper.join(STOP_LOOK_SECONDS)
        finally:
            with self._lock:
                self._is_closed = True
                if self._at_hand is not None:
                    self._at_hand.release()
        stopper.join()
        self._directory.remove()


def _as_one(frames: Sequence[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as sql

    def part(number: int, frame: DataFrame) -> DataFrame:
        columns = [
            (sql.struct("*") if i == number else sql.lit(None).cast(other.schema)).alias(f"record{i}")
            for i, other in enumerate(frames)
        ]
        return frame.select(sql.lit(number).alias("source"), *columns)

    return functools.reduce(
        lambda combined, other: combined.union(other), [part(i, frame) for i, frame in enumerate(frames)]
    )


#: How often to check whether the job was cancelled, a savepoint was requested, or the query has ended.
LOOK_MS: Final = 50


def streaming_frames(job_graph: JobGraph) -> dict[str, StreamingFrameSource]:
    """Return the sources of a job that are streaming data frames, by operator id."""
    return {
        operator_id: source
        for vertex in job_graph.vertices
        for operator_id, source in vertex.sources.items()
        if isinstance(source, StreamingFrameSource)
    }


# --- the master ------------------------------------------------------------------------------------------------------


class Found(enum.Enum):
    """The result of looking for a batch."""

    BATCH = enum.auto()
    #: a batch covered by the checkpoint that the job began from
    OLD_BATCH = enum.auto()
    #: nothing, while Spark processes a trigger
    LOOKING = enum.auto()
    NOTHING = enum.auto()
    #: no more batches will follow
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class BeginQuery(Step):
    """Begin the query at the position of the last checkpoint. Raises `QueryFailed`."""


@dataclass(frozen=True, slots=True)
class NextBatch(Step):
    """Wait a moment for a batch; returns a `Found`. Raises `QueryFailed` and `Cancelled`."""


@dataclass(frozen=True, slots=True)
class ReleaseBatch(Step):
    """Let Spark continue with the next batch."""


@dataclass(frozen=True, slots=True)
class EndQuery(Step):
    """End the query; a batch in progress does not count as complete."""


class QueryFailed(Exception):
    """The query cannot begin, or has failed; `reason` is the error for the user."""

    def __init__(self, reason: errors.PenstockError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class StreamingFramesMaster(EpochMaster):
    """Follows the query; `has_others` says whether the job also reads other sources."""

    has_others = False

    def epochs(self) -> Steps[bool]:
        """Run an epoch for every batch; without an interval, then let the other sources run to their ends."""
        begun_from = self.coordinator.latest
        while True:
            try:
                is_stopped = yield from self._follow_query()
                break
            except QueryFailed as failed:
                yield from self.restart(failed.reason, bool(self.completed), self.point)
                yield from self.go_back()
        if is_stopped:
            return False
        if self.has_others or self.coordinator.latest is begun_from:
            return (yield from super().epochs())
        yield from self.say_where_to_go_on()
        return False

    def _follow_query(self) -> Steps[bool]:
        """Run an epoch for every batch until the query has ended; return whether the job was stopped before."""
        yield BeginQuery()
        try:
            is_stopped = yield from self._take_batches()
        except GeneratorExit:
            raise
        except BaseException:
            yield EndQuery()
            raise
        yield EndQuery()
        return is_stopped

    def _take_batches(self) -> Steps[bool]:
        # The other sources do not wait for a batch.
        begun_ms = 0 if self.has_others else self.clock.steady_ms()
        while not (yield from self.serve()):
            outcome: Found = yield NextBatch()
            if outcome is Found.END:
                return False
            if outcome is Found.BATCH:
                begun_ms = self.clock.steady_ms()
                yield from self.epoch()
                yield ReleaseBatch()
            elif outcome is Found.NOTHING and self._is_due(begun_ms):
                begun_ms = self.clock.steady_ms()
                yield from self.epoch()
        return True

    def _is_due(self, begun_ms: int) -> bool:
        return self.interval_ms is not None and self.clock.steady_ms() - begun_ms >= self.interval_ms


# --- the job ---------------------------------------------------------------------------------------------------------


class SparkStreamingFramesJob(SparkEpochJob):
    """See the module docstring."""

    last_steps = (*SparkEpochJob.last_steps, EndQuery)

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, spark: SparkHandle
    ) -> None:
        job_graph = replace(job_graph, vertices=tuple(map(_with_own_sources, job_graph.vertices)))
        self._frames = streaming_frames(job_graph)
        #: The operator ids of the query's sources, in its order.
        self._order: tuple[str, ...] = ()
        self._query: FrameQuery | None = None
        #: The batch of the current epoch; None for an epoch without a Spark batch.
        self._batch: StreamingBatch | None = None
        super().__init__(job_graph, configuration, listener, spark)

    def make_master(self) -> EpochMaster:
        """Create a master that follows the query."""
        super().make_master()
        directory = self.storage.directory
        master = StreamingFramesMaster(self.job_graph, str(self._job_id), self.configuration, self.clock, directory)
        master.has_others = len(self._frames) < sum(len(vertex.sources) for vertex in self.job_graph.vertices)
        return master

    def table(self) -> Table:
        """Return the handlers of all steps, including the query's."""
        return {
            **super().table(),
            BeginQuery: lambda _: self._begin_query(),
            NextBatch: lambda _: self._next_batch(),
            ReleaseBatch: lambda _: self._release_batch(),
            EndQuery: lambda _: self._end_query(),
        }

    # --- the query -------------------------------------------------------------------------------------------------

    def _begin_query(self) -> None:
        position = self._restored_position()
        self._order = tuple(self._frames) if position is None else position.sources
        frames = [self._frames[operator_id].frame for operator_id in self._order]
        archive, name = None if position is None else position.archive, f"penstock-{self._job_id}"
        try:
            self._query = FrameQuery(frames, archive, self.master.interval_ms, name)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
            raise QueryFailed(spark_failure(error, self.job_graph)) from None

    def _next_batch(self) -> Found:
        self.check_cancelled()
        query = self._query
        assert query is not None, "the query has not begun"
        batch = query.next(LOOK_MS)
        if batch is not None:
            if self._is_done(batch):
                batch.release()
                return Found.OLD_BATCH
            self._batch = batch
            return Found.BATCH
        if self._has_ended(query):
            return Found.END
        return Found.LOOKING if query.is_looking else Found.NOTHING

    def _release_batch(self) -> None:
        batch, self._batch = self._batch, None
        assert batch is not None, "no batch is at hand"
        batch.release()

    def _end_query(self) -> None:
        query, self._query, self._batch = self._query, None, None
        if query is not None:
            query.close()

    def _has_ended(self, query: FrameQuery) -> bool:
        try:
            has_ended = query.has_ended
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
            raise QueryFailed(spark_failure(error, self.job_graph)) from None
        if has_ended and self.master.interval_ms is not None:
            raise QueryFailed(errors.OperationError("its streaming query was stopped from outside the job"))
        return has_ended

    # --- Spark's position ------------------------------------------------------------------------------------------

    def _restored_position(self) -> QueryPosition | None:
        known = {operator_id: source.position for operator_id, source in self._frames.items()}
        restored = next((position for position in known.values() if position is not None), None)
        if restored is None:
            return None
        if set(restored.sources) != set(known) or None in known.values():
            raise errors.JobExecutionError(
                self.job_graph.name,
                f"its state has one position for the {len(restored.sources)} streaming data frames of the program that "
                f"wrote it, but this program has different ones ({len(known)}): read the same frames under the same "
                "uids, or give all of them new uids and set execution.state-recovery.ignore-unclaimed-state, to start "
                "over",
            )
        return known[restored.sources[0]]

    def _is_done(self, batch: StreamingBatch) -> bool:
        position = self._frames[self._order[0]].position
        return position is not None and batch.batch_id <= position.batch_id

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run the epoch, and then set Spark's part of the position for its checkpoint."""
        yield from super().run_epoch(works)
        if self._batch is not None and self._query is not None:
            batch_id = self._batch.batch_id
            archive = self._query.archive(batch_id)
            for index, operator_id in enumerate(self._order):
                position = QueryPosition(batch_id, self._order, b"" if index else archive)
                self._frames[operator_id].position = position

    # --- frames of an epoch ----------------------------------------------------------------------------------------

    def numbers(self, count: int) -> DataFrame:
        """Return the numbers from the session of the batch, because frames of different sessions cannot be combined."""
        return super().numbers(count) if self._batch is None else self._batch.session.range(0, count, 1, count)

    @property
    def shares_shuffles(self) -> bool:
        """Whether readers share shuffles: never in an epoch with a batch, because its session is Spark's."""
        return super().shares_shuffles and self._batch is None

    def frame_shape(self, vertex: JobVertex) -> RecordShape | None:
        """Return the shape of a vertex's records from a streaming frame; None if the epoch has no batch."""
        source = next(iter(vertex.sources.values()), None)
        return source.shape if self._batch is not None and isinstance(source, StreamingFrameSource) else None

    def source_input(self, vertex: JobVertex) -> DataFrame:
        """Return the part of the batch for a source, one partition per subtask, with a row that identifies the subtask.

        A Spark partition goes to one subtask as a whole, in its order.
        """
        batch = self._batch
        if batch is None or self.frame_shape(vertex) is None:
            return super().source_input(vertex)
        from pyspark.sql import functions as sql

        parallelism = vertex.parallelism
        (operator_id,) = vertex.sources
        records = batch.select_records(self._order.index(operator_id))
        subtask = (sql.spark_partition_id() % parallelism).alias("subtask")
        rows = records.select(subtask, "record")
        nothing = sql.lit(None).cast(records.schema["record"].dataType).alias("record")
        marks = batch.session.range(0, parallelism, 1, 1).select(sql.col("id").cast("int").alias("subtask"), nothing)
        numbers = ", ".join(map(str, slots(parallelism)))
        every = rows.union(marks)
        slot = sql.expr(f"array({numbers})[subtask]")
        return every.withColumn("slot", slot).repartition(parallelism, "slot").select("subtask", "record")


def _with_own_sources(vertex: JobVertex) -> JobVertex:
    sources = {
        operator_id: source.of_one_job() if isinstance(source, StreamingFrameSource) else source
        for operator_id, source in vertex.sources.items()
    }
    return replace(vertex, sources=sources)


def submit_stepwise(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> StepwiseJob:
    """Start a job in the mode of its graph, on the active Spark session or on one that Penstock starts.

    Raises:
        PenstockError: if Spark cannot be started.
    """
    slots = count_slots(job_graph)
    spark = obtain_spark(configuration.to_dict(), slots)
    try:
        make = _kind_of_job(job_graph)
        job: StepwiseJob = make(job_graph, configuration, listener, spark)
    except BaseException:
        hand_back(spark, slots)
        raise
    job.start()
    return job


def _kind_of_job(
    job_graph: JobGraph,
) -> Callable[[JobGraph, Configuration, JobListener, SparkHandle], StepwiseJob]:
    if job_graph.mode == "BATCH":
        return SparkBatchJob
    follows_query = job_graph.mode != BACK_FILL and streaming_frames(job_graph)
    return SparkStreamingFramesJob if follows_query else SparkEpochJob
