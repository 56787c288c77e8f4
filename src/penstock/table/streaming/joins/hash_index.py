"""Indexes append-only rows by the hashes of their keys. Rows are numbered in arrival order.

The strategy depends on the number of keys in a lookup. A lookup of many keys sorts the new rows into a run: sorted
hashes, in which two binary searches find each key; runs of similar size are merged. A lookup of few keys scans the
unsorted new rows, in chunks with known minimum and maximum hashes. The new rows become a run once scanning them has
cost as much as sorting. So rows that are rarely looked up cost almost nothing, and a lookup costs at most about twice
as much as if all rows were sorted.

While there are few rows, a small table quickly rejects most hashes that are not in the index.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.table.streaming.rows.small_numbers import places_in_order

#: The number of runs of similar size that are merged.
_FACTOR: Final = 8
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
    """See the module docstring."""

    def __init__(self) -> None:
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
            runs[begin:] = [(hashes[order], numbers[order])]


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
