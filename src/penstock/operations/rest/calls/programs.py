"""What the REST API asks of a session that takes programs (Flink's jars, and what becomes of them)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol


@dataclass(frozen=True)
class Uploaded:
    """A program that was uploaded.

    Attributes:
        upload_id: names it, such as `<uuid>_job.py`.
        name: the file's name.
        at_ms: when (ms since the epoch).
        entries: the modules that it can be run by; a script has one, `__main__`.
    """

    upload_id: str
    name: str
    at_ms: int
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """How to run it.

    Attributes:
        arguments: what it finds in `sys.argv` behind its own name.
        entry: the module to run; None for the script, or for `__main__` of an archive.
        options: the configuration, over that of the session.
        program_id: 32 hexadecimal digits; None for new ones.
    """

    arguments: tuple[str, ...] = ()
    entry: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    program_id: str | None = None


class ProgramStatus(Enum):
    """Where a program is in its life: its process runs, or has ended."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class ProgramView:
    """A program that runs or has ended.

    Attributes:
        program_id: 32 hexadecimal digits.
        name: of its file, or its module.
        status: where it is in its life.
        process_id: its process.
        began_ms: when it began (ms since the epoch).
        ended_ms: when it ended; None while it runs.
        exit_code: of its process; None while it runs. Negative for the signal that ended it.
        jobs: the ids of its jobs, in order.
        failure: what a program that failed printed last, or why it was not begun.
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
    """Takes and runs programs. Unknown ids raise `MissingPathError`, and what cannot be taken `WrongValueError`."""

    def upload(self, name: str, data: bytes) -> Uploaded:
        """Keep a program; it is checked and not run."""

    def uploads(self) -> list[Uploaded]:
        """Those that are kept, the newest first."""

    def remove(self, upload_id: str) -> None:
        """Delete one; what runs of it goes on."""

    def plan(self, upload_id: str, submission: Submission) -> dict[str, Any]:
        """The plan of its first job, which is not run; raises `OperationError` if it has none."""

    def run(self, upload_id: str, submission: Submission) -> ProgramView:
        """Begin to run it, in a process of its own."""

    def wait_for_job(self, program_id: str, patience_seconds: float) -> ProgramView:
        """A program when it has begun its first job, or has ended, or the time is over."""

    def programs(self) -> list[ProgramView]:
        """Those that run, and those that have ended and are remembered; in the order in which they began."""

    def program(self, program_id: str) -> ProgramView:
        """One of them."""

    def output(self, program_id: str, begin: int) -> tuple[str, int]:
        """What it has printed from a byte on, and the byte after that."""

    def end(self, program_id: str) -> None:
        """Cancel its jobs, and end its process if it does not end then."""
