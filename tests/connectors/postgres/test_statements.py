"""What statements of JDBC are taken for."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigurationError
from penstock.connectors.postgres.client import Address, JdbcConnectionOptions, split_path
from penstock.connectors.postgres.sink import Statement

UPSERT = "INSERT INTO t (k, a, b) VALUES (?, ?, ?) ON CONFLICT (k) DO UPDATE SET a = EXCLUDED.a, b = excluded.b"


@pytest.mark.parametrize(
    ("sql", "executed", "count"),
    [
        ("INSERT INTO t VALUES (?, ?)", "INSERT INTO t VALUES (%s, %s)", 2),
        ("UPDATE t SET a = '?%' WHERE b = ?", "UPDATE t SET a = '?%%' WHERE b = %s", 1),
        ('DELETE FROM "a?" WHERE j ?? ? -- ?', 'DELETE FROM "a?" WHERE j ? %s -- ?', 1),
        ("SELECT $x$ ? $x$, ?, 5 % 2 /* ? */", "SELECT $x$ ? $x$, %s, 5 %% 2 /* ? */", 1),
    ],
)
def test_places_of_values(sql: str, executed: str, count: int) -> None:
    found = Statement.of(sql)
    assert (found.executed, found.count) == (executed, count)


def test_a_statement_without_values_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no \\? for the values"):
        Statement.of("SELECT '?'")


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        ("INSERT INTO t (a) VALUES (?)", None),
        ('insert into s."t" ("A", b)\nvalues ( ?,? ) ;', None),
        ("INSERT INTO t (a) VALUES (?) ON CONFLICT DO NOTHING", None),
        ("INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO NOTHING", None),
        (UPSERT, (0,)),
        ('INSERT INTO t (a, "K") VALUES (?, ?) ON CONFLICT ("K") DO UPDATE SET a = EXCLUDED.a', (1,)),
    ],
)
def test_plain_inserts(sql: str, key: tuple[int, ...] | None) -> None:
    plain = Statement.of(sql).plain
    assert plain is not None
    assert plain.key == key


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (?)",
        "INSERT INTO t (a, b) VALUES (?, 1)",
        "INSERT INTO t (a) VALUES (?) RETURNING a",
        "INSERT INTO t (k, a) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET a = t.a + EXCLUDED.a",
        # a row that was there keeps `b` of the first of two rows
        "INSERT INTO t (k, a, b) VALUES (?, ?, ?) ON CONFLICT (k) DO UPDATE SET a = EXCLUDED.a",
        "INSERT INTO t (k, a) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET a = EXCLUDED.k",
        "INSERT INTO t (k, a) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET a = EXCLUDED.a WHERE t.a > 1",
        "INSERT INTO t (k, a) VALUES (?, ?) ON CONFLICT ON CONSTRAINT c DO UPDATE SET a = EXCLUDED.a",
        "UPDATE t SET a = ?",
    ],
)
def test_others_are_executed_row_by_row(sql: str) -> None:
    assert Statement.of(sql).plain is None


def test_addresses() -> None:
    address = Address("jdbc:postgresql://h:5/d?currentSchema=s&ssl=true&reWriteBatchedInserts=true", "me", "secret")
    assert address.conninfo() == "postgresql://h:5/d?options=-c%20search_path%3Ds&sslmode=require"
    assert "secret" not in repr(address)
    assert Address("postgresql://me:secret@h/d").shown == "h/d"
    assert "secret" not in repr(JdbcConnectionOptions("postgresql://me:secret@h/d", password="secret"))
    with pytest.raises(ConfigurationError, match="PostgreSQL, MySQL and MariaDB"):
        Address("jdbc:oracle://h/d")
    with pytest.raises(ConfigurationError, match="'socketFactory'"):
        Address("jdbc:postgresql://h/d?socketFactory=x")


def test_paths() -> None:
    assert split_path('"a.b"."c""d".e') == ["a.b", 'c"d', "e"]
    assert split_path("a..b") == ["a", "", "b"]
