"""Spark frames for table plans: DataFrames built from Arrow tables and from bounded sources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.codecs.pickling import loads_named
from penstock.core.batch.splits import enumerate_splits
from penstock.core.connector import InputStatus, Source
from penstock.core.records import Batch
from penstock.drivers.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_ONCE = 10_000


def frame_of_arrow(session: SparkSession, table: pa.Table, schema: str) -> DataFrame:
    """Create a DataFrame from an Arrow table. `schema` describes its columns as a Spark schema in SQL syntax."""
    from pyspark.sql.types import StructType

    kinds = StructType.fromDDL(schema)
    assert isinstance(kinds, StructType)
    return session.createDataFrame(table, kinds)


def frame_of_source(
    session: SparkSession,
    source: Source[Any, Any],
    parallelism: int,
    columns_of: Callable[[Batch], pa.RecordBatch],
    schema: str,
) -> DataFrame:
    """Create a DataFrame that reads a bounded source, by its splits. `columns_of` runs where a batch is read."""
    source.prepare(lambda: None)
    limit = source.max_parallelism()
    parallelism = min(parallelism, limit or parallelism)
    splits = enumerate_splits(source, parallelism)
    reading = _Reading(source, columns_of, splits)
    return session.range(0, parallelism, 1, parallelism).mapInArrow(reading, schema)


@dataclass(frozen=True)
class _Reading:
    """Reads the splits of each subtask whose number it receives."""

    source: Source[Any, Any]
    columns_of: Callable[[Batch], pa.RecordBatch]
    splits: list[tuple[bytes, ...]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask in [number for batch in batches for number in batch.column(0).to_pylist()]:
            for rows in _read(self.source, subtask, self.splits):
                if len(rows):
                    yield self.columns_of(rows)


def _read(source: Source[Any, Any], subtask: int, splits: list[tuple[bytes, ...]]) -> Iterator[Batch]:
    reader = source.create_reader(_Context(subtask, len(splits)))
    try:
        reader.add_splits([loads_named(split, "a split") for split in splits[subtask]])
        reader.no_more_splits()
        reader.start()
        while True:
            result = reader.poll_next(_ROWS_AT_ONCE)
            if result is InputStatus.END_OF_INPUT:
                return
            if isinstance(result, Batch):
                reader.polls_in_vain = 0
                yield result
            else:
                reader.polls_in_vain += 1
                time.sleep(reader.retry_after_ms() / 1000)
    finally:
        reader.close()


class _Context:
    """Implements `SourceReaderContext`; all splits are assigned from the start."""

    def __init__(self, subtask_index: int, parallelism: int) -> None:
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self._clock = SystemClock()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def request_split(self) -> None:
        pass

    def count(self, name: str, increment: int = 1) -> None:
        pass

    def gauge(self, name: str, function: Callable[[], int | float]) -> None:
        pass

    def collect_side(self, tag_id: str, batch: Batch) -> None:
        pass

    def open_split(self, split_id: str) -> None:
        pass

    def close_split(self, split_id: str) -> None:
        pass
