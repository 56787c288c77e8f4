"""Queries in expressions, which become joins: scalar queries, IN, EXISTS, and comparisons with SOME or ALL.

A query may use columns of the enclosing query (`OuterField`). Conditions with such columns are taken out of its plan
and become conditions of the join. The columns of the query that they need are passed up to the top of its plan, through
groups as additional keys.

`Test` represents IN, EXISTS, or a comparison with SOME or ALL, also nested in another expression. `x IN (query)` asks
how many rows of the query equal x. If x or the rows may be NULL, it also asks whether there are rows, and rows with
NULL: then IN is neither true nor false. `x > SOME (query)` compares with the least value of the query, and `x > ALL
(query)` is the negation of `x <= SOME (query)`. Each question is a scalar query, and so a join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.calls import Calls, number
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import BooleanType, IntType
from penstock.sql.functions.definition import BIGINT
from penstock.sql.logical import nodes
from penstock.sql.logical.properties import least_rows, most_rows
from penstock.sql.parser import syntax
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, conjuncts, transformed

#: plans a query in an expression, or a test of one. Arguments: the expression, the enclosing scope, a function that
#: returns a compared operand as seen here and as seen by the query, and a function that asks a scalar query
ScalarQueries = Callable[..., Typed]
TRUE = Constant(BooleanType(False), True)
FALSE = Constant(BooleanType(False), False)


@dataclass(frozen=True, slots=True)
class OuterField(Typed):
    """A column of an enclosing query. `level`: 1 for the nearest enclosing query, 2 for the one around that."""

    index: int
    name: str = ""
    level: int = 1


@dataclass(frozen=True, slots=True)
class Uncorrelated:
    """A decorrelated plan, and the conditions that used outer columns.

    In the conditions, columns of the plan are fields, and outer columns are still outer fields. `of_no_rows`: the value
    of an aggregate query if no row meets the conditions.
    """

    plan: nodes.Node
    conditions: tuple[Typed, ...]
    of_no_rows: Typed | None = None


def uses_outer(expression: Typed) -> bool:
    """Return whether an expression uses an outer column."""
    return any(isinstance(node, OuterField) for node in expression.walk())


def conjoin(conditions: Sequence[Typed], calls: Calls) -> Typed:
    """Return one condition that is true if all of these are."""
    if not conditions:
        return TRUE
    return calls.together("AND", conditions)


def outside(expression: Typed) -> Typed:
    """Return an expression over a query's columns as seen from a query nested in it."""

    def change(node: Typed) -> Typed:
        if isinstance(node, OuterField):
            return replace(node, level=node.level + 1)
        return OuterField(node.type, node.index, node.name) if isinstance(node, Field) else node

    return transformed(expression, change)


def is_true(condition: Typed) -> bool:
    """Return whether a condition is the constant TRUE, nullable or not."""
    return isinstance(condition, Constant) and condition.value is True


def uncorrelated(plan: nodes.Node, calls: Calls) -> Uncorrelated:
    """Extract the conditions that use outer columns. Raises `UnsupportedError` if this is impossible."""
    match plan:
        case nodes.Filter():
            return _filter(plan, calls)
        case nodes.Project():
            return _project(plan, calls)
        case nodes.Aggregate():
            return _aggregate(plan, calls)
        case nodes.Join(join_type=nodes.JoinType.INNER):
            return _join(plan, calls)
        case nodes.Sort():
            return _sort(plan, calls)
        case nodes.Distinct():
            inner = uncorrelated(plan.input, calls)
            if inner.conditions:
                raise UnsupportedError("DISTINCT in a query that uses columns of the query around it is not supported")
            return Uncorrelated(replace(plan, input=inner.plan), ())
        case _:
            _refuse(plan)
            return Uncorrelated(plan, ())


