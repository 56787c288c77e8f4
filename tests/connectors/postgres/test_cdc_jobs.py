"""Whole jobs that follow a table: failures, savepoints, another parallelism, and batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database
from tests.failing import FailsOnce

from penstock.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from penstock.connectors.postgres.cdc.source import PostgresSourceBuilder
from penstock.datastream import KeyedProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink, JdbcSource
from penstock.datastream.state import ValueStateDescriptor

TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL; "
    "INSERT INTO t SELECT n, 0 FROM generate_series(0, 299) n; CREATE TABLE seen (id int, v int, times int)"
)
TRIPLE = Types.TUPLE([Types.INT()] * 3)


class Times(KeyedProcessFunction):
    """(id, v, how often the row has changed)."""

    def open(self, runtime_context: Any) -> None:
        self.times = runtime_context.get_state(ValueStateDescriptor("times"))

    def process_element(self, value: Row, ctx: Any) -> Any:
        times = (self.times.value() or 0) + 1
        self.times.update(times)
        yield value.id, value.v, times


def environment(parallelism: int, **more: str) -> StreamExecutionEnvironment:
    options = {
        "execution.target": "local",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "50 ms",
        **more,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    return env.set_parallelism(parallelism)


def build(env: StreamExecutionEnvironment, database: Database, *failing: FailsOnce) -> None:
    source = PostgresSourceBuilder().hostname("127.0.0.1").port(database.server.port).database(database.name)
    source = source.username("postgres").table_list("t").slot_name(f"slot_{database.name}").split_size(20)
    rows = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "t").uid("t")
    there = rows.filter(lambda row: row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER))
    for function in failing:
        there = there.map(function)
    times = there.key_by(lambda row: row.id).process(Times(), TRIPLE).uid("times")
    sink = JdbcSink.exactly_once_sink(
        "INSERT INTO seen (id, v, times) VALUES (?, ?, ?)", TRIPLE, JdbcConnectionOptions(database.url)
    )
    times.sink_to(sink).uid("seen")


def becomes(database: Database, wanted: Callable[[list[tuple[Any, ...]]], bool]) -> list[tuple[Any, ...]]:
    deadline = time.monotonic() + 60
    while not wanted(found := database.execute("SELECT id, v, times FROM seen ORDER BY id, times")):
        assert time.monotonic() < deadline, (len(found), found[:5], found[-5:])
        time.sleep(0.05)
    return found


def all_versions(last: int) -> list[tuple[int, int, int]]:
    """Every row with every version, each once and in order."""
    return [(n, v, v + 1) for n in range(300) for v in range(last + 1)]


def test_failures_in_the_rows_and_in_the_changes(database: Database, tmp_path: Path) -> None:
    """G8, G9: a job that fails in the middle of the snapshot, and in the middle of a transaction."""
    database.execute(TABLES)
    env = environment(2)
    env.enable_checkpointing(20)
    build(env, database, FailsOnce(tmp_path / "rows", 60), FailsOnce(tmp_path / "changes", 240))
    job = env.execute_async("fails")
    for version in (1, 2):
        becomes(database, lambda found, version=version: len(found) >= 300 * version)  # type: ignore[misc]
        database.execute("UPDATE t SET v = v + 1")
    becomes(database, lambda found: len(found) >= 900)
    job.cancel().result()
    assert database.execute("SELECT id, v, times FROM seen ORDER BY id, v") == all_versions(2)
    assert (tmp_path / "rows").exists()
    assert (tmp_path / "changes").exists()


def test_a_savepoint_and_another_parallelism(database: Database, tmp_path: Path) -> None:
    """D4, H4: the job that goes on at another parallelism has every change that came meanwhile, once."""
    database.execute(TABLES)
    savepoint: str | None = None
    for turn, parallelism in enumerate((1, 3, 2)):
        more = {} if savepoint is None else {"execution.state-recovery.path": savepoint}
        env = environment(parallelism, **more)
        env.enable_checkpointing(20)
        build(env, database)
        job = env.execute_async(f"turn {turn}")
        becomes(database, lambda found, turn=turn: len(found) >= 300 * (1 + 2 * turn))  # type: ignore[misc]
        database.execute("UPDATE t SET v = v + 1")
        becomes(database, lambda found, turn=turn: len(found) >= 300 * (2 + 2 * turn))  # type: ignore[misc]
        savepoint = job.stop_with_savepoint(False, str(tmp_path)).result()
        database.execute("UPDATE t SET v = v + 1")  # while no job is there
    assert database.execute("SELECT id, v, times FROM seen ORDER BY id, v") == all_versions(5)


def test_epochs_read_all_that_is_there(database: Database, tmp_path: Path) -> None:
    """I1: without an interval a job of epochs ends when it has read the table, and the log as far as it went."""
    database.execute(TABLES)
    options = {
        "execution.runtime-mode": "MICRO_BATCH",
        "execution.checkpointing.dir": str(tmp_path),
        "penstock.recovery.from-latest": "true",
    }
    for turn in range(3):
        env = environment(2, **options)
        build(env, database)
        env.execute("epochs")
        found = database.execute("SELECT id, v, times FROM seen ORDER BY id, v")
        assert found == all_versions(2 * turn)  # in the order of each key, though two transactions are in an epoch
        for _ in range(2):  # in two transactions
            database.execute("UPDATE t SET v = v + 1")


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING])
def test_a_table_is_read_and_written_in_both_modes(database: Database, mode: RuntimeExecutionMode) -> None:
    """I1: the same rows."""
    database.execute(TABLES)
    env = environment(2)
    env.set_runtime_mode(mode)
    source = JdbcSource.builder().set_db_url(database.url).set_table_name("t").set_partitions("id", 0, 299, 5).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "t").map(lambda row: (row.id, row.v, 0), TRIPLE)
    sink = "INSERT INTO seen (id, v, times) VALUES (?, ?, ?)"
    rows.sink_to(JdbcSink.exactly_once_sink(sink, TRIPLE, JdbcConnectionOptions(database.url)))
    env.execute("copy")
    assert database.execute("SELECT id FROM seen ORDER BY id") == [(n,) for n in range(300)]
