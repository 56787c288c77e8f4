"""The Spark jobs that work step by step: selects the kind for a job graph and starts it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.configuration import Configuration
from penstock.core.graph.job_graph import BACK_FILL, JobGraph
from penstock.core.ports import JobListener
from penstock.drivers.spark.batch_job import SparkBatchJob
from penstock.drivers.spark.epoch_job import SparkEpochJob
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.lockstep_jobs import count_slots
from penstock.drivers.spark.session import hand_back, obtain_spark
from penstock.drivers.spark.streaming_frames_job import SparkStreamingFramesJob, streaming_frames
from penstock.drivers.stepwise.job import StepwiseJob


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
