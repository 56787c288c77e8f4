"""The questions that a job's driver asks a worker's process, and the answers: plain values of limited size.

They are not messages of the job: the job master does not decide by them, and tasks do not see them. Other threads than
the worker's loop answer them, so they work even while a user-defined function does not return.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

#: The maximum size (bytes) of an answer, in any number of frames.
ANSWER_BYTES_MAX: Final = 4 << 20
#: The maximum part (bytes) of a file in one answer.
FILE_BYTES_MAX: Final = 2 << 20
#: The maximum number of samples per question, and their maximum total time (ms).
SAMPLES_MAX: Final = 1_000
SAMPLING_MS_MAX: Final = 30_000


class AskThreads(msgspec.Struct, frozen=True, tag=True):
    """Asks for the stack of each thread."""


class AskSamples(msgspec.Struct, frozen=True, tag=True):
    """Asks for `count` stacks of the loop, one every `interval_ms`, when it runs this vertex or waits for input."""

    vertex: int
    count: int
    interval_ms: int


class AskLogs(msgspec.Struct, frozen=True, tag=True):
    """Asks for the list of log files."""


class AskLog(msgspec.Struct, frozen=True, tag=True):
    """Asks for the content of a log file, or for the end of a long one; of the newest file without a name."""

    name: str = ""


class AskOutput(msgspec.Struct, frozen=True, tag=True):
    """Asks for the printed output."""


class Threads(msgspec.Struct, frozen=True, tag=True):
    """The names and stacks of threads."""

    stacks: tuple[tuple[str, str], ...]


class StackSample(msgspec.Struct, frozen=True, array_like=True):
    """Functions, outermost first, that were seen `count` times; of no task if `subtask` is None."""

    subtask: int | None
    waits: bool
    functions: tuple[str, ...]
    count: int


class Samples(msgspec.Struct, frozen=True, tag=True):
    """All samples; samples of other vertices are left out."""

    stacks: tuple[StackSample, ...]


class LogFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a process's log: its size in bytes, and when it was last written (ms since the epoch)."""

    name: str
    size: int
    modified_ms: int


class LogFiles(msgspec.Struct, frozen=True, tag=True):
    """The log files, newest first."""

    files: tuple[LogFile, ...]


class FileText(msgspec.Struct, frozen=True, tag=True):
    """The end of a file, without its first `left_out` bytes."""

    data: bytes
    left_out: int = 0


class Refused(msgspec.Struct, frozen=True, tag=True):
    """No answer, and the reason; `is_unknown` if the requested object does not exist."""

    reason: str
    is_unknown: bool = False


Question: TypeAlias = AskThreads | AskSamples | AskLogs | AskLog | AskOutput
Answer: TypeAlias = Threads | Samples | LogFiles | FileText | Refused
