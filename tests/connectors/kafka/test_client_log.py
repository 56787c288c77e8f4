"""Lines of librdkafka, and what is said while no broker answers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.servers.ports import free_port

from penstock.base.errors import OperationError
from penstock.connectors.kafka import source as kafka_metadata
from penstock.connectors.kafka.client import INTERVAL_S, RepeatedLines
from penstock.connectors.kafka.source import KafkaMetadata, ask_patiently

LINE = (
    "FAIL [rdkafka#producer-{0}] [thrd:b:{1}/bootstrap]: b:{1}/bootstrap: Connect to ipv4#127.0.0.1:{1} failed: "
    "Connection refused (after {0}ms in state CONNECT)"
)


def test_a_kind_of_line_passes_once_a_minute() -> None:
    now = [0.0]
    repeated = RepeatedLines(lambda: now[0])

    def passed(text: str) -> str | None:
        record = logging.LogRecord("kafka", logging.ERROR, "", 0, "%s", (text,), None)
        return record.getMessage() if repeated.filter(record) else None

    assert passed(LINE.format(1, 9092)) == LINE.format(1, 9092)
    assert [passed(LINE.format(number, 9092)) for number in range(50)] == [None] * 50
    assert passed(LINE.format(1, 9093)) is not None, "another broker"
    now[0] += INTERVAL_S
    assert passed(LINE.format(7, 9092)) == LINE.format(7, 9092) + " [50 more lines like this since the last one]"


def test_lines_of_other_threads_pass() -> None:
    repeated = RepeatedLines(lambda: 0.0, thread_name="another thread")
    record = logging.LogRecord("aiokafka", logging.ERROR, "", 0, "the same", None, None)
    assert all(repeated.filter(record) for _ in range(3))


def test_a_wrong_address_is_reported_soon_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first question waits for 2 s at most, and a line says which address refuses."""
    server = f"127.0.0.1:{free_port()}"
    waits: list[float] = []
    metadata = KafkaMetadata({"bootstrap.servers": server, "log_level": 0}, None, False, 60_000)

    def ask() -> Any:
        waits.append(metadata._request_s)
        return metadata.topic_names()

    monkeypatch.setattr(kafka_metadata, "_FIRST_REQUEST_S", 0.5)
    monkeypatch.setattr(kafka_metadata, "_REQUEST_S", 0.6)
    with pytest.raises(OperationError, match=rf"no Kafka broker has answered .*{server}.*Connection refused"):
        ask_patiently(ask, "the source looks for topics", 1_000, lambda: False, metadata)
    assert waits[:2] == [0.5, 0.6]
    (first, *_) = [record.getMessage() for record in caplog.records if "does not answer yet" in record.getMessage()]
    assert server in first
    assert "Connection refused" in first
