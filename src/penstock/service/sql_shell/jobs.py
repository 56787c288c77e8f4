"""The jobs that a session has started: SHOW JOBS, DESCRIBE JOB, STOP JOB, and the wait for their ends."""

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
    """A job of the session. `is_stopped`: a statement has ended it; `is_told`: a person knows how it ended."""

    result: TableResult
    client: JobClient
    name: str
    started: datetime.datetime
    is_stopped: bool = False
    is_told: bool = False

    @property
    def id(self) -> str:
        """Its id, as hexadecimal digits."""
        return str(self.client.get_job_id())

    @property
    def status(self) -> str:
        """Where it is in its life."""
        return self.client.get_job_status().result().name

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.status not in _TERMINAL

    def failure(self, error: BaseException) -> str:
        """What to tell of its failure."""
        self.is_told = True
        return f"[ERROR] Job {self.id} ({self.name}) failed. Reason:\n{reason(error)}\n"

    def row(self) -> tuple[str, str, str, str]:
        """What SHOW JOBS says of it."""
        return self.id, self.name, self.status, self.started.isoformat(" ", "milliseconds")


class SessionJobs:
    """See the module's text."""

    def __init__(self) -> None:
        self._jobs: dict[str, SessionJob] = {}

    def add(self, result: TableResult, name: str) -> SessionJob:
        """A job that a statement has started now."""
        started = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        client = result.get_job_client()
        assert client is not None
        job = SessionJob(result, client, name, started)
        self._jobs[job.id] = job
        return job

    def running(self) -> list[SessionJob]:
        """Those that have not ended."""
        return [job for job in self._jobs.values() if job.is_running]

    def show(self) -> TableResult:
        """SHOW JOBS: the newest first."""
        return results.table(_COLUMNS, [job.row() for job in reversed(self._jobs.values())])

    def run(self, statement: statements.JobStatement) -> TableResult:
        """DESCRIBE JOB or STOP JOB.

        Raises:
            ValidationError: if the session has not started the job, or the options do not fit.
            CheckpointError: if the savepoint fails; the job then goes on.
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
        """Those that no statement has ended, in the order in which they were started."""
        return (job for job in self._jobs.values() if not job.is_stopped)

    def failures(self) -> Iterator[str]:
        """What to tell of each job that has failed since the last call."""
        for job in self.not_stopped():
            if not job.is_told and job.status == "FAILED":
                error = job.client.get_job_execution_result().exception()
                assert error is not None
                yield job.failure(error)

    def cancel_all(self) -> None:
        """Cancel those that run, and wait a little for their ends."""
        running = self.running()
        for job in running:
            job.is_stopped = True
            job.client.cancel().result()
        wait([job.client.get_job_execution_result() for job in running], _PATIENCE_SECONDS)
