"""The running and ended jobs of this process, for observers, and the inspection of their processes.

`Dispatcher`: an observer gets the latest known view. A job is asked for a view at most twice a second, however many
observers there are, so that pages and scrapes cannot slow it down.

`unseen_view` is the view of a job without a report: it has not answered yet, or it ended before it had a master.

`WorkerInsight` inspects the processes of jobs: stacks, flame graphs, logs, output. Thread-safe; calls wait for the
answer. A worker of None is this process, the driver. The only cost to a job is the moment when its process is
inspected. A flame graph is kept for a while, however many observers there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from penstock.base.configuration import Configuration
from penstock.base.errors import OperationError, WrongValueError, shorten
from penstock.base.job import JobStatus
from penstock.base.secrets import remember
from penstock.drivers import inspection
from penstock.drivers.running_job import JobHandle
from penstock.runtime.checkpoint.statistics import CheckpointStatistics
from penstock.runtime.graph import ExecutionState, JobGraph
from penstock.runtime.job.view import JobHistory, JobView, SubtaskView, VertexView, job_view
from penstock.server.events import JobEvents

#: Maximum age (s) of a view.
VIEW_SECONDS: Final = 0.5
#: How long (s) an observer waits for the first view of a job.
PATIENCE_SECONDS: Final = 5.0
#: The age (s) of the known view from which an observer waits for a newer one, and how long (s) it waits.
OLD_SECONDS: Final = 1.0
PATIENCE_WITH_OLD_SECONDS: Final = 0.25
#: How many ended jobs are kept, unless a session sets another limit.
ENDED_MAX: Final = 50


class DispatchedJob:
    """A job known to the dispatcher.

    Attributes:
        handle: controls the job.
        graph: its job graph.
        configuration: its options; they may hold secrets.
        began_ms: when the dispatcher learned of it (ms since the epoch).
    """

    def __init__(
        self,
        handle: JobHandle,
        graph: JobGraph,
        configuration: Configuration,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handle = handle
        self.graph = graph
        self.configuration = configuration
        remember(configuration.to_dict())
        self.began_ms = int(time.time() * 1000)
        self._now = now
        #: its events, for subscribers
        self.events = JobEvents(handle, graph.name, self.view)
        self._lock = threading.Lock()
        self._view: JobView | None = None
        self._asked: Future[JobView] | None = None
        self._asked_at = self._known_at = -VIEW_SECONDS
        self._is_last = False

    @property
    def job_id(self) -> str:
        """The job id, as 32 hexadecimal digits."""
        return str(self.handle.get_job_id())

    @property
    def name(self) -> str:
        """The name that the program gave it."""
        return self.graph.name

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended completely."""
        return self.handle.get_job_execution_result().done()

    def view(self) -> JobView | None:
        """Return a view of the job; None before its first answer.

        It is at most half a second old, or a second with many observers; older only if the job answers late.
        """
        with self._lock:
            self._take()
            if not self._is_last and self._asked is None and self._now() >= self._asked_at + VIEW_SECONDS:
                self._asked, self._asked_at = self.handle.get_view(), self._now()
                self._take()
            is_old = self._now() >= self._known_at + OLD_SECONDS
            future = self._asked if self._view is None or is_old else None
            patience = PATIENCE_SECONDS if self._view is None else PATIENCE_WITH_OLD_SECONDS
        if future is not None:
            wait([future], patience)
            with self._lock:
                self._take()
        return self._view

    def _take(self) -> None:
        """Store the requested view if it has arrived."""
        if self._asked is not None and self._asked.done():
            future, self._asked = self._asked, None
            if not future.cancelled() and future.exception() is None:
                self._view, self._known_at = future.result(), self._asked_at
        if not self._is_last and (last := self.handle.last_view()) is not None:
            self._view, self._is_last = last, True


class Dispatcher:
    """The jobs of one process or session, by id. Thread-safe.

    Args:
        ended_max: how many ended jobs are kept.
        ended_seconds: for how long; None for as long as there is room.
        now: the clock.
    """

    def __init__(
        self,
        ended_max: int = ENDED_MAX,
        ended_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, DispatchedJob] = {}
        self._ended_at: dict[str, float] = {}
        self._ended_max = ended_max
        self._ended_seconds = ended_seconds
        self._now = now

    def add(self, job: DispatchedJob) -> None:
        """Add a job. If there are too many ended jobs, the oldest are dropped."""
        with self._lock:
            self._jobs[job.job_id] = job
            self._forget()

    def jobs(self) -> list[DispatchedJob]:
        """Return all jobs, in the order of their arrival."""
        with self._lock:
            self._forget()
            return list(self._jobs.values())

    def job(self, job_id: str) -> DispatchedJob | None:
        """Return the job with this id."""
        with self._lock:
            self._forget()
            return self._jobs.get(job_id)

    def _forget(self) -> None:
        now = self._now()
        for job_id, job in self._jobs.items():
            if job.has_ended:
                self._ended_at.setdefault(job_id, now)
        ended = sorted(self._ended_at, key=lambda job_id: self._ended_at[job_id])
        expired = ended[: max(0, len(ended) - self._ended_max)]
        if self._ended_seconds is not None:
            expired += [
                job_id for job_id in ended[len(expired) :] if now >= self._ended_at[job_id] + self._ended_seconds
            ]
        for job_id in expired:
            del self._jobs[job_id], self._ended_at[job_id]


