"""The sink of `execute_and_collect`, and its client side.

A *payload* is a pickled list of records. It is sent to the client in a frame with the subtask index and an increasing
sequence number. A commit that is repeated after a recovery resends the frame with the same number, and the client drops
it (G9). If another job starts from a savepoint, its client does not know which records the previous client received. It
may therefore receive the records of the last commit again.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.base.errors import ProtocolError
from penstock.codecs.pickling import dumps
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext

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
