"""The rows of both sides of a join by key, and the pairs that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.backend import KeyedTable
from penstock.state.equality import Zeros
from penstock.table.data.logical_types import DataType
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.evaluator import Evaluator
from penstock.table.streaming.rows.held_rows import RowEquality, build_columns
from penstock.table.streaming.rows.row_keys import RowKeys
from penstock.table.typed.nodes import Field, Typed

#: Represents a key with a NULL that equals nothing.
NO_MATCH: Final = object()
#: Fields of a row's entry: the number of copies of the row, and the number of its matches on the other side.
COUNT, MATCHES = 0, 1
_ROW: Final = 2
#: The approximate maximum number of pairs to process at once.
_PAIRS_MAX: Final = 1 << 16


class SideKeys(RowKeys):
    """Extracts the keys of one side's rows. `nulls_match`: for each key column, whether NULL equals NULL."""

    def __init__(self, indices: Sequence[int], nulls_match: Sequence[bool]) -> None:
        super().__init__(indices)
        self._refuses = [index for index, matches in enumerate(nulls_match) if not matches]

    def matches_nothing(self, key: Any) -> bool:
        """Return whether the key has a NULL that equals nothing."""
        if len(self.places) == 1:
            return key is None and bool(self._refuses)
        return any(key[index] is None for index in self._refuses)


