"""Plans joins: the changes that they emit, their keys and their operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.select import find_join_window_edges
from penstock.sql.analyzer.subqueries import TRUE, conjoin
from penstock.sql.data.errors import ValidationError
from penstock.sql.logical.explain import node_text
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, Join, JoinType, Node
from penstock.sql.optimizer.pushdown import Calc, extract_join_keys, find_interval, settled
from penstock.sql.stream.joins.interval import SqlIntervalJoinOperator
from penstock.sql.stream.joins.regular import ColumnJoinOperator, JoinOperator, SemiJoinOperator
from penstock.sql.stream.joins.window import window_join
from penstock.sql.stream.planning.options import Optimization
from penstock.sql.stream.planning.rule import PlannedJoin, Planning, Rule, Stream, by_columns, name_columns, with_keys
from penstock.sql.stream.rows.state_ttl import StreamSession, lasting

_HALF = (JoinType.SEMI, JoinType.ANTI)


def changes(node: Join, of: Callable[[Node], Changes]) -> Changes:
    """Return the changelog mode of a join. `of`: returns the changelog mode of a node."""
    input_changes = of(node.left) | of(node.right)
    if find_interval(node) is not None or find_join_window_edges(node) is not None:
        return INSERTS
    return input_changes if node.join_type in (JoinType.INNER, JoinType.SEMI) else ALL


def above_join(calc: Calc, join: Join, calls: Calls) -> Calc:
    """Push the filter of a calc above a join into the join or below it, as far as possible."""
    new_join, rest = settled(join, calc.condition or TRUE, calls)
    return Calc(new_join, None if rest == TRUE else rest, calc.expressions)


def planned(
    node: Join,
    names: Sequence[str],
    session: StreamSession,
    calls: Calls,
    of: Callable[[Node], Changes],
    ids: Callable[[Node, Sequence[int]], Sequence[int] | None] | None = None,
    keeps_columns: bool = False,
    is_in_memory: bool = False,
    expires: bool = False,
) -> PlannedJoin:
    """Plan a join.

    Args:
        node: the join.
        names: the names of the output columns.
        session: the session of its operator.
        calls: builds the remaining condition.
        of: returns the changelog mode of a node.
        ids: returns the columns that identify the replaced rows of a node, given its join columns; None if updates
            must include UPDATE_BEFORE.
        keeps_columns: whether append-only rows may be stored as columns.
        is_in_memory: whether state must fit into memory; a window join stores columns only then.
        expires: whether rows expire some time after they were written. Rows stored as columns never expire.
    """
    join, _ = settled(node, TRUE, calls)
    between = find_interval(join)
    keys = extract_join_keys(
        join.condition if between is None else conjoin(between[1], calls), len(join.left.schema), calls
    )
    (left, left_places), (right, right_places) = with_keys(join.left, keys.left), with_keys(join.right, keys.right)
    inputs, key_indices = (left, right), (left_places, right_places)
    common = (
        key_indices,
        keys.nulls_match,
        None if keys.rest == TRUE else keys.rest,
        (join.left.schema.types, join.right.schema.types),
        list(names),
        session,
    )
    name = join.join_type.value
    if between is not None:
        _needs_inserts(join, of, "IntervalJoin")
        interval = partial(SqlIntervalJoinOperator, join.join_type, between[0], *common)
        return PlannedJoin(f"Interval Join {name}", inputs, key_indices, interval, False)
    windows = find_join_window_edges(join)
    if windows is not None:
        _needs_inserts(join, of, "WindowJoin")
        return window_join(join, windows, keys, names, session, keeps_columns and is_in_memory)
    updates = [Changes.UPDATE in of(input_node) for input_node in inputs]
    replaced: list[Sequence[int] | None] = [None, None]
    has_before = any(updates)
    if ids is not None and keys.rest == TRUE:
        replaced = [
            ids(input_node, on) if has else None
            for input_node, on, has in zip(inputs, key_indices, updates, strict=True)
        ]
        has_before = any(has and own is None for own, has in zip(replaced, updates, strict=True))
    may_keep = keeps_columns and not expires and join.join_type is JoinType.INNER and key_indices[0]
    if may_keep and all(of(input_node) == INSERTS for input_node in inputs):
        key_types = [left.schema.types[index] for index in left_places]
        labels = (join.left.schema.names, join.right.schema.names)
        in_columns = partial(ColumnJoinOperator, *common, key_types, labels)
        return PlannedJoin("Join INNER", inputs, key_indices, in_columns, False)
    kind = SemiJoinOperator if join.join_type in _HALF else JoinOperator
    operator = partial(kind, join.join_type, *common, (None, None) if has_before else (replaced[0], replaced[1]))
    return PlannedJoin(f"Join {name}", inputs, key_indices, operator, has_before)


def _needs_inserts(join: Join, of: Callable[[Node], Changes], kind: str) -> None:
    for side in join.inputs():
        if of(side) != INSERTS:
            raise ValidationError(
                f"{kind} doesn't support consuming update and delete changes which is produced by node "
                f"{node_text(side)}"
            )


class JoinRule(Rule[Join]):
    """Joins of two tables, including interval joins and window joins."""

    nodes = (Join,)

    def changes(self, node: Join, planning: Planning) -> Changes:
        """See `Rule`."""
        return changes(node, planning.changes)

    def stream(self, node: Join, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        allows = planning.options.allows
        finds_previous = not wants_before and allows(Optimization.KEYED_JOINS)
        ids = planning.upsert_keys.least if finds_previous else None
        left_ms, right_ms = map(planning.options.lives, node.state_ttl_ms)
        expires = left_ms > 0 or right_ms > 0
        keeps_columns = allows(Optimization.COLUMN_JOINS)
        plan = planned(
            node,
            name_columns(node.schema),
            planning.session,
            planning.calls,
            planning.changes,
            ids,
            keeps_columns,
            planning.options.is_in_memory,
            expires,
        )
        sides = [
            planning.stream(input_node, plan.has_before and planning.updates(input_node)) for input_node in plan.inputs
        ]
        inputs = [
            replace(upstream, input_index=index)
            for index, side in enumerate(sides)
            for upstream in by_columns(side, plan.keys[index])
        ]
        limit = None if plan.keys[0] else 1
        operator = lasting(plan.operator, (left_ms, right_ms))
        upstreams = planning.step(plan.title, operator, inputs, is_stateful=True, parallelism_limit=limit)
        return Stream(upstreams, node.schema, planning.changes(node), plan.has_before)
