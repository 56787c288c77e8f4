"""Metrics of user functions (counters, gauges, distributions, meters), and the options of metrics and their reporters.

**Metrics** are registered in named groups. A metric belongs to the subtask that registered it. It is reported with the
subtask's own figures, about once a second and at the end of the subtask. A metric is not state: after a failure it
starts over.

`SlidingHistogram` describes the last numbers of a series, like Flink's `DescriptiveStatisticsHistogram`.

**Options** say which metrics to measure, who reports them, and how they are named.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from penstock.base.config_options import BOOLEAN, DURATION_MS, POSITIVE, STRING, Option, choice, option, unset
from penstock.base.errors import WrongValueError

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup", "MetricRegistry"]


class Metric:
    """Base of all metrics."""


M = TypeVar("M", bound=Metric)


class Counter(Metric):
    """A count that can go up and down.

    Examples:
        >>> from penstock.metrics import Counter
        >>> cups = Counter()
        >>> cups.inc(3)
        >>> cups.dec()
        >>> cups.get_count()
        2
    """

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Increment the count."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Decrement the count."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count."""
        return self._count


class Gauge(Metric):
    """A number that a function returns at each report; nothing is reported if it raises or returns no number.

    Examples:
        >>> from penstock.metrics import Gauge
        >>> waiting = ["tea", "rum"]
        >>> Gauge(lambda: len(waiting)).get_value()
        2
    """

    def __init__(self, function: Callable[[], int | float]) -> None:
        self._function = function

    def get_value(self) -> int | float | None:
        """Return the current number, or None if the function raises or returns something else."""
        try:
            value: object = self._function()
        except Exception:  # noqa: BLE001 - a figure is not worth a job
            return None
        return value if isinstance(value, int | float) else None


class Distribution(Metric):
    """The count, sum, minimum and maximum of numbers.

    Examples:
        >>> from penstock.metrics import Distribution
        >>> prices = Distribution()
        >>> for price in (2, 7):
        ...     prices.update(price)
        >>> prices.get_summary()
        (2, 9, 2, 7)
    """

    def __init__(self) -> None:
        self._count = 0
        self._sum: int | float = 0
        self._min: int | float = 0
        self._max: int | float = 0

    def update(self, value: int | float) -> None:
        """Add a number."""
        if self._count:
            self._min = min(self._min, value)
            self._max = max(self._max, value)
        else:
            self._min = self._max = value
        self._count += 1
        self._sum += value

    def get_summary(self) -> tuple[int, int | float, int | float, int | float]:
        """Return count, sum, minimum and maximum; zeros without any numbers."""
        return self._count, self._sum, self._min, self._max


class Meter(Metric):
    """A count of events, and their recent rate per second.

    Args:
        now_ms: the clock.
        time_span_in_seconds: the time over which the rate is computed.

    Examples:
        >>> from penstock.metrics import Meter
        >>> from penstock.testing import VirtualClock
        >>> clock = VirtualClock()
        >>> orders = Meter(clock.now_ms)
        >>> orders.mark_event(30)
        >>> clock.advance(10_000)
        >>> orders.get_count(), orders.get_rate()
        (30, 3.0)
    """

    def __init__(self, now_ms: Callable[[], int], time_span_in_seconds: int = 60) -> None:
        if time_span_in_seconds < 1:
            raise WrongValueError(f"the time span of a meter must be at least 1 s, not {time_span_in_seconds}")
        self._now_ms = now_ms
        self._span_ms = 1000 * time_span_in_seconds
        self._count = 0
        self._past = deque([(now_ms(), 0)])

    def mark_event(self, value: int = 1) -> None:
        """Count `value` events."""
        self._count += value

    def get_count(self) -> int:
        """Return the count of all events so far."""
        return self._count

    def get_rate(self) -> float:
        """Return the events per second over the time span, or since the start if that is shorter."""
        now, past = self._now_ms(), self._past
        while len(past) > 1 and past[1][0] <= now - self._span_ms:
            past.popleft()
        begun_ms, count = past[0]
        if now > past[-1][0]:
            past.append((now, self._count))
        return 1000 * (self._count - count) / (now - begun_ms) if now > begun_ms else 0.0


