"""The sink behind `execute_and_collect`, and the client's half of it.

A *payload* is a pickled list of records. It travels to the client in a frame with the subtask and a number that only
grows. A commit that is repeated after a recovery sends the frame again with the same number, and the client drops it
(G9). The client of another job, which began from a savepoint, does not know what the former client received. It may
therefore get the records of the last commit once more.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.base.errors import ProtocolError
from penstock.codecs.pickling import dumps
from penstock.core.connector import Committer, Sink, SinkWriter, SinkWriterContext

# Numbers of one attempt begin above all of the attempt before, even if writer state went to another subtask.
_ATTEMPT_SHIFT = 32


class CollectCommittable(NamedTuple):
    """Records of one subtask between two checkpoints, and the number by which a repetition is recognised."""

    subtask_index: int
    sequence: int
    payload: bytes


class CollectSink(Sink[Any]):
    """Sends records to the client: once each, as checkpoints complete (G9).

    Args:
        immediate: send each batch at once instead. After a recovery records may then come again.
    """

    def __init__(self, immediate: bool = False) -> None:
        self._immediate = immediate

    @property
    def shows_on_commit(self) -> bool:
        """True unless it sends at once."""
        return not self._immediate

    def create_writer(self, context: SinkWriterContext) -> SinkWriter[Any, CollectCommittable]:
        """A writer for one subtask."""
        return self.restore_writer(context, ())

    def restore_writer(self, context: SinkWriterContext, state: Sequence[Any]) -> SinkWriter[Any, CollectCommittable]:
        """A writer that goes on counting after all that the state has counted."""
        return _CollectWriter(context, self._immediate, max(context.attempt << _ATTEMPT_SHIFT, *state, 0))

    def create_committer(self, context: SinkWriterContext) -> Committer[CollectCommittable]:
        """The committer, which sends."""
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
    """A committable as it travels to the client."""
    return msgspec.msgpack.encode(tuple(committable))


class CollectedRecords:
    """Turns frames back into records at the client, and leaves out those that came before.

    Give it only frames of the client's own job, because it unpickles records.
    """

    def __init__(self) -> None:
        self._sequences: dict[tuple[int, int], int] = {}  # the last one, by subtask and attempt
        self._decoder = msgspec.msgpack.Decoder(tuple[int, int, bytes])

    def take(self, frame: bytes) -> list[Any]:
        """The records of a frame; none if it is a repetition.

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
