"""ALTER TABLE as the server executes it, and as the parser reads it, are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.servers.mysql import MARIADB, MYSQL, MySqlServer, mysql_server

from penstock.base.errors import UnsupportedError
from penstock.connectors.cdc.events import TableId
from penstock.connectors.mysql import client
from penstock.connectors.mysql.cdc.binlog import QueryEvent
from penstock.connectors.mysql.cdc.ddl import StatementContext, apply_statement
from penstock.connectors.mysql.cdc.tables import (
    TableDefinition,
    TypeMapping,
    read_charset,
    read_definitions,
)

TYPES = [
    "INT", "INTEGER UNSIGNED", "int(11) unsigned zerofill", "TINYINT(1)", "BOOL", "BIGINT SIGNED", "MEDIUMINT", "INT2",
    "DECIMAL", "NUMERIC(7)", "DEC(12,3)", "FIXED (5, 2)", "FLOAT", "FLOAT(30)", "FLOAT(7,3)", "REAL",
    "DOUBLE PRECISION",
    "CHAR", "CHARACTER(5)", "VARCHAR(20)", "CHARACTER VARYING(9)", "NATIONAL CHAR(3)", "NCHAR VARCHAR(4)",
    "VARCHAR(10) CHARACTER SET latin1", "VARCHAR(10) CHARSET utf8mb4 COLLATE utf8mb4_bin",
    "CHAR(3) COLLATE latin1_swedish_ci",
    "CHAR(5) ASCII", "CHAR(4) BYTE", "TEXT", "MEDIUMTEXT CHARACTER SET ucs2", "TINYTEXT", "LONG", "BINARY(3)",
    "VARBINARY(12)",
    "BLOB", "BIT", "BIT(13)", "DATE", "TIME", "TIME(3)", "DATETIME", "DATETIME(6)", "TIMESTAMP NULL",
    "TIMESTAMP(2) NULL",
    "YEAR", "ENUM('a', 'b,c', 'it''s', '(x)')", "SET('one','two') CHARACTER SET latin1", "JSON", "POINT",
]  # fmt: skip
AFTER = [
    "",
    "",
    "NULL",
    "COMMENT 'a comment, with (brackets)'",
    'COMMENT "DROP COLUMN x"',
    "/* ADD x INT, */",
    "-- ADD\n",
]


@pytest.fixture(scope="module", params=[MYSQL, MARIADB])
def server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    with mysql_server(request.param) as started:
        yield started


class Changing:
    """A table that is altered at random."""

    def __init__(self, chance: random.Random, names: list[str]) -> None:
        self._chance = chance
        self.names = names

    def statement(self) -> str:
        actions = [self._action() for _ in range(self._chance.choice([1, 1, 2, 3]))]
        verb = self._chance.choice(["ALTER TABLE", "alter table", "/*!50000 ALTER */ TABLE", "ALTER  TABLE"])
        return f"{verb} {self._chance.choice(['t', '`t`'])} {', '.join(actions)}"

    def _action(self) -> str:
        chance = self._chance
        old, other = chance.choice(self.names), chance.choice(self.names)
        new = self._new_name()
        kind = f"{chance.choice(TYPES)} {chance.choice(AFTER)}"
        where = chance.choice(["", "", "FIRST", f"AFTER {quote(other)}"])
        return chance.choice(
            [
                f"ADD COLUMN {quote(new)} {kind} {where}",
                f"ADD {quote(new)} {kind}",
                f"ADD ({quote(new)} {kind}, {quote(self._new_name())} INT)",
                f"DROP COLUMN {quote(old)}",
                f"DROP {quote(old)}",
                f"MODIFY {quote(old)} {kind} {where}",
                f"CHANGE {quote(old)} {quote(chance.choice([new, old]))} {kind} {where}",
                f"RENAME COLUMN {quote(old)} TO {quote(new)}",
                f"CHANGE COLUMN {quote(old)} {quote(new)} {kind}",
                f"ADD INDEX i{chance.randrange(1000)} ({quote(old)})",
                "ENGINE = InnoDB",
                "COMMENT = 'ADD x INT, (y'",
                f"ALTER COLUMN {quote(old)} DROP DEFAULT",
                "ORDER BY id",
                "CONVERT TO CHARACTER SET latin1",
                "DEFAULT CHARACTER SET utf8mb4",
                "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
            ]
        )

    def _new_name(self) -> str:
        stem = self._chance.choice(["c", "add", "key", "a b", "first", "x`y", "Ü", "check"])
        return f"{stem}{self._chance.randrange(9999)}"


def quote(name: str) -> str:
    return client.quoted(name)


def simplify(definition: TableDefinition) -> Any:
    """What matters: texts of all sizes are the same, and collations are for chunks, which do not come from here."""
    columns = []
    for column in definition.columns:
        kind = "text" if column.kind.endswith("text") else "blob" if column.kind.endswith("blob") else column.kind
        charset = None if kind in ("enum", "set") else column.charset
        columns.append(replace(column, kind=kind, charset=charset, collation=None, default=None))
    return columns, definition.primary_key, definition.charset


def run(server: MySqlServer, name: str, sql: str, known: TableDefinition, connection: Any) -> TableDefinition:
    context = StatementContext(
        lambda table_id: None,
        TypeMapping(),
        lambda table_id: True,
        lambda schema: read_charset(connection, schema),
        server.dialect == MARIADB,
    )
    event = QueryEvent(name, sql, False, True, 0, 0)
    ((_, definition, events),) = apply_statement(event, {known.table_id: known}, context)
    assert definition is not None
    schema = TypeMapping().describe(known)
    for change in events:
        schema = schema.apply(change)
    assert schema == TypeMapping().describe(definition), sql
    return definition


def test_random_statements_make_what_the_server_makes_of_them(server: MySqlServer) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    name = server.new_database()
    connection = server.connect(name)
    table_id = TableId(name, "t")
    executed = 0
    for _ in range(6):
        columns = ", ".join(f"c{n} {chance.choice(TYPES)} {chance.choice(AFTER[:4])}" for n in range(4))
        options = chance.choice(["", "CHARSET latin1"])
        sql = f"CREATE TABLE t (id INT NOT NULL, {columns}, PRIMARY KEY (id), KEY (id)) {options}"
        client.execute(connection, "DROP TABLE IF EXISTS t")
        client.execute(connection, sql)
        known = run(server, name, sql, TableDefinition(table_id, ()), connection)
        actual = read_definitions(connection, name, ["t"])[table_id]
        assert simplify(known) == simplify(actual), sql
        for _ in range(25):
            changing = Changing(chance, [column.name for column in actual.columns if column.name != "id"] or ["id"])
            sql = changing.statement()
            with suppress(client.load_library().err.MySQLError):
                client.execute(connection, sql)
                known = run(server, name, sql, actual, connection)
                actual = read_definitions(connection, name, ["t"])[table_id]
                assert simplify(known) == simplify(actual), sql
                executed += 1
    assert executed > 20
    connection.close()


def test_statements_that_are_not_about_captured_tables_change_nothing() -> None:
    context = StatementContext(lambda _: None, TypeMapping(), lambda _: False, lambda _: (None, None), False)
    known = {TableId("db", "t"): TableDefinition(TableId("db", "t"), ())}
    for sql in (
        "CREATE VIEW v AS SELECT 1",
        "ALTER TABLE other ADD x INT",
        "ALTER DATABASE db CHARACTER SET utf8mb4",
        "CREATE TEMPORARY TABLE t (x INT)",
        "DROP VIEW t",
        "CREATE USER a IDENTIFIED BY 'b'",
        "CREATE FUNCTION f() RETURNS INT RETURN 1; DROP TABLE t",
        "ANALYZE TABLE t",
        "CREATE INDEX i ON t (x)",
        "GRANT ALL ON *.* TO a",
    ):
        assert apply_statement(QueryEvent("db", sql, False, True, 0, 0), known, context) == [], sql


def test_a_table_that_is_renamed_into_a_captured_one_is_refused() -> None:
    context = StatementContext(lambda _: None, TypeMapping(), lambda _: True, lambda _: (None, None), False)
    for sql in ("RENAME TABLE g TO t", "ALTER TABLE g RENAME TO t"):
        with pytest.raises(UnsupportedError, match="begin without the state"):
            apply_statement(QueryEvent("db", sql, False, True, 0, 0), {}, context)
