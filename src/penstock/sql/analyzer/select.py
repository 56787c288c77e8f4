"""SELECT: its steps, from the rows of FROM to the selected columns.

Expressions, also of ORDER BY, may be added at any time before `build`. The parts that they need from earlier steps
(keys, aggregates, calls over windows) are collected on the way, and placed when the plan is built.

`find_window` and the functions after it trace the columns of a node to their origins: which of them are edges of
windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeGuard

from penstock.sql.analyzer.aggregates import GroupedScope, OverCall, OverScope, contains_aggregate, placed
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import RelationScope
from penstock.sql.analyzer.subqueries import ScalarQueries, with_scalar
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, LocalZonedTimestampType, RowType
from penstock.sql.functions.definition import BIGINT
from penstock.sql.logical import nodes
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.properties import find_input
from penstock.sql.parser import syntax
from penstock.sql.parser import syntax as relations
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts

#: number of columns that a window table appends to its input: start, end and time
EDGES: Final = 3


def find_window(node: logical.Node, column: int) -> tuple[logical.WindowTable, int] | None:
    """Return the window table whose start (0), end (1) or time (2) is this column."""
    while True:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Expand):
            expressions = {row[column] for row in node.projections}
            same = expressions.pop()
            if expressions or not isinstance(same, Field):
                return None
            node, column = node.input, same.index
        elif isinstance(node, logical.Filter | logical.Correlate):
            if column >= len(node.input.schema):
                return None
            node = node.input
        elif isinstance(node, logical.SetOperation) and node.operator == "UNION" and node.is_all:
            return _window_of_union(node, column)
        elif isinstance(node, logical.WindowTable):
            edge = column - (len(node.schema) - EDGES)
            return (node, edge) if edge >= 0 else find_window(node.input, column)
        elif isinstance(node, logical.Rank) and column < len(node.input.schema):
            if find_window_edges(node.input, node.partition) is None:
                return None
            node = node.input
        elif isinstance(node, logical.Aggregate | logical.Distinct):
            keys = group_keys(node)
            if column >= len(keys) or not is_of_windows(node):
                return None
            below = find_window_edges(node.input, keys)
            if below is None or below[0].is_group:
                return None  # GROUP BY TUMBLE yields times but no windows
            column, node = keys[column], node.input
        elif isinstance(node, logical.Join):
            return _window_of_join(node, column)
        else:
            return None


def _window_of_union(node: logical.SetOperation, column: int) -> tuple[logical.WindowTable, int] | None:
    """Return the window of the first part, if the windows of the other parts begin and end together with it."""
    first, *others = [find_window(part, column) for part in node.parts]
    if first is None:
        return None
    are_alike = all(
        window is not None and window[1] == first[1] and _are_alike(window[0], first[0]) for window in others
    )
    return first if are_alike else None


def _window_of_join(node: logical.Join, column: int) -> tuple[logical.WindowTable, int] | None:
    edges = find_join_window_edges(node)
    if edges is None:
        return None
    width = len(node.left.schema)
    if column < width:
        # NULL if a row has no match
        return None if node.join_type.keeps_right else find_window(node.left, column)
    if node.join_type.keeps_left:
        return None
    window, start = find_window(node.right, column - width), find_window(node.right, edges[1][0])
    if node.join_type.keeps_right or window is None or start is None or window[0] is not start[0]:
        return window
    return edges[2], window[1]  # both sides are in the same window


def find_window_edges(node: logical.Node, columns: Iterable[int]) -> tuple[logical.WindowTable, dict[int, int]] | None:
    """Return the window whose start and end are both among the columns of a node, or None.

    Also return which columns are its edges, by column index: 0 for the start, 1 for the end, 2 for the time.
    """
    windows = {column: find_window(node, column) for column in columns}
    for window, edge in filter(None, windows.values()):
        edges = {
            column: column_window[1]
            for column, column_window in windows.items()
            if column_window is not None and column_window[0] is window
        }
        if edge == 0 and 1 in edges.values():
            return window, edges
    return None


def group_keys(node: logical.Aggregate | logical.Distinct) -> Sequence[int]:
    """Return the columns that rows are grouped by; for DISTINCT, all columns."""
    return node.keys if isinstance(node, logical.Aggregate) else range(len(node.schema))


def is_of_windows(node: logical.Aggregate | logical.Distinct) -> bool:
    """Return whether a node aggregates windows. With grouping sets it does not, until its rows are expanded."""
    has_sets = isinstance(node, logical.Aggregate) and node.sets
    return not has_sets and group_window_edges(node.input, group_keys(node)) is not None


def may_be_window_time(node: logical.Node, column: int) -> bool:
    """Return whether a column comes from the time of a window. Nodes in between may disappear in rewrites."""
    if isinstance(node, logical.Project):
        expression = node.expressions[column]
        return isinstance(expression, Field) and may_be_window_time(node.input, expression.index)
    if isinstance(node, logical.Aggregate):
        return column < len(node.keys) and may_be_window_time(node.input, node.keys[column])
    if isinstance(node, logical.WindowTable) and column >= len(node.input.schema):
        return column == len(node.schema) - 1
    if isinstance(node, logical.SetOperation):
        return all(may_be_window_time(part, column) for part in node.parts)
    origin = find_input(node, column)
    return origin is not None and may_be_window_time(*origin)


def group_window_edges(node: logical.Node, keys: Sequence[int]) -> dict[int, int] | None:
    """Return which keys are edges of the windows that an aggregate groups by; None for other groups.

    A window aggregate groups by both ends, and by exactly the columns that partition sessions. Windows of processing
    time must be directly below it. Flink treats other aggregates as regular groups.
    """
    window_edges = find_window_edges(node, keys)
    if window_edges is None:
        return None
    window, edges = window_edges
    if is_processing(window) and not _is_near(node, window):
        return None
    if window.kind != "SESSION":
        return edges
    groups = {find_origin_column(node, key, window) for key in keys if key not in edges}
    return edges if groups == set(window.partition) else None


def _is_near(node: logical.Node, window: logical.WindowTable) -> bool:
    while isinstance(node, logical.Project | logical.Filter):
        node = node.input
    return node is window


def find_origin_column(node: logical.Node, column: int, window: logical.WindowTable) -> int | None:
    """Return the input column of a window table that a column passes on unchanged, otherwise None."""
    while node is not window:
        if isinstance(node, logical.Project):
            expression = node.expressions[column]
            if not isinstance(expression, Field):
                return None
            node, column = node.input, expression.index
        elif isinstance(node, logical.Filter):
            node = node.input
        else:
            return None
    return column


def is_processing(window: logical.WindowTable) -> bool:
    """Return whether rows are assigned to windows by processing time."""
    return window.input.schema[window.time].time is nodes.TimeAttribute.PROCTIME


def find_join_window_edges(node: logical.Join) -> tuple[tuple[int, int], tuple[int, int], logical.WindowTable] | None:
    """Return the indexes of window start and end on both sides of a window join; None for other joins.

    The returned window is that of the left side.
    """
    width = len(node.left.schema)
    equalities: list[tuple[int, tuple[int, int], tuple[logical.WindowTable, logical.WindowTable]]] = []
    for part in conjuncts(node.condition):
        if not isinstance(part, FunctionCall) or part.function != "=":
            continue
        left_field, right_field = part.operands
        if not isinstance(left_field, Field) or not isinstance(right_field, Field):
            continue
        if left_field.index >= width:
            left_field, right_field = right_field, left_field
        if left_field.index >= width or right_field.index < width:
            continue
        left, right = find_window(node.left, left_field.index), find_window(node.right, right_field.index - width)
        if left is not None and right is not None and left[1] == right[1] and _are_alike(left[0], right[0]):
            equalities.append((left[1], (left_field.index, right_field.index - width), (left[0], right[0])))
    for _, starts, windows in (equality for equality in equalities if equality[0] == 0):
        for _, ends, other_windows in (equality for equality in equalities if equality[0] == 1):
            if other_windows[0] is windows[0] and other_windows[1] is windows[1]:
                return (starts[0], ends[0]), (starts[1], ends[1]), windows[0]
    return None


def _are_alike(left: logical.WindowTable, right: logical.WindowTable) -> bool:
    """Return whether the windows of both tables begin and end together."""
    return _measures(left) == _measures(right)


def _measures(window: logical.WindowTable) -> tuple[object, ...]:
    is_moment = isinstance(window.input.schema[window.time].type, LocalZonedTimestampType)
    return window.kind, window.sizes, window.offset, is_moment, is_processing(window)


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

    def build(self, more: Sequence[Typed] = ()) -> nodes.Node:
        """Return the plan, with further columns after the selected ones."""
        plan = self.scope.plan
        columns: dict[tuple[str, int], Typed] = {}
        if self.grouped is not None:
            plan = self._aggregate(plan, columns)
        if self.having is not None:
            plan = nodes.Filter(schema=plan.schema, input=plan, condition=self._true(placed(self.having, columns)))
        plan = self._overs(plan, columns)
        if self.qualify is not None:
            plan = nodes.Filter(schema=plan.schema, input=plan, condition=self._true(placed(self.qualify, columns)))
        expressions = [placed(column.expression, columns) for column in self.selected]
        expressions += [placed(expression, columns) for expression in more]
        names = [column.name for column in self.selected] + [f"$sort{index}" for index in range(len(more))]
        plan = project(plan, expressions, names)
        if self.node.is_distinct:
            if more:
                raise ValidationError("with SELECT DISTINCT, ORDER BY can only have what is selected")
            plan = nodes.Distinct(schema=plan.schema, input=plan, state_ttl_ms=self.state_ttl_ms)
        return plan

    def _true(self, condition: Typed) -> Typed:
        return self.calls.implicit(condition, BooleanType())

    def _aggregate(self, plan: nodes.Node, columns: dict[tuple[str, int], Typed]) -> nodes.Node:
        grouped = self.grouped
        assert grouped is not None
        expressions = list(grouped.keys)
        calls = [_moved(call, expressions) for call in grouped.calls]
        names = [_column_name(key, index) for index, key in enumerate(grouped.keys)]
        names += [f"$f{index}" for index in range(len(names), len(expressions))]
        before = project(plan, expressions, names)
        keys = tuple(range(len(grouped.keys)))
        key_columns = self._key_columns(before, keys)
        call_columns = [nodes.PlanColumn(f"$agg{index}", call.type) for index, call in enumerate(calls)]
        call_columns += [
            nodes.PlanColumn(f"$grouping{index}", BIGINT.not_null()) for index in range(len(grouped.groupings))
        ]
        schema = nodes.RowSchema((*key_columns, *call_columns))
        for index in keys:
            columns["key", index] = schema.field(index)
        for index in range(len(calls)):
            columns["aggregate", index] = schema.field(len(keys) + index)
        for index in range(len(grouped.groupings)):
            columns["grouping", index] = schema.field(len(keys) + len(calls) + index)
        result: nodes.Node = nodes.Aggregate(
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
            result = nodes.Values(schema=schema, rows=((),))
        for number, query in enumerate(grouped.queries):
            query = grouped.placed_query(query, columns)
            result, columns["query", number] = with_scalar(result, query, self.calls)
        return result

    def _key_columns(self, before: nodes.Node, keys: Sequence[int]) -> list[nodes.PlanColumn]:
        """Return the columns of keys. Only columns that may be window times stay event time.

        A key is nullable if some grouping set omits it.
        """
        columns = []
        for key in keys:
            column = before.schema[key]
            if self.sets and any(key not in grouping_set for grouping_set in self.sets):
                column = replace(column, type=column.type.nullable(), time=None)
            is_time = column.time is nodes.TimeAttribute.ROWTIME and may_be_window_time(before, key)
            columns.append(column if is_time else replace(column, time=None))
        return columns

    def _overs(self, plan: nodes.Node, columns: dict[tuple[str, int], Typed]) -> nodes.Node:
        """Add a step for each window, with the calls that share it."""
        windows: dict[tuple[object, ...], list[int]] = {}
        for number, over_call in enumerate(self.over.found):
            windows.setdefault(over_call.window, []).append(number)
        for numbers in windows.values():
            plan = self._over(plan, numbers, columns)
        return plan

    def _over(self, plan: nodes.Node, numbers: Sequence[int], columns: dict[tuple[str, int], Typed]) -> nodes.Node:
        first = self.over.found[numbers[0]]
        width = len(plan.schema)
        expressions: list[Typed] = list(plan.schema.fields())
        partition = tuple(_place(placed(expression, columns), expressions) for expression in first.partition)
        order = tuple(
            nodes.SortKey(_place(placed(expression, columns), expressions), down, nulls_first(down, nulls))
            for expression, down, nulls in first.order
        )
        calls = [_moved(self._placed_call(self.over.found[number], columns), expressions) for number in numbers]
        if len(expressions) > width:
            names = plan.schema.names + [f"$o{index}" for index in range(width, len(expressions))]
            plan = project(plan, expressions, names)
        call_columns = [nodes.PlanColumn(f"$over{number}", self.over.found[number].call.type) for number in numbers]
        schema = nodes.RowSchema((*plan.schema.columns, *call_columns))
        for position, number in enumerate(numbers):
            columns["over", number] = schema.field(len(plan.schema) + position)
        return nodes.Over(
            schema=schema,
            input=plan,
            partition=partition,
            order=order,
            is_rows=first.is_rows,
            lower=_bound(first.lower),
            upper=_bound(first.upper),
            calls=tuple(calls),
        )

    def _placed_call(self, over_call: OverCall, columns: dict[tuple[str, int], Typed]) -> nodes.AggregateCall:
        call = over_call.call
        condition = None if call.condition is None else placed(call.condition, columns)
        return replace(call, operands=tuple(placed(operand, columns) for operand in call.operands), condition=condition)


def project(plan: nodes.Node, expressions: Sequence[Typed], names: Sequence[str]) -> nodes.Node:
    """Return a projection; columns that are only passed on stay time attributes."""
    columns = []
    for expression, name in zip(expressions, names, strict=True):
        time = plan.schema[expression.index].time if isinstance(expression, Field) else None
        columns.append(nodes.PlanColumn(name, expression.type, time or find_time_attribute(expression)))
    return nodes.Project(schema=nodes.RowSchema(tuple(columns)), input=plan, expressions=tuple(expressions))


def is_place(expression: syntax.Expression) -> TypeGuard[syntax.NumberLiteral]:
    """Return whether an expression is a number that may be a column position."""
    return isinstance(expression, syntax.NumberLiteral) and expression.text.isdigit()


def has_places(group: Sequence[relations.GroupItem]) -> bool:
    """Return whether the grouping expressions include numbers."""
    return any(any(map(is_place, item.expressions)) or has_places(item.sets) for item in group)


def find_time_attribute(expression: Typed) -> nodes.TimeAttribute | None:
    """Return the time attribute that an expression creates: PROCTIME()."""
    return nodes.TimeAttribute.PROCTIME if getattr(expression, "function", "") == "PROCTIME" else None


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


def _moved(call: nodes.AggregateCall, expressions: list[Typed]) -> nodes.AggregateCall:
    """Return a call over columns of a projection. Constant operands stay; a condition is a column or None."""

    def column(operand: Typed) -> Field:
        return Field(operand.type, _place(operand, expressions), getattr(operand, "name", ""))

    operands = tuple(operand if isinstance(operand, Constant) else column(operand) for operand in call.operands)
    is_true = isinstance(call.condition, Constant) and call.condition.value is True
    condition = None if call.condition is None or is_true else column(call.condition)
    return replace(call, operands=operands, condition=condition)


def _column_name(expression: Typed, index: int) -> str:
    return getattr(expression, "name", "") or f"$k{index}"


def _bound(bound: tuple[str, Typed | None]) -> nodes.FrameBound:
    direction, distance = bound
    return nodes.FrameBound(direction != "FOLLOWING", distance, direction == "CURRENT ROW")


def _subsets(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    if not parts:
        return [()]
    rest = _subsets(parts[1:])
    return [parts[0] + subset for subset in rest] + rest
