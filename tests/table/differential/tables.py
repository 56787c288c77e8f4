"""Random tables: the changes that arrive, in which order and through which splits, and the rows that are left.

| table | rows |
| --- | --- |
| t, u | of no event time; append-only, or with updates and deletions |
| p | the same with a primary key, as a changelog or as upserts |
| e | event time, out of order within the bound of the watermark |
| f | the same, of different times |
| g | the same as e, with updates and deletions |
| l | event time, some rows late; in one split, with a watermark after each row |
| v | versions of a primary key, out of order; a version may end by a deletion |
| w | the versions of a view: append-only, out of order, of different times |

All rows that belong together, a row and its updates, arrive in order through one split. Rows of different splits may
arrive in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.table.differential.chance import Chance
from tests.table.differential.kinds import INT, ROWTIME, TEXT, Kind
from tests.table.differential.relations import Column

Row = tuple[Any, ...]

MS_NS: Final = 1_000_000
_BASE: Final = (Column("k", INT), Column("a", INT), Column("b", TEXT))
#: how far a time is from a full second, in ms: windows begin and end at full seconds
_BORDERS: Final = (0, 0, 0, 0, -1, 1, 500)
_COARSE: Final = (0, 0, 500)
DELAYS_MS: Final = (1000, 2000, 5000, 1, 3500)
COARSE_DELAYS_MS: Final = (1000, 2000, 5000, 3500)
PLAIN_NAMES: Final = ("t", "u", "p")
TIMED_NAMES: Final = ("e", "f", "g", "l", "v", "w")


@dataclass(frozen=True)
class TableChange:
    """A change that arrives: its kind, such as `+I`, the values of the row, and the split that it comes through.

    `group`: what an insert has in common with the updates and the deletion of the row.
    """

    kind: str
    values: Row
    split: int = 0
    group: int = 0


@dataclass(frozen=True)
class Table:
    """A table of a world.

    Args:
        name: of the table.
        columns: of the table; the event time is the last one.
        changes: that arrive, in order.
        rows: that are left, in the order in which they came. Of versions: all of them.
        delay_ms: the bound of the watermark; None for a table without event time.
        key: the places of the columns of the primary key.
        is_upsert: whether updates come without the previous row, and deletions with the key alone.
        declares_changes: whether the connector declares updates and deletions.
        has_versions: whether `rows` are versions, which end with a flag that says whether the key was deleted.
        has_late_rows: whether there is a watermark after each row, for which others may be late.
        groups: of `rows`, see `TableChange`.
    """

    name: str
    columns: tuple[Column, ...]
    changes: tuple[TableChange, ...] = ()
    rows: tuple[Row, ...] = ()
    delay_ms: int | None = None
    key: tuple[int, ...] = ()
    is_upsert: bool = False
    declares_changes: bool = False
    has_versions: bool = False
    has_late_rows: bool = False
    groups: tuple[int, ...] = ()

    @property
    def splits(self) -> int:
        """How many splits there are."""
        return max((change.split for change in self.changes), default=0) + 1

    def watermarks(self) -> list[int | None]:
        """The watermark (ns) before each row of a table with late rows; None before the first one."""
        assert self.delay_ms is not None
        marks: list[int | None] = []
        latest: int | None = None
        for row in self.rows:
            marks.append(None if latest is None else latest - self.delay_ms * MS_NS)
            latest = row[-1] if latest is None else max(latest, row[-1])
        return marks


def without_groups(table: Table, groups: Collection[int]) -> Table:
    """A table without the changes of some groups."""
    kept = [row for row, group in zip(table.rows, table.groups, strict=True) if group not in groups]
    return replace(
        table,
        changes=tuple(change for change in table.changes if change.group not in groups),
        rows=tuple(kept),
        groups=tuple(group for group in table.groups if group not in groups),
    )


@dataclass(frozen=True)
class Scale:
    """How large the tables of a world are: `rows` at most, and from how many keys they draw."""

    rows: int
    keys: int


#: mostly small worlds, which meet more cases; large ones fill batches and reach the forms for many rows
SCALES: Final = (Scale(12, 3), Scale(12, 3), Scale(14, 4), Scale(30, 6), Scale(160, 60))


def _is_alike(change: TableChange, other: TableChange) -> bool:
    """Whether they come through one split with the same values, bit for bit."""
    return change.split == other.split and repr(change.values) == repr(other.values)


def _with_other_zeros(value: Any) -> Any:
    """The same row, or an equal one: with 0.0 for -0.0, and -0.0 for 0.0."""
    if isinstance(value, tuple | list):
        return type(value)(map(_with_other_zeros, value))
    return -value if isinstance(value, float) and value == 0 else value


class TableMaker:
    """Makes the tables of one world.

    Args:
        chance: of the world.
        more: the kinds of the columns that tables have besides k, a and b.
        scale: how large the tables are.
    """

    def __init__(self, chance: Chance, more: Sequence[Kind], scale: Scale) -> None:
        self._chance = chance
        self._scale = scale
        self.columns = (*_BASE, *(Column(f"x{place}", kind) for place, kind in enumerate(more)))
        self.timed_columns = (*self.columns, Column("ts", ROWTIME))
        self._tables: dict[str, Table] = {}
        self._drawn: list[Row] = []

    def table(self, name: str) -> Table:
        """The table of a name, which is drawn when it is first asked for."""
        if name not in self._tables:
            self._tables[name] = self._draw(name)
        return self._tables[name]

    def adopt(self, tables: Mapping[str, Table]) -> None:
        """Take tables instead of drawing them, as far as they have the right columns."""
        for name, table in tables.items():
            if table.columns == (self.timed_columns if name in TIMED_NAMES else self.columns):
                self._tables[name] = table

    def _draw(self, name: str) -> Table:
        makers = {"p": self._keyed, "e": self._timed, "f": self._timed, "g": self._timed, "l": self._late}
        make = makers.get(name, self._versions if name in "vw" else self._plain)
        return make(name, self._chance.branch(name))

    def find_columns(self, name: str) -> tuple[Column, ...]:
        """The columns of the table of a name."""
        return self.timed_columns if name in TIMED_NAMES else self.columns

    # --- values -------------------------------------------------------------------------------------------------------

    def _values(self, chance: Chance, key: int | None = None, may_leave: bool = False) -> Row:
        """The values of a row without its event time. `key`: of the primary key; `may_leave`: see `Kind.passing`."""
        has_key = key is not None
        if key is None:
            key = None if chance.one_in(6) else chance.number(1, self._scale.keys)
        if self._drawn and chance.one_in(6):
            twin = _with_other_zeros(chance.pick(self._drawn))
            if may_leave or not self._is_passing(twin):
                return (key, *twin[1:]) if has_key else twin
        others = []
        for column in self.columns[1:]:
            values = (*column.kind.values, None, *(column.kind.passing if may_leave else ()))
            others.append(chance.pick(values))
        self._drawn.append((key, *others))
        return self._drawn[-1]

    def _is_passing(self, row: Row) -> bool:
        """Whether a row must not be left in the end."""
        return any(value in column.kind.passing for column, value in zip(self.columns, row, strict=False))

    def _count(self, chance: Chance) -> int:
        return chance.number(0, self._scale.rows)

    # --- tables without event time ------------------------------------------------------------------------------------

    def _plain(self, name: str, chance: Chance) -> Table:
        changes: list[TableChange] = []
        rows: list[TableChange] = []
        splits = chance.pick([1, 1, 2, 3])
        declares = chance.flag()
        for number in range(self._count(chance)):
            action = "insert" if not declares or not rows else chance.pick(["insert", "insert", "update", "delete"])
            if action == "insert":
                row = TableChange("+I", self._values(chance, may_leave=declares), chance.below(splits), number)
                changes.append(row)
                rows.append(row)
                continue
            # Of equal rows in a split the oldest one leaves.
            drawn = chance.pick(rows)
            old = rows.pop(next(place for place, row in enumerate(rows) if _is_alike(row, drawn)))
            changes.append(replace(old, kind="-U" if action == "update" else "-D"))
            if action == "update":
                row = replace(old, kind="+U", values=self._values(chance, may_leave=True))
                changes.append(row)
                rows.append(row)
        return self._table(Table(name, self.columns, declares_changes=declares), changes, rows)

    def _table(self, table: Table, changes: list[TableChange], rows: Sequence[TableChange]) -> Table:
        """A table with changes. The rows that are left are those whose last changes are `rows`."""
        changes += [replace(row, kind="-D") for row in rows if self._is_passing(row.values)]
        left = [row for row in rows if not self._is_passing(row.values)]
        return replace(
            table,
            changes=tuple(changes),
            rows=tuple(row.values for row in left),
            groups=tuple(row.group for row in left),
        )

    def _keyed(self, name: str, chance: Chance) -> Table:
        changes: list[TableChange] = []
        rows: dict[int, TableChange] = {}
        splits, is_upsert = chance.pick([1, 2, 3]), chance.flag()
        nothing = (None,) * (len(self.columns) - 1)
        for _ in range(self._count(chance)):
            key = chance.number(1, max(2, self._scale.keys * 2))
            old = rows.pop(key, None)
            if old is not None and chance.one_in(3):
                has_key_alone = is_upsert and chance.flag()
                changes.append(replace(old, kind="-D", values=(key, *nothing) if has_key_alone else old.values))
                continue
            if old is not None and not is_upsert:
                changes.append(replace(old, kind="-U"))
            kind, values = "+I" if old is None else "+U", self._values(chance, key, may_leave=True)
            rows[key] = TableChange(kind, values, key % splits, key)
            changes.append(rows[key])
        table = Table(name, self.columns, key=(0,), is_upsert=is_upsert, declares_changes=True)
        return self._table(table, changes, list(rows.values()))

    # --- tables with event time ---------------------------------------------------------------------------------------

    def _timed(self, name: str, chance: Chance) -> Table:
        delay_ms, latest_ms = chance.pick(DELAYS_MS), chance.number(0, 4) * 1000
        splits = chance.pick([1, 1, 2, 3])
        changes: list[TableChange] = []
        rows: list[TableChange] = []
        taken: set[int] = set()
        for number in range(self._count(chance)):
            in_time = [place for place, row in enumerate(rows) if row.values[-1] > (latest_ms - delay_ms) * MS_NS]
            action = "insert"
            if name == "g" and in_time:
                action = chance.pick(["insert", "insert", "update", "delete"])
            time_ms = self._time(chance, latest_ms, delay_ms, taken if name == "f" else ())
            values = (*self._values(chance), time_ms * MS_NS)
            row = TableChange("+I", values, chance.below(splits), number)
            if action != "insert":
                drawn = rows[chance.pick(in_time)]
                old = rows.pop(next(place for place, row in enumerate(rows) if _is_alike(row, drawn)))
                changes.append(replace(old, kind="-U" if action == "update" else "-D"))
                row = replace(old, kind="+U", values=values)
            if action != "delete":
                changes.append(row)
                rows.append(row)
                taken.add(time_ms)
                latest_ms = max(latest_ms, time_ms)
        table = Table(name, self.timed_columns, delay_ms=delay_ms, declares_changes=name == "g")
        return self._table(table, changes, rows)

    @staticmethod
    def _time(chance: Chance, latest_ms: int, delay_ms: int, taken: Any) -> int:
        """A time (ms) that is not late, and is not taken."""
        second = chance.number(-delay_ms // 1000, 4)
        time_ms = (latest_ms // 1000 + second) * 1000 + chance.pick(_BORDERS)
        time_ms = max(time_ms, latest_ms - delay_ms + 1)
        while time_ms in taken:
            time_ms += 1
        return time_ms

    def _late(self, name: str, chance: Chance) -> Table:
        # Sessions of late rows need times that are no borders, see `lateness`.
        is_coarse = chance.flag()
        delay_ms, latest_ms = chance.pick(COARSE_DELAYS_MS if is_coarse else DELAYS_MS), 0
        changes: list[TableChange] = []
        for number in range(self._count(chance)):
            second = (latest_ms // 1000 + chance.number(-9, 3)) * 1000
            time_ms = second + chance.pick(_COARSE if is_coarse else _BORDERS)
            changes.append(TableChange("+I", (*self._values(chance), time_ms * MS_NS), 0, number))
            latest_ms = max(latest_ms, time_ms) if number else time_ms
        return self._table(
            Table(name, self.timed_columns, delay_ms=delay_ms, has_late_rows=True), changes, tuple(changes)
        )

    def _versions(self, name: str, chance: Chance) -> Table:
        delay_ms, latest_ms = chance.pick(DELAYS_MS), chance.number(0, 4) * 1000
        splits, has_ends = chance.pick([1, 1, 2]), name == "v" and chance.flag()
        is_upsert = has_ends and chance.flag()
        changes: list[TableChange] = []
        taken: dict[int, set[int]] = {}
        for number in range(self._count(chance)):
            key = chance.number(1, min(self._scale.keys, 12))
            times = taken.setdefault(key, set())
            time_ms = self._time(chance, latest_ms, delay_ms, times)
            is_deleted = has_ends and chance.one_in(3)
            kind = "-D" if is_deleted else "+U" if has_ends and times else "+I"
            changes.append(TableChange(kind, (*self._values(chance, key), time_ms * MS_NS), key % splits, number))
            times.add(time_ms)
            latest_ms = max(latest_ms, time_ms)
        return Table(
            name,
            self.timed_columns,
            tuple(changes),
            tuple((*change.values, change.kind == "-D") for change in changes),
            delay_ms,
            key=(0,) if name == "v" else (),
            is_upsert=is_upsert,
            declares_changes=has_ends or (name == "w" and chance.one_in(4)),
            has_versions=True,
            groups=tuple(change.group for change in changes),
        )
