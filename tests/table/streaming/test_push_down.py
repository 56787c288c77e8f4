"""A3: what goes into tables of files: filters, partitions, fields of rows, limits. Results are the same as without."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.table.planned import manager_of, plan_query

from penstock.sql.connectors.built_in import built_in
from penstock.sql.stream.executor import StreamExecutor
from penstock.sql.stream.planner import StreamPlanner
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.tables.tables import NO_PUSH_DOWN, PushDown
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import EnumeratorHost, SourceRun

COLUMNS = (
    "id BIGINT, f DOUBLE, t STRING, d DATE, n DECIMAL(6, 2), ts TIMESTAMP(3), "
    "place ROW<city STRING, spot ROW<x INT, y INT>>, tags ARRAY<STRING>, p INT, q STRING"
)
TYPES = {
    "id": pa.int64(),
    "f": pa.float64(),
    "t": pa.string(),
    "d": pa.date32(),
    "n": pa.decimal128(6, 2),
    "ts": pa.timestamp("ms"),
    "place": pa.struct([("city", pa.string()), ("spot", pa.struct([("x", pa.int32()), ("y", pa.int32())]))]),
    "tags": pa.list_(pa.string()),
}
NAN = float("nan")


class WholeTables(StreamExecutor):
    """Pushes nothing into tables."""

    def push_down(self) -> PushDown:
        return NO_PUSH_DOWN


def row(number: int) -> dict[str, Any]:
    """A row; NULL and NaN are in all places, and each row group has a range of its own."""
    at = None if number % 7 == 3 else {"x": number % 5, "y": None if number % 3 == 0 else number}
    return {
        "id": None if number % 11 == 5 else number,
        "f": NAN if number % 10 == 9 else None if number % 13 == 2 else number / 2,
        "t": None if number % 4 == 1 else f"t{number // 3}",
        "d": None if number % 9 == 1 else number // 4,
        "n": None if number % 6 == 1 else Decimal(number - 50) / 4,
        "ts": None if number % 7 == 1 else number * 500,
        "place": None if number % 8 == 6 else {"city": f"c{number % 3}", "spot": at},
        "tags": [f"g{number % 2}"],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet files with small row groups, by partition."""
    found = tmp_path_factory.mktemp("files")
    default = "__HIVE_DEFAULT_PARTITION__"
    for place, (p, q) in enumerate(itertools.product(["1", "2", default], ["a", "b c", default])):
        directory = found / f"p={p}" / f"q={q.replace(' ', '%20')}"
        directory.mkdir(parents=True)
        rows = [row(number) for number in range(place * 12, place * 12 + 12)]
        table = pa.table({name: pa.array([one[name] for one in rows], kind) for name, kind in TYPES.items()})
        pq.write_table(table, directory / "one.parquet", row_group_size=4)
    return found


def environment(folder: Path, executor: type[StreamExecutor] = StreamExecutor, **more: str) -> TableEnvironment:
    made = TableEnvironment(EnvironmentSettings.in_streaming_mode(), executor(built_in()))
    made.get_config().set("execution.target", "local")
    options = {"connector": "filesystem", "path": str(folder), "format": "parquet", **more}
    text = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    made.execute_sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p, q) WITH ({text})")
    return made


def rows(made: TableEnvironment, sql: str) -> Counter[str]:
    with made.execute_sql(sql).collect() as found:
        return Counter(map(repr, found))


def explained(made: TableEnvironment, sql: str) -> str:
    return made.explain_sql(sql).partition("== Streams ==")[2].replace("default_catalog.default_database.", "")


# --- the same results -------------------------------------------------------------------------------------------------

