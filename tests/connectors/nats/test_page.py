"""The program of docs/nats.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.queues import NatsServer


def test_the_program_of_the_page_runs(server: NatsServer, tmp_path: Path) -> None:
    page = "docs/nats.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"NATS_URL": server.url}))
