"""Back-pressure of a vertex, from its subtasks' recent reports."""

from __future__ import annotations

import threading
from typing import Final, Literal

import msgspec

from penstock.core.job.view import JobView, SubtaskView
from penstock.operations.rest.calls.routing import Call, Route

Level = Literal["ok", "low", "high"]

#: The ratios of back-pressured time above which a subtask counts as low and as high, as in Flink.
_LOW: Final = 0.1
_HIGH: Final = 0.5
#: The minimum span (ms) over which ratios are measured.
_SPAN_MS: Final = 1_000


class SubtaskBackPressure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ratios of time that a subtask is back-pressured, idle and busy, from 0 to 1."""

    subtask: int
    backpressure_level: Level = msgspec.field(name="backpressureLevel")
    ratio: float
    idle_ratio: float = msgspec.field(name="idleRatio")
    busy_ratio: float = msgspec.field(name="busyRatio")
    level: Level = msgspec.field(name="backpressure-level")
    attempt: int = msgspec.field(name="attempt-number")


class BackPressure(msgspec.Struct, frozen=True):
    """The back-pressure of a vertex: its worst subtask's level. The status is `deprecated` before the first reports."""

    status: Literal["deprecated", "ok"]
    backpressure_level: Level = msgspec.field(name="backpressureLevel")
    level: Level = msgspec.field(name="backpressure-level")
    end_timestamp: int = msgspec.field(name="end-timestamp")
    subtasks: list[SubtaskBackPressure]


Times = tuple[int, int, int]
_UNKNOWN: Final = BackPressure("deprecated", "ok", "ok", 0, [])


class _Looks:
    """Earlier samples of the subtasks' times; ratios are computed from the differences."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: by job and vertex: (ms, times by subtask and attempt) of the previous sample and of the last one
        self._looks: dict[tuple[str, str], tuple[_Look, _Look]] = {}

    def difference(self, view: JobView, vertex_id: str, now: dict[tuple[int, int], Times]) -> _Look:
        """Return the sample to subtract from the current times: one at least a second old, or an empty one."""
        key = (view.job_id, vertex_id)
        with self._lock:
            if len(self._looks) > _LOOKS_MAX:
                self._looks.clear()
            before, last = self._looks.get(key, (_NEVER, _NEVER))
            if view.now_ms >= last[0] + _SPAN_MS:
                before, last = last, (view.now_ms, now)
                self._looks[key] = (before, last)
            return before


_Look = tuple[int, dict[tuple[int, int], Times]]
_NEVER: Final[_Look] = (0, {})
_LOOKS_MAX: Final = 10_000
_looks = _Looks()


def back_pressure(call: Call) -> BackPressure:
    """Return the back-pressure of a vertex; an unknown vertex counts as not yet reported, as in Flink."""
    job = call.context.dispatcher.job(call.path["jobid"])
    if job is None:
        return _UNKNOWN
    view = call.context.view(job)
    vertex = next((vertex for vertex in view.vertices if vertex.vertex_id == call.path["vertexid"]), None)
    if vertex is None:
        return _UNKNOWN
    now = {(subtask.subtask, subtask.attempt): _times(subtask) for subtask in vertex.subtasks}
    _, before = _looks.difference(view, vertex.vertex_id, now)
    subtasks = [
        _of_subtask(subtask, before.get((subtask.subtask, subtask.attempt), (0, 0, 0))) for subtask in vertex.subtasks
    ]
    worst = max(subtasks, key=lambda subtask: subtask.ratio).level
    return BackPressure("ok", worst, worst, view.now_ms, subtasks)


def _times(subtask: SubtaskView) -> Times:
    figures = None if subtask.metrics is None else subtask.metrics.figures
    return (0, 0, 0) if figures is None else (figures.back_pressured_ms, figures.idle_ms, figures.busy_ms)


def _of_subtask(subtask: SubtaskView, before: Times) -> SubtaskBackPressure:
    spent = [max(0, now - then) for now, then in zip(_times(subtask), before, strict=True)]
    total = sum(spent)
    ratio, idle, busy = (part / total if total else 0.0 for part in spent)
    level: Level = "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"
    return SubtaskBackPressure(subtask.subtask, level, ratio, idle, busy, level, subtask.attempt)


ROUTES = [
    Route(
        "GET",
        "/jobs/:jobid/vertices/:vertexid/backpressure",
        back_pressure,
        "Whether a vertex waits for those after it.",
        BackPressure,
    )
]
