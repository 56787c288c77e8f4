"""In batch, too, files are read in part: columns, row groups and partitions that a query asks for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.planned import manager_of, plan_query

from penstock.sql.analyzer.calls import Calls
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.filesystem.connector import FilesScan
from penstock.sql.functions.definition import Session
from penstock.sql.spark.executor import BatchExecutor
from penstock.sql.spark.planning import Reads
from penstock.sql.tables.tables import PushDown
from penstock.table import EnvironmentSettings, TableEnvironment


def ddl(path: Path) -> str:
    return (
        "CREATE TABLE t (id BIGINT, name STRING, ts TIMESTAMP(3), p INT, WATERMARK FOR ts AS ts) PARTITIONED BY (p) "
        f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for p in (1, 2):
        (tmp_path / f"p={p}").mkdir()
        columns = {
            "id": pa.array(range(p * 10, p * 10 + 8)),
            "name": [f"n{number}" for number in range(8)],
            "ts": pa.array(range(8), pa.timestamp("ms")),
        }
        pq.write_table(pa.table(columns), tmp_path / f"p={p}" / "a.parquet", row_group_size=4)
    return tmp_path


def test_a_query_reads_the_union_of_columns_and_what_all_ask_for(folder: Path) -> None:
    manager = manager_of(ddl(folder))
    plans = [
        plan_query("SELECT COUNT(*) FROM t WHERE p = 1 AND id > 3", manager),
        plan_query("SELECT name FROM t WHERE p = 1", manager),
    ]
    scan = plan_query("SELECT * FROM t", manager)
    while scan.inputs():
        (scan,) = scan.inputs()
    found = Reads(plans, Calls(Session()), PushDown(built_in().scan)).part(scan)  # type: ignore[arg-type]
    assert found.columns == (0, 1, 3)
    assert found.scan.pushed == ("filter=[(p = 1)]",)
    assert isinstance(found.scan.source, FilesScan)


@pytest.mark.spark
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name, id FROM t WHERE p = 2 AND id >= 24",
        "SELECT COUNT(*) FROM t WHERE p = 1",
        "SELECT COUNT(*) FROM t",
        "SELECT a.name, b.id FROM t a JOIN t b ON a.id + 10 = b.id WHERE a.p = 1 AND b.id < 22",
        "SELECT UPPER(name) FROM t WHERE CHAR_LENGTH(name) = 2 AND id IN (11, 25)",
        "SELECT * FROM t WHERE id = 12",
    ],
)
def test_results_are_the_same_as_without(folder: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[str]:
        tables = TableEnvironment(EnvironmentSettings.in_batch_mode(), BatchExecutor(built_in()))
        tables.execute_sql(ddl(folder))
        with tables.execute_sql(sql).collect() as found:
            return sorted(map(repr, found))

    found = rows()
    monkeypatch.setattr("penstock.sql.spark.executor.PushDown", lambda scan: PushDown())
    assert found == rows() != []


@pytest.mark.spark
def test_options_that_belong_to_no_connector_are_taken(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A statement that runs as a stream runs as a batch, too: they say how streams go on, and nothing to a batch."""
    tables = TableEnvironment(EnvironmentSettings.in_batch_mode(), BatchExecutor(built_in()))
    tables.execute_sql(
        ddl(folder).removesuffix(")") + ", 'scan.parallelism' = '2', 'scan.watermark.emit.strategy' = 'on-event', "
        "'scan.watermark.idle-timeout' = '1 s')"
    )
    tables.execute_sql(
        "CREATE TABLE s (id BIGINT) WITH ('connector' = 'filesystem', 'format' = 'json', 'sink.parallelism' = '1', "
        f"'path' = '{tmp_path_factory.mktemp('out')}')"
    )
    tables.execute_sql("INSERT INTO s SELECT id FROM t WHERE p = 2 AND id < 22").wait()
    with tables.execute_sql("SELECT id FROM s").collect() as found:
        assert sorted(row[0] for row in found) == [20, 21]
