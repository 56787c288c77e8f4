"""Sinks that commit in one place: writers in every subtask, and one committer for what all of them have prepared (G9).

Writers hand their committables on as records, ahead of the barrier for which they were prepared. The committer gathers
them and is a sink of its own. It keeps in its state what it has gathered up to the barrier, and commits all of that at
once when the checkpoint has completed. What an unaligned barrier overtakes on the way is in the checkpoint, and the
committer commits it with the next.
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
        """Make the writer."""
        self.make_writer()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emit what was prepared, ahead of the barrier."""
        self._emit_prepared(False)

    def finish(self) -> None:
        """Emit the last of it."""
        self._emit_prepared(True)

    def _emit_prepared(self, end_of_input: bool) -> None:
        self.writer.flush(end_of_input)
        prepared = list(self.writer.prepare_commit())
        if prepared:
            self.output.collect(Batch(prepared))

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """The writer's state."""
        self._writer_state.update(self.writer.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def close(self) -> None:
        """Close the writer, when there is one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class GlobalCommit(Sink[Any]):
    """The committer's half, as a sink of committables; runs at parallelism 1."""

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, Any]:
        """Gathers committables."""
        return _Gathering()

    def create_committer(self, context: SinkWriterContext) -> Committer[Any] | None:
        """That of the sink."""
        return self._sink.create_committer(context)


class _Gathering(SinkWriter[Any, Any]):
    def __init__(self) -> None:
        self._gathered: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._gathered += values

    def prepare_commit(self) -> list[Any]:
        gathered, self._gathered = self._gathered, []
        return gathered
