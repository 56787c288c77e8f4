"""Metrics of tasks, of the operators in them, and of a job itself: its status and its checkpoints.

`Rates` are rates per second, computed from totals in two views of a job. The other view is some seconds old, so a rate
is the average over these seconds. For a task that has begun since, or a job that is observed for the first time, it is
the average over its life so far.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from penstock.base.job import JobStatus
from penstock.base.metrics import QUANTILES, HistogramFigures
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatistics
from penstock.runtime.graph import ExecutionState, OperatorInfo
from penstock.runtime.job.view import JobView, SubtaskView, VertexView
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.protocol import ExecutionId, OperatorFigures, TaskFigures, TaskMetrics
from penstock.runtime.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.server.metrics.scopes import Histogram, Summary, Value

#: Minimum period (ms) of a rate, once the job has been observed for that long.
RATE_SPAN_MS: Final = 10_000
#: How much (ms) the interval between two reports may differ from the interval between their views, at most.
SLACK_MS: Final = 1_500
#: Minimum interval (ms) between the views that are kept for this.
SPACING_MS: Final = 1_000

_NO_FIGURES: Final = TaskFigures()


class History:
    """The latest views of a job: at most one per second, over little more than the period of a rate."""

    def __init__(self, span_ms: int = RATE_SPAN_MS, spacing_ms: int = SPACING_MS) -> None:
        self._span_ms = span_ms
        self._spacing_ms = spacing_ms
        self._views: deque[JobView] = deque()

    def __len__(self) -> int:
        return len(self._views)

    def add(self, view: JobView) -> JobView | None:
        """Add a newer view. Returns the view to compare it with, None for the first."""
        views = self._views
        while len(views) > 1 and views[1].now_ms <= view.now_ms - self._span_ms:
            views.popleft()
        base = views[0] if views else None
        if not views or view.now_ms >= views[-1].now_ms + self._spacing_ms:
            views.append(view)
        return base


@dataclass(frozen=True)
class SubtaskRates:
    """The rates of one subtask.

    Attributes:
        elapsed_ms: the time between the two reports; 0 if the subtask has ended.
        earlier: its report in the earlier view; zeros if it had not begun.
        waited_ms: the part of that time that it has not accounted for, because it has made no step since.
    """

    elapsed_ms: float
    earlier: TaskMetrics
    waited_ms: float = 0

    def per_second(self, total: float, earlier: float) -> float:
        """Return the growth of a total per second."""
        return max(0.0, 1000 * (total - earlier) / self.elapsed_ms) if self.elapsed_ms > 0 else 0.0

    @property
    def figures(self) -> TaskFigures:
        """The earlier figures."""
        return self.earlier.figures or _NO_FIGURES

    def operator(self, operator_id: str) -> OperatorFigures:
        """Return the earlier figures of one of its operators."""
        known = (operator for operator in self.figures.operators if operator.operator_id == operator_id)
        return next(known, OperatorFigures(operator_id))


class Rates:
    """The rates of a job's subtasks and workers, between two views."""

    def __init__(self, view: JobView, base: JobView | None = None) -> None:
        self.view = view
        self.base = base

    def of_subtask(self, vertex: int, subtask: SubtaskView) -> SubtaskRates:
        """Return the rates of a subtask that has reported."""
        metrics = subtask.metrics
        assert metrics is not None, "a subtask without a report has no rates"
        earlier = self._earlier(vertex, metrics)
        before = earlier or TaskMetrics(metrics.execution, 0, 0, MIN_TIMESTAMP)
        measured = _measured_ms(metrics)
        elapsed_ms = self._elapsed_ms(subtask, is_first=earlier is None)
        if measured is None:
            return SubtaskRates(elapsed_ms, before)
        accounted_ms = measured - (_measured_ms(before) or 0)
        waited_ms = elapsed_ms - accounted_ms
        if waited_ms <= SLACK_MS:
            return SubtaskRates(accounted_ms, before)
        return SubtaskRates(elapsed_ms, before, waited_ms)

    def _elapsed_ms(self, subtask: SubtaskView, *, is_first: bool) -> int:
        """Return the time since the earlier view or the subtask's start, by the views' clock; 0 if it has ended."""
        if subtask.state is None or subtask.state.is_terminal:
            return 0
        if self.base is not None and not is_first:
            return self.view.now_ms - self.base.now_ms
        return self.view.now_ms - dict(subtask.since_ms).get(ExecutionState.RUNNING, self.view.now_ms)

    def _earlier(self, vertex: int, metrics: TaskMetrics) -> TaskMetrics | None:
        if self.base is None or vertex >= len(self.base.vertices):
            return None
        subtasks, index = self.base.vertices[vertex].subtasks, metrics.execution.subtask
        known = subtasks[index].metrics if index < len(subtasks) else None
        return known if known is not None and known.execution == metrics.execution else None

    def of_process(self, total: float, earlier: float | None) -> float:
        """Return the growth of a total of a worker's process per second; 0 while there is only one report."""
        if self.base is None or earlier is None or self.view.now_ms <= self.base.now_ms:
            return 0.0
        return max(0.0, 1000 * (total - earlier) / (self.view.now_ms - self.base.now_ms))


