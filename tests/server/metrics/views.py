"""Views of a job as metrics are made of: a source, and a window with a sink chained to it; two subtasks each."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

from penstock.base.configuration import Configuration
from penstock.base.job import JobID, JobStatus
from penstock.drivers.running_job import RunningJob, completed
from penstock.runtime.checkpoint.statistics import CheckpointStatistics
from penstock.runtime.graph import ExecutionState, JobEdge, JobGraph, OperatorInfo
from penstock.runtime.job.view import JobView, SubtaskView, VertexView, WorkerView
from penstock.runtime.protocol import ExecutionId, OperatorFigures, ProcessFigures, TaskFigures, TaskMetrics
from penstock.server.dispatcher import DispatchedJob, Dispatcher

JOB_ID = "0" * 31 + "1"
SOURCE = OperatorInfo("a" * 32, "numbers", "numbers", True, "Source")
WINDOW = OperatorInfo("b" * 32, "Window Reduce", "window", True, "Window Reduce")
SINK = OperatorInfo("c" * 32, "Print", None, True, "Print", "PrintSink")
BEGAN_MS = 1_000_000


def figures(seconds: float, rate: int = 100, **more: Any) -> TaskFigures:
    """Of a task that has run for that long: busy half of the time, the rest idle; a hundred bytes a record."""
    records = int(rate * seconds)
    operators = tuple(
        OperatorFigures(info.operator_id, records, records, 5_000, 6_000, {}, {}, {}) for info in (SOURCE, WINDOW, SINK)
    )
    known = {
        "busy_ms": int(500 * seconds),
        "idle_ms": int(500 * seconds),
        "bytes_in": 100 * records,
        "bytes_out": 100 * records,
        "buffers_in": int(seconds),
        "buffers_out": int(seconds),
        "operators": operators,
    }
    return TaskFigures(**{**known, **more})


def subtask_view(
    vertex: int,
    subtask: int,
    seconds: float,
    rate: int = 100,
    *,
    attempt: int = 0,
    state: ExecutionState = ExecutionState.RUNNING,
    measured: TaskFigures | None = None,
    more: Mapping[str, Any] = {},
) -> SubtaskView:
    """A subtask that has run for that long."""
    execution = ExecutionId(vertex, subtask, attempt)
    records = int(rate * seconds)
    known = measured if measured is not None else figures(seconds, rate)
    metrics = TaskMetrics(execution, records, records, 5_000, figures=None if more.get("bare") else known)
    since = ((ExecutionState.DEPLOYING, BEGAN_MS - 500), (ExecutionState.RUNNING, BEGAN_MS))
    return SubtaskView(subtask, attempt, state, f"worker-{subtask}", since, metrics)


def view_at(seconds: float, **more: Any) -> JobView:
    """The job after that long; `subtasks` gives those of each vertex, by its index."""
    subtasks = more.pop("subtasks", {})
    vertices = tuple(
        VertexView(
            index,
            " -> ".join(info.name for info in infos),
            index == 0,
            128,
            tuple(info.name for info in infos),
            subtasks.get(index, tuple(subtask_view(index, i, seconds) for i in range(2))),
            infos,
        )
        for index, infos in enumerate([(SOURCE,), (WINDOW, SINK)])
    )
    known: dict[str, Any] = {
        "job_id": JOB_ID,
        "name": "Demo job",
        "status": JobStatus.RUNNING,
        "since_ms": {JobStatus.CREATED: BEGAN_MS - 1_000, JobStatus.RUNNING: BEGAN_MS},
        "restarts": 0,
        "vertices": vertices,
        "checkpoints": CheckpointStatistics(),
        "edges": (JobEdge(0, 0, 1, 0, "HASH", False),),
        "workers": tuple(
            WorkerView(f"worker-{i}", f"host-{i}", 100 + i, process=ProcessFigures(resident_bytes=1_000, threads=7))
            for i in range(2)
        ),
        "now_ms": BEGAN_MS + int(1_000 * seconds),
    }
    return JobView(**{**known, **more})


class Handle:
    """A job that shows the views that a test gives it."""

    def __init__(self, view: JobView) -> None:
        self.view = view

    def get_job_id(self) -> JobID:
        return cast("JobID", self.view.job_id)

    def get_view(self) -> Future[JobView]:
        return completed(self.view)

    def last_view(self) -> JobView | None:
        return self.view if self.view.status.is_terminal_state() else None

    def get_job_execution_result(self) -> Future[Any]:
        return completed(None) if self.last_view() is not None else Future()


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Watched:
    """A dispatcher with one job, whose views and whose time the test decides."""

    def __init__(self, view: JobView) -> None:
        self.handle, self.clock, self.dispatcher = Handle(view), Clock(), Dispatcher()
        job = DispatchedJob(cast("RunningJob", self.handle), JobGraph(view.name, (), ()), Configuration(), self.clock)
        self.dispatcher.add(job)

    def show(self, view: JobView) -> None:
        """The job's next view, a minute later by the clock of those who look."""
        self.handle.view = view
        self.clock.seconds += 60