ATOMS = st.sampled_from(
    [
        *(f"id {one} {value}" for one in ("=", "<>", "<", "<=", ">", ">=") for value in (0, 17, 50, 107)),
        *(f"f {one} {value}" for one in ("=", "<>", "<", ">") for value in ("2.0", "30.5", "1E9")),
        *(f"t {one} 't{value}'" for one in ("=", "<>", "<=", ">") for value in (1, 20)),
        *(f"d {one} DATE '1970-01-{value:02}'" for one in ("=", "<", ">=") for value in (3, 20)),
        *(
            f"{one} IS {word}NULL"
            for one in ("id", "f", "t", "p", "q", "place", "place.spot.x")
            for word in ("", "NOT ")
        ),
        *(f"p {one} 2" for one in ("=", "<>", "<", ">=")),
        *(f"n {one} {value}" for one in ("=", "<>", "<", ">=") for value in ("-3.50", "0.0", "7.25")),
        *(f"ts {one} TIMESTAMP '1970-01-01 00:00:{value}'" for one in ("=", "<=", ">") for value in ("07.500", "30")),
        "q = 'a'",
        "q LIKE 'b%'",
        "q IN ('b c', 'z')",
        "UPPER(q) = 'A'",
        "p + 1 = 2",
        "id IN (3, 40, 41)",
        "place.city = 'c1'",
        "place.spot.x > 2",
        "p = CAST(id AS INT)",
        "50 > id",
        "'a' <> q",
    ]
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda one: f"({' '.join(one)})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=5,
)
SELECTS = st.sampled_from(
    [
        "*",
        "id, p",
        "place.city, place.spot.y",
        "place.spot, place.spot.x, q",
        "place, place.spot.x",
        "UPPER(place.city), tags[1]",
        "COUNT(*), COUNT(place.spot.y), MIN(q)",
        "1",
    ]
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(select=SELECTS, conditions=st.lists(CONDITIONS, max_size=3))
def test_results_are_the_same_as_without(folder: Path, select: str, conditions: list[str]) -> None:
    where = f" WHERE {' AND '.join(f'({one})' for one in conditions)}" if conditions else ""
    sql = f"SELECT {select} FROM t{where}"
    assert rows(environment(folder), sql) == rows(environment(folder, WholeTables), sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.id, b.place.city FROM t a JOIN t b ON a.id = b.id WHERE a.p = 1 AND b.p = 1 AND a.id > 5",
        "SELECT id FROM t WHERE p = 1 UNION ALL SELECT id FROM t WHERE p = 2",
        "SELECT city, COUNT(*) FROM (SELECT place.city AS city, place.spot.x AS x FROM t WHERE q = 'a') GROUP BY city",
        "SELECT r.city FROM (SELECT place AS r, id FROM t) WHERE r.spot.x = 1 AND id < 60",
    ],
)
def test_queries_of_several_steps_give_the_same(folder: Path, sql: str) -> None:
    assert rows(environment(folder), sql) == rows(environment(folder, WholeTables), sql)


def test_fields_that_several_steps_read_of_a_table_with_watermarks(folder: Path) -> None:
    """Each step sees the table with the fields that any of them reads, so that event time is worked out once."""
    times = (
        "seen AS CASE WHEN place.spot.x > 1 THEN TIMESTAMP '2026-01-01 00:00:01' ELSE TIMESTAMP '2026-01-01 00:00:00' "
        "END, WATERMARK FOR seen AS seen - INTERVAL '1' SECOND"
    )
    sql = (
        "SELECT a.id, a.y, b.city FROM (SELECT id, place.spot.y AS y FROM v WHERE p = 1) a "
        "JOIN (SELECT id, place.city AS city FROM v WHERE q = 'a') b ON a.id = b.id"
    )

    def made(executor: type[StreamExecutor]) -> TableEnvironment:
        tables = environment(folder, executor)
        tables.execute_sql(f"CREATE TABLE v ({times}) LIKE t")
        return tables

    lines = [line.strip() for line in explained(made(StreamExecutor), sql).splitlines()]
    below = {tuple(lines[at : at + 3]) for at, line in enumerate(lines) if line.startswith("WatermarkAssigner")}
    ((_, project, _),) = below
    assert "place.city, place.spot.y, " in project
    assert rows(made(StreamExecutor), sql) == rows(made(WholeTables), sql)


@pytest.mark.parametrize("form", ["json", "avro", "csv"])
def test_fields_of_rows_in_other_formats(tmp_path: Path, form: str) -> None:
    def made(executor: type[StreamExecutor]) -> TableEnvironment:
        tables = TableEnvironment(EnvironmentSettings.in_streaming_mode(), executor(built_in()))
        tables.get_config().set("execution.target", "local")
        more = ", 'csv.array-element-delimiter' = ';'" if form == "csv" else ""
        columns = "id INT, r ROW<a INT, b STRING>" if form == "csv" else "id INT, r ROW<a INT, s ROW<b STRING, c INT>>"
        tables.execute_sql(
            f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
            f"'format' = '{form}'{more})"
        )
        return tables

    whole = made(WholeTables)
    values = (
        "(1, ROW(2, 'x')), (2, ROW(3, 'z'))" if form == "csv" else "(1, ROW(2, ROW('x', 3))), (2, ROW(3, ROW('z', 4)))"
    )
    whole.execute_sql(f"INSERT INTO t VALUES {values}").wait()
    field = "r.b" if form == "csv" else "r.s.b"
    sql = f"SELECT {field}, id FROM t"
    found = rows(made(StreamExecutor), sql)
    assert found == rows(whole, sql) == Counter(["<Row('x', 1)>", "<Row('z', 2)>"])
    assert f"fields=[id, {field}]" in explained(made(StreamExecutor), sql)


# --- what EXPLAIN says ------------------------------------------------------------------------------------------------


def test_conditions_on_partitions_leave_the_plan(folder: Path) -> None:
    found = explained(
        environment(folder), "SELECT id FROM t WHERE p = 2 AND q LIKE 'b%' AND id > 3 AND UPPER(t) = 'T1'"
    )
    assert "filter=[(p = 2) AND LIKE(q, 'b%') AND (id > 3)]" in found
    assert "Filter(where=((id > 3) AND (UPPER(t) = 'T1'))" in found


def test_partitions_are_chosen_by_any_expression(folder: Path) -> None:
    found = explained(environment(folder), "SELECT id FROM t WHERE UPPER(q) = 'A'")
    assert "partitions=[{p=1, q=a}, {p=2, q=a}, {p=None, q=a}]" in found
    assert "Filter(where=(UPPER(q) = 'A')" in found


