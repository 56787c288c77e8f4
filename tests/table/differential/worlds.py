"""A world: random tables, a query over them, and what restricts how it runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.table.differential.chance import Chance
from tests.table.differential.dialects import in_duckdb, in_flink
from tests.table.differential.kinds import MAP, MORE_KINDS
from tests.table.differential.queries import NO_BATCH
from tests.table.differential.relations import Column, Relation
from tests.table.differential.tables import PLAIN_NAMES, SCALES, TIMED_NAMES, Table, TableMaker
from tests.table.differential.timed import VERSIONED_VIEW, VERSIONS_OF_VIEW, TimedQueries


@dataclass(frozen=True)
class World:
    """Tables and a query over them.

    Args:
        tables: that the query reads, by their names.
        text: the query in both dialects.
        columns: of its result.
        features: see `queries`.
        options: that the planner has in each setting.
        sessions: the gap (ms) and the keys of sessions of late rows, by the name of the table that DuckDB has them in.
    """

    tables: dict[str, Table]
    text: str
    columns: tuple[Column, ...]
    features: frozenset[str] = frozenset()
    options: tuple[tuple[str, str], ...] = ()
    sessions: tuple[tuple[str, int, tuple[int, ...]], ...] = ()

    @property
    def query(self) -> str:
        """The query in Flink's SQL."""
        return in_flink(self.text)

    @property
    def duckdb_query(self) -> str:
        """The query in DuckDB's."""
        return in_duckdb(self.text)

    @property
    def has_late_rows(self) -> bool:
        """Whether it reads rows of which some may be late."""
        return "l" in self.tables

    def views(self) -> dict[str, str]:
        """The views that the query reads, by their names: a versioned view reads the last row of each key."""
        if not re.search(rf"\b{VERSIONED_VIEW}\b", self.query):
            return {}
        columns = ", ".join(column.name for column in self.tables[VERSIONS_OF_VIEW].columns)
        number = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS number"
        rows = f"SELECT *, {number} FROM {VERSIONS_OF_VIEW}"
        return {VERSIONED_VIEW: f"SELECT {columns} FROM ({rows}) WHERE number = 1"}


def draw_world(chance: Chance, tables: Mapping[str, Table] | None = None) -> World:
    """A random world. `tables`: those that it has instead of random ones, as far as their columns fit."""
    of_world, of_query = chance.branch("world"), chance.branch("query")
    scale = of_world.pick(SCALES)
    more = of_world.several(MORE_KINDS, 0, 2)
    maker = TableMaker(chance.branch("tables"), more, scale)
    maker.adopt(tables or {})
    queries = TimedQueries(of_query, maker)
    depth = of_world.number(1, 4 if scale.rows < 20 else 3 if scale.rows < 50 else 2)
    relation = _root(of_world, queries, depth)
    names = [name for name in (*PLAIN_NAMES, *TIMED_NAMES) if re.search(rf"\b(FROM|JOIN) {name}\b", relation.sql)]
    read = {name: maker.table(name) for name in names}
    sessions = tuple((name, *sessions) for name, sessions in queries.sessions.items() if name in relation.sql)
    features = queries.features | ({NO_BATCH} if MAP in more else set())
    options = tuple(queries.options.items())
    return World(read, relation.sql, relation.columns, frozenset(features), options, sessions)


def _root(chance: Chance, queries: TimedQueries, depth: int) -> Relation:
    kinds = ["any"] * 18 + ["timed"] * 8 + ["late"] * 4 + ["versions"] * 5 + ["early"] * 6 + ["collected"]
    kind = chance.pick(kinds)
    if kind == "timed":
        return queries.timed_result(depth)
    if kind == "late":
        return queries.late_result(depth)
    if kind == "versions":
        return queries.result_of_versions(depth)
    if kind == "collected":
        return queries.collected_result(depth)
    return queries.early_result(depth) if kind == "early" else queries.relation(depth)
