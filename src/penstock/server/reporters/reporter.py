"""The base of reporters, their options and filters, and the spans that they report.

`MetricFilter` accepts metrics for a reporter according to Flink's `filter.includes` and `filter.excludes`.

`ReporterSettings` are the options of a reporter: `metrics.reporter.<name>.*` and `traces.reporter.<name>.*`.

`SpanWatch` reads spans from job views: checkpoints, and task initialization at the start and after failures. Names and
scopes follow Flink's traces.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final, TypeVar

from penstock.base.config_options import DURATION_MS, MAPPING, ConfigOption, ValueType
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError, write_install_command
from penstock.base.metrics import METRICS_REPORTERS, METRICS_SCOPE_DELIMITER, TRACE_REPORTERS
from penstock.runtime.checkpoint.statistics import CheckpointRecord
from penstock.runtime.graph import ExecutionState
from penstock.runtime.job.view import JobView
from penstock.server.metrics import scopes

_KINDS: Final = (scopes.COUNTER, scopes.GAUGE, scopes.HISTOGRAM, scopes.METER)


@dataclass(frozen=True)
class _Rule:
    scope: re.Pattern[str]
    names: tuple[re.Pattern[str], ...]
    kinds: frozenset[str]

    def matches(self, scope: str, name: str, kind: str) -> bool:
        is_named = any(pattern.fullmatch(name) for pattern in self.names)
        return kind in self.kinds and is_named and self.scope.fullmatch(scope) is not None


class MetricFilter:
    """Accepts metrics that match an include and no exclude.

    A rule is `<scope>[:<name>,<name>[:<type>,<type>]]`, with `*` as the wildcard, such as
    `*.job.task.operator:numRecords*:counter,meter`. The scope is Flink's logical one, plus everything before the last
    dot of a metric's name: `taskmanager.Status.JVM.CPU`. Semicolons separate rules.

    Args:
        includes: the include rules; without any, all metrics are included.
        excludes: the exclude rules.
        key: the option, for errors.

    Raises:
        ConfigurationError: naming the option, if a type is invalid.
    """

    def __init__(self, includes: str | None, excludes: str | None, key: str = "filter") -> None:
        self._includes = _rules(includes or "*", f"{key}.includes")
        self._excludes = _rules(excludes or "", f"{key}.excludes")
        self._known: dict[tuple[str, str, str], bool] = {}

    def takes(self, scoped: scopes.Scoped, name: str, value: scopes.Value) -> bool:
        """Return whether the filter accepts a metric of a scope."""
        key = scoped.scope.value, name, scopes.classify_metric(scoped, name, value)
        known = self._known.get(key)
        if known is None:
            infix, _, last = name.rpartition(".")
            arguments = (f"{key[0]}.{infix}" if infix else key[0], last, key[2])
            included = any(rule.matches(*arguments) for rule in self._includes)
            known = self._known[key] = included and not any(rule.matches(*arguments) for rule in self._excludes)
        return known


def _rules(text: str, key: str) -> list[_Rule]:
    rules = []
    for rule in filter(None, map(str.strip, text.split(";"))):
        scope, names, kinds, *rest = [*(part.strip() for part in rule.split(":")), "", ""][: rule.count(":") + 3]
        selected_kinds = (
            frozenset(kind.strip() for kind in kinds.split(",")) if kinds not in ("", "*") else frozenset(_KINDS)
        )
        if any(rest) or not selected_kinds <= frozenset(_KINDS):
            raise ConfigurationError(
                f"{key}: {rule!r} is no rule: write <scope>[:<names>[:<types>]], and of types {', '.join(_KINDS)}"
            )
        rules.append(
            _Rule(_pattern(scope), tuple(_pattern(name.strip()) for name in (names or "*").split(",")), selected_kinds)
        )
    return rules


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"))


T = TypeVar("T")

INTERVAL_MS: Final = 10_000

METRICS: Final = "metrics"
TRACES: Final = "traces"

#: The reporter types, with the Flink factories that map to them.
TYPES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    METRICS: {
        "prometheus": ("org.apache.flink.metrics.prometheus.PrometheusReporterFactory",),
        "json": (),
        "statsd": ("org.apache.flink.metrics.statsd.StatsDReporterFactory",),
        "otel": ("org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory",),
    },
    TRACES: {
        "json": (),
        "otel": ("org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory",),
    },
}


@dataclass(frozen=True)
class ReporterSettings:
    """The configuration of one reporter.

    Attributes:
        what: METRICS or TRACES.
        name: the reporter's name in the options.
        type: one of `TYPES`.
        options: the reporter's own options, without the key prefix.
        formats: the scope formats, which prefix metric names.
        delimiter: the separator between the parts of a metric name.
        filter: selects the metrics to report.
        excluded: scope variables to leave out.
        additional: scope variables to add.
    """

    what: str
    name: str
    type: str
    options: Mapping[str, str]
    formats: scopes.ScopeFormats
    delimiter: str
    filter: MetricFilter
    excluded: frozenset[str]
    additional: Mapping[str, str]

    def key(self, option: str) -> str:
        """Return the full key of one of the reporter's options."""
        return f"{self.what}.reporter.{self.name}.{option}"

    def read(self, option: str, value_type: ValueType[T], default: T) -> T:
        """Return the value of one of the reporter's options.

        Raises:
            ConfigurationError: naming key and value, if the value is not of the type.
        """
        if option not in self.options:
            return default
        return ConfigOption(self.key(option), value_type, default).convert(self.options[option])

    @property
    def interval_s(self) -> float:
        """The interval (s) between reports, for reporters that are not polled."""
        return max(1, self.read("interval", DURATION_MS, INTERVAL_MS)) / 1000


