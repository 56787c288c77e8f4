"""Rows by the hashes of their keys. Rows only come, and each has the number that it came as.

What a question costs depends on who asks. One with many keys makes a run of the rows that have come: their hashes in
order, in which each key is found by two binary searches; runs of one size become one. One with few keys looks through
the rows that have come as they lie, in chunks of which it knows the least and the greatest hash. Only when so much has
been looked through that putting in order would have cost no more, a run is made of them, too. So rows of which hardly
anything is asked cost next to nothing, and a question costs at most about twice of what it would if all were in order.

While few rows are held, a small table says of most other hashes at once that they are not among them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.table.streaming.rows.small_numbers import places_in_order

#: So many runs of a size become one.
_FACTOR: Final = 8
#: A run with so many rows stays as it is, or a question would wait too long for it.
_ROWS_MAX: Final = 1 << 22
#: Of up to so many new rows those with the same hash stay in the order in which they came; more are sorted faster.
_STABLE_MAX: Final = 1 << 12
_NONE: Final = np.zeros(0, np.int64)

#: Rows that have come lie in chunks of so many at least, but for the last ones.
_CHUNK_ROWS: Final = 1 << 14
#: Questions with more keys have the rows that have come put in order.
_ASKED_MAX: Final = 64
#: Putting a row in order costs as much as so many comparisons of a hash.
_COMPARED_MAX: Final = 64
#: Looking through a chunk costs as much as so many comparisons, even if it is empty.
_COMPARED_MIN: Final = 1 << 11

#: Of more rows nobody keeps the small table, nor asks it about fewer.
_FEW_MAX: Final = 1 << 15
_MANY: Final = 1 << 8
#: The table has so many places for each row.
_PLACES: Final = 8
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class HashIndex:
    """See the module's text."""

    def __init__(self) -> None:
        #: hashes in order, and the numbers of their rows
        self._runs: list[tuple[Any, Any]] = []
        self._chunks = _Chunks()
        self._few: _FewHashes | None = _FewHashes()

    def add(self, hashes: Any) -> None:
        """The hashes of the next rows."""
        self._chunks.add(hashes)
        if self._few is not None and not self._few.add(hashes):
            self._few = None

    def near(self, hashes: Any) -> Any:
        """The places of those hashes that may be among the rows'; None when it is not worth while to find out."""
        return None if self._few is None or len(hashes) < _MANY else self._few.places(hashes)

    def found(self, asked: Any) -> tuple[Any, Any]:
        """The rows with these hashes, which are in order: of which one each row is, and its number, by hash."""
        found = self._chunks.found(asked)
        if found is None:
            self._put_in_order()
            found = []
        found += [part for hashes, numbers in self._runs if (part := _in_run(hashes, numbers, asked)) is not None]
        if len(found) < 2:
            return found[0] if found else (_NONE, _NONE)
        of_key, numbers = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        by_key = places_in_order(of_key, len(asked))
        return of_key[by_key], numbers[by_key]

    def _put_in_order(self) -> None:
        """Make a run of the rows that have come, and one of several where they are of about one size."""
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
            # Which merges, since each run is in order.
            order = np.argsort(hashes, kind="stable")
            runs[begin:] = [(hashes[order], numbers[order])]


def _in_run(hashes: Any, numbers: Any, asked: Any) -> tuple[Any, Any] | None:
    """See `HashIndex.found`, of one run; None for no rows."""
    begins = np.searchsorted(hashes, asked)
    hits = np.flatnonzero(hashes[np.minimum(begins, len(hashes) - 1)] == asked)
    if not len(hits):
        return None
    begins = begins[hits]
    counts = np.searchsorted(hashes, asked[hits], side="right") - begins
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(hits, counts), numbers[np.repeat(begins, counts) + within]


class _Chunks:
    """Hashes as they came, since the last ones were taken."""

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        #: 16 bits of each hash, mixed, since that of a number is itself: a fourth of the memory to look through
        self._marks: list[Any] = []
        self._lows: list[Any] = []
        self._highs: list[Any] = []
        #: arrays that are in no chunk yet
        self._loose: list[Any] = []
        #: the number of the first row, and how many there are
        self._first = self._rows = 0
        #: how many comparisons there have been
        self._compared = 0

    def add(self, hashes: Any) -> None:
        """The hashes of the next rows."""
        self._loose.append(hashes)
        self._rows += len(hashes)

    def take(self) -> tuple[Any, int]:
        """All hashes, which are not here any more, and the number of the first one."""
        arrays, first = [*self._chunks, *self._loose], self._first
        for each in (self._chunks, self._marks, self._lows, self._highs, self._loose):
            each.clear()
        self._first, self._rows, self._compared = first + self._rows, 0, 0
        return np.concatenate(arrays) if arrays else _NONE, first

    def found(self, asked: Any) -> list[tuple[Any, Any]] | None:
        """See `HashIndex.found`, a part for each chunk and hash; None where all should be put in order instead."""
        if not self._rows:
            return []
        if len(asked) > _ASKED_MAX:
            return None
        self._fill()
        starts = np.cumsum([0, *map(len, self._chunks)])
        lows, highs = np.array(self._lows)[:, None], np.array(self._highs)[:, None]
        chunks, hits = np.nonzero((lows <= asked) & (asked <= highs))
        self._compared += int(np.sum(np.diff(starts)[chunks])) + _COMPARED_MIN * len(chunks)
        if self._compared > _COMPARED_MAX * self._rows:
            return None
        found = []
        marks = _marks_of(asked)
        for chunk, hit in zip(chunks.tolist(), hits.tolist(), strict=True):
            are_marked = self._marks[chunk] == marks[hit]
            if not are_marked.any():
                continue
            rows = np.flatnonzero(are_marked)
            rows = rows[self._chunks[chunk][rows] == asked[hit]]
            if len(rows):
                found.append((np.full(len(rows), hit), rows + (self._first + starts[chunk])))
        return found

    def _fill(self) -> None:
        """Put what has come into chunks; the last one may be small, and grows then."""
        loose, self._loose = self._loose, []
        if loose and self._chunks and len(self._chunks[-1]) < _CHUNK_ROWS:
            loose.insert(0, self._chunks.pop())
            del self._marks[-1], self._lows[-1], self._highs[-1]
        begin = rows = 0
        for place, hashes in enumerate(loose, 1):
            rows += len(hashes)
            if rows >= _CHUNK_ROWS or (place == len(loose) and rows):
                chunk = np.concatenate(loose[begin:place]) if place - begin > 1 else hashes
                self._chunks.append(chunk)
                self._marks.append(_marks_of(chunk))
                self._lows.append(chunk.min())
                self._highs.append(chunk.max())
                begin, rows = place, 0


def _marks_of(hashes: Any) -> Any:
    return _first_bits(hashes, 16).astype(np.uint16)


def _first_bits(hashes: Any, bits: int) -> Any:
    """So many bits of each hash, mixed."""
    return (hashes.view(np.uint64) * _MIX) >> np.uint64(64 - bits)


class _FewHashes:
    """A table with a place for each of few hashes, which others may have, too."""

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
        """Take hashes in; False if they are too many."""
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
        """The places of the hashes that may be among them."""
        return np.flatnonzero(self._table[_first_bits(hashes, self._bits)])
