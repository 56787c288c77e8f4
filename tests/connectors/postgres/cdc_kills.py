"""`python -m tests.connectors.postgres.cdc_kills --kills 30`: twenty tables in one slot, as events, with kills.

While writers change twenty tables with a million rows in sum, and ten statements change their columns, something gets
SIGKILL: a Python worker of the job, its driver with all workers, or the server of PostgreSQL. What is killed is started
again; a driver begins with another parallelism. The kills begin while the rows are read.

The job writes each event of a row into the table `applied`, exactly once, with the version of the row and the version
before. In the end the events of each row must be a chain, from the row that was read or inserted to the row of the
source: no change is missing, and none came twice.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import psycopg
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.kills import Run
from tests.servers.postgres import postgres_server

from penstock.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from penstock.connectors.cdc import events
from penstock.datastream import FlatMapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from penstock.datastream.connectors.postgres_cdc import PostgresEventSource, make_settings

TABLES = 20
KINDS = ("worker", "driver", "server")
PATIENCE_S = 600.0
#: one statement for each of ten tables; a row changes after it, so that the log tells it
DDL = (
    "ADD COLUMN extra int DEFAULT 3",
    "ADD COLUMN note text",
    "RENAME COLUMN name TO title",
    "DROP COLUMN name",
    "ALTER COLUMN amount TYPE bigint",
    "ADD COLUMN extra int",
    "RENAME COLUMN amount TO total",
    "DROP COLUMN amount",
    "ADD COLUMN at timestamptz",
    "ALTER COLUMN name TYPE varchar(50)",
)
ROW = Types.ROW_NAMED(
    ["t", "id", "version", "previous", "kind", "columns"],
    [Types.STRING(), Types.INT(), Types.LONG(), Types.LONG(), Types.STRING(), Types.STRING()],
)


class Flatten(FlatMapFunction):
    """Turns an event of a row into a row of `applied`, with the schema that came before it."""

    def open(self, runtime_context: Any) -> None:
        self.schemas: dict[events.TableId, events.TableSchema] = {}

    def flat_map(self, value: events.Event) -> Any:
        if not isinstance(value, events.DataChangeEvent):
            before = self.schemas.get(value.table_id, events.TableSchema(()))
            self.schemas[value.table_id] = before.apply(value)
            return
        names = self.schemas[value.table_id].names
        old = dict(zip(names, value.before or (), strict=value.before is not None))
        row = dict(zip(names, value.after, strict=True)) if value.after is not None else old
        kind = {RowKind.INSERT: "insert" if value.meta["op_ts"] else "read", RowKind.DELETE: "delete"}
        columns = {name: None if item is None else str(item) for name, item in row.items()}
        yield Row(
            value.table_id.table,
            row["id"],
            row["version"],
            old.get("version"),
            kind.get(value.kind, "update"),
            json.dumps(columns),
        )


def flatten(env: StreamExecutionEnvironment, port: int, database: str) -> None:
    """Add the pipeline to a program: the source's subtasks flatten their own events, which have their own schemas."""
    settings = make_settings(
        "127.0.0.1", database, r"public.t[0-9]\.*", "kills", port=port, username="postgres", chunk_size=2_000
    )
    stream = env.from_source(PostgresEventSource(settings), WatermarkStrategy.no_watermarks(), "tables").uid("tables")
    rows = stream.flat_map(Flatten(), ROW)
    url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
    sink = JdbcSink.exactly_once_sink(
        "INSERT INTO applied (t, id, version, previous, kind, columns) VALUES (?, ?, ?, ?, ?, ?)",
        ROW,
        JdbcConnectionOptions(url),
    )
    rows.sink_to(sink).uid("applied")


class EventsRun(Run):
    """A driver of this program's job. In one process, there are no workers that could be killed apart from it."""

    program = "tests.connectors.postgres.cdc_kills"


def wait_for_more(database: Database, run: EventsRun) -> int:
    """Until more events have come than now; how many there are."""
    before, deadline = None, time.monotonic() + PATIENCE_S
    while True:
        run.check()
        assert time.monotonic() < deadline, "the job does not go on"
        with suppress(psycopg.OperationalError):
            ((count,),) = database.execute("SELECT count(*) FROM applied")
            before = count if before is None else before
            if count > before:
                return int(count)
        time.sleep(0.3)


class Writers:
    """Changes rows in a thread until it is stopped: each change is the next version of its row."""

    def __init__(self, url: str, seed: int, rows: int, pause_s: float) -> None:
        self._url, self._chance, self._rows, self._pause_s = url, random.Random(seed), rows, pause_s
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
                while not self._is_stopped.wait(self._pause_s):
                    self._write(connection)
                    connection.commit()
                    self.transactions += 1

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        chance = self._chance
        for _ in range(chance.randrange(1, 5)):
            table, row, draw = f"t{chance.randrange(TABLES)}", chance.randrange(self._rows * 2), chance.random()
            if draw < 0.15:
                statement = f"DELETE FROM {table} WHERE id = {row}"
            elif draw < 0.35:
                statement = (
                    f"INSERT INTO {table} (id, version) VALUES ({row}, nextval('versions')) ON CONFLICT DO NOTHING"
                )
            else:
                statement = f"UPDATE {table} SET version = nextval('versions') WHERE id = {row % self._rows}"
            connection.execute(statement.encode())

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


#: Events that came twice, that follow no event of their row, or the same one as another.
TWICE = "SELECT t, id, version, count(*) FROM applied WHERE kind <> 'delete' GROUP BY 1, 2, 3 HAVING count(*) > 1"
FORKED = "SELECT t, id, previous, count(*) FROM applied WHERE previous IS NOT NULL GROUP BY 1, 2, 3 HAVING count(*) > 1"
BROKEN = (
    "SELECT a.* FROM applied a WHERE previous IS NOT NULL AND NOT EXISTS (SELECT 1 FROM applied b WHERE b.t = a.t "
    "AND b.id = a.id AND b.version = a.previous AND b.kind <> 'delete')"
)
LAST = "SELECT DISTINCT ON (t, id) * FROM applied ORDER BY t, id, version DESC, kind = 'delete' DESC"