def _filter(plan: nodes.Filter, calls: Calls) -> Uncorrelated:
    inner = uncorrelated(plan.input, calls)
    mine: list[Typed] = []
    outer: list[Typed] = []
    for part in conjuncts(plan.condition):
        (outer if uses_outer(part) else mine).append(part)
    filtered = inner.plan
    if mine:
        filtered = nodes.Filter(schema=filtered.schema, input=filtered, condition=conjoin(mine, calls))
    return Uncorrelated(filtered, (*inner.conditions, *outer))


def _project(plan: nodes.Project, calls: Calls) -> Uncorrelated:
    if any(map(uses_outer, plan.expressions)):
        raise UnsupportedError("a selected column that uses a column of the query around it is not supported")
    inner = uncorrelated(plan.input, calls)
    expressions = list(plan.expressions)
    columns = list(plan.schema.columns)

    def moved(node: Typed) -> Typed:
        if not isinstance(node, Field):
            return node
        if node not in expressions:
            expressions.append(node)
            columns.append(replace(inner.plan.schema[node.index], name=f"$c{len(columns)}"))
        return replace(node, index=expressions.index(node))

    conditions = tuple(transformed(condition, moved) for condition in inner.conditions)
    schema = nodes.RowSchema(tuple(columns))
    return Uncorrelated(nodes.Project(schema=schema, input=inner.plan, expressions=tuple(expressions)), conditions)


def _aggregate(plan: nodes.Aggregate, calls: Calls) -> Uncorrelated:
    inner = uncorrelated(plan.input, calls)
    if not inner.conditions:
        return Uncorrelated(replace(plan, input=inner.plan), ())
    if plan.sets or not all(map(_is_equality, inner.conditions)):
        raise UnsupportedError(
            "a query with groups that compares its columns with those of the query around it other than by = "
            "is not supported"
        )
    used = sorted({node.index for part in inner.conditions for node in part.walk() if isinstance(node, Field)})
    keys = (*plan.keys, *(key for key in used if key not in plan.keys))
    more = [inner.plan.schema[index] for index in keys[len(plan.keys) :]]
    width = len(plan.keys)
    # Additional keys come last, so that the existing columns keep their positions.
    columns = [*plan.schema.columns[:width], *more, *plan.schema.columns[width:]]
    grouped = nodes.Aggregate(schema=nodes.RowSchema(tuple(columns)), input=inner.plan, keys=keys, calls=plan.calls)
    order = [*range(width), *range(width + len(more), len(columns)), *range(width, width + len(more))]
    schema = nodes.RowSchema(tuple(columns[index] for index in order))
    top = nodes.Project(schema=schema, input=grouped, expressions=tuple(grouped.schema.field(index) for index in order))

    def moved(node: Typed) -> Typed:
        return replace(node, index=order.index(keys.index(node.index))) if isinstance(node, Field) else node

    return Uncorrelated(top, tuple(transformed(condition, moved) for condition in inner.conditions))


def _join(plan: nodes.Join, calls: Calls) -> Uncorrelated:
    left, right = uncorrelated(plan.left, calls), uncorrelated(plan.right, calls)
    mine = [part for part in conjuncts(plan.condition) if not uses_outer(part)]
    outer = [part for part in conjuncts(plan.condition) if uses_outer(part)]
    if (left.conditions and len(left.plan.schema) != len(plan.left.schema)) or (
        right.conditions and len(right.plan.schema) != len(plan.right.schema)
    ):
        raise UnsupportedError("a join of queries that use columns of the query around them is not supported")
    width = len(left.plan.schema)
    conditions = (*left.conditions, *(shifted(condition, width) for condition in right.conditions), *outer)
    schema = left.plan.schema.joined(right.plan.schema)
    joined = replace(plan, schema=schema, left=left.plan, right=right.plan, condition=conjoin(mine, calls))
    return Uncorrelated(joined, conditions)


