"""Sinks that commit in one place: writers in every subtask, and one committer for what all of them have prepared (G9).

Writers hand their committables on as records, ahead of the barrier for which they were prepared. The committer gathers
them and is a sink of its own. It keeps in its state what it has gathered up to the barrier, and commits all of that at
once when the checkpoint has completed. What an unaligned barrier overtakes on the way is in the checkpoint, and the
committer commits it with the next.
"""

from __future__ import annotations

from typing import Any

from penstock.base.errors import WrongTimeError
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext
from penstock.core.operators.base import StreamOperator
from penstock.core.operators.sink.sink import SINK, WRITER_STATE, hand_over, writer_mode
from penstock.core.records import Batch
from penstock.state.captures import StateCapture


class CommittableWriterOperator(StreamOperator):
    """Writes records through a sink's writer, and emits the committables."""

    user_part = SINK

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink
        self._writer: SinkWriter[Any, Any] | None = None

    def initialize_state(self) -> None:
        """Make the writer."""
        context = self.context
        self._writer_state = context.operator_state.list_state(WRITER_STATE, writer_mode(self._sink))
        if context.operator_state.is_restored:
            self._writer = self._sink.restore_writer(context, self._writer_state.get())
        else:
            self._writer = self._sink.create_writer(context)

    @property
    def writer(self) -> SinkWriter[Any, Any]:
        """The writer; there is one from `initialize_state` on."""
        if self._writer is None:
            raise WrongTimeError("the writer was used before initialize_state()")
        return self._writer

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Hand the records to the writer."""
        hand_over(self.writer, batch, self.context.operator_name)

    def next_timer_ms(self) -> int | None:
        """When the writer wants to hand over what it has buffered."""
        return None if self._writer is None else self._writer.next_flush_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """It is time for that."""
        due = self.next_timer_ms()
        if due is not None and due <= now_ms:
            self.writer.flush(False)

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
