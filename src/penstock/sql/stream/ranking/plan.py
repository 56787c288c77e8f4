"""Plans top-N, deduplication and sorting: their operators, and the changes that they emit and require.

`EventTimeSortOperator` and `ProcessingTimeSortOperator` run ORDER BY a time attribute: they sort rows by time, and rows
with the same time by the other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.base.errors import UnsupportedError
from penstock.runtime.columns import as_columns
from penstock.runtime.operators.base import StreamOperator
from penstock.runtime.operators.watermarks import LATE_RECORDS
from penstock.runtime.records import MIN_TIMESTAMP, Batch
from penstock.sql.analyzer.select import find_window_edges
from penstock.sql.data.arrow import milliseconds
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import DataType, RawType, VariantType
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, Rank, Sort, SortKey, TimeAttribute, Values
from penstock.sql.stream.planning.options import Optimization
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.planning.upsert_keys import Course, courses, unique_key
from penstock.sql.stream.ranking.columnar import ColumnLastRowOperator, ColumnRankOperator, WindowRankOperator
from penstock.sql.stream.ranking.deduplicate import FirstRowOperator, FirstRowsOperator, LastRowOperator
from penstock.sql.stream.ranking.indexed_last_row import IndexedLastRowOperator
from penstock.sql.stream.ranking.indexed_top_n import RANKS_MAX, Emission, IndexedTopNOperator, can_compare
from penstock.sql.stream.ranking.top_n import LatestTopN, RankOperator, RetractableTopN, Top1, TopN, UpdatableTopN
from penstock.sql.stream.rows.rows import build_batch, sort_keys, to_tuples
from penstock.sql.stream.rows.state_ttl import StreamSession, lasting
from penstock.sql.stream.windows.window_aggregate import WindowTime

#: The states: the rows of each time (ms), and the last time whose rows have been sent.
ROWS: Final = "rows"
SENT: Final = "sent"
#: The key of all rows, because a single subtask sorts them.
ALL_ROWS: Final = 0


class EventTimeSortOperator(StreamOperator):
    """Emits rows when the watermark reaches them. Rows up to the last time emitted are late.

    Args:
        order: the time attribute, followed by the other sort keys.
        types: the types of the columns.
        names: the names of the columns.
    """

    is_keyed = True

    def __init__(self, order: Sequence[SortKey], types: Sequence[DataType], names: Sequence[str]) -> None:
        self._order = tuple(order)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the states and the pending rows."""
        self._rows = self.context.keyed.table(ROWS)
        self._sent = self.context.keyed.table(SENT)
        self._due = [time for time, rows in self._rows.panes.items() if rows]
        heapify(self._due)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep rows until they are due."""
        records = as_columns(batch, self.context.operator_name)
        last = self._sent.entries(None).get(ALL_ROWS, MIN_TIMESTAMP - 1)
        times = milliseconds(records.columns.column(self._order[0].index)).tolist()
        late = 0
        for time, row in zip(times, to_tuples(records, self._types), strict=True):
            if time <= last:
                late += 1
                continue
            entries = self._rows.entries(time)
            if not entries:
                entries[ALL_ROWS] = []
                heappush(self._due, time)
            entries[ALL_ROWS].append(row)
            self._rows.mark(time, (ALL_ROWS,))
        if late:
            self.context.count(LATE_RECORDS, late)

    def process_watermark(self, timestamp: int) -> None:
        """Emit the rows that the watermark has reached."""
        rows: list[tuple[Any, ...]] = []
        times: list[int] = []
        while self._due and self._due[0] <= timestamp:
            time = heappop(self._due)
            due_rows = self._rows.drop(time)[ALL_ROWS]
            rows += _in_order(due_rows, self._order, self._types)
            times += [time] * len(due_rows)
        if rows:
            self._sent.entries(None)[ALL_ROWS] = times[-1]
            self._sent.mark(None, (ALL_ROWS,))
            self.output.collect(build_batch(rows, self._types, self._names, np.array(times, np.int64)))
        self.output.emit_watermark(timestamp)


class ProcessingTimeSortOperator(StreamOperator):
    """Emits the rows of one millisecond, sorted, once it has passed, and the remaining ones at the end of the input.

    Args:
        order: the sort keys after the time attribute.
        types: the types of the columns.
        names: the names of the columns.
    """

    is_keyed = True

    def __init__(self, order: Sequence[SortKey], types: Sequence[DataType], names: Sequence[str]) -> None:
        self._order = tuple(order)
        self._types = tuple(types)
        self._names = list(names)

    def open(self) -> None:
        """Look up the state."""
        table = self.context.keyed.table(ROWS)
        self._entries, self._mark = table.entries(None), table.mark

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Keep rows until their millisecond has passed."""
        records = as_columns(batch, self.context.operator_name)
        pending = self._entries.setdefault(ALL_ROWS, [self.context.now_ms() + 1, []])
        pending[1] += to_tuples(records, self._types)
        self._mark(None, (ALL_ROWS,))

    def next_timer_ms(self) -> int | None:
        """See `StreamOperator`."""
        pending = self._entries.get(ALL_ROWS)
        return None if pending is None else int(pending[0])

    def on_processing_time(self, now_ms: int) -> None:
        """Emit the rows that are due."""
        pending = self._entries.get(ALL_ROWS)
        if pending is not None and pending[0] <= now_ms:
            self.finish()

    def finish(self) -> None:
        """Emit the remaining rows."""
        pending = self._entries.pop(ALL_ROWS, None)
        if pending is not None:
            self._mark(None, (ALL_ROWS,))
            rows = _in_order(pending[1], self._order, self._types)
            self.output.collect(build_batch(rows, self._types, self._names))


