"""Pushes conditions, filters and limits down a plan, and merges projections.

**Joins.** `extract_join_keys` extracts equality keys from a join condition, and `settled` pushes down conditions on one
side. `find_interval` finds two comparisons that bound the distance of the sides' time attributes.

**Filters.** `with_early_filters` moves filters down, so that fewer rows are sent, kept and joined.
`with_pushed_filters` and `with_pushed_limits` push them into tables that support it, so that fewer rows are read. A
table that is read in several places is scanned once, so only conditions that all places have in common are pushed down.

**Projections.** `extract_calc` combines consecutive filters and projections into one step. `with_few_projections`
merges consecutive projections and removes ones without effect, so that equivalent plans become equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.sql.analyzer.calls import Calls
from penstock.sql.analyzer.subqueries import TRUE, conjoin, shifted
from penstock.sql.data import types
from penstock.sql.data.arrow import arrow_type
from penstock.sql.data.errors import ValidationError
from penstock.sql.expressions.evaluator import is_stable
from penstock.sql.logical import nodes
from penstock.sql.logical import nodes as logical
from penstock.sql.logical.properties import with_inputs
from penstock.sql.optimizer.pruning import ScanKey, collect_columns, scan_key
from penstock.sql.tables.tables import PushDown, PushedFilter
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts, transformed

_NO_KEYS: Final = (types.ArrayType, types.MapType, types.MultisetType, types.RawType, types.RowType, types.VariantType)
#: Functions that return NULL if any operand is NULL.
_STRICT: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "NOT", "LIKE", "CAST"})


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The equalities of a condition as expressions over each side's columns. `rest`: the remaining condition."""

    left: tuple[Typed, ...]
    right: tuple[Typed, ...]
    nulls_match: tuple[bool, ...]
    rest: Typed


def split_condition(condition: Typed) -> list[Typed]:
    """Return the conjuncts of a condition; an empty list for TRUE."""
    return [part for part in conjuncts(condition) if part != TRUE]


def is_key(part: Typed, width: int) -> bool:
    """Return whether a conjunct is a key of the join. `width`: the number of columns of the left side."""
    return _find_key(part, width) is not None


def extract_join_keys(condition: Typed, width: int, calls: Calls) -> JoinKeys:
    """Extract the keys of a condition. `width`: the number of columns of the left side.

    Keys are compared with `penstock.state.equality`, so NaN matches NaN, unlike with `=`.
    """
    keys: list[tuple[Typed, Typed, bool]] = []
    rest: list[Typed] = []
    for part in split_condition(condition):
        key = _find_key(part, width)
        if key is None:
            rest.append(part)
        else:
            keys.append(key)
    left, right, nulls_match = zip(*keys, strict=True) if keys else ((), (), ())
    return JoinKeys(left, right, nulls_match, conjoin(rest, calls))


def _find_key(part: Typed, width: int) -> tuple[Typed, Typed, bool] | None:
    if not isinstance(part, FunctionCall) or part.function not in ("=", "IS NOT DISTINCT FROM"):
        return None
    operand, other = part.operands
    if _find_side(operand, width) == 1:
        operand, other = other, operand
    if _find_side(operand, width) != 0 or _find_side(other, width) != 1 or not are_keys(operand.type, other.type):
        return None
    return operand, shifted(other, -width), part.function != "="


def are_keys(data_type: types.DataType, other: types.DataType) -> bool:
    """Return whether rows can be looked up by the equality of columns of these types."""
    return not isinstance(data_type, _NO_KEYS) and arrow_type(data_type) == arrow_type(other)


def _find_side(expression: Typed, width: int) -> int | None:
    """Return 0 or 1 for an expression over one side; None if it reads both or neither, or is not deterministic."""
    sides = {int(part.index >= width) for part in expression.walk() if isinstance(part, Field)}
    return sides.pop() if len(sides) == 1 and is_stable(expression) else None


