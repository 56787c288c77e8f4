"""Events of many tables: their rows, their changes and the changes of their schemas add up to the tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.connectors.postgres.conftest import Database

from penstock.base.errors import MissingPathError, OperationError
from penstock.common import RowKind
from penstock.connectors.cdc import events
from penstock.connectors.cdc.events import TableId
from penstock.connectors.postgres.cdc.options import make_settings
from penstock.connectors.postgres.cdc.source import PostgresEventSource
from penstock.runtime.connector import InputStatus
from penstock.testing.connectors import SourceRun

pytestmark = pytest.mark.slow

TABLES = (
    "CREATE TABLE cups (id int PRIMARY KEY, name text); CREATE TABLE jars (id bigint, at int, PRIMARY KEY (at, id)); "
    "ALTER TABLE cups REPLICA IDENTITY FULL; INSERT INTO cups SELECT n, 'c' || n FROM generate_series(1, 20) n; "
    "INSERT INTO jars SELECT n, n % 3 FROM generate_series(1, 20) n; CREATE TABLE empty_ones (id int PRIMARY KEY)"
)


def source(database: Database, tables: str = r"public.\.*", **more: Any) -> PostgresEventSource:
    settings = make_settings(
        "127.0.0.1", database.name, tables, f"slot_{database.name}", port=database.server.port, username="postgres",
        **{"chunk_size": 7, **more},
    )  # fmt: skip
    return PostgresEventSource(settings)


class Target:
    """What events come to: for each table its schema and its rows by key."""

    def __init__(self) -> None:
        self.schemas: dict[TableId, events.TableSchema] = {}
        self.rows: dict[TableId, dict[Any, dict[str, Any]]] = {}
        self.log: list[events.SchemaChangeEvent] = []

    def apply(self, event: events.Event) -> None:
        name = event.table_id
        if isinstance(event, events.DataChangeEvent):
            self._change(event)
            return
        if isinstance(event, events.CreateTableEvent):
            assert name not in self.schemas or self.schemas[name].names == event.schema.names
            self.rows.setdefault(name, {})
            if name in self.schemas:
                return
        elif isinstance(event, events.TruncateTableEvent):
            self.rows[name].clear()
        elif isinstance(event, events.DropColumnEvent):
            for row in self.rows[name].values():
                del row[event.name]
        elif isinstance(event, events.RenameColumnEvent):
            for row in self.rows[name].values():
                row[event.new_name] = row.pop(event.name)
        elif isinstance(event, events.AddColumnEvent):
            default = event.column.default
            for row in self.rows[name].values():
                row[event.column.name] = None if default is None else int(default)
        self.log.append(event)
        before = self.schemas.get(name, events.TableSchema(()))
        self.schemas[name] = before.apply(event)

    def _change(self, event: events.DataChangeEvent) -> None:
        schema, rows = self.schemas[event.table_id], self.rows[event.table_id]

        def row(values: tuple[Any, ...]) -> dict[str, Any]:
            return dict(zip(schema.names, values, strict=True))

        def key(values: tuple[Any, ...]) -> Any:
            return tuple(values[schema.get_position(name)] for name in schema.primary_key)

        if event.kind is RowKind.INSERT:
            assert event.after is not None
            assert key(event.after) not in rows, f"{event} is there already"
            rows[key(event.after)] = row(event.after)
        elif event.kind is RowKind.DELETE:
            assert event.before is not None
            assert rows.pop(key(event.before), None) is not None, f"{event} is not there"
        else:
            assert event.after is not None
            assert key(event.after) in rows, f"{event} is not there"
            if event.before is not None:
                assert list(row(event.before)) == list(schema.names)
            rows[key(event.after)] = row(event.after)


class Following(SourceRun):
    """A source of events that is read for as long as a test wants."""

    def __init__(self, read: PostgresEventSource, parallelism: int = 1) -> None:
        super().__init__(read, parallelism)
        self.target = Target()

    def step(self, at_once: int = 1_000) -> int:
        """Poll each reader once; how many changes of rows came."""
        count = 0
        for index in range(self.parallelism):
            if index in self.ended:
                continue
            before = len(self.values[index])
            self.hosts[index].now = int(time.monotonic() * 1_000)
            if self.poll(index, at_once) is InputStatus.NOTHING_AVAILABLE:
                self.deliver()
                time.sleep(0.002)
            for event in self.values[index][before:]:
                self.target.apply(event)
                count += isinstance(event, events.DataChangeEvent)
        return count

    def follow(self, wanted: Callable[[], bool], at_once: int = 1_000) -> None:
        deadline = time.monotonic() + 60
        while not wanted():
            assert time.monotonic() < deadline, self.target.rows
            self.step(at_once)

    def follow_tables(self, database: Database, *tables: str, at_once: int = 1_000) -> None:
        """Until their rows are there, and for a moment longer."""
        for table in tables:
            connection = database.server.connect(database.name)
            cursor = connection.execute(f"SELECT * FROM {table}".encode())
            names = [column.name for column in cursor.description or ()]
            wanted = sorted((dict(zip(names, row, strict=True)) for row in cursor), key=repr)
            connection.close()
            name = TableId("public", table)
            self.follow(lambda: sorted(self.target.rows.get(name, {}).values(), key=repr) == wanted, at_once)  # noqa: B023
        for _ in range(10):
            assert not self.step(at_once)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_many_tables_in_one_slot(database: Database, parallelism: int) -> None:
    database.execute(TABLES)
    cluster = Following(source(database), parallelism)
    cluster.follow_tables(database, "cups", "jars", "empty_ones")
    database.execute(
        "UPDATE cups SET name = 'x' WHERE id = 1; DELETE FROM jars WHERE id < 5; INSERT INTO empty_ones VALUES (1); "
        "UPDATE jars SET at = 9 WHERE id = 6; INSERT INTO cups VALUES (30, NULL)"
    )
    cluster.follow_tables(database, "cups", "jars", "empty_ones")
    names = {TableId("public", table) for table in ("cups", "jars", "empty_ones")}
    assert {event.table_id for event in cluster.target.log} == names
    assert cluster.target.schemas[TableId("public", "jars")].primary_key == ("at", "id")
    assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(1,)]
    cluster.close()


def test_schemas_change_between_rows(database: Database) -> None:
    database.execute(TABLES)
    cluster = Following(source(database, "cups"))
    cluster.follow_tables(database, "cups")
    database.execute("ALTER TABLE cups ADD COLUMN size int NOT NULL DEFAULT 5; UPDATE cups SET size = 6 WHERE id = 1")
    cluster.follow_tables(database, "cups")
    database.execute("ALTER TABLE cups RENAME COLUMN name TO title; INSERT INTO cups VALUES (40, 'y', 1)")
    database.execute(
        "ALTER TABLE cups ALTER COLUMN size TYPE bigint; UPDATE cups SET size = 1::bigint << 40 WHERE id = 2"
    )
    cluster.follow_tables(database, "cups")
    database.execute("ALTER TABLE cups DROP COLUMN title; DELETE FROM cups WHERE id = 3")
    database.execute("TRUNCATE cups; INSERT INTO cups VALUES (1, 2)")
    cluster.follow_tables(database, "cups")
    name = TableId("public", "cups")
    kinds = [type(event).__name__ for event in cluster.target.log]
    assert kinds == [
        "CreateTableEvent", "AddColumnEvent", "RenameColumnEvent", "AlterColumnTypeEvent", "DropColumnEvent",
        "TruncateTableEvent",
    ]  # fmt: skip
    added = cluster.target.log[1]
    assert isinstance(added, events.AddColumnEvent)
    assert (added.column.sql_type, added.column.is_nullable, added.column.default) == ("INT", False, "5")
    assert [(c.name, c.sql_type) for c in cluster.target.schemas[name].columns] == [("id", "INT"), ("size", "BIGINT")]
    cluster.close()


def test_several_changes_of_a_schema_are_told_apart_although_the_catalog_has_only_the_last(database: Database) -> None:
    database.execute(TABLES)
    cluster = Following(source(database, "cups"))
    cluster.follow_tables(database, "cups")
    for statement in (
        "ADD COLUMN a int",
        "RENAME COLUMN name TO b",
        "ADD COLUMN name int",
        "DROP COLUMN a",
        "RENAME COLUMN name TO a",
    ):
        database.execute(f"ALTER TABLE cups {statement}; INSERT INTO cups (id) SELECT max(id) + 1 FROM cups")
    cluster.follow_tables(database, "cups")
    assert cluster.target.schemas[TableId("public", "cups")].names == ("id", "b", "a")
    cluster.close()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_schemas_change_while_rows_are_read(database: Database, parallelism: int) -> None:
    """Rows that are read before and after go together: the change comes where the log has it."""
    database.execute(TABLES)
    database.execute("INSERT INTO cups SELECT n, 'c' || n FROM generate_series(21, 200) n")
    cluster = Following(source(database, "cups"), parallelism)
    cluster.follow(lambda: len(cluster.target.rows.get(TableId("public", "cups"), {})) > 30, 5)
    database.execute("UPDATE cups SET name = 'x' WHERE id IN (1, 150)")
    database.execute("ALTER TABLE cups ADD COLUMN size int DEFAULT 7")
    cluster.follow_tables(database, "cups", at_once=5)
    database.execute("UPDATE cups SET size = 8 WHERE id % 10 = 0")
    cluster.follow_tables(database, "cups", at_once=5)
    cluster.close()


@pytest.mark.parametrize("is_told", [True, False])
def test_schemas_change_again_while_rows_wait_for_the_log(database: Database, is_told: bool) -> None:
    """The catalog is older by then: the log has told a later change, which must not be undone."""
    database.execute(TABLES)
    database.execute("INSERT INTO cups SELECT n, 'c' || n FROM generate_series(21, 200) n")
    cluster = Following(source(database, "cups"))
    cluster.follow(lambda: len(cluster.target.rows.get(TableId("public", "cups"), {})) > 30, 5)
    database.execute("ALTER TABLE cups ADD COLUMN size int, ADD COLUMN spare int")
    if is_told:
        database.execute("INSERT INTO cups (id, size) VALUES (300, 1)")
    cluster.follow(lambda: bool(cluster.readers[0]._altered), 5)  # type: ignore[attr-defined]
    for statement in ("ALTER COLUMN size TYPE bigint", "RENAME COLUMN spare TO more", "DROP COLUMN more"):
        database.execute(f"ALTER TABLE cups {statement}; INSERT INTO cups (id) SELECT max(id) + 1 FROM cups")
    cluster.follow_tables(database, "cups", at_once=5)
    cluster.close()
    kinds = [type(event).__name__ for event in cluster.target.log]
    widened = ["AlterColumnTypeEvent"] if is_told else []  # otherwise the log has the column with the later type
    added = ["CreateTableEvent", "AddColumnEvent", "AddColumnEvent"]
    assert kinds == [*added, *widened, "RenameColumnEvent", "DropColumnEvent"]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_table_that_is_truncated_while_rows_are_read(database: Database, parallelism: int) -> None:
    database.execute(TABLES)
    database.execute("INSERT INTO cups SELECT n, 'c' || n FROM generate_series(21, 200) n")
    cluster = Following(source(database, "cups"), parallelism)
    cluster.follow(lambda: len(cluster.target.rows.get(TableId("public", "cups"), {})) > 30, 5)
    database.execute("TRUNCATE cups")
    database.execute("INSERT INTO cups SELECT n, 'd' || n FROM generate_series(10, 190) n")
    cluster.follow_tables(database, "cups", at_once=5)
    cluster.close()


def test_tables_that_appear_are_read_while_the_log_goes_on(database: Database) -> None:
    database.execute(TABLES)
    read = source(database, r"cups, jar\.*", adds_tables=True)
    cluster = Following(read)
    cluster.follow_tables(database, "cups", "jars")
    database.execute("CREATE TABLE jars2 (id int PRIMARY KEY); INSERT INTO jars2 SELECT generate_series(1, 50)")
    cluster.restart()
    cluster.follow(lambda: TableId("public", "jars2") in cluster.target.rows)
    database.execute(
        "INSERT INTO cups VALUES (31, 'z'); UPDATE jars2 SET id = 100 WHERE id = 49; DELETE FROM jars2 WHERE id = 2"
    )
    cluster.follow_tables(database, "cups", "jars", "jars2")
    cluster.close()
    database.execute("CREATE TABLE jars3 (id int PRIMARY KEY); INSERT INTO jars3 VALUES (1)")
    cluster.source = PostgresEventSource(replace(read.settings, adds_tables=False))
    cluster.restart()
    database.execute("INSERT INTO cups VALUES (32, 'z'); INSERT INTO jars3 VALUES (2)")
    cluster.follow_tables(database, "cups", "jars", "jars2")
    assert TableId("public", "jars3") not in cluster.target.rows
    cluster.close()


def test_a_restart_behind_the_catalog_and_tables_that_are_gone(database: Database) -> None:
    """The catalog has other columns than the log at its position; a table may be gone, but not be another one."""
    database.execute(TABLES)
    cluster = Following(source(database))
    cluster.follow_tables(database, "cups", "jars")
    state = cluster.snapshot()
    cluster.close()
    database.execute("INSERT INTO cups VALUES (60, 'a'); INSERT INTO jars VALUES (60, 60)")
    database.execute("ALTER TABLE cups RENAME COLUMN name TO title; ALTER TABLE cups DROP COLUMN title")
    database.execute("INSERT INTO cups VALUES (61); DROP TABLE jars")
    cluster.restart(state)
    cluster.follow_tables(database, "cups")
    assert (60, 60) in cluster.target.rows[TableId("public", "jars")]
    assert cluster.target.schemas[TableId("public", "cups")].names == ("id",)
    cluster.close()
    database.execute("CREATE TABLE jars (id int PRIMARY KEY)")
    cluster.target = Target()
    cluster.restart(state)
    with pytest.raises(OperationError, match="dropped and created again"):
        cluster.follow(lambda: False)
    cluster.close()


def test_changes_without_rows_begin_with_the_columns_of_the_log(database: Database) -> None:
    database.execute(TABLES)
    cluster = Following(source(database, "cups", startup="latest-offset"))
    cluster.follow(lambda: cluster.readers[0]._stream is not None)  # type: ignore[attr-defined]
    database.execute(
        "INSERT INTO cups VALUES (50, 'a'); ALTER TABLE cups ADD COLUMN n int; INSERT INTO cups VALUES (51, 'b', 1)"
    )
    cluster.follow(lambda: len(cluster.target.rows.get(TableId("public", "cups"), {})) == 2)
    kinds = [type(event).__name__ for event in cluster.target.log]
    assert kinds == ["CreateTableEvent", "AddColumnEvent"]
    assert cluster.target.schemas[TableId("public", "cups")].primary_key == ("id",)
    cluster.close()


def test_the_tables_alone(database: Database) -> None:
    database.execute(TABLES)
    cluster = Following(source(database, startup="snapshot"), 2)
    cluster.follow(lambda: len(cluster.ended) == 2)
    assert sum(map(len, cluster.target.rows.values())) == 40
    cluster.close()


def test_no_table_matches(database: Database) -> None:
    cluster = Following(source(database, r"tea.\.*"))
    with pytest.raises(MissingPathError, match="has no table"):
        cluster.follow(lambda: False)
