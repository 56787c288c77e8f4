"""Spark data frames in and out of programs (I2)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import add_counts
from tests.spec.batch_programs import CountOfKey, failing, negative, total_of

from penstock.base.errors import ConfigurationError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Configuration, Row, Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.drivers.spark.session import hand_back, obtain_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
SALES = [("tea", 3, 10), ("rye", 5, 20), ("tea", 4, 30), ("oat", 1, 40), ("rye", 2, 50), ("tea", 1, 60)]
DDL = "name STRING, amount BIGINT, at BIGINT"


def make(mode: RuntimeExecutionMode, parallelism: int = 2, **options: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({key.replace("_", "."): value for key, value in options.items()})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).set_runtime_mode(mode)


@pytest.fixture
def session() -> Iterator[Any]:
    spark = obtain_spark({}, 4)
    yield spark.session
    hand_back(spark, 4)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results)


@pytest.mark.parametrize("target", ["spark", "local"])
@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_rows_have_the_names_of_the_columns(session: Any, mode: RuntimeExecutionMode, target: str) -> None:
    """I1, I2: in every mode and driver."""
    frame = session.createDataFrame(SALES, DDL).repartition(3)
    stream = make(mode, execution_target=target).from_dataframe(frame)
    assert collect(stream.map(lambda row: (row.name, row["amount"], row[2], str(row)))) == sorted(
        (*sale, f"+I[{sale[0]}, {sale[1]}, {sale[2]}]") for sale in SALES
    )


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_a_type_says_what_the_records_are(session: Any, mode: RuntimeExecutionMode, parallelism: int) -> None:
    """I2: tuples, rows of other names, or values."""
    frame = session.createDataFrame(SALES, DDL)
    types = [Types.STRING(), Types.LONG(), Types.LONG()]
    env = make(mode, parallelism)
    assert collect(env.from_dataframe(frame, Types.TUPLE(types))) == sorted(SALES)
    renamed = env.from_dataframe(frame, Types.ROW_NAMED(["who", "sold", "when"], types))
    assert collect(renamed.map(lambda row: row.as_dict()["sold"])) == sorted(sale[1] for sale in SALES)
    assert collect(env.from_dataframe(frame.select("amount"), Types.LONG())) == [1, 1, 2, 3, 4, 5]


def test_a_type_that_does_not_fit_is_refused(session: Any) -> None:
    """I2: with the columns and the type."""
    frame = session.createDataFrame(SALES, DDL)
    with pytest.raises(ConfigurationError, match=r"3 columns \(name, amount, at\), but .* has 1 fields"):
        make(BATCH).from_dataframe(frame, Types.TUPLE([Types.STRING()]))
    with pytest.raises(ConfigurationError, match="rows or tuples, not String"):
        make(BATCH).from_dataframe(frame, Types.STRING())


def test_fewer_partitions_than_subtasks_and_no_rows_at_all(session: Any) -> None:
    """I2: a subtask without a partition has no records; the tasks behind it run all the same."""
    env = make(BATCH, 4)
    one = session.createDataFrame(SALES, DDL).coalesce(1)
    stream = env.from_dataframe(one, Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]))
    keyed = stream.key_by(lambda sale: sale[0]).map(lambda sale: sale[:2]).rebalance().map(lambda pair: pair)
    assert collect(keyed) == sorted(sale[:2] for sale in SALES)
    empty = session.createDataFrame([], DDL)
    assert collect(make(BATCH, 4).from_dataframe(empty).key_by(lambda row: row.name).map(str)) == []
    assert make(BATCH, 4).from_dataframe(empty).key_by(lambda row: row.name).to_dataframe(DDL).collect() == []


VALUES = [
    (True, 1, 2.5, "text", b"bytes", Decimal("1.50"), datetime.date(2020, 1, 2)),
    (None, None, None, None, None, None, None),
]
TYPES = "a BOOLEAN, b INT, c DOUBLE, d STRING, e BINARY, f DECIMAL(10, 2), g DATE"
MOMENT = datetime.datetime(2020, 1, 2, 3, 4, 5, 678901)


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_values_keep_their_types_both_ways(session: Any, mode: RuntimeExecutionMode) -> None:
    """I2: nulls too; a timestamp is a moment in UTC, one without a zone has none; structs are rows."""
    plain = session.createDataFrame(VALUES, TYPES)
    stream = make(mode).from_dataframe(plain, Types.TUPLE([Types.STRING()] * 7))
    assert sorted(stream.execute_and_collect(limit=9), key=str) == sorted(VALUES, key=str)
    nested = session.sql(
        "SELECT timestamp'2020-01-02 03:04:05.678901 UTC' AS a, timestamp_ntz'2020-01-02 03:04:05.678901' AS b, "
        "array(1, null) AS c, map('x', 1) AS d, named_struct('e', 1, 'f', array(named_struct('g', 'h'))) AS s"
    )
    env = make(mode)
    (row,) = env.from_dataframe(nested).execute_and_collect(limit=1)
    assert list(row) == [
        MOMENT.replace(tzinfo=datetime.UTC),
        MOMENT,
        [1, None],
        {"x": 1},
        Row(e=1, f=[Row(g="h")]),
    ]
    if mode is BATCH:
        back = make(BATCH).from_dataframe(nested).map(lambda row: row).to_dataframe(nested.schema)
        assert back.schema == nested.schema
        assert back.collect() == nested.collect()


def test_a_stream_becomes_a_frame_and_a_stream_again(session: Any) -> None:
    """I2: at any point of a pipeline, lazily; Spark's own operations before, between and behind."""
    frame = session.createDataFrame([(*sale, 1) for sale in SALES], f"{DDL}, more INT").select("name", "amount", "at")
    env = make(BATCH)
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row.at)
    stream = env.from_dataframe(frame, watermark_strategy=strategy)
    counted = stream.key_by(lambda row: row.name).process(CountOfKey())
    between = counted.to_dataframe("name STRING, n INT, first BIGINT").where("n > 1")
    assert sorted(map(tuple, between.collect())) == [("rye", 2, 20), ("tea", 3, 10)]
    again = env.from_dataframe(between).map(lambda row: (row.name, row.n * 10))
    assert sorted(map(tuple, again.to_dataframe("name STRING, n INT").collect())) == [("rye", 20), ("tea", 30)]
    sums = stream.map(lambda row: (row.name, row.amount)).key_by(lambda pair: pair[0]).reduce(add_counts)
    assert collect(sums) == [("oat", 1), ("rye", 7), ("tea", 8)]


