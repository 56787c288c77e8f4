"""The connector `nexmark` with events that are made before, so that a run measures the query and not the generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark_sql.kept import Kept, KeptConnector
from benchmarks.nexmark_sql.latency import LATENCIES, LatencyConnector
from penstock.codecs.column_data import COLUMN_BATCH_ROWS
from penstock.connectors.split_reader import RateLimiterStrategy
from penstock.runtime.columns import ColumnBatch
from penstock.runtime.connector import InputStatus, SourceReader, SourceReaderContext
from penstock.runtime.records import Batch
from penstock.sql.connectors.filesystem.connector import FilesystemConnector
from penstock.sql.connectors.nexmark import (
    CHUNK_EVENTS,
    NexmarkColumnsSource,
    NexmarkConnector,
    NexmarkScan,
    NexmarkSettings,
    NexmarkSplit,
)
from penstock.sql.connectors.spark import BlackholeConnector
from penstock.sql.formats import built_in_formats
from penstock.sql.logical.nodes import Scan
from penstock.sql.tables.connector import Connectors, TableOptions
from penstock.sql.tables.tables import NestedPushDown, Path, ProjectionPushDown, TableReader, TableScan, column_names

#: how many chunks come at once where speed is measured: as many events as a source of files hands over at a time
AT_ONCE: Final = COLUMN_BATCH_ROWS // CHUNK_EVENTS
#: what is held of a column, by the events' settings, the column's name, how many chunks are one, and its number
_MADE: Final[dict[tuple[NexmarkSettings, str, int, int], pa.Array]] = {}
#: the same of several columns
_CHUNKS: Final[dict[tuple[NexmarkSettings, tuple[str, ...], int, int], pa.RecordBatch]] = {}
#: the columns that readers of this process have asked for
_ASKED: Final[set[tuple[str, ...]]] = set()
_NAMES: Final = ("event_type", "person", "auction", "bid")
#: set by a source of this process when all of its events are out
ALL_OUT: Final = Event()


@dataclass(frozen=True, slots=True)
class Pace:
    """How events come: so many a second whatever their times say, or as fast as they can; how many chunks at once; and
    how long none come at the end.
    """

    per_second: int | None = None
    waits_ms: int = 0
    chunks: int = 1


class HeldEvents(NexmarkColumnsSource):
    """Keeps what it has made, for all sources of this process."""

    def __init__(self, settings: NexmarkSettings, columns: tuple[str, ...], pace: Pace | None = None) -> None:
        super().__init__(settings, columns)
        pace = pace or Pace()
        self._chunks = pace.chunks
        self.chunk_events = CHUNK_EVENTS * pace.chunks
        self._waits_ms = pace.waits_ms
        if pace.per_second is not None:
            self._limit = RateLimiterStrategy.per_second(pace.per_second)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, NexmarkSplit]:
        """A reader that waits before it tells that there is no more."""
        _ASKED.add(self._columns)
        LATENCIES.begin(context.now_ms())
        return _WaitingReader(super().create_reader(context), context, self._waits_ms)

    def chunk(self, number: int) -> ColumnBatch | None:
        """A chunk as it is held."""
        assert self._settings.events is not None, "all events are held"
        count = self._settings.events
        if number * self.chunk_events >= count:
            return None
        # A shorter stream is the beginning of a longer one, so that both have the same whole chunks.
        is_whole = (number + 1) * self.chunk_events <= count
        settings = replace(self._settings, events=None) if is_whole else self._settings
        key = (settings, self._columns, self._chunks, number)
        if key not in _CHUNKS:
            arrays = [self._held(settings, name, number) for name in self._columns]
            _CHUNKS[key] = pa.RecordBatch.from_arrays(arrays, column_names(len(arrays)))
        return ColumnBatch(_CHUNKS[key])

    def _held(self, settings: NexmarkSettings, name: str, number: int) -> pa.Array:
        """Return what is held of a column, or of a field of it."""
        key = (settings, name, self._chunks, number)
        if key not in _MADE:
            whole, _, field = name.partition(".")
            if field:
                _MADE[key] = pc.struct_field(self._held(settings, whole, number), field)
            else:
                source = NexmarkColumnsSource(settings, (name,))
                parts = map(source.chunk, range(number * self._chunks, (number + 1) * self._chunks))
                _MADE[key] = pa.concat_arrays([part.columns.column(0) for part in parts if part is not None])
        return _MADE[key]


class _WaitingReader(SourceReader[Any, NexmarkSplit]):
    def __init__(self, reader: SourceReader[Any, NexmarkSplit], context: SourceReaderContext, waits_ms: int) -> None:
        self._reader = reader
        self._context = context
        self._waits_ms = waits_ms
        self._ended_ms: int | None = None

    def start(self) -> None:
        self._reader.start()

    def poll_next(self, max_records: int) -> Batch | InputStatus:
        polled = self._reader.poll_next(max_records)
        if polled is not InputStatus.END_OF_INPUT:
            return polled
        ALL_OUT.set()
        now_ms = self._context.now_ms()
        self._ended_ms = self._ended_ms or now_ms
        return polled if now_ms - self._ended_ms >= self._waits_ms else InputStatus.NOTHING_AVAILABLE

    def retry_after_ms(self) -> int:
        return self._reader.retry_after_ms()

    def add_splits(self, splits: Sequence[NexmarkSplit]) -> None:
        self._reader.add_splits(splits)

    def no_more_splits(self) -> None:
        self._reader.no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[NexmarkSplit]:
        return self._reader.snapshot_state(checkpoint_id)

    def close(self) -> None:
        self._reader.close()


@dataclass(frozen=True, slots=True)
class _Scan(TableScan, ProjectionPushDown, NestedPushDown):
    inner: NexmarkScan
    pace: Pace

    def reader(self) -> TableReader:
        return TableReader(HeldEvents(self.inner.settings, self.inner.columns, self.pace))

    def with_columns(self, columns: Sequence[int]) -> _Scan:
        return replace(self, inner=self.inner.with_columns(columns))

    def with_leaves(self, paths: Sequence[Path]) -> _Scan:
        return replace(self, inner=self.inner.with_leaves(paths))


class HeldNexmark(NexmarkConnector):
    """See the module's text."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """See `TableConnector`."""
        inner = super().scan(scan, options)
        assert isinstance(inner, NexmarkScan)
        return _Scan(inner, self._pace)


