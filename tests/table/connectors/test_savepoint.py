"""The `savepoint` connector: state of a savepoint or checkpoint as tables."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.runtime.connector import InputStatus, SourceReaderContext
from penstock.sql.connectors.savepoint import SavepointSource, SavepointSplit
from penstock.sql.data.errors import ValidationError
from penstock.state_processor import SavepointReader, SavepointWriter
from penstock.table import EnvironmentSettings, TableEnvironment

COUNT = ValueStateDescriptor("count")
USERS = 300


@pytest.fixture
def tables(tmp_path: Path) -> TableEnvironment:
    """Tables on the local target with two subtasks."""
    settings = {
        "execution.target": "local",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
    }
    builder = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(builder.with_configuration(Configuration.from_dict(settings)).build())


@pytest.fixture
def written(tmp_path: Path) -> str:
    """A savepoint with keyed, operator and broadcast state."""
    writer = SavepointWriter.new_savepoint(parallelism=3)
    counts = [{"key": f"u{index}", "value": index} for index in range(USERS)]
    writer.with_keyed_state("counter", COUNT, counts)
    recent = [{"key": f"u{index % 3}", "value": index} for index in range(7)]
    writer.with_keyed_state("counter", ListStateDescriptor("recent"), recent)
    pages = [{"key": f"u{index % 2}", "map_key": index, "value": f"p{index}"} for index in range(4)]
    writer.with_keyed_state("counter", MapStateDescriptor("pages"), pages, map_key="map_key")
    total = ReducingStateDescriptor("total", lambda left, right: left + right)
    writer.with_keyed_state("counter", total, [{"key": "v", "value": 2}, {"key": "v", "value": 3}])
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    pairs = [{"key": ("a", 1), "value": (moment, 1.5)}, {"key": ("b", 2), "value": (None, None)}]
    writer.with_keyed_state("pairs", ValueStateDescriptor("last"), pairs)
    writer.with_operator_state("source", "offsets", [("p0", 5), ("p1", 7)], mode="union")
    writer.with_operator_state("rules", "limits", {"x": 1, "y": 2}, mode="broadcast")
    return writer.write(str(tmp_path / "savepoint"))


def rows(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, without their kinds, in order."""
    with tables.execute_sql(query).collect() as results:
        return sorted((tuple(row) for row in results), key=repr)


def create(tables: TableEnvironment, path: str, columns: str, uid: str = "counter", **options: str) -> None:
    """Create the table `state`; a double underscore in the name of an option is a full stop."""
    more = "".join(f", '{name.replace('__', '.').replace('_', '-')}' = '{value}'" for name, value in options.items())
    tables.execute_sql("DROP TABLE IF EXISTS state")
    tables.execute_sql(
        f"CREATE TABLE state ({columns}) WITH "
        f"('connector' = 'savepoint', 'state.path' = '{path}', 'operator.uid' = '{uid}'{more})"
    )


KEY = "k STRING, PRIMARY KEY (k) NOT ENFORCED"


def test_a_row_for_each_key(tables: TableEnvironment, written: str) -> None:
    """All keys that a state has; NULL where another state has none."""
    create(tables, written, f"`count` INT, recent ARRAY<INT>, pages MAP<INT, STRING>, total BIGINT, {KEY}")
    found = {row[-1]: row[:-1] for row in rows(tables, "SELECT * FROM state")}
    assert len(found) == USERS + 1
    assert found["u0"] == (0, [0, 3, 6], {0: "p0", 2: "p2"}, None)
    assert found["u2"] == (2, [2, 5], None, None)
    assert found["u7"] == (7, None, None, None)
    assert found["v"] == (None, None, None, 5)


def test_columns_may_have_other_names_than_states(tables: TableEnvironment, written: str) -> None:
    """By `fields.COLUMN.state-name`; the kind may be named too."""
    options = {"fields__c__state_name": "count", "fields__c__state_type": "value"}
    create(tables, written, f"c BIGINT, {KEY}", **options)
    assert [count for count, _ in rows(tables, "SELECT c, k FROM state WHERE c < 3")] == [0, 1, 2]


def test_keys_with_several_fields(tables: TableEnvironment, written: str) -> None:
    """A tuple is a primary key of several columns, and a tuple as a value a row."""
    columns = "x STRING, n INT, `last` ROW<at_ TIMESTAMP(3), amount DOUBLE>, PRIMARY KEY (x, n) NOT ENFORCED"
    create(tables, written, columns, "pairs")
    (first, second) = rows(tables, "SELECT x, n, `last`.at_, `last`.amount FROM state")
    assert first == ("a", 1, datetime.datetime(2026, 1, 2, 3, 4, 5), 1.5)
    assert second == ("b", 2, None, None)