def find_wrong(database: Database) -> dict[str, Any]:
    """What is wrong with the events, and with the rows that they come to."""
    queries = {"twice": TWICE, "forked": FORKED, "broken": BROKEN}
    wrong: dict[str, Any] = {name: found[:5] for name, query in queries.items() if (found := database.execute(query))}
    source = " UNION ALL ".join(f"SELECT 't{n}' AS t, id, version FROM t{n}" for n in range(TABLES))
    target = f"SELECT t, id, version FROM ({LAST}) last WHERE kind <> 'delete'"
    for name, left, right in (("lost", source, target), ("left over", target, source)):
        found = database.execute(f"({left}) EXCEPT ({right})")
        if found:
            wrong[name] = (len(found), found[:5])
    for number in range(TABLES):
        rows = database.execute(
            f"SELECT to_jsonb(x), a.columns FROM t{number} x JOIN applied a ON a.t = 't{number}' AND a.id = x.id "
            "AND a.version = x.version AND a.kind <> 'delete' WHERE a.version > (SELECT at FROM ddl_done)"
        )
        for row, text in rows:
            if json.loads(text) != {name: None if value is None else str(value) for name, value in row.items()}:
                wrong["columns"] = (number, row, text)
    return wrong


def alter(database: Database, number: int) -> None:
    """One statement, and a row that changes after it."""
    while True:
        try:
            database.execute(f"ALTER TABLE t{number} {DDL[number]}")
        except psycopg.OperationalError:
            time.sleep(0.2)
        except (psycopg.errors.DuplicateColumn, psycopg.errors.UndefinedColumn):
            return  # it was done before the server was gone
        else:
            return


@click.command()
@click.option("--kills", default=30)
@click.option("--seed", default=0, help="0 draws one")
@click.option("--rows", default=1_000_000, help="of all tables in sum")
@click.option("--only", type=click.Choice(KINDS), multiple=True)
@click.option("--target", type=click.Choice(["spark", "local"]), default="spark", help="where the job runs")
def main(kills: int, seed: int, rows: int, only: tuple[str, ...], target: str) -> None:
    """See the module's text."""
    seed = seed or random.randrange(1, 1 << 31)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    each = rows // TABLES
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        database = Database(server, server.new_database())
        database.execute("CREATE SEQUENCE versions")
        for number in range(TABLES):
            database.execute(
                f"CREATE TABLE t{number} (id int PRIMARY KEY, version bigint, name text DEFAULT 'new', amount int); "
                f"ALTER TABLE t{number} REPLICA IDENTITY FULL; INSERT INTO t{number} "
                f"SELECT n, nextval('versions'), 'n' || n, n FROM generate_series(0, {each - 1}) n"
            )
        database.execute(
            "CREATE TABLE applied (t text, id int, version bigint, previous bigint, kind text, columns text); "
            "CREATE TABLE ddl_done (at bigint)"
        )
        run = EventsRun(database, Path(folder), chance)
        run.more = {"execution.target": "local"} if target == "local" else {}
        begun = time.monotonic()
        run.start()
        counts = dict.fromkeys(KINDS, 0)
        in_rows = 0
        try:
            writers = Writers(database.url, seed, each, 0.01)
            statements = list(range(10))
            for number in range(kills):
                count = wait_for_more(database, run)
                time.sleep(chance.uniform(0.1, 3))
                if number * 10 >= (10 - len(statements)) * kills and statements:
                    alter(database, statements.pop(0))
                in_rows += not database.execute("SELECT 1 FROM pg_replication_slots WHERE active")
                kind = chance.choice(only or KINDS)
                if kind == "worker" and not run.kill_worker():
                    kind = "driver"
                if kind == "driver":
                    run.kill()
                    run.start()
                elif kind == "server":
                    server.restart()
                counts[kind] += 1
                run.check()
                print(f"{number + 1}: {kind}, after {time.monotonic() - begun:.0f} s and {count} events", flush=True)
            while statements:
                alter(database, statements.pop(0))
            database.execute("INSERT INTO ddl_done SELECT nextval('versions')")
            for number in range(TABLES):
                database.execute(f"UPDATE t{number} SET version = nextval('versions') WHERE id % 100 = 0")
            time.sleep(1)
            writers.stop()
            deadline = time.monotonic() + PATIENCE_S
            wrong: dict[str, Any] = {}
            last = -1
            while time.monotonic() < deadline:
                run.check()
                ((came,),) = database.execute("SELECT count(*) FROM applied")
                if came == last and came >= rows * 0.9:
                    wrong = find_wrong(database)
                    if not wrong:
                        break
                last = came
                time.sleep(3)
            else:
                raise AssertionError(wrong or f"only {last} events came")
            ((reads,),) = database.execute("SELECT count(*) FROM applied WHERE kind = 'read'")
            ((changes,),) = database.execute("SELECT count(*) FROM applied WHERE kind <> 'read'")
        finally:
            run.kill()
    print(f"kills: {counts}, {in_rows} before the log was read; {writers.transactions} transactions")
    print(f"{reads} rows were read and {changes} changes came, each once; the target is the source")


def run_job(told: dict[str, Any]) -> None:
    configuration = Configuration.from_dict({key: str(value) for key, value in told["options"].items()})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    flatten(env, told["port"], told["database"])
    env.execute("tables to events")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("{"):
        run_job(json.loads(sys.argv[1]))
    else:
        main()
