"""Metrics as Prometheus reads them (A1)."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.metrics.views import Watched, view_at
from tests.server.reporters.settings import parse_reporter

from penstock.base.errors import ConfigurationError, OperationError
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.metrics.scopes import Scope, Scoped, Summary
from penstock.server.reporters.prometheus import PrometheusReporter

JOB = Scoped(Scope.JOB, {"host": "h", "job_name": "Demo job"}, {"numRestarts": 3, "lastCheckpointExternalPath": "n/a"})


def scrape(metrics: Iterable[Scoped], **options: str) -> dict[str, Any]:
    """All samples by name."""
    reporter = PrometheusReporter(parse_reporter("prometheus", port="0", **options), lambda: metrics)
    try:
        with urlopen(f"http://127.0.0.1:{reporter.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        reporter.close()
    samples: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_names_and_labels_are_flinks() -> None:
    samples = scrape([JOB])
    assert samples["flink_jobmanager_job_numRestarts"] == [({"host": "h", "job_name": "Demo_job"}, 3)]
    assert samples["flink_jobmanager_job_lastCheckpointExternalPath"][0][1] == 0


def test_labels_may_stay_as_they_are() -> None:
    samples = scrape([JOB], filterLabelValueCharacters="false")
    assert samples["flink_jobmanager_job_numRestarts"][0][0]["job_name"] == "Demo job"


def test_a_distribution_is_a_summary() -> None:
    variables = {"operator_name": 'a "quoted"\nname'}
    scoped = Scoped(Scope.OPERATOR, variables, {"sales.sizes": Summary(4, 10, 1, 6), "isBackPressured": True})
    samples = scrape([scoped], filterLabelValueCharacters="false")
    name = "flink_taskmanager_job_task_operator_sales_sizes"
    values = {what: samples[f"{name}_{what}"][0][1] for what in ("count", "sum", "min", "max")}
    assert values == {"count": 4, "sum": 10, "min": 1, "max": 6}
    assert samples[f"{name}_count"][0][0] == variables
    assert samples["flink_taskmanager_job_task_operator_isBackPressured"][0][1] == 1


def test_a_job_has_one_series_for_each_subtask_and_operator() -> None:
    watched = Watched(view_at(10))
    store = MetricStore(watched.dispatcher)
    samples = scrape(list(store.scoped()))
    store.close()
    for name, found in samples.items():
        labels = [tuple(sorted(labels.items())) for labels, _ in found]
        assert len(set(labels)) == len(labels), name
        assert re.fullmatch("flink_(jobmanager|taskmanager)_[a-zA-Z0-9_:]+", name)
    assert len(samples["flink_taskmanager_job_task_numRecordsIn"]) == 4
    assert len(samples["flink_taskmanager_job_task_operator_numRecordsIn"]) == 6
    assert samples["flink_jobmanager_numRunningJobs"][0][1] == 1


def test_the_first_free_port_of_a_range_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OperationError, match=rf"metrics\.reporter\.mine\.port: none of {port} is free"):
            PrometheusReporter(parse_reporter("prometheus", port=str(port)), list)
        reporter = PrometheusReporter(parse_reporter("prometheus", port=f"{port},0"), list)
        try:
            assert reporter.port != port
            assert reporter.host == "127.0.0.1"
        finally:
            reporter.close()


@pytest.mark.parametrize("port", ["all", "1-x", "70000", "9260-9249"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.mine\.port is"):
        PrometheusReporter(parse_reporter("prometheus", port=port), list)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "prometheus_client")
    monkeypatch.setattr("penstock.server.reporters.reporter.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r'pip install "penstock-streams\[prometheus\]"'):
        PrometheusReporter(parse_reporter("prometheus"), list)
