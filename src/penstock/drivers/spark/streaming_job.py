"""Micro-batch execution with streaming data frames: Spark's Structured Streaming says when there is an epoch.

One query reads all streaming frames of the program. Each of its batches is an epoch, run in the job's own thread while
Spark waits; the other sources of the program are read in the same epochs. Without an interval the query reads what is
there and ends (`availableNow`), and epochs of the other sources follow until one finds nothing. With an interval
(`processingTime`) an epoch without a batch runs when Spark has found nothing for that long, so timers and other sources
go on. Savepoints are taken between two epochs, also while Spark waits for data.

Exactly once. The epoch's checkpoint holds the batch's id and Spark's position (`query_position`), and Spark may commit
the batch only when that checkpoint is complete. So a job that begins from any checkpoint has Spark go on behind the
batch that the checkpoint covers, whatever has become of the location where Spark kept its own: Spark gives that batch
once more, and it is skipped. An epoch that fails is run again with the same batch, as the restart strategy says; a
query that fails begins again from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.common.configuration import Configuration
from penstock.common.errors import JobExecutionError, PenstockError
from penstock.core.epochs.coordinator import EpochCoordinator, Task
from penstock.core.epochs.work import EpochWork
from penstock.core.job.job_graph import JobGraph, JobVertex
from penstock.core.ports import JobListener
from penstock.drivers.masterless_job import Last
from penstock.drivers.spark.batch_frames import slots
from penstock.drivers.spark.batch_job import spark_failure
from penstock.drivers.spark.frame_records import RecordShape
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.micro_batch_job import SparkMicroBatchJob
from penstock.drivers.spark.query_position import QueryPosition
from penstock.drivers.spark.streaming_frame import StreamingFrameSource
from penstock.drivers.spark.streaming_query import FrameQuery, StreamingBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How often the job looks whether it was cancelled, a savepoint is wanted, or the query has ended.
LOOK_MS = 50


def streaming_frames(job_graph: JobGraph) -> dict[str, StreamingFrameSource]:
    """The sources of a job that are streaming data frames, by operator id."""
    return {
        operator_id: source
        for vertex in job_graph.vertices
        for operator_id, source in vertex.sources.items()
        if isinstance(source, StreamingFrameSource)
    }


class SparkStreamingFramesJob(SparkMicroBatchJob):
    """See the module's text."""

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, spark: SparkHandle
    ) -> None:
        job_graph = replace(job_graph, vertices=tuple(map(_with_own_sources, job_graph.vertices)))
        super().__init__(job_graph, configuration, listener, spark)
        self._frames = streaming_frames(job_graph)
        self._has_others = len(self._frames) < sum(len(vertex.sources) for vertex in job_graph.vertices)
        #: The operator ids of the query's sources, in its order.
        self._order: tuple[str, ...] = ()
        self._query: FrameQuery | None = None
        #: The batch of the epoch that runs; None for an epoch that Spark has no part in.
        self._batch: StreamingBatch | None = None

    # --- the query -------------------------------------------------------------------------------------------------

    def run_epochs(self, coordinator: EpochCoordinator) -> bool:
        """Follow the query; then, without an interval, let the other sources come to an end."""
        begun_from = coordinator.latest
        while True:
            try:
                is_stopped = self._follow_query(coordinator)
                break
            except _QueryFailed as failed:
                self._wait_for_restart(spark_failure(failed.reason, self.job_graph))
                coordinator.roll_back()
        if is_stopped:
            return False
        if self._has_others or coordinator.latest is begun_from:
            return super().run_epochs(coordinator)
        self._say_where_to_go_on()
        return False

    def _follow_query(self, coordinator: EpochCoordinator) -> bool:
        """An epoch for every batch until the query has ended; whether the job was stopped before."""
        position = self._restored_position()
        self._order = tuple(self._frames) if position is None else position.sources
        frames = [self._frames[operator_id].frame for operator_id in self._order]
        archive, name = None if position is None else position.archive, f"penstock-{self._job_id}"
        try:
            query = self._query = FrameQuery(frames, archive, self._interval_ms, name)
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
            raise _QueryFailed(error) from None
        try:
            return self._take_batches(coordinator, query)
        finally:
            self._query = self._batch = None
            query.close()

    def _take_batches(self, coordinator: EpochCoordinator, query: FrameQuery) -> bool:
        # The other sources wait for no batch.
        begun_ms = 0 if self._has_others else self.clock.now_ms()
        while True:
            self.check_cancelled()
            if self._serve(coordinator):
                return True
            batch = query.next(LOOK_MS)
            if batch is not None:
                if not self._is_done(batch):
                    begun_ms = self.clock.now_ms()
                    self._epoch_of(batch, coordinator)
                batch.release()
            elif self._has_ended(query):
                return False
            elif self._is_due(begun_ms) and not query.is_looking:
                begun_ms = self.clock.now_ms()
                self._epoch(coordinator)

    def _epoch_of(self, batch: StreamingBatch, coordinator: EpochCoordinator) -> None:
        self._batch = batch
        try:
            self._epoch(coordinator)
        finally:
            self._batch = None

    def _is_due(self, begun_ms: int) -> bool:
        return self._interval_ms is not None and self.clock.now_ms() - begun_ms >= self._interval_ms

    def _has_ended(self, query: FrameQuery) -> bool:
        try:
            has_ended = query.has_ended
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
            raise _QueryFailed(error) from None
        if has_ended and self._interval_ms is not None:
            raise _QueryFailed(PenstockError("its streaming query was stopped by somebody else"))
        return has_ended

    # --- Spark's position ------------------------------------------------------------------------------------------

    def _restored_position(self) -> QueryPosition | None:
        known = {operator_id: source.position for operator_id, source in self._frames.items()}
        found = next((position for position in known.values() if position is not None), None)
        if found is None:
            return None
        if set(found.sources) != set(known) or None in known.values():
            raise JobExecutionError(
                self.job_graph.name,
                f"its state has one position for {len(found.sources)} streaming data frames, those of the program "
                f"that it is from, and this program has other ones ({len(known)}): read the same frames under the same "
                "uids, or give all of them new uids and set execution.state-recovery.ignore-unclaimed-state, to begin "
                "anew",
            )
        return known[found.sources[0]]

    def _is_done(self, batch: StreamingBatch) -> bool:
        position = self._frames[self._order[0]].position
        return position is not None and batch.batch_id <= position.batch_id

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """The epoch, and behind it what its checkpoint is to hold of Spark's position."""
        yield from super().run_epoch(works)
        if self._batch is not None and self._query is not None:
            batch_id = self._batch.batch_id
            archive = self._query.archive(batch_id)
            for place, operator_id in enumerate(self._order):
                position = QueryPosition(batch_id, self._order, b"" if place else archive)
                self._frames[operator_id].position = position

    # --- frames of an epoch ----------------------------------------------------------------------------------------

    @property
    def session(self) -> SparkSession:
        """That of the batch, for frames of several sessions do not go together."""
        return super().session if self._batch is None else self._batch.session

    def frame_shape(self, vertex: JobVertex) -> RecordShape | None:
        """The records of the streaming frame that a vertex reads, when the epoch has a batch."""
        source = next(iter(vertex.sources.values()), None)
        return source.shape if self._batch is not None and isinstance(source, StreamingFrameSource) else None

    def source_input(self, vertex: JobVertex) -> DataFrame:
        """The part of the batch that a source is to read, a partition for each subtask, with a row to tell which.

        A partition of Spark's is one subtask's as a whole, in its order.
        """
        batch = self._batch
        if batch is None or self.frame_shape(vertex) is None:
            return super().source_input(vertex)
        from pyspark.sql import functions as sql

        parallelism = vertex.parallelism
        (operator_id,) = vertex.sources
        records = batch.records_of(self._order.index(operator_id))
        subtask = (sql.spark_partition_id() % parallelism).alias("subtask")
        rows = records.select(subtask, "record")
        nothing = sql.lit(None).cast(records.schema["record"].dataType).alias("record")
        marks = batch.session.range(0, parallelism, 1, 1).select(sql.col("id").cast("int").alias("subtask"), nothing)
        numbers = ", ".join(map(str, slots(parallelism)))
        every = rows.union(marks)
        slot = sql.expr(f"array({numbers})[subtask]")
        return every.withColumn("slot", slot).repartition(parallelism, "slot").select("subtask", "record")


class _QueryFailed(Exception):
    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _with_own_sources(vertex: JobVertex) -> JobVertex:
    sources = {
        operator_id: source.of_one_job() if isinstance(source, StreamingFrameSource) else source
        for operator_id, source in vertex.sources.items()
    }
    return replace(vertex, sources=sources)
