"""The programs of a session: starts each in its own process, and tracks its outcome.

`RunningProgram` is one program: its process, and that process's reports on its jobs. `SessionPrograms` holds all of
them.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.base.configuration import Configuration
from penstock.base.durable_files import TEMPORARY_VARIABLE
from penstock.base.errors import MissingPathError, OperationError, PenstockError, WrongValueError, shorten
from penstock.base.job import JobStatus
from penstock.base.options import EXECUTION_TARGET, PYTHON_FILES, RECOVERY_FROM_LATEST
from penstock.base.secrets import remember
from penstock.cli.client.rest_client import TOKEN_VARIABLE
from penstock.cli.program.launch import ProgramSpec
from penstock.cli.program.reports import REPORT_VARIABLE
from penstock.cli.session.program_process import SESSION_GONE, SOCKET_VARIABLE
from penstock.cli.session.uploads import MAIN, Definition, Definitions, Program, Uploads, placed, with_checkpoints
from penstock.drivers.global_configuration import DIRECTORY_VARIABLES, OPTIONS_VARIABLE, handed_over
from penstock.drivers.logs import OUTPUT_VARIABLE
from penstock.drivers.spark.handle import PROGRAM_VARIABLE
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.session.channel import (
    Answered,
    Channel,
    FromProgram,
    JobBegan,
    JobEnded,
    ProgramStatus,
    ProgramView,
    Submission,
    Uploaded,
)
from penstock.server.session.remote_job import RemoteJob, Requests, build_graph

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


_log = logging.getLogger("penstock.session")

_PROCESS: Final = "penstock.cli.session.program_process"
#: Prefixes of session options that its programs do not inherit.
_OF_THE_SESSION: Final = (
    "rest.",
    "penstock.rest.",
    "security.ssl.rest.",
    "web.",
    "high-availability.",
    "jobstore.",
    "metrics.reporter",
    "traces.reporter",
)
#: How long (s) a program may take to reach its first job when only its plan is requested.
PLAN_SECONDS: Final = 55.0
#: How long (s) to wait after a program fails for signs that the session itself is ending.
LEAVE_SECONDS: Final = 2.0


class Cluster(Protocol):
    """The Spark that programs share."""

    def environment(self) -> dict[str, str]:
        """Return the additional environment variables of a program."""

    def cancel(self, job_id: str) -> None:
        """Cancel the remaining work of a job."""

    def lives(self) -> bool:
        """Return whether it is alive."""


class SessionPrograms:
    """See `Programs` of the REST API, which calls this from many threads.

    Args:
        options: the session's options; a program's own options take precedence.
        directory: the session's directory, removed with the session.
        uploads: the uploaded programs.
        dispatcher: receives the programs' jobs.
        definitions: the stored programs, which outlive the session; None to store none.
        spark: the Spark that the programs share; None for the local target.
        remembered: how many programs that have ended to remember.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        directory: Path,
        uploads: Uploads,
        dispatcher: Dispatcher,
        definitions: Definitions | None = None,
        spark: Cluster | None = None,
        remembered: int = 50,
    ) -> None:
        self._options = {key: value for key, value in options.items() if not key.startswith(_OF_THE_SESSION)}
        self._directory = directory
        self._uploads = uploads
        self._dispatcher = dispatcher
        self._definitions = definitions
        self._spark = spark
        self._remembered = remembered
        self._lock = threading.Lock()
        self._programs: dict[str, RunningProgram] = {}
        self._ends = False
        self._leaves = threading.Event()

    def upload(self, name: str, data: bytes) -> Uploaded:
        """Store an uploaded program."""
        return self._uploads.add(name, data)

    def uploads(self) -> list[Uploaded]:
        """Return the uploaded programs."""
        return self._uploads.all()

    def remove(self, upload_id: str) -> None:
        """Delete an uploaded program."""
        self._uploads.remove(upload_id)

    def plan(self, upload_id: str, submission: Submission) -> dict[str, Any]:
        """Return the plan of a program's first job."""
        program = self._uploads.get(upload_id)
        directory = self._directory / "plans" / secrets.token_hex(16)
        placed(program, directory)
        try:
            spec = self._spec(program, submission, directory)
            completed = subprocess.run(
                spec.command(["--plan", "job"]),
                env=spec.environment(self._environment()),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLAN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OperationError(f"the program has come to no job in {PLAN_SECONDS:g} s") from None
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if completed.returncode != 0:
            end = completed.stderr.decode("utf-8", "replace").strip()[-2_000:]
            raise OperationError(f"the program has no plan: {end}")
        plan: dict[str, Any] = json.loads(completed.stdout)
        return plan

    def run(self, upload_id: str, submission: Submission) -> ProgramView:
        """Start a program."""
        program = self._uploads.get(upload_id)
        program_id = (submission.program_id or secrets.token_hex(16)).lower()
        options = dict(submission.options)
        remember(options)
        refused = sorted(key for key in options if key.startswith(("rest.", "high-availability.")))
        if refused:
            raise WrongValueError(f"{refused[0]} is an option of the session, not of its programs")
        began_ms = int(time.time() * 1000)
        definition = Definition(program_id, program.name, submission.arguments, submission.entry, options, began_ms)
        return self._begin(program, definition, is_new=True).view()

    def recover(self) -> list[str]:
        """Restart the programs of the previous session; return their ids."""
        if self._definitions is None:
            return []
        recovered = []
        for definition, program in self._definitions.all():
            _log.warning("program %s (%s) goes on", definition.program_id, definition.name)
            try:
                self._begin(program, definition, is_new=False)
            except (PenstockError, OSError):
                _log.exception("program %s (%s) cannot be begun again", definition.program_id, definition.name)
                continue
            recovered.append(definition.program_id)
        return recovered

    def wait_for_job(self, program_id: str, patience_seconds: float) -> ProgramView:
        """Return a program once it has started its first job or has ended, or when the time is over."""
        program = self._program(program_id)
        program.wait_for(lambda running: running.has_ended or running.has_jobs, patience_seconds)
        return program.view()

    def programs(self) -> list[ProgramView]:
        """Return all programs."""
        with self._lock:
            known = list(self._programs.values())
        return [program.view() for program in known]

    def program(self, program_id: str) -> ProgramView:
        """Return one program."""
        return self._program(program_id).view()

    def output(self, program_id: str, begin: int) -> tuple[str, int]:
        """Return a program's output from a byte offset, and the next offset."""
        return self._program(program_id).printed(begin)

    def end(self, program_id: str) -> None:
        """End a program."""
        self._program(program_id).begin_end()

    def end_all(self) -> None:
        """Cancel all jobs and end all processes; no program is resumed."""
        with self._lock:
            self._ends = True
            running = [program for program in self._programs.values() if not program.has_ended]
        enders = [threading.Thread(target=program.end, name="penstock-program-end") for program in running]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join()

    def leave(self) -> None:
        """End all processes now, and leave the programs to the next session."""
        with self._lock:
            self._ends = True
            self._definitions = None
            self._leaves.set()
            running = [program for program in self._programs.values() if not program.has_ended]
        for program in running:
            program.kill()

    def _begin(self, program: Program, definition: Definition, is_new: bool) -> RunningProgram:
        program_id, submission = definition.program_id, definition.submission()
        directory = self._directory / "programs" / program_id
        with self._lock:
            if self._ends:
                raise OperationError("the session is ending")
            if program_id in self._programs or directory.exists():
                raise WrongValueError(f"there is a program {program_id} already")
            placed(program, directory)
        try:
            spec = self._spec(program, submission, directory, is_new)
            if self._definitions is not None and is_new:
                self._definitions.put(definition, program)
            files = dict(spec.options or {}).get(PYTHON_FILES.key())
            environment = spec.environment(self._environment(program_id if files else None))
            output = self._directory / "output" / f"{program_id}.out"
            output.parent.mkdir(mode=0o700, exist_ok=True)
            running = RunningProgram(
                program_id,
                program.name if submission.entry is None else submission.entry,
                spec.command(runner=_PROCESS),
                environment,
                directory,
                output,
                self._dispatcher.add,
                self._on_end,
            )
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        with self._lock:
            self._programs[program_id] = running
            self._forget()
        return running

    def _spec(self, program: Program, submission: Submission, directory: Path, is_new: bool = True) -> ProgramSpec:
        """Return the program as its process runs it."""
        options = {**self._options, **submission.options}
        remember(options)
        if self._definitions is not None:
            options = with_checkpoints(options, self._definitions.directory)
        if not is_new:
            options[RECOVERY_FROM_LATEST.key()] = "true"
        options["high-availability.type"] = "NONE"  # the session is leader for its programs as well
        is_spark = options.get(EXECUTION_TARGET.key()) != "local"
        if program.is_archive and is_spark:
            files = options.get(PYTHON_FILES.key())
            options[PYTHON_FILES.key()] = ",".join(filter(None, [str(directory), files]))
        entry = submission.entry
        if entry is None and program.is_archive and not program.entries():
            raise WrongValueError(f"{program.name} has no {MAIN}.py: name the module to run (entryClass)")
        if entry is None or entry == MAIN:
            script = f"{MAIN}.py" if program.is_archive else program.name
            return ProgramSpec(str(directory / script), submission.arguments, options, False)
        if not program.is_archive:
            raise WrongValueError(f"{program.name} is a script: it has no module {shorten(entry)!r}")
        return ProgramSpec(entry, submission.arguments, options, True)

    def _environment(self, program_id: str | None = None) -> dict[str, str]:
        """Return the environment of a process before its own options, without the session's own variables."""
        hidden = {OPTIONS_VARIABLE, OUTPUT_VARIABLE, REPORT_VARIABLE, TOKEN_VARIABLE, *DIRECTORY_VARIABLES}
        outer = {key: value for key, value in os.environ.items() if key not in hidden}
        outer[OPTIONS_VARIABLE] = handed_over({})
        if program_id is not None:
            outer[PROGRAM_VARIABLE] = program_id
        return outer if self._spark is None else {**outer, **self._spark.environment()}

    def _on_end(self, program: RunningProgram) -> None:
        """Clean up after a program that has ended; whatever its outcome, it is not resumed."""
        spark = self._spark
        if spark is not None and not spark.lives():
            return  # Spark has ended, so the programs and the session end; the next session restarts the programs
        if spark is not None:
            for job in program.lost:
                try:
                    spark.cancel(job)
                except Exception:  # noqa: BLE001 - Spark's reasons; the session goes on
                    _log.warning("the Spark jobs of job %s may go on", job, exc_info=True)
        view = program.view()
        because = "" if view.failure is None else f": {view.failure}"
        _log.info("program %s (%s) is %s%s", view.program_id, view.name, view.status.value, because)
        if self._definitions is not None and view.status is ProgramStatus.FAILED:
            # When the session's host or container is stopped, all processes end at once, and the program must be
            # resumed.
            self._leaves.wait(LEAVE_SECONDS)
        definitions = self._definitions
        if definitions is not None:
            try:
                definitions.remove(program.program_id)
            except Exception:  # noqa: BLE001 - a storage's reasons
                _log.exception("program %s has ended and would come back", program.program_id)

    def _forget(self) -> None:
        ended = [program_id for program_id, program in self._programs.items() if program.has_ended]
        for program_id in ended[: max(0, len(ended) - self._remembered)]:
            program = self._programs.pop(program_id)
            program.output.unlink(missing_ok=True)

    def _program(self, program_id: str) -> RunningProgram:
        with self._lock:
            program = self._programs.get(program_id)
        if program is None:
            raise MissingPathError(f"there is no program {shorten(program_id)!r}")
        return program
