"""What DuckDB gives for a query over the rows that are there at last."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
from hypothesis import reject
from tests.table.differential.worlds import Row, World

#: what DuckDB 2.0 says of CASE with a branch that is NULL where it takes the condition for constant
DUCKDB_FAULT = "BindBuiltinScalarFunction did not return a BoundFunctionExpression"


def answer_of(world: World) -> Counter[Row]:
    """The rows of a query, each as often as it is there."""
    with duckdb.connect() as connection:
        for name, table in world.tables.items():
            connection.execute(f"CREATE TABLE {name} (k INT, a INT, b VARCHAR)")
            if table.rows:
                connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", table.rows)
        try:
            rows = connection.execute(world.query).fetchall()
        except duckdb.InvalidInputException as error:
            if DUCKDB_FAULT in str(error):
                reject()
            raise
        return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
