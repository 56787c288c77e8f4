"""Changes of a table: its rows and what follows are the table, wherever the reader or the server is stopped."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.connectors.postgres.conftest import Database
from tests.servers.postgres import postgres_server
from tests.servers.waiting import await_true

from penstock.base.errors import ConfigurationError, MissingPathError, OperationError, UnsupportedError
from penstock.common import Row, RowKind
from penstock.connectors.postgres.cdc.position import (
    CdcSplit,
    KeyRange,
    LogPosition,
    LogSplit,
    Snapshot,
    TablePosition,
)
from penstock.connectors.postgres.cdc.slots import prepared
from penstock.connectors.postgres.cdc.source import PostgresSource, PostgresSourceBuilder
from penstock.runtime.connector import InputStatus
from penstock.testing.connectors import SourceRun

pytestmark = pytest.mark.slow

PEOPLE = (
    "CREATE TABLE people (id int PRIMARY KEY, name text); ALTER TABLE people REPLICA IDENTITY FULL; "
    "INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 50) n"
)


def builder(database: Database, table: str = "people", slot: str | None = None) -> PostgresSourceBuilder:
    made = PostgresSourceBuilder().hostname("127.0.0.1").port(database.server.port).database(database.name)
    return made.username("postgres").table_list(f"public.{table}").slot_name(slot or f"slot_{database.name}")


class Following(SourceRun):
    """A source that is read for as long as a test wants; `rows` are what its changes come to."""

    def __init__(self, source: PostgresSource, key: str = "id") -> None:
        super().__init__(source)
        self.key = key
        self.rows: dict[Any, Row] = {}
        self.checkpoints = 0

    def step(self, at_once: int = 1_000) -> int:
        """Poll once; how many changes came."""
        before = len(self.values[0])
        self.hosts[0].now = int(time.monotonic() * 1_000)
        if self.poll(0, at_once) is InputStatus.NOTHING_AVAILABLE:
            self.deliver()
            time.sleep(0.002)
        for row in self.values[0][before:]:
            self._apply(row)
        return len(self.values[0]) - before

    def _apply(self, row: Row) -> None:
        key, kind = row[self.key], row.get_row_kind()
        if kind is RowKind.INSERT:
            assert key not in self.rows, f"{row} is there already"
            self.rows[key] = row
        elif kind is RowKind.UPDATE_BEFORE:
            assert tuple(self.rows[key]) == tuple(row)
        elif kind is RowKind.UPDATE_AFTER:
            assert key in self.rows, f"{row} is not there"
            self.rows[key] = row
        else:
            assert self.rows.pop(key, None) is not None, f"{row} is not there"

    def assign(self) -> None:
        """Let the enumerator plan the chunks, which queries the tables; readers get none yet."""
        while not self.master.assigned:
            self.poll(0, 1)  # a reader asks for a split in its first poll
            while self._message():
                pass
            self.master.run_background()

    def follow(self, wanted: Callable[[], bool], at_once: int = 1_000) -> None:
        deadline = time.monotonic() + 60
        while not wanted():
            assert time.monotonic() < deadline, sorted(map(tuple, self.rows.values()))
            self.step(at_once)

    def follow_table(self, database: Database, table: str = "people", at_once: int = 1_000) -> None:
        """Until its rows are those of the table, and for a moment longer."""
        wanted = sorted(database.execute(f"SELECT * FROM {table}"), key=repr)
        self.follow(lambda: sorted(map(tuple, self.rows.values()), key=repr) == wanted, at_once)
        for _ in range(30):
            assert not self.step(at_once)

    def complete_checkpoint(self) -> Any:
        """As when a checkpoint completes."""
        self.checkpoints += 1
        state = self.enumerator.snapshot_state(self.checkpoints), self.readers[0].snapshot_state(self.checkpoints)
        self.readers[0].notify_checkpoint_complete(self.checkpoints)
        return state


def kinds(cluster: SourceRun) -> list[tuple[Any, ...]]:
    return [(row.get_row_kind().name, *row) for row in cluster.all_values]


def test_rows_and_then_changes(database: Database) -> None:
    database.execute(PEOPLE)
    cluster = Following(builder(database).build())
    cluster.follow_table(database)
    count = len(cluster.all_values)
    assert count == 50
    database.execute(
        "UPDATE people SET name = 'x' WHERE id = 1; DELETE FROM people WHERE id = 2; "
        "INSERT INTO people VALUES (99, NULL); UPDATE people SET id = 100 WHERE id = 3"
    )
    cluster.follow_table(database)
    assert kinds(cluster)[count:] == [
        ("UPDATE_BEFORE", 1, "p1"),
        ("UPDATE_AFTER", 1, "x"),
        ("DELETE", 2, "p2"),
        ("INSERT", 99, None),
        ("DELETE", 3, "p3"),
        ("INSERT", 100, "p3"),
    ]
    cluster.close()


def test_upserts_need_no_full_identity(database: Database) -> None:
    database.execute(PEOPLE + "; ALTER TABLE people REPLICA IDENTITY DEFAULT")
    with pytest.raises(ConfigurationError, match=r'ALTER TABLE "public"."people" REPLICA IDENTITY FULL'):
        Following(builder(database).build()).follow(lambda: False)
    cluster = Following(builder(database).changelog_mode("upsert").build())
    cluster.follow_table(database)
    database.execute(
        "UPDATE people SET name = 'x' WHERE id = 1; DELETE FROM people WHERE id = 2; "
        "UPDATE people SET id = 100 WHERE id = 3"
    )
    cluster.follow_table(database)
    assert kinds(cluster)[50:] == [
        ("UPDATE_AFTER", 1, "x"),
        ("DELETE", 2, None),
        ("DELETE", 3, None),
        ("INSERT", 100, "p3"),
    ]
    cluster.close()


KEYS = {
    "number": ("int8", "{n}"),
    "text": ("text", "chr(64 + ({n}) % 26) || ({n})::text"),
    "collated": ('text COLLATE "en_US"', "chr(64 + ({n}) % 26) || lpad(({n})::text, 3, '-') || 'ä'"),
    "uuid": ("uuid", "md5(({n})::text)::uuid"),
    "moment": ("timestamptz", "timestamptz '2020-01-01' + ({n}) * interval '7 hours'"),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", range(2))
def test_writers_and_restarts_in_the_middle(database: Database, kind: str, seed: int) -> None:
    """G8: every change once, with transactions that are open while the rows are read, and restarts all the time."""
    sql_type, make = KEYS[kind]
    if kind == "collated":
        database.execute("CREATE COLLATION IF NOT EXISTS \"en_US\" (provider = icu, locale = 'en-US')")
    database.execute(
        f"CREATE TABLE t (id {sql_type} PRIMARY KEY, v int); ALTER TABLE t REPLICA IDENTITY FULL; "
        f"INSERT INTO t SELECT {make.format(n='n')}, 0 FROM generate_series(1, 200, 2) n"
    )
    chance = random.Random(seed)
    open_ones = [database.server.connect(database.name) for _ in range(3)]
    cluster = Following(builder(database, "t").split_size(4).build())
    cluster.poll(0, 1)
    cluster.deliver()  # now there is a slot
    for turn in range(200):
        writer = open_ones[turn % 3]
        if turn % 3 == 0 or chance.random() < 0.6:
            if writer.info.transaction_status.name == "IDLE":
                writer.execute("BEGIN")
            n = chance.randrange(turn % 3, 210, 3)  # each writer has its own keys, so that none waits
            key = make.format(n=str(n))
            other = make.format(n=str(n + 300 + 3 * turn))
            statement = chance.choice(
                [
                    f"INSERT INTO t VALUES ({key}, {turn}) ON CONFLICT DO NOTHING",
                    f"UPDATE t SET v = {turn} WHERE id = {key}",
                    f"DELETE FROM t WHERE id = {key}",
                    f"UPDATE t SET id = {other}, v = {turn} WHERE id = {key}",
                ]
            )
            writer.execute(statement.encode())
        if chance.random() < 0.15 and writer.info.transaction_status.name != "IDLE":
            writer.execute(chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        if turn > 10:
            cluster.step(chance.randrange(2, 5))
        if chance.random() < 0.2:
            cluster.restart()
    for writer in open_ones:
        if writer.info.transaction_status.name != "IDLE":
            writer.execute("COMMIT")
        writer.close()
    wanted = {repr(row) for row in database.execute("SELECT id::text, v FROM t")}
    shown = database.execute("SELECT id::text, v FROM t")

    def is_there() -> bool:
        return len(cluster.rows) == len(shown) and {row.v for row in cluster.rows.values()} >= {v for _, v in shown}

    cluster.follow(is_there, 5)
    for _ in range(20):
        cluster.step(5)
        cluster.restart()
    if kind in ("number", "text", "collated", "uuid"):
        assert {repr((str(row.id), row.v)) for row in cluster.rows.values()} == wanted
    else:
        assert sorted(row.v for row in cluster.rows.values()) == sorted(v for _, v in shown)
    cluster.close()


def test_savepoints_of_a_single_split_go_on(database: Database) -> None:
    """D4: the split of earlier versions has a table that was read up to a key, and no OID."""
    database.execute(PEOPLE)
    source = builder(database).split_size(7).build()
    lsn = prepared(source.settings).log.lsn
    ((text, now),) = database.execute("SELECT pg_current_snapshot()::text, (pg_current_wal_lsn() - '0/0')::bigint")
    read = TablePosition((KeyRange((20,), Snapshot.parse(text, int(now))),))
    database.execute("UPDATE people SET name = 'x' WHERE id IN (5, 30); DELETE FROM people WHERE id = 6")
    cluster = Following(source)
    cluster.close()
    cluster.rows = {n: Row(n, f"p{n}") for n in range(1, 21)}
    cluster.begin([], [[CdcSplit(read, LogPosition(lsn))]])
    cluster.follow_table(database)
    assert len(cluster.all_values) == 30 + 3
    cluster.restart()
    database.execute("UPDATE people SET name = 'y' WHERE id = 7")
    cluster.follow_table(database)
    cluster.close()


def test_a_restart_in_the_middle_of_a_transaction(database: Database) -> None:
    database.execute(PEOPLE)
    cluster = Following(builder(database).build())
    cluster.follow_table(database)
    database.execute("UPDATE people SET name = name || '!' WHERE id <= 20")
    database.execute("DELETE FROM people WHERE id > 30")
    for _ in range(30):
        while not cluster.step(2):
            pass
        cluster.restart()
        if len(cluster.rows) == 30:
            break
    cluster.follow_table(database)
    assert len(cluster.all_values) == 50 + 40 + 20
    cluster.close()


def test_the_server_is_killed_and_comes_back() -> None:
    with postgres_server() as server:
        database = Database(server, server.new_database())
        database.execute(PEOPLE.replace("50", "500"))
        cluster = Following(builder(database).split_size(10).build())
        cluster.follow(lambda: len(cluster.rows) > 100, 10)
        server.restart()
        cluster.follow_table(database)
        database.execute("UPDATE people SET name = 'x' WHERE id % 5 = 0")
        cluster.follow(lambda: cluster.rows[5].name == "x", 10)
        server.restart()
        cluster.follow_table(database)
        assert len(cluster.all_values) == 500 + 200
        cluster.close()


def confirmed(database: Database) -> int:
    found = database.execute(
        "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots "
        f"WHERE slot_name = 'slot_{database.name}'"
    )
    return int(found[0][0])


def test_the_server_forgets_only_what_checkpoints_have(database: Database) -> None:
    database.execute(PEOPLE)
    cluster = Following(builder(database).lsn_commit_delay(1).build())
    cluster.follow_table(database)
    before = confirmed(database)
    database.execute("UPDATE people SET name = 'x'")
    cluster.follow_table(database)
    cluster.step()
    assert confirmed(database) == before
    state = cluster.complete_checkpoint()
    cluster.step()
    assert confirmed(database) == before  # the server keeps the log for one checkpoint more
    cluster.complete_checkpoint()
    deadline = time.monotonic() + 20
    while confirmed(database) == before:
        assert time.monotonic() < deadline
        cluster.step()
    assert confirmed(database) in [split.log.lsn for split in state[1] if isinstance(split, LogSplit)]
    gauges = {name: gauge() for name, gauge in cluster.hosts[0].gauges.items()}
    assert set(gauges) == {"postgres.bytesBehind", "postgres.bytesKept"}
    cluster.close()


def test_a_quiet_table_does_not_hold_back_the_log(database: Database) -> None:
    """The log of others goes by, and the position with it."""
    database.execute(PEOPLE + "; CREATE TABLE busy (n int)")
    cluster = Following(builder(database).lsn_commit_delay(0).heartbeat_interval(5).build())
    cluster.follow_table(database)
    database.execute("INSERT INTO busy SELECT generate_series(1, 20000)")
    other = database.server.new_database()
    database.server.execute("CREATE TABLE busy AS SELECT generate_series(1, 20000)", other)
    ((lsn,),) = database.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint")

    def is_past() -> bool:
        cluster.complete_checkpoint()
        return confirmed(database) >= int(lsn)

    cluster.follow(is_past)
    cluster.close()


def test_changes_that_are_lost_are_named(database: Database) -> None:
    database.execute(PEOPLE)
    slot = f"slot_{database.name}"
    cluster = Following(builder(database).build())
    cluster.follow_table(database)
    state = cluster.snapshot()
    cluster.close()
    database.execute("UPDATE people SET name = 'x'")
    database.execute(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    cluster.restart(state)
    with pytest.raises(OperationError, match=r"read up to .* by somebody else.*lost: begin without the state"):
        cluster.follow(lambda: False)
    cluster.close()
    database.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    cluster.restart(state)
    with pytest.raises(OperationError, match=rf"slot '{slot}' is gone .* are lost"):
        cluster.follow(lambda: False)
    cluster.close()


def test_a_slot_that_kept_too_much_is_named() -> None:
    with postgres_server(max_slot_wal_keep_size="1MB", wal_keep_size="0", max_wal_size="32MB") as server:
        database = Database(server, server.new_database())
        database.execute(PEOPLE)
        cluster = Following(builder(database).build())
        cluster.follow_table(database)
        state = cluster.snapshot()
        cluster.close()
        for _ in range(3):
            database.execute("CREATE TABLE w AS SELECT generate_series(1, 300000) n; DROP TABLE w")
            database.execute("SELECT pg_switch_wal(); CHECKPOINT")
        cluster.restart(state)
        with pytest.raises(OperationError, match=r"max_slot_wal_keep_size allows.*pg_drop_replication_slot"):
            cluster.follow(lambda: False)
        cluster.close()


def test_a_slot_in_use_is_waited_for(database: Database) -> None:
    database.execute(PEOPLE)
    first = Following(builder(database).build())
    first.follow_table(database)
    second = Following(builder(database).build())
    second.follow(lambda: len(second.rows) == 50)
    for _ in range(10):
        second.step()
    first.close()
    database.execute("INSERT INTO people VALUES (60, 'x')")
    second.follow_table(database)
    second.close()


def test_a_reader_that_is_closed_gives_up_a_query_that_hangs(database: Database) -> None:
    """Somebody has locked the table; the lock stays, and the reader does not wait for it."""
    database.execute(PEOPLE)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    cluster = Following(builder(database).build())
    cluster.follow_table(database)  # the publication that it makes needs a lock as well
    cluster.close()
    cluster = Following(builder(database).build())
    cluster.assign()
    with psycopg.connect(database.url) as other:
        other.execute("LOCK TABLE people")
        cluster.follow(lambda: database.execute(waiting) == [(1,)])
        cluster.close()
        assert not cluster.rows
        await_true(lambda: database.execute(waiting) == [(0,)], "a query still waits for the lock")


def test_large_values_that_did_not_change(database: Database) -> None:
    """TOAST: the log has them only with REPLICA IDENTITY FULL."""
    large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n)"
    database.execute(
        f"CREATE TABLE people (id int PRIMARY KEY, n int, name text); ALTER TABLE people REPLICA IDENTITY "
        f"FULL; INSERT INTO people VALUES (1, 1, {large})"
    )
    cluster = Following(builder(database).build())
    cluster.follow_table(database)
    database.execute("UPDATE people SET n = 2")
    cluster.follow_table(database)
    cluster.close()
    database.execute("ALTER TABLE people REPLICA IDENTITY DEFAULT")
    narrow = Following(builder(database, slot="narrow").changelog_mode("upsert").column_list("id", "n").build())
    narrow.follow(lambda: len(narrow.rows) == 1)
    cluster = Following(builder(database, slot="wide").changelog_mode("upsert").build())
    cluster.follow_table(database)
    database.execute("UPDATE people SET n = 3")
    narrow.follow(lambda: narrow.rows[1].n == 3)
    narrow.close()
    with pytest.raises(OperationError, match=r"large value of column name .* REPLICA IDENTITY FULL"):
        cluster.follow(lambda: False)
    cluster.close()


@pytest.mark.parametrize("mode", ["fail", "skip"])
def test_truncate(database: Database, mode: str) -> None:
    database.execute(PEOPLE)
    cluster = Following(builder(database).truncate_mode(mode).build())
    cluster.follow_table(database)
    database.execute("TRUNCATE people")
    database.execute("INSERT INTO people VALUES (1000, 'x')")
    if mode == "fail":
        with pytest.raises(OperationError, match=r"was truncated at .* 'skip' to keep them"):
            cluster.follow(lambda: False)
    else:
        cluster.follow(lambda: 1000 in cluster.rows)
        assert len(cluster.rows) == 51
        assert cluster.hosts[0].counts == {"truncatesSkipped": 1}
    cluster.close()


def test_columns_come_and_go(database: Database) -> None:
    database.execute(PEOPLE)
    cluster = Following(builder(database).column_list("name", "id").build())
    cluster.follow(lambda: len(cluster.rows) == 50)
    database.execute("ALTER TABLE people ADD COLUMN more int")
    database.execute("INSERT INTO people VALUES (51, 'x', 5)")
    cluster.follow(lambda: 51 in cluster.rows)
    assert list(cluster.rows[51].as_dict()) == ["name", "id"]
    database.execute("ALTER TABLE people RENAME COLUMN name TO called")
    database.execute("INSERT INTO people VALUES (52, 'y', 5)")
    with pytest.raises(OperationError, match="has lost column name, or it has another name: it has id, called, more"):
        cluster.follow(lambda: False)
    cluster.close()


def test_computed_columns_are_left_out(database: Database) -> None:
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) STORED, name text); "
        "ALTER TABLE people REPLICA IDENTITY FULL; INSERT INTO people (id) VALUES (1)"
    )
    cluster = Following(builder(database).build())
    cluster.follow(lambda: 1 in cluster.rows)
    database.execute("INSERT INTO people (id, name) VALUES (2, 'x')")
    cluster.follow(lambda: 2 in cluster.rows)
    assert cluster.rows[2].as_dict() == {"id": 2, "name": "x"}
    cluster.close()
    with pytest.raises(ConfigurationError, match=r"twice of .* is computed by the server"):
        Following(builder(database, slot="other").column_list("id", "twice").build()).follow(lambda: False)


def test_startup_modes(database: Database) -> None:
    database.execute(PEOPLE)
    table = Following(builder(database).startup_mode("snapshot").slot_name("").build())
    table.follow(lambda: bool(table.ended))
    assert len(table.rows) == 50
    table.close()
    with pytest.raises(ConfigurationError, match="there is no slot"):
        Following(builder(database).startup_mode("committed-offset").build()).follow(lambda: False)
    later = Following(builder(database).startup_mode("latest-offset").build())
    later.follow(lambda: later.readers[0]._stream is not None)  # type: ignore[attr-defined]
    database.execute("INSERT INTO people VALUES (51, 'x')")
    later.follow(lambda: list(later.rows) == [51])
    later.close()
    kept = Following(builder(database).startup_mode("committed-offset").build())
    kept.follow(lambda: list(kept.rows) == [51])
    kept.close()
    # What the slot has kept is in the table, too, and comes once.
    whole = Following(builder(database).build())
    whole.follow_table(database)
    whole.close()


def test_partitioned_tables(database: Database) -> None:
    database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text) PARTITION BY RANGE (id); "
        "CREATE TABLE low PARTITION OF people FOR VALUES FROM (0) TO (10); "
        "CREATE TABLE high PARTITION OF people FOR VALUES FROM (10) TO (100); "
        "ALTER TABLE people REPLICA IDENTITY FULL; "
        "ALTER TABLE low REPLICA IDENTITY FULL; ALTER TABLE high REPLICA IDENTITY FULL; "
        "INSERT INTO people SELECT n, 'p' FROM generate_series(1, 20) n"
    )
    cluster = Following(builder(database).build())
    cluster.follow_table(database)
    database.execute("UPDATE people SET name = 'x' WHERE id > 5; UPDATE people SET id = 50 WHERE id = 3")
    cluster.follow_table(database)
    cluster.close()


def test_mistakes_are_named(database: Database) -> None:
    def fails(made: PostgresSourceBuilder, kind: type[Exception], text: str) -> None:
        with pytest.raises(kind, match=text):
            Following(made.build()).follow(lambda: False)

    database.execute(
        PEOPLE + "; CREATE TABLE keyless (n int); CREATE PUBLICATION other; CREATE ROLE reader LOGIN; "
        "GRANT SELECT ON people TO reader"
    )
    fails(builder(database, "keyless"), ConfigurationError, "no primary key.*latest-offset")
    fails(
        builder(database).publication_name("other"), ConfigurationError, 'execute ALTER PUBLICATION "other" ADD TABLE'
    )
    fails(builder(database).username("reader"), ConfigurationError, "have its owner execute CREATE PUBLICATION")
    fails(builder(database).startup_mode("never"), ConfigurationError, "startup mode is initial or")
    fails(builder(database).slot_name(""), ConfigurationError, "slot.name")
    with pytest.raises(UnsupportedError, match="wal2json"):
        builder(database).decoding_plugin_name("wal2json")
    fails(builder(database).table_list("a", "people"), MissingPathError, 'has no table "public"."a"')
    with pytest.raises(ConfigurationError, match="another database"):
        builder(database).table_list("other.public.people").build()


def test_a_server_that_keeps_no_changes_is_named() -> None:
    with postgres_server(wal_level="replica") as server:
        database = Database(server, server.new_database())
        database.execute(PEOPLE)
        with pytest.raises(ConfigurationError, match="set wal_level = logical"):
            Following(builder(database).build()).follow(lambda: False)
