"""Scopes: to whom a metric belongs, under which name that is known, and what tells one from another."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.base.configuration import Configuration
from penstock.base.histograms import HistogramFigures
from penstock.base.metric_options import SCOPE_FORMATS


@dataclass(frozen=True)
class Summary:
    """What a histogram or a distribution has seen.

    Attributes:
        count: how many numbers.
        total: their sum.
        least: the least.
        greatest: the greatest.
    """

    count: int
    total: float
    least: float
    greatest: float

    @property
    def mean(self) -> float:
        """The average; 0 when there were no numbers."""
        return self.total / self.count if self.count else 0.0

    def flattened(self, name: str) -> dict[str, int | float]:
        """One metric for each figure, under Flink's names for those of histograms."""
        figures = (self.count, self.total, self.least, self.greatest, self.mean)
        return {f"{name}_{what}": figure for what, figure in zip(_FIGURES, figures, strict=True)}


@dataclass(frozen=True)
class Histogram(Summary):
    """What a histogram of the runtime has seen; all but the count are of the last numbers.

    Attributes:
        deviation: the standard deviation.
        bounds: the quantiles that `penstock.base.histograms` names.
    """

    deviation: float
    bounds: tuple[float, ...]

    @classmethod
    def of(cls, figures: HistogramFigures) -> Histogram:
        """Of what a task has reported."""
        count, least, greatest, mean, deviation, bounds = figures
        return cls(count, mean * count, least, greatest, deviation, bounds)

    def flattened(self, name: str) -> dict[str, int | float]:
        """Under Flink's names."""
        others = {"count": self.count, "min": self.least, "max": self.greatest, "mean": self.mean}
        bounds = dict(zip(_BOUNDS, self.bounds, strict=True))
        return {f"{name}_{what}": one for what, one in {**others, "stddev": self.deviation, **bounds}.items()}


#: Variables that are parts of a metric's name.
_OF_GROUPS: Final = {"state_name", "source_id", "source_subtask_index", "operator_id", "operator_subtask_index"}
_BOUNDS: Final = ("median", "p75", "p90", "p95", "p98", "p99", "p999")
_FIGURES: Final = ("count", "sum", "min", "max", "mean")

Value: TypeAlias = int | float | str | bool | Summary


class Scope(enum.Enum):
    """To whom a metric belongs; the value is Flink's logical scope."""

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
        scope: what it is.
        variables: what tells it from others of its kind, by names such as `job_name`.
        values: by name, dots included.
        counters: the names of those that count, of a user's function.
    """

    scope: Scope
    variables: Mapping[str, str]
    values: Mapping[str, Value]
    counters: frozenset[str] = field(default_factory=frozenset)


def of_operator(operator_name: str, name: str) -> str:
    """The name of an operator's metric among those of its task, as Flink's REST API has it."""
    return f"{''.join(c if c.isalnum() else '_' for c in operator_name)}.{name}"


def spelled(scoped: Scoped, name: str) -> str:
    """A metric's name with the values of the variables that are parts of it, for those who see no labels."""
    values = scoped.variables
    if name.partition(".")[0] not in ("latency", "state_name"):
        return name
    return ".".join(f"{one}.{values[one]}" if one in values and one in _OF_GROUPS else one for one in name.split("."))


def flat(values: Mapping[str, Value]) -> dict[str, str | int | float]:
    """The metrics as single numbers and texts; what is true or false is a text, as in Java."""
    single: dict[str, str | int | float] = {}
    for name, value in values.items():
        if isinstance(value, Summary):
            single.update(value.flattened(name))
        else:
            single[name] = str(value).lower() if isinstance(value, bool) else value
    return single


class ScopeFormats:
    """How the names of metrics begin, after the options `metrics.scope.*`, for those who send names without labels."""

    def __init__(self, configuration: Configuration, delimiter: str = ".") -> None:
        self._formats = {scope: configuration.read(SCOPE_FORMATS[scope.value]) for scope in Scope}
        self._delimiter = delimiter

    def name_of(self, scoped: Scoped, name: str) -> str:
        """The full name of one of its metrics."""
        variables = scoped.variables
        parts = self._formats[scoped.scope].split(".")
        filled = [re.sub(r"<(\w+)>", lambda found: variables.get(found[1], found[0]), part) for part in parts]
        return self._delimiter.join([*filled, *spelled(scoped, name).split(".")])
