"""Tables with event time, whose rows come one by one, and the operators of windows under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from tests.table.running import Rows
from tests.table.streaming.ranked import TS, TYPES, K, Under, V
from tests.table.waiting_columns import ColumnsThenWait

from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import BigIntType, IntType, LocalZonedTimestampType, TimestampType, VarCharType
from penstock.sql.logical.nodes import ALL, INSERTS, SHORT, AggregateCall
from penstock.sql.stream.planning.options import Emission
from penstock.sql.stream.rows.state_ttl import StreamSession
from penstock.sql.stream.windows.columnar import (
    ColumnSessionAggregateOperator,
    ColumnWindowAggregateOperator,
    ColumnWindows,
)
from penstock.sql.stream.windows.session_table import EmittingWindowOperator, SessionTableOperator
from penstock.sql.stream.windows.window_aggregate import WindowAggregateOperator, WindowTableOperator, WindowTime
from penstock.sql.tables.tables import TableReader
from penstock.sql.typed import Field

NS = 1_000_000
EDGE = TimestampType(3, False)
_COUNT = BigIntType(False)
VALUE = Field(IntType(), V, "v")
CALLS = (AggregateCall("COUNT", (), _COUNT), AggregateCall("SUM", (VALUE,), IntType()))
VALUES = AggregateCall("COUNT", (VALUE,), _COUNT, is_distinct=True)


class Timed(Rows):
    """A table of k, v, ts and p: the key, a number, event time in ms, and processing time. Rows may have a kind ahead.

    The watermark is `delay` seconds behind.
    """

    def __init__(self, *rows: tuple[object, ...], delay: int = 0, session: str = "TIMESTAMP(3)") -> None:
        changes = [row if row[0] in SHORT else ("+I", *row) for row in rows]
        timed = [(str(kind), (k, v, int(str(ts)) * NS)) for kind, k, v, ts in changes]
        super().__init__({"k": TYPES[0], "v": IntType(), "ts": TimestampType(3)}, timed)
        object.__setattr__(self, "_delay", delay)
        object.__setattr__(self, "_time", session)

    def ddl(self, name: str) -> str:
        """See `Rows`."""
        delay, kind = getattr(self, "_delay"), getattr(self, "_time")  # noqa: B009 - the base is frozen
        return (
            f"CREATE TABLE {name} (k STRING, v INT, ts {kind}, p AS PROCTIME(), "
            f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND)"
        )

    def reader(self) -> TableReader:
        """See `Rows`."""
        rows = self.changes()
        kinds = bytes(SHORT.index(kind) for kind, _ in rows)
        arrays = [
            to_column([values[place] for _, values in rows], kind) for place, kind in enumerate(self.columns.values())
        ]
        batch = pa.RecordBatch.from_arrays(arrays, ["c0", "c1", "c2"])
        source = ColumnsThenWait(batch, kinds if any(kinds) else None, 1, False)
        return TableReader(source, ALL if any(kinds) else INSERTS, any(kinds))


def in_columns(kind: str, sizes: Sequence[int], *calls: AggregateCall, is_processing: bool = False) -> Under:
    """An aggregate by kernel of windows by k."""
    calls = calls or CALLS
    types = (VarCharType(10), EDGE, EDGE, *(call.type for call in calls))
    names = tuple(f"c{place}" for place in range(len(types)))
    time = WindowTime(TS, is_processing, is_processing)
    windows = ColumnWindows((K, -1, -2), time, calls, types, names, StreamSession())
    operator: Callable[[], StreamOperator] = (
        partial(ColumnSessionAggregateOperator, windows, sizes[0])
        if kind == "SESSION"
        else partial(ColumnWindowAggregateOperator, windows, kind, sizes, 0)
    )
    return Under(operator)


def session_table(gap: int, is_processing: bool = False) -> Under:
    """The rows of sessions by k."""
    time = WindowTime(TS, is_processing, is_processing)
    types = (*TYPES, EDGE, EDGE, EDGE)
    names = [f"c{place}" for place in range(len(types))]
    return Under(partial(SessionTableOperator, (K,), time, gap, types, names, StreamSession()))


class ByRow:
    """TUMBLE, and an aggregate of its windows by k that goes through the rows; with `emission` results come early."""

    def __init__(
        self,
        size: int,
        emission: Emission | None = None,
        is_processing: bool = True,
    ) -> None:
        time = WindowTime(TS, is_processing, is_processing)
        types = (*TYPES, EDGE, EDGE, LocalZonedTimestampType(3))
        names = [f"c{place}" for place in range(len(types))]
        table = partial(WindowTableOperator, "TUMBLE", time, (size,), 0, names, StreamSession())
        edges = {len(TYPES): 0, len(TYPES) + 1: 1}
        made: Callable[..., StreamOperator] = WindowAggregateOperator
        if emission is not None:
            made = partial(EmittingWindowOperator, emission=emission, wants_before=False)
        aggregate = partial(made, (K, *edges), edges, time, CALLS, types, names[:5], False, StreamSession())
        self.table, self.windows = Under(table), Under(aggregate)
        self.table.harnesses[0].operator.output.collect = self._pass_on  # type: ignore[method-assign]

    def _pass_on(self, batch: Batch) -> None:
        self.windows.harnesses[0].operator.process_batch(batch)

    def watermark(self, timestamp: int) -> None:
        """Event time goes on."""
        self.windows.watermark(timestamp)

    def wait_quietly(self, by_ms: int) -> None:
        """Processing time goes on."""
        for one in (self.table, self.windows):
            one.harnesses[0].advance_processing_time(by_ms)

    def wait(self, by_ms: int) -> list[tuple[object, ...]]:
        """Processing time goes on; what comes out."""
        self.wait_quietly(by_ms)
        return self.windows.take()
