"""Plans OVER windows: checks whether streams support them, and selects the operator."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    ArrayType,
    BitmapType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    MultisetType,
    RowType,
    VariantType,
)
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.nodes import ALL, INSERTS, Changes, TimeAttribute
from penstock.sql.stream.over.functions import check_over
from penstock.sql.stream.over.operators import (
    OverAtOnceOperator,
    OverInEventTimeOperator,
    OverInOrderOperator,
    OverInProcessingTimeOperator,
)
from penstock.sql.stream.planning.rule import Factory, Planning, Rule, Stream, by_columns, name_columns
from penstock.sql.stream.rows.evaluation import StreamSession
from penstock.sql.stream.rows.state_ttl import lasting
from penstock.sql.typed import Constant

_UNORDERED: Final = (MapType, MultisetType, BitmapType, VariantType)


def over_changes(node: logical.Over) -> Changes:
    """Return the changelog mode of a window."""
    return INSERTS if over_time(node) is not None else ALL


def over_time(node: logical.Over) -> TimeAttribute | None:
    """Return the time attribute that rows are ordered by; None for other columns."""
    return node.input.schema[node.order[0].index].time if node.order else None


def over_operator(node: logical.Over, names: list[str], session: StreamSession) -> Factory:
    """Return the operator of a window. Raises `ValidationError` for windows that Flink rejects."""
    _check(node)
    distance, time = _distance(node), over_time(node)
    for call in node.calls:
        check_over(call, distance is not None)
    order, types = node.order[0], node.input.schema.types
    if time is None:
        if distance is not None:
            raise ValidationError("Non-time attribute sort is not supported for bounded OVER window.")
        _check_order(types[order.index])
        return partial(
            OverInOrderOperator,
            node.partition,
            order.index,
            order.nulls_first,
            node.calls,
            types,
            names,
            node.is_rows,
            session,
        )
    if time is TimeAttribute.PROCTIME and (node.is_rows or distance is None):
        return partial(OverAtOnceOperator, node.partition, order.index, node.calls, types, names, distance, session)
    kind = OverInEventTimeOperator if time is TimeAttribute.ROWTIME else OverInProcessingTimeOperator
    columns = node.input.schema.names
    return partial(
        kind, node.partition, order.index, node.calls, types, names, node.is_rows, distance, session, columns
    )


def _check(node: logical.Over) -> None:
    if len(node.order) != 1:
        raise ValidationError("The window can only be ordered by a single time column.")
    if node.order[0].is_descending:
        raise ValidationError("The window can only be ordered in ASCENDING mode.")
    if not node.upper.is_current or not node.lower.is_preceding or node.lower.is_current:
        raise ValidationError("OVER RANGE FOLLOWING windows are not supported yet.")


def _distance(node: logical.Over) -> int | None:
    bound = node.lower.distance
    if bound is None:
        return None
    assert isinstance(bound, Constant)
    if not node.is_rows and isinstance(bound.type, DayTimeIntervalType) and isinstance(bound.value, int):
        return bound.value
    if node.is_rows and isinstance(bound.type, IntegralType) and isinstance(bound.value, int):
        return bound.value
    if node.is_rows:
        raise ValidationError("the specific value is decimal which haven not supported yet.")
    if over_time(node) is not None:
        raise ValidationError("Data Type mismatch between ORDER BY and RANGE clause")
    raise UnsupportedError(f"RANGE over {bound.type} is not supported in streams")


def _check_order(kind: DataType) -> None:
    if isinstance(kind, _UNORDERED):
        raise ValidationError(
            f"Type({kind}) is not an orderable data type, it is not supported as a ORDER_BY/GROUP_BY/JOIN_EQUAL field."
        )
    if isinstance(kind, ArrayType):
        _check_order(kind.element_type)
    elif isinstance(kind, RowType):
        for field_type in kind.field_types():
            _check_order(field_type)


class OverRule(Rule[logical.Over]):
    """Aggregates over frames around each row."""

    nodes = (logical.Over,)

    def changes(self, node: logical.Over, planning: Planning) -> Changes:
        """See `Rule`."""
        return over_changes(node)

    def asks_before(self, node: logical.Over, planning: Planning, wants_before: bool) -> bool:
        """Require UPDATE_BEFORE for updates, because aggregates retract the values of a row."""
        return planning.updates(node.input)

    def stream(self, node: logical.Over, planning: Planning, wants_before: bool) -> Stream:
        """See `Rule`."""
        operator = over_operator(node, name_columns(node.schema), planning.session)
        changes = planning.changes(node)
        if changes == INSERTS:
            planning.accept("OverAggregate", node.input, INSERTS)
        inner = planning.stream(node.input, planning.updates(node.input))
        inputs = by_columns(inner, node.partition)
        limit = None if node.partition else 1
        operator = lasting(operator, planning.options.state_ttl_ms)
        upstreams = planning.step("Over Aggregate", operator, inputs, is_stateful=True, parallelism_limit=limit)
        # As in Flink, updates include UPDATE_BEFORE even if no consumer needs it.
        return Stream(upstreams, node.schema, changes, changes != INSERTS)
