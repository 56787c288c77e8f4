"""The options of reporters (A1, A2)."""

from __future__ import annotations

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.server.metrics.scopes import Scope, Scoped, Value
from penstock.server.reporters.reporter import MetricFilter, ReporterSettings, read_reporters, taken

VARIABLES = {"host": "h", "tm_id": "w", "job_name": "Demo job", "task_name": "Map", "subtask_index": "0"}
TASK = Scoped(Scope.TASK, VARIABLES, {"numRecordsIn": 1, "busyTimeMsPerSecond": 2.0, "Shuffle.Netty.x": 3})


def reporters(**options: str) -> list[ReporterSettings]:
    return read_reporters(Configuration.from_dict({key.replace("__", "."): value for key, value in options.items()}))


def test_without_options_there_are_none() -> None:
    assert reporters() == []


def test_flinks_factories_name_ours() -> None:
    options = {
        "metrics.reporters": "prom, stats",
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        "metrics.reporter.prom.port": "9250-9260",
        "metrics.reporter.stats.factory.class": "org.apache.flink.metrics.statsd.StatsDReporterFactory",
        "metrics.reporter.stats.interval": "60 s",
        "metrics.reporter.unlisted.type": "json",
        "traces.reporter.otel.factory.class": "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory",
    }
    found = read_reporters(Configuration.from_dict(options))
    assert [(one.what, one.name, one.type) for one in found] == [
        ("metrics", "prom", "prometheus"),
        ("metrics", "stats", "statsd"),
        ("traces", "otel", "otel"),
    ]
    assert [one.interval_s for one in found] == [10, 60, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"metrics__reporters": "prom"},
            r"metrics\.reporter\.prom\.type is not set: set it to one of prom",
        ),
        ({"metrics__reporter__x__type": "jmx"}, r"metrics\.reporter\.x\.type is 'jmx'"),
        ({"traces__reporter__x__type": "statsd"}, r"traces\.reporter\.x\.type is 'statsd'"),
        ({"metrics__reporter__x__type": "json", "metrics__reporter__x__filter__includes": "*:*:timer"}, "is no rule"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        reporters(**options)


def test_a_factory_that_is_not_here_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnsupportedError, match=r"JMXReporterFactory is none that Penstock has.*PrometheusRep"):
        reporters(metrics__reporter__x__factory__class="org.apache.flink.metrics.jmx.JMXReporterFactory")


def test_an_interval_that_is_none_names_its_key() -> None:
    (found,) = reporters(metrics__reporter__x__type="json", metrics__reporter__x__interval="soon")
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.x\.interval"):
        _ = found.interval_s


@pytest.mark.parametrize(
    ("includes", "excludes", "left"),
    [
        (None, None, {"numRecordsIn", "busyTimeMsPerSecond", "Shuffle.Netty.x"}),
        ("*.task", None, {"numRecordsIn", "busyTimeMsPerSecond"}),
        ("*:num*", None, {"numRecordsIn"}),
        ("*:*:gauge", None, {"busyTimeMsPerSecond", "Shuffle.Netty.x"}),
        ("taskmanager.job.task.Shuffle.Netty:x", None, {"Shuffle.Netty.x"}),
        ("jobmanager*", None, set()),
        (None, "*:num*,busy*:counter", {"busyTimeMsPerSecond", "Shuffle.Netty.x"}),
        ("*:numRecordsIn;*.Netty", "*.Netty:y", {"numRecordsIn", "Shuffle.Netty.x"}),
    ],
)
def test_filters_are_flinks(includes: str | None, excludes: str | None, left: set[str]) -> None:
    taking = MetricFilter(includes, excludes)
    values: dict[str, Value] = dict(TASK.values)
    assert {name for name, value in values.items() if taking.takes(TASK, name, value)} == left


def test_variables_come_and_go() -> None:
    (found,) = reporters(
        metrics__reporter__x__type="json",
        metrics__reporter__x__scope__variables__excludes="tm_id;<host>",
        metrics__reporter__x__scope__variables__additional="cluster:prod,team:a",
    )
    (scoped,) = taken(found, [TASK])
    kept = {"job_name": "Demo job", "task_name": "Map", "subtask_index": "0"}
    assert scoped.variables == {**kept, "cluster": "prod", "team": "a"}


def test_names_begin_as_the_scope_formats_say() -> None:
    (found,) = reporters(metrics__reporter__x__type="statsd")
    assert found.formats.format_metric_name(TASK, "Shuffle.Netty.x") == "h.taskmanager.w.Demo job.Map.0.Shuffle.Netty.x"
    (found,) = reporters(
        metrics__reporter__x__type="statsd",
        metrics__reporter__x__scope__delimiter="/",
        metrics__scope__task="<job_name>.<nothing>.<subtask_index>",
    )
    assert found.formats.format_metric_name(TASK, "numRecordsIn") == "Demo job/<nothing>/0/numRecordsIn"
