"""What the RocksDB stores of a slot share in memory; `budget` says how it is divided."""

from __future__ import annotations

from typing import Final, Protocol

from rocksdict import Cache, WriteBufferManager

from penstock.state.rocksdb.budget import MemoryBudget

#: Blocks in use and the rounding of charges may exceed the capacity of the cache by a little.
_CAPACITY: Final = 15 / 16


class Sharer(Protocol):
    """A store that is open for writing."""

    def on_share(self) -> None:
        """The shares have changed."""


class SlotMemory:
    """One cache of blocks and one manager of write buffers for all stores of a slot, and the shares of each.

    A store takes its new share when it writes next, not at once: while a job starts, the shares change with each store.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._sharers: list[Sharer] = []
        self.blocks = Cache(int(budget.rocksdb_bytes * _CAPACITY))
        # Without stalls: a writer that waits for the flush of another store would stop all stores of the slot.
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            budget.write_buffers_bytes, False, self.blocks
        )

    def join(self, sharer: Sharer) -> None:
        """A store is about to be opened; raises `ConfigurationError` if the budget is too small for one more."""
        self._budget.check(len(self._sharers) + 1)
        others = list(self._sharers)
        self._sharers.append(sharer)
        self._tell(others)

    def leave(self, sharer: Sharer) -> None:
        """A store is closed; a second call changes nothing."""
        if sharer in self._sharers:
            self._sharers.remove(sharer)
            self._tell(list(self._sharers))

    def _tell(self, sharers: list[Sharer]) -> None:
        for sharer in sharers:
            sharer.on_share()

    @property
    def buffer_bytes(self) -> int:
        """The size of each of a store's write buffers."""
        return self._budget.write_buffer_bytes(len(self._sharers))

    @property
    def object_bytes(self) -> int:
        """What a store may keep as Python objects."""
        return self._budget.object_cache_bytes(len(self._sharers))
