"""`JdbcSink` writes what it was given: at least once, exactly once, and after failures."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.connectors.mortal_job import chunks
from tests.connectors.postgres.conftest import Database
from tests.failing import FailsOnce

from penstock.base.errors import ConfigurationError, MisuseError, OperationError
from penstock.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from penstock.connectors.postgres.sink import HeldRows
from penstock.connectors.split_reader import DataGeneratorSource, RateLimiterStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.jdbc import (
    JdbcConnectionOptions,
    JdbcExactlyOnceOptions,
    JdbcExecutionOptions,
    JdbcSink,
)
from penstock.runtime.connector import RecordError
from penstock.testing.connectors import SinkHost

PAIR = Types.ROW([Types.INT(), Types.STRING()])
INSERT = "INSERT INTO t (id, name) VALUES (?, ?)"
UPSERT = INSERT + " ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"


def connection_options(database: Database) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(database.jdbc_url)
    return builder.with_user_name("postgres").with_driver_name("org.postgresql.Driver").build()


def sink(database: Database, sql: str, size: int = 5_000, interval_ms: int = 0, retries: int = 3) -> JdbcSink:
    options = JdbcExecutionOptions.builder().with_batch_size(size).with_batch_interval_ms(interval_ms)
    made = JdbcSink.sink(sql, PAIR, connection_options(database), options.with_max_retries(retries).build())
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def write(made: JdbcSink, rows: Sequence[Any], host: SinkHost | None = None) -> None:
    writer = made.create_writer(host or SinkHost())
    try:
        writer.write_batch(list(rows), None)
        writer.flush(True)
    finally:
        writer.close()


def environment(parallelism: int = 2) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"execution.target": "local", "restart-strategy.fixed-delay.delay": "0 s"})
    made = StreamExecutionEnvironment.get_execution_environment(configuration)
    return made.set_parallelism(parallelism)


@pytest.mark.parametrize("count", [3, 1_000])
def test_rows_are_inserted(database: Database, count: int) -> None:
    database.execute("CREATE TABLE t (id int, name text, at timestamptz DEFAULT now())")
    write(sink(database, INSERT), [Row(n, f"n\t{n}\\") for n in range(count)])
    rows = database.execute("SELECT id, name FROM t WHERE at IS NOT NULL ORDER BY id")
    assert rows == [(n, f"n\t{n}\\") for n in range(count)]


@pytest.mark.parametrize("count", [8, 400])
def test_the_last_row_of_a_key_stays(database: Database, count: int) -> None:
    """G9: writing the same again changes nothing."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    rows = [(n % 7, f"{n}") for n in range(count)]
    for _ in range(2):
        write(sink(database, UPSERT), rows)
        assert dict(database.execute("SELECT * FROM t")) == dict(rows)


@pytest.mark.parametrize("count", [8, 400])
def test_the_first_row_of_a_key_stays(database: Database, count: int) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    rows = [(n % 7, f"{n}") for n in range(count)]
    write(sink(database, INSERT + " ON CONFLICT DO NOTHING"), rows)
    assert dict(database.execute("SELECT * FROM t")) == dict(reversed(rows))


def test_views_and_sums_are_written_row_by_row(database: Database) -> None:
    database.execute("CREATE TABLE real (id int PRIMARY KEY, name text); CREATE VIEW t AS SELECT * FROM real")
    write(sink(database, INSERT), [(n, "x") for n in range(100)])
    write(
        sink(database, INSERT.replace(" t ", " real ") + " ON CONFLICT (id) DO UPDATE SET name = real.name || 'y'"),
        [(n % 50, "x") for n in range(100)],
    )
    assert database.execute("SELECT name, count(*) FROM real GROUP BY name ORDER BY 1") == [("x", 50), ("xyy", 50)]


def test_values_of_all_types(database: Database) -> None:
    database.execute("CREATE TABLE t (id int, d numeric(10,2), b bytea, j jsonb, a int[], f float8, o bool, x date)")
    sql = "INSERT INTO t (id, d, b, j, a, f, o, x) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    row = (1, Decimal("1.50"), b"\x00\xff", '{"a": [1]}', [1, None], float("inf"), True, None)
    for count in (1, 30):
        write(JdbcSink.sink(sql, None, connection_options(database)), [row] * count)
    assert database.execute("SELECT DISTINCT * FROM t") == [
        (1, Decimal("1.50"), b"\x00\xff", {"a": [1]}, [1, None], float("inf"), True, None)
    ]