def test_one_state_with_its_own_columns(tables: TableEnvironment, written: str) -> None:
    """Lists and maps have a row for each entry; operator state one for each item."""
    create(tables, written, "`key` STRING, `index` BIGINT, `value` INT", state__name="recent")
    assert rows(tables, "SELECT * FROM state WHERE `key` = 'u1'") == [("u1", 0, 1), ("u1", 1, 4)]
    create(tables, written, "map_key INT, `value` STRING", state__name="pages")
    assert rows(tables, "SELECT * FROM state") == [(0, "p0"), (1, "p1"), (2, "p2"), (3, "p3")]
    create(tables, written, "`value` ROW<part STRING, position_ BIGINT>", "source", state__name="offsets")
    assert [tuple(value) for (value,) in rows(tables, "SELECT * FROM state")] == [("p0", 5), ("p1", 7)]
    create(tables, written, "map_key STRING, `value` INT", "rules", state__name="limits")
    assert rows(tables, "SELECT * FROM state") == [("x", 1), ("y", 2)]


def test_metadata_has_a_row_for_each_operator(tables: TableEnvironment, written: str) -> None:
    """The columns and their types are Flink's; the function is there with its module."""
    query = f"SELECT * FROM savepoint_metadata('{written}')"
    with pytest.raises(ValidationError, match="no table function of this name"):
        tables.execute_sql(query)
    tables.execute_sql("LOAD MODULE state")
    described = tables.sql_query(query).get_resolved_schema()
    assert [str(kind) for kind in described.get_column_data_types()] == [
        "BIGINT NOT NULL",
        "STRING",
        "STRING",
        "STRING NOT NULL",
        *["INT NOT NULL"] * 3,
        *["BIGINT NOT NULL"] * 2,
    ]
    names = ("operator-uid", "operator-parallelism", "operator-subtask-state-count", "operator-total-size-in-bytes")
    columns = ", ".join(f"`{name}`" for name in names)
    found = {row[0]: row[1:] for row in rows(tables, f"SELECT {columns} FROM savepoint_metadata('{written}')")}
    listed = {operator.uid: operator for operator in SavepointReader.read(written).operators}
    assert found.keys() == listed.keys() == {"counter", "pairs", "source", "rules"}
    for uid, (parallelism, subtasks, size) in found.items():
        assert parallelism == 3
        assert 1 <= subtasks <= 3
        assert size == sum(state.size_bytes for state in listed[uid].states)


