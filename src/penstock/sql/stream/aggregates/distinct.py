"""The distinct values of one column in all groups, for the aggregates with DISTINCT over it.

A `DistinctView` has a pair of group and value once, whatever the number of calls that count it. The calls differ in
their FILTER. If rows only come, a pair has a bit for each call that has met it; otherwise, a number of rows for each
call, which is below 0 while retractions wait for their rows.

The *steps* of a call (see `columns`) are 1 in the first row with a value, and -1 in the row that takes its last one
back. So COUNT, SUM and AVG of distinct values have the columns of their kind without DISTINCT.

A pair that no call counts any more stays until `keep`, like the pairs of groups that have gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.sql.data.arrow import to_column
from penstock.sql.data.types import DataType, IntegralType
from penstock.sql.stream.aggregates.columns import GroupedRows
from penstock.sql.stream.aggregates.pairs import (
    IN_MEMORY,
    Growing,
    Packed,
    PairTable,
    StateMemory,
    ValueCodes,
    Versions,
    packed_values,
    split_packed,
)
from penstock.sql.stream.rows.columns import places_in_order

#: The number of calls that can share a view.
CALLS_MAX: Final = 64
_BITS: Final = (np.uint8, np.uint16, np.uint32, np.uint64)
#: Counts have 32 bits while there are fewer rows.
_COUNT_MAX: Final = (1 << 31) - 1


class DistinctView:
    """See the module docstring.

    Args:
        operand: the index of the column.
        data_type: the type of its values, see `pairs.is_coded`.
        conditions: for each call, the index of the column of its FILTER, or None.
        retracts: whether rows may be retracted.
        memory: where the state lies.
        versions: notes which pairs change; None for state without versions.
    """

    def __init__(
        self,
        operand: int,
        data_type: DataType,
        conditions: Sequence[int | None],
        retracts: bool,
        memory: StateMemory = IN_MEMORY,
        versions: Versions | None = None,
    ) -> None:
        self._memory = memory
        self._versions = versions
        self._operand = operand
        self._type = data_type
        self._conditions = tuple(conditions)
        self._retracts = retracts
        self._codes = ValueCodes(data_type, memory)
        self._table = PairTable(memory)
        bits = next(kind for kind in _BITS if np.iinfo(kind).bits >= len(conditions))
        #: the bits of each pair, or its counts by call
        kinds = [np.int32] * len(conditions) if retracts else [bits]
        self._marks = [Growing(kind, memory=memory) for kind in kinds]
        #: the number of pairs that calls count, by group
        self._sizes = Growing(np.int64, memory=memory)
        #: the number of pairs that no call counts, or whose group has gone
        self.gone = 0
        #: no count is greater
        self._rows = 0

    def __len__(self) -> int:
        return len(self._table)

    def grow(self, size: int) -> None:
        """Add empty groups up to a number."""
        self._sizes.grow(size)

    def are_spent(self, numbers: Any) -> Any:
        """Return a mask of the groups without values, and without retractions that wait."""
        return self._sizes.array[numbers] == 0

    def forget(self, number: int) -> None:
        """Drop a group. Its number is not used again."""
        self.gone += int(self._sizes.array[number])
        self._sizes.array[number] = 0

    # --- a batch ------------------------------------------------------------------------------------------------------

    def steps(self, rows: GroupedRows) -> list[Any]:
        """Take the values of rows, and return the steps of each call."""
        steps = [np.zeros(len(rows), np.int8) for _ in self._conditions]
        counted = [rows.counted((self._operand,), condition) for condition in self._conditions]
        chosen = None if any(mask is None for mask in counted) else reduce(np.logical_or, counted).nonzero()[0]
        if chosen is not None and not len(chosen):
            return steps
        column, groups = rows.column(self._operand), rows.numbers.repeat(rows.lengths)
        if chosen is not None:
            column, groups = column.take(pa.array(chosen)), groups[chosen]
            counted = [mask[chosen] for mask in counted]
        numbers, fresh = self._locate(groups, self._codes.of(column))
        into = steps if chosen is None else [np.zeros(len(chosen), np.int8) for _ in steps]
        if self._retracts:
            pairs, local = _encode(numbers)
            signs = np.ones(len(local), np.int64) if rows.signs is None else rows.signs
            if rows.signs is not None and chosen is not None:
                signs = signs[chosen]
            self._count(pairs, local, counted, signs, into, len(fresh))
        else:
            self._set_bits(numbers, counted, into)
            self._sizes.array[rows.numbers] += np.bincount(
                np.searchsorted(rows.ends, fresh if chosen is None else chosen[fresh], side="right"),
                minlength=len(rows.numbers),
            )
        if chosen is not None:
            for of_call, of_chosen in zip(steps, into, strict=True):
                of_call[chosen] = of_chosen
        return steps

    def _locate(self, groups: Any, codes: Any) -> tuple[Any, Any]:
        numbers, fresh = self._table.locate(groups, codes)
        for marks in self._marks:
            marks.grow(len(self._table))
        if self._versions is not None:
            self._versions.grow(len(self._table))
        return numbers, fresh

    def _set_bits(self, numbers: Any, counted: Sequence[Any], steps: Sequence[Any]) -> None:
        """Let each call count the pairs that it meets. `numbers`: the pair of each row."""
        (marks,) = self._marks
        kind = marks.array.dtype.type
        met = np.zeros(len(numbers), kind)
        for index, mask in enumerate(counted):
            bit = kind(1 << index)
            met |= bit if mask is None else np.where(mask, bit, kind(0))
        met &= ~marks.array[numbers]
        rows = met.nonzero()[0]  # few of them, once most values are known
        if not len(rows):
            return
        pairs, of_rows = _encode(numbers[rows])
        met, bits = met[rows], marks.array[pairs]
        for index, of_call in enumerate(steps):
            bit = kind(1 << index)
            mine = (met & bit).nonzero()[0][::-1]
            # The last assignment of an index counts, so each pair gets its first row.
            first = np.full(len(pairs), -1)
            first[of_rows[mine]] = rows[mine]
            new = (first >= 0).nonzero()[0]
            of_call[first[new]] = 1
            bits[new] |= bit
        if self._versions is not None:
            self._versions.mark(pairs[bits != marks.array[pairs]])
        marks.array[pairs] = bits

    def _count(
        self, pairs: Any, local: Any, counted: Sequence[Any], signs: Any, steps: Sequence[Any], fresh: int
    ) -> None:
        """Let each call count the rows that it meets."""
        self._widen(len(local))
        if self._versions is not None:
            self._versions.mark(pairs)
        before = self.are_counted(pairs)
        for marks, mask, of_call in zip(self._marks, counted, steps, strict=True):
            rows = np.arange(len(local)) if mask is None else mask.nonzero()[0]
            if not len(rows):
                continue
            by_pair = places_in_order(local[rows], len(pairs))
            rows = rows[by_pair]
            of_pair, changes = local[rows], signs[rows]
            begins = np.append(True, of_pair[1:] != of_pair[:-1]).nonzero()[0]
            met = of_pair[begins]
            sums = changes.cumsum()
            base = marks.array[pairs[met]] - (sums[begins] - changes[begins])
            counts = sums + np.repeat(base, np.diff(np.append(begins, len(rows))))
            of_call[rows] = (counts > 0).astype(np.int8) - (counts - changes > 0)
            marks.array[pairs[met]] = counts[np.append(begins[1:], len(rows)) - 1]
        changes = self.are_counted(pairs).astype(np.int64) - before
        np.add.at(self._sizes.array, self._table.groups[pairs], changes)
        self.gone += fresh - int(changes.sum())

    def _widen(self, rows: int) -> None:
        """Make room for the counts of further rows."""
        if self._rows <= _COUNT_MAX < self._rows + rows:
            for marks in self._marks:
                marks.widen(np.int64)
        self._rows += rows

    def are_counted(self, pairs: Any) -> Any:
        """Return a mask of the pairs that a call counts."""
        return reduce(np.logical_or, [marks.array[pairs] != 0 for marks in self._marks])

    # --- a few rows ---------------------------------------------------------------------------------------------------

    def find_marks(self, group: int, value: Any) -> list[int]:
        """Return how often each call counts a value in its canonical form; 0 or 1 for append-only input."""
        number = self._table.find(group, self._codes.code(value)) if group >= 0 and len(self._table) else -1
        if number < 0:
            return [0] * len(self._conditions)
        if self._retracts:
            return [int(marks.array[number]) for marks in self._marks]
        bits = int(self._marks[0].array[number])
        return [bits >> index & 1 for index in range(len(self._conditions))]

    def replace(self, groups: Any, values: Sequence[Any], marks: Any) -> None:
        """Set what `find_marks` returns, for the values of groups, each once. `marks`: a row for each value."""
        numbers, fresh = self._locate(groups, self._codes.of(to_column(values, self._type)))
        before = self.are_counted(numbers)
        if self._retracts:
            self._widen(int(np.abs(marks).sum()))
            parts = list(marks.T)
        else:
            parts = [reduce(np.bitwise_or, [marks[:, index] << index for index in range(marks.shape[1])])]
        changed = np.zeros(len(numbers), np.bool_)
        for array, part in zip(self._marks, parts, strict=True):
            part = part.view(np.uint64).astype(array.array.dtype) if not self._retracts else part
            changed |= array.array[numbers] != part
            array.array[numbers] = part
        if self._versions is not None:
            self._versions.mark(numbers[changed])
        changes = self.are_counted(numbers).astype(np.int64) - before
        np.add.at(self._sizes.array, groups, changes)
        self.gone += len(fresh) - int(changes.sum())

    # --- fewer pairs --------------------------------------------------------------------------------------------------

    def keep(self, numbers: Any, size: int) -> None:
        """Renumber groups. `numbers`: the new number of each group, or -1. `size`: how many there are then."""
        groups = numbers[self._table.groups]
        kept = ((groups >= 0) & self.are_counted(slice(None))).nonzero()[0]
        self._codes, codes = self._codes.kept(self._table.codes[kept])
        self._table = PairTable.of(groups[kept], codes, self._memory)
        for marks in self._marks:
            marks.keep(kept)
        if self._versions is not None:
            self._versions.start_again(len(kept))
        self._sizes = Growing(np.int64, memory=self._memory)
        self._sizes.append(np.bincount(groups[kept], minlength=size))
        self.gone = 0

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def capture(self, numbers: Any) -> CapturedView:
        """Take the values of groups for a snapshot."""
        marks = [marks.array.copy() for marks in self._marks]
        table = self._table
        values = self._codes.as_of_now()
        calls = len(self._conditions)
        return CapturedView(numbers, table.groups, table.codes, marks, values, self._type, calls, self._retracts)

    def restore(self, first: int, states: Sequence[Sequence[Packed | Mapping[Any, int]]]) -> None:
        """Set the values of groups with consecutive numbers, for each call. `recount` follows."""
        self._widen(sum(sum(map(_count_rows, of_call)) for of_call in states) if self._retracts else 0)
        for index, of_call in enumerate(states):
            values = [part if isinstance(part, Mapping) else split_packed(part)[0] for part in of_call]
            lengths, codes = self._restored_codes(values)
            counts = np.ones(len(codes), np.int64)
            ends = lengths.cumsum()
            for part, begin, end in zip(of_call, ends - lengths, ends, strict=True):
                known = part.values() if isinstance(part, Mapping) else split_packed(part)[1]
                if known is not None:
                    counts[begin:end] = list(known)
            numbers, _ = self._locate(np.repeat(np.arange(first, first + len(lengths)), lengths), codes)
            if self._retracts:
                np.add.at(self._marks[index].array, numbers, counts)
            else:
                there = numbers[counts > 0]
                self._marks[0].array[there] |= self._marks[0].array.dtype.type(1 << index)

    def recount(self) -> None:
        """Count the values of each group, after these were restored."""
        counted = self.are_counted(slice(None))
        self._sizes.array[:] = np.bincount(self._table.groups[counted], minlength=len(self._sizes))
        self.gone = len(counted) - int(counted.sum())

    def read_parts(self, pairs: Any) -> tuple[Any, list[pa.Array]]:
        """Return the groups of pairs, and the pairs as columns: the value, and its marks."""
        codes = self._table.codes[pairs]
        marks = [pa.array(marks.array[pairs]) for marks in self._marks]
        return self._table.groups[pairs], [self._codes.column(codes), *marks]

    def set_parts(self, groups: Any, parts: Sequence[pa.Array]) -> Any:
        """Set pairs of these groups and columns, and return their numbers. Of equal pairs, the last one counts.

        `recount` follows.
        """
        values, *marks = parts
        if self._retracts:
            self._widen(sum(int(np.abs(counts.to_numpy()).sum()) for counts in marks))
        numbers, _ = self._locate(groups, self._codes.of(values))
        for array, part in zip(self._marks, marks, strict=True):
            array.array[numbers] = part.to_numpy()
        return numbers

    def _restored_codes(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """Return the number of values in each part, and the codes of all."""
        if isinstance(self._type, IntegralType):
            arrays = [
                np.frombuffer(part[1], part[0]) if isinstance(part, tuple) else np.fromiter(part, np.int64, len(part))
                for part in values
            ]
            lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
            return lengths, np.concatenate([np.zeros(0, np.int64), *arrays])
        keys = [key for part in values for key in part]
        return np.fromiter(map(len, values), np.int64, len(values)), self._codes.restored(keys)


def _encode(numbers: Any) -> tuple[Any, Any]:
    """Return the different pairs of rows, and for each row the index of its pair there."""
    encoded = pa.array(numbers).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def _count_rows(part: Packed | Mapping[Any, int]) -> int:
    """Return how many rows, or retractions that wait, the values of a part come from."""
    if isinstance(part, Mapping):
        return sum(map(abs, part.values()))
    values, counts = split_packed(part)
    return sum(map(abs, counts)) if counts is not None else len(values[1] if isinstance(values, tuple) else values)


@dataclass
class CapturedView:
    """The values of groups as of a snapshot."""

    numbers: Any
    groups: Any
    codes: Any
    marks: list[Any]
    values: ValueCodes
    data_type: DataType
    calls: int
    has_counts: bool

    def unpack(self) -> list[list[Packed]]:
        """Return the values of each group, for each call."""
        indices = np.full(int(self.groups.max(initial=-1)) + 1, -1, np.int32)
        known = self.numbers < len(indices)
        indices[self.numbers[known]] = known.nonzero()[0]
        of_pairs = indices[self.groups]
        pairs = (of_pairs >= 0).nonzero()[0]
        pairs = pairs[np.argsort(of_pairs[pairs], kind="stable")]
        return [self._of_call(index, pairs, of_pairs[pairs]) for index in range(self.calls)]

    def _of_call(self, index: int, pairs: Any, groups: Any) -> list[Packed]:
        """Return the values that a call counts. `pairs` are in the order of their groups."""
        if self.has_counts:
            counts = self.marks[index][pairs]
            chosen = counts != 0
        else:
            chosen = self.marks[0][pairs] & self.marks[0].dtype.type(1 << index) != 0
        groups = groups[chosen]
        ends = np.searchsorted(groups, np.arange(len(self.numbers)), side="right").tolist()
        packed: list[Packed] = [*packed_values(self.values.column(self.codes[pairs[chosen]]), self.data_type, ends)]
        if not self.has_counts:
            return packed
        counts, begins = counts[chosen], [0, *ends]
        for group in np.unique(groups[counts != 1]).tolist():
            packed[group] = (packed[group], counts[begins[group] : ends[group]].tolist())
        return packed
