"""What DuckDB gives for a query over the rows that are there at last."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

import duckdb
from hypothesis import reject
from tests.table.differential.worlds import SECOND_NS, Row, World

#: what DuckDB 2.0 says of CASE with a branch that is NULL where it takes the condition for constant
DUCKDB_FAULT = "BindBuiltinScalarFunction did not return a BoundFunctionExpression"

_EPOCH: Final = datetime(1970, 1, 1)


def answer_of(world: World) -> Counter[Row]:
    """The rows of a query, each as often as it is there."""
    with duckdb.connect() as connection:
        for name, table in world.tables.items():
            time = "" if table.delay is None else ", ts TIMESTAMP"
            gone = ", gone BOOLEAN" if table.has_versions else ""
            connection.execute(f"CREATE TABLE {name} (k INT, a INT, b VARCHAR{time}{gone})")
            if table.rows:
                rows = [
                    (*row[:3], *(_EPOCH + timedelta(seconds=one // SECOND_NS) for one in row[3:4]), *row[4:])
                    for row in table.rows
                ]
                connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        try:
            rows = connection.execute(world.duckdb_query).fetchall()
        except duckdb.InvalidInputException as error:
            if DUCKDB_FAULT in str(error):
                reject()
            raise
        return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1) * 1000
    return int(value) if isinstance(value, float) and value.is_integer() else value
