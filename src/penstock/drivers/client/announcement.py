"""Announces each job that starts in this process to higher layers, which drivers cannot import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.base.configuration import Configuration
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.running_job import RunningJob

#: Called with each job after its start, in the thread that submits it. Observers must not raise.
observers: Final[list[Callable[[RunningJob, JobGraph, Configuration], None]]] = []


def announce(job: RunningJob, job_graph: JobGraph, configuration: Configuration) -> None:
    """Call the observers."""
    for observer in observers:
        observer(job, job_graph, configuration)
