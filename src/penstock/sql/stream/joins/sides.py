"""The rows of both sides of a join by key, as rows or as columns, and the pairs that they form.

`HashIndex` indexes append-only rows by the hashes of their keys. Rows are numbered in arrival order. The strategy
depends on the number of keys in a lookup. A lookup of many keys sorts the new rows into a run: sorted hashes, in which
two binary searches find each key; runs of similar size are merged. A lookup of few keys scans the unsorted new rows, in
chunks with known minimum and maximum hashes. The new rows become a run once scanning them has cost as much as sorting.
So rows that are rarely looked up cost almost nothing, and a lookup costs at most about twice as much as if all rows
were sorted. While there are few rows, a small table quickly rejects most hashes that are not in the index.

`HeldColumns` has the rows of one side as columns, found by their keys through a `HashIndex`. Rows are never removed, so
a row keeps its number. No key becomes a Python object, and a row that is never looked up costs only its hash.

`SideOfFewRows` is for batches of a few rows, where kernels cost more than Python. It has the rows of the keys that were
looked up as tuples in a small dictionary, on top of `HeldColumns`, and adds new rows to it. New rows join the columns
when there are many, before a batch of many rows, and before a checkpoint.

`Expiring` sides have rows that expire some time after they were written (`table.exec.state.ttl`, STATE_TTL). The last
item of an entry is the time at which it was last written: when its row arrived or, in outer and semi joins, when the
state of its matches changed. The rows of a key are ordered by these times, so the expired ones come first. They are
removed when their key is accessed, or by the timer of their key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.watermarks import TimerQueue
from penstock.sql.data.arrow import to_values
from penstock.sql.data.row_data import RowLayout
from penstock.sql.data.types import DataType
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.stream.rows.columns import ColumnParts, Store, is_own_number, key_hashes, places_in_order, same_keys
from penstock.sql.stream.rows.rows import RowEquality, RowKeys, UncutRows, build_columns, cut
from penstock.sql.stream.rows.state_ttl import compute_due_time
from penstock.sql.typed import Field, Typed
from penstock.state.backend import KeyedTable
from penstock.state.equality import Zeros, canonical_column

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


#: A few rows are looked up and emitted one by one, up to this number of pairs in a batch.
FEW_PAIRS: Final = 256
#: The number of new rows at which they join the columns.
_NEW_MAX: Final = 1 << 11
#: The number of known keys and their rows at which they are forgotten.
_KNOWN_MAX: Final = 1 << 15

#: The number of runs of similar size that are merged.
_FACTOR: Final = 8
#: Runs of at least this many rows are stored.
_STORED_ROWS: Final = 1 << 17
#: A run is not merged beyond this number of rows, or a lookup would wait too long for it.
_ROWS_MAX: Final = 1 << 22
#: Up to this number of new rows, rows with the same hash keep their order; more rows are sorted by a faster algorithm.
_STABLE_MAX: Final = 1 << 12
_NONE: Final = np.zeros(0, np.int64)

#: The minimum number of rows in a chunk, except the last one.
_CHUNK_ROWS: Final = 1 << 14
#: A lookup of more keys sorts the new rows.
_ASKED_MAX: Final = 64
#: The cost of sorting a row, in hash comparisons.
_COMPARED_MAX: Final = 64
#: The minimum cost of scanning a chunk, in hash comparisons.
_COMPARED_MIN: Final = 1 << 11

#: The small table is dropped above `_FEW_MAX` rows, and not used for lookups of fewer than `_MANY` hashes.
_FEW_MAX: Final = 1 << 15
_MANY: Final = 1 << 8
#: The number of table slots for each row.
_PLACES: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class HashIndex:
    """See the module docstring. `store`: stores large runs."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        #: sorted hashes, and the numbers of their rows
        self._runs: list[tuple[Any, Any]] = []
        self._chunks = _Chunks()
        self._few: _FewHashes | None = _FewHashes()

    def add(self, hashes: Any) -> None:
        """Add the hashes of the next rows."""
        self._chunks.add(hashes)
        if self._few is not None and not self._few.add(hashes):
            self._few = None

    def near(self, hashes: Any) -> Any:
        """Return the indexes of the hashes that may be in the index; None if checking is not worthwhile."""
        return None if self._few is None or len(hashes) < _MANY else self._few.places(hashes)

    def found(self, probes: Any) -> tuple[Any, Any]:
        """Return the rows with these sorted hashes, by hash: the index of each row's hash, and the row's number."""
        parts = self._chunks.found(probes)
        if parts is None:
            self._put_in_order()
            parts = []
        parts += [part for hashes, numbers in self._runs if (part := _in_run(hashes, numbers, probes)) is not None]
        if len(parts) < 2:
            return parts[0] if parts else (_NONE, _NONE)
        of_key, numbers = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        by_key = places_in_order(of_key, len(probes))
        return of_key[by_key], numbers[by_key]

    def _put_in_order(self) -> None:
        """Sort the new rows into a run, and merge runs of similar size."""
        runs = self._runs
        hashes, first = self._chunks.take()
        if len(hashes):
            order = np.argsort(hashes, kind="stable" if len(hashes) <= _STABLE_MAX else "quicksort")
            runs.append((hashes[order], np.arange(first, first + len(hashes))[order]))
        while runs:
            size, begin, rows = len(runs[-1][0]) * 2, len(runs), 0
            while begin and len(runs[begin - 1][0]) <= size and rows + len(runs[begin - 1][0]) <= _ROWS_MAX:
                begin -= 1
                rows += len(runs[begin][0])
            if len(runs) - begin < _FACTOR:
                return
            hashes, numbers = (np.concatenate(arrays) for arrays in zip(*runs[begin:], strict=True))
            # The stable sort merges, because each run is sorted.
            order = np.argsort(hashes, kind="stable")
            runs[begin:] = [self._stored(hashes[order], numbers[order])]

    def _stored(self, hashes: Any, numbers: Any) -> tuple[Any, Any]:
        if self._store is None or len(hashes) < _STORED_ROWS:
            return hashes, numbers
        run = self._store(pa.RecordBatch.from_arrays([pa.array(hashes), pa.array(numbers)], ["hash", "number"]))
        return run.column(0).to_numpy(), run.column(1).to_numpy()


