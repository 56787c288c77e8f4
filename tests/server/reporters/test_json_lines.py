"""Metrics and spans as lines of JSON (A1)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.server.reporters.settings import parse_reporter

from penstock.base.errors import ConfigurationError
from penstock.server.metrics.scopes import Scope, Scoped, Summary
from penstock.server.reporters.reporter import Span
from penstock.server.reporters.reporting import JsonLinesReporter

TASK = Scoped(Scope.TASK, {"task_name": "Map"}, {"numRecordsIn": 3, "ratio": math.nan, "sizes": Summary(2, 4, 1, 3)})


def test_each_scope_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "made" / "metrics.jsonl"
    reporter = JsonLinesReporter(parse_reporter("json", path=str(path)))
    reporter.report([TASK, TASK], [])
    reporter.report([TASK], [])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 3
    assert lines[0]["scope"] == "taskmanager.job.task"
    assert lines[0]["variables"] == {"task_name": "Map"}
    sizes = {"sizes_count": 2, "sizes_sum": 4, "sizes_min": 1, "sizes_max": 3, "sizes_mean": 2}
    assert lines[0]["metrics"] == {"numRecordsIn": 3, "ratio": "nan", **sizes}


def test_a_file_that_is_full_gives_way_to_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reporter = JsonLinesReporter(parse_reporter("json", path=str(path), **{"max-size": "500"}))
    for _ in range(50):
        reporter.report([TASK], [])
    assert {file.name for file in tmp_path.iterdir()} <= {"metrics.jsonl", "metrics.jsonl.1"}
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_500


def test_spans_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    reporter = JsonLinesReporter(parse_reporter("json", "traces", path=str(path)))
    reporter.report([TASK], [])
    assert not path.exists()
    reporter.report([TASK], [Span("scope", "Checkpoint", 5, 8, {"checkpointId": 3})])
    span = {"time": 5, "ended": 8, "scope": "scope", "span": "Checkpoint", "attributes": {"checkpointId": 3}}
    assert json.loads(path.read_text()) == span


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.mine\.path is not set"):
        JsonLinesReporter(parse_reporter("json"))