def _measured_ms(metrics: TaskMetrics) -> int | None:
    """Return how long the attempt had run at the report, by its own clock; None if it was not measured."""
    figures = metrics.figures
    return None if figures is None else figures.busy_ms + figures.back_pressured_ms + figures.idle_ms


_NANOS: Final = 1_000_000
#: An empty histogram.
NO_NUMBERS: Final[HistogramFigures] = (0, 0.0, 0.0, 0.0, 0.0, (0.0,) * len(QUANTILES))
#: Flink's value for an unknown lag.
UNDEFINED: Final = -1
#: The counters of a sink unless its connector counts them: a record that cannot be sent fails the job.
SENT: Final[dict[str, Value]] = {"numBytesSend": 0, "numRecordsSendErrors": 0, "numRecordsOutErrors": 0}
#: Counters of operators and connectors that have other names in Flink.
_FLINK_NAMES: Final = {LATE_RECORDS: "numLateRecordsDropped", "malformed_records": "numRecordsInErrors"}


def task_metrics(metrics: TaskMetrics, rates: SubtaskRates, is_source: bool) -> dict[str, Value]:
    """Return the metrics of a task, and of user-defined functions whose operator is unknown."""
    earlier = rates.earlier
    values: dict[str, Value] = {
        "numRecordsIn": metrics.records_in,
        "numRecordsInPerSecond": rates.per_second(metrics.records_in, earlier.records_in),
        "numRecordsOut": metrics.records_out,
        "numRecordsOutPerSecond": rates.per_second(metrics.records_out, earlier.records_out),
    }
    if not is_source:
        values["currentInputWatermark"] = metrics.watermark_ms
    if metrics.figures is not None:
        values.update(_of_figures(metrics.figures, rates))
    else:
        values.update(user_metrics(metrics))
    return values


def nothing_counted(vertex: VertexView, subtask: SubtaskView) -> SubtaskView:
    """Return a subtask that has not reported yet with a report of zeros."""
    operators = tuple(OperatorFigures(info.operator_id) for info in vertex.infos)
    execution = ExecutionId(vertex.index, subtask.subtask, subtask.attempt)
    metrics = TaskMetrics(execution, 0, 0, MIN_TIMESTAMP, figures=TaskFigures(operators=operators))
    return replace(subtask, metrics=metrics)


