"""Processor time and memory of this process and of those below it, out of /proc; of this process alone elsewhere."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_SECONDS = 0.1


def _below() -> list[list[str]]:
    """The fields of /proc/PID/stat behind the name, of all processes below this one."""
    children: dict[int, list[tuple[int, list[str]]]] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            pid, rest = int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(rest[1]), []).append((pid, rest))
    below, todo = [], [os.getpid()]
    while todo:
        for pid, rest in children.pop(todo.pop(), ()):
            todo.append(pid)
            below.append(rest)
    return below


def cpu_seconds(with_children: bool) -> float:
    """Of all threads; with all processes below this one, and those that these have waited for."""
    seconds = time.process_time()
    if with_children and _PROC.exists():
        times = os.times()
        ticks = sum(sum(map(int, rest[11:15])) for rest in _below())
        seconds += times.children_user + times.children_system + ticks / _TICKS
    return seconds


class TreeMemory:
    """While it is entered, samples the memory of all processes below this one; `peak_bytes` is the most."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            resident = sum(int(rest[21]) for rest in _below()) * _PAGE_BYTES
            self.peak_bytes = max(self.peak_bytes, resident)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


def peak_bytes_of(work: Callable[[], object]) -> int | None:
    """By how much the memory of a fork of this process grows at most while it does the work; None where /proc is not.

    What the fork shares with this process counts from the beginning, so copying a page of it on writing does not add.
    """
    if not (_PROC / "self/clear_refs").exists():
        return None
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        result: Any = None
        try:
            restart_peak()
            before = peak_bytes()
            work()
            result = peak_bytes() - before
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            result = repr(error)
        finally:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(result, pipe)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        outcome = pickle.load(pipe)
    os.waitpid(pid, 0)
    if not isinstance(outcome, int):
        raise RuntimeError(f"measuring memory: {outcome}")
    return outcome


def peak_bytes(process: str = "self") -> int:
    """The most memory that a process had resident, since it began or since its last `restart_peak`."""
    status = (_PROC / process / "status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def restart_peak(process: str = "self") -> None:
    """Count the most memory of a process anew."""
    (_PROC / process / "clear_refs").write_text("5")
