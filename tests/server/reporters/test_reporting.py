"""One thread reports for all, and what fails harms nothing (A1)."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.said import said
from tests.server.metrics.views import JOB_ID, Watched, view_at
from tests.server.reporters.settings import parse_reporter

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.base.job import JobStatus
from penstock.runtime.checkpoint.statistics import CheckpointRecord, CheckpointStatistics, CheckpointStatus
from penstock.server.dispatcher import Dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.reporters.reporting import (
    LOOK_SECONDS,
    Reporting,
    keep_looking,
    start_reporters,
    stop_reporters,
)


@pytest.fixture
def watched() -> Watched:
    return Watched(view_at(10))


@pytest.fixture
def reporting(watched: Watched) -> Iterator[Reporting]:
    store = MetricStore(watched.dispatcher, watched.clock)
    yield Reporting(store, watched.clock)
    store.close()


def jobs_in(path: Path) -> list[str]:
    """The ids of the jobs of which the file has a line, in order."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["variables"]["job_id"] for line in lines if line["scope"] == "jobmanager.job"]


def test_a_reporter_reports_at_its_interval(watched: Watched, reporting: Reporting, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reporting.add([parse_reporter("json", path=str(path), interval="20 s")])
    assert reporting.turn() == LOOK_SECONDS
    assert not path.exists()
    watched.clock.seconds = 18
    assert reporting.turn() == 2
    watched.clock.seconds = 20
    reporting.turn()
    assert jobs_in(path) == [JOB_ID]
    watched.clock.seconds = 39
    reporting.turn()
    assert jobs_in(path) == [JOB_ID]


def test_a_thread_that_was_held_up_does_not_make_up_for_it(
    watched: Watched, reporting: Reporting, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    reporting.add([parse_reporter("json", path=str(path), interval="1 s")])
    watched.clock.seconds = 3600
    reporting.turn()
    reporting.turn()
    reporting.turn()
    assert jobs_in(path) == [JOB_ID]


def test_a_job_that_ended_in_between_is_reported_once_more(
    watched: Watched, reporting: Reporting, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    reporting.add([parse_reporter("json", path=str(path))])
    watched.show(view_at(11, status=JobStatus.FINISHED))
    reporting.turn()
    assert jobs_in(path) == [JOB_ID]
    watched.clock.seconds += 60
    reporting.turn()
    assert jobs_in(path) == [JOB_ID]


def test_what_fails_is_said_once_and_tried_again(
    watched: Watched, reporting: Reporting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked, other = tmp_path / "blocked", tmp_path / "other.jsonl"
    blocked.write_text("")
    bad = parse_reporter("json", path=str(blocked / "metrics.jsonl"))
    good = parse_reporter("json", path=str(other))
    reporting.add([bad])
    reporting.add([replace(good, name="good")])
    with caplog.at_level(logging.INFO, "penstock.metrics"):
        for _ in range(3):
            watched.clock.seconds += 10
            reporting.turn()
        assert len(jobs_in(other)) == 3
        blocked.unlink()
        watched.clock.seconds += 10
        reporting.turn()
    lines = said(caplog, logging.INFO, "penstock.metrics")
    assert len(lines) == 2
    assert lines[0].startswith("metrics.reporter.mine cannot report: ")
    assert lines[1] == "metrics.reporter.mine reports again"


def test_spans_wait_for_a_reporter_that_could_not_send_them(
    watched: Watched, reporting: Reporting, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    path = blocked / "traces.jsonl"
    reporting.add([parse_reporter("json", "traces", path=str(path))])
    record = CheckpointRecord(1, CheckpointStatus.COMPLETED, 5, duration_ms=3)
    watched.show(view_at(11, checkpoints=CheckpointStatistics().with_completed(record)))
    reporting.turn()
    blocked.unlink()
    watched.clock.seconds += 10
    reporting.turn()
    names = [json.loads(line)["span"] for line in path.read_text().splitlines()]
    assert sorted(names) == ["Checkpoint", "JobInitialization"]


def reporting_threads() -> set[threading.Thread]:
    """The threads of all reportings of this process; those of other tests among them."""
    return {thread for thread in threading.enumerate() if thread.name == "penstock-metrics"}


def test_the_configuration_of_a_job_starts_them_and_the_end_reports(watched: Watched, tmp_path: Path) -> None:
    threads = reporting_threads()
    path = tmp_path / "metrics.jsonl"
    options = {
        "metrics.reporters": "prom,file",
        "metrics.reporter.prom.type": "prometheus",
        "metrics.reporter.prom.port": "0",
        "metrics.reporter.file.type": "json",
        "metrics.reporter.file.path": str(path),
    }
    configuration = Configuration.from_dict(options)
    reporting = start_reporters(watched.dispatcher, configuration)
    assert reporting is not None
    try:
        assert start_reporters(watched.dispatcher, configuration) is reporting
        prometheus = reporting.pulled("prom")
        assert prometheus is not None
        with urlopen(f"http://127.0.0.1:{prometheus.port}/metrics", timeout=10) as answer:
            assert b"flink_jobmanager_job_numRestarts{" in answer.read()
    finally:
        stop_reporters(watched.dispatcher)
        MetricStore.of(watched.dispatcher).close()
    assert jobs_in(path) == [JOB_ID]
    assert reporting_threads() == threads


def test_a_port_that_is_not_free_is_tried_again(
    watched: Watched, reporting: Reporting, caplog: pytest.LogCaptureFixture
) -> None:
    """E: no job fails because another driver of the same host answers scrapes."""
    caplog.set_level(logging.INFO, "penstock.metrics")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        reporting.add([parse_reporter("prometheus", port=str(port))])
        reporting.turn()
        assert reporting.pulled("mine") is None
    reporting.turn()
    prometheus = reporting.pulled("mine")
    assert prometheus is not None
    assert prometheus.port == port
    reporting.close()
    lines = said(caplog, logging.INFO, "penstock.metrics")
    assert [f"none of {port} is free" in line for line in lines] == [True, False]


def test_jobs_are_looked_at_where_no_reporter_is(watched: Watched) -> None:
    threads = reporting_threads()
    keep_looking(watched.dispatcher)
    try:
        charts = MetricStore.of(watched.dispatcher).charts(JOB_ID)
        assert charts is not None
        assert charts.points(None, "numRestarts")
        assert len(reporting_threads() - threads) == 1
    finally:
        stop_reporters(watched.dispatcher)
        MetricStore.of(watched.dispatcher).close()


def test_a_job_that_names_none_starts_nothing() -> None:
    assert start_reporters(Dispatcher(), Configuration()) is None


def test_a_wrong_option_is_an_error_and_starts_nothing() -> None:
    threads = reporting_threads()
    dispatcher = Dispatcher()
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.x\.path"):
        start_reporters(dispatcher, Configuration.from_dict({"metrics.reporter.x.type": "json"}))
    MetricStore.of(dispatcher).close()
    assert reporting_threads() == threads
