"""What a batch task writes its output into: records become rows with a place to go to."""

from __future__ import annotations

import pickle
from itertools import count, islice, repeat
from typing import Any

import xxhash

from penstock.common.row_batches import dumps_each, make_rows, take_apart
from penstock.core.batch.rows import BROADCAST_PLACE, Rows
from penstock.core.columns.batch import ColumnBatch, make_batch
from penstock.core.operators.base import UserCodeError, call_all
from penstock.core.records import Batch
from penstock.core.task.partitioners import ROUTES_MAX, HashPartitioner, Partitioner
from penstock.state.key_groups import key_bytes, subtask_of_key_group

_PLACE_MASK = 2**63 - 1
#: Rows of one producer are numbered from its subtask times this on, so that numbers never meet.
SEQUENCES_PER_SUBTASK = 1 << 40


def sequences_of(subtask: int) -> count[int]:
    """The numbers of a producer's rows."""
    return count(subtask * SEQUENCES_PER_SUBTASK)


class Exchange:
    """The rows of one edge; takes the place of a result partition. Control elements have no meaning here."""

    def __init__(self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self._edge = edge
        self._rows = rows
        self._sequences = sequences

    def collect(self, batch: Batch) -> None:
        """Add the records of a batch."""
        raise NotImplementedError

    def broadcast(self, element: Any, flush: bool = False) -> None:
        """Watermarks and the like are not sent: each task knows by itself when its input has ended."""


class BatchExchange(Exchange):
    """Whole batches, dealt out by a partitioner over the subtasks that the edge leads to."""

    def __init__(
        self, edge: int, rows: Rows, sequences: count[int], partitioner: Partitioner, consumers: range
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._consumers = consumers

    def collect(self, batch: Batch) -> None:
        """A row for each consumer that gets any of it."""
        if self.partitioner.is_broadcast:
            payload = _dumps(batch)
            for consumer in self._consumers:
                self._rows.append(self._edge, consumer, next(self._sequences), payload, place=BROADCAST_PLACE)
            return
        for channel, part in self.partitioner.split(batch):
            self._rows.append(self._edge, self._consumers[channel], next(self._sequences), _dumps(part))


class KeyedExchange(Exchange):
    """A row for each record, at the place of its key."""

    def __init__(
        self,
        edge: int,
        rows: Rows,
        sequences: count[int],
        partitioner: HashPartitioner,
        consumers: int,
        max_parallelism: int,
        consumer_name: str,
    ) -> None:
        super().__init__(edge, rows, sequences, partitioner)
        self._key_selector = partitioner.key_selector
        self._consumers = consumers
        self._max_parallelism = max_parallelism
        self._consumer_name = consumer_name
        self._routes: dict[Any, tuple[int, int]] = {}

    def collect(self, batch: Batch) -> None:
        """Route each record by its key group, as in streaming."""
        values, rows = batch.values, self._rows
        keys: list[Any] = []
        try:
            call_all(self._key_selector, values, keys)
        except Exception as error:
            raise UserCodeError(self._consumer_name, values[len(keys)], "the key selector") from error
        get = self._routes.get
        routes = [get(key) or self._route(key) for key in keys]
        size = len(values)
        rows.edges.extend(repeat(self._edge, size))
        rows.targets.extend([target for target, _ in routes])
        rows.places.extend([place for _, place in routes])
        rows.timestamps.extend(repeat(None, size) if batch.timestamps is None else batch.timestamps)
        rows.sequences.extend(islice(self._sequences, size))
        rows.payloads.extend(dumps_each(values))

    def _route(self, key: Any) -> tuple[int, int]:
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        digest = xxhash.xxh3_64_intdigest(key_bytes(key))
        group = digest % self._max_parallelism
        route = subtask_of_key_group(group, self._max_parallelism, self._consumers), digest & _PLACE_MASK
        self._routes[key] = route
        return route


def _dumps(batch: Batch) -> bytes:
    if isinstance(batch, ColumnBatch):
        return pickle.dumps(batch.content(), 5)
    apart = take_apart(batch.values)
    if apart is not None:
        return pickle.dumps((apart[1], batch.timestamps, apart[0]), 5)
    return pickle.dumps((batch.values, batch.timestamps), 5)


def loads_batch(payload: bytes) -> Batch:
    """The batch of a row without a key."""
    values, timestamps, *fields = pickle.loads(payload)
    return make_batch(make_rows(fields[0], values) if fields else values, timestamps)
