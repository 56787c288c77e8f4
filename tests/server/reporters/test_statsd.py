"""Metrics as StatsD reads them (A1)."""

from __future__ import annotations

import socket

from tests.server.reporters.settings import parse_reporter

from penstock.server.metrics.scopes import Scope, Scoped, Value
from penstock.server.reporters.reporting import DATAGRAM_BYTES_MAX, StatsDReporter

VARIABLES = {"host": "h", "tm_id": "w:1", "job_name": "Demo", "task_name": "Map", "subtask_index": "0"}


def sent(values: dict[str, Value]) -> list[bytes]:
    """The datagrams that these metrics of a task make."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        reporter = StatsDReporter(parse_reporter("statsd", host="127.0.0.1", port=str(server.getsockname()[1])))
        end = Scoped(Scope.JOB_MANAGER, {"host": "h"}, {"end": 1})
        try:
            reporter.report([Scoped(Scope.TASK, VARIABLES, values)], [])
            reporter.report([end], [])
        finally:
            reporter.close()
        datagrams = [server.recv(65_536)]
        while datagrams[-1] != b"h.jobmanager.end:1|g":
            datagrams.append(server.recv(65_536))
    return datagrams[:-1]


def test_every_number_is_a_gauge() -> None:
    (datagram,) = sent({"numRecordsIn": 3, "ratio": 0.5, "isBackPressured": True, "path": "n/a", "odd": float("nan")})
    begin = b"h.taskmanager.w-1.Demo.Map.0."
    assert datagram.split(b"\n") == [
        begin + b"numRecordsIn:3|g",
        begin + b"ratio:0.5|g",
        begin + b"isBackPressured:1|g",
    ]


def test_a_negative_number_is_not_taken_for_a_change() -> None:
    (datagram,) = sent({"lag": -1})
    assert [line.rpartition(b":")[2] for line in datagram.split(b"\n")] == [b"0|g", b"-1|g"]


def test_many_metrics_are_several_datagrams() -> None:
    datagrams = sent({f"metric{i}": i for i in range(200)})
    assert len(datagrams) > 1
    assert max(map(len, datagrams)) <= DATAGRAM_BYTES_MAX
    assert sum(datagram.count(b"\n") + 1 for datagram in datagrams) == 200