def _sort(plan: nodes.Sort, calls: Calls) -> Uncorrelated:
    """Decorrelate ORDER BY with LIMIT: each outer row gets the first of the rows that have its values."""
    inner = uncorrelated(plan.input, calls)
    if not inner.conditions:
        return Uncorrelated(replace(plan, input=inner.plan), ())
    if plan.fetch is None and not plan.offset:
        return inner
    # A condition on outer columns alone decides whether there are rows, but not which ones.
    telling = [condition for condition in inner.conditions if any(isinstance(part, Field) for part in condition.walk())]
    partition = [_compared_column(condition) for condition in telling]
    if None in partition or plan.fetch is None or not plan.keys:
        raise UnsupportedError(
            "ORDER BY with LIMIT in a query that uses columns of the query around it needs both, and conditions that "
            "compare columns with those by ="
        )
    ranked = nodes.Rank(
        schema=inner.plan.schema,
        input=inner.plan,
        partition=tuple(dict.fromkeys(column for column in partition if column is not None)),
        order=plan.keys,
        start=plan.offset + 1,
        end=plan.offset + plan.fetch,
    )
    return Uncorrelated(ranked, inner.conditions)


def _compared_column(condition: Typed) -> int | None:
    """Return the column that an equality compares with an expression of outer columns alone."""
    if not isinstance(condition, FunctionCall) or condition.function != "=":
        return None
    for column, value in (condition.operands, condition.operands[::-1]):
        from_outside = all(not isinstance(part, Field) for part in value.walk())
        if isinstance(column, Field) and from_outside and uses_outer(value):
            return column.index
    return None


def _is_equality(condition: Typed) -> bool:
    if not isinstance(condition, FunctionCall) or condition.function != "=":
        return False
    return sum(map(uses_outer, condition.operands)) == 1


def uses_outer_columns(plan: nodes.Node) -> bool:
    """Return whether a plan uses outer columns anywhere."""
    return _asks_outside(plan) or any(map(uses_outer_columns, plan.inputs()))


def _asks_outside(node: nodes.Node) -> bool:
    parts: list[Any] = [getattr(node, "condition", None), *getattr(node, "expressions", ())]
    parts += getattr(node, "operands", ())
    return any(isinstance(part, Typed) and uses_outer(part) for part in parts)


#: names of query steps for error messages
_STEPS: Final[dict[type[nodes.Node], str]] = {
    nodes.Correlate: "UNNEST or a table function in a subquery",
    nodes.Join: "an outer join, or NOT IN or NOT EXISTS in a subquery,",
}


def _refuse(plan: nodes.Node) -> None:
    for node in plan.inputs():
        _refuse(node)
    if _asks_outside(plan):
        step = _STEPS.get(type(plan), type(plan).__name__)
        raise UnsupportedError(f"{step} that uses columns of a query around it is not supported")


def shifted(expression: Typed, by: int) -> Typed:
    """Return an expression with its columns shifted to the right."""
    return transformed(
        expression, lambda node: replace(node, index=node.index + by) if isinstance(node, Field) else node
    )


def join_condition(inner: Uncorrelated, width: int, more: Sequence[Typed], calls: Calls) -> Typed:
    """Return the condition of a join whose left side, of `width` columns, is the enclosing query."""
    return conjoin([*(settled(condition, width) for condition in inner.conditions), *more], calls)


def settled(expression: Typed, width: int) -> Typed:
    """Rewrite an expression of a query for its join with the enclosing query, which has `width` columns."""

    def change(node: Typed) -> Typed:
        if isinstance(node, Field):
            return replace(node, index=node.index + width)
        if isinstance(node, OuterField):
            further_out = replace(node, level=node.level - 1)
            return Field(node.type, node.index, node.name) if node.level == 1 else further_out
        return node

    return transformed(expression, change)


def _with_duplicates(plan: nodes.Node) -> nodes.Node:
    """Return a plan with the same rows, some duplicated, whose joins can give up conditions with outer columns.

    A SEMI join does not pass columns of its right side to the top, where such conditions move. An inner join does.
    """
    match plan:
        case nodes.Filter() | nodes.Project():
            return replace(plan, input=_with_duplicates(plan.input))
        case nodes.Join(join_type=nodes.JoinType.INNER):
            return replace(plan, left=_with_duplicates(plan.left), right=_with_duplicates(plan.right))
        case nodes.Join(join_type=nodes.JoinType.SEMI) if uses_outer(plan.condition):
            left, right = _with_duplicates(plan.left), _with_duplicates(plan.right)
            joined = replace(
                plan, schema=left.schema.joined(right.schema), left=left, right=right, join_type=nodes.JoinType.INNER
            )
            fields = joined.schema.fields()[: len(left.schema)]
            return nodes.Project(schema=plan.schema, input=joined, expressions=tuple(fields))
        case _:
            return plan


