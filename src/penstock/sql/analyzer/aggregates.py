"""Aggregate calls, also of user-defined functions, and the scopes that turn them into columns: GROUP BY and OVER."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Final

from penstock.base.errors import UnsupportedError, did_you_mean
from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.subqueries import OuterField, ScalarQueries, Uncorrelated, outside
from penstock.sql.data.errors import UnknownNameError, ValidationError
from penstock.sql.data.types import DoubleType
from penstock.sql.expressions.evaluator import bind_operands
from penstock.sql.functions.aggregates import AGGREGATE_FUNCTIONS, AggregateFunction
from penstock.sql.functions.definition import BIGINT
from penstock.sql.functions.json import embedded_operands
from penstock.sql.functions.registry import is_built_in
from penstock.sql.logical.nodes import AggregateCall, UserAggregateCall, group_ids
from penstock.sql.parser import syntax
from penstock.sql.typed import Constant, Typed, WidenedFloat, transformed
from penstock.sql.user_functions.definition import AGGREGATES, FunctionKind, UserFunction


def user_aggregate_call(
    user: UserFunction, call: syntax.Call, analyser: ScalarAnalyser, takes_rows: bool = False
) -> UserAggregateCall:
    """Return a typed aggregate call. Raises `ValidationError` if its function does not accept the operands.

    `takes_rows`: whether a table aggregate function is allowed here.
    """
    if user.kind is FunctionKind.TABLE_AGGREGATE and not takes_rows:
        raise ValidationError(f"{user} gives rows: call it in the Table API, by flat_aggregate")
    if user.kind not in AGGREGATES:
        raise ValidationError(f"{user} is no aggregate function: it cannot be called with OVER")
    for is_written, restriction in (
        (call.respects_nulls is not None, "neither IGNORE NULLS nor RESPECT NULLS: it gets NULL as None"),
        (bool(call.order), "no order: neither ORDER BY nor WITHIN GROUP"),
        (bool(call.within_distinct), "no WITHIN DISTINCT"),
    ):
        if is_written:
            raise ValidationError(f"{user} takes {restriction}")
    if any(isinstance(operand, syntax.Star) for operand in call.operands):
        raise ValidationError(f"{user} takes values: {user.name}(*) has none, so name the columns")
    operands = analyser.calls.user_operands(user, [analyser.typed(operand) for operand in call.operands])
    if call.is_distinct and not operands:
        raise ValidationError(f"{user} is called with DISTINCT, and without an operand")
    # Names in plans are unique, so quote the name of a built-in function.
    name = f"`{user.name}`" if is_built_in(user.name) else user.name
    condition = analyse_filter(call, analyser)
    return UserAggregateCall(
        name, tuple(operands), user.result_type, call.is_distinct, condition, user=user, at=call.at
    )


def analyse_filter(call: syntax.Call, analyser: ScalarAnalyser) -> Typed | None:
    """Return the FILTER condition of an aggregate call, or None."""
    return None if call.condition is None else analyser.calls.call("IS TRUE", [analyser.typed(call.condition)])


@dataclass(frozen=True, slots=True)
class Pending(Typed):
    """A column that a later step of the plan will produce: the `number`-th one of its `stage`."""

    stage: str
    number: int


def walk_nodes(node: object) -> Iterator[syntax.Expression]:
    """Yield a syntax expression and all expressions in it, without descending into queries."""
    if isinstance(node, syntax.Query):
        return
    if isinstance(node, syntax.Expression):
        yield node
    if isinstance(node, tuple):
        for part in node:
            yield from walk_nodes(part)
    elif is_dataclass(node):
        for field in fields(node):
            yield from walk_nodes(getattr(node, field.name))


def is_aggregate(node: syntax.Expression, calls: Calls) -> bool:
    """Return whether a node calls an aggregate function. `calls` finds the user-defined ones."""
    if not isinstance(node, syntax.Call):
        return False
    user = calls.user_function(node)
    return node.name in AGGREGATE_FUNCTIONS if user is None else user.kind in AGGREGATES


def contains_aggregate(node: object, calls: Calls) -> bool:
    """Return whether a node contains an aggregate call, other than over a window."""
    if isinstance(node, syntax.Over):
        return contains_aggregate(node.call.operands, calls) if isinstance(node.call, syntax.Call) else False
    if isinstance(node, syntax.Query):
        return False
    if isinstance(node, syntax.Expression) and is_aggregate(node, calls):
        return True
    if isinstance(node, tuple):
        return any(contains_aggregate(part, calls) for part in node)
    if is_dataclass(node):
        return any(contains_aggregate(getattr(node, field.name), calls) for field in fields(node))
    return False


def contains_over(node: object) -> bool:
    """Return whether a node contains a call over a window."""
    return any(isinstance(expression, syntax.Over) for expression in walk_nodes(node))


def contains_query(node: object) -> bool:
    """Return whether an expression contains a query."""
    if isinstance(node, syntax.Query):
        return True
    if isinstance(node, tuple):
        return any(map(contains_query, node))
    return is_dataclass(node) and any(contains_query(getattr(node, field.name)) for field in fields(node))


def aggregate_call(call: syntax.Call, analyser: ScalarAnalyser, is_over: bool, has_groups: bool) -> AggregateCall:
    """Return a typed aggregate call. Raises `ValidationError` if its function does not accept the operands."""
    user = analyser.calls.user_function(call)
    if user is not None:
        return user_aggregate_call(user, call, analyser)
    function = AGGREGATE_FUNCTIONS.get(call.name)
    if function is None:
        raise ValidationError(f"{call.name} is no aggregate function: it cannot be called with OVER")
    if function.only_over and not is_over:
        raise ValidationError(f"OVER must be specified for {function.name}")
    _check_extras(call, function)
    operands = [analyser.typed(operand) for operand in call.operands if not isinstance(operand, syntax.Star)]
    if function.name in _SUMS:
        operands = [operand.number if isinstance(operand, WidenedFloat) else operand for operand in operands]
    call_operands = bind_operands(operands, call.options, analyser.calls.session)
    for signature in function.signatures:
        types = signature.match(call_operands)
        if types is not None:
            break
    else:
        types_text = ", ".join(str(operand.type) for operand in operands)
        expected = "\n".join(f"{function.name}{signature}" for signature in function.signatures)
        raise ValidationError(
            f"Invalid function call:\n{function.name}({types_text})\n"
            f"Invalid input arguments. Expected signatures are:\n{expected}"
        )
    casts = tuple(analyser.calls.implicit(operand, to) for operand, to in zip(operands, types, strict=True))
    result = function.result(bind_operands(casts, call.options, analyser.calls.session))
    condition = analyse_filter(call, analyser)
    if not function.never_null and (condition is not None or is_over or not has_groups):
        result = result.nullable()
    if function.name.startswith("JSON_"):
        options = (*call.options, *embedded_operands("JSON_OBJECT", operands))
    else:
        options = _options(call)
    return AggregateCall(function.name, casts, result, call.is_distinct, condition, (), options)


#: aggregates that return a FLOAT for a FLOAT operand
_SUMS: Final = frozenset({"SUM", "AVG"})


def _as_declared(result: Typed, call: syntax.Call, analyser: ScalarAnalyser) -> Typed:
    """Cast the result of an aggregate to DOUBLE if it sums a FLOAT that the Table API declares as DOUBLE."""
    is_sum = call.name in _SUMS and analyser.calls.user_function(call) is None
    if not is_sum or not isinstance(analyser.typed(call.operands[0]), WidenedFloat):
        return result
    return analyser.calls.cast(result, DoubleType())


def _check_extras(call: syntax.Call, function: AggregateFunction) -> None:
    """Raise `ValidationError` for clauses in or after a call that its function does not accept."""
    if call.respects_nulls is not None and not function.takes_nulls:
        raise ValidationError(f"{function.name} takes neither IGNORE NULLS nor RESPECT NULLS")
    if call.condition is not None and function.only_over:
        raise ValidationError(f"{function.name} takes no FILTER: it numbers all rows")
    if call.order:
        raise ValidationError(f"{function.name} takes no order: neither ORDER BY nor WITHIN GROUP")
    if call.within_distinct:
        raise ValidationError(f"{function.name} does not take WITHIN DISTINCT")


def _options(call: syntax.Call) -> tuple[str, ...]:
    nulls = () if call.respects_nulls is None else ("RESPECT NULLS" if call.respects_nulls else "IGNORE NULLS",)
    return (*call.options, *nulls)


class GroupedScope:
    """The scope after GROUP BY: grouping keys and aggregates. Anything else is rejected."""

    def __init__(
        self,
        inner: ScalarAnalyser,
        keys: Sequence[Typed],
        sets: Sequence[tuple[int, ...]],
        scalars: ScalarQueries,
    ) -> None:
        self.inner = inner
        self._scalars = scalars
        #: queries in expressions; each adds a column after the groups
        self.queries: list[Uncorrelated] = []
        #: the group columns that queries compare with; queries refer to them by negative indexes
        self.asked: list[Pending] = []
        self.keys = list(keys)
        self.has_groups = bool(keys)
        self._has_sets = bool(sets)
        self._sets = sets
        #: keys that are NULL in the groups of some grouping set
        self._left_out = {
            index for index in range(len(self.keys)) if any(index not in grouping_set for grouping_set in sets)
        }
        self.calls: list[AggregateCall] = []
        #: operands of GROUPING and similar functions, whose results depend on the grouping set
        self.groupings: list[tuple[int, ...]] = []

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`: only reached for a column that is not a grouping key."""
        self.inner.scope.resolve(path, at)
        raise ValidationError(f"Expression '{'.'.join(path)}' is not being grouped")

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""

        def compared(operand: syntax.Expression) -> tuple[Typed, Typed]:
            typed = analyser.typed(operand)
            return typed, transformed(typed, self._from_inside)

        def ask(query: Uncorrelated) -> Typed:
            self.queries.append(query)
            return Pending(query.plan.schema[0].type.nullable(), "query", len(self.queries) - 1)

        return self._scalars(node, None, compared, ask)

    def _from_inside(self, node: Typed) -> Typed:
        """Return a column of the groups as a query in an expression sees it."""
        if not isinstance(node, Pending):
            return node
        self.asked.append(node)
        return OuterField(node.type, -len(self.asked))

    def placed_query(self, query: Uncorrelated, columns: dict[tuple[str, int], Typed]) -> Uncorrelated:
        """Return a query whose conditions use the plan's columns of the groups."""

        def change(node: Typed) -> Typed:
            if not isinstance(node, OuterField) or node.index >= 0:
                return node
            return outside(placed(self.asked[-1 - node.index], columns))

        return replace(query, conditions=tuple(transformed(condition, change) for condition in query.conditions))

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """See `Scope`."""
        if isinstance(node, syntax.Over):
            return None
        if isinstance(node, syntax.Call) and node.name in ("GROUPING", "GROUPING_ID", "GROUP_ID"):
            return self._grouping(node)
        calls = self.inner.calls
        if is_aggregate(node, calls):
            assert isinstance(node, syntax.Call)
            if contains_aggregate(node.operands, calls):
                raise ValidationError(f"Aggregate expressions cannot be nested: {node.name}")
            typed = self._called(aggregate_call(node, self.inner, False, self.has_groups))
            return _as_declared(typed, node, self.inner)
        if contains_aggregate(node, calls) or contains_over(node) or contains_query(node):
            return None
        try:
            typed = self.inner.typed(node)
        except ValidationError:
            return None
        if isinstance(typed, Constant):
            return typed
        for index, key in enumerate(self.keys):
            if typed == key:
                return self.key(index)
        return None

    def key(self, index: int) -> Typed:
        """Return a grouping key as a column of the groups."""
        kind = self.keys[index].type
        return Pending(kind.nullable() if index in self._left_out else kind, "key", index)

    def _called(self, call: AggregateCall) -> Typed:
        for number, known in enumerate(self.calls):
            if call.is_same(known) if isinstance(call, UserAggregateCall) else call == known:
                return Pending(call.type, "aggregate", number)
        self.calls.append(call)
        return Pending(call.type, "aggregate", len(self.calls) - 1)

    def _grouping(self, node: syntax.Call) -> Typed:
        if bool(node.operands) == (node.name == "GROUP_ID"):
            takes = "no arguments" if node.operands else "what is grouped by"
            raise ValidationError(f"Invalid number of arguments to function '{node.name}': it takes {takes}")
        numbers = []
        for operand in node.operands:
            typed = self.inner.typed(operand)
            if typed not in self.keys:
                raise ValidationError(f"Argument to function {node.name} must be a grouped expression")
            numbers.append(self.keys.index(typed))
        if not self._has_sets or (not numbers and not any(group_ids(self._sets))):
            return Constant(BIGINT.not_null(), 0)
        which = tuple(numbers)
        if which not in self.groupings:
            self.groupings.append(which)
        return Pending(BIGINT.not_null(), "grouping", self.groupings.index(which))


