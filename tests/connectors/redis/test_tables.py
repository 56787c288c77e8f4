"""The connector `redis` of tables: what it writes, looks up and reads."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.connectors.postgres.test_tables import collected
from tests.connectors.postgres.test_tables import environment as create_environment
from tests.servers.redis import RedisServer
from tests.table.connectors.tables import build_reader

from penstock.base.errors import JobExecutionError, UnsupportedError
from penstock.connectors.redis.client import Command
from penstock.sql.data.errors import ValidationError
from penstock.table import TableEnvironment
from penstock.testing.connectors import SOURCE_CASES, SourceUnderTest, check_source


def environment() -> TableEnvironment:
    """One that writes rows as they come: those of a test have different keys, or are in order."""
    tables = create_environment()
    tables.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    return tables


def ddl(server: RedisServer, columns: str, name: str = "t", more: str = "", url: str = "") -> str:
    options = f"'connector' = 'redis', 'url' = '{url or server.url}', 'key-prefix' = '{name}:'"
    return f"CREATE TABLE {name} ({columns}) WITH ({options}{more})"


def hashes(server: RedisServer, pattern: str = "*") -> dict[str, dict[str, str]]:
    """The hashes of the server, by key."""
    (keys,) = server.call(("KEYS", pattern))
    found = server.call(*[("HGETALL", key) for key in keys]) if keys else []
    return {
        key.decode(): dict(zip(*[iter([part.decode() for part in parts])] * 2, strict=True))
        for key, parts in zip(keys, found, strict=True)
    }


KEY = ", PRIMARY KEY (id) NOT ENFORCED"
TYPES = (
    "id BIGINT, b BOOLEAN, ti TINYINT, f FLOAT, d DOUBLE, de DECIMAL(20, 5), s STRING, c CHAR(3), y BYTES, da DATE, "
    "tm TIME(0), ts TIMESTAMP(9), lt TIMESTAMP_LTZ(3)"
)
VALUES = (
    "(-9223372036854775807, TRUE, CAST(-128 AS TINYINT), CAST(1.5 AS FLOAT), CAST('-Infinity' AS DOUBLE), "
    "CAST(100000.25 AS DECIMAL(20, 5)), 'a\"\\,: ü', CAST('x' AS CHAR(3)), x'00ff3a', DATE '2020-02-29', "
    "TIME '12:30:01', TIMESTAMP '1960-01-01 00:00:00.000000001', TO_TIMESTAMP_LTZ(1, 3))"
)
NULLS = f"(7, {', '.join(f'CAST(NULL AS {kind})' for kind in ('BOOLEAN', 'TINYINT', 'FLOAT', 'DOUBLE'))}, " + (
    "CAST(NULL AS DECIMAL(20, 5)), '', CAST(NULL AS CHAR(3)), x'', CAST(NULL AS DATE), CAST(NULL AS TIME(0)), "
    "CAST(NULL AS TIMESTAMP(9)), CAST(NULL AS TIMESTAMP_LTZ(3)))"
)


def test_all_types_come_back(server: RedisServer) -> None:
    tables = environment()
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(ddl(server, TYPES + KEY))
    rows = f"VALUES {VALUES}, {NULLS}"
    tables.execute_sql(f"INSERT INTO t {rows}").wait()
    assert hashes(server, "t:7") == {"t:7": {"id": "7", "s": "", "y": ""}}
    assert collected(tables, "SELECT * FROM t") == collected(tables, f"SELECT * FROM ({rows})")


def test_upserts_and_deletions_by_key(server: RedisServer) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "k INT, j STRING, total BIGINT, PRIMARY KEY (k, j) NOT ENFORCED"))
    server.call(("HSET", "t:7:", "total", 1))
    view = (
        "CREATE VIEW v AS SELECT k, j, SUM(x) AS total FROM "
        "(VALUES (1, 'a:b%', 1), (1, 'a:b%', 2), (2, '', 5), (2, '', 4), (7, '', 3)) AS s (k, j, x) GROUP BY k, j"
    )
    tables.execute_sql(view)
    tables.execute_sql("INSERT INTO t SELECT k, j, total FROM v").wait()
    found = hashes(server)
    assert found["t:1:a%3Ab%25"] == {"k": "1", "j": "a:b%", "total": "3"}
    assert collected(tables, "SELECT * FROM t") == [(1, "a:b%", 3), (2, "", 9), (7, "", 3)]
    tables.execute_sql("INSERT INTO t SELECT k, j, total FROM v WHERE total < 9").wait()
    tables.execute_sql("INSERT INTO t VALUES (1, 'a:b%', CAST(NULL AS BIGINT))").wait()
    assert hashes(server)["t:1:a%3Ab%25"] == {"k": "1", "j": "a:b%"}


def test_rows_that_go(server: RedisServer) -> None:
    """A group that falls below a limit is deleted."""
    tables = environment()
    tables.execute_sql(ddl(server, "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED"))
    tables.execute_sql(
        "INSERT INTO t SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM (VALUES (1), (2), (1), (1)) AS s (k) GROUP BY k) "
        "WHERE n < 3"
    ).wait()
    assert hashes(server) == {"t:2": {"k": "2", "n": "1"}}


def test_rows_expire(server: RedisServer) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "id INT, v INT" + KEY, more=", 'ttl' = '1 h'"))
    tables.execute_sql("INSERT INTO t VALUES (1, 2), (2, CAST(NULL AS INT))").wait()
    assert all(0 < left <= 3_600_000 for left in server.call(("PTTL", "t:1"), ("PTTL", "t:2")))


@pytest.mark.parametrize("mode", ["STREAMING", pytest.param("BATCH", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_a_scan_reads_what_others_have_written(server: RedisServer, mode: str) -> None:
    """Many keys, also such that look like a pattern, and hashes without fields for the key."""
    tables = environment()
    tables.get_config().set("execution.runtime-mode", mode)
    server.call(*[("HSET", f"t*:{n}", "v", n * n) for n in range(1_200)], ("HSET", "tt:1", "v", 1))
    server.call(("HSET", "t*:5000", "other", 1))
    tables.execute_sql(
        "CREATE TABLE t (id INT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'redis', "
        f"'url' = '{server.url}', 'key-prefix' = 't*:')"
    )
    query = "SELECT COUNT(*), SUM(id), SUM(v) FROM t"
    assert max(collected(tables, query)) == (1_200, sum(range(1_200)), sum(n * n for n in range(1_200)))
    assert collected(tables, "SELECT v FROM t WHERE id = 9") == [(81,)]


PARTIAL = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '100'"
FULL = ", 'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '1 h'"


def add_orders(tables: TableEnvironment) -> None:
    tables.execute_sql(
        "CREATE TABLE orders (n BIGINT, who AS CAST(n AS INT) / 3, pt AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '40', 'rows-per-second' = '100000')"
    )


@pytest.mark.parametrize("cache", ["", PARTIAL, FULL])
def test_look_up_join(server: RedisServer, cache: str) -> None:
    server.call(*[("HSET", f"people:{n}", "name", f"p{n}") for n in range(10)])
    tables = environment()
    tables.execute_sql(ddl(server, "id INT, name STRING" + KEY, "people", cache))
    add_orders(tables)
    join = "JOIN people FOR SYSTEM_TIME AS OF o.pt AS p ON p.id = o.who"
    found = collected(tables, f"SELECT o.n, p.name FROM orders o LEFT {join}")
    assert found == sorted([(n, f"p{n // 3}" if n < 30 else None) for n in range(41)], key=repr)
    assert len(collected(tables, f"SELECT o.n FROM orders o {join} AND p.name <> 'p1'")) == 27


def test_look_ups_by_several_columns(server: RedisServer) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "a STRING, b INT, v INT, PRIMARY KEY (a, b) NOT ENFORCED", "t"))
    tables.execute_sql("INSERT INTO t VALUES ('x:1', 2, 10), ('x', 12, 11)").wait()
    add_orders(tables)
    join = "JOIN t FOR SYSTEM_TIME AS OF o.pt AS t ON t.b = o.who AND t.a = 'x:' || CAST(1 AS STRING)"
    assert collected(tables, f"SELECT o.n, t.v, t.a FROM orders o {join}") == [(n, 10, "x:1") for n in (6, 7, 8)]
    with pytest.raises(ValidationError, match=r"found by their whole primary key, \(a, b\)"):
        tables.execute_sql("SELECT * FROM orders o JOIN t FOR SYSTEM_TIME AS OF o.pt AS t ON t.b = o.who")


@pytest.mark.slow
@pytest.mark.parametrize("case", SOURCE_CASES)
def test_the_scan_keeps_the_rules(server: RedisServer, case: str) -> None:
    server.call(*[("HSET", f"t:{n}", "v", n) for n in range(14)])
    statement = ddl(server, "id INT, v INT" + KEY)

    def prepare() -> SourceUnderTest:
        expected = [(n, n) for n in range(14)]
        return SourceUnderTest(build_reader(statement).source, expected, result=lambda rows: list(map(tuple, rows)))

    check_source(prepare, case, parallelisms=[1, 2], batch_sizes=[3], places=4)


def test_values_of_other_types_are_errors(server: RedisServer) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "id INT, v INT, s STRING" + KEY))
    wrong: list[tuple[str, Command, str]] = [
        ("t:1", ("HSET", "t:1", "v", "tea"), "column 'v' of key b't:1' is 'tea', which is no INT"),
        ("t:x", ("HSET", "t:x", "v", 1), "column 'id' of key b't:x' is 'x', which is no INT"),
        ("t:2", ("HSET", "t:2", "s", b"\xff"), "column 's' has bytes that are no text"),
        ("t:3", ("SET", "t:3", "1"), "wrong kind of value"),
    ]
    for key, command, message in wrong:
        server.call(("FLUSHALL",), command)
        with pytest.raises(JobExecutionError) as raised:
            collected(tables, "SELECT * FROM t")
        assert message in str(raised.value), key


def test_tables_that_are_refused(server: RedisServer) -> None:
    tables = environment()
    tables.execute_sql(ddl(server, "id INT", "a"))
    with pytest.raises(ValidationError, match="declares no PRIMARY KEY"):
        tables.execute_sql("INSERT INTO a VALUES (1)")
    tables.execute_sql(ddl(server, "id INT, l ARRAY<INT>" + KEY, "b"))
    with pytest.raises(UnsupportedError, match=r"column 'l' of table .* is ARRAY<INT>, which a field"):
        tables.execute_sql("SELECT * FROM b")
    tables.execute_sql(ddl(server, "id INT" + KEY, "c", url="localhost:6379"))
    with pytest.raises(ValidationError, match="begins with redis://"):
        tables.execute_sql("SELECT * FROM c")
    tables.execute_sql(ddl(server, "id INT" + KEY, "d", ", 'sink.batch.max-size' = '0'"))
    with pytest.raises(ValidationError, match="max_batch_size is 0; it must be positive"):
        tables.execute_sql("INSERT INTO d VALUES (1)")
    tables.execute_sql(ddl(server, "id INT" + KEY, "e", ", 'password' = 'x'", "redis://:y@localhost"))
    with pytest.raises(ValidationError, match="it has a user, and so do username or password"):
        tables.execute_sql("SELECT * FROM e")


def test_passwords_are_hidden(server: RedisServer) -> None:
    server.call(("ACL", "SETUSER", "reader", "on", ">let:me@in12", "~*", "+@all"))
    tables = environment()
    tables.execute_sql(ddl(server, "id INT" + KEY, "t", ", 'username' = 'reader', 'password' = 'let:me@in12'"))
    tables.execute_sql("INSERT INTO t VALUES (1)").wait()
    assert collected(tables, "SELECT * FROM t") == [(1,)]
    server.call(("ACL", "DELUSER", "reader"))
    with pytest.raises(JobExecutionError) as raised:
        collected(tables, "SELECT * FROM t")
    assert "let:me" not in str(raised.value)
    assert "WRONGPASS" in str(raised.value) or "invalid" in str(raised.value)


# --- streams --------------------------------------------------------------------------------------------------------

STREAM_COLUMNS = (
    "id STRING METADATA, n BIGINT, s STRING, d DECIMAL(5, 2), y BYTES, origin STRING METADATA FROM 'stream', "
    "moment TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', fields MAP<STRING, STRING> METADATA"
)


def stream_ddl(server: RedisServer, columns: str, more: str = "", streams: str = "a;b") -> str:
    options = f"'connector' = 'redis-streams', 'url' = '{server.url}', 'streams' = '{streams}'"
    return f"CREATE TABLE entries ({columns}) WITH ({options}{more})"


@pytest.mark.parametrize("mode", [pytest.param("BATCH", marks=pytest.mark.slow), "STREAMING"])
def test_entries_of_streams_are_rows(server: RedisServer, mode: str) -> None:
    server.call(("XADD", "a", "1700-3", "n", 1, "s", "ü", "d", "1.5", "y", b"\xff"), ("XADD", "b", "1800-0", "n", 2))
    tables = environment()
    tables.get_config().set("execution.runtime-mode", mode)
    tables.get_config().set("table.local-time-zone", "UTC")
    tables.execute_sql(stream_ddl(server, STREAM_COLUMNS, ", 'scan.bounded.mode' = 'latest'"))
    rows = collected(tables, "SELECT id, n, s, d, y, origin, CAST(moment AS STRING), fields['n'] FROM entries")
    assert sorted(rows, key=str) == [
        ("1700-3", 1, "ü", Decimal("1.50"), b"\xff", "a", "1970-01-01 00:00:01.700", "1"),
        ("1800-0", 2, None, None, None, "b", "1970-01-01 00:00:01.800", "2"),
    ]


def test_a_group_reads_entries_as_rows(server: RedisServer) -> None:
    server.call(*[("XADD", "a", "*", "n", n) for n in range(30)])
    tables = environment()
    tables.execute_sql(stream_ddl(server, "n BIGINT, id STRING METADATA", ", 'scan.group' = 'g'", "a"))
    with tables.execute_sql("SELECT n FROM entries WHERE id IS NOT NULL").collect() as rows:
        assert sorted(next(rows)[0] for _ in range(30)) == list(range(30))


def test_stream_tables_that_are_refused(server: RedisServer) -> None:
    server.call(("XADD", "a", "*", "n", "many"))
    group = ", 'scan.group' = 'g'"
    cases = [
        (stream_ddl(server, "n BIGINT, PRIMARY KEY (n) NOT ENFORCED"), "streams only grow"),
        (stream_ddl(server, "n ARRAY<INT>"), "which a field of a stream does not hold"),
        (stream_ddl(server, "n BIGINT", f"{group}, 'scan.bounded.mode' = 'latest'"), "a consumer group has no end"),
        (stream_ddl(server, "n BIGINT", ", 'scan.consumer' = 'c'"), "only a table with 'scan.group' has consumers"),
        (stream_ddl(server, "n BIGINT", streams="a;a"), "name each stream"),
        (stream_ddl(server, "n BIGINT", ", 'scan.bounded.mode' = 'latest'"), "'many', which is no BIGINT"),
    ]
    for statement, message in cases:
        with pytest.raises((ValidationError, UnsupportedError, JobExecutionError), match=message):
            select_all(statement)


def select_all(statement: str) -> None:
    tables = environment()
    tables.execute_sql(statement)
    collected(tables, "SELECT * FROM entries")
