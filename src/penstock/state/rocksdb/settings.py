"""Sizes of the RocksDB state backend; all in bytes unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options

from penstock.base.errors import WrongValueError
from penstock.state.rocksdb.memory import SlotMemory

_BLOOM_BITS = 10
_METADATA_BLOCK_BYTES = 4096
#: (rows, deletions, share): a file is merged if `deletions` of `rows` successive rows are deletions, or `share` of all.
_DELETIONS = (1024, 512, 0.5)


@dataclass(frozen=True)
class RocksDBSettings:
    """What one backend (one operator in one subtask) may take of memory: the three sizes add up.

    With a `memory`, which all backends of a slot share, that says how much, and only `write_buffer_bytes` limits it.

    Attributes:
        cache_bytes: entries kept as Python objects, so that hot keys pay no serialisation; an estimate.
        write_buffer_bytes: rows that are not in files yet, in each of at most `write_buffers` buffers.
        write_buffers: buffers of rows; more than one lets writing go on while another goes into a file.
        block_cache_bytes: blocks of files, their indexes and filters included.
        block_bytes: what is read from a file at a time.
        file_bytes: the size at which a new file is begun; also the grain in which checkpoints share files.
        background_jobs: threads of RocksDB that write and merge files.
        memory: what the stores of a slot share, if they share anything.
        metrics: the properties of RocksDB that are reported, without `rocksdb.`.
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
        """The size of a write buffer of a store that is opened now."""
        own = self.write_buffer_bytes
        return own if self.memory is None else min(own, self.memory.buffer_bytes)

    @property
    def object_bytes(self) -> int:
        """What a store may keep as Python objects now."""
        return self.cache_bytes if self.memory is None else self.memory.object_bytes

    def options(self) -> Options:
        """The options to open a store with."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self.buffer_bytes)
        options.set_max_write_buffer_number(self.write_buffers)
        options.set_target_file_size_base(self.file_bytes)
        options.set_max_background_jobs(self.background_jobs)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_level_compaction_dynamic_level_bytes(True)
        # Deleted rows are dropped by a merge: one comes soon where many lie together, as a sweeper leaves them.
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
        # Otherwise indexes and filters, which grow with the state, would be outside of any bound.
        blocks.set_cache_index_and_filter_blocks(True)
        # And in parts: the index and filter of a file in one piece each would not fit beside others into a small cache,
        # and reading one again for every look-up is what takes longest then.
        blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
        blocks.set_partition_filters(True)
        blocks.set_metadata_block_size(_METADATA_BLOCK_BYTES)
        blocks.set_pin_top_level_index_and_filter(True)
        options.set_block_based_table_factory(blocks)
        return options