def settled(join: nodes.Join, above: Typed, calls: Calls) -> tuple[nodes.Join, Typed]:
    """Push a filter above a join, and the join's own condition, below the join or into it as far as possible.

    Returns the join and the remaining filter above it. An outer side becomes an inner one if the filter rejects its
    NULL-padded rows.
    """
    width = len(join.left.schema)
    predicates = split_condition(above)
    join_type = _without_nulls(join.join_type, predicates, width)
    left: list[Typed] = []
    right: list[Typed] = []
    within: list[Typed] = []
    behind: list[Typed] = []
    is_half = join_type in (nodes.JoinType.SEMI, nodes.JoinType.ANTI)
    for part in predicates:
        side = _find_side(part, width)
        if side == 0 and (join_type in (nodes.JoinType.INNER, nodes.JoinType.LEFT) or is_half):
            left.append(part)
        elif side == 1 and join_type in (nodes.JoinType.INNER, nodes.JoinType.RIGHT):
            right.append(shifted(part, -width))
        else:
            (within if join_type is nodes.JoinType.INNER and is_stable(part) else behind).append(part)
    for part in split_condition(join.condition):
        side = _find_side(part, width)
        if side == 0 and join_type in (nodes.JoinType.INNER, nodes.JoinType.RIGHT, nodes.JoinType.SEMI):
            left.append(part)
        elif side == 1 and (join_type in (nodes.JoinType.INNER, nodes.JoinType.LEFT) or is_half):
            right.append(shifted(part, -width))
        else:
            within.append(part)
    new_join = replace(
        join,
        left=_filtered(join.left, left, calls),
        right=_filtered(join.right, right, calls),
        join_type=join_type,
        condition=conjoin(within, calls),
    )
    return new_join, conjoin(behind, calls)


def _filtered(node: nodes.Node, conditions: Sequence[Typed], calls: Calls) -> nodes.Node:
    return nodes.Filter(schema=node.schema, input=node, condition=conjoin(conditions, calls)) if conditions else node


def _without_nulls(join_type: nodes.JoinType, predicates: Iterable[Typed], width: int) -> nodes.JoinType:
    """Return the join type without the outer sides whose NULL-padded rows the conditions reject."""
    keeps_left, keeps_right = join_type.keeps_left, join_type.keeps_right
    if not (keeps_left or keeps_right):
        return join_type
    for part in predicates:
        if _refuses(part, range(width)):
            keeps_right = False
        if _refuses(part, range(width, 1 << 30)):
            keeps_left = False
    if keeps_left:
        return nodes.JoinType.FULL if keeps_right else nodes.JoinType.LEFT
    return nodes.JoinType.RIGHT if keeps_right else nodes.JoinType.INNER


def _refuses(condition: Typed, columns: range) -> bool:
    """Return whether the condition cannot be true if all these columns are NULL."""
    if isinstance(condition, FunctionCall):
        if condition.function == "AND":
            return any(_refuses(operand, columns) for operand in condition.operands)
        if condition.function == "OR":
            return all(_refuses(operand, columns) for operand in condition.operands)
        if condition.function in ("IS NOT NULL", "IS TRUE", "IS FALSE"):
            return _is_null(condition.operands[0], columns)
    return _is_null(condition, columns)


def _is_null(expression: Typed, columns: range) -> bool:
    """Return whether the expression is NULL if all these columns are NULL."""
    if isinstance(expression, Field):
        return expression.index in columns
    if isinstance(expression, FunctionCall) and expression.function in _STRICT:
        return any(_is_null(operand, columns) for operand in expression.operands)
    return False


#: Comparisons with their operands swapped.
_EXCHANGED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Interval:
    """The bounds of left time minus right time in ms, and the indices of the time columns."""

    lower: int
    upper: int
    left_time: int
    right_time: int
    is_event_time: bool


def find_interval(join: nodes.Join) -> tuple[Interval, list[Typed]] | None:
    """Return the interval of a join and the rest of its condition; None for a join without an interval."""
    if join.join_type in (nodes.JoinType.SEMI, nodes.JoinType.ANTI):
        return None
    columns = [*join.left.schema, *join.right.schema]
    width = len(join.left.schema)
    lower: list[tuple[int, int, int]] = []
    upper: list[tuple[int, int, int]] = []
    rest: list[Typed] = []
    for part in split_condition(join.condition):
        bound = _bound(part, columns, width)
        if bound is None:
            rest.append(part)
            continue
        comparison, left, right, distance = bound
        if comparison in (">", ">=", "="):
            lower.append((left, right, distance + (comparison == ">")))
        if comparison in ("<", "<=", "="):
            upper.append((left, right, distance - (comparison == "<")))
    if len(lower) != 1 or len(upper) != 1 or lower[0][:2] != upper[0][:2]:
        return None
    (left, right, least), (_, _, most) = lower[0], upper[0]
    column, other = columns[left], columns[right]
    if column.time is nodes.TimeAttribute.ROWTIME and type(column.type) is not type(other.type):
        raise ValidationError(
            "Interval join with rowtime attribute requires same rowtime types, but the types are "
            f"{column.type.nullable()} and {other.type.nullable()}."
        )
    return Interval(least, most, left, right - width, column.time is nodes.TimeAttribute.ROWTIME), rest


