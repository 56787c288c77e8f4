"""Assigns vertices to partitions by a hash of their ids, the same for all streams of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.errors import WrongValueError
from penstock.core.columns.batch import ColumnBatch
from penstock.core.task.channels.partitioners import SelectingPartitioner
from penstock.state.key_bytes import key_bytes

_MIX: Final = 0x9E3779B97F4A7C15
_M64: Final = (1 << 64) - 1
_ID_MIN: Final = -(1 << 63)
_ID_MAX: Final = (1 << 63) - 1


def assign_integer_owners(ids: Any, partitions: int) -> Any:
    """Return the partition of each id of a numpy array of 64-bit integers."""
    mixed = ids.astype(np.int64, copy=False).view(np.uint64) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(partitions)).astype(np.uint16)


def assign_owner(vertex_id: Any, partitions: int) -> int:
    """Return the partition of an id of any kind; equal ids have the same owner, such as the numbers 1 and 1.0."""
    is_whole = isinstance(vertex_id, int) or (isinstance(vertex_id, float) and vertex_id.is_integer())
    if is_whole and _ID_MIN <= vertex_id <= _ID_MAX:
        mixed = int(vertex_id) * _MIX & _M64
        return (mixed ^ mixed >> 32) % partitions
    return xxhash.xxh3_64_intdigest(key_bytes(vertex_id)) % partitions


class Owners(dict[Any, int]):
    """The owner of each id, computed on the first request."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions

    def __missing__(self, vertex_id: Any) -> int:
        owner = self[vertex_id] = assign_owner(vertex_id, self._partitions)
        return owner


class IdPartitioner(SelectingPartitioner):
    """Partitions by the owner of the id at a position of each record."""

    name = "HASH"

    def __init__(self, position: int) -> None:
        self._position = position

    def set_up(self, subtask_index: int, channels: int, max_parallelism: int, consumer: str = "") -> None:
        """Set up the partitioner, without known owners."""
        super().set_up(subtask_index, channels, max_parallelism, consumer)
        self._consumer = consumer
        self._owners = Owners(channels)

    def select_channels(self, values: list[Any]) -> Sequence[int]:
        """Return the owner of each record's id."""
        ids = [value[self._position] for value in values]
        try:
            if set(map(type, ids)) == {int}:
                return [int(owner) for owner in assign_integer_owners(np.array(ids, np.int64), self.channels)]
        except OverflowError:
            pass
        try:
            return list(map(self._owners.__getitem__, ids))
        except Exception as error:
            raise WrongValueError(f"{self._consumer}: an id of the graph cannot be a key: {error}") from error

    def channels_of_columns(self, batch: ColumnBatch) -> Any:
        """Return the owner of each record's id, as a numpy array."""
        column = batch.columns.column(self._position)
        if pa.types.is_integer(column.type) and column.type != pa.uint64() and not column.null_count:
            return assign_integer_owners(column.to_numpy(zero_copy_only=False), self.channels)
        encoded = column.dictionary_encode()
        of_each = [self._owners[vertex_id] for vertex_id in encoded.dictionary.to_pylist()]
        return np.array(of_each, np.uint16)[encoded.indices.to_numpy(zero_copy_only=False)]
