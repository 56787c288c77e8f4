"""The connector `iceberg` of tables, in streams, micro-batches and batches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.connectors.iceberg.lake import Lake

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.slow

COLUMNS = (
    "id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, v VARCHAR(20), y BYTES, "
    "da DATE, tm TIME(0), ts TIMESTAMP(3), lt TIMESTAMP_LTZ(6), ar ARRAY<INT>, m MAP<STRING, INT>, "
    "r ROW<x INT, y STRING>"
)
ROWS = (
    "(1, TRUE, CAST(2 AS TINYINT), CAST(1.5 AS FLOAT), 2.5E0, 3.25, 'x', 'v', X'00FF', DATE '2020-02-29', "
    "TIME '12:30:01', TIMESTAMP '2020-01-01 00:00:00.001', TO_TIMESTAMP_LTZ(1, 3), ARRAY[1, CAST(NULL AS INT)], "
    "MAP['k', 1], ROW(7, 'r'))"
)


def environment(mode: str = "STREAMING", **options: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local").set("parallelism.default", "2")
    tables.get_config().set("execution.runtime-mode", mode)
    for key, value in options.items():
        tables.get_config().set(key.replace("_", "."), value)
    return tables


def collected(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    with tables.execute_sql(query).collect() as rows:
        return sorted(map(tuple, rows), key=repr)


def nulls(columns: str) -> str:
    kinds = [column.split(" ", 1)[1] for column in columns.replace(", 5)", ";5)").replace(", I", ";I").split(", ")]
    return ", ".join(f"CAST(NULL AS {kind.replace(';', ', ')})" for kind in kinds)


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_all_types_come_back(lake: Lake, mode: str) -> None:
    """The table is made by the first INSERT, and partitioned by transforms."""
    tables = environment(mode)
    partitioning = lake.options(**{"sink.partitioning": "day(ts), bucket(4, id)"})
    tables.execute_sql(f"CREATE TABLE t ({COLUMNS}) WITH ({partitioning})")
    tables.execute_sql(f"INSERT INTO t VALUES {ROWS}").wait()
    found = collected(tables, "SELECT * FROM t")
    assert found == collected(tables, f"SELECT * FROM (VALUES {ROWS}) AS v")
    assert len(lake.table("t").spec().fields) == 2


def test_null_in_every_column(lake: Lake) -> None:
    tables = environment()
    columns = COLUMNS.split(", r ROW")[0]
    tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ({lake.options()})")
    tables.execute_sql(f"INSERT INTO t SELECT {nulls(columns)}").wait()
    assert collected(tables, "SELECT * FROM t") == [(None,) * 15]


@pytest.mark.parametrize("mode", ["STREAMING", "MICRO_BATCH"])
def test_changes_are_written_by_the_primary_key(lake: Lake, mode: str) -> None:
    """G9: a snapshot a checkpoint or epoch; in the end each key has its last row."""
    options = {"execution_checkpointing_interval": "20 ms", "execution_micro-batch_max-records": "700"}
    tables = environment(mode, **options)
    tables.execute_sql(f"CREATE TABLE n (id BIGINT) WITH ({lake.options()})")
    numbers = ", ".join(f"({number})" for number in range(500))
    for _ in range(6):
        tables.execute_sql(f"INSERT INTO n VALUES {numbers}").wait()
    tables.execute_sql(
        f"CREATE TABLE t (k BIGINT, n BIGINT NOT NULL, PRIMARY KEY (k) NOT ENFORCED) WITH ({lake.options()})"
    )
    tables.execute_sql("INSERT INTO t SELECT MOD(id, 5), COUNT(*) FROM n GROUP BY MOD(id, 5)").wait()
    assert lake.rows("t") == [(key, 600) for key in range(5)]
    assert collected(tables, "SELECT * FROM t WHERE k = 3") == [(3, 600)]
    assert [field.name for field in lake.table("t").schema().fields if field.required] == ["k", "n"]


def test_rows_that_go_and_keys_that_change(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({lake.options()})")
    tables.execute_sql("INSERT INTO t VALUES (1, 1), (2, 2) ON CONFLICT DO DEDUPLICATE").wait()
    tables.execute_sql(
        "INSERT INTO t SELECT c, k FROM (SELECT k, COUNT(*) AS c FROM (VALUES (5), (6), (6), (7), (7)) AS v(k) "
        "GROUP BY k) WHERE c < 2 ON CONFLICT DO DEDUPLICATE"
    ).wait()
    assert lake.rows("t") == [(1, 5), (2, 2)]


def test_a_key_that_only_describes(lake: Lake) -> None:
    tables = environment()
    options = lake.options(**{"write.upsert.enabled": "false"})
    tables.execute_sql(f"CREATE TABLE t (k BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options})")
    for _ in range(2):
        tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    assert lake.rows("t") == [(1,), (1,)]
    with pytest.raises(ValidationError, match="doesn't support consuming update"):
        tables.execute_sql("INSERT INTO t SELECT COUNT(*) FROM t GROUP BY k")


def test_only_what_a_query_needs_is_read(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(
        f"CREATE TABLE t (id BIGINT, s STRING, d DATE, i INT) PARTITIONED BY (s) WITH ({lake.options()})"
    )
    tables.execute_sql(
        "INSERT INTO t VALUES (1, 'a', DATE '2020-01-01', 1), (2, 'b', DATE '2020-01-02', CAST(NULL AS INT)), "
        "(3, 'b', DATE '2020-01-03', 3), (4, 'c', CAST(NULL AS DATE), 4)"
    ).wait()
    query = "SELECT id FROM t WHERE s = 'b' AND d >= DATE '2020-01-02' AND (id IN (2, 9) OR i IS NOT NULL) AND id < 9"
    plan = tables.explain_sql(query)
    assert "filter=[(s = 'b') AND" in plan
    assert "fields=[id, s, d, i]" in plan
    assert collected(tables, query) == [(2,), (3,)]
    assert collected(tables, "SELECT id FROM t WHERE 3 <= id AND d IS NULL") == [(4,)]
    assert collected(tables, "SELECT id FROM t WHERE s <> 'b' AND NOT id = 1") == [(4,)]
    assert len(collected(tables, "SELECT id FROM t LIMIT 2")) == 2
    assert (4,) in collected(tables, "SELECT COUNT(*) FROM t")


def test_a_table_is_followed(lake: Lake) -> None:
    """G8: what is there, and what another INSERT adds while the query runs."""
    tables = environment(execution_checkpointing_interval="50 ms")
    hints = lake.options(streaming="true", monitor_interval="10 ms", starting_strategy="TABLE_SCAN_THEN_INCREMENTAL")
    tables.execute_sql(f"CREATE TABLE t (id BIGINT) WITH ({lake.options()})")
    tables.execute_sql(f"CREATE TABLE f (id BIGINT) WITH ({hints}, 'catalog-table' = 't')")
    tables.execute_sql("INSERT INTO t VALUES (1), (2)").wait()
    with tables.execute_sql("SELECT id FROM f").collect() as rows:
        found = {next(rows)[0], next(rows)[0]}
        tables.execute_sql("INSERT INTO t VALUES (3)").wait()
        assert next(rows)[0] == 3
    assert found == {1, 2}


def test_older_snapshots_and_branches(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (id BIGINT) WITH ({lake.options()})")
    tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    (first,) = lake.table("t").snapshots()
    tables.execute_sql("INSERT INTO t VALUES (2)").wait()
    tables.execute_sql("INSERT INTO t /*+ OPTIONS('branch' = 'side') */ VALUES (3)").wait()
    for hint, expected in (
        (f"'snapshot-id' = '{first.snapshot_id}'", [(1,)]),
        (f"'as-of-timestamp' = '{first.timestamp_ms}'", [(1,)]),
        ("'branch' = 'side'", [(3,)]),
        ("'branch' = 'main'", [(1,), (2,)]),
    ):
        assert collected(tables, f"SELECT * FROM t /*+ OPTIONS({hint}) */") == expected


def test_columns_that_the_table_does_not_have(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (id BIGINT) WITH ({lake.options()})")
    tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    tables.execute_sql(f"CREATE TABLE w (id BIGINT, more STRING) WITH ({lake.options()}, 'catalog-table' = 't')")
    with pytest.raises(Exception, match="has no column 'more'"):
        tables.execute_sql("INSERT INTO w VALUES (2, 'b')").wait()
    tables.execute_sql("INSERT INTO w /*+ OPTIONS('sink.schema-evolution' = 'true') */ VALUES (2, 'b')").wait()
    assert collected(tables, "SELECT * FROM w") == [(1, None), (2, "b")]


@pytest.mark.parametrize(
    ("columns", "more", "says"),
    [
        ("id BIGINT", ", 'starting-strategy' = 'SOMEWHERE'", "it is one of TABLE_SCAN_THEN_INCREMENTAL"),
        ("id BIGINT", ", 'tag' = 'a', 'branch' = 'b'", "branch and tag cannot be set together"),
        ("id BIGINT", ", 'unknown' = '1'", "Unsupported options found for 'iceberg'"),
    ],
)
def test_options_that_do_not_fit(lake: Lake, columns: str, more: str, says: str) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ({lake.options()}{more})")
    with pytest.raises((ValidationError, UnsupportedError), match=says):
        tables.execute_sql("SELECT * FROM t")


def test_options_that_are_not_built(lake: Lake) -> None:
    tables = environment()
    tables.execute_sql(f"CREATE TABLE t (id BIGINT) WITH ({lake.options()}, 'write.distribution-mode' = 'hash')")
    with pytest.raises(UnsupportedError, match="rows are not sent to writers by their partition"):
        tables.execute_sql("INSERT INTO t VALUES (1)")


@pytest.mark.spark
def test_batches_on_spark_replace_and_add(lake: Lake) -> None:
    """G9: one snapshot for the whole batch; INSERT OVERWRITE replaces the partitions that it writes."""
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    tables.get_config().set("spark.master", "local[2]").set("parallelism.default", "2")
    tables.execute_sql(f"CREATE TABLE t (id BIGINT, s STRING) PARTITIONED BY (s) WITH ({lake.options()})")
    tables.execute_sql("INSERT INTO t SELECT id, IF(id < 2, 'a', 'b') FROM (VALUES (1), (2), (3)) AS v(id)").wait()
    assert lake.rows("t") == [(1, "a"), (2, "b"), (3, "b")]
    tables.execute_sql("INSERT OVERWRITE t VALUES (9, 'b')").wait()
    assert collected(tables, "SELECT * FROM t WHERE s = 'b'") == [(9, "b")]
    assert len(lake.table("t").snapshots()) == 2
