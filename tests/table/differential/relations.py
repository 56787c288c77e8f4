"""Queries as the generators hand them on: their SQL, and the columns that they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.table.differential.kinds import ROWTIME, Kind

NO_EDGES = ("", "")


@dataclass(frozen=True)
class Column:
    """A column of a table or a query."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Relation:
    """A query in both dialects, and its columns."""

    sql: str
    columns: tuple[Column, ...]

    def list_columns(self, kind: Kind) -> list[str]:
        """The names of the columns of a kind."""
        return [column.name for column in self.columns if column.kind == kind]

    @property
    def names(self) -> str:
        """All names, separated by commas."""
        return join_names(self.columns)

    def kinds(self) -> list[Kind]:
        """The kinds of the columns, each once."""
        return list(dict.fromkeys(column.kind for column in self.columns))


def join_names(columns: Iterable[Column]) -> str:
    """The names of columns, separated by commas."""
    return ", ".join(column.name for column in columns)


def with_prefix(columns: Iterable[Column], alias: str) -> list[Column]:
    """The columns as an expression calls them when the query has an alias."""
    return [replace(column, name=f"{alias}.{column.name}") for column in columns]


@dataclass(frozen=True)
class Timed:
    """A query whose rows have event time.

    Args:
        relation: the query; one column is its event time.
        is_append_only: whether there are neither updates nor deletions.
        has_distinct_times: whether no two rows have the same time.
        edges: the names of the columns with start and end of the window of each row, if it has one.
        session_keys: the columns that separate sessions, if the rows are those of sessions.
        watermark: the column that the query has in DuckDB alone, with the watermark that preceded each row. Only rows
            of a table with late rows have it.
    """

    relation: Relation
    is_append_only: bool = True
    has_distinct_times: bool = False
    edges: tuple[str, str] = NO_EDGES
    session_keys: tuple[Column, ...] | None = None
    watermark: str | None = None

    @property
    def time(self) -> str:
        """The name of the column of event time."""
        (name,) = self.relation.list_columns(ROWTIME)
        return name

    @property
    def others(self) -> list[Column]:
        """The columns besides event time and edges."""
        return [column for column in self.relation.columns if column.kind != ROWTIME and column.name not in self.edges]
