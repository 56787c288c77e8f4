"""The memory that the RocksDB stores of a slot share; `budget` divides it."""

from __future__ import annotations

from typing import Final, Protocol

from rocksdict import Cache, WriteBufferManager

from penstock.state.rocksdb.budget import MemoryBudget

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
