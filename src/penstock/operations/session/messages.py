"""Messages between a session and a program's process."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from penstock.core.job.view import JobView
from penstock.drivers.questions import Question

#: The maximum size (bytes) of a message, such as a view with thousands of subtasks and checkpoints, or a log.
MESSAGE_BYTES_MAX: Final = 256 << 20


class JobBegan(msgspec.Struct, frozen=True, tag=True):
    """A job of the program has begun: its view before anything runs, and its options, which may be secret.

    `engine_page`: the URL of the engine's web UI.
    """

    view: JobView
    configuration: dict[str, str]
    began_ms: int
    engine_page: str | None = None


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """A job has ended.

    Attributes:
        job_id: the job's id.
        status: the name of its last status.
        view: its last view; None if it ended before it had a master.
        failure: why it failed; None if it finished.
        runtime_ms: how long it ran.
        accumulators: types and texts of its accumulators, by name.
    """

    job_id: str
    status: str
    view: JobView | None
    failure: str | None
    runtime_ms: int
    accumulators: dict[str, tuple[str, str]]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """The outcome of a request: a value, or an error with its class, or neither if the job is over."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: tuple[str, str] | None = None
    is_cancelled: bool = False


FromProgram: TypeAlias = JobBegan | JobEnded | Answered


class GiveView(msgspec.Struct, frozen=True, tag=True):
    """Requests the job's view."""


class GiveAccumulators(msgspec.Struct, frozen=True, tag=True):
    """Requests the job's accumulators: types and texts, by name."""


class GiveBounds(msgspec.Struct, frozen=True, tag=True):
    """Requests the bounds of each vertex's parallelism."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Cancels the job."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Takes a checkpoint; a full one rewrites all state."""

    is_full: bool = False


class Savepoint(msgspec.Struct, frozen=True, tag=True):
    """Takes a savepoint, then lets the job go on, cancels it, or ends it at the savepoint."""

    directory: str | None
    then: Literal["GO_ON", "CANCEL", "SUSPEND", "DRAIN"]


class Rescale(msgspec.Struct, frozen=True, tag=True):
    """Changes the parallelism of vertices."""

    parallelism: dict[str, int]


class AskProcess(msgspec.Struct, frozen=True, tag=True):
    """Asks a question of a worker's process, or of the program's process if no worker is named."""

    question: Question
    worker_id: str | None
    timeout_ms: int


class GiveEnginePage(msgspec.Struct, frozen=True, tag=True):
    """Requests the URL of the engine's page for a worker."""

    worker_id: str


Wish: TypeAlias = (
    GiveView | GiveAccumulators | GiveBounds | Cancel | Checkpoint | Savepoint | Rescale | AskProcess | GiveEnginePage
)


class Request(msgspec.Struct, frozen=True):
    """A numbered request to a job."""

    number: int
    job_id: str
    wish: Wish
