"""Inspection of a worker's process: questions of the job's driver, the answers, and the process's resource usage.

**Questions and answers** are plain values of limited size. They are not messages of the job: the job master does not
decide by them, and tasks do not see them. `Answers` answers them in other threads than the worker's loop, so they work
even while a user-defined function does not return. One question at a time samples the loop.

**Stacks** are one dump of all threads (`threads`), or repeated samples of the thread that runs tasks (`Sampler`). For
other threads, only Python functions are visible. A look takes the interpreter's lock for some microseconds, so a thread
that holds the lock for long, in a C function, is seen only when it releases the lock. A thread counts as waiting by the
processor time it has used since the last look, if the system reports this (Linux), and otherwise by the function it is
in.

**Limits of a container** (`memory_bytes_max`, `cpu_cores_max`) are read from files of Linux control groups, versions 1
and 2.

`process_figures` returns the resource usage of this process: CPU, memory, threads, garbage collections. It is
thread-safe, whereas a `ProcessWatch` is not. A sample takes a tenth of a millisecond, and at most one is taken per
second, so callers may ask as often as they like. Limits come from the process's control groups, because they determine
the resources of a container.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from penstock.base.errors import shorten
from penstock.runtime.protocol import ProcessFigures
from penstock.runtime.task import stream_task
from penstock.runtime.task.failures import outermost_first
from penstock.runtime.task.stream_task import StreamTask

if TYPE_CHECKING:
    import psutil


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


#: Limits of a dump: number of threads, and characters of one stack.
THREADS_MAX: Final = 400
STACK_CHARS_MAX: Final = 8_000
#: Limits of samples: number of stacks, most frequent first, and of functions in each, innermost first.
STACKS_MAX: Final = 300
FUNCTIONS_MAX: Final = 60
FUNCTION_CHARS_MAX: Final = 200
#: A thread that has used a smaller part of the time counts as waiting: in any function, and in a function made to wait.
BUSY_FRACTION: Final = 0.1
BUSY_FRACTION_WAITING: Final = 0.5
#: Where functions made to wait are defined.
_WAITING: Final = ("/threading.py", "/selectors.py", "/zmq/", "/queue.py", "/concurrent/futures/")


def threads() -> Threads:
    """Return the stacks of all threads of this process except the calling one."""
    own, frames = threading.get_ident(), sys._current_frames()
    known = {thread.ident: thread for thread in threading.enumerate()}
    stacks = []
    for ident, frame in list(frames.items())[:THREADS_MAX]:
        if ident == own:
            continue
        thread = known.get(ident)
        name = f"thread-{ident}" if thread is None else thread.name
        number = None if thread is None else _number(thread)
        daemon = " daemon" if thread is not None and thread.daemon else ""
        text = "".join(traceback.format_stack(frame))
        stacks.append((name, f'"{name}" Id={number}{daemon}\n{text[-STACK_CHARS_MAX:]}'))
    return Threads(tuple(stacks))


class Sampler:
    """Samples the thread that runs tasks.

    Args:
        thread: that thread.
        sleep: waits for a time (s).
    """

    def __init__(self, thread: threading.Thread, sleep: Callable[[float], None] = time.sleep) -> None:
        self._thread = thread
        self._sleep = sleep
        self._looked_ns, self._used_ns = time.monotonic_ns(), self._cpu_ns()

    def sample(self, question: AskSamples) -> Samples:
        """Take samples as the question specifies, and block meanwhile."""
        counts: Counter[tuple[int | None, bool, tuple[str, ...]]] = Counter()
        for _ in range(question.count):
            self._sleep(question.interval_ms / 1000)
            frames = outermost_first(sys._current_frames().get(self._thread.ident or 0))
            waits = self._waits(frames[-1] if frames else None)
            task, begin = _find_task(frames)
            if task is not None and task.execution.vertex == question.vertex:
                counts[task.execution.subtask, waits, _names(frames[begin:])] += 1
            elif task is None and waits:
                counts[None, True, ("waits for input",)] += 1
        return Samples(
            tuple(
                StackSample(subtask, waits, functions, count)
                for (subtask, waits, functions), count in counts.most_common(STACKS_MAX)
            )
        )

    def _waits(self, leaf: FrameType | None) -> bool:
        now_ns, used_ns = time.monotonic_ns(), self._cpu_ns()
        before_ns, before_used_ns = self._looked_ns, self._used_ns
        self._looked_ns, self._used_ns = now_ns, used_ns
        is_there_to_wait = leaf is None or any(part in leaf.f_code.co_filename for part in _WAITING)
        if used_ns is None or before_used_ns is None:
            return is_there_to_wait
        fraction = BUSY_FRACTION_WAITING if is_there_to_wait else BUSY_FRACTION
        return used_ns - before_used_ns < (now_ns - before_ns) * fraction

    def _cpu_ns(self) -> int | None:
        """Return the processor time that the thread has used; None if the system does not report it."""
        number = _number(self._thread)
        if not sys.platform.startswith("linux") or number is None:
            return None
        try:
            # The clock of a thread by its number, as the kernel defines it: unlike `pthread_getcpuclockid`, this is
            # safe for a thread that has ended.
            return time.clock_gettime_ns((~number << 3) | 6)
        except OSError:
            return None


def _number(thread: threading.Thread) -> int | None:
    """Return a thread's number in the system. In a forked process, Python's number for the main thread is outdated."""
    return os.getpid() if thread is threading.main_thread() else thread.native_id


def _find_task(frames: list[FrameType]) -> tuple[StreamTask | None, int]:
    """Return the task that a thread runs, and the index of the task's first function in the stack."""
    for index, frame in enumerate(frames):
        if frame.f_code.co_filename == stream_task.__file__:
            owner = frame.f_locals.get("self")
            if isinstance(owner, StreamTask) and hasattr(owner, "execution"):
                return owner, index
    return None, 0


