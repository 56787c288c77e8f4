"""The outputs of batch tasks: they convert records into rows with a destination."""

from __future__ import annotations

import pickle
from itertools import count, islice, repeat
from typing import Any, Final

import xxhash

from penstock.base.errors import UnsupportedError
from penstock.codecs.pickling import dumps
from penstock.codecs.row_batches import dumps_each, make_rows, take_apart
from penstock.core.batch.rows import BROADCAST_PLACE, Rows
from penstock.core.columns.batch import ColumnBatch, make_batch
from penstock.core.records import Batch
from penstock.core.task.channels.partitioners import HashPartitioner, KeyMemory, Partitioner
from penstock.state.key_bytes import key_bytes
from penstock.state.key_groups import subtask_of_key_group

#: The number of bits in a place below the subtask.
HASH_BITS: Final = 48
HASH_MASK: Final = (1 << HASH_BITS) - 1
#: A producer numbers its rows from its subtask index times this, so that no two producers share a number.
SEQUENCES_PER_SUBTASK = 1 << 40


def build_sequence(subtask: int) -> count[int]:
    """Return the sequence numbers of a producer's rows."""
    return count(subtask * SEQUENCES_PER_SUBTASK)


class Exchange:
    """Collects the rows of one edge, in place of a result partition. It ignores control elements."""

    def __init__(self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self._edge = edge
        self._rows = rows
        self._sequences = sequences

    def collect(self, batch: Batch) -> None:
        """Add the records of a batch."""
        raise NotImplementedError

    def broadcast(self, element: Any, flush: bool = False) -> None:
        """Do nothing: watermarks and the like are not sent, since each task knows when its input has ended."""


class BatchExchange(Exchange):
    """Sends whole batches, which a partitioner distributes over the edge's subtasks."""

    def __init__(
        self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner, consumers: range
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._consumers = consumers

    def collect(self, batch: Batch) -> None:
        """Add a row for each consumer that receives part of the batch."""
        if self.partitioner.is_broadcast:
            payload = _dumps(batch)
            for consumer in self._consumers:
                self._rows.append(self._edge, consumer, next(self._sequences), payload, place=BROADCAST_PLACE)
            return
        for channel, part in self.partitioner.split(batch):
            self._rows.append(self._edge, self._consumers[channel], next(self._sequences), _dumps(part))


class Places(KeyMemory):
    """Computes the places of keys (see `rows`), by key group as in streaming."""

    def __init__(self, consumers: int, max_parallelism: int) -> None:
        super().__init__()
        self._consumers = consumers
        self._max_parallelism = max_parallelism

    def work_out(self, key: Any) -> int:
        """Return the key's subtask, followed by a hash of the key."""
        digest = xxhash.xxh3_64_intdigest(key_bytes(key))
        target = subtask_of_key_group(digest % self._max_parallelism, self._max_parallelism, self._consumers)
        return target << HASH_BITS | digest & HASH_MASK


class KeyedExchange(Exchange):
    """Sends a row for each record, at the place of its key.

    Without `has_payloads`, the driver carries the records to the rows' destinations; they arrive in the same order.
    """

    def __init__(
        self,
        edge: int,
        rows: Rows,
        sequences: count[int],
        partitioner: HashPartitioner,
        positions: Places,
        consumer_name: str,
        has_payloads: bool = True,
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._key_selector = partitioner.key_selector
        self._places = positions
        self._consumer_name = consumer_name
        self._has_payloads = has_payloads

    def collect(self, batch: Batch) -> None:
        """Add a row for each record, with a payload if asked for."""
        values, rows = batch.values, self._rows
        positions = self._places.of_records(self._key_selector, values, self._consumer_name)
        size = len(values)
        rows.edges.extend(repeat(self._edge, size))
        rows.targets.extend([position >> HASH_BITS for position in positions])
        rows.places.extend(positions)
        rows.timestamps.extend(repeat(None, size) if batch.timestamps is None else batch.timestamps)
        rows.sequences.extend(islice(self._sequences, size))
        if self._has_payloads:
            rows.payloads.extend(dumps_each(values, None if isinstance(batch, ColumnBatch) else batch.kinds))
        elif batch.kinds is None:
            rows.payloads.extend(repeat(b"", size))
        else:
            raise UnsupportedError(
                f"{self._consumer_name}: records with row kinds cannot go through Spark's own exchange"
            )


def _dumps(batch: Batch) -> bytes:
    if isinstance(batch, ColumnBatch) or batch.kinds is not None:
        return dumps((*batch.content()[:2], None, batch.kinds))
    apart = take_apart(batch.values)
    if apart is not None:
        return dumps((apart[1], batch.timestamps, apart[0]))
    return dumps((batch.values, batch.timestamps))


def loads_batch(payload: bytes) -> Batch:
    """Load the batch of a row without a key."""
    values, timestamps, *fields_and_kinds = pickle.loads(payload)
    if len(fields_and_kinds) == 1:
        return Batch(make_rows(fields_and_kinds[0], values), timestamps)
    return make_batch(values, timestamps, *fields_and_kinds[1:])
