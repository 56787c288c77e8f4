"""`python -m tests.connectors.mysql.cdc_kills --server mysql --kills 30`: many tables change while things are killed.

The source reads 20 tables in this process, call by call. A kill is one of: the server gets SIGKILL and starts again; or
the job is lost with all that it has read since its last checkpoint, and begins again from that, pickled. Half of the
kills come in the snapshot, if it lasts so long, and the others in the log. Meanwhile a writer changes rows, and
statements alter tables. In the end the target equals the source, and each update of a row has raised its version by
one: no change was lost, and none came twice.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import Any

import click
from tests.connectors.mysql.cdc_target import Target
from tests.servers.mysql import MySqlServer, mysql_server

from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc.database import CHUNK_SIZE, CdcSettings, MySqlDatabase
from penstock.connectors.mysql.cdc.source import MySqlEventSource
from penstock.testing.connectors.source_run import SourceRun

TABLES = [f"t{number}" for number in range(20)]
STATEMENTS = [
    "ALTER TABLE t1 ADD COLUMN more INT AFTER id",
    "ALTER TABLE t2 RENAME COLUMN v TO words",
    "ALTER TABLE t3 DROP COLUMN spare",
    "ALTER TABLE t4 MODIFY v VARCHAR(200)",
    "ALTER TABLE t5 ADD first_one BIGINT FIRST, DROP spare",
    "CREATE TABLE added (id INT PRIMARY KEY, v VARCHAR(30), version INT, spare INT)",
    "TRUNCATE TABLE t6",
    "DROP TABLE t7",
    "ALTER TABLE t8 CHANGE spare rest DECIMAL(10, 2)",
    "ALTER TABLE t9 ADD (a DATE, b DATETIME(3))",
]


class Writer(threading.Thread):
    """Changes rows until it is stopped; a statement that a killed server did not answer may have been executed."""

    def __init__(self, server: MySqlServer, name: str, seed: int, rows: int) -> None:
        super().__init__(daemon=True)
        self.server, self.name, self.rows = server, name, rows
        self._chance = random.Random(seed)
        self.is_stopped = threading.Event()
        self.statements = 0

    def run(self) -> None:
        connection: Any = None
        while not self.is_stopped.wait(0.002):
            try:
                connection = connection or self.server.connect(self.name)
                client.execute(connection, self._statement())
                self.statements += 1
            except client.load_library().err.MySQLError as error:
                if client.is_passing(error):
                    connection = None

    def _statement(self) -> str:
        chance = self._chance
        table, key, what = chance.choice(TABLES), chance.randrange(self.rows), chance.random()
        if what < 0.2:
            return f"INSERT IGNORE INTO {table} (id, version) VALUES ({key}, 0)"
        if what < 0.3:
            return f"DELETE FROM {table} WHERE id = {key}"
        return f"UPDATE {table} SET version = version + 1 WHERE id BETWEEN {key} AND {key + 3}"


class Job:
    """The source, with its last checkpoint."""

    def __init__(self, settings: CdcSettings, parallelism: int) -> None:
        self.run = SourceRun(MySqlEventSource(settings), parallelism, real_time=True)
        self.checkpoint: Any = None
        self._target, self._applied = Target(), 0

    def advance(self, seconds: float, chance: random.Random) -> None:
        deadline = time.monotonic() + seconds
        due = time.monotonic()
        while time.monotonic() < deadline:
            self.run.advance(chance.choice([10, 1000]))
            if time.monotonic() > due:
                self.checkpoint = self.run.snapshot()
                self.run.complete(self.checkpoint)
                due = time.monotonic() + 0.3

    def reads_log(self) -> bool:
        return any(getattr(reader, "_main", None) for reader in self.run.readers)

    def die(self) -> None:
        self.run.restart(self.checkpoint)

    def target(self) -> Target:
        target = Target()
        for _, value, _ in self.run.arrived:
            target.apply([value])
        return target


def fill(server: MySqlServer, name: str, rows: int) -> None:
    connection = server.connect(name)
    for table in TABLES:
        client.execute(
            connection,
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(30) DEFAULT 'v', version INT, spare INT DEFAULT 7)",
        )
        for begin in range(0, rows, 5_000):
            values = ", ".join(f"({key}, 0)" for key in range(begin, min(rows, begin + 5_000)))
            client.execute(connection, f"INSERT INTO {table} (id, version) VALUES {values}")
    connection.close()


def check(server: MySqlServer, name: str, target: Target) -> int:
    """Compare the target with the source; return the number of rows."""
    assert not target.wrong, target.wrong[:5]
    total = 0
    for ((table,),) in zip(server.execute("SHOW TABLES", name), strict=True):
        rows = target.rows[TableId(name, table)]
        expected = dict(server.execute(f"SELECT id, version FROM {table}", name))
        actual = {row["id"]: row["version"] for row in rows.values()}
        assert actual == expected, (table, list(set(actual.items()) ^ set(expected.items()))[:5])
        total += len(actual)
    return total


@click.command()
@click.option("--server", "dialect", type=click.Choice(["mysql", "mariadb"]), default="mariadb")
@click.option("--kills", default=30)
@click.option("--rows", default=1_000_000, help="in all tables")
@click.option("--chunk", default=CHUNK_SIZE)
@click.option("--parallelism", default=2)
@click.option("--seed", default=lambda: random.randrange(1 << 32), type=int)
def main(dialect: str, kills: int, rows: int, chunk: int, parallelism: int, seed: int) -> None:
    """See the module's text."""
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    with mysql_server(dialect) as server:
        name = server.new_database()
        fill(server, name, rows // len(TABLES))
        settings = CdcSettings(server.address(None), (f"{name}\\..*",), chunk_size=chunk)
        writer = Writer(server, name, seed, rows // len(TABLES))
        writer.start()
        job = Job(settings, parallelism)
        statements = list(STATEMENTS)
        for number in range(kills):
            job.advance(chance.uniform(0.5, 3), chance)
            while number >= kills // 2 and not job.reads_log():  # the other half of them is for the log
                job.advance(1, chance)
            while statements and len(statements) > len(STATEMENTS) * (1 - (number + 1) / kills):
                with suppress(client.load_library().err.MySQLError):
                    server.execute(statements[0], name)
                del statements[0]
            kind = chance.choice(["server", "job", "job"])
            phase = "log" if job.reads_log() else "snapshot"
            server.restart() if kind == "server" else job.die()
            print(f"{number + 1}: {kind} in the {phase}, {len(job.run.arrived)} events", flush=True)
        writer.is_stopped.set()
        writer.join()
        plain = MySqlDatabase(settings)
        with plain.session() as connection:
            end = plain.read_position(connection)
        plain.close()
        while not any((main_log := getattr(r, "_main", None)) and main_log.position >= end for r in job.run.readers):
            job.advance(1, chance)
        target = job.target()
        total = check(server, name, target)
        print(f"{total} rows are the same, {target.updates} updates each once, {writer.statements} statements written")
        job.run.close()


if __name__ == "__main__":
    main()
