"""Epochs and back-fills on Spark: every epoch is a query; its exchanges are Spark's shuffles.

`warm_executors` loads Python and Penstock on all executors in parallel while a job in micro-batch execution begins. An
executor takes seconds for its first Python task: it starts Python, which imports the modules that tasks need. The
stages of the first epoch run one after another, and a later one may be the first to use an executor; the job would then
lose these seconds twice.

`SparkEpochJob`: a task passes its rows for the client on to the tasks downstream. So the query has outputs only at its
last vertices. The output of a vertex with several readers goes through one shuffle, which they share: Spark recognizes
it (`ReuseExchange`) and runs the vertex once. If it ran once per reader, each run would read different records.

Where Spark does not share the shuffle, the job keeps the output instead (`persist`). With several executors the output
is then computed before the readers begin.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.base.configuration import Configuration
from penstock.drivers.spark.batch_job import ROW_ORDER, SLOTS, is_in_place, make_stage, row_type, slots, spark_failure
from penstock.drivers.spark.epoch_stage import CARRIED_COLUMNS, EpochStage
from penstock.drivers.spark.frames import RecordShape
from penstock.drivers.spark.handle import SparkHandle, after_shuffle, short_reason
from penstock.drivers.spark.session import hand_back
from penstock.drivers.stepwise.job import EpochJob
from penstock.runtime.epochs.coordinator import EpochWork, Task
from penstock.runtime.graph import BACK_FILL, JobGraph, JobVertex
from penstock.runtime.master.steps import Last
from penstock.runtime.ports import JobListener

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from penstock.drivers.spark.handle import Entry


_log = logging.getLogger("penstock.spark")


def warm_executors(spark: SparkHandle, tag: str) -> None:
    """Run a short task on every executor in the background. Do nothing if all of Spark is one process.

    Args:
        spark: the session.
        tag: the tag that the job's interrupt uses to end these tasks as well.
    """
    slots = None if spark.is_one_process else spark.slots_now()
    if slots is not None:
        thread = threading.Thread(target=_warm, args=(spark, tag, slots), name="penstock-warm-executors", daemon=True)
        thread.start()


def _warm(spark: SparkHandle, tag: str, slots: int) -> None:
    try:
        spark.ship_package()
        spark.begin(tag, "Penstock loads Python on the executors")
        spark.numbers(slots).mapInArrow(_entry(), row_type()).collect()
    except Exception as error:  # noqa: BLE001 - the job itself will say what is wrong
        _log.debug("executors were not warmed: %s", short_reason(error))


def _entry() -> Entry:
    """Return the function of the tasks. It makes no rows; it is pickled by value and references nothing of Penstock."""

    def load(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import importlib

        for _ in batches:
            pass  # Spark expects a task to read its input
        importlib.import_module("penstock.drivers.spark.epoch_stage")
        importlib.import_module("penstock.datastream")
        yield from ()

    return load


class SparkEpochJob(EpochJob):
    """See the module docstring."""

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, spark: SparkHandle
    ) -> None:
        super().__init__(job_graph, configuration, listener)
        self._spark = spark
        self._tag = f"penstock-{self._job_id}"

    def start(self) -> None:
        """Start the job while the executors load Python."""
        warm_executors(self._spark, self._tag)
        super().start()

    def run_epoch(self, works: Mapping[Task, EpochWork]) -> Iterator[Last]:
        """Run one query, which returns the rows that all tasks leave for the client."""
        self._spark.ship_package()
        self._spark.ship_dependencies(self.configuration)
        self._spark.begin(self._tag, self._spark.pages.describe(self.job_graph.name, str(self._job_id)))
        frames: dict[int, DataFrame] = {}
        persisted = []
        try:
            for vertex in self.job_graph.vertices:
                frame = self._build_input_frame(vertex, frames).mapInArrow(self._stage(vertex, works), row_type())
                if (partitions := self._shared_partitions(vertex)) is not None:
                    frame = frame.repartition(partitions, "slot")
                elif len(self._readers(vertex.index)) > 1:
                    frame = frame.persist()
                    persisted.append(frame)
                    if not self._spark.is_one_process and self.job_graph.mode != BACK_FILL:
                        frame.count()
                frames[vertex.index] = frame
            ends = [carried_rows(frame) for index, frame in frames.items() if not self._readers(index)]
            for row in functools.reduce(lambda merged, other: merged.union(other), ends).collect():
                yield Last(row[0], row[1], row[2], row[3], bytes(row[4]))
        except Exception as error:  # noqa: BLE001 - whatever Spark raises becomes the reason
            self.check_cancelled()
            raise spark_failure(error, self.job_graph) from None
        finally:
            for frame in persisted:
                frame.unpersist()

    def _build_input_frame(self, vertex: JobVertex, frames: Mapping[int, DataFrame]) -> DataFrame:
        from pyspark.sql import functions as sql

        edges = self.job_graph.get_inputs(vertex.index)
        parallelism = vertex.parallelism
        if not edges:
            return self.source_input(vertex)
        by_source: dict[int, list[int]] = {}
        for edge in edges:
            by_source.setdefault(edge.source, []).append(edge.index)
        parts, shared = [], None
        for source, indices in by_source.items():
            condition = sql.col("edge").isin(indices)
            if vertex.index == max(self._readers(source)):
                condition |= sql.col("edge") < 0
            shared = self._shared_partitions(self.job_graph.vertices[source])
            if shared is not None:
                condition = after_shuffle(condition)
            parts.append(frames[source].where(condition))
        is_there = is_in_place(edges) if shared is None else shared == parallelism
        if len(parts) == 1 and is_there:
            return parts[0].select(*CARRIED_COLUMNS)
        frame = functools.reduce(lambda merged, other: merged.union(other), parts)
        frame = frame.repartition(parallelism, "slot")
        if self.job_graph.mode == BACK_FILL:
            frame = frame.sortWithinPartitions(*ROW_ORDER)
        return frame.select(*CARRIED_COLUMNS)

    @property
    def shares_shuffles(self) -> bool:
        """Whether Spark lets all readers of a vertex share one shuffle."""
        return self.job_graph.mode != BACK_FILL and self._spark.shares_shuffles

    def _shared_partitions(self, vertex: JobVertex) -> int | None:
        """Return the number of partitions of the shuffle that a vertex's readers share; None if they share none."""
        readers = self._readers(vertex.index)
        if len(readers) < 2 or not self.shares_shuffles:
            return None
        return max(self.job_graph.vertices[reader].parallelism for reader in readers)

    def _readers(self, vertex: int) -> set[int]:
        return {edge.target for edge in self.job_graph.get_outputs(vertex)}

    def source_input(self, vertex: JobVertex) -> DataFrame:
        """Return the frame that the tasks of a source read: it only identifies each subtask."""
        return self.numbers(vertex.parallelism)

    def numbers(self, count: int) -> DataFrame:
        """Return the numbers below `count`, one per partition."""
        if self.job_graph.mode == BACK_FILL:
            return self._spark.session.range(0, count, 1, count)  # a long query with a row for each record
        return self._spark.numbers(count)

    def frame_shape(self, vertex: JobVertex) -> RecordShape | None:
        """Return the shape of the records in `source_input`; None if the tasks read their source themselves."""
        return None

    def _stage(self, vertex: JobVertex, works: Mapping[Task, EpochWork]) -> Entry:
        stage = EpochStage(
            self.epoch_vertices[vertex.index],
            [works[vertex.index, subtask] for subtask in range(vertex.parallelism)],
            {
                edge.index: slots(self.job_graph.vertices[edge.target].parallelism)
                for edge in self.job_graph.get_outputs(vertex.index)
            },
            self.storage,
            self.backends,
            self.frame_shape(vertex),
        )
        return make_stage("epoch_stage", stage, self.job_graph.script, self._spark.is_local)

    def interrupt(self) -> None:
        """Cancel the Spark job of the epoch."""
        self._spark.interrupt(self._tag)

    def release(self) -> None:
        """Release the session."""
        super().release()
        hand_back(self._spark, SLOTS)


def carried_rows(frame: DataFrame) -> DataFrame:
    """Return the rows that all tasks so far leave for the client: vertex, operator, kind, sequence and payload."""
    from pyspark.sql import functions as sql

    return frame.where(sql.col("edge") < 0).select("place", "target", "edge", "sequence", "payload")
