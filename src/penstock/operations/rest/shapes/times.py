"""When a job and its subtasks entered each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.base.job_status import JobStatus
from penstock.core.graph.states import ExecutionState
from penstock.core.job.view import JobView, SubtaskView

#: Flink's names of task states; Penstock's jobs never enter RECONCILING.
TASK_STATES: Final = (*(state.name for state in ExecutionState), "RECONCILING")
_E = ExecutionState
#: The state of the engine's tasks, by the status of their job.
_OF_THE_ENGINE: Final = {
    JobStatus.RUNNING: _E.RUNNING,
    JobStatus.FINISHED: _E.FINISHED,
    JobStatus.FAILED: _E.FAILED,
    JobStatus.FAILING: _E.FAILED,
    JobStatus.CANCELLING: _E.CANCELING,
    JobStatus.CANCELED: _E.CANCELED,
}
#: The states before the end, whose durations subtasks report.
SPENT: Final = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING)


def job_start(view: JobView) -> int:
    """Return when the job began (ms)."""
    return min(view.since_ms.values(), default=view.now_ms)


def job_end(view: JobView) -> int:
    """Return when the job ended (ms); -1 before that."""
    return view.since_ms.get(view.status, view.now_ms) if view.status.is_terminal_state() else -1


def job_timestamps(view: JobView) -> dict[str, int]:
    """Return when the job last entered each status; 0 if it never did."""
    stamps = {status.name: view.since_ms.get(status, 0) for status in JobStatus}
    return stamps | {"INITIALIZING": stamps["INITIALIZING"] or job_start(view)}


def derive_state(view: JobView, subtask: SubtaskView) -> ExecutionState:
    """Return the state of a subtask; for the engine's tasks, derive it from the job."""
    return subtask.state or _OF_THE_ENGINE.get(view.status, _E.CREATED)


def derive_state_times(view: JobView, subtask: SubtaskView) -> Mapping[ExecutionState, int]:
    """Return when a subtask entered each state; for the engine's tasks, derive it from the job."""
    if subtask.state is not None:
        return dict(subtask.since_ms)
    state = derive_state(view, subtask)
    begun = view.since_ms.get(JobStatus.RUNNING)
    since = {_E.CREATED: job_start(view)}
    if begun is not None:
        since[_E.RUNNING] = begun
    if state.is_terminal:
        since[state] = view.since_ms.get(view.status, view.now_ms)
    return since


def subtask_start(view: JobView, subtask: SubtaskView) -> int:
    """Return when a subtask was deployed (ms), or else when it began to run; -1 before that."""
    since = derive_state_times(view, subtask)
    for state in (_E.DEPLOYING, _E.RUNNING):
        if state in since:
            return since[state]
    return -1


def subtask_end(view: JobView, subtask: SubtaskView) -> int:
    """Return when a subtask ended (ms); -1 before that."""
    state = derive_state(view, subtask)
    return derive_state_times(view, subtask).get(state, view.now_ms) if state.is_terminal else -1


def duration(start_ms: int, end_ms: int, now_ms: int) -> int:
    """Return the duration from the start to the end, or to now; -1 without a start."""
    return -1 if start_ms < 0 else max(0, (end_ms if end_ms >= 0 else now_ms) - start_ms)


def status_durations(view: JobView, subtask: SubtaskView) -> dict[str, int]:
    """Return how long a subtask spent in each state before its end; -1 for states that it has not entered."""
    since = sorted(derive_state_times(view, subtask).items(), key=lambda item: item[1])
    spent = {state.name: -1 for state in SPENT}
    for index, (state, at_ms) in enumerate(since):
        if state.name in spent:
            until = since[index + 1][1] if index + 1 < len(since) else view.now_ms
            spent[state.name] = max(0, until - at_ms)
    return spent


def task_counts(states: Iterable[ExecutionState]) -> dict[str, int]:
    """Count the tasks in each state."""
    counts = Counter(state.name for state in states)
    return {name: counts[name] for name in TASK_STATES}


def state_of_all(states: list[ExecutionState]) -> ExecutionState:
    """Derive the state of a vertex from its subtasks' states, as Flink does."""
    present = set(states)
    for state in (_E.FAILED, _E.CANCELING, _E.CANCELED, _E.INITIALIZING, _E.RUNNING):
        if state in present:
            return state
    if present == {_E.FINISHED}:
        return _E.FINISHED
    if _E.FINISHED in present:
        return _E.RUNNING
    return next((state for state in (_E.DEPLOYING, _E.SCHEDULED) if state in present), _E.CREATED)
