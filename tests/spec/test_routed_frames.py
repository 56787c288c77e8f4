"""Records of a data frame for a keyed operator: their columns stay Spark's, Python says where each goes (I2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.spec.batch_programs import Numbered, Prices, Rules, Seen

from penstock.base.errors import JobExecutionError
from penstock.base.watermark_strategy import WatermarkStrategy
from penstock.common import Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.drivers.spark.session import hand_back, obtain_spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SALES = [("tea", 3, 10), ("rye", 5, 20), ("tea", 4, 10), (None, 1, 40), ("rye", 2, 5), ("tea", 1, 60)]
DDL = "name STRING, amount BIGINT, at BIGINT"
SALE = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
Key = str | list[str] | Callable[..., Any]
#: A key and a time that Spark takes itself, and the same so that records are asked.
NAMED: tuple[Key, WatermarkStrategy] = ("f0", WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("f2"))
NAMED_AT = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
ASKED: tuple[Key, WatermarkStrategy] = (
    lambda sale: sale[0],
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda sale, _: sale[2]),
)


def batch(parallelism: int = 2) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.set_parallelism(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)


@pytest.fixture
def session() -> Iterator[Any]:
    spark = obtain_spark({}, 4)
    yield spark.session
    hand_back(spark, 4)


def by_time(assigner: Callable[..., Any]) -> WatermarkStrategy:
    return WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results, key=str)


@pytest.mark.parametrize("names", [NAMED, ASKED, (NAMED[0], ASKED[1])], ids=["named", "asked", "time asked"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_keys_records_come_in_order_of_time_and_then_of_the_frame(
    session: Any, parallelism: int, names: tuple[Key, WatermarkStrategy]
) -> None:
    """I2: in one subtask each, with their timestamps; None is a key too. Asked, the subtask is that of streaming."""
    key, strategy = names
    sales = session.createDataFrame(SALES, DDL).coalesce(1)
    stream = batch(parallelism).from_dataframe(sales, SALE, strategy).key_by(key).process(Seen())
    from_list = batch(parallelism).from_collection(SALES).assign_timestamps_and_watermarks(strategy)
    found = collect(stream)
    assert [(key, seen) for key, _, seen in found] == [
        ("rye", [(2, 5), (5, 20)]),
        ("tea", [(3, 10), (4, 10), (1, 60)]),
        (None, [(1, 40)]),
    ]
    if names != NAMED:
        assert found == collect(from_list.key_by(key).process(Seen()))


@pytest.mark.parametrize("kind", ["BIGINT", "BOOLEAN", "BINARY", "DATE", "DOUBLE", "DECIMAL(9, 2)"])
def test_keys_of_any_type_are_kept_apart_and_together(session: Any, kind: str) -> None:
    """I2, A1: by Spark's hash or by Python's; every key is in one subtask, and more than one has keys."""
    of = {"DATE": "date_add('2026-01-01', {})", "BINARY": "encode({}, 'UTF-8')"}
    cast = of.get(kind, f"CAST({{}} AS {kind})").format("CAST(id % 7 AS INT)")
    frame = session.range(70).selectExpr(f"IF(id % 7 = 3, NULL, {cast}) AS name", "id AS amount", "id AS at")
    found = collect(batch(3).from_dataframe(frame, None, NAMED_AT).key_by("name").process(Seen()))
    keys = 3 if kind == "BOOLEAN" else 7
    assert len(found) == len({key for key, _, _ in found}) == keys
    assert sorted(number for _, _, seen in found for number, _ in seen) == list(range(70))
    assert kind == "BOOLEAN" or len({subtask for _, subtask, _ in found}) > 1


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_zeros_and_nans_are_one_key_each(session: Any, kind: str) -> None:
    """I2, D1: as in streaming, though Arrow and Spark tell them by their bits."""
    values = [0.0, -0.0, float("nan"), -float("nan"), 1.5, None, -0.0]
    frame = session.createDataFrame(
        [(value, 1, n) for n, value in enumerate(values)], f"name {kind}, amount INT, at INT"
    )
    found = collect(batch(3).from_dataframe(frame, None, NAMED_AT).key_by("name").process(Seen()))
    assert sorted((str(key), len(seen)) for key, _, seen in found) == [("0.0", 3), ("1.5", 1), ("None", 1), ("nan", 2)]


def test_keys_of_two_frames_meet_though_their_columns_are_of_different_types(session: Any) -> None:
    """I2, A1: an INT and a BIGINT are one key, and Spark's hash does not know."""
    left = session.range(20).selectExpr("CAST(id AS INT) AS name", "1L AS at")
    right = session.range(20).selectExpr("id AS name", "0L AS at", "id + 1 AS amount")
    env = batch(3)
    keyed = [env.from_dataframe(frame, None, NAMED_AT).key_by("name") for frame in (left, right)]
    found = collect(keyed[0].connect(keyed[1]).process(Prices()))
    assert found == sorted(((key, 1, key + 1) for key in range(20)), key=str)