class Remember(KeyedProcessFunction):
    """Sets a timer for each key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_processing_time_timer(10**13 + value)
        yield value


def slowly(number: int) -> int:
    """One of five keys, after a millisecond."""
    time.sleep(0.001)
    return number % 5


@pytest.mark.slow
def test_timers_and_checkpoints_of_rocksdb(tables: TableEnvironment, tmp_path: Path) -> None:
    """Timers are rows; keyed state in RocksDB's own files is refused with the remedy."""
    settings = {
        "execution.target": "local",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(tmp_path / "of_rocksdb"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    numbers = env.from_collection(range(10**7)).map(slowly)
    numbers.key_by(lambda number: number).process(Remember()).uid("remember").filter(lambda _: False).print()
    job = env.execute_async("timers")
    while not list((tmp_path / "of_rocksdb").glob("*/chk-*/_metadata")):
        time.sleep(0.05)
    path = job.stop_with_savepoint(False, str(tmp_path / "stopped")).result()
    (state,) = [state for state in SavepointReader.read(path).operator("remember").states if state.kind == "timers"]
    columns = "time_domain STRING, timestamp_ms BIGINT, `key` INT"
    create(tables, path, columns, "remember", state__name=state.name)
    assert rows(tables, "SELECT * FROM state") == [("processing", 10**13 + key, key) for key in range(5)]
    create(tables, path, "k INT, `count` INT, PRIMARY KEY (k) NOT ENFORCED", "remember")
    assert [row[0] for row in rows(tables, "SELECT * FROM state")] == [0, 1, 2, 3, 4]


def test_state_of_sql_by_column_name(tables: TableEnvironment, tmp_path: Path) -> None:
    """Groups, the first rows and both sides of a join, after several checkpoints: each entry once, and the newest."""
    tables.execute_sql(
        "CREATE TABLE numbers (id BIGINT, k INT) WITH ('connector' = 'datagen', 'rows-per-second' = '500', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '100000000', "
        "'fields.k.min' = '0', 'fields.k.max' = '9')"
    )
    for sink in ("counts", "firsts", "pairs"):
        tables.execute_sql(f"CREATE TABLE {sink} (k INT, n BIGINT) WITH ('connector' = 'blackhole')")
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT INTO counts SELECT k, COUNT(DISTINCT id) FROM numbers GROUP BY k")
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id DESC) AS place FROM numbers"
    statements.add_insert_sql(f"INSERT INTO firsts SELECT k, id FROM ({ranked}) WHERE place <= 3")
    statements.add_insert_sql("INSERT INTO pairs SELECT a.k, b.id FROM numbers a JOIN numbers b ON a.id = b.id")
    job = statements.execute().get_job_client()
    assert job is not None
    while len(list((tmp_path / "checkpoints").glob("*/chk-[4-9]"))) == 0:
        time.sleep(0.05)
    path = job.stop_with_savepoint(False, str(tmp_path / "stopped")).result()
    ids = {operator.name: operator.operator_id for operator in SavepointReader.read(path).operators}

    def create_by_id(name: str, state: str, columns: str) -> None:
        tables.execute_sql("DROP TABLE IF EXISTS state")
        tables.execute_sql(
            f"CREATE TABLE state ({columns}) WITH ('connector' = 'savepoint', 'state.path' = '{path}', "
            f"'operator.uid.hash' = '{ids[name]}', 'state.name' = '{state}')"
        )

    create_by_id("Group Aggregate", "group_columns", "k INT, `rows` BIGINT")
    groups = dict(rows(tables, "SELECT k, `rows` FROM state"))
    assert sorted(groups) == list(range(10))
    create_by_id("Group Aggregate", "group_values.0", "k INT, `value` BIGINT")
    values = rows(tables, "SELECT `value`, k FROM state")
    assert len({number for number, _ in values}) == len(values) == sum(groups.values())
    create_by_id("Rank", "top_rows", "id BIGINT, k INT")
    newest: dict[int, list[int]] = {}
    for number, key in sorted(values, reverse=True):
        newest.setdefault(key, []).append(number)
    firsts = sorted(rows(tables, "SELECT k, id FROM state"))
    assert firsts == sorted((key, number) for key, numbers in newest.items() for number in numbers[:3])
    create_by_id("Join INNER", "left_columns", "id BIGINT, k INT")
    assert sorted(rows(tables, "SELECT id, k FROM state")) == sorted(values)


@pytest.mark.parametrize(
    ("columns", "uid", "options", "message"),
    [
        ("`count` INT, k STRING", "counter", {}, "declares no PRIMARY KEY"),
        (KEY, "counter", {}, "has only the key"),
        (f"other INT, {KEY}", "counter", {}, "has no keyed state 'other'; there are: 'count'"),
        (f"`count` INT, {KEY}", "nobody", {}, "no operator with uid 'nobody'; there are: 'counter'"),
        (f"recent INT, {KEY}", "counter", {"fields__recent__state_type": "value"}, "'recent' is a list state"),
        (f"`count` INT, {KEY}", "counter", {"fields__count__value_class": "java.lang.Long"}, "leave it out"),
        ("`key` STRING, n INT", "counter", {"state__name": "recent"}, "no column 'n', but key, index, value"),
        (f"`count` INT, {KEY}", "counter", {"operator__uid__hash": "0" * 32}, "takes one option"),
    ],
)
def test_what_does_not_fit_is_named(
    tables: TableEnvironment, written: str, columns: str, uid: str, options: dict[str, str], message: str
) -> None:
    """Before the job begins."""
    create(tables, written, columns, uid, **options)
    with pytest.raises(Exception, match=message):
        tables.execute_sql("SELECT * FROM state")


@pytest.mark.parametrize("column", ["`count` TINYINT", "`count` STRING", "recent ARRAY<INT> NOT NULL, `count` INT"])
def test_values_that_do_not_fit_fail_the_job(tables: TableEnvironment, written: str, column: str) -> None:
    """The error names the column."""
    create(tables, written, f"{column}, {KEY}")
    with pytest.raises(Exception, match=f"column '{column.split()[0].strip('`')}'"):
        rows(tables, "SELECT * FROM state")


def test_a_table_without_a_savepoint_is_refused(tables: TableEnvironment, tmp_path: Path) -> None:
    create(tables, str(tmp_path), f"`count` INT, {KEY}")
    with pytest.raises(ValidationError, match=r"Table .*state cannot be read"):
        tables.execute_sql("SELECT * FROM state")


def test_reading_goes_on_where_a_checkpoint_found_it() -> None:
    """A split has the number of rows that were emitted."""
    batches = [pa.RecordBatch.from_arrays([pa.array(range(begin, begin + 4))], ["c0"]) for begin in (0, 4, 8)]
    for max_records in (1, 3, 4, 5, 100):
        source = SavepointSource([lambda: iter(batches)])
        splits, values = [SavepointSplit(0)], []
        while True:
            reader = source.create_reader(Mock(SourceReaderContext, parallelism=1))
            reader.add_splits(splits)
            reader.no_more_splits()
            answer: Any = reader.poll_next(max_records)
            if answer is InputStatus.END_OF_INPUT:
                break
            values += answer.columns.column(0).to_pylist()
            splits = reader.snapshot_state(1)
        assert values == list(range(12))
