"""Read positions: key ranges with the transactions their snapshots saw, and a position in the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

#: the values of a key: integers as int, all others as text, which the server orders by bytes
Key: TypeAlias = tuple[int | str, ...]

_HALF: Final = 1 << 31
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The transactions visible to a snapshot: all before `next` except the running ones.

    Attributes:
        next: the 64-bit number of the next transaction.
        running: the numbers of the running transactions.
        lsn: the log position at that time. Every visible transaction was committed before it.
    """

    next: int
    running: frozenset[int]
    lsn: int

    @staticmethod
    def parse(text: str, lsn: int) -> Snapshot:
        """Parse the output of `pg_current_snapshot()`: `xmin:xmax:xip,…`."""
        _, following, running = text.split(":")
        return Snapshot(int(following), frozenset(map(int, filter(None, running.split(",")))), lsn)

    def sees(self, xid: int) -> bool:
        """Return whether a transaction is visible, given the low 32 bits of its number."""
        full = self.next - self.next % _WRAP + xid
        if full >= self.next + _HALF:
            full -= _WRAP
        elif full < self.next - _HALF:
            full += _WRAP
        return full < self.next and full not in self.running

    def is_like(self, other: Snapshot) -> bool:
        """Return whether both snapshots see the same transactions."""
        return self.next == other.next and self.running == other.running


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys after the previous range, up to and including `last`; up to the end if `last` is None."""

    last: Key | None
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The part of a table that has been read. `ranges` ascend; once everything is read, the last one has no end."""

    ranges: tuple[KeyRange, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether all rows have been read."""
        return bool(self.ranges) and self.ranges[-1].last is None

    @property
    def last(self) -> Key | None:
        """The last key that was handed out; None at the beginning, and when everything is read."""
        return self.ranges[-1].last if self.ranges else None

    def through(self, last: Key | None, snapshot: Snapshot) -> TablePosition:
        """Return this position extended by the rows up to the key `last`, read in `snapshot`."""
        ranges = self.ranges
        if ranges and ranges[-1].snapshot.is_like(snapshot):
            # The later log position is valid for both.
            snapshot, ranges = replace(snapshot, lsn=max(snapshot.lsn, ranges[-1].snapshot.lsn)), ranges[:-1]
        return TablePosition((*ranges, KeyRange(last, snapshot)))

    @property
    def end_lsn(self) -> int:
        """The log position from which on no committed transaction was seen by any snapshot."""
        return max((key_range.snapshot.lsn for key_range in self.ranges), default=0)


class SeenKeys:
    """Decides whether the rows that were read contain a change. Built once per position, queried for each change."""

    def __init__(self, position: TablePosition) -> None:
        self._ranges = position.ranges
        self._lasts: Sequence[Key] = [key_range.last for key_range in position.ranges if key_range.last is not None]
        self.end_lsn = position.end_lsn

    def has(self, key: Key, xid: int) -> bool:
        """Return whether the snapshot of the key's range has seen the transaction."""
        return self._ranges[bisect_left(self._lasts, key)].snapshot.sees(xid)

    def check_visibility(self, xid: int) -> tuple[bool, bool]:
        """Return whether any snapshot has seen the transaction, and whether all have."""
        answers = [key_range.snapshot.sees(xid) for key_range in self._ranges]
        return any(answers), all(answers)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in the log.

    Attributes:
        lsn: the end of the last transaction that was read completely.
        commit_lsn: the commit position of the next transaction, if some of its changes were already read; or 0.
        changes: the number of these changes.
    """

    lsn: int
    commit_lsn: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """The table to read, and how far it has been read.

    Attributes:
        table: the position of the snapshot; None without a snapshot, or once it is irrelevant.
        log: the position to read the log from.
    """

    table: TablePosition | None
    log: LogPosition = field(default_factory=lambda: LogPosition(0))
