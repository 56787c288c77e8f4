"""Metrics of tasks and of the operators in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.base.histograms import QUANTILES, HistogramFigures
from penstock.core.graph.job_graph import OperatorInfo
from penstock.core.job.view import SubtaskView, VertexView
from penstock.core.operators.watermarks import LATE_RECORDS
from penstock.core.protocol import ExecutionId, OperatorFigures, TaskFigures, TaskMetrics
from penstock.core.records import MAX_WATERMARK, MIN_TIMESTAMP
from penstock.operations.metrics.rates import SubtaskRates
from penstock.operations.metrics.scopes import Histogram, Summary, Value

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
