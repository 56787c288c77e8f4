"""A4: programs of tables in BATCH: results, data frames, INSERTs, plans, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.table.batch.batches import SETTINGS, spark_of_tests
from tests.table.batch.batches import run_batch as run_in_batch
from tests.table.running import Rows

from penstock.base.errors import ConfigurationError, UnsupportedError
from penstock.common import Configuration
from penstock.connectors.collection import ColumnsSource
from penstock.runtime.connector import Boundedness
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import BigIntType
from penstock.sql.tables.tables import TableReader
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment

pytestmark = pytest.mark.spark


@pytest.fixture
def tables() -> TableEnvironment:
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()
    found = TableEnvironment.create(settings)
    schema = DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT()),
            DataTypes.FIELD("who", DataTypes.STRING()),
            DataTypes.FIELD("clock", DataTypes.TIME()),
        ]
    )
    found.create_temporary_view("orders", found.from_elements([(1, "Anna", None), (2, "Ben", None)], schema))
    return found


def read_rows(tables: TableEnvironment, sql: str) -> list[tuple[object, ...]]:
    with tables.execute_sql(sql).collect() as rows:
        return [tuple(row) for row in rows]


def test_results_are_inserts_only(tables: TableEnvironment) -> None:
    with tables.execute_sql("SELECT COUNT(*), MAX(who) FROM orders").collect() as rows:
        assert [(row.get_row_kind().short_string, *row) for row in rows] == [("+I", 2, "Ben")]


def test_the_mode_is_read_when_a_query_starts(tables: TableEnvironment) -> None:
    for key, value in SETTINGS.items():
        tables.execute_sql(f"SET '{key}' = '{value}'")
    tables.execute_sql("SET 'execution.runtime-mode' = 'streaming'")
    tables.execute_sql("SET 'execution.target' = 'local'")
    with tables.execute_sql("SELECT COUNT(*) FROM orders").collect() as rows:
        assert len(list(rows)) == 3, "a stream shows each change"
    with pytest.raises(ConfigurationError, match=r"to_dataframe\(\) needs batch execution"):
        tables.from_path("orders").to_dataframe()
    tables.execute_sql("SET 'execution.runtime-mode' = 'batch'")
    assert read_rows(tables, "SELECT COUNT(*) FROM orders") == [(2,)]


@pytest.mark.slow
def test_a_query_as_data_frames(tables: TableEnvironment) -> None:
    found = tables.sql_query("SELECT who AS `the name`, ROW(id, who) AS r FROM orders ORDER BY id")
    assert found.to_pandas()["the name"].tolist() == ["Anna", "Ben"]
    frame = found.to_dataframe()
    assert frame.dtypes == [("the name", "string"), ("r", "struct<EXPR$0:bigint,EXPR$1:string>")]
    assert [row["the name"] for row in frame.collect()] == ["Anna", "Ben"]
    with pytest.raises(UnsupportedError, match=r"column 'clock' is TIME\(0\), which Spark does not have"):
        tables.from_path("orders").to_dataframe()


def test_inserts_write_each_row_once(tables: TableEnvironment, capfd: pytest.CaptureFixture[str]) -> None:
    tables.execute_sql("CREATE TABLE sunk (id BIGINT, who STRING) WITH ('connector' = 'print')")
    both = tables.create_statement_set()
    both.add_insert_sql("INSERT INTO sunk SELECT id, who FROM orders")
    both.add_insert_sql("INSERT INTO sunk SELECT SUM(id), MIN(who) FROM orders")
    both.execute().wait()
    shown = [line for line in capfd.readouterr().out.splitlines() if "I[" in line]
    assert sorted(line[line.index("+I") :] for line in shown) == ["+I[1, Anna]", "+I[2, Ben]", "+I[3, Anna]"]


def test_a_plan_shows_what_spark_does(tables: TableEnvironment) -> None:
    plan = tables.explain_sql("SELECT who, COUNT(*) FROM orders GROUP BY who")
    assert "Aggregate(groupBy=[who], select=[COUNT(*) AS $agg0])" in plan
    assert "== Physical Plan ==" in plan
    assert "HashAggregate" in plan


def test_spark_reads_its_own_tables_and_files(tables: TableEnvironment, tmp_path: Path) -> None:
    session = spark_of_tests().session
    session.range(3).selectExpr("id", "CAST(id AS DECIMAL(5, 1)) AS d").write.parquet(str(tmp_path / "files"))
    session.range(2).createOrReplaceTempView("of_spark")
    tables.execute_sql(
        f"CREATE TABLE files (n BIGINT, d DECIMAL(10, 2)) WITH ('connector' = 'spark', 'path' = '{tmp_path}/files')"
    )
    tables.execute_sql("CREATE TABLE of_spark (n BIGINT) WITH ('connector' = 'spark', 'table' = 'of_spark')")
    assert read_rows(tables, "SELECT SUM(f.n), MAX(d) FROM files f JOIN of_spark o ON f.n = o.n")[0][0] == 1
    tables.execute_sql("CREATE TABLE wrong (n STRING) WITH ('connector' = 'spark', 'table' = 'of_spark')")
    with pytest.raises(ValidationError, match=r"column 'n' of table .* is declared as STRING, and Spark has BIGINT"):
        read_rows(tables, "SELECT * FROM wrong")
    stamp = "TIMESTAMP_NTZ'2020-01-01 00:00:01.123456'"
    session.sql(f"SELECT {stamp} AS s, CAST(1 AS INT) AS i").createOrReplaceTempView("stamps")
    tables.execute_sql("CREATE TABLE s3 (s TIMESTAMP(3), i BIGINT) WITH ('connector' = 'spark', 'table' = 'stamps')")
    assert read_rows(tables, "SELECT CAST(s AS STRING), i FROM s3 WHERE s = TIMESTAMP '2020-01-01 00:00:01.123'") == [
        ("2020-01-01 00:00:01.123", 1)
    ]
    tables.execute_sql("CREATE TABLE ti (s TIMESTAMP(6), i TIME) WITH ('connector' = 'spark', 'table' = 'stamps')")
    with pytest.raises(ValidationError, match=r"column 'i' of table .* is declared as TIME\(0\), and Spark has INT"):
        read_rows(tables, "SELECT * FROM ti")
    tables.execute_sql("CREATE TABLE neither (n BIGINT) WITH ('connector' = 'spark')")
    with pytest.raises(ValidationError, match="takes one of the options 'table' and 'path'"):
        read_rows(tables, "SELECT * FROM neither")


def test_a_value_that_a_function_cannot_take(tables: TableEnvironment) -> None:
    with pytest.raises(TableRuntimeError, match="Division by zero"):
        read_rows(tables, "SELECT id / (id - 1) FROM orders")
    with pytest.raises(TableRuntimeError, match="cannot be read as a whole number"):
        read_rows(tables, "SELECT CAST(who AS INT) FROM orders")
    with pytest.raises(TableRuntimeError, match="more than one element"):
        read_rows(tables, "SELECT (SELECT id FROM orders)")


class Endless(Rows):
    """A table that does not end."""

    def reader(self) -> TableReader:
        reader = super().reader()
        assert isinstance(reader.source, ColumnsSource)
        return TableReader(_Endless(reader.source._columns))


class _Endless(ColumnsSource):
    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED


def test_tables_that_do_not_end_or_change_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"unbounded table 'default_catalog\.default_database\.t' in batch mode"):
        run_in_batch("SELECT * FROM t", t=Endless({"a": BigIntType()}, [(1,)]))
    with pytest.raises(ValidationError, match=r"the source for table 'default_catalog\.default_database\.t' produces"):
        run_in_batch("SELECT * FROM t", t=Rows({"a": BigIntType()}, [("+I", (1,)), ("-D", (1,))]))


def test_a_condition_over_both_sides_of_an_outer_join() -> None:
    rows = Rows({"a": BigIntType()}, [(1,)])
    with pytest.raises(UnsupportedError, match="a LEFT join whose condition compares both sides by functions"):
        run_in_batch("SELECT * FROM l LEFT JOIN r ON BIN(l.a + r.a) = '10'", l=rows, r=rows)