def connectors(kept: Kept, pace: Pace) -> Connectors:
    """What the queries read and write with. `kept`: where the connector of this name leaves its table."""
    files = FilesystemConnector(built_in_formats())
    return Connectors(HeldNexmark(pace), BlackholeConnector(), LatencyConnector(), KeptConnector(kept), files)


@contextmanager
def columns_asked() -> Iterator[set[tuple[str, ...]]]:
    """The columns that readers of this process ask for in the meantime."""
    _ASKED.clear()
    yield _ASKED


def hold(columns: tuple[str, ...], count: int, rate: int, pace: Pace) -> None:
    """Make the chunks of these columns, so that no run makes them while its time counts."""
    for _ in chunks_of(HeldEvents(NexmarkSettings(events=count, rate=rate), columns, pace)):
        pass


def chunks_of(source: HeldEvents) -> Iterator[pa.RecordBatch]:
    """All chunks of a source."""
    number = 0
    while (chunk := source.chunk(number)) is not None:
        yield chunk.columns
        number += 1


def events(count: int, rate: int, pace: Pace | None = None) -> pa.Table:
    """All events as one table; they are held from then on. The table's names are those of the columns."""
    source = HeldEvents(NexmarkSettings(events=count, rate=rate), _NAMES, pace)
    return pa.Table.from_batches([chunk.rename_columns(_NAMES) for chunk in chunks_of(source)])


def generate_events(count: int, rate: int) -> Iterator[pa.RecordBatch]:
    """Yield all events in batches that are not held, for a file that may be larger than memory."""
    source = NexmarkColumnsSource(NexmarkSettings(events=count, rate=rate), _NAMES)
    for number in range(-(-count // CHUNK_EVENTS)):
        chunk = source.chunk(number)
        assert chunk is not None
        yield chunk.columns.rename_columns(_NAMES)
