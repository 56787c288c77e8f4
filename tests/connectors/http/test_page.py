"""The program of docs/http.md runs as it stands, against a server of ours."""

from __future__ import annotations

import json
from pathlib import Path

from tests.examples.pages import PAGES, run_page
from tests.servers.http import Received, Reply, accept_all, http_server


def answer(request: Received) -> Reply:
    if request.method == "POST":
        return accept_all(request)
    number = int(request.target.rpartition("/")[2])
    return (404, b"", {}) if number == 3 else (200, json.dumps({"name": f"person {number}"}).encode(), {})


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    page = "docs/http.md"
    with http_server(answer) as server:
        PAGES[page].check(run_page(page, "local", tmp_path, variables={"SHOP_URL": server.url}))
        visits = [
            visit for request in server.requests if request.method == "POST" for visit in json.loads(request.body)
        ]
    assert [visit for visit in visits if visit[0] == "ann"] == [["ann", 3], ["ann", 4]]
    assert len(visits) == 3
