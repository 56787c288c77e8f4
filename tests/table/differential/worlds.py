"""Random tables: how they change, and what is in them at last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from tests.table.differential.queries import INT, ROWTIME, TEXT, Column, Relation
from tests.table.differential.timed import Timed, TimedQueries
from tests.table.differential.tongues import in_duckdb, in_flink
from tests.table.running import NO_OPTIONS, Answer, Change, Rows, run_over

from penstock.table.data.logical_types import DataType, IntType, TimestampType, VarCharType

Row = tuple[Any, ...]

SECOND_NS: Final = 1_000_000_000
COLUMNS: Final = (Column("k", INT), Column("a", INT), Column("b", TEXT))
_TYPES: Final[dict[str, DataType]] = {"k": IntType(), "a": IntType(), "b": VarCharType(2147483647)}
_TIMED_TYPES: Final[dict[str, DataType]] = {**_TYPES, "ts": TimestampType(3)}
_ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from([1, 2, 3, None]), st.sampled_from([-1, 0, 1, 2, None]), st.sampled_from(["x", "y", "xy", None])
)
_TIMED: Final = Relation("SELECT k, a, b, ts FROM {}", (*COLUMNS, Column("ts", ROWTIME)))


@dataclass(frozen=True)
class Table:
    """What happens to a table, in how large batches it is read, and its rows at last.

    `delay`: by how many seconds its rows may be out of order, if they have event time. `has_versions`: whether a row is
    a version of its key from its time on, and `rows` are all versions, which end by whether they say that it is gone.
    """

    changes: tuple[Change, ...]
    at_once: int
    rows: tuple[Row, ...]
    delay: int | None = None
    has_versions: bool = False

    def source(self) -> Rows:
        """The table as a stream."""
        return self._read(self.changes, self.at_once)

    def last(self) -> Rows:
        """The rows at last."""
        return self._read(self.rows, None)

    def _read(self, rows: tuple[Any, ...], at_once: int | None) -> Rows:
        if self.delay is None:
            return Rows(_TYPES, rows, at_once)
        watermark = f"WATERMARK FOR ts AS ts - INTERVAL '{self.delay}' SECOND"
        if self.has_versions:
            return Rows({**_TIMED_TYPES, "k": IntType(False)}, rows, at_once, watermark, key=(0,))
        return Rows(_TIMED_TYPES, rows, at_once, watermark)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A table to which rows come and from which they go; half of them only get rows."""
    changes: list[Change] = []
    rows: list[Row] = []
    only_inserts = draw(st.booleans())
    for _ in range(draw(st.integers(0, 12))):
        what = "insert" if only_inserts or not rows else draw(st.sampled_from(["insert", "insert", "update", "delete"]))
        row = draw(_ROWS) if what != "delete" else ()
        if what == "insert":
            changes.append(("+I", row))
        else:
            # Of rows that are alike the oldest one goes.
            gone = rows[draw(st.integers(0, len(rows) - 1))]
            rows.remove(gone)
            changes += [("-U", gone), ("+U", row)] if what == "update" else [("-D", gone)]
        rows += [row] if what != "delete" else []
    return Table(tuple(changes), draw(st.sampled_from([1, 2, 3, 100])), tuple(rows))


