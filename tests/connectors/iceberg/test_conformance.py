"""The source and the sink of Iceberg keep the rules of connectors, by the kit of `penstock.testing.connectors`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.connectors.iceberg.lake import Lake

from penstock.connectors.iceberg.sink import IcebergSink
from penstock.connectors.iceberg.source import IcebergSource
from penstock.datastream.connectors.iceberg import StreamingStartingStrategy
from penstock.testing.connectors import (
    SINK_CASES,
    SOURCE_CASES,
    SinkUnderTest,
    SourceUnderTest,
    check_sink,
    check_source,
    last_of_each,
)

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = [(number, f"row {number}") for number in range(12)]
CHANGES = [(number % 5, f"change {number}") for number in range(12)]


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[Lake]:
    """A fresh one for each use."""
    return (Lake(tmp_path / str(number)).create() for number in range(1_000))


def snapshots(lake: Lake) -> int:
    with lake.loader("t").catalog.load_catalog() as catalog:
        return len(catalog.load_table("db.t").snapshots()) if catalog.table_exists("db.t") else 0


def read_rows(lake: Lake) -> list[Any]:
    return lake.rows("t") if snapshots(lake) else []


def key(row: Any) -> int:
    return int(row[0])


@pytest.mark.parametrize("case", SINK_CASES)
def test_rows_that_are_added(lakes: Iterator[Lake], case: str) -> None:
    def prepare() -> SinkUnderTest:
        lake = next(lakes)
        sink = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("t")).create_table().build()
        return SinkUnderTest(sink, ROWS, lambda: read_rows(lake), commits=lambda: snapshots(lake))

    check_sink(prepare, case, parallelisms=[2], places=2)


@pytest.mark.parametrize("case", SINK_CASES)
def test_rows_that_are_changed_by_key(lakes: Iterator[Lake], case: str) -> None:
    def prepare() -> SinkUnderTest:
        lake = next(lakes)
        made = IcebergSink.for_row(SCHEMA).table_loader(lake.loader("t")).create_table()
        return SinkUnderTest(
            made.equality_field_columns("id").build(),
            CHANGES,
            lambda: read_rows(lake),
            shown=last_of_each(key),
            key=key,
            commits=lambda: snapshots(lake),
        )

    check_sink(prepare, case, parallelisms=[2], places=2)


def append(lake: Lake, first: int) -> None:
    with lake.loader("t").opened() as table:
        table.append(pa.table({"id": range(first, first + 4), "text": ["a"] * 4}, SCHEMA))


@pytest.mark.parametrize("case", SOURCE_CASES)
@pytest.mark.parametrize("follows", [False, True])
def test_a_table_that_is_read(lakes: Iterator[Lake], follows: bool, case: str) -> None:
    def prepare() -> SourceUnderTest:
        lake = next(lakes)
        with lake.loader("t").catalog.load_catalog() as catalog:
            catalog.create_table("db.t", SCHEMA)
        append(lake, 0)
        append(lake, 4)
        builder = IcebergSource.builder().table_loader(lake.loader("t"))
        if not follows:
            return SourceUnderTest(builder.build(), range(8), result=ids, real_time=True)
        source = builder.streaming(True).monitor_interval(1)
        return SourceUnderTest(
            source.starting_strategy(StreamingStartingStrategy.TABLE_SCAN_THEN_INCREMENTAL).build(),
            range(16),
            extend=[lambda: append(lake, 8), lambda: append(lake, 12)],
            result=ids,
            real_time=True,
        )

    check_source(prepare, case, parallelisms=[2], batch_sizes=[3], places=3)


def ids(rows: list[Any]) -> list[int]:
    return [row.id for row in rows]