def _in_order(
    rows: list[tuple[Any, ...]], order: Sequence[SortKey], types: Sequence[DataType]
) -> list[tuple[Any, ...]]:
    keys = sort_keys(order, types, rows)
    return [rows[index] for index in sorted(range(len(rows)), key=keys.__getitem__)]


ChangesOf: TypeAlias = Callable[[logical.Node], Changes]


# --- ranks ------------------------------------------------------------------------------------------------------------


def rank_changes(node: Rank, changes: ChangesOf) -> Changes:
    """Return the changelog mode of a top-N."""
    if _window_edges(node, changes) is not None:
        return INSERTS
    time = _find_deduplication_time(node, changes)
    return INSERTS if time is not None and not node.order[0].is_descending else ALL


def rank_asks_before(node: Rank | Sort, changes: ChangesOf, updates_in_place: bool = True) -> bool:
    """Return whether the input must include UPDATE_BEFORE. `updates_in_place`: see `rank_operator`."""
    if changes(node.input) == INSERTS:
        return False
    return not isinstance(node, Rank) or not updates_in_place or _update_key(node, changes) is None


def rank_operator(
    node: Rank,
    names: Sequence[str],
    changes: ChangesOf,
    sends_before: bool,
    session: StreamSession,
    keeps_columns: bool = False,
    updates_in_place: bool = True,
    is_in_memory: bool = False,
    expires: bool = False,
) -> Factory:
    """Return the operator of a top-N.

    Args:
        node: the top-N.
        names: the names of the output columns.
        changes: returns the changelog mode of a node.
        sends_before: whether updates include UPDATE_BEFORE.
        session: the session of its operator.
        keeps_columns: whether rows may be stored as columns.
        updates_in_place: whether a row may replace the previous row of its key if it only moves up.
        is_in_memory: whether state must fit into memory.
        expires: whether state expires some time after it was written.
    """
    keeps_columns = keeps_columns and not any(_holds_objects(data_type) for data_type in node.input.schema.types)
    types = node.input.schema.types
    edges = _window_edges(node, changes)
    if edges is not None:
        return _of_windows(node, edges, names, session)
    time = _find_deduplication_time(node, changes)
    if time is not None:
        is_event_time = time is TimeAttribute.ROWTIME
        index = node.order[0].index
        if node.order[0].is_descending:
            at = index if is_event_time else None
            kind: Callable[..., LastRowOperator] = LastRowOperator
            if keeps_columns and node.partition and not expires:
                kind = partial(IndexedLastRowOperator, labels=node.input.schema.names)
            elif keeps_columns and is_in_memory:
                kind = ColumnLastRowOperator
            return partial(kind, node.partition, at, types, names, sends_before)
        if is_event_time:
            return partial(FirstRowOperator, node.partition, index, types, names)
        return partial(FirstRowsOperator, node.partition, 1, 1, names)
    return _top_n(node, names, types, changes, sends_before, keeps_columns, updates_in_place, is_in_memory, expires)


def _holds_objects(kind: DataType) -> bool:
    """Return whether values of a type may have user-defined classes, which snapshots must be able to handle."""
    return isinstance(kind, RawType | VariantType) or any(map(_holds_objects, kind.children()))


def rank_groups(node: Rank, changes: ChangesOf) -> tuple[int, ...]:
    """Return the columns that its input and state are partitioned by."""
    edges = _window_edges(node, changes) or ()
    return tuple(index for index in node.partition if index not in edges)


