"""The connector `nexmark` with events that are made before, so that a run measures the query and not the generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from benchmarks.nexmark_sql.kept import Folded, KeptConnector
from penstock.connectors.rate_limiter import RateLimiterStrategy
from penstock.table.connectors.abilities import ProjectionPushDown, TableScan
from penstock.table.connectors.blackhole import BlackholeConnector
from penstock.table.connectors.connector import Connectors
from penstock.table.connectors.filesystem.connector import FilesystemConnector
from penstock.table.connectors.formats.built_in import built_in_formats
from penstock.table.connectors.nexmark.connector import NexmarkConnector, NexmarkScan
from penstock.table.connectors.nexmark.settings import NexmarkSettings
from penstock.table.connectors.nexmark.source import CHUNK_EVENTS, NexmarkColumnsSource
from penstock.table.connectors.table_options import TableOptions
from penstock.table.connectors.tables import TableReader
from penstock.table.plan.logical import Scan

#: chunks of a column, by the events' settings, the column's name and the chunk's number
_MADE: Final[dict[tuple[NexmarkSettings, str, int], pa.Array]] = {}


class HeldEvents(NexmarkColumnsSource):
    """Keeps what it has made, for all sources of this process."""

    def _events(self, name: str, kinds: Any, numbers: Any, times: Any) -> pa.Array:
        key = (self._settings, name, int(numbers[0]))
        if key not in _MADE:
            _MADE[key] = super()._events(name, kinds, numbers, times)
        return _MADE[key]


@dataclass(frozen=True, slots=True)
class _Scan(TableScan, ProjectionPushDown):
    inner: NexmarkScan
    per_second: int | None

    def reader(self) -> TableReader:
        source = HeldEvents(self.inner.settings, self.inner.columns)
        if self.per_second is not None:
            source._limit = RateLimiterStrategy.per_second(self.per_second)
        return TableReader(source)

    def with_columns(self, columns: Sequence[int]) -> _Scan:
        return replace(self, inner=self.inner.with_columns(columns))


class HeldNexmark(NexmarkConnector):
    """See the module's text. `per_second`: how fast events come, whatever their times say; None for no limit."""

    def __init__(self, per_second: int | None = None) -> None:
        self._per_second = per_second

    def scan(self, scan: Scan, options: TableOptions) -> TableScan:
        """See `TableConnector`."""
        found = super().scan(scan, options)
        assert isinstance(found, NexmarkScan)
        return _Scan(found, self._per_second)


def connectors(found: Folded, per_second: int | None = None) -> Connectors:
    """What the queries read and write with. `found`: where the connector `kept` leaves its table."""
    files = FilesystemConnector(built_in_formats())
    return Connectors(HeldNexmark(per_second), BlackholeConnector(), KeptConnector(found), files)


def events(count: int, rate: int) -> pa.Table:
    """All events as one table; they are held from then on. The table's names are those of the columns."""
    names = ("event_type", "person", "auction", "bid")
    source = HeldEvents(NexmarkSettings(events=count, rate=rate), names)
    chunks = []
    for number in range(-(-count // CHUNK_EVENTS)):
        chunk = source.chunk(number)
        assert chunk is not None
        chunks.append(pa.RecordBatch.from_arrays(chunk.columns.columns, names))
    return pa.Table.from_batches(chunks)
