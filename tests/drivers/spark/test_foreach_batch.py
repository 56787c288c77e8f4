"""Each epoch as a data frame, in every execution mode."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.types
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from penstock.base.errors import ConfigurationError, JobExecutionError, PenstockError
from penstock.common import Configuration, Row, Types, WatermarkStrategy
from penstock.connectors.split_reader import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.drivers.spark.handle import SparkHandle
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.table.types import Variant

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MODES = pytest.mark.parametrize(
    ("mode", "target"), [("STREAMING", "local"), ("STREAMING", "spark"), ("MICRO_BATCH", "spark"), ("BATCH", "spark")]
)
RECORDS = 600
KIND = Types.ROW_NAMED(["n", "w"], [Types.LONG(), Types.STRING()])


def environment(mode: str, target: str, folder: Path | None, **more: str) -> StreamExecutionEnvironment:
    settings = {"execution.runtime-mode": mode, "restart-strategy.fixed-delay.delay": "10 ms"}
    if folder is not None:
        settings["execution.checkpointing.dir"] = f"{folder}/checkpoints"
    if target == "local":
        settings["execution.target"] = "local"
    settings.update({key.replace("_", "."): value for key, value in more.items()})
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    if mode == "STREAMING":
        env.enable_checkpointing(50)
    return env


def numbers(env: StreamExecutionEnvironment, rate: float | None = 1_500) -> Any:
    source: Any = DataGeneratorSource(lambda n: Row(n, f"w{n % 3}"), RECORDS, rate_per_second=rate)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    return stream.map(lambda row: row, output_type=KIND)


class Epochs:
    """Keeps what each epoch has."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        self.calls: list[int] = []

    def write(self, frame: Any, epoch: int) -> None:
        self.calls.append(epoch)
        self.rows[epoch] = [tuple(row) for row in frame.collect()]

    def check(self) -> None:
        found = [row for rows in self.rows.values() for row in rows]
        assert sorted(found) == [(n, f"w{n % 3}") for n in range(RECORDS)]
        assert sorted(self.rows) == list(range(1, len(self.rows) + 1))


def left(folder: Path) -> list[str]:
    return [path.name for path in (folder / "checkpoints/for-each-batch").rglob("*") if path.name != "_applied"
            and path.is_file()]  # fmt: skip


@MODES
def test_each_row_is_in_one_epoch(spark: SparkHandle, mode: str, target: str, tmp_path: Path) -> None:
    epochs = Epochs()
    env = environment(mode, target, tmp_path)
    numbers(env).for_each_batch(epochs.write)
    env.execute()
    epochs.check()
    assert epochs.calls == sorted(epochs.rows)
    assert left(tmp_path) == []


@pytest.mark.parametrize("target", ["local", "spark"])
def test_a_function_that_fails_gets_the_epoch_again(spark: SparkHandle, target: str, tmp_path: Path) -> None:
    epochs, failures = Epochs(), [2, 2, 3]

    def write(frame: Any, epoch: int) -> None:
        epochs.write(frame, epoch)
        if epoch in failures:
            failures.remove(epoch)
            raise ValueError("the target is busy")

    env = environment("STREAMING", target, tmp_path, **{"restart-strategy_type": "fixed-delay",
                                                        "restart-strategy_fixed-delay_attempts": "9"})  # fmt: skip
    numbers(env, 500).for_each_batch(write)
    env.execute()
    epochs.check()
    assert failures == []
    assert epochs.calls[:6] == [1, 2, 2, 2, 3, 3]


@MODES
def test_the_error_names_the_function_and_the_epoch(spark: SparkHandle, mode: str, target: str, tmp_path: Path) -> None:
    def write(frame: Any, epoch: int) -> None:
        raise ValueError("no such table")

    env = environment(mode, target, tmp_path, **{"restart-strategy_type": "none"})
    numbers(env, None).for_each_batch(write)
    with pytest.raises(PenstockError, match=r"for_each_batch\(\): write\(\) failed for epoch 1: ValueError: no such"):
        env.execute()


