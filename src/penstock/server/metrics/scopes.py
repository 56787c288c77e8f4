"""Scopes: the owner of a metric, its name, and the variables that identify it.

The kind of a metric by its name, for filters and for reporters that distinguish kinds.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.metric_options import SCOPE_FORMATS
from penstock.base.metrics import HistogramFigures


@dataclass(frozen=True)
class Summary:
    """The numbers that a histogram or a distribution has received, in summary.

    Attributes:
        count: the number of them.
        total: their sum.
        least: the minimum.
        greatest: the maximum.
    """

    count: int
    total: float
    least: float
    greatest: float

    @property
    def mean(self) -> float:
        """The average; 0 without numbers."""
        return self.total / self.count if self.count else 0.0

    def flattened(self, name: str) -> dict[str, int | float]:
        """Return one metric for each figure, under Flink's names for the figures of histograms."""
        figures = (self.count, self.total, self.least, self.greatest, self.mean)
        return {f"{name}_{suffix}": figure for suffix, figure in zip(_FIGURES, figures, strict=True)}


@dataclass(frozen=True)
class Histogram(Summary):
    """The summary of a histogram of the runtime. All figures except the count cover only the latest numbers.

    Attributes:
        deviation: the standard deviation.
        bounds: the quantiles listed in `penstock.base.metrics`.
    """

    deviation: float
    bounds: tuple[float, ...]

    @classmethod
    def of(cls, figures: HistogramFigures) -> Histogram:
        """Create the summary from a task's report."""
        count, least, greatest, mean, deviation, bounds = figures
        return cls(count, mean * count, least, greatest, deviation, bounds)

    def flattened(self, name: str) -> dict[str, int | float]:
        """Return the figures under Flink's names."""
        figures = {"count": self.count, "min": self.least, "max": self.greatest, "mean": self.mean}
        bounds = dict(zip(_BOUNDS, self.bounds, strict=True))
        return {
            f"{name}_{suffix}": figure for suffix, figure in {**figures, "stddev": self.deviation, **bounds}.items()
        }


#: Variables that are part of a metric's name.
_OF_GROUPS: Final = {"state_name", "source_id", "source_subtask_index", "operator_id", "operator_subtask_index"}
_BOUNDS: Final = ("median", "p75", "p90", "p95", "p98", "p99", "p999")
_FIGURES: Final = ("count", "sum", "min", "max", "mean")

Value: TypeAlias = int | float | str | bool | Summary


class Scope(enum.Enum):
    """The owner of a metric; the value is Flink's logical scope."""

    JOB_MANAGER = "jobmanager"
    JOB = "jobmanager.job"
    JOB_MANAGER_OPERATOR = "jobmanager.job.operator"
    TASK_MANAGER = "taskmanager"
    JOB_ON_TASK_MANAGER = "taskmanager.job"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"


@dataclass(frozen=True)
class Scoped:
    """The metrics of one process, job, task or operator.

    Attributes:
        scope: the kind of owner.
        variables: the variables that identify it, by names such as `job_name`.
        values: by name, including dots.
        counters: the names of the counters of user-defined functions.
    """

    scope: Scope
    variables: Mapping[str, str]
    values: Mapping[str, Value]
    counters: frozenset[str] = field(default_factory=frozenset)


def of_operator(operator_name: str, name: str) -> str:
    """Return the name of an operator's metric among the metrics of its task, as in Flink's REST API."""
    return f"{''.join(c if c.isalnum() else '_' for c in operator_name)}.{name}"


def spelled(scoped: Scoped, name: str) -> str:
    """Return a metric's name including the values of its variables, for consumers without labels."""
    values = scoped.variables
    if name.partition(".")[0] not in ("latency", "state_name"):
        return name
    return ".".join(
        f"{part}.{values[part]}" if part in values and part in _OF_GROUPS else part for part in name.split(".")
    )


def flat(values: Mapping[str, Value]) -> dict[str, str | int | float]:
    """Return the metrics as single numbers and strings. Booleans are strings, as in Java."""
    single: dict[str, str | int | float] = {}
    for name, value in values.items():
        if isinstance(value, Summary):
            single.update(value.flattened(name))
        else:
            single[name] = str(value).lower() if isinstance(value, bool) else value
    return single


class ScopeFormats:
    """The prefixes of metric names from the options `metrics.scope.*`, for reporters that send names without labels."""

    def __init__(self, configuration: Configuration, delimiter: str = ".") -> None:
        self._formats = {scope: configuration.read(SCOPE_FORMATS[scope.value]) for scope in Scope}
        self._delimiter = delimiter

    def format_metric_name(self, scoped: Scoped, name: str) -> str:
        """Return the full name of a metric."""
        variables = scoped.variables
        parts = self._formats[scoped.scope].split(".")
        filled = [re.sub(r"<(\w+)>", lambda match: variables.get(match[1], match[0]), part) for part in parts]
        return self._delimiter.join([*filled, *spelled(scoped, name).split(".")])


COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
METER: Final = "meter"

_COUNTERS: Final = {
    *("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numBuffersOut"),
    *("numLateRecordsDropped", "numRecordsSend", "numRecordsSendErrors", "numRecordsInErrors"),
    *("numFiredTimers", "numBytesSend", "numRecordsOutErrors"),
    *("numBytesInLocal", "numBytesInRemote", "numBuffersInLocal", "numBuffersInRemote"),
}
_METERS: Final = {
    *("numRecordsInPerSecond", "numRecordsOutPerSecond", "numBytesInPerSecond", "numBytesOutPerSecond"),
    *("numBuffersOutPerSecond", "mailboxMailsPerSecond", "idleTimeMsPerSecond", "numFiredTimersPerSecond"),
    *("numBytesInLocalPerSecond", "numBytesInRemotePerSecond"),
    *("numBuffersInLocalPerSecond", "numBuffersInRemotePerSecond"),
}
#: The prefix of a second listing of some of these in Flink.
_INPUT: Final = "Shuffle.Netty.Input."


def grows_only(name: str) -> bool:
    """Return whether it is one of Penstock's own counters, which never decrease within an attempt."""
    return name.removeprefix(_INPUT) in _COUNTERS


def classify_metric(scoped: Scoped, name: str, value: Value) -> str:
    """Return one of the four kinds, as in Flink; a distribution is a histogram."""
    if isinstance(value, Summary):
        return HISTOGRAM
    name = name.removeprefix(_INPUT)
    if name in _COUNTERS or name in scoped.counters:
        return COUNTER
    return METER if name in _METERS else GAUGE
