"""Sinks that commit in one place: a writer in every subtask, and one committer for all their committables (G9).

Writers emit their committables as records, ahead of the barrier that they were prepared for. The committer, a sink of
its own, collects them. It keeps the committables collected up to the barrier in its state, and commits them all at once
when the checkpoint completes. If an unaligned barrier overtakes committables, the checkpoint contains them as records
in flight, and the committer commits them with the next checkpoint.
"""

from __future__ import annotations

from typing import Any

from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.core.operators.sink.sink import SINK, WriterOperator
from penstock.core.records import Batch
from penstock.state.captures import StateCapture


class CommittableWriterOperator(WriterOperator):
    """Writes records through a sink's writer, and emits the committables."""

    user_part = SINK

    def initialize_state(self) -> None:
        """Create the writer."""
        self.make_writer()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emit the prepared committables ahead of the barrier."""
        self._emit_prepared(False)

    def finish(self) -> None:
        """Emit the last committables."""
        self._emit_prepared(True)

    def _emit_prepared(self, end_of_input: bool) -> None:
        self.writer.flush(end_of_input)
        prepared = list(self.writer.prepare_commit())
        if prepared:
            self.output.collect(Batch(prepared))

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the writer's state."""
        self._writer_state.update(self.writer.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def close(self) -> None:
        """Close the writer, if there is one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class GlobalCommit(Sink[Any]):
    """The committing half, as a sink of committables; runs at parallelism 1."""

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """Create a writer that collects committables."""
        return _Gathering()

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """Create the committer of the original sink."""
        return self._sink.create_committer(context)


class _Gathering(SinkWriter[Any, Any]):
    def __init__(self) -> None:
        self._gathered: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._gathered += values

    def prepare_commit(self) -> list[Any]:
        gathered, self._gathered = self._gathered, []
        return gathered
