"""The sink of benchmark jobs: keeps records for a moment, as the bare loops do, and tells the client how many came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.runtime.connector import Sink, SinkWriter, SinkWriterContext

KEPT_MAX = 100_000


class CountingSink(Sink[Any]):
    """Counts records; `total` at the client is the number of those that came, once the job has ended."""

    def __init__(self) -> None:
        self.total = 0

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        return _CountingWriter(context)

    def client_handler(self) -> Callable[[int, bytes], None]:
        return self._add

    def _add(self, subtask_index: int, count: bytes) -> None:
        self.total += int(count)


class _CountingWriter(SinkWriter[Any, Any]):
    def __init__(self, context: SinkWriterContext) -> None:
        self._context = context
        self._kept: list[Any] = []
        self._count = 0

    def write_columns(self, data: Any, rowtimes: Any) -> None:
        self._count += len(data)

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._count += len(values)
        self._kept.extend(values)
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()

    def flush(self, end_of_input: bool) -> None:
        if end_of_input:
            self._context.emit_to_client(str(self._count).encode())
