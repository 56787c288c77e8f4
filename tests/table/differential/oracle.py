"""What DuckDB gives for a query over the rows that are there at last."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
from tests.table.differential.worlds import Row, World


def answer_of(world: World) -> Counter[Row]:
    """The rows of a query, each as often as it is there."""
    with duckdb.connect() as connection:
        for name, table in world.tables.items():
            connection.execute(f"CREATE TABLE {name} (k INT, a INT, b VARCHAR)")
            if table.rows:
                connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", table.rows)
        return Counter(tuple(map(_plain, row)) for row in connection.execute(world.query).fetchall())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