def _in_run(hashes: Any, numbers: Any, probes: Any) -> tuple[Any, Any] | None:
    """Look up hashes in one run, as in `HashIndex.found`; return None if there are no matches."""
    begins = np.searchsorted(hashes, probes)
    hits = np.flatnonzero(hashes[np.minimum(begins, len(hashes) - 1)] == probes)
    if not len(hits):
        return None
    begins = begins[hits]
    counts = np.searchsorted(hashes, probes[hits], side="right") - begins
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(hits, counts), numbers[np.repeat(begins, counts) + within]


class _Chunks:
    """Unsorted hashes of the rows since the last `take`."""

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        #: 16 mixed bits of each hash, because a number hashes to itself: a quarter of the memory to scan
        self._marks: list[Any] = []
        self._lows: list[Any] = []
        self._highs: list[Any] = []
        #: arrays that are not in a chunk yet
        self._loose: list[Any] = []
        #: the number of the first row, and the number of rows
        self._first = self._rows = 0
        #: the number of comparisons since the last `take`
        self._compared = 0

    def add(self, hashes: Any) -> None:
        """Add the hashes of the next rows."""
        self._loose.append(hashes)
        self._rows += len(hashes)

    def take(self) -> tuple[Any, int]:
        """Remove and return all hashes, with the number of the first row."""
        arrays, first = [*self._chunks, *self._loose], self._first
        for each in (self._chunks, self._marks, self._lows, self._highs, self._loose):
            each.clear()
        self._first, self._rows, self._compared = first + self._rows, 0, 0
        return np.concatenate(arrays) if arrays else _NONE, first

    def found(self, probes: Any) -> list[tuple[Any, Any]] | None:
        """Look up hashes as in `HashIndex.found`, a part for each chunk and hash; None to sort the rows instead."""
        if not self._rows:
            return []
        if len(probes) > _ASKED_MAX:
            return None
        self._fill()
        starts = np.cumsum([0, *map(len, self._chunks)])
        lows, highs = np.array(self._lows)[:, None], np.array(self._highs)[:, None]
        chunks, hits = np.nonzero((lows <= probes) & (probes <= highs))
        self._compared += int(np.sum(np.diff(starts)[chunks])) + _COMPARED_MIN * len(chunks)
        if self._compared > _COMPARED_MAX * self._rows:
            return None
        parts = []
        marks = _compute_marks(probes)
        for chunk, hit in zip(chunks.tolist(), hits.tolist(), strict=True):
            are_marked = self._marks[chunk] == marks[hit]
            if not are_marked.any():
                continue
            rows = np.flatnonzero(are_marked)
            rows = rows[self._chunks[chunk][rows] == probes[hit]]
            if len(rows):
                parts.append((np.full(len(rows), hit), rows + (self._first + starts[chunk])))
        return parts

    def _fill(self) -> None:
        """Move new arrays into chunks; the last chunk may be small and grows later."""
        loose, self._loose = self._loose, []
        if loose and self._chunks and len(self._chunks[-1]) < _CHUNK_ROWS:
            loose.insert(0, self._chunks.pop())
            del self._marks[-1], self._lows[-1], self._highs[-1]
        begin = rows = 0
        for end, hashes in enumerate(loose, 1):
            rows += len(hashes)
            if rows >= _CHUNK_ROWS or (end == len(loose) and rows):
                chunk = np.concatenate(loose[begin:end]) if end - begin > 1 else hashes
                self._chunks.append(chunk)
                self._marks.append(_compute_marks(chunk))
                self._lows.append(chunk.min())
                self._highs.append(chunk.max())
                begin, rows = end, 0


