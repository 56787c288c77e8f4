"""Sinks that print records at the client, or discard them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.base.typeinfo import TypeInformation
from penstock.base.whole_lines import print_lines
from penstock.codecs.column_data import ColumnData
from penstock.codecs.rendering import Renderer, renderer
from penstock.core.connector import Sink, SinkWriter, SinkWriterContext


class PrintSink(Sink[Any]):
    """Prints records at the client, one per line; at least once, since printed lines cannot be taken back.

    With a parallelism above 1, a line begins with the number of the subtask, counted from 1: `3> hello`.

    Args:
        sink_identifier: precedes the subtask's number: `words:3> hello`.
        type_info: the type of the records, which determines their format (`penstock.codecs.rendering`); None for `str`.
    """

    def __init__(self, sink_identifier: str | None = None, type_info: TypeInformation | None = None) -> None:
        self._sink_identifier = sink_identifier or ""
        self._type_info = type_info

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """Return a writer for one subtask."""
        subtask = str(context.subtask_index + 1) if context.parallelism > 1 else ""
        prefix = ":".join(filter(None, (self._sink_identifier, subtask)))
        return _PrintWriter(context, f"{prefix}> " if prefix else "", renderer(self._type_info))

    def client_handler(self) -> Callable[[int, bytes], None]:
        """Return a function that writes to the program's standard output."""
        return _write_to_stdout


def _write_to_stdout(subtask_index: int, lines: bytes) -> None:
    print_lines(lines.decode("utf-8"))


class _PrintWriter(SinkWriter[Any, Any]):
    def __init__(self, context: SinkWriterContext, prefix: str, render: Renderer) -> None:
        self._emit = context.emit_to_client
        self._prefix = prefix
        self._render = render

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        prefix, render = self._prefix, self._render
        if values:
            self._emit("".join([f"{prefix}{render(value)}\n" for value in values]).encode("utf-8", "replace"))


class DiscardingSink(Sink[Any]):
    """Discards all records."""

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """Return a writer for one subtask."""
        return _DiscardingWriter()


class _DiscardingWriter(SinkWriter[Any, Any]):
    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Drop all records."""

    def write_columns(self, data: ColumnData, rowtimes: Any) -> None:
        """Drop all records. The columns are still computed, as for any sink."""
        _ = data.columns

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Drop all records. The columns are still computed, as for any sink."""
        _ = data.columns
