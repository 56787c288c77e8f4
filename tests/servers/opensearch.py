"""A real OpenSearch, that of `penstock try opensearch`, which tests may kill and start again."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.ports import free_port
from tests.servers.waiting import await_true

from penstock.cli.trial.opensearch import OpensearchServer


class Opensearch(OpensearchServer):
    """A server that can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, free_port(), free_port())

    def start(self) -> None:
        self.launch()

    def await_up(self) -> None:
        await_true(self.is_up, f"OpenSearch does not answer: {self.log.read_text()[-3000:]}")

    def is_up(self) -> bool:
        return self.is_ready()

    def call(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())

    def documents(self, index: str) -> dict[str, str]:
        """The documents of an index, as JSON by their ids."""
        self.call("POST", f"/{index}/_refresh")
        documents: dict[str, str] = {}
        after: list[Any] = []
        while True:
            query = {"size": 5_000, "sort": ["_doc"], **({"search_after": after} if after else {})}
            request = urllib.request.Request(
                f"{self.url}/{index}/_search", json.dumps(query).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60) as response:
                hits = json.loads(response.read(), parse_float=str)["hits"]["hits"]
            if not hits:
                return documents
            documents |= {hit["_id"]: json.dumps(hit["_source"]) for hit in hits}
            after = hits[-1]["sort"]


@contextmanager
def opensearch_server(directory: Path) -> Iterator[Opensearch]:
    server = Opensearch(directory)
    server.start()
    try:
        server.await_up()
        yield server
    finally:
        server.kill()
