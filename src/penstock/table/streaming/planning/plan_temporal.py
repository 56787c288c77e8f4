"""Plans event-time temporal joins: finds the versions of the right side, and the join key."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from penstock.table.analyser.relations import NEEDS_TIME
from penstock.table.analyser.subqueries import TRUE, conjoin
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType
from penstock.table.plan.changes import INSERTS, Changes
from penstock.table.plan.logical import (
    ChangelogNormalize,
    Filter,
    JoinType,
    Node,
    Project,
    Rank,
    Scan,
    StreamRows,
    TemporalJoin,
    WatermarkAssigner,
)
from penstock.table.plan.row_schema import PlanColumn, RowSchema, TimeAttribute
from penstock.table.plan.text import expression_text, name_columns
from penstock.table.streaming.joins.join_conditions import extract_join_keys, split_condition
from penstock.table.streaming.joins.temporal_join_operator import TemporalJoinOperator, TemporalSpec
from penstock.table.streaming.planning import streams
from penstock.table.streaming.planning.planned_joins import with_keys
from penstock.table.streaming.planning.rule import Planning, Rule
from penstock.table.streaming.planning.streams import Stream, by_columns
from penstock.table.streaming.planning.upsert_keys import Keys, find_column, projected
from penstock.table.typed.nodes import Constant, Field, Typed

_BOOLEAN: Final = BooleanType(False)
_NEEDS = "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but no"


class TemporalJoinRule(Rule[TemporalJoin]):
    """Joins FOR SYSTEM_TIME AS OF an event time."""

    nodes = (TemporalJoin,)

    def changes(self, node: TemporalJoin, planning: Planning) -> Changes:
        """Return the changelog mode of the left side, which versions do not affect."""
        return planning.changes(node.left)

    def asks_before(self, node: TemporalJoin, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates of an inner join: without a version, the new row does not replace the
        previous one.
        """
        return wants_before or (node.join_type is JoinType.INNER and planning.updates(node.left))

    def stream(self, node: TemporalJoin, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        time = _time_of_versions(node)
        key = _version_key(node, planning)
        width = len(node.left.schema)
        left_keys: list[Typed] = []
        right_keys: list[Typed] = []
        nulls_match: list[bool] = []
        rest: list[Typed] = []
        used: set[int] = set()
        for part in split_condition(node.condition):
            join_keys = extract_join_keys(part, width, planning.calls)
            column = find_column(join_keys.right[0]) if join_keys.right else None
            if column is not None and column.index in key and column.index not in used:
                used.add(column.index)
                left_keys += join_keys.left
                right_keys += join_keys.right
                nulls_match += join_keys.nulls_match
            else:
                rest.append(part)
        condition = conjoin(rest, planning.calls)
        left, left_indices = with_keys(node.left, left_keys)
        view = _find_view(node.right, time, planning)
        right, right_places = with_keys(node.right if view is None else view.rows, right_keys)
        spec = TemporalSpec(
            keeps_left=node.join_type is JoinType.LEFT,
            keys=(left_indices, right_places),
            nulls_match=tuple(nulls_match),
            times=(node.time.index, time),
            condition=None if condition == TRUE else condition,
            types=(node.left.schema.types, node.right.schema.types),
            names=streams.name_columns(node.schema),
            columns=(node.left.schema.names, node.right.schema.names),
            ends_by_before=_has_filter(node.right if view is None else view.input, planning),
            is_view=view is not None and view.has_updates,
            shown=None if view is None else len(node.right.schema),
        )
        rows = planning.stream(left, self.asks_before(node, planning, wants_before) and planning.updates(node.left))
        versions = planning.stream(right, view is not None and view.has_updates)
        inputs = [
            *by_columns(rows, left_indices),
            *(replace(upstream, input_index=1) for upstream in by_columns(versions, right_places)),
        ]
        operator = partial(TemporalJoinOperator, spec, planning.session)
        upstreams = planning.step(f"Temporal Join {node.join_type.value}", operator, inputs, is_stateful=True)
        return Stream(upstreams, node.schema, rows.changes, rows.has_before)


class _View(NamedTuple):
    """The input of a view that keeps the last row of each key.

    Attributes:
        input: the input of the view's top-N.
        rows: the view's columns for each input row, and whether the row passes the view's filters.
        has_updates: whether input rows may be retracted.
    """

    input: Node
    rows: Node
    has_updates: bool


def _find_view(node: Node, time: int, planning: Planning) -> _View | None:
    """Return the input of a view that keeps the last row by event time; None for other nodes.

    The view itself drops a row that arrives after a later one, or that a later one replaces. But each row is a version,
    so the join reads the view's input instead of its changes.
    """
    calc = planning.extract_calc(node)
    match calc.input:
        case Rank(start=1, end=1, end_column=None, shows_number=False, partition=partition, order=(key,)) if partition:
            rank = calc.input
        case _:
            return None
    expressions = rank.schema.fields() if calc.expressions is None else calc.expressions
    of_version = expressions[time]
    if not key.is_descending or not isinstance(of_version, Field) or of_version.index != key.index:
        return None
    inserts = planning.changes(rank.input) == INSERTS
    is_table = any(own <= set(partition) for own in planning.upsert_keys.of(rank.input))
    condition = Constant(_BOOLEAN, True) if calc.condition is None else calc.condition
    schema = RowSchema((*node.schema.columns, PlanColumn("$shown", condition.type)))
    rows = Project(schema=schema, input=rank.input, expressions=(*expressions, condition))
    return _View(rank.input, rows, not inserts and not is_table)


def _time_of_versions(node: TemporalJoin) -> int:
    """Return the index of the right side's event time."""
    columns = node.right.schema
    time = next((index for index, column in enumerate(columns) if column.time is TimeAttribute.ROWTIME), None)
    if time is None:
        raise ValidationError(f"{_NEEDS} row time attribute can be found.")
    left = node.left.schema[node.time.index]
    if left.time is None:
        raise ValidationError(NEEDS_TIME)
    if left.type.nullable() != columns[time].type.nullable():
        raise ValidationError(
            "Event-Time Temporal Table Join requires same rowtime type in left table and versioned table, but the "
            f"rowtime types are {left} and {columns[time]}."
        )
    return time


def _version_key(node: TemporalJoin, planning: Planning) -> frozenset[int]:
    """Return the columns of the right side that have one version per value at a time."""
    known = version_keys(node.right, planning)
    if not known:
        raise ValidationError(
            "Temporal Table Join requires primary key in versioned table, but no primary key can be found. "
            f"{_NEEDS} primary key can be found."
        )
    width = len(node.left.schema)
    on = extract_join_keys(node.condition, width, planning.calls)
    columns = {column.index for column in map(find_column, on.right) if column is not None}
    version_key = min((sorted(key) for key in known if key <= columns), default=None)
    if version_key is None:
        names = name_columns(node.left, node.right)
        key = ",".join(names[width + index] for index in min(map(sorted, known)))
        right = names[width:]
        pairs = zip(on.left, on.right, strict=True)
        condition = ", ".join(
            f"{expression_text(operand, names)}={expression_text(other, right)}" for operand, other in pairs
        )
        raise ValidationError(
            f"Temporal table's primary key [{key}] must be included in the equivalence condition of temporal join, but "
            f"current temporal join condition is [{condition}]."
        )
    return frozenset(version_key)


def version_keys(node: Node, planning: Planning) -> Keys:
    """Return the columns that identify the rows of a versioned table at any time: of a primary key, or of a view.

    A view that keeps the last row of each partition has one version of it at a time. The declared key of an append-only
    table means the same: each row is a version of its key.
    """
    match node:
        case Scan(key=key) | StreamRows(key=key) if key:
            return frozenset({frozenset(key)})
        case Rank(start=1, end=1, end_column=None, partition=partition) if partition:
            return frozenset({frozenset(partition)})
        case Project():
            return projected(version_keys(node.input, planning), node.expressions)
        case Filter() | WatermarkAssigner() | ChangelogNormalize():
            return version_keys(node.input, planning)
        case _:
            return planning.upsert_keys.of(node)


def _has_filter(node: Node, planning: Planning) -> bool:
    """Return whether the row that replaces another may be missing because a filter dropped it."""
    if isinstance(node, Filter):
        return planning.updates(node.input)
    return isinstance(node, Project | WatermarkAssigner) and _has_filter(node.input, planning)