def test_rows_wait_for_a_batch_an_interval_or_a_checkpoint(database: Database) -> None:
    database.execute("CREATE TABLE t (id int, name text)")
    host = SinkHost()
    writer = sink(database, INSERT, size=10, interval_ms=500).create_writer(host)
    count = "SELECT count(*) FROM t"
    writer.write_batch([(1, "a")] * 9, None)
    assert (writer.next_flush_ms(), database.execute(count)) == (500, [(0,)])
    writer.write_batch([(1, "a")] * 3, None)
    assert (writer.next_flush_ms(), database.execute(count)) == (None, [(12,)])
    host.now = 700
    writer.write_batch([(1, "a")], None)
    assert writer.next_flush_ms() == 1_200
    writer.flush(False)
    assert (writer.next_flush_ms(), database.execute(count)) == (None, [(13,)])
    writer.close()


def test_an_interval_passes_while_nothing_comes(database: Database) -> None:
    """A quiet stream is written all the same: the job ends only when the row is seen in the table."""
    database.execute("CREATE TABLE t (id int, name text)")
    env = environment(1)
    numbers = env.from_source(_endless(), WatermarkStrategy.no_watermarks(), "endless")
    pairs = numbers.filter(lambda number: number == 0).map(lambda number: (number, "a"))
    pairs.sink_to(sink(database, INSERT, interval_ms=1))
    numbers.map(_StopsWhenSeen(database.url)).print()
    with pytest.raises(Exception, match="the row is there"):
        env.execute("quiet")


def test_what_does_not_fit_is_named(database: Database) -> None:
    options = connection_options(database)
    with pytest.raises(MisuseError, match="3 fields, but the statement takes 2"):
        JdbcSink.sink(INSERT, Types.ROW([Types.INT()] * 3), options)
    database.execute("CREATE TABLE t (id int, name text)")
    with pytest.raises(RecordError) as caught:
        write(sink(database, INSERT), [(1, "a", 3)])
    assert "takes 2 values" in str(caught.value.__cause__)
    with pytest.raises(RecordError) as caught:
        write(sink(database, INSERT), [Row.of_kind(RowKind.DELETE, 1, "a")])
    assert "table connector" in str(caught.value.__cause__)
    with pytest.raises(OperationError, match=r"refuses what 'INSERT INTO t .*invalid input syntax"):
        write(sink(database, INSERT), [("x", "a")] * 30)
    with pytest.raises(ConfigurationError, match="call with_url"):
        JdbcConnectionOptions.JdbcConnectionOptionsBuilder().build()


def test_a_server_that_comes_back_gets_the_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
    writer = sink(database, UPSERT).create_writer(SinkHost())
    writer.write_batch([(n, "a") for n in range(50)], None)
    writer.flush(False)
    writer.write_batch([(n, "b") for n in range(50)], None)
    database.server.kill()
    starter = threading.Thread(target=database.server.start)
    starter.start()
    writer.flush(False)
    writer.close()
    starter.join()
    assert database.execute("SELECT name, count(*) FROM t GROUP BY name") == [("b", 50)]