def _window_edges(node: Rank, changes: ChangesOf) -> tuple[int, int] | None:
    """Return the columns with the start and end of the window in the partition key; None unless it has both."""
    if changes(node.input) != INSERTS or node.end is None:
        return None
    window_and_edges = find_window_edges(node.input, node.partition)
    if window_and_edges is None:
        return None
    edge_columns = {edge: index for index, edge in window_and_edges[1].items()}
    return edge_columns[0], edge_columns[1]


def _of_windows(node: Rank, edges: tuple[int, int], names: Sequence[str], session: StreamSession) -> Factory:
    window_and_edges = find_window_edges(node.input, edges)
    assert window_and_edges is not None
    assert node.end is not None
    time = WindowTime.of(window_and_edges[0])
    if time.is_processing:
        raise UnsupportedError(
            "Processing time Window TopN is not supported yet: take an event time attribute for the window, or leave "
            "window_start and window_end out of PARTITION BY"
        )
    keeps_last = node.end == 1 and len(node.order) == 1 and node.order[0].is_descending
    is_by_time = node.input.schema[node.order[0].index].time is TimeAttribute.ROWTIME
    top = (LatestTopN if keeps_last and is_by_time else TopN)(node.start, node.shows_number, False)
    return partial(
        WindowRankOperator,
        tuple(index for index in node.partition if index not in edges),
        edges,
        time.is_moment,
        node.order,
        (node.start, node.end),
        top,
        node.input.schema.types,
        names,
        session,
    )


def _find_deduplication_time(node: Rank, changes: ChangesOf) -> TimeAttribute | None:
    """Return the time attribute that a deduplication orders by; None if the top-N is not a deduplication."""
    is_one = (node.start, node.end) == (1, 1) and not node.shows_number and not node.is_sort
    if not is_one or len(node.order) != 1 or changes(node.input) != INSERTS:
        return None
    return node.input.schema[node.order[0].index].time


def _update_key(node: Rank, changes: ChangesOf) -> tuple[int, ...] | None:
    """Return the unique key of updates that can only move rows up; None if they may move rows down."""
    key = unique_key(node.input)
    if key is None or not key >= set(node.partition) or Changes.DELETE in changes(node.input):
        return None
    monotonicities = courses(node.input, changes)
    moves_up = [
        monotonicities[sort_key.index]
        in (Course.CONSTANT, Course.INCREASING if sort_key.is_descending else Course.DECREASING)
        for sort_key in node.order
    ]
    return tuple(sorted(key)) if node.order and all(moves_up) else None


def _top_n(
    node: Rank,
    names: Sequence[str],
    types: Sequence[DataType],
    changes: ChangesOf,
    sends_before: bool,
    keeps_columns: bool,
    updates_in_place: bool,
    is_in_memory: bool,
    expires: bool,
) -> Factory:
    end = node.end if node.end is not None else node.end_column
    assert end is not None
    is_first = (node.start, node.end) == (1, 1)
    top: TopN
    order, newest_first = _by_arrival(node)
    if changes(node.input) == INSERTS:
        if _is_as_they_come(node) and node.end is not None:
            return partial(FirstRowsOperator, node.partition, node.start, node.end, names, node.shows_number)
        simple = TopN(node.start, node.shows_number, sends_before, newest_first)
        top = Top1(node.shows_number, sends_before) if is_first and not newest_first else simple
        if keeps_columns and not newest_first and node.end is not None:
            if node.partition and not expires and node.end <= RANKS_MAX and can_compare(order, types):
                is_numbered = is_first or simple.is_numbered
                emission = Emission(node.start, node.end, is_numbered, node.shows_number, sends_before)
                labels = node.input.schema.names
                return partial(IndexedTopNOperator, node.partition, order, emission, top, types, names, labels)
            if is_in_memory:
                return partial(ColumnRankOperator, node.partition, order, node.end, top, types, names)
    elif updates_in_place and (key := _update_key(node, changes)) is not None:
        updatable = UpdatableTopN(node.start, node.shows_number, sends_before, key)
        top = Top1(node.shows_number, sends_before, key) if is_first else updatable
    else:
        top = RetractableTopN(node.start, node.shows_number, sends_before, newest_first)
    return partial(RankOperator, node.partition, order, end, node.end is None, top, types, names)


def _by_arrival(node: Rank) -> tuple[tuple[SortKey, ...], bool]:
    """Return the sort keys up to the first processing time, and whether the latest row is first in the order.

    No two rows arrive at the same time, so further sort keys have no effect.
    """
    for index, key in enumerate(node.order):
        if node.input.schema[key.index].time is TimeAttribute.PROCTIME:
            return node.order[: index + 1], key.is_descending
    return node.order, False