def read_reporters(configuration: Configuration) -> list[ReporterSettings]:
    """Return the reporters that a configuration names.

    Raises:
        ConfigurationError: naming the key, if a reporter is incomplete or contradicts itself.
        UnsupportedError: if Penstock lacks that reporter of Flink.
    """
    reporters = []
    for signal, listed in ((METRICS, METRICS_REPORTERS), (TRACES, TRACE_REPORTERS)):
        options: dict[str, dict[str, str]] = {}
        for key, value in configuration.to_dict().items():
            if known := re.fullmatch(rf"{signal}\.reporter\.([^.]+)\.(.+)", key):
                options.setdefault(known[1], {})[known[2]] = value
        names = configuration.read(listed)
        selected_names = options if names is None else filter(None, map(str.strip, re.split("[,;]", names)))
        reporters += [_settings(signal, name, options.get(name, {}), configuration) for name in selected_names]
    return reporters


def _settings(signal: str, name: str, options: dict[str, str], configuration: Configuration) -> ReporterSettings:
    key = f"{signal}.reporter.{name}"
    delimiter = options.get("scope.delimiter", configuration.read(METRICS_SCOPE_DELIMITER))
    additional: ConfigOption[dict[str, str]] = ConfigOption(f"{key}.scope.variables.additional", MAPPING, {})
    return ReporterSettings(
        signal,
        name,
        _type(signal, key, options),
        options,
        scopes.ScopeFormats(configuration, delimiter),
        delimiter,
        MetricFilter(options.get("filter.includes"), options.get("filter.excludes"), f"{key}.filter"),
        frozenset(part.strip(" <>") for part in re.split("[;,]", options.get("scope.variables.excludes", "")) if part),
        additional.convert(options.get("scope.variables.additional", {})),
    )


def _type(signal: str, key: str, options: Mapping[str, str]) -> str:
    types = TYPES[signal]
    factory = options.get("factory.class")
    if factory is None:
        type = options.get("type", "")
        if type in types:
            return type
        problem = f"is {type!r}" if type else "is not set"
        raise ConfigurationError(f"{key}.type {problem}: set it to one of {', '.join(types)}")
    for type, factories in types.items():
        if factory in factories:
            return type
    known = [factory for factories in types.values() for factory in factories]
    raise UnsupportedError(
        f"{key}.factory.class: {factory} is none that Penstock has; it has {', '.join(known)}, and {key}.type: "
        f"{', '.join(types)}"
    )


@dataclass(frozen=True)
class Span:
    """An activity of a job that took time.

    Attributes:
        scope: its owner, as a Flink scope.
        name: its name: `Checkpoint` or `JobInitialization`.
        began_ms: when it began (ms since the epoch).
        ended_ms: when it ended (ms since the epoch).
        attributes: further details.
    """

    scope: str
    name: str
    began_ms: int
    ended_ms: int
    attributes: dict[str, str | int]


class Reporter(ABC):
    """Sends metrics or spans at its interval. Exceptions are logged once, and it continues."""

    def __init__(self, settings: ReporterSettings) -> None:
        self.settings = settings

    @abstractmethod
    def report(self, metrics: Iterable[scopes.Scoped], spans: Sequence[Span]) -> None:
        """Send the metrics or spans that it handles."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release its resources."""


