"""The port `JobListener` of a simulated job that works step by step: writes the job's log to the event log."""

from __future__ import annotations

from collections.abc import Callable


class Listening:
    """See the module docstring. Output to the client is ignored."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def on_job_status(self, status: str, reason: str | None) -> None: ...

    def on_client_output(self, operator_id: str, subtask_index: int, payload: bytes) -> None: ...

    def on_log(self, line: str) -> None:
        self._write(f"log: {line}")
