"""The interface between the REST API and a session that takes programs (Flink's jars, and their runs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


@dataclass(frozen=True)
class Uploaded:
    """An uploaded program.

    Attributes:
        upload_id: its id, such as `<uuid>_job.py`.
        name: the file's name.
        at_ms: the time of the upload (ms since the epoch).
        entries: the modules that can be run; a script has one, `__main__`.
    """

    upload_id: str
    name: str
    at_ms: int
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """How to run a program.

    Attributes:
        arguments: the values of `sys.argv` after the program's name.
        entry: the module to run; None for the script, or for `__main__` of an archive.
        options: configuration that overrides the session's.
        program_id: 32 hexadecimal digits; None to generate them.
    """

    arguments: tuple[str, ...] = ()
    entry: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    program_id: str | None = None


class ProgramStatus(Enum):
    """The status of a program's process: running, or how it ended."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class ProgramView:
    """A program that runs or has ended.

    Attributes:
        program_id: 32 hexadecimal digits.
        name: the name of its file or module.
        status: whether it runs, or how it ended.
        process_id: the id of its process.
        began_ms: when it began (ms since the epoch).
        ended_ms: when it ended; None while it runs.
        exit_code: its process's exit code; None while it runs. Negative for the signal that ended it.
        jobs: the ids of its jobs, in order.
        failure: the last output of a program that failed, or why it could not start.
    """

    program_id: str
    name: str
    status: ProgramStatus
    process_id: int
    began_ms: int
    ended_ms: int | None
    exit_code: int | None
    jobs: tuple[str, ...]
    failure: str | None


class Programs(Protocol):
    """Takes and runs programs. Unknown ids raise `MissingPathError`, and invalid input `WrongValueError`."""

    def upload(self, name: str, data: bytes) -> Uploaded:
        """Store a program; it is checked but not run."""

    def uploads(self) -> list[Uploaded]:
        """Return the stored programs, newest first."""

    def remove(self, upload_id: str) -> None:
        """Delete a stored program; running instances go on."""

    def plan(self, upload_id: str, submission: Submission) -> dict[str, Any]:
        """Return the plan of a program's first job without running it; raise `OperationError` if it has none."""

    def run(self, upload_id: str, submission: Submission) -> ProgramView:
        """Start a program in its own process."""

    def wait_for_job(self, program_id: str, patience_seconds: float) -> ProgramView:
        """Return a program once it has begun its first job, has ended, or the time is up."""

    def programs(self) -> list[ProgramView]:
        """Return the programs that run, and the remembered ones that have ended, in the order of their start."""

    def program(self, program_id: str) -> ProgramView:
        """Return one program."""

    def output(self, program_id: str, begin: int) -> tuple[str, int]:
        """Return a program's output from a byte offset on, and the next offset."""

    def end(self, program_id: str) -> None:
        """Cancel a program's jobs, and end its process if it does not exit then."""
