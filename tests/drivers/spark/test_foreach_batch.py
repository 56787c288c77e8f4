"""Each epoch as a data frame, in every execution mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark.sql.types
import pytest

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
        with pytest.raises(ValidationError, match="which the frame of an epoch cannot have: cast it"):
            tables.execute_sql(f"INSERT INTO u SELECT CAST(NULL AS {kind})")
        tables.execute_sql("DROP TEMPORARY TABLE u")
    fails(
        ", 'format' = 'none', 'path' = 'x'",
        "VALUES (1)",
        "default_database.t: epoch 1 cannot be written: .*source: none",
    )
    changes = "SELECT COUNT(*) FROM (VALUES (1), (2)) AS v(x)"
    fails(", 'path' = 'x'", changes, "doesn't support consuming update changes")
