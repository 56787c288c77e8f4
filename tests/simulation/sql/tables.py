"""Tables that change: what a source tells of them, the same in every run, and which rows they have in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.sql.sources import ChangelogSource
from tests.table.running import Change

from penstock.drivers.simulation.oracle import Consumed
from penstock.sql.data.types import DataType, IntType, TimestampType
from penstock.sql.logical.nodes import ALL, INSERTS
from penstock.sql.tables.tables import TableReader

Row = tuple[Any, ...]

#: What a table is told as: rows that only come; all changes; those of a table with a primary key; the same without the
#: row as it was before an update; and upserts, of which a deletion has the key alone.
INSERTED, CHANGED, KEYED, AFTER, UPSERTED = KINDS = ("inserted", "changed", "keyed", "after", "upserted")
#: Event time of the first row, and how far (ms) a row may be behind an earlier one.
BEGIN_MS, DISORDER_MS = 1_000_000, 20
_NS: Final = 1_000_000


@dataclass(frozen=True)
class ChangingTable:
    """A table `name` of id, k and a, and of rt where it has event time; `splits`: what its source tells, by split."""

    name: str
    kind: str
    splits: tuple[tuple[Change, ...], ...]
    has_time: bool = False
    #: whether rows are versions of a key, from their time on
    is_versioned: bool = False
    #: where, in the only split, the source waits for what was read before to expire
    waits_at: int | None = None
    types: Mapping[str, DataType] = field(init=False)

    def __post_init__(self) -> None:
        types: dict[str, DataType] = {"id": IntType(not self.has_key), "k": IntType(), "a": IntType()}
        if self.has_time:
            types["rt"] = TimestampType(3)
        object.__setattr__(self, "types", types)

    @property
    def has_key(self) -> bool:
        """Whether id is its primary key."""
        return self.is_versioned or self.kind in (KEYED, AFTER, UPSERTED)

    def __str__(self) -> str:
        return f"{self.name} {self.kind} {'+'.join(str(len(split)) for split in self.splits)}"

    @property
    def ddl(self) -> str:
        """The statement that makes it."""
        columns = [f"{name} {kind}" for name, kind in self.types.items()]
        if self.has_key:
            columns.append("PRIMARY KEY (id) NOT ENFORCED")
        if self.has_time:
            columns.append(f"WATERMARK FOR rt AS rt - INTERVAL '0.0{DISORDER_MS}' SECOND")
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    def source(self, world: str, number: int, is_lazy: bool, ttl_ms: int) -> ChangelogSource:
        """What reads it."""
        return ChangelogSource(world, number, self.splits, list(self.types.values()), is_lazy, self.waits_at, ttl_ms)

    def reader(self, source: ChangelogSource) -> TableReader:
        """The same as the planner takes it."""
        key = (0,) if self.has_key else ()
        if self.kind == INSERTED:
            return TableReader(source, INSERTS, key=key)
        return TableReader(source, ALL, self.kind in (CHANGED, KEYED), key, self.kind == UPSERTED)

    def rows(self, number: int, read: Consumed) -> list[Row]:
        """The rows after so much was read, in the order in which they came."""
        found: list[Row] = []
        for index, split in enumerate(self.splits):
            changes = split[: read.get((number, index), len(split))]
            found += _upserted(changes) if self.kind in (AFTER, UPSERTED) else _rows_after(changes)
        return found


def _upserted(changes: Sequence[Change]) -> list[Row]:
    held: dict[Any, Row] = {}
    for kind, row in changes:
        held.pop(row[0], None)
        if kind != "-D":
            held[row[0]] = row
    return list(held.values())


def _rows_after(changes: Sequence[Change]) -> list[Row]:
    counts: Counter[Row] = Counter()
    for kind, row in changes:
        counts[row] += 1 if kind in ("+I", "+U") else -1
    assert min(counts.values(), default=0) >= 0
    return list(counts.elements())


class TableMaker:
    """Draws tables with few values, so that rows meet."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ids = 0

    def table(self, name: str, kinds: Sequence[str] = KINDS) -> ChangingTable:
        """A table in a few splits, each of which tells of rows of its own."""
        chance = self._chance
        kind = chance.choice(kinds)
        splits = [self._split(kind, chance.randint(4, 16)) for _ in range(chance.choice((1, 1, 2, 3)))]
        return ChangingTable(name, kind, tuple(splits))

    def timed(self, name: str, is_versioned: bool = False) -> ChangingTable:
        """A table of rows with event time, no two of which have the same; none is late.

        Times are even. The gaps of sessions are odd, because whether a row that comes just at the end of a session
        belongs to it depends on when the watermark comes.
        """
        chance = self._chance
        rows: list[Change] = []
        last, used = BEGIN_MS, set[int]()
        for _ in range(chance.randint(8, 30)):
            last += chance.choice((2, 8, 12, 40))
            time = last - chance.choice((0, 0, 4, 10, DISORDER_MS - 2))
            while time in used:
                time += 2
            used.add(time)
            last = max(last, time)
            row = self._row(False)
            rows.append(("+I", (chance.choice((1, 2, 3)) if is_versioned else row[0], *row[1:], time * _NS)))
        return ChangingTable(name, INSERTED, (tuple(rows),), True, is_versioned)

    def expiring(self, name: str) -> ChangingTable:
        """A table in which a key comes once, and once again when the first row has expired."""
        chance = self._chance
        halves = [chance.sample(range(6), chance.randint(1, 6)) for _ in range(2)]
        rows: list[Change] = [("+I", (self._next_id(), k, chance.randint(0, 3))) for half in halves for k in half]
        return ChangingTable(name, INSERTED, (tuple(rows),), waits_at=len(halves[0]))

    def _row(self, has_key: bool) -> Row:
        chance = self._chance
        found = self._next_id() if has_key else chance.choice((1, 2, 3, 4, None))
        return found, chance.choice((1, 2, 3, None)), chance.choice((-1, 0, 1, 2, 2, None))

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    def _split(self, kind: str, steps: int) -> tuple[Change, ...]:
        chance, has_key = self._chance, kind in (KEYED, AFTER, UPSERTED)
        changes: list[Change] = []
        rows: list[Row] = []
        gone: list[int] = []
        for _ in range(steps):
            what = "insert" if kind == INSERTED or not rows else chance.choice(("insert", "insert", "update", "delete"))
            if what == "insert":
                row = self._row(has_key)
                if has_key and gone and chance.random() < 0.5:
                    row = (gone.pop(), *row[1:])
                rows.append(row)
                changes.append(("+I", row))
                continue
            before = rows.pop(chance.randrange(len(rows)))
            if what == "delete":
                changes.append(("-D", (before[0], None, None) if kind == UPSERTED else before))
                if has_key:
                    gone.append(before[0])
                continue
            after = (before[0], *self._row(False)[1:]) if has_key else self._row(False)
            rows.append(after)
            if kind in (CHANGED, KEYED):
                changes.append(("-U", before))
            # An upsert may come as an insert, too.
            changes.append(("+I" if kind == UPSERTED and chance.random() < 0.5 else "+U", after))
        return tuple(changes)
