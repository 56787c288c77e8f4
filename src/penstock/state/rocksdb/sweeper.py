"""Deletes expired rows from the store, including rows that are never read again (D1).

Flink does this during RocksDB compaction. The binding offers no hook there, and no clock controls when a compaction
runs or which rows it reads. So a sweeper cycles through the rows of one state in order, some at each settling point,
and deletes the expired ones. A later compaction drops them. Deletions are ordinary writes, so captures, incremental
checkpoints and restores need no special handling. After a restore, the first round starts over.

**Pace.** Like compaction, the sweeper follows the writes: it checks `_LOOKS_A_WRITE` rows for each row that the state
writes. If rows expire as fast as they are written, a round takes as long as writing half of all rows. So expired rows
never outnumber the others, and there are fewer when old rows are overwritten. If the last finished round began longer
ago than the periodic compaction time, the sweeper continues at each settling point until it has caught up, whether or
not the state writes. It reads the clock once every N rows, where N is configurable.

**Entries in memory** are newer than their rows. An expired entry in memory is removed there, which deletes its row with
the next write. An entry that was never written has no row; the sweeper checks it once it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from penstock.state.rocksdb.cache import WriteCache
from penstock.state.rocksdb.rows import after, namespace_head
from penstock.state.rocksdb.store import Batch
from penstock.state.ttl_config import StateTtlConfig

_LOOKS_A_WRITE: Final = 2
#: The number of rows to check at one settling point, which takes some milliseconds; or one in `_SHARE` of the rows owed
#: if that is more, so that writes cannot outpace the sweeper.
ROWS_MAX: Final = 4096
_SHARE: Final = 8


class Sweepable(Protocol):
    """The rows of a state in one layout, some of which are in memory."""

    def sweep(self, row: bytes, raw: bytes, key_at: int, latest_expired_ms: int, batch: Batch) -> None:
        """Delete a row, or its expired part; its key, preceded by the length, begins at byte `key_at`."""


class RowSweeper:
    """See the module docstring."""

    def __init__(
        self,
        cache: WriteCache,
        rows: Sweepable,
        name: str,
        layout: bytes,
        key_groups: tuple[int, int],
        config: StateTtlConfig,
        now_ms: Callable[[], int],
    ) -> None:
        self._cache = cache
        self._rows = rows
        self._name = name
        self._head = namespace_head(name, layout, None)
        self._first_group, self._last_group = key_groups
        self._ttl_ms = config.ttl_ms
        self._now_ms = now_ms
        strategies = config.get_cleanup_strategies()
        compaction = strategies.get_rocksdb_compact_filter_cleanup_strategy()
        incremental = strategies.get_incremental_cleanup_strategy() if strategies.chose_incremental_cleanup() else None
        self._size = 0 if incremental is None else incremental.get_cleanup_size()
        self._sees_records = incremental is not None and incremental.run_cleanup_for_every_record()
        self._looks_a_write = 0 if compaction is None else _LOOKS_A_WRITE
        grain = ROWS_MAX if compaction is None else compaction.get_query_time_after_num_entries()
        #: rows to check per reading of the clock, and how many must be owed to begin
        self._grain = max(1, min(grain, ROWS_MAX))
        self._owed_min = 1 if compaction is None else self._grain
        self._period_ms = None if compaction is None else compaction.get_periodic_compaction_time().to_milliseconds()
        #: rows still to be checked
        self._owed = 0
        self._group = self._first_group
        #: the row to continue from in the key group; None for its first row
        self._next: bytes | None = None
        #: when this round and the last finished round began
        self._begun_ms = self._done_begun_ms = now_ms()
        cache.written.setdefault(name, 0)

    def on_access(self) -> None:
        """Note an access to the state."""
        self._owed += self._size

    def on_records(self, count: int) -> None:
        """Note `count` processed records."""
        if self._sees_records:
            self._owed += self._size * count

    def on_settle(self) -> None:
        """Check the rows owed at a settling point, up to a limit; the next settling point continues."""
        written = self._cache.written
        if written[self._name]:
            self._owed += written[self._name] * self._looks_a_write
            written[self._name] = 0
        if self._period_ms is not None and self._now_ms() - self._done_begun_ms >= self._period_ms:
            self._owed = max(self._owed, ROWS_MAX)
        if self._owed < self._owed_min:
            return
        batch = self._cache.store.batch()
        left = max(ROWS_MAX, self._owed // _SHARE)
        while left > 0 and self._owed >= self._owed_min:
            count = min(self._grain, self._owed)
            left -= count
            self._owed -= count
            if self._sweep_rows(count, batch):
                self._owed = 0  # all rows were checked, which is enough for now
        batch.write()

    def _sweep_rows(self, count: int, batch: Batch) -> bool:
        """Check the next `count` rows, and return whether the round is complete."""
        sweep, key_at = self._rows.sweep, 2 + len(self._head)
        latest_expired_ms = self._now_ms() - self._ttl_ms
        while count > 0:
            prefix = self._group.to_bytes(2, "big") + self._head
            rows = self._cache.store.scan_once(self._next or prefix, after(prefix))
            row = None
            for row, raw in islice(rows, count):
                sweep(row, raw, key_at, latest_expired_ms, batch)
                count -= 1
            if count and self._group == self._last_group:
                self._group, self._next = self._first_group, None
                self._done_begun_ms, self._begun_ms = self._begun_ms, self._now_ms()
                return True
            if count:
                self._group, self._next = self._group + 1, None
                count -= 1  # finding the next key group costs about as much as a row
            elif row is not None:
                self._next = row + b"\x00"
        return False
