"""Top-N, deduplication and sorting: which operators they are, which changes they send and what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from penstock.base.errors import UnsupportedError
from penstock.table.analyser.window_properties import edges_of
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType, RawType, VariantType
from penstock.table.plan import logical
from penstock.table.plan.changes import ALL, INSERTS, Changes
from penstock.table.plan.logical import Rank, Sort, SortKey, Values
from penstock.table.plan.row_schema import TimeAttribute
from penstock.table.plan.text import node_text
from penstock.table.streaming.planning.optimizations import Optimization
from penstock.table.streaming.planning.rule import Factory, Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns, names_of
from penstock.table.streaming.planning.unique_keys import Course, courses, unique_key
from penstock.table.streaming.ranking.column_last_row_operator import ColumnLastRowOperator
from penstock.table.streaming.ranking.column_rank_operator import ColumnRankOperator
from penstock.table.streaming.ranking.deduplicate_operator import FirstRowOperator, LastRowOperator
from penstock.table.streaming.ranking.first_rows_operator import FirstRowsOperator
from penstock.table.streaming.ranking.rank_operator import RankOperator
from penstock.table.streaming.ranking.sort_operators import EventTimeSortOperator, ProcessingTimeSortOperator
from penstock.table.streaming.ranking.top_n import LatestTopN, RetractableTopN, Top1, TopN, UpdatableTopN
from penstock.table.streaming.ranking.window_rank_operator import WindowRankOperator
from penstock.table.streaming.rows.sessions import StreamSession
from penstock.table.streaming.rows.state_times import lasting
from penstock.table.streaming.windows.window_times import WindowTime

ChangesOf: TypeAlias = Callable[[logical.Node], Changes]


# --- ranks ------------------------------------------------------------------------------------------------------------


def rank_changes(node: Rank, changes: ChangesOf) -> Changes:
    """Which changes a top-N sends."""
    if _window_edges(node, changes) is not None:
        return INSERTS
    time = _deduplicates_by(node, changes)
    return INSERTS if time is not None and not node.order[0].is_descending else ALL


def rank_asks_before(node: Rank | Sort, changes: ChangesOf, updates_in_place: bool = True) -> bool:
    """Whether it has to know of rows as they were. `updates_in_place`: see `rank_operator`."""
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
) -> Factory:
    """The operator of a top-N.

    Args:
        node: the top-N.
        names: of the columns that it gives.
        changes: which changes the rows of a node are.
        sends_before: whether an update sends the row as it was, too.
        session: of its operator.
        keeps_columns: whether rows may be kept as columns, in memory.
        updates_in_place: whether a row may take the place of the previous one of its key, if it only moves up.
    """
    keeps_columns = keeps_columns and not any(_holds_objects(one) for one in node.input.schema.types)
    types = node.input.schema.types
    edges = _window_edges(node, changes)
    if edges is not None:
        return _of_windows(node, edges, names, session)
    time = _deduplicates_by(node, changes)
    if time is not None:
        is_event_time = time is TimeAttribute.ROWTIME
        place = node.order[0].index
        if node.order[0].is_descending:
            at = place if is_event_time else None
            operator = ColumnLastRowOperator if keeps_columns else LastRowOperator
            return partial(operator, node.partition, at, types, names, sends_before)
        if is_event_time:
            return partial(FirstRowOperator, node.partition, place, types, names)
        return partial(FirstRowsOperator, node.partition, 1, 1, names)
    return _top_n(node, names, types, changes, sends_before, keeps_columns, updates_in_place)


def _holds_objects(kind: DataType) -> bool:
    """Whether values of a type may be of classes of the program, which snapshots have to know of."""
    return isinstance(kind, RawType | VariantType) or any(map(_holds_objects, kind.children()))


def rank_groups(node: Rank, changes: ChangesOf) -> tuple[int, ...]:
    """The columns by which its rows are partitioned and its state is kept."""
    edges = _window_edges(node, changes) or ()
    return tuple(index for index in node.partition if index not in edges)


def _window_edges(node: Rank, changes: ChangesOf) -> tuple[int, int] | None:
    """The columns with start and end of the window by which rows are partitioned; None without both."""
    if changes(node.input) != INSERTS or node.end is None:
        return None
    found = edges_of(node.input, node.partition)
    if found is None:
        return None
    places = {edge: index for index, edge in found[1].items()}
    return places[0], places[1]


def _of_windows(node: Rank, edges: tuple[int, int], names: Sequence[str], session: StreamSession) -> Factory:
    found = edges_of(node.input, edges)
    assert found is not None
    assert node.end is not None
    time = WindowTime.of(found[0])
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


def _deduplicates_by(node: Rank, changes: ChangesOf) -> TimeAttribute | None:
    """The kind of time by which one row of each partition is kept; None if the top-N is another one."""
    is_one = (node.start, node.end) == (1, 1) and not node.shows_number and not node.is_sort
    if not is_one or len(node.order) != 1 or changes(node.input) != INSERTS:
        return None
    return node.input.schema[node.order[0].index].time


def _update_key(node: Rank, changes: ChangesOf) -> tuple[int, ...] | None:
    """The unique key of updates that let rows only move up; None where they may do otherwise."""
    key = unique_key(node.input)
    if key is None or not key >= set(node.partition) or Changes.DELETE in changes(node.input):
        return None
    found = courses(node.input, changes)
    moves_up = [
        found[one.index] in (Course.CONSTANT, Course.INCREASING if one.is_descending else Course.DECREASING)
        for one in node.order
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
            return partial(ColumnRankOperator, node.partition, order, node.end, top, types, names)
    elif updates_in_place and (key := _update_key(node, changes)) is not None:
        updatable = UpdatableTopN(node.start, node.shows_number, sends_before, key)
        top = Top1(node.shows_number, sends_before, key) if is_first else updatable
    else:
        top = RetractableTopN(node.start, node.shows_number, sends_before, newest_first)
    return partial(RankOperator, node.partition, order, end, node.end is None, top, types, names)


def _by_arrival(node: Rank) -> tuple[tuple[SortKey, ...], bool]:
    """The order of rows up to a processing time, and whether the last one to come is first in it.

    No two rows come at once, so what the order says behind the processing time means nothing.
    """
    for place, key in enumerate(node.order):
        if node.input.schema[key.index].time is TimeAttribute.PROCTIME:
            return node.order[: place + 1], key.is_descending
    return node.order, False


def _is_as_they_come(node: Rank) -> bool:
    """Whether rows that come later are later in the order."""
    if not node.order:
        return True
    key = node.order[0]
    is_processing_time = node.input.schema[key.index].time is TimeAttribute.PROCTIME
    return len(node.order) == 1 and is_processing_time and not key.is_descending


# --- sorts ------------------------------------------------------------------------------------------------------------


def limit_of(node: Sort) -> Rank:
    """The top-N that ORDER BY with LIMIT is, or LIMIT alone."""
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
    """Whether rows are left out."""
    return node.fetch is not None or node.offset > 0


def sort_changes(node: Sort, changes: ChangesOf) -> Changes:
    """Which changes a sort sends."""
    if node.fetch == 0 or not has_limit(node):
        return INSERTS
    is_simple = not node.keys and changes(node.input) == INSERTS
    return INSERTS if is_simple else ALL


def sort_operator(node: Sort, names: Sequence[str], changes: ChangesOf) -> Factory | None:
    """The operator of a sort by time without a limit; None where rows come in their order."""
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
        keeps_columns = planning.options.is_in_memory and planning.options.allows(Optimization.COLUMN_RANKS)
        in_place = _updates_in_place(planning)
        names, session = names_of(node.schema), planning.session
        operator = rank_operator(node, names, planning.changes, wants_before, session, keeps_columns, in_place)
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
            found = RankRule().stream(limit_of(node), planning, wants_before)
            return Stream(found.upstreams, node.schema, planning.changes(node), wants_before)
        operator = sort_operator(node, names_of(node.schema), planning.changes)
        inner = planning.stream(node.input, False)
        if operator is None:
            return inner
        upstreams = planning.step("Sort", operator, by_columns(inner, ()), is_stateful=True, parallelism_limit=1)
        return Stream(upstreams, node.schema, INSERTS, False)
