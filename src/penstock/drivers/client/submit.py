"""The only entry point from the API to the drivers: runs a job graph on the configured target."""

from __future__ import annotations

from penstock.base.configuration import Configuration
from penstock.base.options import EXECUTION_TARGET
from penstock.core.graph.job_graph import JobGraph
from penstock.core.ports import JobListener
from penstock.drivers.client.announcement import announce
from penstock.drivers.listener import ClientListener
from penstock.drivers.moves import Moves
from penstock.drivers.running_job import RunningJob


def submit(job_graph: JobGraph, configuration: Configuration, listener: JobListener | None = None) -> RunningJob:
    """Start a job and announce it. PySpark is imported only if the target is Spark.

    The sources of a streaming job are prepared here, before the job takes its slots; other jobs prepare them in their
    own thread.
    """
    moves = Moves(listener or ClientListener(job_graph))
    job = _submit(job_graph, configuration, moves)
    job.moves = moves
    announce(job, job_graph, configuration)
    return job


def _submit(job_graph: JobGraph, configuration: Configuration, listener: JobListener) -> RunningJob:
    is_local = configuration.read(EXECUTION_TARGET) == "local"
    if is_local:
        from penstock.drivers.local.dependencies import prepare

        prepare(configuration)
    if job_graph.mode != "STREAMING":
        if is_local:
            from penstock.drivers.local.batch_job import submit_local_batch

            return submit_local_batch(job_graph, configuration, listener)
        from penstock.drivers.spark.stepwise_jobs import submit_stepwise

        return submit_stepwise(job_graph, configuration, listener)
    for vertex in job_graph.vertices:
        for source in vertex.sources.values():
            source.prepare(_goes_on)
    if is_local:
        from penstock.drivers.local.job import submit_local

        return submit_local(job_graph, configuration, listener)
    from penstock.drivers.spark.job import submit as submit_spark

    return submit_spark(job_graph, configuration, listener)


def _goes_on() -> None:
    """Do nothing: a job cannot be cancelled before it exists, and Ctrl-C raises an exception."""
