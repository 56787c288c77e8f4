"""Batch execution on Spark: the whole job is one query; Spark does the exchanges and the recovery (I2)."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from penstock.base.configuration import Configuration
from penstock.base.errors import JobExecutionError, PenstockError
from penstock.core.connector import Source
from penstock.core.graph.job_graph import JobGraph, JobVertex
from penstock.core.job.failures import batch_error
from penstock.core.master.steps import Last
from penstock.core.operators.sink.sink import SinkOperator
from penstock.core.ports import JobListener
from penstock.core.task.program import VertexProgram
from penstock.drivers.spark.batch_frames import build_frames, last_rows
from penstock.drivers.spark.batch_stage import extract_failure
from penstock.drivers.spark.frame_source import DataFrameSource
from penstock.drivers.spark.handle import SparkHandle, python_problem, short_reason
from penstock.drivers.spark.lockstep import Meeting
from penstock.drivers.spark.lockstep_jobs import TRIES_MAX, check_slots, count_slots, open_meeting
from penstock.drivers.spark.session import hand_back
from penstock.drivers.stepwise.batch_job import BatchJob

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
