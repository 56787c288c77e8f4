"""The program of docs/redis.md runs as it stands, against a real server."""

from __future__ import annotations

from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.redis import RedisServer


def test_the_program_of_the_page_runs(server: RedisServer, tmp_path: Path) -> None:
    page = "docs/redis.md"
    PAGES[page].check(run_page(page, "local", tmp_path, variables={"REDIS_URL": server.url}))
    assert server.call(("HGETALL", "visits:ann")) == [[b"home", b"3", b"cart", b"8"]]
    assert server.call(("HGET", "totals:ann:home", "seconds")) == [b"7"]
