"""Join sides whose rows expire some time after they were written (`table.exec.state.ttl`, STATE_TTL).

An entry ends with the time at which it was last written: when its row arrived or, in outer and semi joins, when the
state of its matches changed. The rows of a key are ordered by these times, so the expired ones come first. They are
removed when their key is accessed, or by the timer of their key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from penstock.core.operators.timers import TimerQueue
from penstock.state.backend import KeyedTable
from penstock.table.data.logical_types import DataType
from penstock.table.streaming.joins.join_sides import Side, UpsertSide
from penstock.table.streaming.rows.state_times import compute_due_time


class Expiring(Side):
    """The base class of expiring sides. Call `begin` before any other method."""

    #: the index of the time in an entry
    _time: ClassVar[int]
    _timers: TimerQueue
    _ttl_ms: int

    def begin(self, timers: TimerQueue, ttl_ms: int, now_ms: int) -> None:
        """Set the timers and the TTL. State restored from a job without times counts as written now."""
        self._timers, self._ttl_ms, self._now_ms = timers, ttl_ms, now_ms
        if not len(timers):
            # RocksDB deserializes the entries from its files each time they are listed.
            for key, rows in list(self.entries.items()):
                for entry in rows.values():
                    self._stamp(entry)
                self.entries[key] = rows
                timers.register(compute_due_time(now_ms, ttl_ms), key)
            self.mark(set(self.entries))

    def look(self, keys: Collection[Any], now_ms: int) -> None:
        """Remove the expired rows of these keys, before they are accessed."""
        self._now_ms = now_ms
        expired = {key for key in keys if self._throw_out(key)}
        if expired:
            self.mark(expired)

    def _throw_out(self, key: Any) -> bool:
        rows = self.entries.get(key)
        if rows is None:
            return False
        oldest, time = self._now_ms - self._ttl_ms, self._time
        expired = []
        for name, entry in rows.items():
            if len(entry) == time:
                self._stamp(entry)  # from a run without a state TTL
            if entry[time] > oldest:
                break
            expired.append(name)
        for name in expired:
            self._remove(key, rows, name)
        return bool(expired)

    def add(self, key: Any, row: tuple[Any, ...], by: int, matches: int) -> None:
        """See `Side`. A retraction of a missing row is dropped, because the row has expired."""
        rows, name = self.entries.get(key), self.identify_row(row)
        if by < 0 and rows is not None and name not in rows:
            row = self._stored(rows, row)
            name = self.identify_row(row)
        if by < 0 and (rows is None or name not in rows):
            return
        if rows is None:
            self._timers.register(compute_due_time(self._now_ms, self._ttl_ms), key)
        super().add(key, row, by, matches)
        self.write(key, row)

    def write(self, key: Any, row: tuple[Any, ...]) -> None:
        """Mark the entry of a row as written now."""
        rows, name = self.entries.get(key), self.identify_row(row)
        if rows is not None and name in rows:
            entry = rows.pop(name)
            self._stamp(entry)
            rows[name] = entry

    def _stamp(self, entry: list[Any]) -> None:
        entry[self._time :] = [self._now_ms]

    def next_timer_ms(self) -> int | None:
        """Return when the next rows expire that are not accessed until then."""
        return self._timers.next_timestamp()

    def fire(self, now_ms: int) -> None:
        """Remove expired rows."""
        self._now_ms = now_ms
        for _, key in self._timers.due(now_ms):
            if self._throw_out(key):
                self.mark({key})
            rows = self.entries.get(key)
            if rows:
                written = next(iter(rows.values()))[self._time]
                self._timers.register(compute_due_time(max(written, now_ms - self._ttl_ms + 1), self._ttl_ms), key)


class ExpiringSide(Expiring):
    """key -> row -> [count, number of matches, time]."""

    _time = 2


class ExpiringUpsertSide(Expiring, UpsertSide):
    """key -> id -> [1, number of matches, row, time]."""

    _time = 3


def build_side(table: KeyedTable, types: Sequence[DataType], ids: Sequence[int] | None, expires: bool) -> Side:
    """Return a side of a join. `ids`: see `UpsertSide`."""
    if ids is None:
        return ExpiringSide(table, types) if expires else Side(table, types)
    return ExpiringUpsertSide(table, types, ids) if expires else UpsertSide(table, types, ids)