def matching(
    left: nodes.Node, query: nodes.Node, equal_to: Sequence[Typed], is_negated: bool, calls: Calls
) -> nodes.Node:
    """Return the left rows with matching rows in the query, or if negated, without.

    `equal_to`: the values that the columns of the query must equal.
    """
    inner = uncorrelated(_with_duplicates(query), calls)
    width = len(left.schema)
    equalities = []
    for index, value in enumerate(equal_to):
        column = shifted(inner.plan.schema.field(index), width)
        equality = calls.call("=", [value, column])
        if is_negated and (value.type.is_nullable or column.type.is_nullable):
            # NOT IN is unknown, hence not true, if either side is NULL.
            equality = calls.call("OR", [equality, calls.call("IS NULL", [equality])])
        equalities.append(equality)
    return nodes.Join(
        schema=left.schema,
        left=left,
        right=inner.plan,
        join_type=nodes.JoinType.ANTI if is_negated else nodes.JoinType.SEMI,
        condition=join_condition(inner, width, equalities, calls),
    )


def scalar_query(query: nodes.Node, calls: Calls) -> Uncorrelated:
    """Return a query that yields one value; more than one row is a runtime error."""
    if len(query.schema) != 1:
        raise ValidationError(f"a query in an expression must give one column, not {len(query.schema)}")
    if has_one_row(query):
        return replace(uncorrelated(query, calls), of_no_rows=_of_no_rows(query, calls)[0])
    column = query.schema[0]
    call = nodes.AggregateCall("SINGLE_VALUE", (query.schema.field(0),), column.type.nullable())
    schema = nodes.RowSchema((nodes.PlanColumn(column.name, column.type.nullable()),))
    return uncorrelated(nodes.Aggregate(schema=schema, input=query, keys=(), calls=(call,)), calls)


def _of_no_rows(query: nodes.Node, calls: Calls) -> list[Typed]:
    """Return the column values of a global aggregate query over no rows."""
    if isinstance(query, nodes.Aggregate):
        return [
            calls.cast(number("0"), call.type) if call.function == "COUNT" else Constant(call.type.nullable(), None)
            for call in query.calls
        ]
    (below,) = query.inputs()
    columns = _of_no_rows(below, calls)
    if not isinstance(query, nodes.Project):
        return columns

    def change(node: Typed) -> Typed:
        if isinstance(node, Field):
            return columns[node.index]
        return calls.folded(node) if isinstance(node, FunctionCall) else node

    return [transformed(expression, change) for expression in query.expressions]


def _is_null(value: Typed) -> bool:
    return isinstance(value, Constant) and value.value is None


def has_one_row(plan: nodes.Node) -> bool:
    """Return whether a plan has exactly one row, whatever it reads."""
    while isinstance(plan, nodes.Project | nodes.Sort):
        plan = plan.input
    return isinstance(plan, nodes.Aggregate) and not plan.keys


