"""Writes and reads PostgreSQL beside bare loops of psycopg that do the same, and prints the ratios.

scripts/run python -m benchmarks.postgres
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psycopg
from tests.servers.postgres import postgres_server

from penstock.connectors.postgres.cdc.source import PostgresSourceBuilder
from penstock.connectors.postgres.client import JdbcConnectionOptions
from penstock.connectors.postgres.scan import JdbcSource
from penstock.connectors.postgres.sink import JdbcSink
from penstock.runtime.records import Batch
from penstock.sql.tables.connector import read_whole
from penstock.testing.connectors import SinkHost, SourceRun

ROWS = 200_000
AT_ONCE = 5_000
INSERT = "INSERT INTO t (id, name, price) VALUES (?, ?, ?)"
UPSERT = INSERT + " ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, price = EXCLUDED.price"


def rows() -> Iterator[list[tuple[Any, ...]]]:
    for start in range(0, ROWS, AT_ONCE):
        yield [(n, f"name of {n}", n / 7) for n in range(start, start + AT_ONCE)]


def bare(url: str, sql: str) -> None:
    """What psycopg's documentation says to do."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for batch in rows():
            cursor.executemany(sql.replace("?", "%s").encode(), batch)
            connection.commit()


def by_sink(url: str, sql: str) -> None:
    writer = JdbcSink.sink(sql, None, JdbcConnectionOptions(url)).create_writer(SinkHost())
    for batch in rows():
        writer.write_batch(batch, None)
    writer.flush(True)
    writer.close()


def by_exactly_once_sink(url: str, sql: str) -> None:
    sink = JdbcSink.exactly_once_sink(sql, None, JdbcConnectionOptions(url))
    writer, committer = sink.create_writer(SinkHost()), sink.create_committer(SinkHost())
    assert committer is not None
    for number, batch in enumerate(rows()):
        writer.write_batch(batch, None)
        if number % 10 == 9:
            committer.commit(writer.prepare_commit())
    committer.commit(writer.prepare_commit())
    committer.close()


def bare_read(url: str) -> None:
    """What psycopg's documentation says to do."""
    with psycopg.connect(url) as connection, connection.cursor("all") as cursor:
        cursor.itersize = AT_ONCE
        cursor.execute("SELECT * FROM t")
        assert sum(1 for _ in cursor) == ROWS


def by_source(url: str) -> None:
    source = JdbcSource.builder().set_db_url(url).set_table_name("t").build()
    assert sum(batch.num_rows for batch in read_whole(source)) == ROWS


def by_changes(url: str) -> SimpleNamespace:
    """The log of a slot: inserts, of which the server has told all when the last one comes."""
    parts = urlsplit(url)
    builder = PostgresSourceBuilder().hostname(str(parts.hostname)).port(parts.port or 0).database(parts.path[1:])
    builder = builder.username(str(parts.username)).table_list("public.t").slot_name("changes")
    cluster = SourceRun(builder.startup_mode("latest-offset").changelog_mode("upsert").build())
    cluster.poll(0, AT_ONCE)
    cluster.deliver()
    cluster.poll(0, AT_ONCE)
    with psycopg.connect(url) as connection:
        connection.execute(
            f"INSERT INTO t SELECT {ROWS} + n, 'name of ' || n, n / 7.0 FROM generate_series(1, {ROWS}) n"
        )
    reader, count = cluster.readers[0], 0

    def read() -> None:
        nonlocal count
        while count < ROWS:
            found = reader.poll_next(AT_ONCE)
            if isinstance(found, Batch):
                count += len(found)

    found = timed(read)
    cluster.close()
    return found


def timed(work: Callable[[], Any]) -> SimpleNamespace:
    """The time that passes, most of which is the server's, and this process's own."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return SimpleNamespace(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)


def main() -> None:
    with postgres_server(max_wal_size="2GB") as server:
        for sql, title in ((INSERT, "insert"), (UPSERT, "upsert")):
            best: dict[str, SimpleNamespace] = {}
            ways = (bare, by_sink, by_exactly_once_sink)
            for way in [*ways, *ways]:
                server.execute(
                    "DROP TABLE IF EXISTS t, penstock_commits; "
                    "CREATE TABLE t (id int PRIMARY KEY, name text, price float8)"
                )
                found = timed(lambda way=way, sql=sql: way(server.url(), sql))  # type: ignore[misc]
                if way.__name__ not in best or found.wall < best[way.__name__].wall:
                    best[way.__name__] = found
            for name, found in best.items():
                ratio = best["bare"].wall / found.wall
                print(
                    f"{title} {name}: {ROWS / found.wall / 1000:.0f} k rows/s, {ratio:.1f} of bare; "
                    f"own time {found.cpu:.2f} s"
                )
        reads = [(timed(lambda: bare_read(server.url())), timed(lambda: by_source(server.url()))) for _ in range(3)]
        bare_wall, own_wall = (min(pair[place].wall for pair in reads) for place in (0, 1))
        changes = by_changes(server.url())
        print(f"changes: {ROWS / changes.wall / 1000:.0f} k rows/s, {ROWS / changes.cpu / 1000:.0f} k by own time")
        print(f"read: {ROWS / own_wall / 1000:.0f} k rows/s, {bare_wall / own_wall:.1f} of bare")


if __name__ == "__main__":
    main()
