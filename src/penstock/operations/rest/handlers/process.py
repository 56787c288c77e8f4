"""A process's logs and stacks in the shapes of the API."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class LogFileInfo(msgspec.Struct, frozen=True):
    """A log file: its size in bytes, and its time in ms since the epoch."""

    name: str
    size: int
    mtime: int


class LogFiles(msgspec.Struct, frozen=True):
    """The log files of a process."""

    logs: list[LogFileInfo]


class ThreadInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A thread and its stack trace, as Python formats it."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(msgspec.Struct, frozen=True, rename="camel"):
    """The threads of a process."""

    thread_infos: list[ThreadInfo]


def log_files(files: Iterable[tuple[str, int, int]]) -> LogFiles:
    """Build the list of a process's log files."""
    return LogFiles([LogFileInfo(*file) for file in files])


def build_thread_dump(stacks: Iterable[tuple[str, str]]) -> ThreadDump:
    """Build the thread dump of a process."""
    return ThreadDump([ThreadInfo(*stack) for stack in stacks])