def with_scalar(plan: nodes.Node, inner: Uncorrelated, calls: Calls) -> tuple[nodes.Node, Typed]:
    """Append the columns of a query to a plan, and return it with the value of the query."""
    width = len(plan.schema)
    schema = plan.schema.joined(inner.plan.schema, right_nullable=True)
    condition = join_condition(inner, width, (), calls)
    joined = nodes.Join(schema=schema, left=plan, right=inner.plan, join_type=nodes.JoinType.LEFT, condition=condition)
    value: Typed = schema.field(width)
    otherwise = inner.of_no_rows
    if not inner.conditions or otherwise is None or _is_null(otherwise):
        return joined, value  # if no row matches, the join yields NULL as well
    if not inner.plan.schema[0].type.is_nullable:
        return joined, calls.call("COALESCE", [value, calls.cast(otherwise, value.type)])
    # Each group has the column that it is compared by, so a NULL there means that the group is missing.
    compared = next((_compared_column(conjunct) for conjunct in inner.conditions), None)
    if compared is None:
        raise UnsupportedError(
            "a query whose value of no rows is not NULL has to compare one of its columns with those of the query "
            "around it by ="
        )
    is_absent = calls.call("IS NULL", [schema.field(width + compared)])
    value = calls.call("CASE", [is_absent, calls.cast(otherwise, value.type), value])
    return joined, value


_COUNT: Final = BIGINT.not_null()
_INT: Final = IntType(False)
_UNKNOWN: Final = Constant(BooleanType(), None)
#: the negation of each operator
_DENIED: Final = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
#: the values of a query to compare with: if a comparison holds for any value, it holds for one of these
_EXTREMES: Final = {">": ("MIN",), ">=": ("MIN",), "<": ("MAX",), "<=": ("MAX",), "<>": ("MIN", "MAX")}
#: the rows of a query: none at all, some without NULL, some with NULL
_NONE, _KNOWN, _SOME_NULL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Test:
    """IN or EXISTS of a query, or a comparison with SOME of its rows.

    Attributes:
        query: the query.
        is_negated: whether the test is negated.
        operand: the value to compare with the column of the query; None for EXISTS.
        operator: the comparison, with the operand on the left; `=` for IN.
    """

    query: syntax.Query
    is_negated: bool
    operand: syntax.Expression | None = None
    operator: str = "="


def find_test(node: syntax.Expression) -> Test | None:
    """Return the test that an expression represents, or None."""
    is_negated = False
    while isinstance(node, syntax.Call) and node.name == "NOT":
        node, is_negated = node.operands[0], not is_negated
    if isinstance(node, syntax.Quantified) and isinstance(node.among, syntax.Query):
        operator = "<>" if node.operator == "!=" else node.operator
        if node.quantifier == "ALL":
            return Test(node.among, not is_negated, node.operand, _DENIED[operator])
        return Test(node.among, is_negated, node.operand, operator)
    if isinstance(node, syntax.In) and isinstance(node.among, syntax.Query):
        return Test(node.among, is_negated != node.is_negated, node.operand)
    if isinstance(node, syntax.Exists) and not node.is_unique:
        return Test(node.query, is_negated)
    return None


def analyse_test(
    test: Test,
    operand: tuple[Typed, Typed] | None,
    query: nodes.Node,
    ask: Callable[[Uncorrelated], Typed],
    calls: Calls,
) -> Typed:
    """Return the result of a test for a row.

    `operand`: the compared value, over the enclosing columns and as the query sees it. `ask`: returns the value of a
    scalar query.
    """
    if operand is None:
        known = has_rows(query)
        if known is not None:
            return Constant(FALSE.type, known != test.is_negated)
        answer = calls.call(">", [_known(ask(_rows(tested_rows(query), calls)), calls), _number(0)])
    else:
        answer = _some(test.operator, *operand, query, ask, calls)
    return calls.call("NOT", [answer]) if test.is_negated else answer


def has_rows(query: nodes.Node) -> bool | None:
    """Return whether a query has rows; None if this depends on its tables."""
    if least_rows(query):
        return True
    return False if most_rows(query) == 0 else None


def tested_rows(query: nodes.Node) -> nodes.Node:
    """Simplify a query for EXISTS: drop selected columns and LEFT joins that use the enclosing query."""
    while True:
        if isinstance(query, nodes.Project) and any(map(uses_outer, query.expressions)):
            query = query.input
        elif (left := _kept_side(query)) is not None:
            query = left
        else:
            return query