def _names(frames: list[FrameType]) -> tuple[str, ...]:
    return tuple(
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}:{frame.f_lineno}"[:FUNCTION_CHARS_MAX]
        for frame in frames[-FUNCTIONS_MAX:]
    )


_log = logging.getLogger("penstock.insight")


class Logs(Protocol):
    """The logs and the printed output that a process keeps."""

    def list(self) -> Answer: ...

    def read(self, name: str) -> Answer: ...

    def output(self) -> Answer: ...


class Answers:
    """Answers questions about this process.

    Args:
        loop: the thread that runs tasks.
        logs: the log files of the process; None if it keeps none.
    """

    def __init__(self, loop: threading.Thread, logs: Logs | None) -> None:
        self._loop = loop
        self._logs = logs
        self._sampling = threading.Lock()

    def begin(self, question: Question, done: Callable[[Answer], None]) -> None:
        """Start answering a question; another thread calls `done` with the answer."""

        def run() -> None:
            try:
                answer = self._answer(question)
            except Exception as error:  # noqa: BLE001 - whoever asks hears of it, and the worker goes on
                _log.debug("no answer to %r", question, exc_info=True)
                answer = Refused(shorten(f"{type(error).__name__}: {error}"))
            done(answer)

        threading.Thread(target=run, name="penstock-answer", daemon=True).start()

    def _answer(self, question: Question) -> Answer:
        match question:
            case AskThreads():
                return threads()
            case AskSamples(_, count, interval_ms):
                if not (0 < count <= SAMPLES_MAX and interval_ms > 0 and count * interval_ms <= SAMPLING_MS_MAX):
                    return Refused(f"{count} samples, one every {interval_ms} ms, are too many, or none")
                if not self._sampling.acquire(blocking=False):
                    return Refused("it is being sampled already")
                try:
                    return Sampler(self._loop).sample(question)
                finally:
                    self._sampling.release()
            case _ if self._logs is None:
                return Refused("it keeps no log files", is_unknown=True)
            case AskLogs():
                return self._logs.list()
            case AskLog(name):
                return self._logs.read(name)
            case AskOutput():
                return self._logs.output()


#: Version 1 represents "no limit" by a number of about this size.
_NO_LIMIT: Final = 1 << 60
_MOUNT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def memory_bytes_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """Return the memory limit (bytes) of the process's groups; 0 without a limit."""
    limits = [
        limit
        for directory in _directories("memory", mount, membership)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _read_number(_read(directory / name))) is not None and 0 < limit < _NO_LIMIT
    ]
    return min(limits, default=0)