def test_columns_come_from_ddl_or_must_be_known(spark: SparkHandle) -> None:
    """Without a checkpoint directory rows are in one of this process."""
    seen: list[Any] = []
    env = environment("STREAMING", "local", None)
    env.from_collection([("tea", 2), ("rum", None)]).for_each_batch(
        lambda frame, epoch: seen.extend(map(tuple, frame.collect())), "drink STRING, cups INT"
    )
    env.execute()
    assert sorted(seen) == [("rum", None), ("tea", 2)]
    with pytest.raises(ConfigurationError, match=r"are unknown: give for_each_batch\(\) a schema"):
        env.from_collection([1]).map(lambda n: n).for_each_batch(print)


@pytest.mark.skipif(not hasattr(pyspark.sql.types, "VariantType"), reason="Spark 3 has no VARIANT")
def test_variants(spark: SparkHandle) -> None:
    seen: list[Any] = []
    env = environment("STREAMING", "local", None)
    rows = [(1, Variant.of({"a": [1]}), [Variant.of("x"), None]), (2, None, None)]
    env.from_collection(rows).for_each_batch(
        lambda frame, epoch: seen.extend(map(tuple, frame.selectExpr("id", "to_json(v)", "size(l)").collect())),
        "id INT, v VARIANT, l ARRAY<VARIANT>",
    )
    env.execute()
    assert sorted(seen) == [(1, '{"a":[1]}', 2), (2, None, None)]


def test_records_that_do_not_fit(spark: SparkHandle) -> None:
    env = environment("STREAMING", "local", None, **{"restart-strategy_type": "none"})
    env.from_collection([("tea", "many")]).for_each_batch(lambda frame, epoch: None, "drink STRING, cups INT")
    with pytest.raises(JobExecutionError, match="a record does not fit the schema: column 'cups'"):
        env.execute()


@MODES
def test_sql_writes_what_spark_writes(spark: SparkHandle, mode: str, target: str, tmp_path: Path) -> None:
    settings = EnvironmentSettings.in_batch_mode() if mode == "BATCH" else EnvironmentSettings.in_streaming_mode()
    tables = TableEnvironment.create(settings)
    config = tables.get_config()
    for key, value in {"execution.checkpointing.dir": f"{tmp_path}/checkpoints", "table.dml-sync": "true",
                       "execution.checkpointing.interval": "100 ms", "parallelism.default": "2"}.items():  # fmt: skip
        config.set(key, value)
    if mode == "MICRO_BATCH":
        config.set("execution.runtime-mode", mode)
    if target == "local":
        config.set("execution.target", target)
    tables.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '300', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '300')"
    )
    tables.execute_sql(
        "CREATE TABLE lines (a BIGINT, b STRING, c DECIMAL(10, 2), d TIMESTAMP_LTZ(3), e ARRAY<INT>, f ROW<g INT>) "
        f"WITH ('connector' = 'spark', 'format' = 'json', 'path' = '{tmp_path}/out', 'option.compression' = 'gzip')"
    )
    tables.execute_sql(
        "INSERT INTO lines SELECT n, CAST(n AS STRING), CAST(n AS DECIMAL(10, 2)), TO_TIMESTAMP_LTZ(n, 3), "
        "ARRAY[1, CAST(n AS INT)], ROW(CAST(n AS INT)) FROM numbers"
    )
    found = spark.session.read.json(f"{tmp_path}/out").collect()
    assert sorted(row.a for row in found) == list(range(1, 301))
    assert all(row.b == str(row.a) and row.c == row.a and row.e == [1, row.a] and row.f.g == row.a for row in found)
    assert list(tmp_path.glob("out/*.json.gz"))


