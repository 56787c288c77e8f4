"""Tables that are held as a whole for look-ups: what they answer, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table.connectors.tables import scan_of

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.connectors.collection import ColumnsSource
from penstock.sql.connectors.built_in import built_in
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.connector import ColumnsLookup, HeldTable, ReadingStopped, RowsByKey, read_whole
from penstock.table import EnvironmentSettings, TableEnvironment

NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "ß"]))


def shown(rows: pa.RecordBatch, numbers: pa.Array) -> list[tuple[Any, ...]]:
    return list(zip(numbers.to_pylist(), *(column.to_pylist() for column in rows.columns), strict=True))


@given(st.lists(st.tuples(NUMBERS, TEXTS)), st.lists(st.tuples(NUMBERS, TEXTS)), st.sampled_from([(0,), (1,), (0, 1)]))
def test_rows_by_key_are_those_that_a_join_finds(rows: list[Any], asked: list[Any], key: tuple[int, ...]) -> None:
    kinds = [pa.int64(), pa.string()]
    schema = pa.schema(list(zip(("c0", "c1"), kinds, strict=True)))
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    keys = pa.RecordBatch.from_arrays(
        [pa.array([row[at] for row in asked], kinds[at]) for at in key], list(map(str, key))
    )
    found = RowsByKey([batch] if rows else [], schema, key).find(keys)
    expected = ColumnsLookup(pa.Table.from_batches([batch]), key).lookup(keys)
    assert shown(*found) == shown(*expected)


def test_points_in_time_are_keys_to_the_last_nanosecond() -> None:
    times = pa.array([1, 2, 2], pa.timestamp("ns"))
    batch = pa.RecordBatch.from_arrays([times, pa.array([7, 8, 9])], ["c0", "c1"])
    keys = pa.RecordBatch.from_arrays([pa.array([2, 3], pa.timestamp("ns")), pa.array([8, 8])], ["a", "b"])
    assert len(RowsByKey([batch], batch.schema, (0,)).find(keys.select([0])).rows) == 2
    assert RowsByKey([batch], batch.schema, (0, 1)).find(keys).key_numbers.to_pylist() == [0]


def test_a_reading_ends_when_the_reader_is_closed() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])], ["c0"])
    table = HeldTable(ColumnsSource(batch), batch.schema, (0,))
    table.close()
    with pytest.raises(ReadingStopped):
        table.read()


# --- files ------------------------------------------------------------------------------------------------------------


def files(path: Path, more: str = "", columns: str = "id BIGINT, name STRING", by: str = "") -> str:
    return (
        f"CREATE TABLE names ({columns}) {by} WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'"
        f"{more})"
    )


def joined(ddl: str, parallelism: int = 1, join: str = "LEFT JOIN", select: str = "o.id, n.name") -> list[Any]:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.get_config().set("parallelism.default", str(parallelism))
    tables.execute_sql(ddl)
    tables.execute_sql(
        "CREATE VIEW orders AS SELECT id, PROCTIME() AS p FROM (VALUES (1), (2), (3), (CAST(NULL AS INT))) AS r (id)"
    )
    result = tables.execute_sql(
        f"SELECT {select} FROM orders AS o {join} names FOR SYSTEM_TIME AS OF o.p AS n ON CAST(o.id AS BIGINT) = n.id"
    )
    with result.collect() as rows:
        return sorted(map(tuple, rows), key=repr)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(
    "more", ["", ", 'lookup.cache' = 'full', 'lookup.full-cache.periodic-reload.interval' = '1 h'"]
)
def test_files_are_read_as_a_whole(tmp_path: Path, more: str, parallelism: int) -> None:
    (tmp_path / "one.csv").write_text("1,a\n,x\n2,b\n")
    (tmp_path / "two.csv").write_text("2,c\n9,d\n")
    found = joined(files(tmp_path, more), parallelism)
    assert found == [(1, "a"), (2, "b"), (2, "c"), (3, None), (None, None)]
    assert joined(files(tmp_path, more), parallelism, "JOIN") == found[:3]


def test_partitions_and_metadata_are_columns_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "id=2").mkdir()
    (tmp_path / "id=2" / "one.csv").write_text("b\n")
    ddl = files(
        tmp_path, columns="name STRING, id BIGINT, f STRING METADATA FROM 'file.name'", by="PARTITIONED BY (id)"
    )
    assert joined(ddl, join="JOIN", select="o.id, n.name, n.f") == [(2, "b", "one.csv")]


def test_a_file_that_cannot_be_read_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("one,a\n")
    with pytest.raises(JobExecutionError, match=r"one\.csv, line 1: column 'id': 'one' is no BIGINT"):
        joined(files(tmp_path))


def test_all_tables_that_end_can_be_held() -> None:
    ddl = (
        "CREATE TABLE names (id BIGINT, name STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '2', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '2', 'fields.id.end' = '5', 'fields.name.length' = '3', "
        "'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h')"
    )
    assert joined(ddl, join="JOIN", select="o.id, CHAR_LENGTH(n.name)") == [(2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("ddl", "error", "message"),
    [
        ("'connector' = 'datagen', 'lookup.cache' = 'FULL'", ValidationError, "does not end: only a bounded table"),
        (
            "'connector' = 'filesystem', 'path' = '/x', 'format' = 'csv', 'source.monitor-interval' = '1 s'",
            ValidationError,
            "does not end",
        ),
        (
            "'connector' = 'filesystem', 'path' = '/x', 'format' = 'csv', 'lookup.cache' = 'PARTIAL'",
            UnsupportedError,
            "option 'lookup.cache' .*hold all rows of files",
        ),
        (
            "'connector' = 'datagen', 'number-of-rows' = '1', 'lookup.full-cache.reload-strategy' = 'TIMED'",
            ValidationError,
            "Unsupported options",
        ),
    ],
)
def test_what_cannot_be_held_is_refused(ddl: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        built_in().lookup(scan_of(f"CREATE TABLE t (id BIGINT) WITH ({ddl})"), (0,))


def test_a_table_that_is_held_can_also_be_read(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("1,a\n")
    more = ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"
    reader = built_in().reader(scan_of(files(tmp_path, more), "names"))
    (batch,) = read_whole(reader.source)
    assert batch.to_pydict() == {"c0": [1], "c1": ["a"]}
