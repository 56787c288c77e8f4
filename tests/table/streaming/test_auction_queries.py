"""Queries over auctions of the connector `nexmark`, of the shapes that benchmarks ask: as DuckDB answers them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.sql.connectors.nexmark import COLUMNS, NexmarkColumnsSource, NexmarkSettings
from penstock.table import EnvironmentSettings, TableEnvironment

EVENTS, RATE = 3_000, 200
NUMBER, TEXT, TIME = "BIGINT", "STRING", "TIMESTAMP(3)"
BID = {"auction": NUMBER, "bidder": NUMBER, "price": NUMBER, "channel": TEXT, "url": TEXT, "dateTime": TIME}
AUCTION = {"id": NUMBER, "itemName": TEXT, "description": TEXT, "initialBid": NUMBER, "reserve": NUMBER}
AUCTION |= {"dateTime": TIME, "expires": TIME, "seller": NUMBER, "category": NUMBER}
EVENT = f"""
CREATE TABLE events (
    event_type INT,
    auction ROW<{", ".join(f"`{name}` {kind}" for name, kind in {**AUCTION, "extra": TEXT}.items())}>,
    bid ROW<{", ".join(f"`{name}` {kind}" for name, kind in {**BID, "extra": TEXT}.items())}>,
    seen AS CASE WHEN event_type = 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
    WATERMARK FOR seen AS seen - INTERVAL '1' SECOND
) WITH ('connector' = 'nexmark', 'events.num' = '{EVENTS}', 'first-event.rate' = '{RATE}', 'next-event.rate' = '{RATE}',
        'person.proportion' = '0')
"""
BIDS = "SELECT bid.auction, bid.bidder, bid.price, bid.url, seen FROM events WHERE event_type = 2"
AUCTIONS = "SELECT auction.id, auction.category, seen AS begun, auction.expires FROM events WHERE event_type = 1"
PAIRS = "auctions JOIN bids ON id = auction AND seen BETWEEN begun AND expires"
#: what is asked, and for DuckDB where it has other words
QUERIES: dict[str, tuple[str, str | None]] = {
    "join with a condition": (f"SELECT id, category, price FROM {PAIRS}", None),
    "highest of each": (f"SELECT id, MAX(price) FROM {PAIRS} GROUP BY id", None),
    "mean of the highest": (
        f"SELECT category, SUM(best) FROM (SELECT category, MAX(price) AS best FROM {PAIRS} GROUP BY id, category) "
        "GROUP BY category",
        None,
    ),
    "winner": (
        "SELECT id, bidder, price FROM (SELECT id, bidder, price, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price "
        f"DESC, seen) AS place FROM {PAIRS}) WHERE place = 1",
        None,
    ),
    "first three": (
        "SELECT auction, price, place FROM (SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY "
        "price DESC) AS place FROM bids) WHERE place <= 3",
        None,
    ),
    "last of each": (
        "SELECT auction, bidder, price FROM (SELECT auction, bidder, price, ROW_NUMBER() OVER (PARTITION BY auction, "
        "bidder ORDER BY seen DESC) AS place FROM bids) WHERE place = 1",
        None,
    ),
    "counts of many kinds": (
        "SELECT auction, COUNT(*), COUNT(*) FILTER (WHERE price < 10000), COUNT(DISTINCT bidder), COUNT(DISTINCT "
        "bidder) FILTER (WHERE price < 10000), MIN(price), MAX(price), SUM(price) FROM bids GROUP BY auction",
        None,
    ),
    "windows": (
        "SELECT window_start, auction, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(seen), INTERVAL '4' SECOND)) "
        "GROUP BY window_start, window_end, auction",
        "SELECT make_timestamp(epoch_ms(seen) // 4000 * 4000000) AS begun, auction, COUNT(*) FROM bids GROUP BY ALL",
    ),
    "highest of a window, and whose it is": (
        "SELECT auction, price FROM bids JOIN (SELECT MAX(price) AS best, window_start, window_end FROM TABLE(TUMBLE("
        "TABLE bids, DESCRIPTOR(seen), INTERVAL '4' SECOND)) GROUP BY window_start, window_end) ON price = best AND "
        "seen BETWEEN window_start AND window_end",
        "SELECT auction, price FROM (SELECT *, MAX(price) OVER (PARTITION BY epoch_ms(seen) // 4000) AS best FROM bids)"
        " WHERE price = best",
    ),
    "parts of text": (
        "SELECT auction, SPLIT_INDEX(url, '/', 3), REGEXP_EXTRACT(url, 'query=([0-9])', 1) FROM bids WHERE "
        "MOD(auction, 3) = 0",
        "SELECT auction, split_part(url, '/', 4), regexp_extract(url, 'query=([0-9])', 1) FROM bids WHERE "
        "auction % 3 = 0",
    ),
}


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    """The events in DuckDB."""
    source = NexmarkColumnsSource(NexmarkSettings(events=EVENTS, rate=RATE, persons=0), tuple(COLUMNS))
    chunk = source.chunk(0)
    assert chunk is not None
    assert len(chunk) == EVENTS
    connection = duckdb.connect()
    connection.register("made", pa.Table.from_arrays(chunk.columns.columns, list(COLUMNS)))
    connection.execute("CREATE TABLE events AS SELECT *, coalesce(auction.dateTime, bid.dateTime) AS seen FROM made")
    for name, query in (("bids", BIDS), ("auctions", AUCTIONS)):
        connection.execute(f"CREATE VIEW {name} AS {query}")
    return connection


@pytest.mark.parametrize(("parallelism", "mini_batch"), [(1, False), (2, True)])
@pytest.mark.parametrize("title", QUERIES)
def test_the_table_that_changes_come_to_is_duckdbs(
    title: str, parallelism: int, mini_batch: bool, duck: duckdb.DuckDBPyConnection
) -> None:
    query, in_duckdb = QUERIES[title]
    wanted = Counter(duck.execute(in_duckdb or query).fetchall())
    assert len(wanted) > 3
    assert run_query(query, parallelism, mini_batch) == wanted


def run_query(query: str, parallelism: int, mini_batch: bool) -> Counter[tuple[Any, ...]]:
    """How often each row is there in the end."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local").set("parallelism.default", str(parallelism))
    if mini_batch:
        tables.get_config().set("table.exec.mini-batch.enabled", "true")
        tables.get_config().set("table.exec.mini-batch.allow-latency", "1 s")
        tables.get_config().set("table.exec.mini-batch.size", "1000")
    for statement in (EVENT, f"CREATE VIEW bids AS {BIDS}", f"CREATE VIEW auctions AS {AUCTIONS}"):
        tables.execute_sql(statement)
    found: Counter[tuple[Any, ...]] = Counter()
    with tables.execute_sql(query).collect() as rows:
        for row in rows:
            found[tuple(row)] += 1 if row.get_row_kind().short_string in ("+I", "+U") else -1
    return Counter({row: times for row, times in found.items() if times})
