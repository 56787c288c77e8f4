"""The incremental snapshot, without a database: chunks of tables that are read while their rows change.

**A chunk** is a range of the values of one column of a table's key. It is read without locks: note the position of the
log (*low*), select the rows, note the position again (*high*). The changes of the log between the two are then applied
to the rows (`correct_rows`), so that the chunk is as of its high watermark, whenever the query saw which row.

**After it**, a change of a row counts if it is after the high watermark of the chunk with the row's key. The reader of
a chunk emits these changes, up to a position that all readers share; from there on one reader emits everything
(`ChunkPositions`). So readers need not exchange the positions of their chunks.

Source: "DBLog: A Watermark Based Change-Data-Capture Framework" (Andreakis and Papapanagiotou, 2019), and Flink CDC's
incremental snapshot, where the reader of the log gets all watermarks instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

PositionT = TypeVar("PositionT")


class KeyRange(NamedTuple):
    """Values of a key column from `low` up to, but excluding, `high`; None for no limit.

    Examples:
        >>> from penstock.connectors.cdc.incremental import KeyRange
        >>> KeyRange(1, 5).contains(1), KeyRange(1, 5).contains(5), KeyRange(None, 5).contains(-3)
        (True, False, True)
    """

    low: Any = None
    high: Any = None

    def contains(self, value: Any) -> bool:
        """Return whether a value is within the range."""
        return (self.low is None or value >= self.low) and (self.high is None or value < self.high)


class RowChange(NamedTuple):
    """A change of a row: before and after; None for an insert, or a delete."""

    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


def correct_rows(
    rows: Iterable[tuple[Any, ...]],
    changes: Iterable[RowChange],
    get_key: Callable[[tuple[Any, ...]], Hashable],
    contains: Callable[[tuple[Any, ...]], bool],
) -> list[tuple[Any, ...]]:
    """Apply the changes between a chunk's watermarks to its rows.

    Args:
        rows: the result of the query.
        changes: the changes of the table from the low watermark, or from any position before it, up to the high one.
        get_key: returns the key of a row.
        contains: whether the key of a row is within the chunk.

    Returns:
        the rows as of the high watermark.

    Examples:
        >>> from penstock.connectors.cdc.incremental import RowChange, correct_rows
        >>> changes = [RowChange((1, "tea"), (1, "mate")), RowChange((2, "milk"), None), RowChange(None, (9, "far"))]
        >>> correct_rows([(1, "tea"), (2, "milk")], changes, lambda row: row[0], lambda row: row[0] < 5)
        [(1, 'mate')]
    """
    by_key = {get_key(row): row for row in rows}
    for before, after in changes:
        if before is not None:
            by_key.pop(get_key(before), None)
        if after is not None and contains(after):
            by_key[get_key(after)] = after
    return list(by_key.values())


@dataclass(frozen=True, slots=True)
class ReadChunk(Generic[PositionT]):
    """A chunk that was read: its range, and the position it is as of."""

    range: KeyRange
    position: PositionT


class ChunkPositions(Generic[PositionT]):
    """The chunks of a table that were read, and which changes count after them.

    Args:
        chunks: the chunks, in any order. Their ranges do not overlap.

    Examples:
        >>> from penstock.connectors.cdc.incremental import ChunkPositions, KeyRange, ReadChunk
        >>> chunks = ChunkPositions([ReadChunk(KeyRange(None, 5), 100), ReadChunk(KeyRange(5, 9), 120)])
        >>> chunks.admits(5, 110), chunks.admits(4, 110), chunks.admits(10, 500)
        (False, True, False)
    """

    def __init__(self, chunks: Iterable[ReadChunk[PositionT]]) -> None:
        self.chunks = list(chunks)
        self._open = next((chunk for chunk in self.chunks if chunk.range.low is None), None)
        self._bounded = sorted(
            (chunk for chunk in self.chunks if chunk.range.low is not None), key=lambda chunk: chunk.range.low
        )
        self._lows = [chunk.range.low for chunk in self._bounded]

    def find(self, value: Any) -> ReadChunk[PositionT] | None:
        """Return the chunk that has a value of the key column; None if that was not read."""
        index = bisect_right(self._lows, value) - 1
        chunk = self._bounded[index] if index >= 0 else self._open
        return chunk if chunk is not None and chunk.range.contains(value) else None

    def admits(self, value: Any, position: PositionT) -> bool:
        """Return whether a change of a row counts.

        Args:
            value: the row's value of the key column.
            position: where the change's transaction begins: the end of the one before it.
        """
        chunk = self.find(value)
        return chunk is not None and chunk.position <= position  # type: ignore[operator]