def taken(settings: ReporterSettings, metrics: Iterable[scopes.Scoped]) -> Iterator[scopes.Scoped]:
    """Yield the metrics that a reporter accepts, with the variables that it wants."""
    excluded, additional, takes = settings.excluded, settings.additional, settings.filter.takes
    for scoped in metrics:
        values = {name: value for name, value in scoped.values.items() if takes(scoped, name, value)}
        if not values:
            continue
        variables = scoped.variables
        if excluded or additional:
            variables = {**{name: v for name, v in variables.items() if name not in excluded}, **additional}
        yield replace(scoped, variables=variables, values=values)


def require(module: str, settings: ReporterSettings, extra: str) -> None:
    """Check that a library is installed that only this reporter needs.

    Raises:
        ConfigurationError: with an installation hint, if it is missing.
    """
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise ConfigurationError(
            f"{settings.what}.reporter.{settings.name} needs the library {module.partition('.')[0]}: "
            f"{write_install_command(extra)}"
        )


CHECKPOINT_SCOPE: Final = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
JOB_SCOPE: Final = "org.apache.flink.runtime.jobmaster.JobMaster"

_READY: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class SpanWatch:
    """Reports each span once.

    A view holds the last ten checkpoints, so further ones that ended since the previous view are missed.

    Args:
        jobs_max: how many jobs to remember, including ended ones.
    """

    def __init__(self, jobs_max: int = 100) -> None:
        self._jobs_max = jobs_max
        self._jobs: dict[str, _Seen] = {}

    def spans(self, views: list[JobView]) -> list[Span]:
        """Return the spans that ended since the last call."""
        spans = []
        for view in views:
            spans += self._jobs.setdefault(view.job_id, _Seen()).spans(view)
        current = {view.job_id for view in views}
        ended = [job_id for job_id in self._jobs if job_id not in current]
        for job_id in ended[: max(len(ended) - self._jobs_max, 0)]:
            del self._jobs[job_id]
        return spans


class _Seen:
    """The spans of one job that were already reported."""

    def __init__(self) -> None:
        self._settled: set[int] = set()
        self._ready_ms: int | None = None

    def spans(self, view: JobView) -> list[Span]:
        job: dict[str, str | int] = {"job_id": view.job_id, "job_name": view.name}
        history = view.checkpoints.history
        new = [record for record in reversed(history) if record.checkpoint_id not in self._settled]
        self._settled = {record.checkpoint_id for record in history}
        spans = [_of_checkpoint(record, job) for record in new]
        if (began := _of_beginning(view, job)) is not None and began.ended_ms != self._ready_ms:
            self._ready_ms = began.ended_ms
            spans.append(began)
        return spans


def _of_checkpoint(record: CheckpointRecord, job: dict[str, str | int]) -> Span:
    attributes: dict[str, str | int] = {
        **job,
        "checkpointId": record.checkpoint_id,
        "checkpointStatus": record.status.value,
        "checkpointType": "Savepoint" if record.is_savepoint else "Checkpoint",
        "checkpointedSize": record.stored_bytes,
        "fullSize": record.state_bytes,
        "maxAlignmentDurationMs": record.alignment_ms,
        "maxSyncDurationMs": record.sync_ms,
        "maxAsyncDurationMs": record.async_ms,
        "isUnaligned": str(record.is_unaligned).lower(),
    }
    if record.failure is not None:
        attributes["failure"] = record.failure
    ended_ms = record.triggered_ms + record.duration_ms
    return Span(CHECKPOINT_SCOPE, "Checkpoint", record.triggered_ms, ended_ms, attributes)


def _of_beginning(view: JobView, job: dict[str, str | int]) -> Span | None:
    """Return the span from the deployment of the current tasks until the last one runs; None until all run."""
    began, ready = [], []
    for vertex in view.vertices:
        for subtask in vertex.subtasks:
            since = dict(subtask.since_ms)
            if subtask.state not in _READY or ExecutionState.RUNNING not in since:
                return None
            began.append(since.get(ExecutionState.DEPLOYING, since[ExecutionState.RUNNING]))
            ready.append(since[ExecutionState.RUNNING])
    if not ready:
        return None
    restored = view.checkpoints.restored
    attributes: dict[str, str | int] = {**job, "initializationStatus": "COMPLETED", "numRestarts": view.restarts}
    if restored is not None:
        attributes["checkpointId"] = restored.checkpoint_id
    return Span(JOB_SCOPE, "JobInitialization", min(began), max(ready), attributes)