@st.composite
def timed_tables(draw: st.DrawFn, goes: bool, in_order: bool) -> Table:
    """A table whose rows have event time and are not late, also when they go.

    `goes`: whether rows go, too. `in_order`: whether all are of different times, though out of order.
    """
    delay = draw(st.integers(1, 5))
    changes: list[Change] = []
    rows: list[Row] = []
    latest = draw(st.integers(-4, 4))
    for _ in range(draw(st.integers(0, 14))):
        in_time = [row for row in rows if row[-1] > (latest - delay) * SECOND_NS]
        what = draw(st.sampled_from(["insert", "insert", "update", "delete"])) if goes and in_time else "insert"
        taken = {row[-1] // SECOND_NS for row in rows} if in_order else set()
        time = draw(st.sampled_from([one for one in range(latest - delay + 1, latest + 5) if one not in taken]))
        row = (*draw(_ROWS), time * SECOND_NS)
        if what == "insert":
            changes.append(("+I", row))
        else:
            gone = draw(st.sampled_from(in_time))
            rows.remove(gone)
            changes += [("-U", gone), ("+U", row)] if what == "update" else [("-D", gone)]
        if what != "delete":
            rows.append(row)
            latest = max(latest, time)
    return Table(tuple(changes), draw(st.sampled_from([1, 1, 2, 3, 100])), tuple(rows), delay)


@st.composite
def versions(draw: st.DrawFn) -> Table:
    """Versions of rows by their key, each of its own time, out of order but not late; half of them also end."""
    delay, latest, ends = draw(st.integers(1, 5)), draw(st.integers(-4, 2)), draw(st.booleans())
    changes: list[Change] = []
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 14))):
        key, rest = draw(st.sampled_from([1, 2])), draw(_ROWS)[1:]
        taken = {row[3] // SECOND_NS for row in rows if row[0] == key}
        times = [one for one in range(latest - delay + 1, latest + 5) if one not in taken]
        time = draw(st.sampled_from(times)) if times else latest + 5
        row = (key, *rest, time * SECOND_NS)
        is_gone = ends and draw(st.sampled_from([False, False, True]))
        changes.append(("-D" if is_gone else "+U" if ends and taken else "+I", row))
        rows.append((*row, is_gone))
        latest = max(latest, time)
    return Table(tuple(changes), draw(st.sampled_from([1, 1, 2, 3, 100])), tuple(rows), delay, has_versions=True)


#: e has rows of one time, of f all are of different times, from g rows go, too, and v has versions
_TABLES: Final[dict[str, st.SearchStrategy[Table]]] = {
    "t": tables(),
    "u": tables(),
    "e": timed_tables(goes=False, in_order=False),
    "f": timed_tables(goes=False, in_order=True),
    "g": timed_tables(goes=True, in_order=False),
    "v": versions(),
}
_TIMED_TABLES: Final = tuple(
    Timed(Relation(_TIMED.sql.format(name), _TIMED.columns), name != "g", name == "f") for name in "efg"
)


@dataclass(frozen=True)
class World:
    """Tables and a query over them. `in_an_epoch`: how many rows of a table an epoch reads."""

    tables: dict[str, Table]
    text: str
    in_an_epoch: int

    def __repr__(self) -> str:
        return f"World({self.tables}, {self.query!r}, {self.in_an_epoch})"

    @property
    def query(self) -> str:
        """The query in Flink's SQL."""
        return in_flink(self.text)

    @property
    def duckdb_query(self) -> str:
        """The query in DuckDB's."""
        return in_duckdb(self.text)

    def streamed(self, parallelism: int = 1, options: Mapping[str, str] = NO_OPTIONS) -> Answer:
        """What the query tells as a stream."""
        tables = {name: table.source() for name, table in self.tables.items()}
        return run_over(tables, self.query, True, parallelism, options)

    def in_bundles(self) -> Answer:
        """What it tells when groups gather a few rows before they tell of a change."""
        options = {"enabled": "true", "allow-latency": "1 h", "size": str(self.in_an_epoch)}
        return self.streamed(1, {f"table.exec.mini-batch.{key}": value for key, value in options.items()})

    def in_epochs(self, parallelism: int = 1) -> Answer:
        """What it tells when each epoch reads a few rows of each table."""
        options = {"execution.runtime-mode": "MICRO_BATCH", "execution.micro-batch.max-records": str(self.in_an_epoch)}
        return self.streamed(parallelism, options)


@st.composite
def worlds(draw: st.DrawFn, depth: int = 3, is_timed: bool = False, has_versions: bool = False) -> World:
    """A world whose query has up to `depth` steps.

    `is_timed`: whether the last one works by event time. `has_versions`: whether it finds the versions of keys.
    """
    queries = TimedQueries(draw, {"t": COLUMNS, "u": COLUMNS}, _TIMED_TABLES)
    steps = draw(st.integers(1, depth))
    make = queries.timed_result if is_timed else queries.relation
    text = (queries.result_of_versions if has_versions else make)(steps).sql
    found = {name: draw(table) for name, table in _TABLES.items() if re.search(rf"FROM {name}\b", text)}
    return World(found, text, draw(st.integers(1, 5)))
