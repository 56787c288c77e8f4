"""Inspects the processes of jobs: stacks, flame graphs, logs, output. Thread-safe; calls wait for the answer.

A worker of None is this process, the driver. The only cost to a job is the moment when its process is inspected. A
flame graph is kept for a while, however many observers there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from penstock.base.errors import OperationError, WrongValueError, shorten
from penstock.drivers.inspection import (
    Answer,
    AskLog,
    AskLogs,
    AskOutput,
    AskSamples,
    AskThreads,
    FileText,
    LogFiles,
    Question,
    Refused,
    Samples,
    StackSample,
    Threads,
)
from penstock.runtime.job.view import VertexView
from penstock.server.dispatcher import DispatchedJob

T = TypeVar("T", bound=Answer)

KINDS: Final = ("full", "on_cpu", "off_cpu")
#: Flink's `rest.flamegraph.num-samples`, and `delay-between-samples` in ms.
SAMPLES: Final = 100
INTERVAL_MS: Final = 20
#: How long (s) a graph is shown before it is sampled again (Flink's `rest.flamegraph.refresh-interval`).
REFRESH_SECONDS: Final = 60.0
#: How long (s) until workers that could not be sampled are asked again.
AGAIN_SECONDS: Final = 5.0
#: How many workers are sampled for one graph, and how many graphs are kept.
WORKERS_MAX: Final = 64
GRAPHS_MAX: Final = 100
#: How long (s) an answer may take, in addition to sampling.
PATIENCE_SECONDS: Final = 12.0


class NotThereError(OperationError):
    """The worker, file or vertex does not exist."""


@dataclass
class FlameNode:
    """A function, its number of samples, and the functions that it called in them."""

    name: str
    value: int = 0
    children: dict[str, FlameNode] = field(default_factory=dict)

    def add(self, functions: Iterable[str], count: int) -> None:
        """Add a stack, outermost function first."""
        node = self
        node.value += count
        for name in functions:
            node = node.children.setdefault(name, FlameNode(name))
            node.value += count

    def to_dict(self) -> dict[str, Any]:
        """Return Flink's shape: `name`, `value`, `children`, most frequent first."""
        children = sorted(self.children.values(), key=lambda child: (-child.value, child.name))
        return {"name": self.name, "value": self.value, "children": [child.to_dict() for child in children]}


@dataclass(frozen=True)
class FlameGraph:
    """The activity of a vertex's tasks.

    Attributes:
        end_ms: when the last sample was taken (ms since the epoch).
        root: all samples.
    """

    end_ms: int
    root: FlameNode


@dataclass
class _Sampled:
    """The latest samples of one vertex, and whether new ones are being fetched."""

    stacks: tuple[StackSample, ...] = ()
    end_ms: int = 0
    at: float = 0.0
    is_under_way: bool = False
    error: str | None = None