class MetricRegistry:
    """All metrics of one operator in one subtask, by full name."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.metrics: dict[str, Metric] = {}
        self.now_ms = now_ms

    def counters(self) -> dict[str, int]:
        """Return the values of counters, and the counts of meters."""
        return {n: m.get_count() for n, m in self.metrics.items() if isinstance(m, Counter | Meter)}

    def gauges(self) -> dict[str, float]:
        """Return the values of gauges, and the rates of meters as `<name>.rate`."""
        values: dict[str, float] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, Meter):
                values[f"{name}.rate"] = metric.get_rate()
            elif isinstance(metric, Gauge) and (value := metric.get_value()) is not None:
                values[name] = float(value)
        return values

    def distributions(self) -> dict[str, tuple[int, float, float, float]]:
        """Return the count, sum, minimum and maximum of each distribution."""
        summaries = {n: m.get_summary() for n, m in self.metrics.items() if isinstance(m, Distribution)}
        return {n: (count, float(total), float(low), float(high)) for n, (count, total, low, high) in summaries.items()}


class MetricGroup:
    """Metrics under a common name. A metric's full name joins the names of its groups and its own with dots.

    A second request for a metric returns the same one.

    Examples:
        >>> from penstock.datastream import MapFunction
        >>> from penstock.testing import harness_for
        >>> class Counted(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.group = runtime_context.get_metrics_group().add_group("shop")
        ...         self.cups = self.group.counter("cups")
        ...     def map(self, value):
        ...         self.cups.inc(value)
        ...         return self.cups.get_count()
        >>> with harness_for(Counted()) as harness:
        ...     harness.process_batch([2, 3])
        ...     harness.values
        [2, 5]
    """

    def __init__(self, registry: MetricRegistry, scope: tuple[str, ...] = ()) -> None:
        self._registry = registry
        self._scope = scope

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group nested in this one; with `extra`, the group of a key and a value."""
        return MetricGroup(self._registry, (*self._scope, name) if extra is None else (*self._scope, name, extra))

    def counter(self, name: str) -> Counter:
        """Return the counter of this name."""
        return self._registered(name, Counter, Counter)

    def gauge(self, name: str, obj: Callable[[], int | float]) -> None:
        """Register a gauge, whose number `obj` returns at each report."""
        self._registered(name, Gauge, lambda: Gauge(obj))

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of this name."""
        return self._registered(name, Distribution, Distribution)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Return the meter of this name; its rate is computed over this many seconds."""
        return self._registered(name, Meter, lambda: Meter(self._registry.now_ms, time_span_in_seconds))

    def _registered(self, name: str, kind: type[M], make: Callable[[], M]) -> M:
        full_name = ".".join((*self._scope, name))
        metric = self._registry.metrics.get(full_name)
        if metric is None:
            metric = self._registry.metrics[full_name] = make()
        if not isinstance(metric, kind):
            raise WrongValueError(f"metric {full_name!r} is already a {type(metric).__name__}, not a {kind.__name__}")
        return metric


#: The quantiles (0 to 1) that a histogram reports.
QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)

#: The count of all numbers; then, for the last ones, minimum, maximum, mean, standard deviation, and the quantiles
#: above.
HistogramFigures: TypeAlias = tuple[int, float, float, float, float, tuple[float, ...]]


class SlidingHistogram:
    """The last numbers of a series.

    Args:
        size: how many numbers to keep.
    """

    __slots__ = ("_last", "count")

    def __init__(self, size: int) -> None:
        #: the count of all numbers
        self.count = 0
        self._last: deque[float] = deque(maxlen=size)

    def update(self, value: float) -> None:
        """Add a number."""
        self.count += 1
        self._last.append(value)

    def figures(self) -> HistogramFigures:
        """Return the statistics; zeros without any numbers."""
        last = sorted(self._last) or [0.0]
        quantiles = tuple(last[min(len(last) - 1, int(share * len(last)))] for share in QUANTILES)
        return self.count, last[0], last[-1], statistics.fmean(last), statistics.pstdev(last), quantiles


# Metrics -------------------------------------------------------------------------------------------------------------

METRICS_REPORTERS = unset(
    "metrics.reporters",
    STRING,
    "The names of the reporters to start, separated by commas, each configured by `metrics.reporter.<name>.*`. If "
    "unset, all of them.",
)
TRACE_REPORTERS = unset(
    "traces.reporters",
    STRING,
    "The names of the trace reporters to start, separated by commas, each configured by `traces.reporter.<name>.*`. "
    "If unset, all of them.",
)
LATENCY_INTERVAL_MS = option(
    "metrics.latency.interval",
    DURATION_MS,
    0,
    "The interval at which sources send latency markers through a streaming job, whose ages measure the latency to "
    "each operator. 0 disables them. MICRO_BATCH and BATCH jobs have none.",
)
LATENCY_GRANULARITY = option(
    "metrics.latency.granularity",
    choice("single", "operator", "subtask"),
    "operator",
    "Whether each operator has one latency histogram, one per source, or one per subtask of a source.",
)
LATENCY_HISTORY_SIZE = option(
    "metrics.latency.history-size", POSITIVE, 128, "The number of latencies kept for each of these histograms."
)
METRICS_SCOPE_DELIMITER = option(
    "metrics.scope.delimiter",
    STRING,
    ".",
    "The delimiter between the parts of a metric's name, for reporters without labels.",
)


def _scope_format(key: str, default: str, whose: str) -> Option[str]:
    return option(key, STRING, default, f"The prefix of the metrics of {whose}, for reporters without labels.")


