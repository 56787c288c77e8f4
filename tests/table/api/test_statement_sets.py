"""K1: each INSERT of a statement set writes what it writes alone, also where several read the same object."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.common import Configuration, Row, RowKind, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.table import ChangelogMode, DataTypes, Schema, StreamTableEnvironment
from penstock.table.expressions import col

_TYPE: Final = Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.INT()])
_ROWS: Final = [(1, 10), (2, 20), (3, 5)]
_RANKED: Final = "SELECT id, v, ROW_NUMBER() OVER (ORDER BY v DESC) AS place FROM x"

#: queries over x, each with the table that it gives
QUERIES: Final[dict[str, tuple[str, list[tuple[int, int]]]]] = {
    "all rows": ("SELECT id, v FROM x", _ROWS),
    "except": ("SELECT id, v FROM x EXCEPT SELECT 1, 10 FROM x", [(2, 20), (3, 5)]),
    "intersect all": ("SELECT id, v FROM x INTERSECT ALL SELECT id, v FROM x", _ROWS),
    "top 1": (f"SELECT id, v FROM ({_RANKED}) WHERE place = 1", [(2, 20)]),
    "in": ("SELECT id, v FROM x WHERE id IN (SELECT id FROM x WHERE v > 9)", [(1, 10), (2, 20)]),
    "rollup": ("SELECT id, SUM(v) FROM x WHERE id < 3 GROUP BY ROLLUP (id)", [(1, 10), (2, 20), (-1, 30)]),
    "grouping": (
        "SELECT CAST(GROUPING(id) AS INT), SUM(v) FROM x GROUP BY GROUPING SETS ((id), ())",
        [(0, 10), (0, 20), (0, 5), (1, 35)],
    ),
}


def environment() -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    streams = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )
    return streams, StreamTableEnvironment.create(streams)


def of_stream(streams: StreamExecutionEnvironment, tables: StreamTableEnvironment, _: Path) -> None:
    rows = streams.from_collection([Row(*row) for row in _ROWS], _TYPE)
    tables.create_temporary_view("x", tables.from_data_stream(rows))


def of_changelog(streams: StreamExecutionEnvironment, tables: StreamTableEnvironment, _: Path) -> None:
    inserts = [Row.of_kind(RowKind.INSERT, *row) for row in [*_ROWS, (4, 9)]]
    rows = streams.from_collection([*inserts, Row.of_kind(RowKind.DELETE, 4, None)], _TYPE)
    schema = Schema.new_builder().column("id", "INT NOT NULL").column("v", "INT").primary_key("id").build()
    tables.create_temporary_view("x", tables.from_changelog_stream(rows, schema, ChangelogMode.upsert()))


def of_elements(_: StreamExecutionEnvironment, tables: StreamTableEnvironment, __: Path) -> None:
    fields = [DataTypes.FIELD("id", DataTypes.INT()), DataTypes.FIELD("v", DataTypes.INT())]
    tables.create_temporary_view("x", tables.from_elements(_ROWS, DataTypes.ROW(fields)))


def _files(tables: StreamTableEnvironment, directory: Path, name: str) -> None:
    (directory / "x").mkdir()
    (directory / "x" / "rows.csv").write_text("".join(f"{number},{value}\n" for number, value in _ROWS))
    options = f"'connector' = 'filesystem', 'path' = '{directory}/x', 'format' = 'csv'"
    tables.execute_sql(f"CREATE TABLE {name} (id INT, v INT) WITH ({options})")


def of_files(_: StreamExecutionEnvironment, tables: StreamTableEnvironment, directory: Path) -> None:
    _files(tables, directory, "x")


def of_view(_: StreamExecutionEnvironment, tables: StreamTableEnvironment, directory: Path) -> None:
    _files(tables, directory, "f")
    tables.execute_sql("CREATE TEMPORARY VIEW x AS SELECT id, v FROM f")


def of_table(_: StreamExecutionEnvironment, tables: StreamTableEnvironment, directory: Path) -> None:
    _files(tables, directory, "f")
    tables.create_temporary_view("x", tables.sql_query("SELECT id, v FROM f"))


ORIGINS: Final = [of_stream, of_changelog, of_elements, of_files, of_view, of_table]


def create_sink(tables: StreamTableEnvironment, directory: Path, number: int) -> None:
    options = f"'connector' = 'filesystem', 'path' = '{directory}/out{number}', 'format' = 'debezium-json'"
    tables.execute_sql(f"CREATE TABLE out{number} (a INT, b INT) WITH ({options})")


def written(directory: Path, number: int) -> Counter[tuple[Any, ...]]:
    """The table that the changes in the files of a sink stand for; a NULL key shows as -1."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in (directory / f"out{number}").iterdir():
        for line in path.read_text().splitlines():
            change = json.loads(line)
            for side, times in (("before", -1), ("after", 1)):
                if change.get(side) is not None:
                    rows[tuple(-1 if value is None else value for value in change[side].values())] += times
    return +rows


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("reverses", [False, True])
def test_each_insert_writes_what_it_writes_alone(
    origin: Callable[[StreamExecutionEnvironment, StreamTableEnvironment, Path], None], reverses: bool, tmp_path: Path
) -> None:
    streams, tables = environment()
    origin(streams, tables, tmp_path)
    statements = tables.create_statement_set()
    queries = list(reversed(QUERIES.items())) if reverses else list(QUERIES.items())
    for number, (_, (query, _)) in enumerate(queries):
        create_sink(tables, tmp_path, number)
        statements.add_insert_sql(f"INSERT INTO out{number} {query}")
    statements.execute().wait()
    for number, (name, (_, rows)) in enumerate(queries):
        assert written(tmp_path, number) == Counter(rows), name


@pytest.mark.parametrize("reverses", [False, True])
def test_table_that_is_inserted_and_an_input_of_the_next_insert(reverses: bool, tmp_path: Path) -> None:
    _, tables = environment()
    _files(tables, tmp_path, "x")
    rows = tables.from_path("x")
    high = rows.minus(rows.filter(col("v") < 9))
    counted = high.group_by(col("id")).select(col("id"), col("v").sum)
    inserts = [(rows, _ROWS), (high, _ROWS[:2]), (counted, _ROWS[:2]), (high.intersect_all(rows), _ROWS[:2])]
    statements = tables.create_statement_set()
    for number, (table, _) in enumerate(inserts[::-1] if reverses else inserts):
        create_sink(tables, tmp_path, number)
        statements.add_insert(f"out{number}", table)
    statements.execute().wait()
    for number, (_, wanted) in enumerate(inserts[::-1] if reverses else inserts):
        assert written(tmp_path, number) == Counter(wanted)