def _of_figures(figures: TaskFigures, rates: SubtaskRates) -> dict[str, Value]:
    before = rates.figures
    return {
        **_times(figures, before, rates.waited_ms),
        "isBackPressured": figures.is_back_pressured,
        "accumulateBusyTimeMs": figures.busy_ms,
        "accumulateBackPressuredTimeMs": figures.back_pressured_ms,
        "accumulateIdleTimeMs": figures.idle_ms,
        "initializationTime": figures.initialization_ms,
        "numBytesIn": figures.bytes_in,
        "numBytesInPerSecond": rates.per_second(figures.bytes_in, before.bytes_in),
        "numBytesOut": figures.bytes_out,
        "numBytesOutPerSecond": rates.per_second(figures.bytes_out, before.bytes_out),
        "numBuffersOut": figures.buffers_out,
        "numBuffersOutPerSecond": rates.per_second(figures.buffers_out, before.buffers_out),
        **_buffers(figures),
        **_inputs(figures, rates),
        "numFiredTimers": figures.fired_timers,
        "numFiredTimersPerSecond": rates.per_second(figures.fired_timers, before.fired_timers),
        "mailboxMailsPerSecond": rates.per_second(figures.mails, before.mails),
        "mailboxQueueSize": figures.mails_queued,
        "mailboxLatencyMs": Histogram.of(figures.mailbox_latency or NO_NUMBERS),
        "checkpointStartDelayNanos": figures.checkpoint_start_delay_ms * _NANOS,
        "checkpointAlignmentTime": figures.checkpoint_alignment_ms * _NANOS,
    }


def _buffers(figures: TaskFigures) -> dict[str, Value]:
    """Return the full buffers that wait: in buffers, in bytes and as a share of the maximum.

    A channel has only its own buffers, which Flink calls exclusive.
    """
    queued_in, queued_out = figures.buffers_queued_in, figures.buffers_queued_out
    usage_in = queued_in / figures.buffers_in_max if figures.buffers_in_max else 0.0
    usage_out = queued_out / figures.buffers_out_max if figures.buffers_out_max else 0.0
    return {
        "Shuffle.Netty.Input.Buffers.inputQueueLength": queued_in,
        "Shuffle.Netty.Input.Buffers.inputQueueSize": queued_in * figures.bytes_in // max(1, figures.buffers_in),
        "Shuffle.Netty.Input.Buffers.inPoolUsage": usage_in,
        "Shuffle.Netty.Input.Buffers.inputExclusiveBuffersUsage": usage_in,
        "Shuffle.Netty.Input.Buffers.inputFloatingBuffersUsage": 0.0,
        "Shuffle.Netty.Output.Buffers.outputQueueLength": queued_out,
        "Shuffle.Netty.Output.Buffers.outputQueueSize": queued_out * figures.bytes_out // max(1, figures.buffers_out),
        "Shuffle.Netty.Output.Buffers.outPoolUsage": usage_out,
    }


def _inputs(figures: TaskFigures, rates: SubtaskRates) -> dict[str, Value]:
    """Return the input from tasks of the same worker, and from others. Flink lists it in two places."""
    before = rates.figures
    pairs = {
        "numBytesInLocal": (figures.bytes_in - figures.bytes_in_remote, before.bytes_in - before.bytes_in_remote),
        "numBytesInRemote": (figures.bytes_in_remote, before.bytes_in_remote),
        "numBuffersInLocal": (
            figures.buffers_in - figures.buffers_in_remote,
            before.buffers_in - before.buffers_in_remote,
        ),
        "numBuffersInRemote": (figures.buffers_in_remote, before.buffers_in_remote),
    }
    values: dict[str, Value] = {}
    for name, (now, earlier) in pairs.items():
        rate = rates.per_second(now, earlier)
        values[name] = values[f"Shuffle.Netty.Input.{name}"] = now
        values[f"{name}PerSecond"] = values[f"Shuffle.Netty.Input.{name}PerSecond"] = rate
    return values


