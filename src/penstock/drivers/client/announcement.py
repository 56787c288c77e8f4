"""Who hears of each job that begins in this process, and who shows it: layers that the drivers cannot import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.base.configuration import Configuration
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.running_job import RunningJob

#: Called with each job when it has begun, in the thread that submits it; they must not raise.
observers: Final[list[Callable[[RunningJob, JobGraph, Configuration], None]]] = []
#: Give the address of the page of a job by its id; None while they serve none. Any thread calls them.
pages: Final[list[Callable[[str], str | None]]] = []


def announce(job: RunningJob, job_graph: JobGraph, configuration: Configuration) -> None:
    """Tell the observers."""
    for observer in observers:
        observer(job, job_graph, configuration)


def page_of(job_id: str) -> str | None:
    """The address of the page of a job; None when nobody serves one."""
    return next((address for page in pages if (address := page(job_id)) is not None), None)