def test_frames_of_different_columns_and_other_records_meet_in_order_of_time(session: Any) -> None:
    """I2, A2: two inputs, one a frame and one not, and two frames."""
    orders = session.createDataFrame([("tea", 1), ("tea", 15), ("tea", 25), ("rye", 30)], "name STRING, at BIGINT")
    prices = [("tea", 10, 5), ("tea", 20, 6), ("rye", 40, 1)]
    of_frame = session.createDataFrame(prices, DDL)
    strategy = by_time(lambda value: value[1])
    expected = [("rye", 30, 0), ("tea", 1, 0), ("tea", 15, 5), ("tea", 25, 6)]
    for other in (
        lambda env: env.from_collection(prices).assign_timestamps_and_watermarks(strategy),
        lambda env: env.from_dataframe(of_frame, SALE, strategy),
        lambda env: env.from_dataframe(of_frame).assign_timestamps_and_watermarks(strategy),
    ):
        env = batch()
        left = env.from_dataframe(orders, Types.TUPLE([Types.STRING(), Types.LONG()]), strategy)
        both = left.key_by(lambda v: v[0]).connect(other(env).key_by(lambda v: v[0]))
        assert collect(both.process(Prices())) == expected


def test_a_broadcast_side_comes_ahead_of_a_frames_records(session: Any) -> None:
    """I2, A1: though they are rows of one shuffle."""
    env = batch(3)
    rules = env.from_collection([("a", 10), ("b", 100)]).broadcast(Rules.RULES)
    frame = session.createDataFrame([("a", n) for n in range(20)] + [("b", 1)], "name STRING, n INT")
    values = env.from_dataframe(frame, Types.TUPLE([Types.STRING(), Types.INT()])).key_by(lambda value: value[0])
    assert collect(values.connect(rules).process(Rules())) == [
        *sorted((("a", n * 10) for n in range(20)), key=str),
        ("b", 100),
    ]


def test_what_a_selector_raises_comes_with_its_record(session: Any) -> None:
    """I2, A1: of the key, and of the time."""
    sales = session.createDataFrame([("tea", 0, 10)], DDL)
    stream = batch().from_dataframe(sales, SALE)
    with pytest.raises(JobExecutionError, match=r"(?s)Keyed Process.*\('tea', 0, 10\).*ZeroDivisionError"):
        collect(stream.key_by(lambda sale: 1 // sale[1]).process(Seen()))
    timed = batch().from_dataframe(sales, SALE, by_time(lambda sale: 1 // sale[1]))
    with pytest.raises(JobExecutionError, match=r"(?s)Data Frame Source.*\('tea', 0, 10\).*ZeroDivisionError"):
        collect(timed.key_by(lambda sale: sale[0]).process(Seen()))


def test_a_record_without_its_time_is_an_error(session: Any) -> None:
    """I2, C2: also where Spark takes the column itself, which Spark 4.0 does not."""
    sales = session.createDataFrame([("tea", 0, None)], DDL)
    stream = batch().from_dataframe(sales, SALE, NAMED[1])
    with pytest.raises(JobExecutionError, match=r"the timestamp column (is null in a record|'f2' returned None)"):
        collect(stream.key_by(NAMED[0]).process(Seen()))


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "INT"])
def test_a_time_by_name_is_milliseconds_whatever_the_column(session: Any, kind: str) -> None:
    """I2, C2: of moments those since the epoch, rounded down, as for records of any other source."""
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    of = "1" if kind == "INT" else f"CAST('1969-12-31 23:59:59.9985{'Z' if kind == 'TIMESTAMP' else ''}' AS {kind})"
    frame = session.sql(f"SELECT 'tea' AS name, 1 AS amount, {of} AS at")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    (found,) = collect(batch(1).from_dataframe(frame, None, strategy).key_by("name").process(Seen()))
    assert found == ("tea", 0, [(1, 1 if kind == "INT" else -2)])


@pytest.mark.parametrize("type_info", [None, SALE], ids=["rows", "tuples"])
def test_a_key_of_several_columns_is_the_tuple_of_their_values(session: Any, type_info: Any) -> None:
    """I2, A1: whoever takes it."""
    sales = session.createDataFrame([("tea", 1, 3), ("tea", 2, 4), ("tea", 1, 2)], DDL)
    names = ["name", "amount"] if type_info is None else ["f0", "f1"]
    stream = batch(3).from_dataframe(sales, type_info).key_by(names)
    found = collect(stream.process(Seen()))
    asked = batch(3).from_dataframe(sales, type_info).key_by(lambda sale: (sale[0], sale[1]))
    assert [(key, seen) for key, _, seen in found] == [(("tea", 1), [(1, None), (1, None)]), (("tea", 2), [(2, None)])]
    assert [(key, seen) for key, _, seen in found] == [(key, seen) for key, _, seen in collect(asked.process(Seen()))]


def test_a_name_that_a_record_does_not_have_is_told_with_the_record(session: Any) -> None:
    """I2, A1: a tuple knows its fields by number only."""
    sales = session.createDataFrame([("tea", 0, 10)], DDL)
    with pytest.raises(JobExecutionError, match=r"(?s)\('tea', 0, 10\).*has no field 'name'"):
        collect(batch().from_dataframe(sales, SALE).key_by("name").process(Seen()))


def test_what_a_job_with_a_routed_frame_tells_of_itself(session: Any) -> None:
    """E1, I2: the figures of what runs; the frame, which no task reads, shows none."""
    sales = session.createDataFrame(SALES, DDL)
    for key in ("f0", lambda sale: sale[0]):
        env = batch(1)
        env.from_dataframe(sales, SALE).key_by(key).process(Numbered()).print()
        job = env.execute_async("numbered")
        job.get_job_execution_result().result()
        read = {vertex.name: vertex.records_in for vertex in job.get_progress().result().vertices}
        assert list(read.values()) == [0, len(SALES)]