def _compute_marks(hashes: Any) -> Any:
    return _first_bits(hashes, 16).astype(np.uint16)


def _first_bits(hashes: Any, bits: int) -> Any:
    """Return the top `bits` bits of each hash after mixing."""
    return (hashes.view(np.uint64) * _MIX) >> np.uint64(64 - bits)


class _FewHashes:
    """A hash table of a few hashes that may report false positives."""

    def __init__(self) -> None:
        self._hashes: list[Any] = []
        self._rows = 0
        self._grow(12)

    def _grow(self, bits: int) -> None:
        self._bits = bits
        self._table = np.zeros(1 << bits, np.bool_)
        for hashes in self._hashes:
            self._table[_first_bits(hashes, self._bits)] = True

    def add(self, hashes: Any) -> bool:
        """Add hashes. Returns False if there are too many."""
        self._hashes.append(hashes)
        self._rows += len(hashes)
        if self._rows > _FEW_MAX:
            return False
        if self._rows * _PLACES > len(self._table):
            self._grow((self._rows * _PLACES * 2).bit_length())
        else:
            self._table[_first_bits(hashes, self._bits)] = True
        return True

    def places(self, hashes: Any) -> Any:
        """Return the indexes of hashes that may be in the table."""
        return np.flatnonzero(self._table[_first_bits(hashes, self._bits)])