class Side:
    """The rows of one side: key -> row -> [count, matches]."""

    #: rows are compared bit for bit
    zeros: ClassVar[Zeros] = "apart"

    def __init__(self, table: KeyedTable, types: Sequence[DataType]) -> None:
        self.entries = table.entries(None)
        self.types = tuple(types)
        self._equality = RowEquality(types, zeros="merged")
        self._table = table

    def add(self, key: Any, row: tuple[Any, ...], by: int, matches: int) -> None:
        """Insert or retract a row. A retraction may arrive before its insert."""
        rows = self.entries.get(key)
        if rows is None:
            rows = self.entries[key] = {}
        entry = rows.get(row)
        if entry is None and by < 0:
            row = self._stored(rows, row)
            entry = rows.get(row)
        if entry is None:
            rows[row] = [by, matches]
            return
        entry[COUNT] += by
        if not entry[COUNT]:
            self._remove(key, rows, row)

    def _stored(self, rows: dict[Any, Any], row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the stored row equal to `row`, which may differ in a zero's sign or have the form of an earlier
        release.
        """
        return row if row in rows else self._equality.find(row, rows) or row

    def _remove(self, key: Any, rows: dict[Any, Any], row: Any) -> None:
        del rows[row]
        if not rows:
            del self.entries[key]

    def identify_row(self, row: tuple[Any, ...]) -> Any:
        """Return the value that identifies a row among the rows of its key."""
        return row

    def counts(self, key: Any, row: tuple[Any, ...], goes: bool) -> bool:
        """Return whether inserting or retracting the row changes the number of rows."""
        return True

    def list_rows(self, stored: Any) -> Iterable[tuple[Any, ...]]:
        """Return the rows in the entry of a key."""
        return stored  # type: ignore[no-any-return]

    def mark(self, keys: set[Any]) -> None:
        """Mark the entries of these keys as changed."""
        self._table.mark(None, keys)


class UpsertSide(Side):
    """A side whose updates come without UPDATE_BEFORE: key -> id -> [1, matches, row].

    Args:
        indices: the indices of the id columns, which include the key columns.
    """

    zeros = "kept"

    def __init__(self, table: KeyedTable, types: Sequence[DataType], indices: Sequence[int]) -> None:
        super().__init__(table, types)
        self._places = tuple(indices)

    def identify_row(self, row: tuple[Any, ...]) -> Any:
        """See `Side`."""
        return tuple([row[index] for index in self._places])

    def add(self, key: Any, row: tuple[Any, ...], by: int, matches: int) -> None:
        """Insert a row, possibly replacing another, or delete it."""
        rows, own = self.entries.get(key), self.identify_row(row)
        if by > 0:
            if rows is None:
                rows = self.entries[key] = {}
            rows[own] = [1, matches, row]
        elif rows is not None and own in rows:
            self._remove(key, rows, own)

    def counts(self, key: Any, row: tuple[Any, ...], goes: bool) -> bool:
        """See `Side`."""
        return (self.identify_row(row) in self.entries.get(key, ())) == goes

    def list_rows(self, stored: Any) -> Iterable[tuple[Any, ...]]:
        """See `Side`."""
        return [entry[_ROW] for entry in stored.values()]


class Pairs:
    """Rows of one side, from `start` to `stop`, and the matching rows of the other side.

    `rows` and `entries` belong to the other side; `of(row)` returns the positions of a row's matches in them.
    """

    def __init__(self, other: Side, keys: Sequence[Any], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.rows: list[tuple[Any, ...]] = []
        self.entries: list[list[int]] = []
        self.types = other.types
        self._columns: list[pa.Array] | None = None
        ranges: dict[Any, range] = {}
        for key in keys[start:stop]:
            if key not in ranges:
                stored = other.entries.get(key) if key is not NO_MATCH else None
                begin = len(self.rows)
                if stored:
                    self.rows.extend(other.list_rows(stored))
                    self.entries.extend(stored.values())
                ranges[key] = range(begin, len(self.rows))
        self._matches: list[Sequence[int]] = [ranges[key] for key in keys[start:stop]]

    def of(self, row: int) -> Sequence[int]:
        """Return the positions of a row's matches."""
        return self._matches[row - self.start]

    def columns(self) -> list[pa.Array]:
        """Return the rows of the other side as columns."""
        if self._columns is None:
            self._columns = build_columns(self.rows, self.types)
        return self._columns

    def keep(self, condition: PairCondition, mine: pa.RecordBatch, is_left: bool) -> None:
        """Keep only pairs that satisfy the condition. `is_left`: whether `mine` holds the rows of the left side."""
        if any(self._matches):
            rows = np.arange(self.start, self.stop)
            self._matches = condition.kept(rows, self._matches, mine.columns, self.columns(), is_left)


class PairCondition:
    """Evaluates a condition on pairs. Its fields index the left columns followed by the right columns."""

    def __init__(self, condition: Typed, left_width: int, evaluator: Evaluator) -> None:
        self._used = {part.index for part in condition.walk() if isinstance(part, Field)}
        self._left_width = left_width
        self._evaluator = evaluator

    def kept(
        self,
        rows: Any,
        matches: Sequence[Sequence[int]],
        mine: Sequence[pa.Array],
        other: Sequence[pa.Array],
        is_left: bool,
    ) -> list[Sequence[int]]:
        """Return the matches that satisfy the condition.

        `rows` is a numpy array; at least one row must have matches.
        """
        positions = np.concatenate([np.asarray(row_matches, np.int64) for row_matches in matches if row_matches])
        of_row = np.repeat(np.arange(len(rows)), [len(row_matches) for row_matches in matches])
        sides = (mine, rows[of_row]), (other, positions)
        holds = self.holds(*(sides if is_left else sides[::-1]))
        remaining = positions[holds].tolist()
        ends = np.searchsorted(of_row[holds], np.arange(len(rows)), side="right").tolist()
        return [remaining[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def holds(self, left: tuple[Sequence[pa.Array], Any], right: tuple[Sequence[pa.Array], Any]) -> Any:
        """Return a numpy mask of the pairs that satisfy the condition. Each side: columns, and the row of each pair."""
        rows = len(left[1])
        width = self._left_width
        indices = pa.array(left[1]), pa.array(right[1])
        arrays = [pa.nulls(0)] * (max(self._used, default=-1) + 1)
        for index in self._used:
            side, column_index = (0, index) if index < width else (1, index - width)
            arrays[index] = (left, right)[side][0][column_index].take(indices[side])
        (answers,) = self._evaluator(Columns(arrays, rows))
        return pc.fill_null(answers, False).to_numpy(zero_copy_only=False)


def runs(other: Side, keys: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of a batch whose candidates fit into memory."""
    start = total = 0
    for row, key in enumerate(keys):
        candidates = len(other.entries.get(key, ())) if key is not NO_MATCH else 0
        total += candidates
        if total > _PAIRS_MAX and row > start:
            yield start, row
            start, total = row, candidates
    if start < len(keys):
        yield start, len(keys)