def _bound(part: Typed, columns: Sequence[nodes.PlanColumn], width: int) -> tuple[str, int, int, int] | None:
    """Return a bound on the left time relative to the right time: operator, left and right column, offset in ms."""
    if not isinstance(part, FunctionCall) or part.function not in _EXCHANGED:
        return None
    times = [_find_time_offset(operand, columns) for operand in part.operands]
    time, other = times
    if time is None or other is None or columns[time[0]].time is not columns[other[0]].time:
        return None
    comparison = part.function
    if time[0] >= width:
        time, other, comparison = other, time, _EXCHANGED[comparison]
    if time[0] >= width or other[0] < width:
        return None
    if comparison == "=" and not all(isinstance(operand, Field) for operand in part.operands):
        return None  # as in Flink, which computes both sides and joins them as keys
    return comparison, time[0], other[0], other[1] - time[1]


def _find_time_offset(expression: Typed, columns: Sequence[nodes.PlanColumn]) -> tuple[int, int] | None:
    """Return the column and the offset in ms if the expression is a time attribute plus or minus an interval."""
    if isinstance(expression, Field):
        return (expression.index, 0) if columns[expression.index].time is not None else None
    if not isinstance(expression, FunctionCall) or expression.function not in ("+", "-"):
        return None
    operand, other = expression.operands
    if expression.function == "+" and isinstance(operand, Constant):
        operand, other = other, operand
    time = _find_time_offset(operand, columns)
    if time is None or not isinstance(other, Constant) or not isinstance(other.type, types.DayTimeIntervalType):
        return None
    if not isinstance(other.value, int):
        return None
    return time[0], time[1] + (other.value if expression.function == "+" else -other.value)


def with_early_filters(plan: nodes.Node, calls: Calls) -> nodes.Node:
    """Move the filters of a plan down as far as its rows stay the same. Unchanged parts stay the same objects."""
    return _Pusher(calls).node(plan, [])


class _Pusher:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def node(self, node: nodes.Node, conditions: Sequence[Typed]) -> nodes.Node:
        """Rewrite a part of a plan to produce only the rows that satisfy all of `conditions`."""
        match node:
            case logical.Filter():
                return self._filter(node, conditions)
            case logical.Project():
                return self._below(node, conditions, lambda part: _through_project(part, node.expressions))
            case logical.WindowTable():
                return self._below(node, conditions, lambda part: _within(part, _free_columns(node)))
            case logical.Aggregate(sets=()):
                return self._below(node, conditions, lambda part: _through_keys(part, node.keys))
            case logical.Correlate():
                columns = range(len(node.input.schema))
                return self._below(node, conditions, lambda part: _within(part, columns))
            case logical.Over() | logical.Rank():
                return self._below(node, conditions, lambda part: _within(part, node.partition))
            case logical.Distinct() | logical.Sort(fetch=None, offset=0):
                return self._below(node, conditions, lambda part: part)
            case logical.SetOperation(operator="UNION", is_all=True):
                stays, goes = _split(conditions, lambda part: part)
                return self._above(with_inputs(node, [self.node(part, goes) for part in node.parts]), stays)
            case logical.Join():
                return self._join(node, conditions)
            case logical.TemporalJoin():
                return self._temporal_join(node, conditions)
            case _:
                return self._above(with_inputs(node, [self.node(child, []) for child in node.inputs()]), conditions)

    def _filter(self, node: logical.Filter, conditions: Sequence[Typed]) -> nodes.Node:
        rewritten = self.node(node.input, [*conjuncts(node.condition), *conditions])
        return node if rewritten == node else rewritten

    def _below(
        self, node: logical.Unary, conditions: Sequence[Typed], moved: Callable[[Typed], Typed | None]
    ) -> nodes.Node:
        stays, goes = _split(conditions, moved)
        return self._above(with_inputs(node, [self.node(node.input, goes)]), stays)

    def _join(self, node: logical.Join, conditions: Sequence[Typed]) -> nodes.Node:
        join, rest = settled(node, conjoin(conditions, self._calls), self._calls)
        if join == node:
            join = node
        rewritten = with_inputs(join, [self.node(child, []) for child in join.inputs()])
        return self._above(rewritten, [] if rest == TRUE else conjuncts(rest))

    def _temporal_join(self, node: logical.TemporalJoin, conditions: Sequence[Typed]) -> nodes.Node:
        """Move filters down, except to the right side, where an older version would replace a dropped row."""
        columns = range(len(node.left.schema))
        is_inner = node.join_type is logical.JoinType.INNER
        stays, left = _split(conditions, lambda part: _within(part, columns))
        within = split_condition(node.condition)
        if is_inner:
            within, mine = _split(within, lambda part: _within(part, columns))
            left = [*left, *mine]
            stays, both = _split(stays, lambda part: part)
            within = [*within, *both]
        if within != split_condition(node.condition):
            node = replace(node, condition=conjoin(within, self._calls))
        return self._above(with_inputs(node, [self.node(node.left, left), self.node(node.right, [])]), stays)

    def _above(self, node: nodes.Node, conditions: Sequence[Typed]) -> nodes.Node:
        if not conditions:
            return node
        return logical.Filter(schema=node.schema, input=node, condition=conjoin(conditions, self._calls))