def test_a_server_that_stays_away_fails_the_job(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.postgres.client.RETRY_PAUSE_S", 0)
    gone = JdbcConnectionOptions("jdbc:postgresql://127.0.0.1:1/nothing")
    with pytest.raises(OperationError, match=r"127.0.0.1:1/nothing .*\(3 retries\)"):
        write(JdbcSink.sink(INSERT, PAIR, gone), [(1, "a")])


# --- exactly once ---------------------------------------------------------------------------------------------------


def exactly_once(database: Database) -> JdbcSink:
    options = JdbcExactlyOnceOptions("penstock_commits", 3)
    return JdbcSink.exactly_once_sink(INSERT, PAIR, connection_options(database), options)


def committer(database: Database) -> Callable[[Sequence[HeldRows]], None]:
    made = exactly_once(database).create_committer(SinkHost())
    assert made is not None

    def commit(committables: Sequence[HeldRows]) -> None:
        made.commit(committables)

    commit.close = made.close  # type: ignore[attr-defined]
    return commit


def prepared(database: Database, parts: int, run: str = "") -> list[HeldRows]:
    writer = exactly_once(database).create_writer(SinkHost(run=run))
    found: list[HeldRows] = []
    for part in chunks([(n, run) for n in range(parts * 30)], 30):
        writer.write_batch(part, None)
        writer.flush(False)
        found += writer.prepare_commit()
        assert writer.prepare_commit() == []
    writer.close()
    return pickle.loads(pickle.dumps(found))  # type: ignore[no-any-return]


def test_nothing_is_seen_before_the_commit_and_nothing_twice(database: Database) -> None:
    """G9: committed again, in another order and by another process, rows are there once."""
    database.execute("CREATE TABLE t (id int, name text)")
    held = prepared(database, 4, "a") + prepared(database, 4, "b")
    assert database.execute("SELECT count(*) FROM t") == [(0,)]
    for order in (held[6:], held[:2], held[::-1], held):
        commit = committer(database)
        commit(order)
        commit.close()  # type: ignore[attr-defined]
    assert database.execute("SELECT count(*), count(DISTINCT (id, name)) FROM t") == [(240, 240)]
    ledger = database.execute("SELECT run, numbers::text FROM penstock_commits ORDER BY run")
    assert [numbers for _, numbers in ledger] == ["{[1,5)}", "{[1,5)}"]


def test_commits_at_the_same_time_write_once(database: Database) -> None:
    """A task that was given up and its successor commit the same, and make the ledger at the same time."""
    database.execute("CREATE TABLE t (id int, name text)")
    held = prepared(database, 10)
    commits = [committer(database) for _ in range(6)]
    threads = [threading.Thread(target=one, args=(held,)) for one in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in commits:
        one.close()  # type: ignore[attr-defined]
    assert database.execute("SELECT count(*), count(DISTINCT id) FROM t") == [(300, 300)]


def test_a_commit_that_fails_leaves_no_note(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (59, 'there')")
    held = prepared(database, 2)
    commit = committer(database)
    with pytest.raises(OperationError, match="duplicate key"):
        commit(held)
    database.execute("DELETE FROM t WHERE id = 59")
    commit(held)
    commit.close()  # type: ignore[attr-defined]
    assert database.execute("SELECT count(*) FROM t") == [(60,)]


def test_a_zombie_in_a_transaction_is_ended(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands still while it commits does not hold its successor for ever."""
    database.execute("CREATE TABLE t (id int, name text)")
    held = prepared(database, 1)
    commit = committer(database)
    commit([])
    commit(prepared(database, 1, "other"))
    zombie = psycopg.connect(database.url)
    zombie.execute("SET idle_in_transaction_session_timeout = 300")
    zombie.execute("INSERT INTO penstock_commits VALUES (%s, '{[1,2)}')", (held[0].run,))
    commit(held)  # waits for the zombie's end
    zombie.close()
    commit.close()  # type: ignore[attr-defined]
    assert database.execute("SELECT count(*) FROM t") == [(60,)]


@pytest.mark.parametrize("statement", [INSERT, UPSERT])
def test_a_job_that_fails_writes_each_row_once(database: Database, tmp_path: Path, statement: str) -> None:
    """G8, G9: with two failures in the middle, and with rows of one key in several checkpoints."""
    key = " PRIMARY KEY" if statement == UPSERT else ""
    database.execute(f"CREATE TABLE t (id int{key}, name text)")
    env = environment()
    env.enable_checkpointing(5)
    rows = [(n % 500 if key else n, f"{n}") for n in range(3_000)]
    stream = env.from_collection(rows, Types.TUPLE([Types.INT(), Types.STRING()])).rebalance()
    for times in (400, 1_100):
        stream = stream.map(FailsOnce(tmp_path / str(times), times), Types.TUPLE([Types.INT(), Types.STRING()]))
    keyed = stream.key_by(lambda row: row[0])
    keyed.map(lambda row: row).sink_to(JdbcSink.exactly_once_sink(statement, None, connection_options(database)))
    env.execute("fails twice")
    assert (tmp_path / "1100").exists()
    found = database.execute("SELECT count(*), count(DISTINCT id) FROM t")
    assert found == ([(500, 500)] if key else [(3_000, 3_000)])
    assert database.execute("SELECT count(*) >= 1 FROM penstock_commits") == [(True,)]


def _endless() -> Any:
    return DataGeneratorSource(_same, 10**12, rate_limiter_strategy=RateLimiterStrategy.per_second(100))


def _same(number: int) -> int:
    return number


class _StopsWhenSeen:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, value: int) -> int:
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SELECT count(*) FROM t").fetchone()
        if found == (1,):
            raise RuntimeError("the row is there")
        return value
