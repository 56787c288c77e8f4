"""SELECT: its steps, from the rows of FROM to the selected columns.

Expressions, also of ORDER BY, may be added at any time before `build`. The parts that they need from earlier steps
(keys, aggregates, calls over windows) are collected on the way, and placed when the plan is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeGuard

from penstock.table.analyser.aggregation import (
    GroupedScope,
    OverCall,
    OverScope,
    contains_aggregate,
    placed,
)
from penstock.table.analyser.calls import Calls
from penstock.table.analyser.scalars import ScalarAnalyser
from penstock.table.analyser.scopes import RelationScope
from penstock.table.analyser.subqueries import ScalarQueries, with_scalar
from penstock.table.analyser.window_properties import may_be_window_time
from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import BooleanType, RowType
from penstock.table.functions.signatures import BIGINT
from penstock.table.plan.logical import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    FrameBound,
    Node,
    Over,
    Project,
    SortKey,
    Values,
)
from penstock.table.plan.row_schema import PlanColumn, RowSchema, TimeAttribute
from penstock.table.sql import relations, syntax
from penstock.table.typed.nodes import Constant, Field, Typed


@dataclass(frozen=True, slots=True)
class Selected:
    """A selected column: its expression and its name."""

    expression: Typed
    name: str
    syntax: syntax.Expression | None = None


class SelectPlan:
    """The steps of one SELECT. `scope`: the names after FROM and WHERE, with their plan."""

    def __init__(
        self,
        node: relations.Select,
        scope: RelationScope,
        calls: Calls,
        scalars: ScalarQueries,
        numbers_are_places: bool = False,
    ) -> None:
        self.node = node
        self._numbers_are_places = numbers_are_places
        self.scope = scope
        self.calls = calls
        self.rows = ScalarAnalyser(scope, calls)
        self.grouped: GroupedScope | None = None
        self.sets: tuple[tuple[int, ...], ...] = ()
        before_over = self.rows
        if self._is_aggregated():
            keys = self._group_keys()
            self.grouped = GroupedScope(self.rows, keys, self.sets, scalars)
            before_over = ScalarAnalyser(self.grouped, calls)
        self.over = OverScope(before_over, dict(node.windows))
        self.analyser = ScalarAnalyser(self.over, calls)
        self.having = None if node.having is None else before_over.typed(node.having)
        self.qualify = None if node.qualify is None else self.analyser.typed(node.qualify)
        self.selected = self._select_items()
        #: lifetime (ms) of the state of the aggregates, from a hint
        self.state_ttl_ms: int | None = None

    # --- what is selected --------------------------------------------------------------------------------------------

    def _is_aggregated(self) -> bool:
        node = self.node
        if node.group is not None or node.having is not None:
            return True
        return any(contains_aggregate(item.expression, self.calls) for item in node.items)

    def _select_items(self) -> list[Selected]:
        selected: list[Selected] = []
        for index, item in enumerate(self.node.items):
            expression = item.expression
            if isinstance(expression, syntax.Star):
                for column in self._star(expression):
                    selected.append(replace(column, name=new_name(column.name, {other.name for other in selected})))
            elif isinstance(expression, syntax.FieldAccess) and expression.name == "*":
                selected += self._all_fields(self.analyser.typed(expression.operand))
            else:
                typed = self.analyser.typed(expression)
                selected.append(Selected(typed, item.alias or _derive_column_name(expression, index), expression))
        return selected

    def _star(self, star: syntax.Star) -> Iterable[Selected]:
        try:
            columns = self.scope.star(star.path)
        except ValidationError:
            if not star.path:
                raise
            yield from self._all_fields(self.analyser.typed(syntax.Reference(star.path)))
            return
        for name, column in columns:
            yield Selected(column if self.grouped is None else self._grouped_column(name, column), name)

    def _grouped_column(self, name: str, column: Typed) -> Typed:
        assert self.grouped is not None
        for index, key in enumerate(self.grouped.keys):
            if key == column:
                return self.grouped.key(index)
        raise ValidationError(f"Expression '{name}' is not being grouped")

    def _all_fields(self, row: Typed) -> Iterable[Selected]:
        if not isinstance(row.type, RowType):
            raise ValidationError(f"{row} is no row: it has no fields")
        for name in row.type.field_names():
            yield Selected(self.analyser.field(row, name), name)

    # --- groups ------------------------------------------------------------------------------------------------------

    def _group_keys(self) -> list[Typed]:
        keys: list[Typed] = []
        sets: list[tuple[int, ...]] = [()]

        def numbers(expressions: Sequence[syntax.Expression]) -> tuple[int, ...]:
            indexes = []
            for expression in expressions:
                typed = self._group_expression(expression)
                if typed not in keys:
                    keys.append(typed)
                indexes.append(keys.index(typed))
            return tuple(indexes)

        def expand_grouping(item: relations.GroupItem) -> list[tuple[int, ...]]:
            if item.kind == "ROLLUP":
                parts = [numbers(inner.expressions) for inner in item.sets] or [
                    (index,) for index in numbers(item.expressions)
                ]
                return [sum(parts[:length], ()) for length in range(len(parts), -1, -1)]
            if item.kind == "CUBE":
                parts = [numbers(inner.expressions) for inner in item.sets] or [
                    (index,) for index in numbers(item.expressions)
                ]
                return _subsets(parts)
            if item.kind == "GROUPING SETS":
                return [grouping_set for inner in item.sets for grouping_set in expand_grouping(inner)]
            return [numbers(item.expressions)]

        for item in self.node.group or ():
            sets = [
                left + tuple(more for more in right if more not in left)
                for left in sets
                for right in expand_grouping(item)
            ]
        if self.node.has_distinct_sets:
            sets = list({frozenset(grouping_set): grouping_set for grouping_set in reversed(sets)}.values())[::-1]
        if len(sets) > 1:
            self.sets = tuple(sets)
        return keys

    def _group_expression(self, expression: syntax.Expression) -> Typed:
        if self._numbers_are_places and is_place(expression):
            index = int(expression.text)
            if not 1 <= index <= len(self.node.items):
                raise ValidationError(f"GROUP BY {index}: there are {len(self.node.items)} selected columns")
            expression = self.node.items[index - 1].expression
        try:
            return self.rows.typed(expression)
        except ValidationError:
            if not isinstance(expression, syntax.Reference) or len(expression.path) > 1:
                raise
            named = [item for item in self.node.items if item.alias == expression.path[0]]
            if len(named) != 1:
                raise
            return self.rows.typed(named[0].expression)

    # --- the plan ----------------------------------------------------------------------------------------------------

    def build(self, more: Sequence[Typed] = ()) -> Node:
        """Return the plan, with further columns after the selected ones."""
        plan = self.scope.plan
        columns: dict[tuple[str, int], Typed] = {}
        if self.grouped is not None:
            plan = self._aggregate(plan, columns)
        if self.having is not None:
            plan = Filter(schema=plan.schema, input=plan, condition=self._true(placed(self.having, columns)))
        plan = self._overs(plan, columns)
        if self.qualify is not None:
            plan = Filter(schema=plan.schema, input=plan, condition=self._true(placed(self.qualify, columns)))
        expressions = [placed(column.expression, columns) for column in self.selected]
        expressions += [placed(expression, columns) for expression in more]
        names = [column.name for column in self.selected] + [f"$sort{index}" for index in range(len(more))]
        plan = project(plan, expressions, names)
        if self.node.is_distinct:
            if more:
                raise ValidationError("with SELECT DISTINCT, ORDER BY can only have what is selected")
            plan = Distinct(schema=plan.schema, input=plan, state_ttl_ms=self.state_ttl_ms)
        return plan

    def _true(self, condition: Typed) -> Typed:
        return self.calls.implicit(condition, BooleanType())

    def _aggregate(self, plan: Node, columns: dict[tuple[str, int], Typed]) -> Node:
        grouped = self.grouped
        assert grouped is not None
        expressions = list(grouped.keys)
        calls = [_moved(call, expressions) for call in grouped.calls]
        names = [_column_name(key, index) for index, key in enumerate(grouped.keys)]
        names += [f"$f{index}" for index in range(len(names), len(expressions))]
        before = project(plan, expressions, names)
        keys = tuple(range(len(grouped.keys)))
        key_columns = self._key_columns(before, keys)
        call_columns = [PlanColumn(f"$agg{index}", call.type) for index, call in enumerate(calls)]
        call_columns += [PlanColumn(f"$grouping{index}", BIGINT.not_null()) for index in range(len(grouped.groupings))]
        schema = RowSchema((*key_columns, *call_columns))
        for index in keys:
            columns["key", index] = schema.field(index)
        for index in range(len(calls)):
            columns["aggregate", index] = schema.field(len(keys) + index)
        for index in range(len(grouped.groupings)):
            columns["grouping", index] = schema.field(len(keys) + len(calls) + index)
        result: Node = Aggregate(
            schema=schema,
            input=before,
            keys=keys,
            calls=tuple(calls),
            sets=self.sets,
            groupings=tuple(grouped.groupings),
            state_ttl_ms=self.state_ttl_ms,
        )
        if not (keys or calls or self.sets):
            # The global group exists even without rows, and none of its columns is used.
            result = Values(schema=schema, rows=((),))
        for number, query in enumerate(grouped.queries):
            query = grouped.placed_query(query, columns)
            result, columns["query", number] = with_scalar(result, query, self.calls)
        return result

    def _key_columns(self, before: Node, keys: Sequence[int]) -> list[PlanColumn]:
        """Return the columns of keys. Only columns that may be window times stay event time.

        A key is nullable if some grouping set omits it.
        """
        columns = []
        for key in keys:
            column = before.schema[key]
            if self.sets and any(key not in grouping_set for grouping_set in self.sets):
                column = replace(column, type=column.type.nullable(), time=None)
            is_time = column.time is TimeAttribute.ROWTIME and may_be_window_time(before, key)
            columns.append(column if is_time else replace(column, time=None))
        return columns

    def _overs(self, plan: Node, columns: dict[tuple[str, int], Typed]) -> Node:
        """Add a step for each window, with the calls that share it."""
        windows: dict[tuple[object, ...], list[int]] = {}
        for number, over_call in enumerate(self.over.found):
            windows.setdefault(over_call.window, []).append(number)
        for numbers in windows.values():
            plan = self._over(plan, numbers, columns)
        return plan

    def _over(self, plan: Node, numbers: Sequence[int], columns: dict[tuple[str, int], Typed]) -> Node:
        first = self.over.found[numbers[0]]
        width = len(plan.schema)
        expressions: list[Typed] = list(plan.schema.fields())
        partition = tuple(_place(placed(expression, columns), expressions) for expression in first.partition)
        order = tuple(
            SortKey(_place(placed(expression, columns), expressions), down, nulls_first(down, nulls))
            for expression, down, nulls in first.order
        )
        calls = [_moved(self._placed_call(self.over.found[number], columns), expressions) for number in numbers]
        if len(expressions) > width:
            names = plan.schema.names + [f"$o{index}" for index in range(width, len(expressions))]
            plan = project(plan, expressions, names)
        call_columns = [PlanColumn(f"$over{number}", self.over.found[number].call.type) for number in numbers]
        schema = RowSchema((*plan.schema.columns, *call_columns))
        for position, number in enumerate(numbers):
            columns["over", number] = schema.field(len(plan.schema) + position)
        return Over(
            schema=schema,
            input=plan,
            partition=partition,
            order=order,
            is_rows=first.is_rows,
            lower=_bound(first.lower),
            upper=_bound(first.upper),
            calls=tuple(calls),
        )

    def _placed_call(self, over_call: OverCall, columns: dict[tuple[str, int], Typed]) -> AggregateCall:
        call = over_call.call
        condition = None if call.condition is None else placed(call.condition, columns)
        return replace(call, operands=tuple(placed(operand, columns) for operand in call.operands), condition=condition)


def project(plan: Node, expressions: Sequence[Typed], names: Sequence[str]) -> Node:
    """Return a projection; columns that are only passed on stay time attributes."""
    columns = []
    for expression, name in zip(expressions, names, strict=True):
        time = plan.schema[expression.index].time if isinstance(expression, Field) else None
        columns.append(PlanColumn(name, expression.type, time or find_time_attribute(expression)))
    return Project(schema=RowSchema(tuple(columns)), input=plan, expressions=tuple(expressions))


def is_place(expression: syntax.Expression) -> TypeGuard[syntax.NumberLiteral]:
    """Return whether an expression is a number that may be a column position."""
    return isinstance(expression, syntax.NumberLiteral) and expression.text.isdigit()


def has_places(group: Sequence[relations.GroupItem]) -> bool:
    """Return whether the grouping expressions include numbers."""
    return any(any(map(is_place, item.expressions)) or has_places(item.sets) for item in group)


def find_time_attribute(expression: Typed) -> TimeAttribute | None:
    """Return the time attribute that an expression creates: PROCTIME()."""
    return TimeAttribute.PROCTIME if getattr(expression, "function", "") == "PROCTIME" else None


def new_name(name: str, taken: set[str]) -> str:
    """Return a name that no other column has, if necessary with a number appended, as in Flink."""
    if name not in taken:
        return name
    return next(f"{name}{number}" for number in count() if f"{name}{number}" not in taken)


def _derive_column_name(expression: syntax.Expression, index: int) -> str:
    if isinstance(expression, syntax.Reference):
        return expression.path[-1]
    return expression.name if isinstance(expression, syntax.FieldAccess) else f"EXPR${index}"


def nulls_first(is_descending: bool, nulls: str | None) -> bool:
    """Return whether NULL sorts first; by default, NULL is the least value."""
    return not is_descending if nulls is None else nulls == "FIRST"


def _place(expression: Typed, expressions: list[Typed]) -> int:
    """Return the index of an expression in a list; append it if it is missing."""
    if expression not in expressions:
        expressions.append(expression)
    return expressions.index(expression)


def _moved(call: AggregateCall, expressions: list[Typed]) -> AggregateCall:
    """Return a call over columns of a projection. Constant operands stay; a condition is a column or None."""

    def column(operand: Typed) -> Field:
        return Field(operand.type, _place(operand, expressions), getattr(operand, "name", ""))

    operands = tuple(operand if isinstance(operand, Constant) else column(operand) for operand in call.operands)
    is_true = isinstance(call.condition, Constant) and call.condition.value is True
    condition = None if call.condition is None or is_true else column(call.condition)
    return replace(call, operands=operands, condition=condition)


def _column_name(expression: Typed, index: int) -> str:
    return getattr(expression, "name", "") or f"$k{index}"


def _bound(bound: tuple[str, Typed | None]) -> FrameBound:
    direction, distance = bound
    return FrameBound(direction != "FOLLOWING", distance, direction == "CURRENT ROW")


def _subsets(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if not parts:
        return [()]
    rest = _subsets(parts[1:])
    return [parts[0] + subset for subset in rest] + rest
