"""What a job's driver may ask the process of a worker, and the answers: plain values, bounded in size.

These are no messages of the job: the job master decides nothing by them, and tasks hear nothing of them. Answers are
made beside the worker's loop, so there is one while a user's function does not return.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

#: No answer is longer (bytes), in however many frames.
ANSWER_BYTES_MAX: Final = 4 << 20
#: How much (bytes) of a file one answer has at most.
FILE_BYTES_MAX: Final = 2 << 20
#: How many samples one question may ask for, and for how long (ms) in all.
SAMPLES_MAX: Final = 1_000
SAMPLING_MS_MAX: Final = 30_000


class AskThreads(msgspec.Struct, frozen=True, tag=True):
    """Where is each thread?"""


class AskSamples(msgspec.Struct, frozen=True, tag=True):
    """Where is the loop, `count` times, once every `interval_ms`, when it is at this vertex or at nothing?"""

    vertex: int
    count: int
    interval_ms: int


class AskLogs(msgspec.Struct, frozen=True, tag=True):
    """Which files of logs are there?"""


class AskLog(msgspec.Struct, frozen=True, tag=True):
    """What is in one of them? Of a long one, the end; of the newest lines' file when no name is given."""

    name: str = ""


class AskOutput(msgspec.Struct, frozen=True, tag=True):
    """What was printed?"""


class Threads(msgspec.Struct, frozen=True, tag=True):
    """Names of threads, and where they are."""

    stacks: tuple[tuple[str, str], ...]


class StackSample(msgspec.Struct, frozen=True, array_like=True):
    """Functions, outermost first, that were seen `count` times; of no task when `subtask` is None."""

    subtask: int | None
    waits: bool
    functions: tuple[str, ...]
    count: int


class Samples(msgspec.Struct, frozen=True, tag=True):
    """All that was seen; those of other vertices are left out."""

    stacks: tuple[StackSample, ...]


class LogFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a process's log: its size in bytes, and when it was last written (ms since the epoch)."""

    name: str
    size: int
    modified_ms: int


class LogFiles(msgspec.Struct, frozen=True, tag=True):
    """The newest first."""

    files: tuple[LogFile, ...]


class FileText(msgspec.Struct, frozen=True, tag=True):
    """The end of a file; `left_out` bytes are before it."""

    data: bytes
    left_out: int = 0


class Refused(msgspec.Struct, frozen=True, tag=True):
    """There is no answer, and why; `is_unknown` when what was asked for is not there."""

    reason: str
    is_unknown: bool = False


Question: TypeAlias = AskThreads | AskSamples | AskLogs | AskLog | AskOutput
Answer: TypeAlias = Threads | Samples | LogFiles | FileText | Refused
