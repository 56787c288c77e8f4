"""The CDC source on real servers: whatever changes meanwhile, the target becomes the source, each change once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.connectors.mysql.cdc_target import Target
from tests.servers.mysql import MARIADB, MYSQL, MySqlServer, mysql_server

from penstock.base.errors import ConfigurationError, OperationError, UnsupportedError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc import database
from penstock.connectors.mysql.cdc.checks import check_privileges, check_server, check_variables
from penstock.connectors.mysql.cdc.database import CdcSettings, MySqlDatabase
from penstock.connectors.mysql.cdc.source import MySqlEventSource
from penstock.sql.data.errors import ValidationError
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors.source_run import SourceRun

TABLES = {
    "ints": "id INT PRIMARY KEY, v VARCHAR(30), version INT",
    "texts": "id VARCHAR(20) CHARACTER SET utf8mb4 PRIMARY KEY, v INT, version INT",
    "pairs": "a INT, b VARCHAR(5), v INT, version INT, PRIMARY KEY (a, b)",
}


@pytest.fixture(scope="module", params=[MYSQL, MARIADB])
def server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    with mysql_server(request.param) as started:
        yield started


pytestmark = pytest.mark.slow


class Writer:
    """Changes the tables in a thread, until it is stopped."""

    def __init__(self, server: MySqlServer, name: str, chance: random.Random) -> None:
        self._server, self._name, self._chance = server, name, chance
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def fill(self, rows: int) -> None:
        connection = self._server.connect(self._name)
        client.execute(connection, "BEGIN")
        for _ in range(rows):
            client.query(connection, self._insert(self._chance.choice(list(TABLES))))
        client.execute(connection, "COMMIT")
        connection.close()

    def _run(self) -> None:
        chance, connection = self._chance, self._server.connect(self._name)
        while not self._is_stopped.wait(0.003):
            client.execute(connection, "BEGIN")
            for _ in range(chance.randrange(1, 6)):
                client.query(connection, self._statement())
            client.execute(connection, "COMMIT" if chance.random() < 0.9 else "ROLLBACK")
        connection.close()

    def _key(self) -> str:
        return f"{self._chance.choice('aAbBcCäÄzZ')}{self._chance.choice('xyXY')}{self._chance.randrange(100)}"

    def _insert(self, table: str) -> str:
        number = self._chance.randrange
        values = {
            "ints": f"{number(1000)}, 'v{number(100)}', 0",
            "texts": f"'{self._key()}', {number(100)}, 0",
            "pairs": f"{number(30)}, '{self._key()[:3]}', 1, 0",
        }
        return f"INSERT IGNORE INTO {table} VALUES ({values[table]})"

    def _statement(self) -> str:
        chance, table = self._chance, self._chance.choice(list(TABLES))
        number, what = chance.randrange, chance.random()
        where = {
            "ints": f"id BETWEEN {(low := number(1000))} AND {low + 3}",
            "texts": f"id = '{self._key()}'",
            "pairs": f"a = {number(30)}",
        }[table]
        if what < 0.3:
            return self._insert(table)
        if what < 0.8:
            return f"UPDATE {table} SET v = '{number(100)}', version = version + 1 WHERE {where}"
        if what < 0.9 or table == "pairs":
            return f"DELETE FROM {table} WHERE {where} LIMIT 3"
        new = number(1000) if table == "ints" else f"'{self._key()}'"
        return f"UPDATE IGNORE {table} SET id = {new}, version = version + 1 WHERE {where} LIMIT 1"


class Reading:
    """A source that is read call by call, and what it comes to."""

    def __init__(self, server: MySqlServer, name: str, parallelism: int = 1, **settings: Any) -> None:
        self.settings = CdcSettings(server.address(None), (f"{name}\\..*",), **({"chunk_size": 50} | settings))
        self.server, self.name = server, name
        self.run = SourceRun(MySqlEventSource(self.settings), parallelism, real_time=True)

    def read_on(self) -> Target:
        """Read to the present end of the log."""
        source = MySqlDatabase(self.settings)
        with source.session() as connection:
            end = source.read_position(connection)
        source.close()
        deadline = time.monotonic() + 120
        while not any((main := getattr(reader, "_main", None)) and main.position >= end for reader in self.run.readers):
            self.run.advance(100)
            if self.run.silent_rounds % 20 == 19:
                self.run.complete(self.run.snapshot())
                self.run.silent_rounds = 0
            assert time.monotonic() < deadline, list(self.run.steps.lines)[-20:]
        return self.target()

    def target(self) -> Target:
        target = Target()
        for subtask, value, _ in self.run.arrived:
            target.apply([value], subtask)
        return target

    def check(self, target: Target) -> None:
        """The target is the source, and no change came twice."""
        assert target.wrong == []
        names = {table for schema, table in target.schemas if schema == self.name}
        assert names == {row[0] for row in self.server.execute("SHOW TABLES", self.name)}
        for table in names:
            rows = target.rows[TableId(self.name, table)].values()
            columns = [row[0] for row in self.server.execute(f"SHOW COLUMNS FROM {table}", self.name)]
            assert target.schemas[TableId(self.name, table)].names == tuple(columns)
            expected = self.server.execute(f"SELECT * FROM {table}", self.name)
            assert {tuple(str(row[name]) for name in columns) for row in rows} == {
                tuple(map(str, row)) for row in expected
            }
            assert len(rows) == len(expected)


def create(server: MySqlServer) -> str:
    name = server.new_database()
    for table, columns in TABLES.items():
        server.execute(f"CREATE TABLE {table} ({columns})", name)
    return name


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_target_becomes_the_source_while_rows_change_and_the_job_restarts(
    server: MySqlServer, parallelism: int
) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    name = create(server)
    writer = Writer(server, name, random.Random(seed))
    writer.fill(600)
    reading = Reading(server, name, parallelism)
    writer.start()
    run = reading.run
    deadline = time.monotonic() + 4
    try:
        while time.monotonic() < deadline:
            run.advance(chance.choice([1, 7, 50, 1000]))
            if chance.random() < 0.01:
                run.restart(run.snapshot())
            elif chance.random() < 0.03:
                run.complete(run.snapshot())
        writer_until = time.monotonic() + 30
        while reading.target().updates <= 50 and time.monotonic() < writer_until:
            run.advance(100)
            run.complete(run.snapshot())
    finally:
        writer.stop()
    target = reading.read_on()
    reading.check(target)
    assert target.updates > 50
    run.close()


def test_statements_arrive_in_order_with_the_rows(server: MySqlServer) -> None:
    name = create(server)
    server.execute("INSERT INTO ints VALUES (1, 'a', 0), (2, 'b', 0)", name)
    reading = Reading(server, name)
    reading.check(reading.read_on())
    for statement in (
        "ALTER TABLE ints ADD COLUMN more INT DEFAULT 7 AFTER id, ADD first_one VARCHAR(5) FIRST",
        "INSERT INTO ints (id, v, version, more) VALUES (3, 'c', 0, 9)",
        "ALTER TABLE ints RENAME COLUMN v TO text, MODIFY more BIGINT",
        "UPDATE ints SET text = 'd', version = version + 1 WHERE id = 3",
        "ALTER TABLE ints DROP COLUMN first_one, MODIFY version INT FIRST",
        "UPDATE ints SET text = 'e', version = version + 1",
        "CREATE TABLE made (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, d DECIMAL(9, 2), version INT)",
        "INSERT INTO made VALUES (18446744073709551614, 1.5, 0)",
        "CREATE TABLE copied LIKE made",
        "INSERT INTO copied SELECT * FROM made",
        "CREATE TABLE picked (PRIMARY KEY (id)) AS SELECT * FROM texts",
        "TRUNCATE TABLE made",
        "INSERT INTO made VALUES (5, NULL, 0)",
        "DROP TABLE texts, copied",
        "CREATE TABLE texts (id INT PRIMARY KEY, version INT)",
        "INSERT INTO texts VALUES (1, 1)",
    ):
        server.execute(statement, name)
    run = reading.run
    run.restart(run.snapshot())
    target = reading.read_on()
    reading.check(target)
    assert target.schemas[TableId(name, "made")].columns[0].sql_type == "DECIMAL(20, 0)"
    run.close()


def test_tables_that_match_later_join_a_running_job(server: MySqlServer) -> None:
    name = create(server)
    writer = Writer(server, name, random.Random(1))
    writer.fill(200)
    reading = Reading(server, name)
    reading.read_on()
    snapshot = reading.run.snapshot()
    other = server.new_database()
    server.execute("CREATE TABLE other (id INT PRIMARY KEY, version INT)", other)
    server.execute("INSERT INTO other VALUES " + ", ".join(f"({n}, 0)" for n in range(300)), other)
    writer.fill(100)
    reading.run.source.settings = CdcSettings(  # type: ignore[attr-defined]
        server.address(None), (f"{name}\\..*", f"{other}\\..*"), chunk_size=50, adds_tables=True
    )
    reading.run.restart(snapshot)
    server.execute("UPDATE other SET version = version + 1 WHERE id < 10", other)
    for _ in range(300):
        reading.run.advance(100)
    server.execute("UPDATE other SET version = version + 1 WHERE id < 5", other)
    target = reading.read_on()
    reading.check(target)
    assert target.wrong == []
    rows = target.rows[TableId(other, "other")]
    assert {key: row["version"] for key, row in rows.items()} == {
        (n,): version for n, version in server.execute("SELECT id, version FROM other", other)
    }
    reading.run.close()


@pytest.mark.parametrize("startup", [database.EARLIEST, database.LATEST, database.TIMESTAMP, database.SPECIFIC])
def test_the_log_is_read_from_where_the_startup_mode_says(server: MySqlServer, startup: str) -> None:
    name = create(server)
    server.execute("INSERT INTO ints VALUES (1, 'a', 0)", name)
    plain = MySqlDatabase(CdcSettings(server.address(None), (f"{name}\\..*",)))
    with plain.session() as connection:
        position = plain.read_position(connection)
    plain.close()
    time.sleep(1.1 if startup == database.TIMESTAMP else 0)
    settings: dict[str, Any] = {"start_position": position, "start_timestamp_ms": int(time.time() * 1_000)}
    if startup != database.LATEST:
        server.execute("INSERT INTO ints VALUES (2, 'b', 0)", name)
    reading = Reading(server, name, startup=startup, **settings)
    reading.read_on()
    server.execute("INSERT INTO ints VALUES (3, 'c', 0)", name)
    target = reading.read_on()
    expected = {database.EARLIEST: {(1,), (2,), (3,)}, database.LATEST: {(3,)}}
    assert set(target.rows[TableId(name, "ints")]) == expected.get(startup, {(2,), (3,)})
    reading.run.close()


def test_a_purged_log_is_an_error_with_a_remedy(server: MySqlServer) -> None:
    name = create(server)
    reading = Reading(server, name)
    reading.read_on()
    snapshot = reading.run.snapshot()
    reading.run.close()
    server.execute("FLUSH BINARY LOGS")
    ((last, *_),) = server.execute("SHOW BINARY LOGS")[-1:]
    deadline = time.monotonic() + 30
    while server.execute("SHOW BINARY LOGS")[0][0] != last:  # a log is kept while its reader has not gone
        assert time.monotonic() < deadline
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        time.sleep(0.1)
    reading.run.restart(snapshot)
    with pytest.raises(OperationError, match=r"begin without the state of the job.*binlog_expire_logs_seconds"):
        reading.read_on()
    reading.run.close_if_open()


def test_the_server_is_killed_and_comes_back(server: MySqlServer) -> None:
    name = create(server)
    writer = Writer(server, name, random.Random(2))
    writer.fill(300)
    reading = Reading(server, name)
    for _ in range(20):
        reading.run.advance(10)
    server.restart()
    reading.read_on()
    server.execute("UPDATE ints SET version = version + 1", name)
    server.restart()
    server.execute("UPDATE ints SET version = version + 1", name)
    reading.check(reading.read_on())
    reading.run.close()


def test_a_server_that_does_not_log_what_is_needed_is_refused(server: MySqlServer) -> None:
    settings = CdcSettings(server.address(None), (".*",))
    plain = MySqlDatabase(settings)
    check_server(plain)
    plain.close()
    for name, value in (("log_bin", "OFF"), ("binlog_format", "MIXED"), ("binlog_row_image", "MINIMAL")):
        with pytest.raises(ConfigurationError, match=f"{name} = {value}"):
            check_variables({name: value}, "db")
    with pytest.raises(UnsupportedError, match="binlog_row_value_options = ''"):
        check_variables({"binlog_row_value_options": "PARTIAL_JSON"}, "db")
    name = server.new_database()
    server.execute(f"CREATE USER {name} IDENTIFIED BY 'pw'")
    server.execute(f"GRANT SELECT ON {name}.* TO {name}")
    connection = client.connect(client.MySqlAddress("127.0.0.1", server.port, name, "pw"))
    with pytest.raises(ConfigurationError, match="GRANT REPLICATION SLAVE"):
        check_privileges(connection)
    connection.close()


# --- SQL ------------------------------------------------------------------------------------------------------------


def environment() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config().set("execution.target", "local").set("parallelism.default", "2")
    config.set("execution.checkpointing.interval", "50 ms")
    return tables


def declare(server: MySqlServer, name: str, columns: str, more: str = "", table: str = "ints") -> str:
    return (
        f"CREATE TABLE ints ({columns}) WITH ('connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', "
        f"'port' = '{server.port}', 'username' = 'root', 'database-name' = '{name}', 'table-name' = '{table}', "
        f"'server-id' = '5400-5409'{more})"
    )


def test_a_table_of_sql_follows_its_tables(server: MySqlServer) -> None:
    name = create(server)
    server.execute("CREATE TABLE ints_2 LIKE ints", name)
    server.execute("INSERT INTO ints VALUES (1, 'a', 0), (2, 'b', 0)", name)
    server.execute("INSERT INTO ints_2 VALUES (3, 'c', 0)", name)
    tables = environment()
    columns = (
        "id INT, v STRING, t STRING METADATA FROM 'table_name' VIRTUAL, "
        "d STRING METADATA FROM 'database_name' VIRTUAL, "
        "op TIMESTAMP_LTZ(3) METADATA FROM 'op_ts' VIRTUAL, kind STRING METADATA FROM 'row_kind' VIRTUAL, "
        "PRIMARY KEY (id) NOT ENFORCED"
    )
    tables.execute_sql(declare(server, name, columns, table="ints(_2)?"))
    result = tables.execute_sql("SELECT id, v, t, d, kind, YEAR(op) FROM ints")
    seen = []
    with result.collect() as rows:
        for row in rows:
            seen.append((row.get_row_kind().short_string, *row))
            if len(seen) == 3:
                server.execute("UPDATE ints SET v = 'x' WHERE id = 1", name)
                server.execute("DELETE FROM ints_2", name)
                server.execute("UPDATE ints SET id = 9 WHERE id = 2", name)
            if len(seen) == 8:
                break
    year = time.gmtime().tm_year
    assert set(seen[:3]) == {
        ("+I", 1, "a", "ints", name, "+I", 1970),
        ("+I", 2, "b", "ints", name, "+I", 1970),
        ("+I", 3, "c", "ints_2", name, "+I", 1970),
    }
    assert seen[3:] == [
        ("-U", 1, "a", "ints", name, "-U", year),
        ("+U", 1, "x", "ints", name, "+U", year),
        ("-D", 3, "c", "ints_2", name, "-D", year),
        ("-D", 2, "b", "ints", name, "-D", year),
        ("+I", 9, "b", "ints", name, "+I", year),
    ]


def test_the_tables_alone_are_bounded(server: MySqlServer) -> None:
    name = create(server)
    server.execute("INSERT INTO ints VALUES (1, 'a', 0), (2, 'b', 0)", name)
    tables = environment()
    tables.execute_sql(declare(server, name, "id BIGINT, version STRING", ", 'scan.startup.mode' = 'snapshot'"))
    with tables.execute_sql("SELECT * FROM ints").collect() as rows:
        assert sorted(map(tuple, rows)) == [(1, "0"), (2, "0")]


def test_options_that_mean_nothing_are_refused(server: MySqlServer) -> None:
    for more, problem in (
        (", 'debezium.snapshot.locking.mode' = 'none'", "no Debezium"),
        (", 'scan.startup.mode' = 'sometime'", "startup mode"),
        (", 'server-id' = '0-7'", "server-id"),
    ):
        tables = environment()
        tables.execute_sql(
            declare(server, "db", "id INT", more).replace("'server-id' = '5400-5409', 'server", "'server")
        )
        with pytest.raises((UnsupportedError, ValidationError), match=problem):
            tables.execute_sql("SELECT * FROM ints")