@dataclass(frozen=True, slots=True)
class OverCall:
    """A typed call over a window."""

    call: AggregateCall
    partition: tuple[Typed, ...]
    order: tuple[tuple[Typed, bool, str | None], ...]
    is_rows: bool
    lower: tuple[str, Typed | None]
    upper: tuple[str, Typed | None]

    @property
    def window(self) -> tuple[object, ...]:
        """Everything but the call: calls with the same window run together."""
        return (self.partition, self.order, self.is_rows, self.lower, self.upper)


def check_frame(window: syntax.WindowSpecification) -> None:
    """Raise `UnsupportedError` for frame clauses that are not supported."""
    if window.exclusion not in (None, "NO OTHERS"):
        raise UnsupportedError(f"EXCLUDE {window.exclusion} in an OVER window is not supported: end the frame earlier")
    if window.disallows_partial:
        raise UnsupportedError(
            "DISALLOW PARTIAL in an OVER window is not supported: compare COUNT(*) OVER the same window with its size"
        )


class OverScope:
    """A scope that allows calls over windows: they become columns of a step before the projection."""

    def __init__(self, inner: ScalarAnalyser, windows: dict[str, syntax.WindowSpecification]) -> None:
        self.inner = inner
        self.windows = windows
        for window in windows.values():
            check_frame(window)
        self.found: list[OverCall] = []

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """See `Scope`."""
        return self.inner.scope.resolve(path, at)

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """See `Scope`."""
        return self.inner.scope.subquery(node, analyser)

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """See `Scope`."""
        if isinstance(node, syntax.Over):
            return self._over(node)
        return self.inner.scope.special(node, analyser)

    def _over(self, node: syntax.Over) -> Typed:
        if not isinstance(node.call, syntax.Call):
            raise ValidationError("OVER must be used with an aggregate function")
        window = self._window(node.window)
        is_of_program = self.inner.calls.user_function(node.call) is not None
        function = None if is_of_program else AGGREGATE_FUNCTIONS.get(node.call.name)
        if function is not None and function.needs_order and not window.order:
            raise ValidationError(f"{function.name} needs ORDER BY in its OVER window")
        is_rows, lower, upper = self._frame(window, function)
        over_call = OverCall(
            aggregate_call(node.call, self.inner, True, True),
            tuple(self.inner.typed(expression) for expression in window.partition),
            tuple((self.inner.typed(item.expression), item.is_descending, item.nulls) for item in window.order),
            is_rows,
            lower,
            upper,
        )
        for number, known in enumerate(self.found):
            if over_call == known and (
                not isinstance(over_call.call, UserAggregateCall) or over_call.call.is_same(known.call)
            ):
                return _as_declared(Pending(over_call.call.type, "over", number), node.call, self.inner)
        self.found.append(over_call)
        return _as_declared(Pending(over_call.call.type, "over", len(self.found) - 1), node.call, self.inner)

    def _window(self, window: syntax.WindowSpecification | str) -> syntax.WindowSpecification:
        if isinstance(window, str):
            if window not in self.windows:
                raise UnknownNameError(f"Window '{window}' not found{did_you_mean(window, self.windows)}", name=window)
            return self._window(self.windows[window])
        check_frame(window)
        if window.base is None:
            return window
        base = self._window(window.base)
        return replace(
            window, base=None, partition=window.partition or base.partition, order=window.order or base.order
        )

    def _frame(
        self, window: syntax.WindowSpecification, function: AggregateFunction | None
    ) -> tuple[bool, tuple[str, Typed | None], tuple[str, Typed | None]]:
        """Return whether the frame is ROWS, and both ends.

        Without a frame clause, the frame ends at the current row, or without ORDER BY at the end of the partition.
        """
        if window.unit is None:
            end = "CURRENT ROW" if window.order else "FOLLOWING"
            return function is not None and function.name == "ROW_NUMBER", ("PRECEDING", None), (end, None)
        if function is not None and function.only_over:
            raise ValidationError(
                "ROW/RANGE not allowed with RANK, DENSE_RANK, ROW_NUMBER, PERCENTILE_CONT/DISC or LAG/LEAD functions"
            )
        current = syntax.Bound("CURRENT ROW")
        return window.unit == "ROWS", self._bound(window.lower or current), self._bound(window.upper or current)

    def _bound(self, bound: syntax.Bound) -> tuple[str, Typed | None]:
        if bound.distance is None:
            return bound.direction, None
        distance = self.inner.typed(bound.distance)
        if not isinstance(distance, Constant):
            raise ValidationError("the ends of an OVER window must be constant")
        return bound.direction, distance


def placed(expression: Typed, columns: dict[tuple[str, int], Typed]) -> Typed:
    """Replace the pending columns in an expression by the actual ones."""

    def change(node: Typed) -> Typed:
        return columns[node.stage, node.number] if isinstance(node, Pending) else node

    return transformed(expression, change)
