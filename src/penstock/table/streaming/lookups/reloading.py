"""A fully cached table that is reloaded from time to time.

The first load is part of `open()`. Later loads run in their own thread while the previous rows still serve lookups; the
first lookup after a load uses the new rows. If the load fails, that lookup fails.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import tzinfo
from typing import Final

import pyarrow as pa

from penstock.table.connectors.held_table import HeldTable, RowsByKey
from penstock.table.connectors.lookup import LookedUp, LookupReader
from penstock.table.streaming.lookups.reload_settings import Reload

#: how long to wait (ms) before checking whether a load has ended
_LOOK_MS: Final = 1_000


def _one_thread() -> Executor:
    return ThreadPoolExecutor(1, "penstock-lookup")


class ReloadingReader(LookupReader):
    """See the module docstring.

    Args:
        table: the cached table.
        reload: when it is reloaded.
        now_ms: the clock.
        zone: the time zone of times of day.
        threads: creates the executor that runs loads.
    """

    def __init__(
        self,
        table: HeldTable,
        reload: Reload,
        now_ms: Callable[[], int],
        zone: tzinfo,
        threads: Callable[[], Executor] = _one_thread,
    ) -> None:
        self._table = table
        self._reload = reload
        self._now_ms = now_ms
        self._zone = zone
        self._threads = threads
        self._thread: Executor | None = None
        self._due_ms = 0
        self._look_ms = 0
        self._ended_ms = 0
        self._reading: Future[RowsByKey] | None = None

    def open(self) -> None:
        """Load the table for the first time."""
        begin = self._now_ms()
        self._table.open()
        is_rate = getattr(self._reload, "is_fixed_rate", False)
        self._due_ms = self._reload.first(begin if is_rate else self._now_ms(), self._zone)

    def due_ms(self) -> int:
        """Return when to call `go_on` next (ms since 1970)."""
        return self._due_ms if self._reading is None else self._look_ms

    def go_on(self) -> None:
        """Switch to rows loaded in the meantime, and start a reload if it is due."""
        now_ms = self._now_ms()
        self._take()
        self._look_ms = now_ms + _LOOK_MS
        if self._reading is None and now_ms >= self._due_ms:
            if self._thread is None:
                self._thread = self._threads()
            self._reading = self._thread.submit(self._read)

    def _read(self) -> RowsByKey:
        rows = self._table.read()
        self._ended_ms = self._now_ms()
        return rows

    def _take(self) -> None:
        """Switch to the loaded rows if the load has ended."""
        reading = self._reading
        if reading is not None and reading.done():
            self._reading = None
            self._table.hold(reading.result())
            self._due_ms = self._reload.next(self._due_ms, self._ended_ms, self._zone)

    def lookup(self, keys: pa.RecordBatch) -> LookedUp:
        """See `LookupReader`."""
        self.go_on()
        return self._table.lookup(keys)

    def close(self) -> None:
        """Drop the rows, and wait for a running load to end."""
        self._table.close()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