def test_a_table_that_is_read_twice_takes_what_both_ask(folder: Path) -> None:
    sql = "SELECT id FROM t WHERE p = 1 AND q = 'a' UNION ALL SELECT id FROM t WHERE q = 'a' AND p = 2"
    found = explained(environment(folder), sql)
    assert found.count("filter=[(q = 'a')]") == 2
    assert "Filter(where=(p = 1)" in found
    assert "Filter(where=(p = 2)" in found


def test_nothing_goes_below_a_watermark(tmp_path: Path) -> None:
    """Rows that a filter drops move event time all the same."""
    tables = TableEnvironment(EnvironmentSettings.in_streaming_mode(), StreamExecutor(built_in()))
    tables.execute_sql(
        "CREATE TABLE t (id INT, ts TIMESTAMP(3), p INT, WATERMARK FOR ts AS ts) PARTITIONED BY (p) WITH ("
        f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')"
    )
    assert "filter=" not in explained(tables, "SELECT id FROM t WHERE p = 1")


def test_a_limit_goes_in_where_only_it_stands_above(folder: Path) -> None:
    made = environment(folder)
    assert "limit=[5]" in explained(made, "SELECT id + 1 FROM t LIMIT 3 OFFSET 2")
    assert "limit=" not in explained(made, "SELECT id FROM t WHERE UPPER(t) = 'T1' LIMIT 3")
    assert "limit=" not in explained(made, "SELECT id FROM t ORDER BY id LIMIT 3")
    assert "limit=" not in explained(made, "SELECT * FROM (SELECT id FROM t LIMIT 3) UNION ALL SELECT id FROM t")
    assert rows(made, "SELECT id FROM t LIMIT 3").total() == 3


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """The row groups that are read, with the columns."""
    found: list[tuple[int, list[str]]] = []
    iter_batches: Callable[..., Any] = pq.ParquetFile.iter_batches

    def noted(self: Any, *args: Any, **more: Any) -> Any:
        found.append((more["row_groups"][0], more["columns"]))
        return iter_batches(self, *args, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    return found


def test_row_groups_that_cannot_have_a_row_are_not_read(folder: Path, groups_read: list[Any]) -> None:
    assert rows(environment(folder), "SELECT id FROM t WHERE id >= 13 AND id < 15") == Counter(
        ["<Row(13)>", "<Row(14)>"]
    )
    assert groups_read == [(0, ["id"])]


def test_files_of_other_partitions_are_not_opened(folder: Path, groups_read: list[Any]) -> None:
    assert rows(environment(folder), "SELECT place.spot.x FROM t WHERE p IS NULL AND q = 'b c'").total() == 12
    assert groups_read == [(group, ["place.spot.x"]) for group in range(3)]


# --- positions and ids ------------------------------------------------------------------------------------------------


def test_a_position_is_good_for_other_conditions(folder: Path) -> None:
    """Files that nobody wants count as read in their turn, so a query with other conditions goes on from there."""

    def source(where: str) -> Any:
        made: list[Any] = []
        planner = StreamPlanner(
            made.append, built_in().reader, StreamSession(), manager.calls(), tables=PushDown(built_in().scan)
        )
        planner.query(plan_query(f"SELECT id FROM t WHERE {where}", manager), True)
        return made[0]

    manager = manager_of(
        f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p, q) WITH ('connector' = 'filesystem', 'path' = '{folder}', "
        "'format' = 'parquet')"
    )
    second, both = source("p = 2 AND q = 'a'"), source("p IN (2, 1)")
    assert second.uid_hash == both.uid_hash
    before = SourceRun(second.source)
    host = before.master
    host.run_background()
    before.enumerator.handle_split_request(0)
    (assigned,) = host.assigned
    assert "p=2/q=a" in assigned[1].path
    state = before.snapshot().enumerator_state
    before.close()
    host = EnumeratorHost()
    after = both.source.create_enumerator(host, state)
    for _ in range(3):
        after.handle_split_request(0)
    assert [path.split("p=")[1].rpartition("/")[0] for path in (one.path for _, one in host.assigned)] == [
        "2/q=b%20c",
    ]


def test_what_a_table_takes_is_part_of_the_ids_of_what_is_above(folder: Path) -> None:
    """State is only good for the query that made it."""

    def ids(where: str) -> list[str]:
        made: list[Any] = []
        calls = manager.calls()
        planner = StreamPlanner(
            made.append, built_in().reader, StreamSession(), calls, tables=PushDown(built_in().scan)
        )
        planner.query(plan_query(f"SELECT q, COUNT(*) FROM t WHERE {where} GROUP BY q", manager), True)
        return [one.uid_hash for one in made if one.is_stateful]

    manager = manager_of(
        f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p, q) WITH ('connector' = 'filesystem', 'path' = '{folder}', "
        "'format' = 'parquet')"
    )
    one, other = ids("p = 1"), ids("p = 2")
    assert one[0] == other[0]
    assert one[1:] != other[1:]
    assert ids("p = 1") == one