def test_options_of_the_sql_connector(spark: SparkHandle, tmp_path: Path) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")

    def fails(options: str, query: str, message: str) -> None:
        tables.execute_sql(f"CREATE TEMPORARY TABLE t (a BIGINT) WITH ('connector' = 'spark'{options})")
        with pytest.raises(Exception, match=message):
            tables.execute_sql(f"INSERT INTO t {query}").wait()
        tables.execute_sql("DROP TEMPORARY TABLE t")

    fails("", "VALUES (1)", "takes one of the options 'table' and 'path'; or neither")
    fails(", 'path' = 'x', 'table' = 'y'", "VALUES (1)", "takes one of the options 'table' and 'path'")
    fails(", 'path' = 'x', 'save.mode' = 'merge'", "VALUES (1)", "it is append, overwrite, ignore or error")
    for kind in ("TIME", "TIMESTAMP(9)", "ARRAY<VARIANT>", "INTERVAL DAY TO SECOND"):
        tables.execute_sql(f"CREATE TEMPORARY TABLE u (a {kind}) WITH ('connector' = 'spark', 'path' = 'x')")
        with pytest.raises(ValidationError, match="which a frame of Spark cannot have: cast it"):
            tables.execute_sql(f"INSERT INTO u SELECT CAST(NULL AS {kind})")
        tables.execute_sql("DROP TEMPORARY TABLE u")
    fails(
        ", 'format' = 'none', 'path' = 'x'",
        "VALUES (1)",
        "default_database.t: epoch 1 cannot be written: .*source: none",
    )
    changes = "SELECT COUNT(*) FROM (VALUES (1), (2)) AS v(x)"
    fails(", 'path' = 'x'", changes, "doesn't support consuming update changes")


# --- formats of Spark as tables ---------------------------------------------------------------------------------------


def streaming_tables(folder: Path, target: str = "local") -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config()
    settings = {
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        "execution.checkpointing.interval": "100 ms",
        "restart-strategy.type": "none",
        "table.dml-sync": "true",
    }
    for key, value in settings.items():
        config.set(key, value)
    if target == "local":
        config.set("execution.target", target)
    return tables


@pytest.mark.parametrize(("mode", "target"), [("STREAMING", "local"), ("STREAMING", "spark"), ("MICRO_BATCH", "spark")])
def test_streams_read_what_spark_reads(spark: SparkHandle, mode: str, target: str, tmp_path: Path) -> None:
    """A table of Spark as a bounded source of a stream, with types that it widens, and timestamps that it cuts."""
    spark.session.sql(
        "SELECT id AS n, CAST(id AS DECIMAL(5, 1)) AS d, named_struct('g', array(id)) AS s, map('k', id) AS m, "
        "TIMESTAMP_NTZ'2020-01-01 00:00:01.123456' AS t, DATE'1582-10-04' AS born FROM range(50)"
    ).createOrReplaceTempView("read_by_streams")
    tables = streaming_tables(tmp_path, target)
    tables.get_config().set("execution.runtime-mode", mode)
    tables.execute_sql(
        "CREATE TABLE t (n BIGINT, d DECIMAL(10, 2), s ROW<g ARRAY<BIGINT>>, m MAP<STRING, BIGINT>, t TIMESTAMP(3), "
        "born DATE) WITH ('connector' = 'spark', 'table' = 'read_by_streams')"
    )
    query = "SELECT n, CAST(d AS STRING), s.g[1], m['k'], CAST(t AS STRING), CAST(born AS STRING) FROM t WHERE n > 9"
    with tables.execute_sql(query).collect() as rows:
        found = sorted(tuple(row) for row in rows)
    assert found == [(n, f"{n}.00", n, n, "2020-01-01 00:00:01.123", "1582-10-04") for n in range(10, 50)]
    tables.execute_sql("CREATE TABLE wrong (q STRING) WITH ('connector' = 'spark', 'table' = 'read_by_streams')")
    with pytest.raises(PenstockError, match="has 1 columns, and the Spark data frame that it reads has 6: n, d, s"):
        list(tables.execute_sql("SELECT * FROM wrong").collect())
    spark.session.range(1).createOrReplaceTempView("of_one")
    tables.execute_sql("CREATE TABLE text (n STRING) WITH ('connector' = 'spark', 'table' = 'of_one')")
    with pytest.raises(PenstockError, match=r"column 'n' of table .* is declared as STRING, and Spark has BIGINT"):
        list(tables.execute_sql("SELECT * FROM text").collect())


