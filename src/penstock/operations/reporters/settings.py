"""Options of reporters: `metrics.reporter.<name>.*` and `traces.reporter.<name>.*`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.base.config_options import ConfigOption
from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.base.metric_options import METRICS_REPORTERS, METRICS_SCOPE_DELIMITER, TRACE_REPORTERS
from penstock.base.value_types import DURATION_MS, MAPPING, ValueType
from penstock.operations.metrics.scopes import ScopeFormats
from penstock.operations.reporters.filters import MetricFilter

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
    formats: ScopeFormats
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
        ScopeFormats(configuration, delimiter),
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
