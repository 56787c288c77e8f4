"""Keys that differ in a job and are equal in the database: a batch is written as its rows would be, one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.test_sink import sink, write
from tests.connectors.postgres.test_tables import ddl, environment

from penstock.codecs.column_data import ColumnData
from penstock.connectors.postgres.client import Address, connect
from penstock.connectors.postgres.text_columns import has_exact_keys
from penstock.sql.connectors.jdbc import ColumnsWriting, Target
from penstock.sql.data.types import LENGTH_MAX, IntType, VarCharType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

EQUAL_KEYS = [
    ("timestamp(0)", "TIMESTAMP(3)", "TIMESTAMP '2024-01-01 00:00:00.100'", "TIMESTAMP '2024-01-01 00:00:00.200'"),
    ("date", "TIMESTAMP(3)", "TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 12:00:00'"),
    ("numeric(10, 0)", "DECIMAL(10, 2)", "1.10", "1.20"),
    ("citext", "STRING", "'Ab'", "'aB'"),
    ("char(5)", "STRING", "'ab'", "'ab '"),
    ("varchar(2)", "STRING", "'ab'", "'ab '"),
    ("real", "DOUBLE", "CAST('0.1' AS DOUBLE)", "CAST('0.10000000149' AS DOUBLE)"),
    ("uuid", "STRING", "'00112233-4455-6677-8899-AABBCCDDEEFF'", "'00112233-4455-6677-8899-aabbccddeeff'"),
    ("jsonb", "STRING", "'{\"a\":1}'", "'{\"a\": 1}'"),
    ("timestamptz", "STRING", "'2024-01-01 00:00:00+00'", "'2024-01-01 01:00:00+01'"),
]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize(("stored", "declared", "one", "other"), EQUAL_KEYS, ids=[row[0] for row in EQUAL_KEYS])
def test_the_last_row_of_an_equal_key_stays(
    database: Database, stored: str, declared: str, one: str, other: str, guarantee: str
) -> None:
    """K4: one INSERT may not touch a row twice, so the job failed for ever."""
    if stored == "citext":
        database.execute("CREATE EXTENSION citext")
    database.execute(f"CREATE TABLE t (id {stored} PRIMARY KEY, s text)")
    tables = environment()
    more = f", 'sink.delivery-guarantee' = '{guarantee}'"
    tables.execute_sql(ddl(database, f"id {declared}, s STRING, PRIMARY KEY (id) NOT ENFORCED", more=more))
    tables.get_config().set("parallelism.default", "1")
    tables.execute_sql(f"INSERT INTO t VALUES ({one}, 'a'), ({other}, 'b') ON CONFLICT DO DEDUPLICATE").wait()
    assert database.execute("SELECT s FROM t") == [("b",)]


def execute_one_by_one(database: Database, table: str, changes: list[tuple[int, str, int]]) -> None:
    for kind, key, value in changes:
        if kind in (DELETE, UPDATE_BEFORE):
            database.execute(f"DELETE FROM {table} WHERE id = '{key}'")
        else:
            database.execute(
                f"INSERT INTO {table} VALUES ('{key}', {value}) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
            )


@pytest.mark.parametrize("seed", range(5))
def test_batches_are_written_as_their_rows_one_by_one(database: Database, seed: int) -> None:
    """K1: with deletions between updates, in any order; the batches of a job have no effect."""
    chance = random.Random(seed)
    database.execute(
        "CREATE EXTENSION citext; CREATE TABLE batched (id citext PRIMARY KEY, v int); "
        "CREATE TABLE one_by_one (id citext PRIMARY KEY, v int)"
    )
    target = Target(
        Address(database.jdbc_url, "postgres", None),
        "batched",
        ("id", "v"),
        (VarCharType(LENGTH_MAX), IntType()),
        (0,),
    )
    writing = ColumnsWriting(target)
    with connect(target.address) as connection:
        for _ in range(6):
            kinds = [chance.choice((INSERT, UPDATE_AFTER, DELETE, UPDATE_BEFORE)) for _ in range(12)]
            keys = [chance.choice(("a", "A", "b", "B", "c")) for _ in kinds]
            values = [chance.randrange(100) for _ in kinds]
            columns = pa.record_batch({"id": keys, "v": pa.array(values, pa.int32())})
            writing.prepare(connection)
            with connection.transaction():
                writing.run(connection, [(ColumnData(columns), bytes(kinds))])
            execute_one_by_one(database, "one_by_one", list(zip(kinds, keys, values, strict=True)))
            rows = [
                database.execute(f"SELECT lower(id), v FROM {name} ORDER BY 1") for name in ("batched", "one_by_one")
            ]
            assert rows[0] == rows[1]


def test_statements_of_a_stream_do_the_same(database: Database) -> None:
    database.execute("CREATE EXTENSION citext; CREATE TABLE t (id citext PRIMARY KEY, v int)")
    sql = "INSERT INTO t (id, v) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
    write(sink(database, sql), [(chr(97 + n % 5).upper() if n % 2 else chr(97 + n % 5), n) for n in range(100)])
    assert database.execute("SELECT lower(id), v FROM t ORDER BY 1") == [(chr(97 + n), 95 + n) for n in range(5)]


@pytest.mark.parametrize(
    ("stored", "kind", "is_exact"),
    [
        ("text", pa.string(), True),
        ("varchar", pa.string(), True),
        ("varchar(9)", pa.string(), False),
        ('text COLLATE "any_case"', pa.string(), False),
        ("uuid", pa.string(), False),
        ("int8", pa.int32(), True),
        ("numeric", pa.decimal128(38, 18), True),
        ("numeric(20, 5)", pa.decimal128(10, 5), True),
        ("numeric(20, 4)", pa.decimal128(10, 5), False),
        ("timestamp", pa.timestamp("us"), True),
        ("timestamp(3)", pa.timestamp("ms"), True),
        ("timestamp(3)", pa.timestamp("us"), False),
        ("timestamp", pa.timestamp("ns"), False),
        ("timestamptz", pa.timestamp("us"), False),
        ("timestamptz", pa.timestamp("us", "UTC"), True),
        ("date", pa.date32(), True),
        ("time", pa.time32("ms"), True),
        ("time(0)", pa.time32("ms"), False),
        ("float8", pa.float64(), True),
        ("float4", pa.float64(), False),
        ("float4", pa.float32(), True),
        ("bytea", pa.binary(), True),
        ("bool", pa.bool_(), True),
    ],
)
def test_which_types_keep_keys_apart(database: Database, stored: str, kind: pa.DataType, is_exact: bool) -> None:
    if "any_case" in stored:
        database.execute(
            "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    database.execute(f"CREATE TABLE t (id {stored} PRIMARY KEY)")
    with connect(Address(database.jdbc_url, "postgres", None)) as connection:
        assert has_exact_keys(connection, '"t"', [("id", kind)]) is is_exact
