"""The jobs that a session has started: SHOW JOBS, DESCRIBE JOB, STOP JOB, and waiting for them to end."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Final

from penstock.drivers.interrupts import wait_until_done
from penstock.drivers.job_client import JobClient
from penstock.service.sql_shell.errors import reason
from penstock.table.data.errors import ValidationError
from penstock.table.session.table_result import TableResult
from penstock.table.sql import statements
from penstock.table.statements import results

_COLUMNS: Final = [(name, results.STRING) for name in ("job id", "job name", "status", "start time")]
_PATIENCE_SECONDS: Final = 5.0
_TERMINAL: Final = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")


@dataclass(slots=True)
class SessionJob:
    """A job of the session. `is_stopped`: a statement has ended it; `is_told`: its outcome was reported to the user."""

    result: TableResult
    client: JobClient
    name: str
    started: datetime.datetime
    is_stopped: bool = False
    is_told: bool = False

    @property
    def id(self) -> str:
        """The job's id, as hexadecimal digits."""
        return str(self.client.get_job_id())

    @property
    def status(self) -> str:
        """The job's status."""
        return self.client.get_job_status().result().name

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self.status not in _TERMINAL

    def failure(self, error: BaseException) -> str:
        """Return the message for the job's failure, and count it as reported."""
        self.is_told = True
        return f"[ERROR] Job {self.id} ({self.name}) failed. Reason:\n{reason(error)}\n"

    def row(self) -> tuple[str, str, str, str]:
        """Return the job's row in SHOW JOBS."""
        return self.id, self.name, self.status, self.started.isoformat(" ", "milliseconds")


class SessionJobs:
    """See the module docstring."""

    def __init__(self) -> None:
        self._jobs: dict[str, SessionJob] = {}

    def add(self, result: TableResult, name: str) -> SessionJob:
        """Add a job that a statement has just started."""
        started = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        client = result.get_job_client()
        assert client is not None
        job = SessionJob(result, client, name, started)
        self._jobs[job.id] = job
        return job

    def running(self) -> list[SessionJob]:
        """Return the jobs that have not ended."""
        return [job for job in self._jobs.values() if job.is_running]

    def show(self) -> TableResult:
        """Run SHOW JOBS: list the jobs, newest first."""
        return results.table(_COLUMNS, [job.row() for job in reversed(self._jobs.values())])

    def run(self, statement: statements.JobStatement) -> TableResult:
        """Run DESCRIBE JOB or STOP JOB.

        Raises:
            ValidationError: if the session has not started the job, or the options do not fit.
            CheckpointError: if the savepoint fails; the job then continues.
        """
        job = self._jobs.get(statement.job_id)
        if job is None:
            raise ValidationError(
                f"This session has not started a job '{statement.job_id}'. SHOW JOBS lists those it has started."
            )
        if statement.verb == "DESCRIBE":
            return results.table(_COLUMNS, [job.row()])
        if "SAVEPOINT" in statement.options:
            stopped = job.client.stop_with_savepoint("DRAIN" in statement.options)
            wait_until_done(stopped)
            path = stopped.result()
            job.is_stopped = True
            return results.table([("savepoint path", results.STRING)], [(path,)])
        job.is_stopped = True
        job.client.cancel().result()
        return results.done()

    def not_stopped(self) -> Iterator[SessionJob]:
        """Return the jobs that no statement has ended, in start order."""
        return (job for job in self._jobs.values() if not job.is_stopped)

    def failures(self) -> Iterator[str]:
        """Yield the message for each job that has failed since the last call."""
        for job in self.not_stopped():
            if not job.is_told and job.status == "FAILED":
                error = job.client.get_job_execution_result().exception()
                assert error is not None
                yield job.failure(error)

    def cancel_all(self) -> None:
        """Cancel the running jobs, and wait briefly for them to end."""
        running = self.running()
        for job in running:
            job.is_stopped = True
            job.client.cancel().result()
        wait([job.client.get_job_execution_result() for job in running], _PATIENCE_SECONDS)
