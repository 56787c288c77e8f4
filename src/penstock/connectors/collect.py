"""Sinks that return records to the client: `CollectSink` for `execute_and_collect`, and the print and discarding sinks.

`CollectSink` commits a *payload*, a pickled list of records. It is sent to the client in a frame with the subtask index
and an increasing sequence number. A commit that is repeated after a recovery resends the frame with the same number,
and the client (`CollectedRecords`) drops it (G9). If another job starts from a savepoint, its client does not know
which records the previous client received. It may therefore receive the records of the last commit again.

`PrintSink` prints records at the client, and `DiscardingSink` discards them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.base.durable_files import print_lines
from penstock.base.errors import ProtocolError
from penstock.base.typeinfo import TypeInformation
from penstock.codecs.column_data import ColumnData
from penstock.codecs.pickling import dumps
from penstock.codecs.serialization import Renderer, renderer
from penstock.runtime.connector import Committer, Sink, SinkWriter, SinkWriterContext

# The numbers of an attempt start above all numbers of the previous one, even if writer state moved to another subtask.
_ATTEMPT_SHIFT = 32


class CollectCommittable(NamedTuple):
    """Records of one subtask between two checkpoints, with the sequence number that identifies duplicates."""

    subtask_index: int
    sequence: int
    payload: bytes


class CollectSink(Sink[Any]):
    """Sends records to the client exactly once, as checkpoints complete (G9).

    Args:
        immediate: send each batch at once instead. After a recovery the client may then receive duplicates.
    """

    def __init__(self, immediate: bool = False) -> None:
        self._immediate = immediate

    @property
    def shows_on_commit(self) -> bool:
        """Whether records are sent on commit rather than immediately."""
        return not self._immediate

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, CollectCommittable]:
        """Create a writer for one subtask."""
        return self.restore_writer(context, ())

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[Any, CollectCommittable]:
        """Create a writer that continues the sequence numbers of the restored state."""
        return _CollectWriter(context, self._immediate, max(context.attempt << _ATTEMPT_SHIFT, *state, 0))

    def create_committer(self, context: SinkWriterContext) -> Committer[CollectCommittable]:
        """Create the committer, which sends the records."""
        return _CollectCommitter(context)


class _CollectWriter(SinkWriter[Any, CollectCommittable]):
    def __init__(self, context: SinkWriterContext, immediate: bool, sequence: int) -> None:
        self._context = context
        self._immediate = immediate
        self._sequence = sequence
        self._values: list[Any] = []

    def write_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        self._values += values
        if self._immediate:
            for committable in self._take():
                self._context.emit_to_client(encode_frame(committable))

    def prepare_commit(self) -> list[CollectCommittable]:
        return self._take()

    def snapshot_state(self, checkpoint_id: int) -> list[int]:
        return [self._sequence]

    def _take(self) -> list[CollectCommittable]:
        if not self._values:
            return []
        payload = dumps(self._values)
        self._values = []
        self._sequence += 1
        return [CollectCommittable(self._context.subtask_index, self._sequence, payload)]


class _CollectCommitter(Committer[CollectCommittable]):
    def __init__(self, context: SinkWriterContext) -> None:
        self._context = context

    def commit(self, committables: Sequence[CollectCommittable]) -> None:
        for committable in committables:
            self._context.emit_to_client(encode_frame(committable))


def encode_frame(committable: CollectCommittable) -> bytes:
    """Encode a committable for the client."""
    return msgspec.msgpack.encode(tuple(committable))


class CollectedRecords:
    """Decodes frames at the client and drops duplicates.

    It unpickles records, so pass it only frames of the client's own job.
    """

    def __init__(self) -> None:
        self._sequences: dict[tuple[int, int], int] = {}  # the last sequence number, by subtask and attempt
        self._decoder = msgspec.msgpack.Decoder(tuple[int, int, bytes])

    def take(self, frame: bytes) -> list[Any]:
        """Return the records of a frame; an empty list for a duplicate.

        Raises:
            ProtocolError: if it is not a frame.
        """
        try:
            subtask_index, sequence, payload = self._decoder.decode(frame)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"not a frame of collected records: {error}") from error
        writer = (subtask_index, sequence >> _ATTEMPT_SHIFT)
        if sequence <= self._sequences.get(writer, -1):
            return []
        self._sequences[writer] = sequence
        values: list[Any] = pickle.loads(payload)
        return values


class PrintSink(Sink[Any]):
    """Prints records at the client, one per line; at least once, since printed lines cannot be taken back.

    With a parallelism above 1, a line begins with the number of the subtask, counted from 1: `3> hello`.

    Args:
        sink_identifier: precedes the subtask's number: `words:3> hello`.
        type_info: the type of the records, which determines their format (`penstock.codecs.serialization`); None for
            `str`.
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
        """Drop all records. Their values are still computed, as for any sink."""
        data.compute()

    def write_changes(self, data: ColumnData, kinds: bytes, rowtimes: Any) -> None:
        """Drop all records. Their values are still computed, as for any sink."""
        data.compute()
