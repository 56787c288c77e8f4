"""One program of a session: its process, and that process's reports on its jobs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.base.configuration import Configuration
from penstock.base.durable_files import TEMPORARY_VARIABLE
from penstock.base.job_status import JobStatus
from penstock.drivers.program_output import OUTPUT_VARIABLE
from penstock.operations.dispatcher import DispatchedJob
from penstock.operations.rest.calls.programs import ProgramStatus, ProgramView
from penstock.operations.session.channel import Channel
from penstock.operations.session.messages import Answered, FromProgram, JobBegan, JobEnded
from penstock.operations.session.remote_job import RemoteJob, Requests, build_graph
from penstock.service.session.program_process import SESSION_GONE, SOCKET_VARIABLE

#: How long (s) to wait for a program's jobs to be cancelled before its process is ended.
CANCEL_SECONDS: Final = 30.0
#: How long (s) a process may take to end before it is killed.
TERMINATE_SECONDS: Final = 5.0
#: How much (characters) of the end of a failed program's output to report.
FAILURE_CHARS: Final = 2_000
#: How much (bytes) of the output one request returns at most.
OUTPUT_BYTES_MAX: Final = 1 << 20


class RunningProgram:
    """Starts the process of a program.

    Args:
        program_id: 32 hexadecimal digits.
        name: the program's name, for people.
        command: the command of its process.
        environment: the environment of its process.
        directory: the working directory of its process.
        output: the file that it prints to.
        on_job: called with each job that starts.
        on_end: called once, when the process has ended and all its messages are handled.
    """

    def __init__(
        self,
        program_id: str,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        directory: Path,
        output: Path,
        on_job: Callable[[DispatchedJob], None],
        on_end: Callable[[RunningProgram], None],
    ) -> None:
        self.program_id = program_id
        self.directory = directory
        self.output = output
        self.began_ms = int(time.time() * 1000)
        self._name = name
        self._on_job, self._on_end = on_job, on_end
        self._news = threading.Condition()
        self._jobs: dict[str, RemoteJob] = {}
        self._is_asked_to_end = False
        self._ended_ms: int | None = None
        self._problem: str | None = None
        #: the ids of the jobs that had not ended when the process did
        self.lost: list[str] = []
        ours, theirs = socket.socketpair()
        with theirs, output.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                env={
                    **environment,
                    SOCKET_VARIABLE: str(theirs.fileno()),
                    TEMPORARY_VARIABLE: str(directory),
                    OUTPUT_VARIABLE: str(output),
                },
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        channel: Channel[FromProgram] = Channel(ours, FromProgram, f"penstock-program-{program_id[:8]}")
        self._requests = Requests(channel.send)
        self._reader = channel.listen(self._on_message, self._on_close)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and all its messages are handled."""
        return self._ended_ms is not None

    @property
    def has_jobs(self) -> bool:
        """Whether the program has started a job."""
        return bool(self._jobs)

    @property
    def jobs(self) -> list[RemoteJob]:
        """The program's jobs, in start order."""
        with self._news:
            return list(self._jobs.values())

    def view(self) -> ProgramView:
        """Return the program's current view."""
        with self._news:
            ended_ms, jobs = self._ended_ms, dict(self._jobs)
        code = None if ended_ms is None else self._process.returncode
        status = self._status(code, list(jobs.values()))
        failure = self._failure() if status is ProgramStatus.FAILED else None
        return ProgramView(
            self.program_id,
            self._name,
            status,
            self._process.pid,
            self.began_ms,
            ended_ms,
            code,
            tuple(jobs),
            failure,
        )

    def wait_for(self, is_enough: Callable[[RunningProgram], bool], patience_seconds: float) -> bool:
        """Wait until a condition holds or the time is over; return whether it holds."""
        with self._news:
            return self._news.wait_for(lambda: is_enough(self), patience_seconds)

    def printed(self, begin: int) -> tuple[str, int]:
        """Return the output from a byte offset, in whole characters, and the next offset."""
        with self.output.open("rb") as file:
            file.seek(begin)
            data = file.read(OUTPUT_BYTES_MAX)
        text = data.decode("utf-8", "replace")
        if not self.has_ended or len(data) == OUTPUT_BYTES_MAX:
            text, data = _whole_characters(data)
        return text, begin + len(data)

    def begin_end(self) -> None:
        """Cancel the program's jobs, and end its process if it continues after that. Returns at once."""
        self._is_asked_to_end = True
        threading.Thread(target=self.end, name="penstock-program-end", daemon=True).start()

    def end(self, patience_seconds: float = CANCEL_SECONDS) -> None:
        """Cancel the jobs, end the process, and wait until it has ended."""
        self._is_asked_to_end = True
        running = [job for job in self.jobs if not job.get_job_execution_result().done()]
        for job in running:
            job.cancel()
        if not running or not self.wait_for(lambda program: program.has_ended, patience_seconds):
            self._signal(signal.SIGTERM)
        if not self.wait_for(lambda program: program.has_ended, TERMINATE_SECONDS):
            self.kill()

    def kill(self) -> None:
        """Kill the process now, and wait for its end."""
        self._signal(signal.SIGKILL)
        self._reader.join(TERMINATE_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _on_message(self, message: FromProgram) -> None:
        match message:
            case JobBegan(view, configuration):
                job = RemoteJob(message, self._requests, self.output)
                dispatched = DispatchedJob(job, build_graph(view), Configuration.from_dict(configuration))
                self._on_job(dispatched)
                with self._news:
                    self._jobs[view.job_id] = job
                    self._news.notify_all()
            case JobEnded(job_id):
                if (ended := self._jobs.get(job_id)) is not None:
                    ended.on_ended(message)
            case Answered():
                self._requests.on_answer(message)

    def _on_close(self, problem: str | None) -> None:
        """Handle the closed socket: wait for the process to end, or kill it if it has sent an invalid message."""
        self._problem = problem
        try:
            self._process.wait(None if problem is None else 0)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        code = self._process.wait()
        reason = f"the program's process ended with {code} before the job did"
        self._requests.end(f"the program has ended, with {code}")
        self.lost = [job_id for job_id, job in self._jobs.items() if job.on_process_ended(reason)]
        with self._news:
            self._ended_ms = int(time.time() * 1000)
            self._news.notify_all()
        self._on_end(self)

    def _status(self, code: int | None, jobs: list[RemoteJob]) -> ProgramStatus:
        if code is None:
            return ProgramStatus.RUNNING
        if code == 0:
            return ProgramStatus.FINISHED
        if self._is_asked_to_end or any(job.status() is JobStatus.CANCELED for job in jobs):
            return ProgramStatus.CANCELED
        return ProgramStatus.FAILED

    def _failure(self) -> str:
        if self._problem is not None:
            return self._problem
        if self._process.returncode == SESSION_GONE:
            return "it lost its connection to the session"
        try:
            return self.output.read_text(errors="replace")[-FAILURE_CHARS:].strip()
        except OSError as error:
            return str(error)


def _whole_characters(data: bytes) -> tuple[str, bytes]:
    """Return the text without an incomplete character at its end, and its bytes."""
    for cut in range(min(4, len(data) + 1)):
        prefix = data[: len(data) - cut]
        with suppress(UnicodeDecodeError):
            return prefix.decode("utf-8"), prefix
    return data.decode("utf-8", "replace"), data