class WorkerInsight:
    """See the module docstring.

    Without an answer, methods raise `OperationError`: `NotThereError` for an unknown worker, file or vertex.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sampled: dict[tuple[str, str], _Sampled] = {}

    def thread_dump(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, str]]:
        """Return the name and stack of each thread of a process."""
        return list(_ask(job, worker_id, AskThreads(), Threads).stacks)

    def logs(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, int, int]]:
        """Return the log files, newest first: name, size in bytes, and modification time (ms since the epoch)."""
        files = _ask(job, worker_id, AskLogs(), LogFiles).files
        return [(file.name, file.size, file.modified_ms) for file in files]

    def log(self, job: DispatchedJob, worker_id: str | None, name: str = "") -> bytes:
        """Return the end of a log file, at most the last 2 MB; without a name, of the newest file."""
        return _text(_ask(job, worker_id, AskLog(name), FileText))

    def stdout(self, job: DispatchedJob, worker_id: str | None) -> bytes:
        """Return the output of functions, or of the driver's program, at most the last 2 MB."""
        return _text(_ask(job, worker_id, AskOutput(), FileText))

    def flame_graph(
        self, job: DispatchedJob, vertex_id: str, kind: str = "full", subtask: int | None = None
    ) -> FlameGraph | None:
        """Return the activity of a vertex's tasks; None during the first sampling, which takes 2 s.

        A job that runs in steps has no workers to sample: its graph has no samples.

        Args:
            job: the job.
            vertex_id: the vertex id, as 32 hexadecimal digits.
            kind: `full` for all samples, `on_cpu` for computing threads, `off_cpu` for waiting threads.
            subtask: the subtask to show; None for all.

        Raises:
            ValueError: if the kind is unknown.
        """
        if kind not in KINDS:
            raise WrongValueError(f"a flame graph is one of {', '.join(KINDS)}, not {shorten(kind)!r}")
        view = job.view()
        vertex = next((v for v in view.vertices if v.vertex_id == vertex_id), None) if view is not None else None
        if vertex is None:
            raise NotThereError(f"job {job.job_id} has no vertex {shorten(vertex_id)!r}")
        if view is not None and view.mode != "STREAMING" and not view.workers:
            return FlameGraph(view.now_ms, FlameNode("root"))
        sampled = self._samples(job, vertex)
        if sampled.error is not None:
            raise OperationError(sampled.error)
        if not sampled.end_ms:
            return None
        root = FlameNode("root")
        for stack in sampled.stacks:
            if subtask is not None and stack.subtask not in (None, subtask):
                continue
            if kind == "full" or stack.waits == (kind == "off_cpu"):
                root.add(stack.functions, stack.count)
        return FlameGraph(sampled.end_ms, root)

    def _samples(self, job: DispatchedJob, vertex: VertexView) -> _Sampled:
        """Return the known samples. If they are old, a thread fetches new ones."""
        key = job.job_id, vertex.vertex_id
        with self._lock:
            sampled = self._sampled.pop(key, None) or _Sampled()
            self._sampled[key] = sampled  # the most recently requested comes last
            for old in list(self._sampled)[: max(0, len(self._sampled) - GRAPHS_MAX)]:
                del self._sampled[old]
            is_new = sampled.end_ms == 0 and sampled.error is None
            age_seconds = REFRESH_SECONDS if sampled.error is None else AGAIN_SECONDS
            is_due = is_new or time.monotonic() >= sampled.at + age_seconds
            if is_due and not sampled.is_under_way and not job.has_ended:
                sampled.is_under_way = True
                name = f"penstock-flame-{vertex.index}"
                threading.Thread(target=self._fetch, args=(job, vertex, sampled), name=name, daemon=True).start()
            return sampled

    def _fetch(self, job: DispatchedJob, vertex: VertexView, sampled: _Sampled) -> None:
        workers = sorted({subtask.worker_id for subtask in vertex.subtasks if subtask.worker_id is not None})
        question = AskSamples(vertex.index, SAMPLES, INTERVAL_MS)
        patience = PATIENCE_SECONDS + SAMPLES * INTERVAL_MS / 1000
        futures = [job.handle.ask_worker(name, question, int(patience * 1000)) for name in workers[:WORKERS_MAX]]
        wait(futures, patience)
        answers = [_result(future) for future in futures]
        stacks = [stack for answer in answers if isinstance(answer, Samples) for stack in answer.stacks]
        refusals = [answer.reason for answer in answers if isinstance(answer, Refused)]
        with self._lock:
            sampled.is_under_way, sampled.at = False, time.monotonic()
            sampled.error = None
            if len(refusals) == len(answers):
                sampled.error = refusals[0] if refusals else f"no task of {vertex.name!r} runs on a worker"
                return
            sampled.stacks, sampled.end_ms = tuple(stacks), int(time.time() * 1000)


def _ask(job: DispatchedJob, worker_id: str | None, question: Question, expected: type[T]) -> T:
    if worker_id is not None:
        view = job.view()
        if view is None or worker_id not in {worker.worker_id for worker in view.workers}:
            raise NotThereError(f"job {job.job_id} has no worker {shorten(worker_id)!r}")
    handle = job.handle
    future = handle.ask_driver(question) if worker_id is None else handle.ask_worker(worker_id, question)
    wait([future], PATIENCE_SECONDS)
    answer = _result(future)
    if isinstance(answer, expected):
        return answer
    reason = answer.reason if isinstance(answer, Refused) else f"it answered {type(answer).__name__}"
    is_unknown = isinstance(answer, Refused) and answer.is_unknown
    raise (NotThereError if is_unknown else OperationError)(f"{worker_id or 'the driver'}: {reason}")


def _result(future: Future[Answer]) -> Answer:
    if not future.done():
        return Refused("it has not answered in time")
    error = future.exception()
    return future.result() if error is None else Refused(str(error))


def _text(text: FileText) -> bytes:
    if not text.left_out:
        return text.data
    return f"[{text.left_out} bytes before this are left out]\n".encode() + text.data