def _times(now: TaskFigures, before: TaskFigures, waited_ms: float) -> dict[str, Value]:
    """Return how each second was spent. The three times add up to 1,000 ms, because each moment belongs to one of them.

    A task that has made no step for a while has waited for the same thing as now.
    """
    busy, back_pressured = float(now.busy_ms - before.busy_ms), float(now.back_pressured_ms - before.back_pressured_ms)
    idle = float(now.idle_ms - before.idle_ms)
    if now.is_back_pressured:
        back_pressured += waited_ms
    else:
        idle += waited_ms
    total = busy + back_pressured + idle
    shares = [1000 * part / total if total > 0 else 0.0 for part in (busy, back_pressured, idle)]
    return {
        "busyTimeMsPerSecond": shares[0],
        "backPressuredTimeMsPerSecond": shares[1],
        "idleTimeMsPerSecond": shares[2],
        # A task that waits for its consumers never blocks its thread, so no back-pressure is hard.
        "softBackPressuredTimeMsPerSecond": shares[1],
        "hardBackPressuredTimeMsPerSecond": 0.0,
        "maxSoftBackPressureTimeMs": now.longest_back_pressure_ms,
        "maxHardBackPressureTimeMs": 0,
        "changelogBusyTimeMsPerSecond": 0.0,
    }


def user_metrics(metrics: TaskMetrics | OperatorFigures) -> dict[str, Value]:
    """Return the metrics of operators, connectors and user-defined functions."""
    return {
        **{_FLINK_NAMES.get(name, name): count for name, count in metrics.counters.items()},
        **metrics.gauges,
        **{name: Summary(*summary) for name, summary in metrics.distributions.items()},
    }


def counter_names(metrics: TaskMetrics | OperatorFigures) -> frozenset[str]:
    """Return the names of the counters among them."""
    return frozenset(_FLINK_NAMES.get(name, name) for name in metrics.counters)


def operator_metrics(
    vertex: VertexView,
    info: OperatorInfo,
    figures: OperatorFigures,
    task: TaskFigures,
    rates: SubtaskRates,
    now_ms: int,
) -> dict[str, Value]:
    """Return the metrics of an operator. Metrics of its kind exist from the beginning, with 0."""
    before, is_source = rates.operator(info.operator_id), vertex.is_source and info is vertex.infos[0]
    values: dict[str, Value] = {
        # a source reads the records that it emits
        "numRecordsIn": figures.records_out if is_source else figures.records_in,
        "numRecordsInPerSecond": rates.per_second(
            *((figures.records_out, before.records_out) if is_source else (figures.records_in, before.records_in))
        ),
        "numRecordsOut": figures.records_out,
        "numRecordsOutPerSecond": rates.per_second(figures.records_out, before.records_out),
        "currentOutputWatermark": figures.output_watermark_ms,
    }
    if info is vertex.infos[0]:
        values["numBytesIn"] = task.bytes_in
        values["numBytesInPerSecond"] = rates.per_second(task.bytes_in, rates.figures.bytes_in)
    if info is vertex.infos[-1]:
        values["numBytesOut"] = task.bytes_out
        values["numBytesOutPerSecond"] = rates.per_second(task.bytes_out, rates.figures.bytes_out)
    if is_source:
        values["watermarkLag"] = _lag(figures.output_watermark_ms, now_ms)
        values.update(numRecordsInErrors=0, currentEmitEventTimeLag=UNDEFINED, sourceIdleTime=0)
    else:
        values["currentInputWatermark"] = figures.input_watermark_ms
    if "Window" in info.kind or "Interval Join" in info.kind:
        values["numLateRecordsDropped"] = 0
    values.update(figures.measured)
    values.update(user_metrics(figures))
    if (read := figures.counters.get("numBytesIn")) is not None:  # bytes read from outside, as counted by a connector
        values["numBytesInPerSecond"] = rates.per_second(read, before.counters.get("numBytesIn", 0))
    return values


def _lag(watermark_ms: int, now_ms: int) -> int:
    return UNDEFINED if watermark_ms in (MIN_TIMESTAMP, MAX_WATERMARK) else now_ms - watermark_ms


#: Flink's values for something that has not happened yet.
NEVER: Final = -1
NO_PATH: Final = "n/a"

