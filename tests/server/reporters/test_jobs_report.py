"""A job whose configuration names reporters is reported, and its short life too (A1)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.configuration import Configuration
from penstock.base.errors import ConfigurationError
from penstock.datastream import StreamExecutionEnvironment
from penstock.server.attachment import dispatcher
from penstock.server.metrics.metric_store import MetricStore
from penstock.server.reporters.reporting import stop_reporters


@pytest.fixture
def _reporters_end() -> Iterator[None]:
    yield
    stop_reporters(dispatcher())
    MetricStore.of(dispatcher()).close()


def environment(**options: str) -> StreamExecutionEnvironment:
    named = {key.replace("__", "."): value for key, value in options.items()}
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local", **named})
    )


def read_reports(path: Path, job_name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["variables"].get("job_name") == job_name]


@pytest.mark.usefixtures("_reporters_end")
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_a_job_that_is_over_before_the_interval_is_reported_at_the_end(mode: str, tmp_path: Path) -> None:
    path, name = tmp_path / "metrics.jsonl", f"short {mode}"
    env = environment(
        **{"execution.runtime-mode": mode},
        metrics__reporter__file__type="json",
        metrics__reporter__file__path=str(path),
        metrics__reporter__file__interval="1 h",
    )
    env.from_collection(list(range(100))).map(lambda n: n + 1).filter(lambda n: n < 0).print()
    env.execute(name)
    stop_reporters(dispatcher())
    for thread in threading.enumerate():  # on a busy machine the last report outlasts LAST_REPORT_SECONDS
        if thread.name == "penstock-metrics":
            thread.join(60)
    lines = read_reports(path, name)
    (job,) = [line["metrics"] for line in lines if line["scope"] == "jobmanager.job"]
    assert job["uptime"] == -1
    read = [line["metrics"]["numRecordsIn"] for line in lines if line["scope"] == "taskmanager.job.task"]
    assert sum(read) >= 100


def test_a_wrong_option_is_an_error_before_the_job_begins() -> None:
    env = environment(metrics__reporter__file__type="json")
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.file\.path is not set"):
        env.execute("never begins")
