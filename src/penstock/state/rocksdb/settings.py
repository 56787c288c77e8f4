"""Sizes of the RocksDB state backend, in bytes unless the name says otherwise, and the memory shared in a slot.

`MemoryBudget` is one memory budget for all RocksDB stores of a slot (E2), and its division. A worker is one slot.
Without a budget, each store uses the sizes in its settings, so the memory of a worker grows with the number of its
stateful operators. With a budget, the memory has three parts. Each is divided differently, because memory moves between
stores in different ways:

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

`SlotMemory` is the shared memory. The shares of the stores change when a store is opened or closed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

from penstock.base.errors import ConfigurationError, WrongValueError

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


#: The share of the budget that the cache gets: blocks in use and rounded charges may exceed its capacity slightly.
_CAPACITY: Final = 15 / 16


class Sharer(Protocol):
    """A store that is open for writing."""

    def on_share(self) -> None:
        """Handle a change of the shares."""


class SlotMemory:
    """The block cache and the write buffer manager that all stores of a slot share, and the share of each store.

    A store takes its new share at its next write rather than at once, because every store that opens while a job starts
    changes the shares.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._sharers: list[Sharer] = []
        self.blocks = Cache(int(budget.rocksdb_bytes * _CAPACITY))
        # No stalls: a writer waiting for another store's flush would stop all stores of the slot.
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            budget.write_buffers_bytes, False, self.blocks
        )

    def join(self, sharer: Sharer) -> None:
        """Register a store before it opens; raise `ConfigurationError` if the budget is too small for one more."""
        self._budget.check(len(self._sharers) + 1)
        others = list(self._sharers)
        self._sharers.append(sharer)
        self._tell(others)

    def leave(self, sharer: Sharer) -> None:
        """Unregister a closed store. A second call has no effect."""
        if sharer in self._sharers:
            self._sharers.remove(sharer)
            self._tell(list(self._sharers))

    def _tell(self, sharers: list[Sharer]) -> None:
        for sharer in sharers:
            sharer.on_share()

    @property
    def buffer_bytes(self) -> int:
        """The size of each write buffer of a store."""
        return self._budget.write_buffer_bytes(len(self._sharers))

    @property
    def object_bytes(self) -> int:
        """The memory (bytes) that a store may use for Python objects."""
        return self._budget.object_cache_bytes(len(self._sharers))


_BLOOM_BITS = 10
_METADATA_BLOCK_BYTES = 4096
#: (rows, deletions, share): compact a file if `deletions` of `rows` consecutive rows, or `share` of all rows, are
#: deletions.
_DELETIONS = (1024, 512, 0.5)


@dataclass(frozen=True)
class RocksDBSettings:
    """The memory limits of one backend (one operator in one subtask); the three sizes add up.

    If `memory` is given, which all backends of a slot share, it sets the limits; `write_buffer_bytes` remains an upper
    bound.

    Attributes:
        cache_bytes: estimated size of the entries kept as Python objects, so that hot keys need no serialization.
        write_buffer_bytes: size of each write buffer, which holds rows that are not in files yet.
        write_buffers: maximum number of write buffers; with more than one, writes continue while another is flushed.
        block_cache_bytes: cached blocks of files, including indexes and filters.
        block_bytes: the unit of reads from files.
        file_bytes: the target size of files, and the granularity at which checkpoints share them.
        background_jobs: RocksDB threads that flush and compact.
        memory: the memory that the stores of a slot share, if any.
        metrics: the RocksDB properties to report, without the `rocksdb.` prefix.
    """

    cache_bytes: int = 32 << 20
    write_buffer_bytes: int = 16 << 20
    write_buffers: int = 2
    block_cache_bytes: int = 32 << 20
    block_bytes: int = 8 << 10
    file_bytes: int = 32 << 20
    background_jobs: int = 2
    memory: SlotMemory | None = None
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in ("memory", "metrics") and value <= 0:
                raise WrongValueError(f"{name} must be positive, not {value}")

    @property
    def buffer_bytes(self) -> int:
        """The write buffer size of a store that opens now."""
        own = self.write_buffer_bytes
        return own if self.memory is None else min(own, self.memory.buffer_bytes)

    @property
    def object_bytes(self) -> int:
        """The memory (bytes) that a store may currently use for Python objects."""
        return self.cache_bytes if self.memory is None else self.memory.object_bytes

    def options(self) -> Options:
        """Return the options for opening a store."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self.buffer_bytes)
        options.set_max_write_buffer_number(self.write_buffers)
        options.set_target_file_size_base(self.file_bytes)
        options.set_max_background_jobs(self.background_jobs)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_level_compaction_dynamic_level_bytes(True)
        # Compaction drops deleted rows. It starts soon where many are adjacent, as a sweeper leaves them.
        options.add_compact_on_deletion_collector_factory(*_DELETIONS)
        options.set_keep_log_file_num(1)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        blocks = BlockBasedOptions()
        if self.memory is None:
            blocks.set_block_cache(Cache(self.block_cache_bytes))
        else:
            blocks.set_block_cache(self.memory.blocks)
            options.set_write_buffer_manager(self.memory.buffers)
        blocks.set_block_size(self.block_bytes)
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        # Otherwise indexes and filters, which grow with the state, would not count toward any limit.
        blocks.set_cache_index_and_filter_blocks(True)
        # Partition them: the whole index and filter of a file would not fit beside others into a small cache, and
        # reading them again would dominate the cost of each lookup.
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(_METADATA_BLOCK_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(blocks)
        return options