def test_the_schema_comes_from_what_is_known(session: Any) -> None:
    """I2: that of the frame for its own records, else the output type of the operator before."""
    frame = session.createDataFrame(SALES, DDL)
    env = make(BATCH)
    stream = env.from_dataframe(frame)
    kept = stream.filter(lambda row: row.amount > 3).to_dataframe()
    assert kept.schema == frame.schema
    assert sorted(map(tuple, kept.collect())) == [("rye", 5, 20), ("tea", 4, 30)]
    typed = stream.map(total_of, Types.ROW_NAMED(["name", "total"], [Types.STRING(), Types.DOUBLE()])).to_dataframe()
    assert typed.schema.simpleString() == "struct<name:string,total:double>"
    assert ("tea", 30.0) in {tuple(row) for row in typed.collect()}
    assert stream.map(lambda row: row.amount, Types.LONG()).to_dataframe().columns == ["f0"]
    with pytest.raises(ConfigurationError, match=r"'Map' are unknown: give to_dataframe\(\)"):
        stream.map(total_of).to_dataframe()


def test_records_that_do_not_fit_are_told(session: Any) -> None:
    """I2: the column, or the record."""
    stream = make(BATCH).from_dataframe(session.createDataFrame(SALES, DDL), Types.TUPLE([Types.STRING()] * 3))
    with pytest.raises(Exception, match="does not fit the columns a, b"):
        stream.to_dataframe("a STRING, b INT").collect()
    with pytest.raises(Exception, match="column 'a' as int32"):
        stream.to_dataframe("a INT, b BIGINT, c BIGINT").collect()
    with pytest.raises(
        Exception, match=r"operator 'half', subtask \d: .*ZeroDivisionError.*; record: \('oat', 1, 40\)"
    ):
        stream.map(failing).name("half").to_dataframe("n INT").collect()


def test_what_became_a_frame_is_not_executed(session: Any, tmp_path: Path) -> None:
    """I2: unless the rest of the program needs it."""
    env = make(BATCH)
    numbers = env.from_collection([1, 2, 3])
    numbers.map(negative).to_dataframe("n INT")
    with pytest.raises(ValueError, match="nothing to execute"):
        env.execute()
    numbers = env.from_collection([1, 2, 3])
    frame = numbers.map(negative).to_dataframe("n INT")
    assert collect(numbers) == [1, 2, 3]
    assert sorted(row.n for row in frame.collect()) == [-3, -2, -1]


def test_a_frame_needs_batch_execution_on_spark(session: Any) -> None:
    """I2: the errors say what to do."""
    with pytest.raises(ConfigurationError, match=r"set_runtime_mode\(RuntimeExecutionMode.BATCH\)"):
        make(STREAMING).from_collection([1]).to_dataframe("n INT")
    with pytest.raises(ConfigurationError, match="target is local"):
        make(BATCH, execution_target="local").from_collection([1]).to_dataframe("n INT")


def test_streaming_a_frame_survives_a_failure(session: Any, tmp_path: Path) -> None:
    """G8, I2: what had been read is not read again, and what had not is, at the same positions."""
    frame = session.range(0, 2000, 1, 3).selectExpr("id AS n")
    env = make(STREAMING, 2).enable_checkpointing(30)
    env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
    env.get_configuration().set_string("restart-strategy.fixed-delay.delay", "10 ms")
    env.get_configuration().set_string("execution.target", "local")

    def fail_once(value: int) -> int:
        if value == 1500 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("once")
        return value

    assert collect(env.from_dataframe(frame, Types.LONG()).map(fail_once)) == list(range(2000))
    assert (tmp_path / "failed").exists()
    assert list((tmp_path / "checkpoints" / "data-frames").iterdir())
