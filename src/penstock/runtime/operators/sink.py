"""Sink operators: write, prepare and commit output, in every subtask or in one place (F6, G9).

`SinkOperator` is the tail of a sink task: a writer, and a committer that makes its output visible, exactly once. At a
barrier, the writer returns committables, which go into the snapshot together with all earlier uncommitted ones. When a
checkpoint completes, the operator commits everything prepared up to it. After a recovery, the operator commits
everything in the restored checkpoint again before the writer starts. Commits are idempotent, so it does not matter
whether the failed attempt had already committed. Output prepared after that checkpoint is committed only by a job that
starts from a savepoint that names the output. The operator passes these committables to the writer, which keeps the
output until then (`SinkWriter.pin`).

`CommittableWriterOperator` and `GlobalCommit` are sinks that commit in one place: a writer in every subtask, and one
committer for all their committables. Writers emit their committables as records, ahead of the barrier that they were
prepared for. The committer, a sink of its own, collects them. It keeps the committables collected up to the barrier in
its state, and commits them all at once when the checkpoint completes. If an unaligned barrier overtakes committables,
the checkpoint contains them as records in flight, and the committer commits them with the next checkpoint.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.base.errors import CallError, PenstockError, WrongTimeError, short_repr
from penstock.codecs.pickling import dumps_named
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import Committer, RecordError, Sink, SinkWriter, SinkWriterContext
from penstock.runtime.operators.base import StreamOperator, UserCodeError
from penstock.runtime.operators.function_context import OperatorContext
from penstock.runtime.records import Batch
from penstock.state.operator_state import COMMITTABLE_MODE, SPLIT_MODE, UNION_MODE
from penstock.state.snapshot import StateCapture

WRITER_STATE = "_penstock_writer"
COMMITTABLES_STATE = "_penstock_committables"


#: The name of a sink's user code in errors.
SINK: Final = "the sink"


def writer_mode(sink: Sink[Any]) -> str:
    """Return how the state of a sink's writers is redistributed after a recovery."""
    return UNION_MODE if sink.shares_writer_state else SPLIT_MODE


class _OneOf:
    """Stands for an unidentified record of a batch in errors."""

    def __init__(self, values: list[Any]) -> None:
        self._text = f"one of {len(values)}, the first {short_repr(values[0])}"

    def __repr__(self) -> str:
        return self._text


def write_records(writer: SinkWriter[Any, Any], batch: Batch, operator_name: str) -> None:
    """Hand the records to the writer.

    Raises:
        UserCodeError: if the writer raises; Penstock's own errors pass through, unless they reject a call by the
            writer.
    """
    values = batch.values
    try:
        writer.write_batch(values, batch.timestamps)
    except RecordError as error:
        raise UserCodeError(operator_name, error.record, error.what) from error.__cause__
    except Exception as error:
        if isinstance(error, PenstockError) and not isinstance(error, CallError):
            raise
        raise UserCodeError(operator_name, values[0] if len(values) == 1 else _OneOf(values), SINK) from error


def hand_over(writer: SinkWriter[Any, Any], batch: Batch, operator_name: str) -> None:
    """Hand records to the writer, as columns if the batch has columns; raises the errors of `write_records`."""
    if not isinstance(batch, ColumnBatch):
        write_records(writer, batch, operator_name)
    elif batch.kinds is None:
        writer.write_columns(batch.data, batch.rowtimes)
    else:
        writer.write_changes(batch.data, batch.kinds, batch.rowtimes)