def _is_as_they_come(node: Rank) -> bool:
    """Return whether rows are ordered by their arrival."""
    if not node.order:
        return True
    key = node.order[0]
    is_processing_time = node.input.schema[key.index].time is TimeAttribute.PROCTIME
    return len(node.order) == 1 and is_processing_time and not key.is_descending


# --- sorts ------------------------------------------------------------------------------------------------------------


def to_rank(node: Sort) -> Rank:
    """Return the top-N equivalent to ORDER BY with LIMIT, or to LIMIT alone."""
    if node.fetch is None:
        raise ValidationError("FETCH is missed, which on streaming table is not supported currently.")
    return Rank(
        schema=node.schema,
        input=node.input,
        partition=(),
        order=node.keys,
        start=node.offset + 1,
        end=node.offset + node.fetch,
        is_sort=True,
    )


def has_limit(node: Sort) -> bool:
    """Return whether the sort leaves out rows."""
    return node.fetch is not None or node.offset > 0


def sort_changes(node: Sort, changes: ChangesOf) -> Changes:
    """Return the changelog mode of a sort."""
    if node.fetch == 0 or not has_limit(node):
        return INSERTS
    is_simple = not node.keys and changes(node.input) == INSERTS
    return INSERTS if is_simple else ALL


def sort_operator(node: Sort, names: Sequence[str], changes: ChangesOf) -> Factory | None:
    """Return the operator of a sort by time without a limit; None if rows arrive in order."""
    first: SortKey = node.keys[0]
    time = node.input.schema[first.index].time
    if time is None or first.is_descending:
        raise ValidationError("Sort on a non-time-attribute field is not supported.")
    refused = changes(node.input) & ~INSERTS
    if refused:
        kinds = [word for flag, word in ((Changes.UPDATE, "update"), (Changes.DELETE, "delete")) if flag in refused]
        raise ValidationError(
            f"Sort doesn't support consuming {' and '.join(kinds)} changes which is produced by node "
            f"{node_text(node.input)}"
        )
    types = node.input.schema.types
    if time is TimeAttribute.ROWTIME:
        return partial(EventTimeSortOperator, node.keys, types, names)
    if len(node.keys) == 1:
        return None
    return partial(ProcessingTimeSortOperator, node.keys[1:], types, names)


# --- rules ------------------------------------------------------------------------------------------------------------


class RankRule(Rule[Rank]):
    """Top-N and deduplication."""

    nodes = (Rank,)

    def changes(self, node: Rank, planning: Planning) -> Changes:
        """See `Rule`."""
        return rank_changes(node, planning.changes)

    def asks_before(self, node: Rank, planning: Planning, wants_before: bool) -> bool:
        """See `Rule`."""
        return rank_asks_before(node, planning.changes, _updates_in_place(planning))

    def stream(self, node: Rank, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        keeps_columns = planning.options.allows(Optimization.COLUMN_RANKS)
        in_place = _updates_in_place(planning)
        operator = rank_operator(
            node,
            name_columns(node.schema),
            planning.changes,
            wants_before,
            planning.session,
            keeps_columns,
            in_place,
            planning.options.is_in_memory,
            planning.options.state_ttl_ms > 0,
        )
        if _window_edges(node, planning.changes) is None:
            operator = lasting(operator, planning.options.state_ttl_ms)
        inner = planning.stream(node.input, rank_asks_before(node, planning.changes, in_place))
        groups = rank_groups(node, planning.changes)
        inputs, limit = by_columns(inner, groups), None if groups else 1
        upstreams = planning.step("Rank", operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, planning.changes(node), wants_before)


def _updates_in_place(planning: Planning) -> bool:
    return planning.options.allows(Optimization.UPDATING_RANKS)


class SortRule(Rule[Sort]):
    """ORDER BY and LIMIT."""

    nodes = (Sort,)

    def changes(self, node: Sort, planning: Planning) -> Changes:
        """See `Rule`."""
        return sort_changes(node, planning.changes)

    def asks_before(self, node: Sort, planning: Planning, wants_before: bool) -> bool:
        """See `Rule`."""
        return rank_asks_before(node, planning.changes)

    def stream(self, node: Sort, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        if node.fetch == 0:
            return planning.stream(Values(schema=node.schema, rows=()), wants_before)
        if has_limit(node):
            ranked = RankRule().stream(to_rank(node), planning, wants_before)
            return Stream(ranked.upstreams, node.schema, planning.changes(node), wants_before)
        operator = sort_operator(node, name_columns(node.schema), planning.changes)
        inner = planning.stream(node.input, False)
        if operator is None:
            return inner
        upstreams = planning.step("Sort", operator, by_columns(inner, ()), is_stateful=True, parallelism_limit=1)
        return Stream(upstreams, node.schema, INSERTS, False)