def _split(conditions: Sequence[Typed], moved: Callable[[Typed], Typed | None]) -> tuple[list[Typed], list[Typed]]:
    """Split conditions into ones that must stay above a node and ones that go below it, rewritten by `moved`."""
    stays, goes = [], []
    for part in conditions:
        below = moved(part) if is_stable(part) and collect_columns([part]) else None
        if below is None:
            stays.append(part)
        else:
            goes.append(below)
    return stays, goes


def _within(part: Typed, columns: Collection[int]) -> Typed | None:
    return part if collect_columns([part]) <= set(columns) else None


def _free_columns(node: logical.WindowTable) -> Collection[int]:
    """Return the columns that a filter below a window table may use. Any row may be part of a session."""
    return node.partition if node.kind == "SESSION" else range(len(node.input.schema))


def _through_keys(part: Typed, keys: Sequence[int]) -> Typed | None:
    if _within(part, range(len(keys))) is None:
        return None
    return transformed(
        part,
        lambda expression: (
            replace(expression, index=keys[expression.index]) if isinstance(expression, Field) else expression
        ),
    )


def _through_project(part: Typed, expressions: Sequence[Typed]) -> Typed | None:
    """Rewrite a condition over a projection for its input. None if something would be computed twice."""
    if not all(isinstance(expressions[index], Field | Constant) for index in collect_columns([part])):
        return None
    return transformed(
        part, lambda expression: expressions[expression.index] if isinstance(expression, Field) else expression
    )


def with_pushed_filters(plan: nodes.Node, calls: Calls, tables: PushDown) -> nodes.Node:
    """Push filters, already moved down, into tables. Conditions that a table applies are removed."""
    conditions = _asked_everywhere(plan)
    pushed_filters: dict[ScanKey, PushedFilter | None] = {}

    def pushed(node: nodes.Node) -> nodes.Node:
        scan = node.input if isinstance(node, nodes.Filter) else node
        if not isinstance(scan, nodes.Scan):
            return with_inputs(node, [pushed(child) for child in node.inputs()])
        key = scan_key(scan)
        if not conditions[key]:
            return node
        if key not in pushed_filters:
            pushed_filters[key] = tables.filtered(scan, conditions[key], calls.session)
        pushed_filter = pushed_filters[key]
        if pushed_filter is None:
            return node
        assert isinstance(node, nodes.Filter)
        accepted = [condition for condition in conditions[key] if condition not in pushed_filter.remaining]
        rest = [condition for condition in conjuncts(node.condition) if condition not in accepted]
        return replace(node, input=pushed_filter.scan, condition=conjoin(rest, calls)) if rest else pushed_filter.scan

    return pushed(plan)


def asked_of_tables(plan: nodes.Node) -> dict[ScanKey, list[Typed]]:
    """Return the conditions that apply directly above each table, wherever a plan reads it."""
    return _asked_everywhere(plan)


def _asked_everywhere(plan: nodes.Node) -> dict[ScanKey, list[Typed]]:
    conditions: dict[ScanKey, list[Typed]] = {}
    for scan, filtered in _scans(plan):
        mine = (
            [] if filtered is None else [condition for condition in conjuncts(filtered.condition) if _may_go(condition)]
        )
        before = conditions.get(scan_key(scan))
        conditions[scan_key(scan)] = (
            mine if before is None else [condition for condition in before if condition in mine]
        )
    return conditions


def _may_go(condition: Typed) -> bool:
    return is_stable(condition) and bool(collect_columns([condition]))


