"""What a session and the process of a program say to each other."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from penstock.core.job.view import JobView
from penstock.drivers.questions import Question

#: How large (bytes) a message may be: a view of a job with thousands of subtasks and their checkpoints, or a log.
MESSAGE_BYTES_MAX: Final = 256 << 20


class JobBegan(msgspec.Struct, frozen=True, tag=True):
    """A job of the program has begun: as it looks before anything of it runs, and its options, which may be secret.

    `engine_page`: where the engine under the job shows itself.
    """

    view: JobView
    configuration: dict[str, str]
    began_ms: int
    engine_page: str | None = None


class JobEnded(msgspec.Struct, frozen=True, tag=True):
    """A job is over.

    Attributes:
        job_id: which.
        status: the name of its last status.
        view: how it ended; None if it ended before it had a master.
        failure: why it failed; None if it finished.
        runtime_ms: how long it ran.
        accumulators: their types and texts, by name.
    """

    job_id: str
    status: str
    view: JobView | None
    failure: str | None
    runtime_ms: int
    accumulators: dict[str, tuple[str, str]]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """What came of a request: a value, or an error with its class, or neither if the job is over."""

    number: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: tuple[str, str] | None = None
    is_cancelled: bool = False


FromProgram: TypeAlias = JobBegan | JobEnded | Answered


class GiveView(msgspec.Struct, frozen=True, tag=True):
    """How does the job look?"""


class GiveAccumulators(msgspec.Struct, frozen=True, tag=True):
    """What are its accumulators? Types and texts, by name."""


class GiveBounds(msgspec.Struct, frozen=True, tag=True):
    """Between which bounds is the parallelism of each vertex?"""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """End the job."""


class Checkpoint(msgspec.Struct, frozen=True, tag=True):
    """Take a checkpoint; one that is full writes all state anew."""

    is_full: bool = False


class Savepoint(msgspec.Struct, frozen=True, tag=True):
    """Take a savepoint, and then let the job go on, be cancelled, or end at the savepoint."""

    directory: str | None
    then: Literal["GO_ON", "CANCEL", "SUSPEND", "DRAIN"]


class Rescale(msgspec.Struct, frozen=True, tag=True):
    """Go on at other parallelisms."""

    parallelism: dict[str, int]


class AskProcess(msgspec.Struct, frozen=True, tag=True):
    """Ask a worker, or the program's process where none is named, what it is at."""

    question: Question
    worker_id: str | None
    timeout_ms: int


class GiveEnginePage(msgspec.Struct, frozen=True, tag=True):
    """Where does the engine show a worker?"""

    worker_id: str


Wish: TypeAlias = (
    GiveView | GiveAccumulators | GiveBounds | Cancel | Checkpoint | Savepoint | Rescale | AskProcess | GiveEnginePage
)


class Request(msgspec.Struct, frozen=True):
    """Something that is asked of a job."""

    number: int
    job_id: str
    wish: Wish