_STATES: Final = tuple(
    status for status in JobStatus if not status.is_terminal_state() and status is not JobStatus.RECONCILING
)


def job_metrics(view: JobView, rescales: int) -> dict[str, Value]:
    """Return the metrics of a job, given the number of its rescales."""
    return {
        **_status_times(view),
        "numRestarts": view.restarts,
        "numRescales": rescales,
        "numSlowWorkers": sum(worker.slow is not None for worker in view.workers),
        **_checkpoints(view.checkpoints),
        "numberOfInProgressCheckpoints": len(view.in_progress),
    }


def _status_times(view: JobView) -> dict[str, Value]:
    now, is_running = view.now_ms, view.status is JobStatus.RUNNING
    values: dict[str, Value] = {}
    for status in _STATES:
        is_now, name = view.status is status, status.name.lower()
        values[f"{name}State"] = int(is_now)
        values[f"{name}Time"] = max(0, now - view.since_ms.get(status, now)) if is_now else 0
    running_ms = now - view.since_ms.get(JobStatus.RUNNING, now) if is_running else 0
    down_since = max((at for status, at in view.since_ms.items() if status is not JobStatus.RUNNING), default=now)
    is_over = view.status.is_terminal_state()
    subtasks = [subtask for vertex in view.vertices for subtask in vertex.subtasks]
    deploying = [subtask for subtask in subtasks if subtask.state is ExecutionState.DEPLOYING]
    deploying_since = min(
        (dict(subtask.since_ms).get(ExecutionState.DEPLOYING, now) for subtask in deploying), default=now
    )
    return {
        **values,
        "deployingState": int(is_running and bool(deploying)),
        "deployingTime": max(0, now - deploying_since) if is_running else 0,
        "uptime": NEVER if is_over else max(0, running_ms),
        "downtime": NEVER if is_over else 0 if is_running else max(0, now - down_since),
        "allSubTasksRunningOrFinishedTime": max(0, now - _all_run_since(subtasks, now)) if is_running else 0,
    }


def _all_run_since(subtasks: list[SubtaskView], now: int) -> int:
    since = []
    for subtask in subtasks:
        if subtask.state not in (ExecutionState.RUNNING, ExecutionState.FINISHED):
            return now
        times = dict(subtask.since_ms)
        since.append(times.get(ExecutionState.RUNNING, times.get(subtask.state, now)))
    return max(since, default=now)


def _checkpoints(checkpoints: CheckpointStatistics) -> dict[str, Value]:
    last, restored = _newer(checkpoints.last, checkpoints.last_savepoint), checkpoints.restored
    return {
        "lastCheckpointDuration": NEVER if last is None else last.duration_ms,
        "lastCheckpointSize": NEVER if last is None else last.stored_bytes,
        "lastCheckpointFullSize": NEVER if last is None else last.state_bytes,
        "lastCheckpointPersistedData": NEVER if last is None else last.persisted_bytes,
        "lastCheckpointProcessedData": NEVER if last is None else last.processed_bytes,
        "lastCheckpointMetadataSize": NEVER if last is None else last.metadata_bytes,
        "lastCompletedCheckpointId": NEVER if last is None else last.checkpoint_id,
        "lastCheckpointCompletedTimestamp": NEVER if last is None else last.triggered_ms + last.duration_ms,
        "lastCheckpointExternalPath": NO_PATH if last is None or last.path is None else last.path,
        "lastCheckpointRestoreTimestamp": NEVER if restored is None else restored.at_ms,
        "numberOfCompletedCheckpoints": checkpoints.completed + checkpoints.savepoints,
        "numberOfFailedCheckpoints": checkpoints.failed + checkpoints.given_up,
        "totalNumberOfCheckpoints": checkpoints.triggered,
    }


def _newer(left: CheckpointRecord | None, right: CheckpointRecord | None) -> CheckpointRecord | None:
    known = [record for record in (left, right) if record is not None]
    return max(known, key=lambda record: record.checkpoint_id, default=None)
