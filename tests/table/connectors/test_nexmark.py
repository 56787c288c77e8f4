"""`nexmark`: the table of the benchmark's own DDL, its events, and restarts in the middle."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.table.connectors.tables import build_reader, read_rows, scan_of

from penstock.base.errors import UnsupportedError
from penstock.runtime.connector import Boundedness
from penstock.runtime.records import Batch
from penstock.sql.connectors.built_in import built_in
from penstock.sql.connectors.nexmark import CHUNK_EVENTS, COLUMNS, NexmarkColumnsSource, NexmarkSettings, NexmarkSplit
from penstock.sql.data.errors import ValidationError
from penstock.sql.tables.tables import ProjectionPushDown
from penstock.table import EnvironmentSettings, TableEnvironment
from penstock.testing.connectors import ReaderHost, SourceRun

pytestmark = pytest.mark.slow

PERSON = (
    "ROW<id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR, "
    "`dateTime` TIMESTAMP(3), extra VARCHAR>"
)
AUCTION = (
    "ROW<id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>"
)
BID = (
    "ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), "
    "extra VARCHAR>"
)
TABLE = f"""
CREATE TABLE t (
    event_type INT, person {PERSON}, auction {AUCTION}, bid {BID},
    `dateTime` AS CASE WHEN event_type = 0 THEN person.`dateTime` WHEN event_type = 1 THEN auction.`dateTime`
               ELSE bid.`dateTime` END,
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'nexmark', 'first-event.rate' = '10000', 'next-event.rate' = '10000', 'events.num' = '%d',
        'person.proportion' = '1', 'auction.proportion' = '3', 'bid.proportion' = '46'%s)
