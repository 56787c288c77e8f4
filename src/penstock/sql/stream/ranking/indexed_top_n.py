"""Top-N whose partitions are numbers in an index, for append-only inputs and state without a lifetime.

The rows are in a `RowLog`. A `KeyIndex` finds the number of a partition, and a partition's row numbers and sort keys
are a row of two-dimensional arrays. So the rows of many partitions are ranked at once, a checkpoint writes the rows
that are new, and with RocksDB all of it may be larger than memory.

A batch is ranked in rounds: each round takes the next row of every partition that has one. The rows of a partition
depend on one another, so a partition with many new rows would need many rounds: rows that cannot rank are discarded
first. When few partitions are left, `TopN` ranks their rows one by one, as it does the rows of small batches.
`_Changes` puts the changes that both report in the order of arrival.

For a batch of a few rows, kernels cost more than Python. Their partitions become groups of `TopN` in a small
dictionary, on top of the log. The groups that changed join the log before a large batch and before a checkpoint.

Sort keys are compared as 64-bit integers, one or two for each column of the order (`SortValues`).

State that another operator kept by key is taken over, and the other operators take over the rows of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.codecs.column_data import ColumnData
from penstock.runtime.columns import ColumnBatch, as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.records import Batch
from penstock.sql.data.types import DataType, DoubleType, FloatType
from penstock.sql.logical.nodes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, SortKey
from penstock.sql.stream.ranking.top_n import (
    PARTITIONS,
    TOP_ROWS,
    Sent,
    TopN,
    about_top_rows,
    build_change_batch,
    build_change_layout,
)
from penstock.sql.stream.rows.columns import same_keys
from penstock.sql.stream.rows.key_index import (
    ABSENT,
    Groups,
    KeyIndex,
    find_first_rows,
    group_distinct_rows,
    group_rows,
)
from penstock.sql.stream.rows.row_log import RowLog, label
from penstock.sql.stream.rows.rows import WHOLE_TYPES, TupleKeys, sort_keys, to_tuples
from penstock.state.equality import canonical_column
from penstock.state.key_columns import RowMeaning, to_ordered_numbers
from penstock.state.snapshot import StateCapture

#: A partition has room for all its rows from the beginning, so there must not be many.
RANKS_MAX: Final = 32
#: With fewer partitions than this, rows are ranked one by one.
_PARTITIONS_MIN: Final = 48
#: How many times the wanted rows `may_rank` ranks at first, and by how much this grows.
_RANKED_FIRST: Final = 2
_RANKED_NEXT: Final = 3
#: Batches of at most this many rows are processed in Python.
FEW_ROWS: Final = 512
#: The number of groups at which they join the log.
_GROUPS_MAX: Final = 1 << 11
_PARTITIONS_AT_FIRST: Final = 1 << 8
_ROWS_AT_ONCE: Final = 1 << 14
_NO_ROW: Final = -1


def can_compare(order: Sequence[SortKey], types: Sequence[DataType]) -> bool:
    """Return whether `SortValues` can compare rows in this order."""
    allowed = (*WHOLE_TYPES, DoubleType, FloatType)
    return bool(order) and all(isinstance(types[key.index], allowed) for key in order)


class SortValues:
    """The sort keys of rows as arrays of 64-bit integers, which are compared one after the other.

    A column that may have NULL is two arrays: whether it is NULL, and its value.
    """

    def __init__(self, order: Sequence[SortKey], types: Sequence[DataType]) -> None:
        self._order = tuple(order)
        self._types = tuple(types)
        #: the number of arrays
        self.width = sum(1 + types[key.index].is_nullable for key in order)

    def of(self, columns: Sequence[pa.Array]) -> Any:
        """Return the arrays, given all columns of the rows: one column of a NumPy array each."""
        arrays = []
        for key in self._order:
            column = columns[key.index]
            if self._types[key.index].is_nullable:
                is_null = column.is_null().to_numpy(zero_copy_only=False)
                arrays.append((is_null != key.nulls_first).astype(np.int64))
            values = to_ordered_numbers(column)
            arrays.append(~values if key.is_descending else values)
        return np.stack(arrays, axis=1)


@dataclass(frozen=True, slots=True)
class Emission:
    """The output of a top-N.

    Args:
        start: the first row number of the range.
        end: the last one.
        is_numbered: whether each row number whose row changes causes an update.
        shows_number: whether the row number is output.
        sends_before: whether updates include the previous row (UPDATE_BEFORE).
    """

    start: int
    end: int
    is_numbered: bool
    shows_number: bool
    sends_before: bool


class _Changes:
    """Changes that are reported in any order: each with the row that causes it, and its position among its changes."""

    def __init__(self, emission: Emission) -> None:
        self._emission = emission
        self._parts: list[tuple[Any, Any, Any, Any, Any]] = []

    def add(self, causes: Any, positions: Any, kinds: Any, rows: Any, numbers: Any) -> None:
        """Add changes, given as arrays."""
        self._parts.append((causes, positions, kinds, rows, numbers))

    def add_round(self, causes: Any, ranks: Any, counts: Any, before: Any, after: Any) -> None:
        """Add the changes that one new row causes in each of several partitions.

        Args:
            causes: the new rows.
            ranks: the index at which each was inserted.
            counts: the number of rows that each partition had.
            before: the row numbers of each partition before, `_NO_ROW` for none.
            after: the same with the new row.
        """
        emission, end = self._emission, self._emission.end
        if not emission.is_numbered:
            is_full = counts == end
            self.add(causes, 1, INSERT, causes, 0)
            self.add(causes[is_full], 0, DELETE, before[is_full, end - 1], 0)
            return
        numbers = np.arange(end)
        first = np.maximum(ranks, emission.start - 1)
        changes = (numbers >= first[:, None]) & (numbers <= counts[:, None])
        partitions, indices = np.nonzero(changes)
        is_new = indices == counts[partitions]
        kinds = np.where(is_new, INSERT, UPDATE_AFTER)
        of_cause = causes[partitions]
        self.add(of_cause, 2 * indices + 1, kinds, after[partitions, indices], indices + 1)
        if emission.sends_before:
            old = ~is_new
            rows = before[partitions[old], indices[old]]
            self.add(of_cause[old], 2 * indices[old], UPDATE_BEFORE, rows, indices[old] + 1)

    def sorted(self) -> tuple[Any, Any, Any]:
        """Return the kinds, rows and row numbers of all changes, in the order of arrival of their causes."""
        columns = [
            np.concatenate([np.broadcast_to(part[index], part[0].shape) for part in self._parts]) for index in range(5)
        ]
        causes, positions, kinds, rows, numbers = columns
        order = np.lexsort((positions, causes))
        return kinds[order], rows[order], numbers[order]

    def __bool__(self) -> bool:
        return any(len(part[0]) for part in self._parts)


@dataclass(slots=True)
class _Group:
    """A group of `TopN`, with the rows that the log has of it and their numbers."""

    ranked: list[Any]
    rows: list[tuple[Any, ...]]
    numbers: list[int]


def is_less(left: Any, right: Any) -> Any:
    """Compare arrays of sort values along the last axis."""
    less = left[..., -1] < right[..., -1]
    for index in reversed(range(left.shape[-1] - 1)):
        mine, other = left[..., index], right[..., index]
        less = (mine < other) | ((mine == other) & less)
    return less


def dense_ranks(values: Any) -> Any:
    """Return the rank of each row among all rows; equal rows have the same rank."""
    if values.shape[1] == 1:
        return np.unique(values[:, 0], return_inverse=True)[1].reshape(-1)
    ranks = np.empty(len(values), np.int64)
    in_order = np.lexsort(values.T[::-1])
    ordered = values[in_order]
    ranks[in_order] = np.cumsum(np.append(False, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return ranks


def may_rank(begins: Any, values: Any, end: int) -> Any:
    """Return a mask of the rows that may be among the first `end` of their partition when they arrive.

    The first rows of each partition set a limit for its later rows. Then more of the remaining rows set a closer one.

    Args:
        begins: the index of the first row of each partition, followed by the number of rows.
        values: the sort values of the rows, ordered by partition and arrival.
        end: how many rows of each partition are wanted.
    """
    mask = np.ones(len(values), np.bool_)
    count = _RANKED_FIRST * end
    if np.diff(begins).max() <= count:
        return mask
    ranks = dense_ranks(values)
    left = np.arange(len(values))
    while True:
        sizes = np.diff(begins)
        is_long = sizes > count
        if not is_long.any():
            return mask
        within = np.arange(len(left)) - np.repeat(begins[:-1], sizes)
        of_long = np.repeat(is_long, sizes)
        first = left[of_long & (within < count)]
        # All long partitions have `count` rows here, each in a row of its own.
        limits = np.partition(ranks[first].reshape(-1, count), end - 1, axis=1)[:, end - 1]
        limit = np.full(len(sizes), np.iinfo(np.int64).max)
        limit[is_long] = limits
        stays = (within < count) | (ranks[left] < np.repeat(limit, sizes))
        mask[left[~stays]] = False
        left = left[stays]
        begins = np.append(0, np.cumsum(np.add.reduceat(stays, begins[:-1])))
        count *= _RANKED_NEXT


class IndexedTopNOperator(StreamOperator):
    """See the module docstring.

    Args:
        partition: the indexes of the partition columns, at least one.
        order: the sort keys, see `can_compare`; equal rows stay in arrival order.
        emission: the form of the output.
        top: ranks rows one by one; it gets numbers instead of rows, and must not look at their values.
        types: the types of the input columns.
        names: the names of the output columns: the input columns, and the row number if it is output.
        labels: what users call the input columns, for readers of the state.
    """

    is_keyed = True

    def __init__(
        self,
        partition: Sequence[int],
        order: Sequence[SortKey],
        emission: Emission,
        top: TopN,
        types: Sequence[DataType],
        names: Sequence[str],
        labels: Sequence[str] = (),
    ) -> None:
        self._labels = tuple(labels)
        self._partition = tuple(partition)
        self._sort_values = SortValues(order, types)
        self._emission = emission
        self._top = top
        self._order = tuple(order)
        self._types = tuple(types)
        self._names = list(names)
        self._layout = build_change_layout(types, names)
        self._keys = TupleKeys(partition, [types[index] for index in partition])
        #: the groups of some keys, and the keys whose groups have rows that are not in the log yet
        self._groups: dict[Any, _Group] = {}
        self._changed: set[Any] = set()

    # --- state --------------------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        """Load the restored rows."""
        super().initialize_state()
        about = about_top_rows(self._partition)
        order = tuple((str(key.index), key.is_descending, key.nulls_first) for key in self._order)
        meaning = RowMeaning(tuple(map(str, self._partition)), self._emission.end, order, labels=label(self._labels))
        self._rows = RowLog(self.context, TOP_ROWS, about, self._partition, self._types, self._names, meaning)
        self._rank_all()
        if self.context.keyed.has_restored(PARTITIONS):
            rows: list[tuple[Any, ...]] = []
            for group in self.context.keyed.table(PARTITIONS).drop(None).values():
                rows += group[1]
                if len(rows) >= _ROWS_AT_ONCE:
                    self._take_over(rows)
                    rows = []
            if rows:
                self._take_over(rows)

    def _rank_all(self) -> None:
        """Rank the rows of the log again."""
        keyed = self.context.keyed
        self._index = KeyIndex(keyed.allocate)
        self._may_share_hash = False
        self._partitions = 0
        self._counts, self._ranked, self._values = self._create_arrays(_PARTITIONS_AT_FIRST)
        numbers = self._rows.kept_numbers()
        for begin in range(0, len(numbers), _ROWS_AT_ONCE):
            some = numbers[begin : begin + _ROWS_AT_ONCE]
            self._rank(self._rows.columns(some), some, None)

    def _take_over(self, rows: list[tuple[Any, ...]]) -> None:
        first = self._rows.restore(rows)
        numbers = np.arange(first, self._rows.end)
        self._rank(self._rows.columns(numbers), numbers, None)

    def _create_arrays(self, partitions: int) -> tuple[Any, Any, Any]:
        """Return arrays for partitions: their number of rows, the numbers of these, and their sort values."""
        allocate, end, width = self.context.keyed.allocate, self._emission.end, self._sort_values.width
        ranked = allocate(partitions * end, np.int64).reshape(partitions, end)
        values = allocate(partitions * end * width, np.int64).reshape(partitions, end, width)
        return allocate(partitions, np.int64), ranked, values

    def _make_room(self, partitions: int) -> None:
        """Let the arrays hold that many partitions."""
        if partitions > len(self._counts):
            former = (self._counts, self._ranked, self._values)
            self._counts, self._ranked, self._values = self._create_arrays(2 * partitions)
            for array, values in zip((self._counts, self._ranked, self._values), former, strict=True):
                array[: len(values)] = values

    def snapshot_state(self, checkpoint_id: int) -> list[StateCapture]:
        """Capture the rows that are not in the last completed checkpoint."""
        self._put_groups_into_log()
        return [*super().snapshot_state(checkpoint_id), *self._rows.capture(checkpoint_id)]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process rows and emit the resulting changes."""
        records = as_columns(batch, self.context.operator_name)
        if not len(records):
            return
        if len(records) <= FEW_ROWS:
            self._process_few(records)
            return
        self._put_groups_into_log()
        changes = _Changes(self._emission)
        self._rank(records.columns.columns[: len(self._types)], None, changes)
        if changes:
            kinds, rows, numbers = changes.sorted()
            shown = (pa.array(numbers, pa.int64()),) if self._emission.shows_number else ()
            sent = kinds.astype(np.uint8).tobytes() if kinds.any() else None
            self.output.collect(self._rows.batch(rows, sent, *shown))
        self._compact_if_worthwhile()

    def _compact_if_worthwhile(self) -> None:
        if self._rows.must_compact:
            self._rows.compact()
            self._rank_all()

    def _rank(self, columns: Sequence[pa.Array], numbers: Any, changes: _Changes | None) -> None:
        """Rank rows of the log, given their numbers, or new rows, which join the log if they may rank."""
        keys = [canonical_column(columns[index]) for index in self._partition]
        groups = group_rows(keys)
        partitions = self._find_partitions(groups, keys)[groups.codes]
        values = self._sort_values.of(columns)
        near = np.flatnonzero(self._are_near(partitions, values))
        if numbers is not None:
            far = np.ones(len(numbers), np.bool_)
            far[near] = False
            self._rows.release(numbers[far])
            numbers = numbers[near]
        elif len(near):
            batch = pa.RecordBatch.from_arrays(list(columns), self._names[: len(columns)])
            first = self._rows.add(batch if len(near) == len(values) else batch.take(pa.array(near)))
            numbers = np.arange(first, self._rows.end)
        if len(near):
            self._rank_near(partitions[near], values[near], numbers, changes)

    # --- a few rows ---------------------------------------------------------------------------------------------------

    def _process_few(self, records: ColumnBatch) -> None:
        rows = to_tuples(records, self._types)
        keys = self._keys.of(rows)
        first_of_key = find_first_rows(keys, self._groups)
        if first_of_key:
            self._load(records.data, first_of_key)
        order_keys, sent = sort_keys(self._order, self._types, rows), Sent()
        groups, end = self._groups, self._emission.end
        for key, order_key, row in zip(keys, order_keys, rows, strict=True):
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group(self._top.create(end), [], [])
            ranked = group.ranked[1]
            before = len(ranked), ranked[-1] if ranked else None
            self._top.add(group.ranked, order_key, row, sent)
            if len(ranked) != before[0] or ranked[-1] is not before[1]:
                self._changed.add(key)
        if sent.rows:
            self.output.collect(build_change_batch(sent, self._layout, self._emission.shows_number))
        if len(groups) > _GROUPS_MAX:
            self._put_groups_into_log()

    def _load(self, data: ColumnData, first_of_key: dict[Any, int]) -> None:
        """Read the groups of keys from the log. `first_of_key` maps each key to a row of the batch with this key."""
        if not self._partitions:
            return
        first = np.array(list(first_of_key.values()))
        keys = [canonical_column(data.taken(index, first)) for index in self._partition]
        partitions = self._find(group_distinct_rows(keys), keys)
        known = np.flatnonzero(partitions != ABSENT)
        if not len(known):
            return
        counts = self._counts[partitions[known]]
        numbers = self._ranked[partitions[known]][np.arange(self._emission.end) < counts[:, None]]
        stored = pa.RecordBatch.from_arrays(self._rows.columns(numbers), list(map(str, range(len(self._types)))))
        rows = to_tuples(ColumnBatch(stored), self._types)
        order_keys = sort_keys(self._order, self._types, rows)
        logged = numbers.tolist()
        names, begin = list(first_of_key), 0
        for index, count in zip(known.tolist(), counts.tolist(), strict=True):
            stop = begin + count
            ranked = [order_keys[begin:stop], rows[begin:stop], self._emission.end]
            self._groups[names[index]] = _Group(ranked, rows[begin:stop], logged[begin:stop])
            begin = stop

    def _put_groups_into_log(self) -> None:
        """Add the new rows of the groups that changed to the log, and forget the groups."""
        groups, changed, self._changed = self._groups, self._changed, set()
        changed_groups = [group for key, group in groups.items() if key in changed]
        if changed_groups:
            self._put_into_log(changed_groups)
            self._compact_if_worthwhile()
        groups.clear()

    def _put_into_log(self, groups: list[_Group]) -> None:
        # Rows of the log must not be added again: a restore would rank both.
        logged = [dict(zip(map(id, group.rows), group.numbers, strict=True)) for group in groups]
        rows = [
            row for group, known in zip(groups, logged, strict=True) for row in group.ranked[1] if id(row) not in known
        ]
        next_number = self._rows.restore(rows) if rows else self._rows.end
        numbers: list[int] = []
        for group, known in zip(groups, logged, strict=True):
            for row in group.ranked[1]:
                number = known.get(id(row))
                if number is None:
                    number, next_number = next_number, next_number + 1
                numbers.append(number)
        counts = np.array([len(group.ranked[1]) for group in groups])
        of_rows, ranked = np.repeat(np.arange(len(groups)), counts), np.array(numbers, np.int64)
        begins = np.cumsum(counts) - counts
        columns = self._rows.columns(ranked)
        first = pa.array(begins)
        keys = [canonical_column(columns[index].take(first)) for index in self._partition]
        partitions = self._find_partitions(group_distinct_rows(keys), keys)
        former = self._ranked[partitions][np.arange(self._emission.end) < self._counts[partitions][:, None]]
        self._rows.release(np.setdiff1d(former, ranked))
        self._counts[partitions] = counts
        ranks = np.arange(len(ranked)) - np.repeat(begins, counts)
        self._ranked[partitions[of_rows], ranks] = ranked
        self._values[partitions[of_rows], ranks] = self._sort_values.of(columns)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _find_partitions(self, groups: Groups, keys: Sequence[pa.Array]) -> Any:
        """Return the number of each group's partition; new ones get the next numbers."""
        partitions = self._find(groups, keys)
        is_new = partitions == ABSENT
        count = int(is_new.sum())
        if count:
            first, self._partitions = self._partitions, self._partitions + count
            self._make_room(self._partitions)
            partitions[is_new] = np.arange(first, self._partitions)
            self._index.insert(groups.hashes[is_new], partitions[is_new])
        return partitions

    def _find(self, groups: Groups, keys: Sequence[pa.Array]) -> Any:
        """Return the number of each group's partition, `ABSENT` if it is new."""
        self._may_share_hash |= not groups.is_exact

        def same(positions: Any, partitions: Any) -> Any:
            mine = pa.array(groups.first[positions])
            columns = self._rows.columns(self._ranked[partitions, 0], self._partition)
            return same_keys([key.take(mine) for key in keys], list(map(canonical_column, columns)))

        return self._index.find(groups.hashes, same if self._may_share_hash else None)[0]

    def _are_near(self, partitions: Any, values: Any) -> Any:
        """Return a mask of the rows that rank before the last ones of their partitions, or whose partition has room."""
        end = self._emission.end
        return (self._counts[partitions] < end) | is_less(values, self._values[partitions, end - 1])

    def _rank_near(self, partitions: Any, values: Any, numbers: Any, changes: _Changes | None) -> None:
        order = np.argsort(partitions, kind="stable")
        partitions, values, numbers = partitions[order], values[order], numbers[order]
        if self._emission.end == 1 and len(order) >= _PARTITIONS_MIN:
            self._rank_first(partitions, values, numbers, changes)
            return
        begins = np.flatnonzero(np.append(True, partitions[1:] != partitions[:-1]))
        mask = may_rank(np.append(begins, len(partitions)), values, self._emission.end)
        if not mask.all():
            self._rows.release(numbers[~mask])
            partitions, values, numbers = partitions[mask], values[mask], numbers[mask]
            begins = np.flatnonzero(np.append(True, partitions[1:] != partitions[:-1]))
        ends = np.append(begins[1:], len(partitions))
        at = begins
        while len(at) >= _PARTITIONS_MIN:
            self._rank_round(partitions[at], values[at], numbers[at], changes)
            is_left = at + 1 < ends
            at, ends = at[is_left] + 1, ends[is_left]
        for begin, end in zip(at.tolist(), ends.tolist(), strict=True):
            self._rank_one_by_one(int(partitions[begin]), values[begin:end], numbers[begin:end], changes)

    def _rank_round(self, partitions: Any, values: Any, numbers: Any, changes: _Changes | None) -> None:
        """Rank one row in each of several partitions."""
        end = self._emission.end
        near = self._are_near(partitions, values)
        if not near.all():
            self._rows.release(numbers[~near])
            partitions, values, numbers = partitions[near], values[near], numbers[near]
        counts, ranked, stored = self._counts[partitions], self._ranked[partitions], self._values[partitions]
        indices = np.arange(end)
        is_before = ~is_less(values[:, None, :], stored) & (indices < counts[:, None])
        ranks = is_before.sum(axis=1)
        # From its rank on, each row moves to the next index.
        source = np.where(indices <= ranks[:, None], indices, indices - 1)
        is_rank = indices == ranks[:, None]
        after = np.where(is_rank, numbers[:, None], np.take_along_axis(ranked, source, 1))
        moved = np.take_along_axis(stored, source[:, :, None], 1)
        is_full = counts == end
        self._ranked[partitions] = after
        self._values[partitions] = np.where(is_rank[:, :, None], values[:, None, :], moved)
        self._counts[partitions] = np.minimum(counts + 1, end)
        if changes is not None:
            changes.add_round(numbers, ranks, counts, ranked, after)
        self._rows.release(ranked[is_full, end - 1])

    def _rank_first(self, partitions: Any, values: Any, numbers: Any, changes: _Changes | None) -> None:
        """Find the rows that are the first of their partition when they arrive, where one rank is wanted."""
        ranks = dense_ranks(values)
        is_begin = np.append(True, partitions[1:] != partitions[:-1])
        # The base of a partition puts its ranks below the ranks of all earlier partitions.
        bases = -np.cumsum(is_begin) * (len(values) + 1)
        least = np.minimum.accumulate(ranks + bases)
        is_first = is_begin.copy()
        is_first[1:] |= least[1:] < least[:-1]
        self._rows.release(numbers[~is_first])
        partitions, values, numbers = partitions[is_first], values[is_first], numbers[is_first]
        is_begin = np.append(True, partitions[1:] != partitions[:-1])
        counts = self._counts[partitions]
        counts[~is_begin] = 1
        before = np.append(_NO_ROW, numbers[:-1])
        before[is_begin] = self._ranked[partitions[is_begin], 0]
        if changes is not None:
            changes.add_round(numbers, np.zeros(len(numbers), np.int64), counts, before[:, None], numbers[:, None])
        self._rows.release(before[counts == 1])
        is_last = np.append(is_begin[1:], True)
        last = partitions[is_last]
        self._counts[last] = 1
        self._ranked[last, 0] = numbers[is_last]
        self._values[last, 0] = values[is_last]

    def _rank_one_by_one(self, partition: int, values: Any, numbers: Any, changes: _Changes | None) -> None:
        """Rank several rows in one partition."""
        count, end = int(self._counts[partition]), self._emission.end
        former = self._ranked[partition, :count].tolist()
        rows = list(former)
        keys = list(map(tuple, self._values[partition, :count].tolist()))
        group = [keys, rows, end]
        sent = Sent()
        causes: list[int] = []
        add = self._top.add
        for key, number in zip(map(tuple, values.tolist()), numbers.tolist(), strict=True):
            add(group, key, number, sent)
            causes += [number] * (len(sent.rows) - len(causes))
        count = len(rows)
        self._counts[partition] = count
        self._ranked[partition, :count] = rows
        self._values[partition, :count] = keys
        gone = set(chain(former, numbers.tolist())).difference(rows)
        self._rows.release(np.fromiter(gone, np.int64, len(gone)))
        if changes is not None and causes:
            shown = np.array(sent.numbers, np.int64)
            lists = (np.array(causes), np.arange(len(causes)), np.array(sent.kinds), np.array(sent.rows))
            changes.add(*lists, shown)