def cpu_cores_max(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return the CPU limit of the process's groups in cores, rounded up; None without a limit."""
    limits = []
    for directory in _directories("cpu", mount, membership):
        quota, _, period = _read(directory / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(directory / "cpu.cfs_quota_us"), _read(directory / "cpu.cfs_period_us")
        quota_us, period_us = _read_number(quota), _read_number(period)
        if quota_us is not None and period_us and quota_us > 0:
            limits.append(math.ceil(quota_us / period_us))
    return min(limits, default=None)


def _directories(controller: str, mount: Path, membership: Path) -> Iterator[Path]:
    """Yield the directories of the process's group and of its ancestors for one controller.

    A container often sees its own group as the root, so the root is included.
    """
    for line in _read(membership).splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        if not names:  # version 2, perhaps alongside version 1
            roots = [mount, mount / "unified"]
        elif controller in names.split(","):
            roots = [mount / controller, mount / names]
        else:
            continue
        for root in dict.fromkeys(roots):
            directory = root / group.lstrip("/")
            yield directory
            while directory != root and root in directory.parents:
                directory = directory.parent
                yield directory


def _read(path: Path) -> str:
    """Return a file's text; empty if the file does not exist, as on systems other than Linux."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _read_number(text: str) -> int | None:
    """Parse a number such as 4096; return None for `max` and for empty text."""
    try:
        return int(text)
    except ValueError:
        return None


#: The maximum age (s) of figures.
AGE_SECONDS: Final = 1.0


class CollectionWatch:
    """Counts Python's garbage collections and their time, from construction to `close`."""

    def __init__(self) -> None:
        self.count = 0
        self.time_ns = 0
        self._begun_ns = 0
        gc.callbacks.append(self._on_collection)

    def close(self) -> None:
        """Stop counting."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._begun_ns = time.perf_counter_ns()
        elif self._begun_ns:
            self.count += 1
            self.time_ns += time.perf_counter_ns() - self._begun_ns


class ProcessWatch:
    """Samples the process that creates it; used by one thread at a time."""

    def __init__(self) -> None:
        import psutil  # workers import it after their start, in the heartbeat thread

        self._process: psutil.Process = psutil.Process()
        self._collections = CollectionWatch()
        self._cores = _cores()
        self._physical_bytes = int(psutil.virtual_memory().total)
        self._limit_bytes = memory_bytes_max()
        #: the stubs do not cover machines without a network, nor Windows
        self._network: Any = psutil.net_io_counters
        self._open_files: Any = getattr(self._process, "num_fds", None) or getattr(self._process, "num_handles", int)
        self._sampled_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns()

    def sample(self) -> ProcessFigures:
        """Return the current figures; the load is that since the last sample."""
        process = self._process
        now_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        elapsed_ns = max(1, now_ns - self._sampled_ns)
        load = (cpu_ns - self._cpu_ns) / elapsed_ns / self._cores
        self._sampled_ns, self._cpu_ns = now_ns, cpu_ns
        network = self._network()
        with process.oneshot():
            return ProcessFigures(
                cpu_load=min(1.0, max(0.0, load)),
                cpu_time_ns=cpu_ns,
                cores=self._cores,
                resident_bytes=int(process.memory_info().rss),
                memory_limit_bytes=self._limit_bytes,
                physical_bytes=self._physical_bytes,
                threads=process.num_threads(),
                collections=self._collections.count,
                collections_ms=self._collections.time_ns // 1_000_000,
                open_files=self._open_files(),
                network_in_bytes=0 if network is None else network.bytes_recv,
                network_out_bytes=0 if network is None else network.bytes_sent,
                modules=len(sys.modules),
            )

    def close(self) -> None:
        """Stop watching."""
        self._collections.close()


class _Shared:
    """The only watch of a process. A forked process creates its own."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._restart)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._watch: ProcessWatch | None = None
        self._figures: ProcessFigures | None = None
        self._at = 0.0

    def _restart(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._begin()

    def figures(self) -> ProcessFigures:
        with self._lock:
            now = time.monotonic()
            if self._figures is None or now >= self._at + AGE_SECONDS:
                self._figures, self._at = self._sampled(self._figures), now
            return self._figures

    def _sampled(self, before: ProcessFigures | None) -> ProcessFigures:
        """Return the current figures, or the last ones if the system fails, as without free file descriptors."""
        import psutil

        try:
            self._watch = self._watch or ProcessWatch()
            return self._watch.sample()
        except (OSError, psutil.Error):
            return before or ProcessFigures()


def _cores() -> int:
    """Return the number of cores that the process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cpu_cores_max()
    return allowed if limit is None else max(1, min(allowed, limit))


_shared: Final = _Shared()


def process_figures() -> ProcessFigures:
    """Return the resource usage of this process, at most a second old.

    `collections` and `collections_ms` count from the first call on.
    """
    return _shared.figures()