def _kept_side(query: nodes.Node) -> nodes.Node | None:
    """Return the left side of a correlated LEFT join, in which each left row occurs at least once."""
    while isinstance(query, nodes.Project):
        query = query.input
    is_left = isinstance(query, nodes.Join) and query.join_type is nodes.JoinType.LEFT and uses_outer(query.condition)
    return query.left if is_left and isinstance(query, nodes.Join) else None


def _some(
    operator: str, operand: Typed, inside: Typed, query: nodes.Node, ask: Callable[[Uncorrelated], Typed], calls: Calls
) -> Typed:
    """Return whether a comparison holds for one of the rows."""
    name = "IN" if operator == "=" else operator
    if len(query.schema) != 1:
        raise ValidationError(f"{name} compares 1 value with {len(query.schema)} columns")
    if any(isinstance(node, OuterField) and node.index >= 0 for node in operand.walk()):
        raise UnsupportedError(f"{name} of a query that compares a column of a query further out is not supported here")
    column = query.schema.field(0)
    if operator == "=":
        matches = nodes.Filter(schema=query.schema, input=query, condition=calls.call("=", [column, inside]))
        is_there = calls.call(">", [_known(ask(_rows(matches, calls)), calls), _number(0)])
        if not operand.type.is_nullable and not column.type.is_nullable:
            return is_there
    else:
        values = [ask(_extreme(function, query, calls)) for function in _EXTREMES[operator]]
        is_there = calls.together("OR", [calls.call(operator, [operand, value]) for value in values])
    rows = _known(ask(_kind_of_rows(query, calls)), calls)
    is_unknown = calls.call("=", [rows, Constant(_INT, _SOME_NULL)])
    if operand.type.is_nullable:
        is_unknown = calls.call("OR", [calls.call("IS NULL", [operand]), is_unknown])
    is_empty = calls.call("=", [rows, Constant(_INT, _NONE)])
    return calls.call("CASE", [is_there, TRUE, is_empty, FALSE, is_unknown, _UNKNOWN, FALSE])


def _extreme(function: str, query: nodes.Node, calls: Calls) -> Uncorrelated:
    """Return the least or the greatest value of a query; NULL without rows."""
    column = query.schema.field(0)
    return uncorrelated(_aggregated(query, nodes.AggregateCall(function, (column,), column.type.nullable())), calls)


def _known(count: Typed, calls: Calls) -> Typed:
    """Replace a missing count by 0, because a stream without rows yields no count."""
    return calls.call("COALESCE", [count, Constant(count.type.not_null(), 0)])


def _number(value: int) -> Constant:
    return Constant(_COUNT, value)


def _aggregated(query: nodes.Node, *calls: nodes.AggregateCall) -> nodes.Aggregate:
    """Return the aggregates of all rows of a query."""
    schema = nodes.RowSchema(tuple(nodes.PlanColumn(f"$agg{index}", call.type) for index, call in enumerate(calls)))
    return nodes.Aggregate(schema=schema, input=query, keys=(), calls=calls)


def _rows(query: nodes.Node, calls: Calls) -> Uncorrelated:
    """Count the rows of a query."""
    return uncorrelated(_aggregated(query, nodes.AggregateCall("COUNT", (), _COUNT)), calls)


def _kind_of_rows(query: nodes.Node, calls: Calls) -> Uncorrelated:
    """Return whether a query of one column has rows, and whether NULL is among them."""
    counts = _aggregated(
        query, nodes.AggregateCall("COUNT", (), _COUNT), nodes.AggregateCall("COUNT", (query.schema.field(0),), _COUNT)
    )
    every, known = counts.schema.fields()
    is_empty, has_null = calls.call("=", [every, _number(0)]), calls.call("<", [known, every])
    kinds = [is_empty, Constant(_INT, _NONE), has_null, Constant(_INT, _SOME_NULL), Constant(_INT, _KNOWN)]
    kind = calls.call("CASE", kinds)
    schema = nodes.RowSchema((nodes.PlanColumn("$kind", kind.type),))
    return uncorrelated(nodes.Project(schema=schema, input=counts, expressions=(kind,)), calls)