def _scans(node: nodes.Node, above: nodes.Node | None = None) -> Iterator[tuple[nodes.Scan, nodes.Filter | None]]:
    """Yield the tables of a plan, each with the filter directly above it."""
    if isinstance(node, nodes.Scan):
        yield node, above if isinstance(above, nodes.Filter) else None
    for child in node.inputs():
        yield from _scans(child, node)


def with_pushed_limits(plan: nodes.Node, tables: PushDown) -> nodes.Node:
    """Push LIMIT without ORDER BY into the tables below, so that they end early."""
    times = Counter(scan_key(scan) for scan, _ in _scans(plan))

    def pushed(node: nodes.Node) -> nodes.Node:
        if isinstance(node, nodes.Sort) and not node.keys and node.fetch is not None:
            count = node.offset + node.fetch
            return with_inputs(node, [_limited(node.input, lambda scan: limited(scan, count))])
        return with_inputs(node, [pushed(child) for child in node.inputs()])

    def limited(scan: nodes.Scan, count: int) -> nodes.Scan | None:
        return tables.limited(scan, count) if times[scan_key(scan)] == 1 else None

    def _limited(node: nodes.Node, change: Callable[[nodes.Scan], nodes.Scan | None]) -> nodes.Node:
        if isinstance(node, nodes.Project):
            return with_inputs(node, [_limited(node.input, change)])
        if isinstance(node, nodes.Scan):
            return change(node) or node
        return pushed(node)

    return pushed(plan)


@dataclass(frozen=True, slots=True)
class Calc:
    """The combined filters and projections over `input`. `expressions`: None if its columns stay unchanged."""

    input: nodes.Node
    condition: Typed | None
    expressions: tuple[Typed, ...] | None


def extract_calc(node: nodes.Node, calls: Calls) -> Calc:
    """Combine the filters and projections from a node down, as far as possible."""
    condition: Typed | None = None
    expressions: tuple[Typed, ...] | None = None
    while True:
        if isinstance(node, nodes.Filter):
            part = node.condition
            condition = part if condition is None else calls.call("AND", [part, condition])
            node = node.input
        elif isinstance(node, nodes.Project):
            inner = node.expressions
            used = [expression for expression in (condition, *(expressions or ())) if expression is not None]
            if used and not may_be_repeated(inner, used):
                return Calc(node, condition, expressions)
            condition = None if condition is None else over(condition, inner)
            expressions = inner if expressions is None else tuple(over(expression, inner) for expression in expressions)
            node = node.input
        else:
            return Calc(node, condition, expressions)


def over(expression: Typed, inner: tuple[Typed, ...]) -> Typed:
    """Rewrite an expression over a projection's columns as one over the projection's input."""
    return transformed(expression, lambda node: inner[node.index] if isinstance(node, Field) else node)


def may_be_repeated(inner: tuple[Typed, ...], used: Sequence[Typed]) -> bool:
    """Return whether a projection's calls can be inlined: each is used at most once and gives the same result there."""
    for index, expression in enumerate(inner):
        if not isinstance(expression, FunctionCall):
            continue
        uses = sum(isinstance(node, Field) and node.index == index for part in used for node in part.walk())
        if uses > 1 or (uses and not is_stable(expression)):
            return False
    return True


def is_identity(expressions: Sequence[Typed], schema: nodes.RowSchema) -> bool:
    """Return whether the expressions are all the columns, unchanged."""
    fields = [expression.index for expression in expressions if isinstance(expression, Field)]
    return len(expressions) == len(schema) and fields == list(range(len(schema)))


def with_few_projections(node: nodes.Node) -> nodes.Node:
    """Reduce the projections of a plan. The one at the top stays, because it has the names of the result."""
    node = with_inputs(node, [_without_needless(with_few_projections(child)) for child in node.inputs()])
    if isinstance(node, nodes.Project) and isinstance(node.input, nodes.Project):
        inner = node.input
        if may_be_repeated(inner.expressions, node.expressions):
            expressions = tuple(over(expression, inner.expressions) for expression in node.expressions)
            return nodes.Project(schema=node.schema, input=inner.input, expressions=expressions)
    return node


def _without_needless(node: nodes.Node) -> nodes.Node:
    if not isinstance(node, nodes.Project) or not _same_columns(node.schema, node.input.schema):
        return node
    return node.input if is_identity(node.expressions, node.input.schema) else node


def _same_columns(schema: nodes.RowSchema, other: nodes.RowSchema) -> bool:
    """Return whether two schemas have the same columns, apart from their names."""
    return [(column.type, column.time) for column in schema] == [(column.type, column.time) for column in other]
