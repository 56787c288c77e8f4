"""Batch execution in this process: one task after the other, rows sorted in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError
from penstock.core.batch.rows import Rows
from penstock.core.batch.splits import splits_of
from penstock.core.batch.task import BatchTask
from penstock.core.job.failures import batch_error
from penstock.core.job.job_graph import JobGraph, JobVertex
from penstock.core.ports import JobListener
from penstock.core.task.failures import failure_of
from penstock.drivers.batch_job import BatchJob, Cancelled, Last

Row = tuple[int, int, int, int | None, int, bytes]


class LocalBatchJob(BatchJob):
    """See the module's text."""

    def run_tasks(self) -> Iterator[Last]:
        """Vertex by vertex; the rows of an edge wait in a list for each of its consumers."""
        waiting: dict[tuple[int, int], list[Row]] = {}
        for vertex in self.job_graph.vertices:
            splits = [splits_of(source, vertex.parallelism) for source in vertex.sources.values()]
            for subtask in range(vertex.parallelism):
                rows = [r for edge in self.vertices[vertex.index].inputs for r in waiting.pop((edge, subtask), [])]
                for produced in self._run_task(vertex, subtask, splits[0][subtask] if splits else None, rows):
                    self.check_cancelled()
                    for row in zip(*produced.columns(), strict=True):
                        edge, target, _, _, sequence, payload = row
                        if edge >= 0:
                            waiting.setdefault((edge, target), []).append(row)
                        else:
                            yield Last(vertex.index, target, edge, sequence, payload)

    def _run_task(
        self, vertex: JobVertex, subtask: int, splits: tuple[bytes, ...] | None, rows: list[Row]
    ) -> Iterator[Rows]:
        try:
            task = BatchTask(self.vertices[vertex.index], subtask, self.clock, lambda ms: time.sleep(ms / 1000))
            yield from task.run([_sorted(rows)]) if splits is None else task.run_source(splits)
        except (Cancelled, PenstockError):
            raise
        except Exception as error:
            raise batch_error(failure_of(error, vertex.name), self.job_graph, vertex.index, subtask) from error

    def interrupt(self) -> None:
        """Tasks look for themselves whether the job was cancelled."""


def _sorted(rows: list[Row]) -> Rows:
    rows.sort(key=lambda row: (row[2], row[3] is not None, row[3] or 0, row[0], row[4]))
    result = Rows()
    for column, values in zip(result.columns(), zip(*rows, strict=True), strict=False):
        column.extend(values)
    return result


def submit_local_batch(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> LocalBatchJob:
    """Begin to run a bounded job in this process."""
    job = LocalBatchJob(job_graph, configuration, listener)
    job.start()
    return job
