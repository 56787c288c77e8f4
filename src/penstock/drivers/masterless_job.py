"""A job that has no job master: a thread of the client's process lets its tasks run, to their end or epoch by epoch.

Output becomes visible when the tasks that made it have all ended well: then the client is handed what sinks have for
it, and what they have prepared is committed, here. So a task that was run again leaves no trace.
"""

from __future__ import annotations

import pickle
import threading
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from penstock.common.completable_future import CompletableFuture
from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.core.accumulators import merge_accumulators, values_of
from penstock.core.batch.exchange import SEQUENCES_PER_SUBTASK
from penstock.core.batch.figures import JobFigures
from penstock.core.batch.rows import ACCUMULATORS, CLIENT, METRICS
from penstock.core.connector import Source
from penstock.core.job.failures import broken
from penstock.core.job.job_graph import JobGraph
from penstock.core.job.job_master import JobMaster
from penstock.core.job.progress import JobProgress, job_progress
from penstock.core.job.side_outputs import unwritten_side_outputs
from penstock.core.ports import JobListener
from penstock.drivers.cancellation import where_is
from penstock.drivers.clock import SystemClock
from penstock.drivers.commits import SinkCommits
from penstock.drivers.running_job import RunningJob, completed, settle

T = TypeVar("T")
CommitsT = TypeVar("CommitsT", bound=SinkCommits)


class Last(NamedTuple):
    """What is left of a task for the client: committables, or bytes that a sink has emitted to it."""

    vertex: int
    operator: int
    kind: int
    sequence: int
    payload: bytes


class Cancelled(Exception):
    """The job was cancelled meanwhile."""


class MasterlessJob(RunningJob):
    """See the module's text. Subclasses implement `run_all` and `interrupt`."""

    def __init__(
        self, job_graph: JobGraph, configuration: Configuration, listener: JobListener, job_id: JobID | None = None
    ) -> None:
        result: CompletableFuture[JobExecutionResult] = CompletableFuture()
        super().__init__(job_id or JobID.generate(), job_graph.name, result, configuration)
        self.job_graph = job_graph
        self.configuration = configuration
        self.clock = SystemClock()
        self.listener = listener
        self._status = JobStatus.CREATED
        #: by name: those of all tasks that have counted so far, merged
        self._accumulators: dict[str, Any] = {}
        self.figures = JobFigures()
        self._is_cancelled = threading.Event()
        self.commits = self.make_commits(SinkCommits)
        self._started_ms = self.clock.now_ms()
        self._thread = threading.Thread(target=self._run, name=f"penstock-job-{job_graph.name}", daemon=True)

    # --- for drivers -----------------------------------------------------------------------------------------------

    @abstractmethod
    def run_all(self) -> None:
        """All of the job's work, what it `deliver`s included. Raises `PenstockError` for the job to fail with."""

    @abstractmethod
    def interrupt(self) -> None:
        """The job was cancelled: let `run_all` come to an end soon."""

    def reads_splits(self, source: Source[Any, Any]) -> bool:
        """Whether a source is read by its splits, and so is prepared."""
        return True

    def release(self) -> None:
        """The job is over."""

    def check_cancelled(self) -> None:
        """Raise `Cancelled` when the job is to end."""
        if self._is_cancelled.is_set():
            raise Cancelled

    # --- the job's life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        failure: PenstockError | None = None
        self._move(JobStatus.RUNNING)
        try:
            self._prepare_sources()
            self.run_all()
            status = JobStatus.FINISHED
            for line in unwritten_side_outputs(self.job_graph, self.figures.tasks.values()):
                self.listener.on_log(line)
        except Cancelled:
            status = JobStatus.CANCELED
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the job, and its waiter must hear of it
            if self._is_cancelled.is_set():
                status = JobStatus.CANCELED
            else:
                status = JobStatus.FAILED
                failure = error if isinstance(error, PenstockError) else broken(self.job_graph.name, error)
        self.release()
        self._move(status, None if failure is None else str(failure))
        runtime_ms = self.clock.now_ms() - self._started_ms
        accumulators = values_of(self._accumulators)
        settle(self._result, self._job_id, self.job_graph.name, status, failure, runtime_ms, accumulators)

    def _prepare_sources(self) -> None:
        for vertex in self.job_graph.vertices:
            for source in filter(self.reads_splits, vertex.sources.values()):
                source.prepare(self.check_cancelled)

    def _move(self, status: JobStatus, reason: str | None = None) -> None:
        self._status = status
        self.listener.on_job_status(status.name, reason)

    # --- output ----------------------------------------------------------------------------------------------------

    def deliver(self, left: Iterable[Last]) -> None:
        """Hand the client what sinks have for it, and commit what they have prepared."""
        last = sorted(left, key=lambda one: (one.vertex, one.operator, one.sequence))
        committables: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for one in last:
            if one.kind == ACCUMULATORS:
                merge_accumulators(self._accumulators, pickle.loads(one.payload))
            elif one.kind == METRICS:
                self.figures.add(one.payload)
            elif one.kind == CLIENT:
                subtask = one.sequence // SEQUENCES_PER_SUBTASK
                self.listener.on_client_output(self._operator_id(one), subtask, one.payload)
            else:
                committables[one.vertex, one.operator].extend(pickle.loads(one.payload))
        self.commits.commit(committables)

    def make_commits(self, kind: type[CommitsT]) -> CommitsT:
        """What commits for the job's sinks."""

        def context_of(operator_id: str) -> _CommitterContext:
            return _CommitterContext(self, operator_id)

        def wait(for_ms: int) -> None:
            self._is_cancelled.wait(for_ms / 1000)

        return kind(self.job_graph, context_of, wait, self.listener.on_log)

    def _operator_id(self, one: Last) -> str:
        return self.job_graph.vertices[one.vertex].operators[one.operator].operator_id

    def on_client_output(self, operator_id: str, subtask: int, payload: bytes) -> None:
        """Bytes of a committer for the client."""
        self.listener.on_client_output(operator_id, subtask, payload)

    # --- the client's side -----------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._status

    def begin_cancel(self) -> None:
        """What has not been delivered will not become visible."""
        self._is_cancelled.set()
        self.interrupt()

    def where(self) -> str | None:
        """What the job's thread runs of the user's."""
        return where_is(self._thread)

    def end(self, patience_seconds: float = 5.0) -> None:
        """Cancel the job and wait for its end, or until it is waited for no longer."""
        self._cancel_once()
        self._cancellation.join(self._thread)

    def get_progress(self) -> Future[JobProgress]:
        """Figures of what has been delivered: after each epoch, and at the end of a batch."""
        of, status = self.figures, self._status.name
        return completed(job_progress(status, self.job_graph, dict(of.tasks), of.checkpoints, of.restarts, []))

    def trigger_checkpoint(self) -> Future[int | None]:
        """None: nobody can ask for a checkpoint."""
        return completed(None)

    def ask(self, question: Callable[[JobMaster], T]) -> Future[T]:
        """There is no job master; the future is cancelled."""
        future: Future[T] = Future()
        future.cancel()
        return future


class _CommitterContext:
    """What a committer may ask of the client's process, where it runs."""

    subtask_index = 0
    parallelism = 1
    attempt = 0
    run = ""
    restored_checkpoint_id = None

    def __init__(self, job: MasterlessJob, operator_id: str) -> None:
        self._job = job
        self.job_id = str(job.get_job_id())
        self.operator_id = operator_id
        self.now_ms = job.clock.now_ms

    def emit_to_client(self, payload: bytes) -> None:
        self._job.on_client_output(self.operator_id, 0, payload)
