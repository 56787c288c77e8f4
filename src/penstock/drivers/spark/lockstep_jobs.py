"""Batch jobs with tasks that work in lockstep (`lockstep`): their slots, and their meeting point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.errors import SlotsUnavailableError
from penstock.core.batch.edges import keeps_step
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.keys import JobKeys
from penstock.drivers.spark.lockstep import Meeting
from penstock.drivers.spark.lockstep_meeting import MeetingPoint

#: How often to run such a job if Spark loses one of its tasks.
TRIES_MAX: Final = 3


def count_slots(job_graph: JobGraph) -> int:
    """Return how many tasks of a batch job Spark must run at the same time: 1, unless some work in lockstep."""
    return max([1, *(vertex.parallelism for vertex in job_graph.vertices if keeps_step(vertex))])


def check_slots(job_graph: JobGraph, spark: SparkHandle) -> None:
    """Raise `SlotsUnavailableError` if Spark can never run enough tasks at the same time."""
    wanted, got = count_slots(job_graph), spark.fixed_slots()
    if got is not None and wanted > got:
        reason = (
            f"its tasks exchange messages and run at a time, and Spark runs on {spark.master}, which never has more: "
            f"lower the parallelism to {got} or less"
        )
        raise SlotsUnavailableError(job_graph.name, wanted, got, reason)


@contextmanager
def open_meeting(job_graph: JobGraph, spark: SparkHandle, tell: Callable[[str], None]) -> Iterator[Meeting | None]:
    """Provide a meeting point while the job runs, or None if no tasks work in lockstep. `tell` gets progress lines."""
    if not any(map(keeps_step, job_graph.vertices)):
        yield None
        return
    keys = JobKeys.generate()
    point = MeetingPoint(keys, *spark.master_hosts(), tell)
    try:
        yield Meeting(point.address, keys.for_worker(), spark.is_local)
    finally:
        point.close()
