"""The entry point from the API to the drivers: runs a job graph on the configured target, as leader or as standby (E7).

`announce` announces each job that starts in this process to higher layers, which drivers cannot import.

`build_election` returns the election that the configuration selects. `submit_when_leading` makes a driver a standby: it
waits for the leadership of a job, then resumes the job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base import options
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.drivers.leader_election import LOCK_FILE, Election, FileElection, ZooKeeperElection, ZooKeeperSettings
from penstock.drivers.logs import ClientListener
from penstock.drivers.running_job import Moves, RunningJob
from penstock.runtime.graph import JobGraph
from penstock.runtime.ports import JobListener
from penstock.storage.files import absolute_url
from penstock.storage.leadership import MARKS_DIRECTORY, DeposedError, file_of_name

#: Called with each job after its start, in the thread that submits it. Observers must not raise.
observers: Final[list[Callable[[RunningJob, JobGraph, Configuration], None]]] = []


def announce(job: RunningJob, job_graph: JobGraph, configuration: Configuration) -> None:
    """Call the observers."""
    for observer in observers:
        observer(job, job_graph, configuration)


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
    is_local = configuration.read(options.EXECUTION_TARGET) == "local"
    if is_local:
        from penstock.drivers.local.mini_cluster import prepare

        prepare(configuration)
    if job_graph.mode != "STREAMING":
        if is_local:
            from penstock.drivers.local.mini_cluster import submit_local_batch

            return submit_local_batch(job_graph, configuration, listener)
        from penstock.drivers.spark.structured_streaming import submit_stepwise

        return submit_stepwise(job_graph, configuration, listener)
    for vertex in job_graph.vertices:
        for source in vertex.sources.values():
            source.prepare(_goes_on)
    if is_local:
        from penstock.drivers.local.mini_cluster import submit_local

        return submit_local(job_graph, configuration, listener)
    from penstock.drivers.spark.job import submit as submit_spark

    return submit_spark(job_graph, configuration, listener)


def _goes_on() -> None:
    """Do nothing: a job cannot be cancelled before it exists, and Ctrl-C raises an exception."""


def build_election(configuration: Configuration, job_name: str) -> Election | None:
    """Return the election of a job; None if the job has only one driver.

    Raises:
        ConfigurationError: if a required option is missing or invalid, or ZooKeeper's client is not installed.
    """
    kind = configuration.read(options.HIGH_AVAILABILITY_TYPE)
    if kind == "NONE":
        return None
    checkpoints = configuration.read(options.CHECKPOINTING_DIR)
    directory = configuration.read(options.HIGH_AVAILABILITY_DIR) if kind == "FILE" else None
    directory = directory or checkpoints
    if directory is None:
        reason = f"{options.HIGH_AVAILABILITY_TYPE.key()} is {kind}"
        raise ConfigurationError(
            f"{reason}: set {options.CHECKPOINTING_DIR.key()} too, where standbys find checkpoints"
        )
    if kind == "FILE":
        return _file_election(directory, job_name)
    if absolute_url(directory).startswith("memory://"):
        where = f"{options.CHECKPOINTING_DIR.key()} is {directory}"
        raise ConfigurationError(
            f"{where}, in the memory of this process: standbys need a directory that all can reach"
        )
    return ZooKeeperElection(ZooKeeperSettings.of(configuration), file_of_name(job_name))


def _file_election(directory: str, job_name: str) -> FileElection:
    path = absolute_url(directory).removeprefix("file://")
    if "://" in path or "::" in path:
        raise ConfigurationError(
            f"{options.HIGH_AVAILABILITY_TYPE.key()} is FILE, but {directory} has no locks: set "
            f"{options.HIGH_AVAILABILITY_DIR.key()} "
            "to a directory of this host"
        )
    return FileElection(Path(path) / MARKS_DIRECTORY / file_of_name(job_name) / LOCK_FILE)


FINISHED: Final = "FINISHED"


def submit_when_leading(job_graph: JobGraph, configuration: Configuration) -> RunningJob:
    """Start a job: at once or, with `high-availability.type`, when this driver becomes its leader.

    Raises:
        ConfigurationError: if standbys could not resume the job.
        OperationError: if the election is impossible, for example without ZooKeeper.
        DeposedError: if this driver loses leadership before its job starts.
        JobExecutionError: if the job failed or was cancelled while this driver stood by.
    """
    election = build_election(configuration, job_graph.name)
    if election is None:
        return submit(job_graph, configuration)
    if job_graph.mode not in ("STREAMING", "MICRO_BATCH"):
        key = options.HIGH_AVAILABILITY_TYPE.key()
        raise ConfigurationError(f"{key}: {job_graph.name!r} is a batch, which leaves no checkpoint to a standby")
    listener = ClientListener(job_graph)
    former = election.wait(listener.on_log)
    if former is not None and former.end != FINISHED:
        election.end(former.end)
        raise JobExecutionError(job_graph.name, f"while this driver stood by for {former}: {former.end}")
    of_leader = Configuration()
    of_leader.add_all(configuration)
    of_leader.write(options.RECOVERY_FROM_LATEST, True)
    try:
        if election.lost is not None:
            raise DeposedError(job_graph.name, no_longer_leads(election.lost))
        job = submit(job_graph, of_leader, listener)
    except BaseException:
        election.end(None)
        raise
    job.before_result(lambda failure: election.end(describe_end(failure)))
    election.when_lost(lambda reason: job.lose_leadership(no_longer_leads(reason)))
    return job


def no_longer_leads(reason: str) -> str:
    """Return why the job of this driver is suspended."""
    return (
        f"this driver no longer leads it, because {reason}. It leaves its checkpoints and output to the driver that "
        "leads next, which may be this program, started again"
    )


def describe_end(failure: BaseException | None) -> str | None:
    """Return the job's outcome; None if it was suspended, which ends its driver only."""
    if isinstance(failure, DeposedError):
        return None
    return FINISHED if failure is None else str(failure)