_FINAL = {JobStatus.FAILED: ExecutionState.FAILED, JobStatus.CANCELED: ExecutionState.CANCELED}


def unseen_view(job: DispatchedJob) -> JobView:
    """Build a view of a job from its graph and its handle."""
    status, now_ms = job.handle.status(), int(time.time() * 1000)
    history = JobHistory()
    history.moved(JobStatus.INITIALIZING, job.began_ms)
    if status is not JobStatus.INITIALIZING:
        history.moved(status, job.began_ms if not status.is_terminal_state() else now_ms)
    state = _FINAL.get(status, ExecutionState.CREATED)
    subtasks = {
        vertex.index: [SubtaskView(index, 0, state) for index in range(vertex.parallelism)]
        for vertex in job.graph.vertices
    }
    return job_view(
        job.job_id,
        job.graph,
        status,
        history,
        subtasks,
        CheckpointStatistics(),
        now_ms=now_ms,
        configuration=job.configuration,
    )


T = TypeVar("T", bound=inspection.Answer)

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
INSPECTION_PATIENCE_SECONDS: Final = 12.0


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

    stacks: tuple[inspection.StackSample, ...] = ()
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
        return list(_ask(job, worker_id, inspection.AskThreads(), inspection.Threads).stacks)

    def logs(self, job: DispatchedJob, worker_id: str | None) -> list[tuple[str, int, int]]:
        """Return the log files, newest first: name, size in bytes, and modification time (ms since the epoch)."""
        files = _ask(job, worker_id, inspection.AskLogs(), inspection.LogFiles).files
        return [(file.name, file.size, file.modified_ms) for file in files]

    def log(self, job: DispatchedJob, worker_id: str | None, name: str = "") -> bytes:
        """Return the end of a log file, at most the last 2 MB; without a name, of the newest file."""
        return _text(_ask(job, worker_id, inspection.AskLog(name), inspection.FileText))

    def stdout(self, job: DispatchedJob, worker_id: str | None) -> bytes:
        """Return the output of functions, or of the driver's program, at most the last 2 MB."""
        return _text(_ask(job, worker_id, inspection.AskOutput(), inspection.FileText))

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
        question = inspection.AskSamples(vertex.index, SAMPLES, INTERVAL_MS)
        patience = INSPECTION_PATIENCE_SECONDS + SAMPLES * INTERVAL_MS / 1000
        futures = [job.handle.ask_worker(name, question, int(patience * 1000)) for name in workers[:WORKERS_MAX]]
        wait(futures, patience)
        answers = [_result(future) for future in futures]
        stacks = [stack for answer in answers if isinstance(answer, inspection.Samples) for stack in answer.stacks]
        refusals = [answer.reason for answer in answers if isinstance(answer, inspection.Refused)]
        with self._lock:
            sampled.is_under_way, sampled.at = False, time.monotonic()
            sampled.error = None
            if len(refusals) == len(answers):
                sampled.error = refusals[0] if refusals else f"no task of {vertex.name!r} runs on a worker"
                return
            sampled.stacks, sampled.end_ms = tuple(stacks), int(time.time() * 1000)


def _ask(job: DispatchedJob, worker_id: str | None, question: inspection.Question, expected: type[T]) -> T:
    if worker_id is not None:
        view = job.view()
        if view is None or worker_id not in {worker.worker_id for worker in view.workers}:
            raise NotThereError(f"job {job.job_id} has no worker {shorten(worker_id)!r}")
    handle = job.handle
    future = handle.ask_driver(question) if worker_id is None else handle.ask_worker(worker_id, question)
    wait([future], INSPECTION_PATIENCE_SECONDS)
    answer = _result(future)
    if isinstance(answer, expected):
        return answer
    reason = answer.reason if isinstance(answer, inspection.Refused) else f"it answered {type(answer).__name__}"
    is_unknown = isinstance(answer, inspection.Refused) and answer.is_unknown
    raise (NotThereError if is_unknown else OperationError)(f"{worker_id or 'the driver'}: {reason}")


def _result(future: Future[inspection.Answer]) -> inspection.Answer:
    if not future.done():
        return inspection.Refused("it has not answered in time")
    error = future.exception()
    return future.result() if error is None else inspection.Refused(str(error))


def _text(text: inspection.FileText) -> bytes:
    if not text.left_out:
        return text.data
    return f"[{text.left_out} bytes before this are left out]\n".encode() + text.data
