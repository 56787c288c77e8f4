"""The program of docs/mqtt.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.queues import MosquittoServer


def test_the_program_of_the_page_runs(server: MosquittoServer, tmp_path: Path) -> None:
    page = "docs/mqtt.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"MQTT_URL": f"mqtt://127.0.0.1:{server.port}"}))
