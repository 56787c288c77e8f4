"""What DuckDB answers: the query over the rows that are left in the end."""

from __future__ import annotations

import atexit
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa
from tests.table.differential.aggregates import HUGE_SUM
from tests.table.differential.kinds import MAP, Kind, comparable
from tests.table.differential.lateness import sessions_of
from tests.table.differential.relations import Column
from tests.table.differential.tables import Table
from tests.table.differential.worlds import World

from penstock.codecs.arrow_columns import plain_column
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.types import BigIntType, BooleanType, DataType, TimestampType

#: the rows of a result by how often there are, each value as `kinds.comparable` has it
Rows = Counter[tuple[Any, ...]]

#: DuckDB 2.0 says this of CASE with a branch that is NULL where it takes the condition for constant
DUCKDB_FAULT: Final = "BindBuiltinScalarFunction did not return a BoundFunctionExpression"
_TIME: Final = TimestampType(3)
#: The sum of decimals of 38 digits, whose halves DuckDB can add; NULL where the sum has more digits.
_HALF: Final = f"{10**19}::HUGEINT"
_HUGE_SUM: Final = f"""
    CREATE MACRO {HUGE_SUM}(x) AS (
        WITH halves AS (SELECT sum(x::HUGEINT // {_HALF}) AS high, sum(x::HUGEINT % {_HALF}) AS low),
             carried AS (SELECT high + low // {_HALF} AS high, low % {_HALF} AS low FROM halves)
        SELECT CASE WHEN abs(high) > {10**19} THEN NULL
                    WHEN abs(high * {_HALF} + low) >= {10**38}::HUGEINT THEN NULL
                    ELSE (high * {_HALF} + low)::DECIMAL(38, 0) END
        FROM carried
    )
"""
_RESULT_ROWS_MAX: Final = 4_000


class UnsuitableWorldError(Exception):
    """DuckDB cannot answer the query, or the answer is too large."""


def answer(world: World, drops_late_rows: bool = True) -> list[tuple[Any, ...]]:
    """The rows of a query as `penstock.sql.data.arrow` has them.

    `drops_late_rows`: whether late rows are dropped, as in a stream; a batch has none.

    Raises:
        UnsuitableWorldError: if DuckDB has no answer, or too large a one.
    """
    connection = _connection()
    for table in world.tables.values():
        _create(connection, table, drops_late_rows)
    for name, gap_ms, keys in world.sessions:
        _create_sessions(connection, name, world.tables["l"], gap_ms, keys, drops_late_rows)
    selected = ", ".join(f"CAST({column.name} AS {column.kind.duckdb})" for column in world.columns)
    try:
        found = connection.sql(f"SELECT {selected} FROM ({world.duckdb_query}) AS result").to_arrow_table()
    except duckdb.InvalidInputException as error:
        if DUCKDB_FAULT in str(error):
            raise UnsuitableWorldError(DUCKDB_FAULT) from error
        raise
    except duckdb.InternalException as error:  # a mistake of DuckDB's own, after which the database is of no use
        _close(connection)
        raise UnsuitableWorldError("DuckDB fails on its own: an internal error") from error
    if found.num_rows > _RESULT_ROWS_MAX:
        raise UnsuitableWorldError(f"{found.num_rows} rows")
    columns = [
        to_values(_one_chunk(column), one.kind.type) for column, one in zip(found.columns, world.columns, strict=True)
    ]
    return list(zip(*columns, strict=True))


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """A database in memory, whose tables the next world replaces: to open one takes longer than a query."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute(_HUGE_SUM)
    atexit.register(_close, connection)
    return connection


def _close(connection: duckdb.DuckDBPyConnection) -> None:
    """Close it before the interpreter ends, or DuckDB complains about objects that are still there."""
    connection.close()
    _connection.cache_clear()


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = pa.concat_arrays(combined.chunks)
    return combined.cast(pa.time32("ms")) if pa.types.is_time64(combined.type) else combined


def _create(connection: duckdb.DuckDBPyConnection, table: Table, drops_late_rows: bool) -> None:
    rows: list[tuple[Any, ...]] = list(table.rows)
    columns = [(column.name, column.kind.type, column.kind.duckdb) for column in table.columns]
    if table.has_versions:
        columns.append(("gone", BooleanType(), "BOOLEAN"))
    if table.has_late_rows:
        columns += [("wm", _TIME, "TIMESTAMP"), ("number", BigIntType(), "BIGINT")]
        marks = table.watermarks() if drops_late_rows else [None] * len(rows)
        rows = [(*row, mark, number) for number, (row, mark) in enumerate(zip(rows, marks, strict=True))]
    kinds = {column.name: column.kind for column in table.columns}
    rows = [
        tuple(_stored(kinds.get(name), value) for (name, _, _), value in zip(columns, row, strict=True)) for row in rows
    ]
    _load(connection, table.name, columns, rows)


def _stored(kind: Kind | None, value: Any) -> Any:
    """A map with its entries in order, since DuckDB compares them in the order that they have."""
    return sorted(value) if kind == MAP and value is not None else value


def _create_sessions(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: Table,
    gap_ms: int,
    keys: tuple[int, ...],
    drops_late_rows: bool,
) -> None:
    columns = [
        ("number", BigIntType(), "BIGINT"),
        ("window_start", _TIME, "TIMESTAMP"),
        ("window_end", _TIME, "TIMESTAMP"),
    ]
    _load(connection, name, columns, sessions_of(table, gap_ms, keys, drops_late_rows))


def _load(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: Sequence[tuple[str, DataType, str]],
    rows: list[tuple[Any, ...]],
) -> None:
    arrays = [plain_column(to_column([row[place] for row in rows], kind)) for place, (_, kind, _) in enumerate(columns)]
    arrow = pa.table([pa.chunked_array([array]) for array in arrays], names=[column for column, _, _ in columns])
    connection.register("loaded", arrow)
    selected = ", ".join(f"CAST({column} AS {duckdb_type}) AS {column}" for column, _, duckdb_type in columns)
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {selected} FROM loaded")
    connection.unregister("loaded")


def count_rows(values: list[tuple[Any, ...]], columns: tuple[Column, ...]) -> Rows:
    """Rows by how often there are, in a form in which equal rows are equal."""
    converters = [comparable(column.kind.type) for column in columns]
    return Counter(tuple(convert(value) for convert, value in zip(converters, row, strict=True)) for row in values)


def is_nan(value: Any) -> bool:
    """Whether a value is NaN."""
    return isinstance(value, float) and math.isnan(value)
