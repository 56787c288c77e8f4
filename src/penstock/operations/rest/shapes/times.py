"""When a job, and each of its subtasks, came to the states of its life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.base.job_status import JobStatus
from penstock.core.graph.states import ExecutionState
from penstock.core.job.view import JobView, SubtaskView

#: Flink's names of the states of tasks; Penstock's jobs never come to RECONCILING.
TASK_STATES: Final = (*(state.name for state in ExecutionState), "RECONCILING")
_E = ExecutionState
#: What a task of the engine is in, by the status of its job.
_OF_THE_ENGINE: Final = {
    JobStatus.RUNNING: _E.RUNNING,
    JobStatus.FINISHED: _E.FINISHED,
    JobStatus.FAILED: _E.FAILED,
    JobStatus.FAILING: _E.FAILED,
    JobStatus.CANCELLING: _E.CANCELING,
    JobStatus.CANCELED: _E.CANCELED,
}
#: The states that a subtask spends time in before it has ended.
SPENT: Final = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING)


def job_start(view: JobView) -> int:
    """When the job began (ms)."""
    return min(view.since_ms.values(), default=view.now_ms)


def job_end(view: JobView) -> int:
    """When the job ended (ms); -1 while it has not."""
    return view.since_ms.get(view.status, view.now_ms) if view.status.is_terminal_state() else -1


def job_timestamps(view: JobView) -> dict[str, int]:
    """When the job last came to each status; 0 for those it never had."""
    stamps = {status.name: view.since_ms.get(status, 0) for status in JobStatus}
    return stamps | {"INITIALIZING": stamps["INITIALIZING"] or job_start(view)}


def state_of(view: JobView, subtask: SubtaskView) -> ExecutionState:
    """Where a subtask is; of tasks of the engine, what follows from the job."""
    return subtask.state or _OF_THE_ENGINE.get(view.status, _E.CREATED)


def since_of(view: JobView, subtask: SubtaskView) -> Mapping[ExecutionState, int]:
    """When a subtask came to each state; of tasks of the engine, what follows from the job."""
    if subtask.state is not None:
        return dict(subtask.since_ms)
    state = state_of(view, subtask)
    begun = view.since_ms.get(JobStatus.RUNNING)
    since = {_E.CREATED: job_start(view)}
    if begun is not None:
        since[_E.RUNNING] = begun
    if state.is_terminal:
        since[state] = view.since_ms.get(view.status, view.now_ms)
    return since


def subtask_start(view: JobView, subtask: SubtaskView) -> int:
    """When a subtask was deployed (ms), or when it was made; -1 if it was not."""
    since = since_of(view, subtask)
    for state in (_E.DEPLOYING, _E.RUNNING):
        if state in since:
            return since[state]
    return -1


def subtask_end(view: JobView, subtask: SubtaskView) -> int:
    """When a subtask ended (ms); -1 while it has not."""
    state = state_of(view, subtask)
    return since_of(view, subtask).get(state, view.now_ms) if state.is_terminal else -1


def duration(start_ms: int, end_ms: int, now_ms: int) -> int:
    """From the start to the end, or to now; -1 where there was no start."""
    return -1 if start_ms < 0 else max(0, (end_ms if end_ms >= 0 else now_ms) - start_ms)


def status_durations(view: JobView, subtask: SubtaskView) -> dict[str, int]:
    """How long a subtask was in each of the states before its end; -1 for those it has not come to."""
    since = sorted(since_of(view, subtask).items(), key=lambda item: item[1])
    spent = {state.name: -1 for state in SPENT}
    for place, (state, at_ms) in enumerate(since):
        if state.name in spent:
            until = since[place + 1][1] if place + 1 < len(since) else view.now_ms
            spent[state.name] = max(0, until - at_ms)
    return spent


def task_counts(states: Iterable[ExecutionState]) -> dict[str, int]:
    """How many tasks are in each state."""
    counts = Counter(state.name for state in states)
    return {name: counts[name] for name in TASK_STATES}


def state_of_all(states: list[ExecutionState]) -> ExecutionState:
    """The state of a vertex, made of those of its subtasks as Flink does it."""
    found = set(states)
    for state in (_E.FAILED, _E.CANCELING, _E.CANCELED, _E.INITIALIZING, _E.RUNNING):
        if state in found:
            return state
    if found == {_E.FINISHED}:
        return _E.FINISHED
    if _E.FINISHED in found:
        return _E.RUNNING
    return next((state for state in (_E.DEPLOYING, _E.SCHEDULED) if state in found), _E.CREATED)