"""


def events(count: int, columns: tuple[str, ...] = tuple(COLUMNS), **more: Any) -> NexmarkColumnsSource:
    return NexmarkColumnsSource(NexmarkSettings(events=count, **more), columns)


def read_chunks(source: NexmarkColumnsSource) -> pa.Table:
    chunks: list[pa.RecordBatch] = []
    while (chunk := source.chunk(len(chunks))) is not None:
        chunks.append(chunk.columns)
    return pa.Table.from_batches(chunks)


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_each_event_comes_once(parallelism: int, hostile: bool) -> None:
    """G8: chunks are shared by subtasks, and each is the same whoever makes it."""
    count = 3 * CHUNK_EVENTS + 100
    expected = read_rows(events(count, ("event_type", "bid")))
    assert len(expected) == count
    found = read_rows(events(count, ("event_type", "bid")), parallelism, hostile)
    assert Counter(map(repr, found)) == Counter(map(repr, expected))
    if parallelism == 1:
        assert found == expected


def test_a_rate_stops_and_goes_on_in_the_middle_of_a_chunk() -> None:
    """The position is within the chunk."""
    source = NexmarkColumnsSource(NexmarkSettings(events=3_000, rate=1_000), ("event_type", "bid"), is_limited=True)
    cluster = SourceRun(source, 2)
    while len(cluster.ended) < 2:
        for host in cluster.hosts:
            host.now += 300
            if isinstance(cluster.poll(host.subtask_index, 1_000), Batch):
                cluster.restart()
        cluster.deliver()
    cluster.close()
    assert Counter(map(repr, map(tuple, cluster.all_values))) == Counter(
        map(repr, read_rows(events(3_000, ("event_type", "bid"), rate=1_000)))
    )


def test_a_subtask_reads_in_order_of_time_what_several_have_left() -> None:
    """G8: so nothing is late where fewer subtasks go on from a savepoint."""
    reader = events(3 * CHUNK_EVENTS, ("event_type",)).create_reader(ReaderHost())
    reader.start()
    reader.add_splits([NexmarkSplit(1, 2), NexmarkSplit(0, 2, 100)])
    reader.no_more_splits()
    found = []
    while isinstance(batch := reader.poll_next(1_000), Batch):
        found += batch.values
    assert list(map(tuple, found)) == read_rows(events(3 * CHUNK_EVENTS, ("event_type",)))[100:]


def test_a_subtask_leaves_the_chunks_of_others_alone() -> None:
    """G8: though they have not begun yet, it would be too late for them."""
    cluster = SourceRun(events(2 * CHUNK_EVENTS, ("event_type",)), 2)
    for subtask in (0, 1):
        while subtask not in cluster.ended:
            cluster.poll(subtask, CHUNK_EVENTS)
            cluster.deliver()
    cluster.close()
    assert [len(values) for values in cluster.values] == [CHUNK_EVENTS] * 2


def test_fewer_events_are_a_part_of_more() -> None:
    """Also their texts, which lie side by side in memory."""
    few, many = read_chunks(events(1_000)), read_chunks(events(CHUNK_EVENTS + 500))
    assert many.slice(0, 1_000).combine_chunks().equals(few.combine_chunks())


def test_columns_do_not_depend_on_each_other() -> None:
    """Those that nobody wants are not made."""
    whole, narrow = read_chunks(events(2_000)), read_chunks(events(2_000, ("bid", "event_type")))
    assert narrow.column(0).equals(whole.column(3))
    assert narrow.column(1).equals(whole.column(0))


def test_other_seeds_give_other_events() -> None:
    """And the same seed the same."""
    assert read_chunks(events(500)).equals(read_chunks(events(500)))
    assert not read_chunks(events(500)).equals(read_chunks(events(500, seed=1)))


def test_events_are_those_of_the_benchmark() -> None:
    """Proportions, and what belongs to what."""
    table = read_chunks(events(100_000))
    kinds = Counter(table.column(0).to_pylist())
    assert kinds == {0: 2_000, 1: 6_000, 2: 92_000}
    for place, kind in ((1, 0), (2, 1), (3, 2)):
        has_value = pc.is_valid(table.column(place)).to_pylist()
        assert has_value == [one == kind for one in table.column(0).to_pylist()]
    people = [one for one in table.column(1).to_pylist() if one]
    auctions = [one for one in table.column(2).to_pylist() if one]
    bids = [one for one in table.column(3).to_pylist() if one]
    assert [one["id"] for one in people] == list(range(1_000, 3_000))
    assert [one["id"] for one in auctions] == list(range(1_000, 7_000))
    assert {one["state"] for one in people} == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert {one["category"] for one in auctions} == {10, 11, 12, 13, 14}
    assert all(one["expires"] > one["dateTime"] and one["reserve"] > one["initialBid"] for one in auctions)
    begun = {one["id"]: one["dateTime"] for one in auctions}
    known = sum(one["auction"] in begun and begun[one["auction"]] <= one["dateTime"] for one in bids)
    assert known > 0.9 * len(bids)
    hot = Counter(one["auction"] % 100 for one in bids)
    assert 0.45 < hot[0] / len(bids) < 0.55
    assert 0.7 < Counter(one["bidder"] % 100 for one in bids)[1] / len(bids) < 0.8
    assert 0.7 < Counter(one["seller"] % 100 for one in auctions)[0] / len(auctions) < 0.8
    assert 0.45 < sum(one["channel"] in ("Google", "Facebook", "Baidu", "Apple") for one in bids) / len(bids) < 0.55
    assert all(100 <= one["price"] <= 100_000_000 for one in bids)


def test_events_are_of_the_size_that_is_asked_for() -> None:
    """On average, as the extra texts fill them up."""
    table = read_chunks(events(50_000, bid_bytes=200, person_bytes=400, auction_bytes=600))

    def size(one: dict[str, Any]) -> int:
        return sum(len(part) if isinstance(part, str) else 8 for part in one.values())

    people = [size(one) for one in table.column(1).to_pylist() if one]
    auctions = [size(one) for one in table.column(2).to_pylist() if one]
    assert 380 < sum(people) / len(people) < 420
    assert 580 < sum(auctions) / len(auctions) < 620
    extras = [len(one["extra"]) for one in table.column(3).to_pylist() if one]
    assert 160 < sum(extras) / len(extras) < 176


def test_times_go_by_the_rate() -> None:
    """They are the same in every run."""
    times = read_chunks(events(101, ("bid",), rate=50)).column(0)
    assert times[100].as_py() is None
    assert (times[99].as_py()["dateTime"] - times[4].as_py()["dateTime"]).total_seconds() == 1.9


def test_the_table_of_the_benchmark_is_queried() -> None:
    """With its computed column, its watermark, and a view."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    tables.execute_sql(TABLE % (5_000, ""))
    tables.execute_sql("CREATE VIEW bids AS SELECT bid.auction, bid.price, `dateTime` FROM t WHERE event_type = 2")
    query = (
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '1' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    with tables.execute_sql(query).collect() as rows:
        assert [row[1] for row in rows] == [4_600]


@pytest.mark.skipif("NEXMARK_DIR" not in os.environ, reason="NEXMARK_DIR does not name the benchmark's own files")
def test_the_ddl_of_the_benchmark_is_taken_unchanged() -> None:
    """Its table and its views."""
    folder = Path(os.environ["NEXMARK_DIR"])
    text = (folder / "ddl_gen.sql").read_text() + (folder / "ddl_views.sql").read_text()
    values = {"TPS": "1000", "EVENTS_NUM": "100", "PERSON_PROPORTION": "1", "AUCTION_PROPORTION": "3"}
    for key, value in {**values, "BID_PROPORTION": "46", "NEXMARK_TABLE": "datagen"}.items():
        text = text.replace(f"${{{key}}}", value)
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("execution.target", "local")
    for statement in filter(str.strip, text.split(";")):
        tables.execute_sql(statement)
    for view, count in (("person", 2), ("auction", 6), ("bid", 92)):
        with tables.execute_sql(f"SELECT * FROM {view}").collect() as rows:
            assert len(list(rows)) == count


def test_only_wanted_columns_are_made() -> None:
    """The planner says which."""
    scan = built_in().scan(scan_of(TABLE % (100, "")))
    assert isinstance(scan, ProjectionPushDown)
    assert read_rows(scan.with_columns((3,)).reader().source) == [row[3:] for row in read_rows(scan.reader().source)]


def test_without_a_number_events_come_for_ever() -> None:
    """`events.num` is 0 then."""
    assert build_reader(TABLE % (0, "")).source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TABLE % (1, ", 'bid.hot-ratio.auctions' = '0'"), "'bid.hot-ratio.auctions' .* it must be at least 1, not 0"),
        (TABLE % (-1, ""), "'events.num' .* it must be at least 0, not -1"),
        (TABLE % (1, ", 'stop-at' = '7'"), "Unsupported options found for 'nexmark' .*: stop-at"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'nexmark')", "cannot have a column 'a'. Its columns are event_ty"),
        ("CREATE TABLE t (bid INT) WITH ('connector' = 'nexmark')", "Column 'bid' .* must be of type ROW<.*not INT"),
    ],
)
def test_what_no_event_has_is_refused(text: str, said: str) -> None:
    """With what there is."""
    with pytest.raises(ValidationError, match=said):
        build_reader(text)


def test_a_rate_that_changes_is_not_supported() -> None:
    """It is said, and not left out."""
    with pytest.raises(UnsupportedError, match=r"'next-event.rate' must be the same as 'first-event.rate'"):
        build_reader((TABLE % (1, "")).replace("'next-event.rate' = '10000'", "'next-event.rate' = '5'"))
