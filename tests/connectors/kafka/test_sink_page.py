"""The program of docs/kafka-sink.md runs as it stands, against a real broker."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.kafka import KafkaCluster


def test_the_program_of_the_page_runs(kafka: KafkaCluster, tmp_path: Path) -> None:
    page = "docs/kafka-sink.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"KAFKA": kafka.bootstrap_servers}))
