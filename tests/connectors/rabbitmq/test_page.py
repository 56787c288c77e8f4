"""The program of docs/rabbitmq.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.queues import RabbitServer


def test_the_program_of_the_page_runs(server: RabbitServer, tmp_path: Path) -> None:
    page = "docs/rabbitmq.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"AMQP_URI": server.uri}))
