"""Standby drivers: wait for the leadership of a job, then resume the job (E7)."""

from __future__ import annotations

from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, JobExecutionError
from penstock.base.options import HIGH_AVAILABILITY_TYPE, RECOVERY_FROM_LATEST
from penstock.core.graph.job_graph import JobGraph
from penstock.drivers.client.submit import submit
from penstock.drivers.election.configured import build_election
from penstock.drivers.listener import ClientListener
from penstock.drivers.running_job import RunningJob
from penstock.storage.leadership import DeposedError

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
        key = HIGH_AVAILABILITY_TYPE.key()
        raise ConfigurationError(f"{key}: {job_graph.name!r} is a batch, which leaves no checkpoint to a standby")
    listener = ClientListener(job_graph)
    former = election.wait(listener.on_log)
    if former is not None and former.end != FINISHED:
        election.end(former.end)
        raise JobExecutionError(job_graph.name, f"while this driver stood by for {former}: {former.end}")
    of_leader = Configuration()
    of_leader.add_all(configuration)
    of_leader.write(RECOVERY_FROM_LATEST, True)
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
