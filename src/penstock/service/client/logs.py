"""Logs over REST: their last lines, and new lines as they appear."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Final

from penstock.base.errors import WrongValueError
from penstock.service.client.jobs import resolve_job_id
from penstock.service.client.rest_client import RestClient

#: The interval (s) at which a followed log is read.
PAUSE_SECONDS: Final = 1.0
#: The number of characters at the end of a log that find the position again after a bounded log dropped its beginning.
ANCHOR: Final = 2_000


def log_path(client: RestClient, job: str | None, worker: str | None, is_stdout: bool) -> str:
    """Return the path of the log.

    Raises:
        WrongValueError: if no job or worker matches, or several do.
    """
    kind = "stdout" if is_stdout else "log"
    query = "" if job is None else f"?job={resolve_job_id(client, job)}"
    if worker is None:
        return f"/jobmanager/{kind}{query}"
    ids = [taskmanager["id"] for taskmanager in client.get("/taskmanagers")["taskmanagers"]]
    matches = [worker_id for worker_id in ids if worker_id == worker] or [
        worker_id for worker_id in ids if worker_id.startswith(worker)
    ]
    if len(matches) != 1:
        raise WrongValueError(f"{worker!r} names {len(matches)} workers; there are {', '.join(ids) or 'none'}")
    return f"/taskmanagers/{matches[0]}/{kind}"


class LogReader:
    """Reads one log."""

    def __init__(self, client: RestClient, path: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._path = path
        self._sleep = sleep

    def lines(self, last: int, follow: bool) -> Iterator[str]:
        """Yield the last lines and, with `follow`, new lines without end."""
        text = self._client.text("GET", self._path)
        lines = text.splitlines()
        yield from lines[max(0, len(lines) - last) :]
        while follow:
            self._sleep(PAUSE_SECONDS)
            now = self._client.text("GET", self._path)
            yield from added(text, now).splitlines()
            text = now

    def as_json(self, line: str) -> str:
        """Format a line as a JSON object."""
        return json.dumps({"log": self._path.partition("?")[0].removeprefix("/"), "line": line}, ensure_ascii=False)


def added(before: str, now: str) -> str:
    """Return the text added to a log, which may have dropped its beginning or started over."""
    if now.startswith(before):
        return now[len(before) :]
    anchor = before[-ANCHOR:]
    at = now.rfind(anchor) if anchor else -1
    return now if at < 0 else now[at + len(anchor) :]