def test_a_map_is_written_as_spark_writes_it(spark: SparkHandle, tmp_path: Path) -> None:
    tables = streaming_tables(tmp_path)
    tables.execute_sql(
        "CREATE TABLE t (m MAP<STRING, INT>, l ARRAY<MAP<STRING, INT>>) WITH ('connector' = 'spark', "
        f"'format' = 'json', 'path' = '{tmp_path}/out')"
    )
    tables.execute_sql("INSERT INTO t VALUES (MAP['k', 1], ARRAY[MAP['a', 2]])")
    (file,) = tmp_path.glob("out/*.json")
    assert file.read_text() == '{"m":{"k":1},"l":[{"a":2}]}\n'


def test_xml_goes_out_and_a_bad_field_fails(spark: SparkHandle, tmp_path: Path) -> None:
    """Spark's reader would lose the good fields after a bad one."""
    tables = streaming_tables(tmp_path)
    options = f"'connector' = 'spark', 'format' = 'xml', 'path' = '{tmp_path}/out', 'option.rowTag' = 'line'"
    tables.execute_sql(f"CREATE TABLE t (n INT, w STRING) WITH ({options})")
    tables.execute_sql("INSERT INTO t VALUES (1, 'a < \"b\"'), (2, NULL)")
    with tables.execute_sql("SELECT * FROM t").collect() as rows:
        assert sorted(tuple(row) for row in rows) == [(1, 'a < "b"'), (2, None)]
    (tmp_path / "out" / "bad.xml").write_text("<a><line><n>three</n><w>good</w></line></a>")
    with pytest.raises(Exception, match="Malformed records are detected"):
        tables.execute_sql("SELECT * FROM t")
    tables.execute_sql(f"CREATE TABLE u (n INT, w STRING) WITH ({options}, 'option.mode' = 'PERMISSIVE')")
    with tables.execute_sql("SELECT * FROM u").collect() as rows:
        assert (None, None) in [tuple(row) for row in rows]


class Halves(DataSource):
    """A data source in Python, such as those of third parties."""

    @classmethod
    def name(cls) -> str:
        return "halves"

    def schema(self) -> str:
        return "n INT, d DECIMAL(10, 2)"

    def reader(self, schema: Any) -> Any:
        return _HalvesReader(self.options["n"])


class _HalvesReader(DataSourceReader):
    def __init__(self, n: str) -> None:
        self._n = n

    def read(self, partition: Any) -> Any:
        n = pa.array([float(self._n)]) if "." in self._n else pa.array([int(self._n)], pa.int32())
        yield pa.RecordBatch.from_pydict({"n": n, "d": pa.array([Decimal("1.25")], pa.decimal128(10, 2))})


def test_arrow_batches_of_a_data_source_in_python_are_checked(spark: SparkHandle, tmp_path: Path) -> None:
    """From tuples Spark would make 1 of 1.7."""
    spark.session.dataSource.register(Halves)
    tables = streaming_tables(tmp_path)
    for n in ("1", "1.7"):
        tables.execute_sql(
            f"CREATE TABLE t{n[-1]} (n INT, d DECIMAL(10, 2)) WITH ('connector' = 'spark', 'format' = 'halves', "
            f"'option.n' = '{n}')"
        )
    with tables.execute_sql("SELECT * FROM t1").collect() as rows:
        assert [tuple(row) for row in rows] == [(1, Decimal("1.25"))]
    with pytest.raises(Exception, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
        tables.execute_sql("SELECT * FROM t7")