class Matches:
    """The stored rows that match the keys of probe rows.

    Args:
        rows: the positions of the probe rows that may have matches; None for all.
        groups: the hash group of each of these rows.
        counts: the number of stored rows in each hash group.
        numbers: the numbers of the stored rows, ordered by hash group.
        same: given pairs as probe positions and row numbers, returns which have equal keys; None if all do.
    """

    def __init__(
        self, rows: Any, groups: Any, counts: Any, numbers: Any, same: Callable[[Any, Any], Any] | None
    ) -> None:
        self._rows = rows
        self._groups = groups
        self._counts = counts
        self._begins = np.cumsum(counts) - counts
        self._numbers = numbers
        self._same = same

    @classmethod
    def of_all(cls, rows: int, stored_rows: int) -> Matches:
        """Match each of `rows` probe rows with each of `stored_rows` stored rows."""
        return cls(None, np.zeros(rows, np.int64), np.array([stored_rows]), np.arange(stored_rows), None)

    def count(self) -> int:
        """Return the number of pairs, at most: some may only share a hash."""
        return int(np.sum(self._counts[self._groups]))

    def runs(self, pairs_max: int) -> Iterator[tuple[int, int]]:
        """Yield ranges (start, stop) of probe rows with at most about `pairs_max` pairs each."""
        ends = np.cumsum(self._counts[self._groups])
        start = before = 0
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, before + pairs_max, side="right")), start + 1)
            yield start, stop
            start, before = stop, int(ends[stop - 1])

    def pairs(self, start: int, stop: int) -> tuple[Any, Any]:
        """Return the pairs of a range of probe rows, see `runs`: positions of probe rows and numbers of stored rows."""
        groups = self._groups[start:stop]
        of_row = self._counts[groups]
        rows = np.arange(start, stop) if self._rows is None else self._rows[start:stop]
        positions = np.repeat(rows, of_row)
        within = np.arange(len(positions)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        numbers = self._numbers[np.repeat(self._begins[groups], of_row) + within]
        if self._same is None or not len(positions):
            return positions, numbers
        same = self._same(positions, numbers)
        return positions[same], numbers[same]


class HeldColumns:
    """See the module docstring.

    Args:
        width: the number of key columns, which come first.
        store: stores large parts of the rows and of their index.
    """

    def __init__(self, width: int, store: Store | None = None) -> None:
        self._width = width
        self._rows = ColumnParts(store=store)
        self._has_null = False
        self._index = HashIndex(store)

    def __len__(self) -> int:
        return len(self._rows)

    def table(self, first: int) -> Callable[[], pa.Table] | None:
        """Return a function that builds a table of the rows from `first` on, in any thread.

        None if the table is empty.
        """
        parts = self._rows.since(first)
        return partial(_build_table, parts) if parts else None

    def add(self, hashes: Any, rows: pa.RecordBatch | UncutRows) -> None:
        """Add rows. `hashes`: the hashes of their keys."""
        self._has_null |= any(rows.column(index).null_count for index in range(self._width))
        self._rows.append(rows)
        self._index.add(hashes)

    def matches(self, hashes: Any, keys: Sequence[pa.Array]) -> Matches | None:
        """Return the stored rows with these keys, given as hashes and as columns, or None if no row matches."""
        if not len(self._rows) or not len(hashes):
            return None
        rows = self._index.near(hashes)
        probes, groups = np.unique(hashes if rows is None else hashes[rows], return_inverse=True)
        of_key, numbers = self._index.found(probes)
        if not len(numbers):
            return None
        is_exact = is_own_number([key.type for key in keys]) and not self._has_null and not keys[0].null_count
        counts = np.bincount(of_key, minlength=len(probes))
        return Matches(rows, groups, counts, numbers, None if is_exact else partial(self._same, keys))

    def taken(self, columns: Sequence[int], numbers: Any) -> list[pa.Array]:
        """Return these columns of the rows with these numbers. `numbers` must not be empty."""
        return self._rows.taken(columns, numbers)

    def _same(self, keys: Sequence[pa.Array], positions: Any, numbers: Any) -> Any:
        chosen = pa.array(positions)
        return same_keys([key.take(chosen) for key in keys], self.taken(range(self._width), numbers))


def _build_table(parts: Sequence[tuple[pa.RecordBatch | UncutRows, int]]) -> pa.Table:
    return pa.Table.from_batches([cut(part).slice(begin) for part, begin in parts])


class SideOfFewRows:
    """See the module docstring. Its rows are all rows of a side: those in columns, and new ones on top of them.

    Args:
        columns: the rows in columns, which get the new ones when they are put there.
        keys: the indexes of the key columns in the rows of a batch.
        layout: of the rows of a batch: the own columns of the rows, and further key columns.
        width: the number of own columns.
        names: the names of the key columns and of the own columns, in `columns`.
    """

    def __init__(
        self, columns: HeldColumns, keys: Sequence[int], layout: RowLayout, width: int, names: Sequence[str]
    ) -> None:
        self._columns = columns
        self._keys = tuple(keys)
        self.layout = layout
        self._width = width
        self._names = list(names)
        self._key_layout = RowLayout(self._names[: len(self._keys)], [layout.types[index] for index in self._keys])
        self._key_is_tuple = len(self._keys) > 1
        #: new rows with their further key columns, in arrival order
        self._new: list[tuple[Any, ...]] = []
        #: all rows of the keys that were looked up
        self._known: dict[Any, list[tuple[Any, ...]]] = {}
        #: the new rows of the other keys
        self._unknown: dict[Any, list[tuple[Any, ...]]] = {}
        #: the number of known keys and their rows
        self._known_count = 0

    def add(self, keys: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> None:
        """Add a few rows of a batch, given with their keys."""
        self._new += rows
        known, unknown, width = self._known, self._unknown, self._width
        is_cut = width < len(self.layout.types)
        for key, row in zip(keys, rows, strict=True):
            rows_of_key = known.get(key)
            if rows_of_key is None:
                rows_of_key = unknown.setdefault(key, [])
            else:
                self._known_count += 1
            rows_of_key.append(row[:width] if is_cut else row)
        if len(self._new) > _NEW_MAX:
            self.put_into_columns()

    def find(self, keys: Sequence[Any]) -> list[list[tuple[Any, ...]]] | None:
        """Return the rows of each key, in arrival order; None if these are more than a few pairs."""
        known = self._known
        if self._known_count > _KNOWN_MAX:
            self.put_into_columns()
            self.forget()
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing and not self._load(missing):
            return None
        matches = [known[key] for key in keys]
        return matches if sum(map(len, matches)) <= FEW_PAIRS else None

    def _load(self, keys: list[Any]) -> bool:
        """Look up keys in the columns. Returns False if they have more than a few rows there."""
        known, unknown = self._known, self._unknown
        stored: list[list[tuple[Any, ...]]] = [[] for _ in keys]
        if len(self._columns):
            columns = self._key_layout.columns(keys if self._key_is_tuple else [(key,) for key in keys]).columns
            columns = list(map(canonical_column, columns))
            matches = self._columns.matches(key_hashes(columns), columns)
            if matches is not None:
                if matches.count() > FEW_PAIRS:
                    return False
                positions, numbers = matches.pairs(0, len(keys))
                if len(positions):
                    self._read(positions, numbers, stored)
        for key, rows in zip(keys, stored, strict=True):
            rows += unknown.pop(key, ())
            known[key] = rows
            self._known_count += 1 + len(rows)
        return True

    def _read(self, positions: Any, numbers: Any, stored: list[list[tuple[Any, ...]]]) -> None:
        in_order = np.argsort(numbers, kind="stable")
        first, types = len(self._keys), self.layout.types[: self._width]
        arrays = self._columns.taken(range(first, first + self._width), numbers[in_order])
        rows = zip(*map(to_values, arrays, types), strict=True) if arrays else [()] * len(numbers)
        for position, row in zip(positions[in_order].tolist(), rows, strict=True):
            stored[position].append(row)

    def put_into_columns(self) -> None:
        """Add the new rows to the columns. Known keys stay known."""
        if not self._new:
            return
        rows = self.layout.columns(self._new).columns
        keys = [canonical_column(rows[index]) for index in self._keys]
        batch = pa.RecordBatch.from_arrays([*keys, *rows[: self._width]], self._names)
        self._columns.add(key_hashes(keys), batch)
        self._new = []
        self._unknown = {}

    def forget(self) -> None:
        """Forget the known keys. The columns have all rows."""
        self._known.clear()
        self._known_count = 0


class Expiring(Side):
    """The base class of expiring sides. Call `begin` before any other method."""

    #: the index of the time in an entry
    _time: ClassVar[int]
    _timers: TimerQueue
    _ttl_ms: int

    def begin(self, timers: TimerQueue, ttl_ms: int, now_ms: int) -> None:
        """Set the timers and the TTL. State restored from a job without times counts as written now."""
        self._timers, self._ttl_ms, self._now_ms = timers, ttl_ms, now_ms
        if not len(timers):
            # RocksDB deserializes the entries from its files each time they are listed.
            for key, rows in list(self.entries.items()):
                for entry in rows.values():
                    self._stamp(entry)
                self.entries[key] = rows
                timers.register(compute_due_time(now_ms, ttl_ms), key)
            self.mark(set(self.entries))

    def look(self, keys: Collection[Any], now_ms: int) -> None:
        """Remove the expired rows of these keys, before they are accessed."""
        self._now_ms = now_ms
        expired = {key for key in keys if self._throw_out(key)}
        if expired:
            self.mark(expired)

    def _throw_out(self, key: Any) -> bool:
        rows = self.entries.get(key)
        if rows is None:
            return False
        oldest, time = self._now_ms - self._ttl_ms, self._time
        expired = []
        for name, entry in rows.items():
            if len(entry) == time:
                self._stamp(entry)  # from a run without a state TTL
            if entry[time] > oldest:
                break
            expired.append(name)
        for name in expired:
            self._remove(key, rows, name)
        return bool(expired)

    def add(self, key: Any, row: tuple[Any, ...], by: int, matches: int) -> None:
        """See `Side`. A retraction of a missing row is dropped, because the row has expired."""
        rows, name = self.entries.get(key), self.identify_row(row)
        if by < 0 and rows is not None and name not in rows:
            row = self._stored(rows, row)
            name = self.identify_row(row)
        if by < 0 and (rows is None or name not in rows):
            return
        if rows is None:
            self._timers.register(compute_due_time(self._now_ms, self._ttl_ms), key)
        super().add(key, row, by, matches)
        self.write(key, row)

    def write(self, key: Any, row: tuple[Any, ...]) -> None:
        """Mark the entry of a row as written now."""
        rows, name = self.entries.get(key), self.identify_row(row)
        if rows is not None and name in rows:
            entry = rows.pop(name)
            self._stamp(entry)
            rows[name] = entry

    def _stamp(self, entry: list[Any]) -> None:
        entry[self._time :] = [self._now_ms]

    def next_timer_ms(self) -> int | None:
        """Return when the next rows expire that are not accessed until then."""
        return self._timers.next_timestamp()

    def fire(self, now_ms: int) -> None:
        """Remove expired rows."""
        self._now_ms = now_ms
        for _, key in self._timers.due(now_ms):
            if self._throw_out(key):
                self.mark({key})
            rows = self.entries.get(key)
            if rows:
                written = next(iter(rows.values()))[self._time]
                self._timers.register(compute_due_time(max(written, now_ms - self._ttl_ms + 1), self._ttl_ms), key)


class ExpiringSide(Expiring):
    """key -> row -> [count, number of matches, time]."""

    _time = 2


class ExpiringUpsertSide(Expiring, UpsertSide):
    """key -> id -> [1, number of matches, row, time]."""

    _time = 3


def build_side(table: KeyedTable, types: Sequence[DataType], ids: Sequence[int] | None, expires: bool) -> Side:
    """Return a side of a join. `ids`: see `UpsertSide`."""
    if ids is None:
        return ExpiringSide(table, types) if expires else Side(table, types)
    return ExpiringUpsertSide(table, types, ids) if expires else UpsertSide(table, types, ids)
