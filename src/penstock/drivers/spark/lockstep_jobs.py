"""Batch jobs with tasks that work in step (`lockstep`): their slots, their directory, and what they tell meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, SlotsUnavailableError
from penstock.base.options import CACHE_DIR, CHECKPOINTING_DIR
from penstock.connectors.file.filesystem import absolute_path, join, read_bytes, remove_directory, size_or_none
from penstock.core.batch.edges import keeps_step
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.held_directory import directory_of_this_process
from penstock.drivers.spark.handle import SparkHandle
from penstock.drivers.spark.keys import JobKeys
from penstock.drivers.spark.lockstep import Meeting

_log = logging.getLogger("penstock.spark")

_LOOK_SECONDS: Final = 0.2
#: How often a job of such tasks is run when Spark loses one of them.
TRIES_MAX: Final = 3


def slots_of(job_graph: JobGraph) -> int:
    """How many tasks of a batch job Spark must run at a time: 1, unless some work in step."""
    return max([1, *(vertex.parallelism for vertex in job_graph.vertices if keeps_step(vertex))])


def check_slots(job_graph: JobGraph, spark: SparkHandle) -> None:
    """Raise `SlotsUnavailableError` where Spark never runs so many tasks at a time."""
    wanted, got = slots_of(job_graph), spark.fixed_slots()
    if got is not None and wanted > got:
        reason = (
            f"its tasks exchange messages and run at a time, and Spark runs on {spark.master}, which never has more: "
            f"lower the parallelism to {got} or less"
        )
        raise SlotsUnavailableError(job_graph.name, wanted, got, reason)


@contextmanager
def meeting_of(
    job_graph: JobGraph, job_id: str, configuration: Configuration, spark: SparkHandle, tell: Callable[[str], None]
) -> Iterator[Meeting | None]:
    """What tasks need to work in step, as long as the job runs; None if none do. `tell` hears of their progress.

    Raises:
        ConfigurationError: if Spark runs on other machines, and no directory is set that all reach.
    """
    if not any(map(keeps_step, job_graph.vertices)):
        yield None
        return
    base = configuration.read(CACHE_DIR) or configuration.read(CHECKPOINTING_DIR)
    if base is None:
        if not spark.is_local:
            raise ConfigurationError(
                f"{job_graph.name}: its tasks tell of their progress through files: set {CACHE_DIR.key()} or "
                f"{CHECKPOINTING_DIR.key()} to a directory that all machines can reach"
            )
        base = directory_of_this_process("penstock-lockstep-")
    directory = join(absolute_path(base), f"lockstep-{job_id}")
    over = threading.Event()
    listener = threading.Thread(target=_listen, args=(directory, over, tell), name="penstock-progress", daemon=True)
    listener.start()
    try:
        yield Meeting(directory, JobKeys.generate().for_worker(), spark.is_local)
    finally:
        over.set()
        listener.join()
        try:
            remove_directory(directory)
        except Exception as error:  # noqa: BLE001 - left-over files are no reason to fail
            _log.warning("%s could not be deleted: %s", directory, error)


def _listen(directory: str, over: threading.Event, tell: Callable[[str], None]) -> None:
    number = 1
    while True:
        is_last = over.is_set()
        try:
            while size_or_none(path := join(directory, f"progress-{number}")) is not None:
                tell(read_bytes(path).decode())
                number += 1
        except Exception as error:  # noqa: BLE001 - progress is not worth a job
            _log.warning("the progress in %s cannot be read: %s", directory, error)
            return
        if is_last:
            return
        over.wait(_LOOK_SECONDS)
