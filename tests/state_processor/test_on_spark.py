"""The same tables and savepoints by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.state_processor.programs import EVENTS, MEAN, NUMBERS, TOTAL, Mean, by_user, take_savepoint
from tests.state_processor.test_writer import COUNTS, ITEMS, PLACES, run_counter
from tests.stores import at

from penstock.drivers.spark.session import hand_back, obtain_spark, stop_spark
from penstock.state.errors import StateError
from penstock.state_processor import SavepointReader, SavepointWriter, decode

pytestmark = [pytest.mark.spark, pytest.mark.slow]
USERS = by_user()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    handle = obtain_spark({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}, 2)
    hand_back(handle, 2)
    yield handle.session
    stop_spark()


@pytest.fixture(scope="module")
def savepoint(new_store_directory: Callable[[], Path]) -> Path:
    option = {"execution.checkpointing.data-inline-threshold": 0}
    return at(take_savepoint(new_store_directory(), 2, **option))


def test_every_state_reads_the_same_as_a_data_frame(reader: SavepointReader, spark: Any, store_directory: Path) -> None:
    """H5: states are Spark data frames, one task a part, with the rows that they have as Arrow tables."""
    tables = [
        reader.read_value_state("remember", "visits"),
        reader.read_value_state("remember", "profile"),
        reader.read_map_state("remember", "by rest"),
        reader.read_timers("remember"),
        reader.read_window_state("sessions"),
    ]
    for table in tables:
        frame = table.to_spark(spark)
        assert frame.columns == table.column_names
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        assert sorted(rows, key=str) == sorted(table.to_arrow().to_pylist(), key=str)
    visits = tables[0].to_spark(spark)
    assert visits.rdd.getNumPartitions() == tables[0].partitions == reader.operator("remember").parallelism
    assert [row[0] for row in visits.selectExpr("sum(value)").collect()] == [len(EVENTS)]
    odd = reader.read_value_state("remember", "odd").to_spark(spark).collect()
    assert {row.key: decode(bytes(row.value)) for row in odd} == {
        user: {e.number % 3 for e in events} for user, events in USERS.items()
    }


def test_a_job_begins_from_state_made_of_a_data_frame(spark: Any, store_directory: Path) -> None:
    """H5, D4: rows are shuffled to their key groups, and all rows of a key become one entry, lists in order."""
    counts = spark.createDataFrame([(f"key-{i}", i) for i in range(500)], "key string, value long")
    items = spark.createDataFrame([("key-1", i) for i in range(50)], "key string, value long").coalesce(1)
    places = spark.createDataFrame([("key-2", f"m{i}", float(i)) for i in range(3)], "key string, m string, v double")
    writer = SavepointWriter.new_savepoint(parallelism=2)
    writer.with_keyed_state("counter", COUNTS, counts, partitions=3).with_keyed_state(
        "counter", ITEMS, items, partitions=2
    )
    writer.with_keyed_state("counter", PLACES, places, value="v", map_key="m", partitions=1)
    writer.with_timers(
        "counter", counts.selectExpr("key", "timestamp_millis(5000) as due").limit(1), timestamp="due", partitions=1
    )
    path = writer.write(str(store_directory / "made"), spark)

    reader = SavepointReader.read(path)
    reader.verify()
    assert reader.read_value_state("counter", COUNTS).count() == 500
    keyed = [subtask.keyed["count"] for subtask in reader.metadata.operators[0].subtasks.values()]
    assert [len(handles) for handles in keyed] == [2, 2]
    results = {result[0]: result for result in run_counter(path, ["key-1", "key-2", "new"]) if result[1] >= 0}
    assert results["key-1"] == ("key-1", 2, list(range(50)), [])
    assert results["key-2"] == ("key-2", 3, [], [("m0", 0.0), ("m1", 1.0), ("m2", 2.0)])
    assert results["new"] == ("new", 1, [], [])


def test_a_savepoint_is_changed_by_tasks(savepoint: Path, spark: Any, store_directory: Path) -> None:
    """H5: values are changed, other files copied, rows folded and aggregated by Spark's tasks."""
    events = spark.createDataFrame([(e.user, e.number) for e in EVENTS], "user string, number long")
    writer = SavepointWriter.from_existing_savepoint(str(savepoint))
    writer.transform_state("remember", "visits", lambda user, visits: visits + 1 if visits else None)
    for name, descriptor in {"total": TOTAL, "mean": MEAN}.items():
        writer.remove_state("remember", name)
        writer.with_keyed_state("remember", descriptor, events, "user", "number", partitions=2)
    reader = SavepointReader.read(writer.write(str(store_directory / "changed"), spark))
    reader.verify()
    assert dict(reader.read_value_state("remember", "visits")) == {user: len(e) + 1 for user, e in USERS.items()}
    totals = {user: sum(e.number for e in events) for user, events in USERS.items()}
    assert dict(reader.read_reducing_state("remember", TOTAL)) == totals
    assert dict(reader.read_aggregating_state("remember", MEAN, Mean())) == {
        user: totals[user] / len(events) for user, events in USERS.items()
    }
    assert reader.read_list_state("remember", NUMBERS).count() == len(EVENTS)
    files = {f.path.rpartition("/")[2] for f in reader.metadata.state_files() if f.path}
    assert {p.name for p in (store_directory / "changed").iterdir()} == {*files, "_metadata"}


def test_rows_that_make_no_state_are_answered_in_one_line(spark: Any, store_directory: Path) -> None:
    """H5: what goes wrong in a task is said in words, and nothing is left behind."""
    twice = spark.createDataFrame([("a", 1), ("a", 2)], "key string, value long")
    writer = SavepointWriter.new_savepoint().with_keyed_state("counter", COUNTS, twice, partitions=2)
    with pytest.raises(
        StateError, match=r"the Spark job failed: .*2 rows have the key 'a', but a key has only one value"
    ):
        writer.write(str(store_directory / "made"))
    assert not (store_directory / "made").exists()
