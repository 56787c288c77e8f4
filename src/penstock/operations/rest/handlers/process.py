"""Logs and stacks of a process as the API has them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class LogFileInfo(msgspec.Struct, frozen=True):
    """A file of logs: bytes, and ms since the epoch."""

    name: str
    size: int
    mtime: int


class LogFiles(msgspec.Struct, frozen=True):
    """The files of logs of a process."""

    logs: list[LogFileInfo]


class ThreadInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A thread and its stack, as Python tells them."""

    thread_name: str
    stringified_thread_info: str


class ThreadDump(msgspec.Struct, frozen=True, rename="camel"):
    """All threads of a process."""

    thread_infos: list[ThreadInfo]


def log_files(files: Iterable[tuple[str, int, int]]) -> LogFiles:
    """Of a process."""
    return LogFiles([LogFileInfo(*one) for one in files])


def thread_dump_of(stacks: Iterable[tuple[str, str]]) -> ThreadDump:
    """Of a process."""
    return ThreadDump([ThreadInfo(*one) for one in stacks])