class WriterOperator(StreamOperator):
    """Hands records to a sink's writer."""

    user_part = SINK

    def __init__(self, sink: Sink[Any]) -> None:
        self._sink = sink
        self._writer: SinkWriter[Any, Any] | None = None

    def make_writer(self) -> None:
        """Create the writer, with its restored state if there is any."""
        context: OperatorContext = self.context
        self._writer_state = context.operator_state.list_state(WRITER_STATE, writer_mode(self._sink))
        if context.operator_state.is_restored:
            self._writer = self._sink.restore_writer(context, self._writer_state.get())
        else:
            self._writer = self._sink.create_writer(context)

    @property
    def writer(self) -> SinkWriter[Any, Any]:
        """The writer, available from `initialize_state` on."""
        if self._writer is None:
            raise WrongTimeError("the sink operator was used before initialize_state()")
        return self._writer

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Hand the records to the writer."""
        hand_over(self.writer, batch, self.context.operator_name)

    def next_timer_ms(self) -> int | None:
        """Return when the writer wants to flush its buffer."""
        return None if self._writer is None else self._writer.next_flush_ms()

    def on_processing_time(self, now_ms: int) -> None:
        """Flush the writer if it is time."""
        due = self.next_timer_ms()
        if due is not None and due <= now_ms:
            self.writer.flush(False)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the writer after the commit."""
        if self._writer is not None:
            self._writer.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify the writer."""
        if self._writer is not None:
            self._writer.notify_checkpoint_aborted(checkpoint_id)


class SinkOperator(WriterOperator):
    """Writes records through a `Sink`."""

    def __init__(self, sink: Sink[Any]) -> None:
        super().__init__(sink)
        self._committer: Committer[Any] | None = None
        #: checkpoint id -> committables prepared for it and not yet committed
        self._pending: dict[int, list[Any]] = {}

    def initialize_state(self) -> None:
        """Commit the output prepared for the restored checkpoint, then create the writer."""
        self._commit_restored()
        self.make_writer()

    def recover_finished(self) -> None:
        """Commit the last output, which was prepared for the restored checkpoint but perhaps not yet committed."""
        self._commit_restored()

    def _commit_restored(self) -> None:
        self._committables = self.context.operator_state.list_state(COMMITTABLES_STATE, COMMITTABLE_MODE)
        self._committer = self._sink.create_committer(self.context)
        restored = self._committables.get()
        if restored and self._committer is not None:
            self._committer.recommit(restored)
        self._committables.update([])

    def pickled(self, committables: list[Any]) -> bytes:
        """Serialize committables for the client."""
        return dumps_named(committables, f"operator {self.context.operator_name!r}: the committables of its sink")

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Prepare the written output for commit, and capture it with the writer's state."""
        writer = self.writer
        writer.flush(False)
        prepared = writer.prepare_commit()
        if prepared:
            self._pending[checkpoint_id] = list(prepared)
        self._committables.update([c for committables in self._pending.values() for c in committables])
        self._writer_state.update(writer.snapshot_state(checkpoint_id))
        return super().snapshot_state(checkpoint_id)

    def on_savepoint(self, checkpoint_id: int) -> None:
        """Protect the output that the savepoint names from deletion."""
        named = self._committables.get()
        if named:
            self.writer.pin(checkpoint_id, named)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the output prepared up to this checkpoint."""
        due = [i for i in self._pending if i <= checkpoint_id]
        committables = [c for i in due for c in self._pending[i]]
        if committables and self._committer is not None:
            self._committer.commit(committables)
        for i in due:
            del self._pending[i]
        super().notify_checkpoint_complete(checkpoint_id)

    def finish(self) -> None:
        """Flush the writer at the end of input. Without checkpoints, commit now because nothing commits later."""
        self.writer.flush(True)
        if not self.context.checkpointing:
            prepared = [c for committables in self._pending.values() for c in committables]  # prepared for savepoints
            prepared += self.writer.prepare_commit()
            self._pending.clear()
            if prepared and self._committer is not None:
                self._committer.commit(prepared)

    @property
    def sink(self) -> Sink[Any]:
        """The sink, for code that commits in place of this operator."""
        return self._sink

    def prepared(self, checkpoint_id: int) -> list[Any]:
        """Return the committables of a checkpoint's snapshot, for code that commits in place of this operator."""
        return list(self._pending.get(checkpoint_id, ()))

    def prepare_last(self) -> list[Any]:
        """Return the committables to commit once the whole job has ended: for batch execution, after `finish`."""
        return list(self.writer.prepare_commit())

    def close(self) -> None:
        """Close the writer and the committer."""
        writer, committer = self._writer, self._committer
        self._writer = self._committer = None
        try:
            if writer is not None:
                writer.close()
        finally:
            if committer is not None:
                committer.close()


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
        self.commits_without_rows = sink.commits_without_rows

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
