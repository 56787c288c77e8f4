"""A server over jobs that a test has made up, and a client that says what came back."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.base.configuration import Configuration
from penstock.base.job import JobExecutionResult, JobID, JobStatus
from penstock.drivers.inspection import Answer as Answered
from penstock.drivers.inspection import Question, Refused
from penstock.drivers.running_job import RunningJob, completed
from penstock.runtime.checkpoint.statistics import (
    CheckpointRecord,
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpoint,
)
from penstock.runtime.graph import ExecutionState, JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.runtime.job.slots import Bounds
from penstock.runtime.job.view import (
    FailureRecord,
    JobView,
    RescaleCause,
    RescaleRecord,
    SubtaskView,
    VertexView,
    WorkerView,
)
from penstock.runtime.protocol import ExecutionId, ProcessFigures, TaskFigures, TaskMetrics
from penstock.server.dispatcher import DispatchedJob, Dispatcher
from penstock.server.rest.calls.context import RestContext, RestSettings
from penstock.server.rest.server import RestServer

BEGAN_MS = 1_700_000_000_000
JOB = "0123456789abcdef0123456789abcdef"
SOURCE, COUNT = "a" * 32, "b" * 32
_E = ExecutionState


def subtask(vertex: int, index: int, worker: str = "worker-1-aaaa") -> SubtaskView:
    """One that has run for a minute and was busy for half of it."""
    figures = TaskFigures(busy_ms=30_000, back_pressured_ms=20_000, idle_ms=10_000, bytes_in=300, bytes_out=200)
    metrics = TaskMetrics(ExecutionId(vertex, index, 0), 10 * (index + 1), 5, 1_000, figures=figures)
    since = ((_E.CREATED, BEGAN_MS), (_E.DEPLOYING, BEGAN_MS + 100), (_E.RUNNING, BEGAN_MS + 300))
    return SubtaskView(index, 0, _E.RUNNING, worker, since, metrics)


def a_view(parallelism: int = 2, **changes: Any) -> JobView:
    """A source and a count, a checkpoint, a failure that was overcome."""
    infos = [OperatorInfo(SOURCE, "numbers", "numbers", True), OperatorInfo(COUNT, "count", "count", True)]
    vertices = tuple(
        VertexView(
            place,
            info.name,
            not place,
            128,
            (info.name,),
            tuple(subtask(place, index) for index in range(parallelism)),
            (info,),
        )
        for place, info in enumerate(infos)
    )
    parts = tuple(
        SubtaskCheckpoint(place, index, BEGAN_MS + 1_500 + index, 500 + index, 1_000, 100, sync_ms=5, async_ms=20)
        for place in (0, 1)
        for index in range(parallelism)
    )
    done = CheckpointRecord(
        1,
        CheckpointStatus.COMPLETED,
        BEGAN_MS + 1_000,
        duration_ms=501,
        state_bytes=4_000,
        stored_bytes=400,
        subtasks=2 * parallelism,
        acknowledged=2 * parallelism,
        path="file:///checkpoints/chk-1",
        parts=parts,
    )
    failure = FailureRecord(
        BEGAN_MS + 2_000, 0, "Traceback …\nValueError: no such word", "count (1/2)", "worker-1-aaaa", "host", 17
    )
    view = JobView(
        JOB,
        "words",
        JobStatus.RUNNING,
        {JobStatus.CREATED: BEGAN_MS, JobStatus.RUNNING: BEGAN_MS + 50},
        1,
        vertices,
        CheckpointStatistics(triggered=2, completed=1, last=done, history=(done,)),
        (CheckpointRecord(2, CheckpointStatus.IN_PROGRESS, BEGAN_MS + 60_000),),
        (failure,),
        (WorkerView("worker-1-aaaa", "host", 17, process=ProcessFigures(cores=4, resident_bytes=1 << 20)),),
        (RescaleRecord(BEGAN_MS, 0, RescaleCause.UPDATE_REQUIREMENT, {"count": (1, 2)}),),
        edges=(JobEdge(0, 0, 1, 0, "HASH", False),),
        now_ms=BEGAN_MS + 60_300,
    )
    return replace(view, **changes)


def build_graph(view: JobView) -> JobGraph:
    vertices = (JobVertex(v.index, v.name, v.parallelism, 128, v.infos, b"") for v in view.vertices)
    return JobGraph(view.name, tuple(vertices), view.edges)


class Handle:
    """A job that looks as it is told to, and notes what it is asked for."""

    def __init__(self, view: JobView | None, name: str = "words") -> None:
        self.shown = view
        self.asked: list[Any] = []
        self.outcome: Future[JobExecutionResult] = Future()
        self.savepoint: Future[str] = Future()
        self.checkpoint_id: int | None = 1
        self.engine_pages: dict[str | None, str] = {}
        self.now = JobStatus.RUNNING if view is None else view.status

    def get_job_id(self) -> JobID:
        return JobID(JOB if self.shown is None else self.shown.job_id)

    def status(self) -> JobStatus:
        return self.now

    def get_view(self) -> Future[JobView]:
        return Future() if self.shown is None else completed(self.shown)

    def last_view(self) -> JobView | None:
        return self.shown if self.outcome.done() else None

    def get_job_execution_result(self) -> Future[JobExecutionResult]:
        return self.outcome

    def get_accumulators(self) -> Future[dict[str, Any]]:
        return completed({"words": 7})

    def ask_worker(self, worker_id: str, question: Question, timeout_ms: int = 0) -> Future[Answered]:
        return completed(Refused("its process answers no questions"))

    def engine_page(self, worker_id: str | None = None) -> str | None:
        return self.engine_pages.get(worker_id)

    def get_bounds(self) -> Future[Any]:
        return self.ask(lambda master: master.bounds())

    def ask(self, question: Callable[[Any], Any]) -> Future[Any]:
        return completed({0: Bounds(1, 2), 1: Bounds(1, 2)})

    def cancel(self) -> Future[None]:
        self.asked.append("cancel")
        return completed(None)

    def trigger_savepoint(self, directory: str | None = None) -> Future[str]:
        self.asked.append(("savepoint", directory))
        return self.savepoint

    def cancel_with_savepoint(self, directory: str | None = None) -> Future[str]:
        self.asked.append(("cancel with savepoint", directory))
        return self.savepoint

    def stop_with_savepoint(self, drain: bool, directory: str | None = None) -> Future[str]:
        self.asked.append(("stop", drain, directory))
        return self.savepoint

    def trigger_checkpoint(self, is_full: bool = False) -> Future[int | None]:
        self.asked.append("full checkpoint" if is_full else "checkpoint")
        return completed(self.checkpoint_id)

    def rescale(self, parallelism: Mapping[str, int]) -> Future[Mapping[str, int]]:
        self.asked.append(("rescale", dict(parallelism)))
        return completed(parallelism)


@dataclass
class Answer:
    """What came back."""

    code: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a server."""

    def __init__(self, server: RestServer, context: RestContext) -> None:
        self.server = server
        self.context = context

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.ask("GET", path, headers=headers)

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.server.context.port}{path}"
        request = urllib.request.Request(url, data, dict(headers or {}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())


@contextmanager
def serving(
    *handles: Handle, configuration: Mapping[str, str] | None = None, context: Mapping[str, Any] | None = None
) -> Iterator[Client]:
    """A server over these jobs."""
    settings = Configuration.from_dict({"rest.port": "0", **(configuration or {})})
    dispatcher = Dispatcher()
    for handle in handles:
        view = handle.shown or a_view()
        dispatcher.add(DispatchedJob(cast("RunningJob", handle), build_graph(view), settings))
    shared = RestContext(dispatcher, settings, **(context or {}))
    server = RestServer(shared, RestSettings.of(settings))
    server.start()
    try:
        yield Client(server, shared)
    finally:
        server.stop()
