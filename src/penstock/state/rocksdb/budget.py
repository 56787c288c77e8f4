"""One memory budget for all RocksDB stores of a slot (E2), and its division.

A worker is one slot. Without a budget, each store uses the sizes in its settings, so the memory of a worker grows with
the number of its stateful operators. With a budget, the memory has three parts. Each is divided differently, because
memory moves between stores in different ways:

- **Objects**, `object_cache_ratio` of the budget: entries as Python objects, in front of the stores. They are on
  Python's heap, where RocksDB cannot count them, so this part is separate. Every open store has an even share of it.
  Division by demand would need a count at every access, which `WriteCache` is designed to avoid, and a busy store
  could starve the others.
- **Write buffers**, at most `write_buffer_ratio` of the rest. RocksDB flushes only the store that writes. If all
  stores filled one pool, an idle store that keeps its rows would leave the others buffers of a few rows each, and so
  files of a few rows. So each store has its own buffers, with an even share.
- **Blocks** of files with their indexes and filters: everything that the write buffers leave of the rest. The stores
  share one cache, and the write buffers in use are charged to it. So blocks move to the stores that read, and memory
  that no write buffer needs serves reads.

The shares of the stores change when a store is opened or closed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ConfigurationError

#: RocksDB accepts no smaller write buffer.
_BUFFER_BYTES_MIN: Final = 64 << 10
#: The memory of a store for a few blocks and the top levels of indexes and filters, which stay in memory.
_BLOCKS_BYTES_MIN: Final = 128 << 10
#: A store has two buffers: one fills while the other is written to a file. Each may exceed its size by a batch and by a
#: part of a block of its arena, in all by a fifth. So no store is flushed because others have used its memory.
_BUFFER_OF_SHARE: Final = 0.4


@dataclass(frozen=True)
class MemoryBudget:
    """See the module docstring. Sent to the workers.

    Attributes:
        total_bytes: the memory for all stores of a slot.
        option: the option that sets it, named in errors.
        write_buffer_ratio: the write buffers' share of RocksDB's memory.
        object_cache_ratio: the Python objects' share of the total.
    """

    total_bytes: int
    option: str
    write_buffer_ratio: float = 0.5
    object_cache_ratio: float = 0.33

    def __post_init__(self) -> None:
        self.check(1)

    @property
    def rocksdb_bytes(self) -> int:
        """RocksDB's memory: blocks, and the write buffers that are charged to them."""
        return int(self.total_bytes * (1 - self.object_cache_ratio))

    @property
    def write_buffers_bytes(self) -> int:
        """The memory for all write buffers of the slot."""
        return int(self.rocksdb_bytes * self.write_buffer_ratio)

    def write_buffer_bytes(self, stores: int) -> int:
        """Return the size of each of a store's two buffers."""
        return max(_BUFFER_BYTES_MIN, int(self.write_buffers_bytes * _BUFFER_OF_SHARE) // max(1, stores))

    def object_cache_bytes(self, stores: int) -> int:
        """Return the memory for a store's Python objects."""
        return (self.total_bytes - self.rocksdb_bytes) // max(1, stores)

    def minimum_bytes(self, stores: int) -> int:
        """Return the smallest total that works with this number of stores."""
        rest = 1 - self.object_cache_ratio
        buffers = _BUFFER_BYTES_MIN / _BUFFER_OF_SHARE / self.write_buffer_ratio
        blocks = _BLOCKS_BYTES_MIN / (1 - self.write_buffer_ratio)
        return math.ceil(stores * max(buffers, blocks) / rest)

    def check(self, stores: int) -> None:
        """Raise `ConfigurationError` if the total is too small for this number of stores."""
        minimum = self.minimum_bytes(stores)
        if self.total_bytes < minimum:
            those = "one RocksDB store needs" if stores == 1 else f"the {stores} RocksDB stores of this worker need"
            raise ConfigurationError(
                f"option {self.option} is {self.total_bytes} bytes, but {those} at least {minimum} bytes: every "
                "operator with keyed state has a store for each of its subtasks in the worker"
            )