#: by Flink's logical scope
SCOPE_FORMATS = {
    "jobmanager": _scope_format("metrics.scope.jm", "<host>.jobmanager", "the driver"),
    "jobmanager.job": _scope_format("metrics.scope.jm-job", "<host>.jobmanager.<job_name>", "a job"),
    "jobmanager.job.operator": _scope_format(
        "metrics.scope.jm-operator", "<host>.jobmanager.<job_name>.<operator_name>", "an operator's part in the driver"
    ),
    "taskmanager": _scope_format("metrics.scope.tm", "<host>.taskmanager.<tm_id>", "a worker"),
    "taskmanager.job": _scope_format(
        "metrics.scope.tm-job", "<host>.taskmanager.<tm_id>.<job_name>", "a job on a worker"
    ),
    "taskmanager.job.task": _scope_format(
        "metrics.scope.task", "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>", "a subtask"
    ),
    "taskmanager.job.task.operator": _scope_format(
        "metrics.scope.operator",
        "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
        "an operator in a subtask",
    ),
}


def _rocksdb_metric(key: str, metric: str) -> Option[bool]:
    return option(key, BOOLEAN, False, f"Whether each operator with RocksDB reports {metric}.")


#: RocksDB's metrics of a store, by RocksDB's own names without `rocksdb.`
ROCKSDB_METRICS = {
    key.rpartition(".")[2]: _rocksdb_metric(key, metric)
    for key, metric in {
        "state.backend.rocksdb.metrics.num-immutable-mem-table": "the number of write buffers not yet flushed",
        "state.backend.rocksdb.metrics.mem-table-flush-pending": "whether a flush is pending",
        "state.backend.rocksdb.metrics.compaction-pending": "whether a compaction is pending",
        "state.backend.rocksdb.metrics.background-errors": "the number of background errors",
        "state.backend.rocksdb.metrics.cur-size-active-mem-table": "the size of the active write buffer",
        "state.backend.rocksdb.metrics.cur-size-all-mem-tables": "the size of the active and unflushed write buffers",
        "state.backend.rocksdb.metrics.size-all-mem-tables": "the size of all write buffers, including pinned ones",
        "state.backend.rocksdb.metrics.num-entries-active-mem-table": "the number of entries in the active write "
        "buffer",
        "state.backend.rocksdb.metrics.num-entries-imm-mem-tables": "the number of entries in the unflushed write "
        "buffers",
        "state.backend.rocksdb.metrics.num-deletes-active-mem-table": "the number of deletions in the active write "
        "buffer",
        "state.backend.rocksdb.metrics.num-deletes-imm-mem-tables": "the number of deletions in the unflushed write "
        "buffers",
        "state.backend.rocksdb.metrics.estimate-num-keys": "the approximate number of keys",
        "state.backend.rocksdb.metrics.estimate-table-readers-mem": "the approximate memory for reading files, "
        "without the block cache",
        "state.backend.rocksdb.metrics.num-snapshots": "the number of unreleased snapshots",
        "state.backend.rocksdb.metrics.num-live-versions": "the number of live versions of its set of files",
        "state.backend.rocksdb.metrics.estimate-live-data-size": "the approximate size of live data",
        "state.backend.rocksdb.metrics.total-sst-files-size": "the size of all files",
        "state.backend.rocksdb.metrics.live-sst-files-size": "the size of the files of the latest version",
        "state.backend.rocksdb.metrics.estimate-pending-compaction-bytes": "the approximate number of bytes to compact",
        "state.backend.rocksdb.metrics.num-running-compactions": "the number of running compactions",
        "state.backend.rocksdb.metrics.num-running-flushes": "the number of running flushes",
        "state.backend.rocksdb.metrics.actual-delayed-write-rate": "the delayed write rate in bytes per second; 0 if "
        "writes are not delayed",
        "state.backend.rocksdb.metrics.is-write-stopped": "whether writes are stopped",
        "state.backend.rocksdb.metrics.block-cache-capacity": "the capacity of the block cache",
        "state.backend.rocksdb.metrics.block-cache-usage": "the size of the block cache",
        "state.backend.rocksdb.metrics.block-cache-pinned-usage": "the size of the pinned entries in the block cache",
        "state.backend.rocksdb.metrics.num-files-at-level": "the number of files at each level",
    }.items()
}

STATE_LATENCY_ENABLED = option(
    "state.latency-track.keyed-state-enabled",
    BOOLEAN,
    False,
    "Whether streaming jobs measure the latency of their functions' accesses to keyed state.",
)
STATE_LATENCY_SAMPLE_INTERVAL = option(
    "state.latency-track.sample-interval", POSITIVE, 100, "With n, one in n accesses of a kind is timed."
)
STATE_LATENCY_HISTORY_SIZE = option(
    "state.latency-track.history-size", POSITIVE, 128, "The number of latencies of each kind kept for a histogram."
)
STATE_LATENCY_NAME_AS_VARIABLE = option(
    "state.latency-track.state-name-as-variable",
    BOOLEAN,
    True,
    "Whether the state's name is a label (`state_name`) of these metrics instead of a part of their names.",
)
