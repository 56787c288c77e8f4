"""A small HTTP interface of ClickHouse over chDB, its engine in a process: `chdb_server.py PORT DIRECTORY`.

It runs in an environment with the package chdb, and imports nothing else. It has one query at a time, settings of
requests, and the formats of ClickHouse; no users, no replication and no compression.
"""

import importlib
import os
import re
import sys
import tempfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SESSION = importlib.import_module("chdb.session").Session(sys.argv[2])
_LOCK = threading.Lock()
_INSERT = re.compile(r"\s*(INSERT\s+INTO\b.*?)\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE | re.DOTALL)
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE)
_OWN = ("query", "database", "wait_end_of_query", "default_format")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlparse(self.path).query))
        query = parameters.get("query", "")
        if not query:
            query, body = body.decode(), b""
        given = ", ".join(f"{name} = '{value}'" for name, value in parameters.items() if name not in _OWN)
        settings = f" SETTINGS {given}" if given else ""
        try:
            with _LOCK:
                answer = self._insert(query, body, settings) if body else self._query(query, settings)
        except Exception as error:  # noqa: BLE001 - the client gets it
            self._answer(500, str(error).encode())
        else:
            self._answer(200, answer)

    do_GET = do_POST

    def _insert(self, query: str, body: bytes, settings: str) -> bytes:
        match = _INSERT.match(query)
        assert match is not None, query
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(body)
        try:
            _SESSION.query(f"{match[1]} FROM INFILE '{file.name}'{settings} FORMAT {match[2]}")
        finally:
            os.unlink(file.name)
        return b""

    def _query(self, query: str, settings: str) -> bytes:
        match = _FORMAT.search(query)
        text = query[: match.start()] if match else query
        has_rows = re.match(r"\s*(SELECT|SHOW|DESCRIBE|WITH)\b", text, re.IGNORECASE)
        return bytes(
            _SESSION.query(text + (settings if has_rows else ""), match[1] if match else "TabSeparated").bytes()
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
