"""How far a table has been read: ranges of its keys with what their snapshots saw, and a place in the log."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

#: the values of a key: whole numbers as such, all others as the texts of which the server's order goes by bytes
Key: TypeAlias = tuple[int | str, ...]

_HALF: Final = 1 << 31
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions can be seen: those before `next`, but for those that run.

    Attributes:
        next: the number of the next transaction, in 64 bits.
        running: the numbers of those that run.
        lsn: where the log was then. What can be seen was committed before.
    """

    next: int
    running: frozenset[int]
    lsn: int

    @staticmethod
    def parse(text: str, lsn: int) -> Snapshot:
        """From what `pg_current_snapshot()` shows: `xmin:xmax:xip,…`."""
        _, following, running = text.split(":")
        return Snapshot(int(following), frozenset(map(int, filter(None, running.split(",")))), lsn)

    def sees(self, xid: int) -> bool:
        """Whether a transaction of which 32 bits of the number are known can be seen."""
        full = self.next - self.next % _WRAP + xid
        if full >= self.next + _HALF:
            full -= _WRAP
        elif full < self.next - _HALF:
            full += _WRAP
        return full < self.next and full not in self.running

    def is_like(self, other: Snapshot) -> bool:
        """Whether it sees the same transactions."""
        return self.next == other.next and self.running == other.running


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys behind those of the range before, up to and with `last`; to the end where that is None."""

    last: Key | None
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TablePosition:
    """What has been read of a table. `ranges` go up; the last one has no end when all is read."""

    ranges: tuple[KeyRange, ...] = ()

    @property
    def is_read(self) -> bool:
        """Whether there are no rows left."""
        return bool(self.ranges) and self.ranges[-1].last is None

    @property
    def last(self) -> Key | None:
        """The last key that was handed out; None at the beginning, and when all is read."""
        return self.ranges[-1].last if self.ranges else None

    def through(self, last: Key | None, snapshot: Snapshot) -> TablePosition:
        """The same with the rows up to a key, in that snapshot."""
        ranges = self.ranges
        if ranges and ranges[-1].snapshot.is_like(snapshot):
            # The later position of the log holds for both.
            snapshot, ranges = replace(snapshot, lsn=max(snapshot.lsn, ranges[-1].snapshot.lsn)), ranges[:-1]
        return TablePosition((*ranges, KeyRange(last, snapshot)))

    @property
    def end_lsn(self) -> int:
        """No transaction that was committed from here on was seen by any of the snapshots."""
        return max((one.snapshot.lsn for one in self.ranges), default=0)


class SeenKeys:
    """Tells whether a change of a key is in the rows that were read. Made of a position once, asked for each change."""

    def __init__(self, position: TablePosition) -> None:
        self._ranges = position.ranges
        self._lasts: Sequence[Key] = [one.last for one in position.ranges if one.last is not None]
        self.end_lsn = position.end_lsn

    def has(self, key: Key, xid: int) -> bool:
        """Whether the snapshot of the key's range has seen the transaction."""
        return self._ranges[bisect_left(self._lasts, key)].snapshot.sees(xid)

    def seen_by(self, xid: int) -> tuple[bool, bool]:
        """Whether any of the snapshots has seen the transaction, and whether all have."""
        answers = [one.snapshot.sees(xid) for one in self._ranges]
        return any(answers), all(answers)


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in the log.

    Attributes:
        lsn: the end of the last transaction that was read whole.
        commit_lsn: the next transaction, if some of its changes were read already; or 0.
        changes: how many.
    """

    lsn: int
    commit_lsn: int = 0
    changes: int = 0


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """All that is to be read of a table, from where it has come to.

    Attributes:
        table: the snapshot; None where there is none, or nothing of it matters any more.
        log: from where the log is read.
    """

    table: TablePosition | None
    log: LogPosition = field(default_factory=lambda: LogPosition(0))
