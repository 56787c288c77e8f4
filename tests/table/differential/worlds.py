"""Random tables: how they change, and what is in them at last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.table.differential.queries import INT, TEXT, Column, Queries
from tests.table.running import Answer, Change, Rows, run_over

from penstock.table.data.logical_types import IntType, VarCharType

Row = tuple[Any, ...]

COLUMNS = (Column("k", INT), Column("a", INT), Column("b", TEXT))
_TYPES = {"k": IntType(), "a": IntType(), "b": VarCharType(2147483647)}
_ROWS: st.SearchStrategy[Row] = st.tuples(
    st.sampled_from([1, 2, 3, None]), st.sampled_from([-1, 0, 1, 2, None]), st.sampled_from(["x", "y", "xy", None])
)


@dataclass(frozen=True)
class Table:
    """What happens to a table, in how large batches it is read, and its rows at last."""

    changes: tuple[Change, ...]
    at_once: int
    rows: tuple[Row, ...]

    def source(self) -> Rows:
        """The table as a stream."""
        return Rows(_TYPES, self.changes, self.at_once)

    def last(self) -> Rows:
        """The rows at last."""
        return Rows(_TYPES, self.rows)


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
            gone = rows.pop(draw(st.integers(0, len(rows) - 1)))
            changes += [("-U", gone), ("+U", row)] if what == "update" else [("-D", gone)]
        rows += [row] if what != "delete" else []
    return Table(tuple(changes), draw(st.sampled_from([1, 2, 3, 100])), tuple(rows))


@dataclass(frozen=True)
class World:
    """Two tables and a query over them."""

    tables: dict[str, Table]
    query: str

    def streamed(self, parallelism: int = 1) -> Answer:
        """What the query tells as a stream."""
        return run_over({name: table.source() for name, table in self.tables.items()}, self.query, True, parallelism)


@st.composite
def worlds(draw: st.DrawFn, depth: int = 3) -> World:
    """A world whose query has up to `depth` steps, one over the other."""
    found = {"t": draw(tables()), "u": draw(tables())}
    query = Queries(draw, {"t": COLUMNS, "u": COLUMNS}).relation(draw(st.integers(1, depth)))
    return World(found, query.sql)
