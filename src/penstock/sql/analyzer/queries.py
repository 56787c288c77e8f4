"""Queries: from syntax to a logical plan.

The Table API passes queries that are already planned (`PlannedQuery`), and has its own type rules (`MethodCalls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from penstock.base.copies import repeats_if_deep
from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer import from_clause, subqueries
from penstock.sql.analyzer.calls import Calls, constant
from penstock.sql.analyzer.expressions import ScalarAnalyser
from penstock.sql.analyzer.scopes import CommonTable, RelationScope, Tables, build_scope
from penstock.sql.analyzer.select import SelectPlan, has_places, new_name, nulls_first, project
from penstock.sql.analyzer.windows import with_windows
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    LENGTH_MAX,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    VarCharType,
)
from penstock.sql.functions.type_rules import TypeRule, common_type, is_text, order_type, type_of_rows
from penstock.sql.logical import nodes
from penstock.sql.parser import syntax, to_sql
from penstock.sql.parser import syntax as relations
from penstock.sql.parser.syntax import Query
from penstock.sql.typed import Constant, Field, FunctionCall, Typed, WidenedFloat, collect_user_calls
from penstock.sql.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class PlannedQuery(Query):
    """A query that is already planned."""

    kind: ClassVar = "TABLE"
    plan: nodes.Node


to_sql.register(PlannedQuery, lambda node: f"TABLE ({', '.join(node.plan.schema.names)})")


class MethodCalls(Calls):
    """Calls by the rules of the Table API.

    `+` concatenates texts. A FLOAT combined with a DOUBLE becomes DOUBLE, whereas SQL takes the type of the first
    operand.
    """

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls.session)
        self._calls = calls

    @property
    def of_sql(self) -> Calls:
        """See `Calls`."""
        return self._calls

    def user_function(self, call: syntax.Call, gives_rows: bool = False) -> UserFunction | None:
        """See `Calls`."""
        return self._calls.user_function(call, gives_rows)

    def call(self, name: str, operands: Sequence[Typed], options: tuple[str, ...] = ()) -> Typed:
        """See `Calls`."""
        if name == "+" and any(is_text(operand.type) for operand in operands):
            texts = [
                operand if is_text(operand.type) else self.cast(operand, VarCharType(LENGTH_MAX))
                for operand in operands
            ]
            return self._calls.call("||", texts)
        if name in _ARITHMETIC:
            return self._number(name, operands)
        return self._calls.call(name, self._widened(name, operands), options)

    def cast(self, operand: Typed, to: DataType, is_try: bool = False) -> Typed:
        """See `Calls`."""
        return self._calls.cast(_unwrap_number(operand), to, is_try)

    def _number(self, operator: str, operands: Sequence[Typed]) -> Typed:
        """Return a sum, difference, product or quotient.

        As in Flink, FLOAT before DOUBLE is computed as FLOAT, as in SQL, but its type is declared as DOUBLE.
        """
        declared_type = order_type([operand.type for operand in operands])
        result = self._calls.call(operator, [_unwrap_number(operand) for operand in operands])
        if not isinstance(result.type, FloatType) or not isinstance(declared_type, DoubleType):
            return result
        return self.declared(result, DoubleType(result.type.is_nullable))

    def declared(self, value: Typed, to: DataType) -> Typed:
        """Cast a value to the type that the Table API declares for it."""
        cast = self.implicit(value, to)
        return WidenedFloat(cast.type, cast.function, cast.operands) if isinstance(cast, FunctionCall) else cast

    def membership(self, operand: Typed, among: Sequence[Typed]) -> Typed:
        """See `Calls`."""
        widened = self._widened("IN", (operand, *among))
        return self._calls.membership(widened[0], widened[1:])

    def _widened(self, name: str, operands: Sequence[Typed]) -> Sequence[Typed]:
        """Return the operands of a call, with FLOAT operands cast to the wider type of the Table API."""
        rule = _RULES.get(name)
        if rule is None or not any(_has(typed.type, FloatType) for typed in operands):
            return operands
        widened = list(operands)
        for indexes in _places(name, len(operands)):
            types = [operands[position].type for position in indexes]
            wider_type = rule(types) if any(_has(kind, DoubleType, DecimalType) for kind in types) else None
            if wider_type is None:
                continue
            for index in indexes:
                operand = operands[index]
                if _has(operand.type, FloatType, DoubleType, DecimalType):
                    widened[index] = self.implicit(
                        operand, wider_type.nullable() if operand.type.is_nullable else wider_type.not_null()
                    )
        return widened


def _unwrap_number(operand: Typed) -> Typed:
    return operand.number if isinstance(operand, WidenedFloat) else operand


_ARITHMETIC: Final = frozenset({"+", "-", "*", "/"})
#: common types in the Table API: they ignore the order of FLOAT and DOUBLE, but not that of DECIMAL and FLOAT
_RULES: Final[dict[str, TypeRule]] = {
    **dict.fromkeys(("=", "<>", "IN"), order_type),
    **dict.fromkeys(("CASE", "ARRAY", "MAP"), common_type),
}


def _places(name: str, count: int) -> tuple[Sequence[int], ...]:
    """Return the groups of operands, by index, that share a common type."""
    if name == "CASE":
        return ((*range(1, count - 1, 2), count - 1),)
    return (range(0, count, 2), range(1, count, 2)) if name == "MAP" else (range(count),)


def _has(data_type: DataType, *kinds: type[DataType]) -> bool:
    """Return whether a type, or a type nested in it, is of one of these kinds."""
    return isinstance(data_type, kinds) or any(_has(child, *kinds) for child in data_type.children())


def set_operation(
    operator: str,
    inputs: tuple[nodes.Node, nodes.Node],
    is_all: bool,
    query: Callable[[Query], nodes.Node],
    calls: MethodCalls,
) -> nodes.Node:
    """Return the UNION, INTERSECT or EXCEPT of two plans. `query`: plans a query.

    As in Flink, rows are combined with the types of SQL, and FLOAT before DOUBLE is declared as DOUBLE afterwards.
    """
    plan = query(relations.SetOperation(operator, tuple(PlannedQuery(_numbers(node)) for node in inputs), is_all))
    columns = []
    for field, *both in zip(plan.schema.fields(), *(node.schema for node in inputs), strict=True):
        declared_type = order_type([column.type for column in both])
        columns.append(field if declared_type is None else calls.declared(field, declared_type))
    return plan if all(isinstance(column, Field) for column in columns) else project(plan, columns, plan.schema.names)


def _numbers(plan: nodes.Node) -> nodes.Node:
    """Return a plan whose columns are FLOAT where they were only declared as DOUBLE."""
    if not isinstance(plan, nodes.Project) or not any(
        isinstance(expression, WidenedFloat) for expression in plan.expressions
    ):
        return plan
    return project(plan.input, [_unwrap_number(expression) for expression in plan.expressions], plan.schema.names)


class QueryAnalyser:
    """Plans queries. `tables` finds the tables, `calls` the functions."""

    def __init__(self, tables: Tables, calls: Calls) -> None:
        self.tables = tables
        self.calls = calls
        self.common: list[CommonTable] = []
        self.relations = from_clause.RelationAnalyser(self)

    def result(self, node: syntax.Query) -> nodes.Node:
        """Return the plan of a top-level query, with unique column names."""
        plan = self.query(node)
        names: list[str] = []
        taken: set[str] = set()
        for name in plan.schema.names:
            names.append(new_name(name, taken))
            taken.add(names[-1])
        return plan if names == plan.schema.names else project(plan, plan.schema.fields(), names)

    @repeats_if_deep
    def query(self, node: syntax.Query, outer: RelationScope | None = None) -> nodes.Node:
        """Return the plan of a query. `outer`: the columns of the enclosing query, which it may use."""
        match node:
            case relations.Select():
                return self._select(node, outer).build()
            case relations.Values(rows):
                return self._values(rows, outer)
            case relations.TableQuery(path):
                return self.relations.named(path, (), node.at)[0]
            case PlannedQuery(plan):
                return plan
            case relations.SetOperation():
                return self._set_operation(node, outer)
            case relations.Ordered():
                return self._ordered(node, outer)
            case relations.With():
                with self._known(node, outer):
                    return self.query(node.query, outer)
            case _:
                raise UnsupportedError(f"a query that begins with {node.kind} is not supported")

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def _select(self, node: relations.Select, outer: RelationScope | None) -> SelectPlan:
        from_clause.check_query_hints(node.hints, node.source)
        lifetimes, lookups = from_clause.collect_state_ttls(node), from_clause.lookup_hints(node.hints)
        with self.relations.hinted(node.hints, lifetimes), self.relations.looking_up(lookups):
            scope = self.relations.scope(node.source, outer)
        scope.outer = outer
        scope.scalars = self._scalar
        if node.where is not None:
            self._where(node.where, scope)
        node = with_windows(node, scope, ScalarAnalyser(scope, self.calls))
        select = self._select_plan(node, scope)
        select.state_ttl_ms = lifetimes.get(from_clause.get_relation_name(node.source) or "")
        return select

    def _select_plan(self, node: relations.Select, scope: RelationScope) -> SelectPlan:
        """Plan the steps after FROM and WHERE.

        In Flink, a number in GROUP BY is a constant. Only if Flink rejects a statement for this reason are numbers read
        as column positions, as in other dialects.
        """

        def scalars(expression: syntax.Expression, around: RelationScope | None, *more: Any) -> Typed:
            return self._scalar(expression, around or scope, *more)

        if node.is_stream:
            raise UnsupportedError(
                "SELECT STREAM is not supported: write SELECT, which gives changes in streaming mode"
            )
        before = scope.plan
        try:
            return SelectPlan(node, scope, self.calls, scalars)
        except ValidationError:
            if node.group is None or not has_places(node.group):
                raise
            scope.plan = before
            try:
                return SelectPlan(node, scope, self.calls, scalars, numbers_are_places=True)
            except ValidationError:
                scope.plan = before
            raise

    @repeats_if_deep
    def filtered(self, plan: nodes.Node, condition: syntax.Expression) -> nodes.Node:
        """Keep the rows of a plan for which a condition holds."""
        scope = build_scope(plan, self.calls)
        scope.scalars = self._scalar
        self._where(condition, scope)
        width = len(plan.schema)
        if len(scope.plan.schema) == width:
            return scope.plan
        return project(scope.plan, scope.plan.schema.fields()[:width], plan.schema.names)

    def _where(self, condition: syntax.Expression, scope: RelationScope) -> None:
        """Keep the rows for which all parts of a condition hold. IN and EXISTS with queries become joins."""
        plain: list[Typed] = []
        joined = []
        for part in _parts(condition):
            test = subqueries.find_test(part)
            if test is None or test.operator != "=":
                plain.append(ScalarAnalyser(scope, self.calls).typed(part))
            else:
                joined.append(test)
        if plain:
            predicate = self.calls.together("AND", plain)
            predicate = self.calls.implicit(self._boolean(predicate), BooleanType())
            scope.plan = nodes.Filter(schema=scope.plan.schema, input=scope.plan, condition=predicate)
        for test in joined:
            self._matching(test, scope)

    def _boolean(self, predicate: Typed) -> Typed:
        if not isinstance(predicate.type, BooleanType) and not isinstance(predicate, Constant):
            raise ValidationError(f"WHERE clause must be a condition, not {predicate.type}")
        return predicate

    def _matching(self, test: subqueries.Test, scope: RelationScope) -> None:
        compared: Sequence[Typed] = ()
        query = self.query(test.query, scope)
        if test.operand is None:
            known = subqueries.has_rows(query)
            if known is not None:
                if known == test.is_negated:
                    scope.plan = nodes.Filter(schema=scope.plan.schema, input=scope.plan, condition=subqueries.FALSE)
                return
            query = subqueries.tested_rows(query)
        else:
            items = test.operand.items if isinstance(test.operand, syntax.RowValue) else (test.operand,)
            analyser = ScalarAnalyser(scope, self.calls)
            compared = [analyser.typed(item) for item in items]
            if len(compared) != len(query.schema):
                raise ValidationError(f"IN compares {len(compared)} values with {len(query.schema)} columns")
        scope.plan = subqueries.matching(scope.plan, query, compared, test.is_negated, self.calls.of_sql)

    def _scalar(
        self,
        node: syntax.Expression,
        around: RelationScope,
        operand: Callable[[syntax.Expression], tuple[Typed, Typed]],
        ask: Callable[[subqueries.Uncorrelated], Typed],
    ) -> Typed:
        if isinstance(node, syntax.Subquery):
            return ask(subqueries.scalar_query(self.query(node.query, around), self.calls))
        test = subqueries.find_test(node)
        if test is None:
            raise UnsupportedError(f"{to_sql(node)}: such a comparison with a query is not supported")
        compared = None if test.operand is None else operand(test.operand)
        return subqueries.analyse_test(test, compared, self.query(test.query, around), ask, self.calls.of_sql)

    # --- other queries -----------------------------------------------------------------------------------------------

    def _values(self, rows: Sequence[Sequence[syntax.Expression]], outer: RelationScope | None) -> nodes.Node:
        analyser = ScalarAnalyser(self.relations.nothing(outer), self.calls)
        typed = [[constant(expression) or analyser.typed(expression) for expression in _items(row)] for row in rows]
        width = len(typed[0])
        if any(len(row) != width for row in typed):
            raise ValidationError("Values passed to VALUES operator must have compatible types")
        columns = []
        for index in range(width):
            column_type = type_of_rows([row[index].type for row in typed])
            if column_type is None:
                raise ValidationError("Values passed to VALUES operator must have compatible types")
            columns.append(nodes.PlanColumn(f"EXPR${index}", column_type))
        cast = [
            self.calls.implicit_all([row[index] for row in typed], column.type) for index, column in enumerate(columns)
        ]
        settled = tuple(zip(*cast, strict=True))
        schema = nodes.RowSchema(tuple(columns))
        if not any(collect_user_calls(expression) for row in settled for expression in row):
            return nodes.Values(schema=schema, rows=settled)
        # User-defined functions run in the job, not during planning.
        nothing = self.relations.nothing(outer).plan
        parts = tuple(nodes.Project(schema=schema, input=nothing, expressions=row) for row in settled)
        return (
            parts[0]
            if len(parts) == 1
            else nodes.SetOperation(schema=schema, operator="UNION", parts=parts, is_all=True)
        )

    def _set_operation(self, node: relations.SetOperation, outer: RelationScope | None) -> nodes.Node:
        parts = [self.query(part, outer) for part in node.parts]
        first = parts[0].schema
        if any(len(part.schema) != len(first) for part in parts):
            raise ValidationError(f"Column count mismatch in {node.operator}")
        columns = []
        for index, name in enumerate(first.names):
            of_parts = [part.schema[index] for part in parts]
            column_type = type_of_rows([column.type for column in of_parts])
            if column_type is None:
                raise ValidationError(
                    f"Type mismatch in column {index + 1} of {node.operator}: "
                    f"{' and '.join(dict.fromkeys(str(column.type) for column in of_parts))}"
                )
            time = of_parts[0].time if len({column.time for column in of_parts}) == 1 else None
            columns.append(nodes.PlanColumn(name, column_type, time))
        schema = nodes.RowSchema(tuple(columns))
        parts = [self._cast_columns(part, schema) for part in parts]
        if node.operator == "UNION":
            flat = tuple(more for part in parts for more in _flat(part, node.is_all))
            union = nodes.SetOperation(schema=schema, operator="UNION", parts=flat, is_all=True)
            return union if node.is_all else nodes.Distinct(schema=schema, input=union)
        if node.is_all:
            schema = schema.without_time()
        return nodes.SetOperation(schema=schema, operator=node.operator, parts=tuple(parts), is_all=node.is_all)

    def _cast_columns(self, plan: nodes.Node, schema: nodes.RowSchema) -> nodes.Node:
        """Cast the columns of a plan to the types of a schema, if they differ."""
        fields = plan.schema.fields()
        casts = [self.calls.implicit(field, column.type) for field, column in zip(fields, schema, strict=True)]
        if all(isinstance(cast, Field) for cast in casts):
            return plan
        return project(plan, casts, schema.names)

    def _ordered(self, node: relations.Ordered, outer: RelationScope | None) -> nodes.Node:
        offset = self._count(node.offset, "OFFSET") or 0
        fetch = self._count(node.fetch, "LIMIT")
        if isinstance(node.query, relations.Select) and node.order:
            return self._ordered_select(node, node.query, outer, offset, fetch)
        plan = self.query(node.query, outer)
        scope = build_scope(plan, self.calls)
        keys = []
        for item in node.order:
            position = _ordinal(item.expression, len(plan.schema))
            column = (
                plan.schema.field(position)
                if position is not None
                else ScalarAnalyser(scope, self.calls).typed(item.expression)
            )
            if not isinstance(column, Field):
                raise UnsupportedError("ORDER BY of an expression is only supported after SELECT")
            keys.append(nodes.SortKey(column.index, item.is_descending, nulls_first(item.is_descending, item.nulls)))
        return nodes.Sort(schema=plan.schema, input=plan, keys=tuple(keys), offset=offset, fetch=fetch)

    def _ordered_select(
        self,
        node: relations.Ordered,
        query: relations.Select,
        outer: RelationScope | None,
        offset: int,
        fetch: int | None,
    ) -> nodes.Node:
        select = self._select(query, outer)
        more: list[Typed] = []
        keys = []
        width = len(select.selected)
        for item in node.order:
            position = self._selected_place(item.expression, select)
            if position is None:
                typed = select.analyser.typed(item.expression)
                same = [index for index, column in enumerate(select.selected) if column.expression == typed]
                if same:
                    position = same[0]
                else:
                    more += [] if typed in more else [typed]
                    position = width + more.index(typed)
            keys.append(nodes.SortKey(position, item.is_descending, nulls_first(item.is_descending, item.nulls)))
        plan = select.build(more)
        plan = nodes.Sort(schema=plan.schema, input=plan, keys=tuple(keys), offset=offset, fetch=fetch)
        if not more:
            return plan
        fields = plan.schema.fields()[:width]
        return nodes.Project(schema=nodes.RowSchema(plan.schema.columns[:width]), input=plan, expressions=tuple(fields))

    def _selected_place(self, expression: syntax.Expression, select: SelectPlan) -> int | None:
        position = _ordinal(expression, len(select.selected))
        if position is not None or not isinstance(expression, syntax.Reference) or len(expression.path) > 1:
            return position
        named = [index for index, column in enumerate(select.selected) if column.name == expression.path[0]]
        return named[0] if named else None

    def _count(self, expression: syntax.Expression | None, clause: str) -> int | None:
        if expression is None:
            return None
        typed = ScalarAnalyser(self.relations.nothing(None), self.calls).typed(expression)
        if not isinstance(typed, Constant) or not isinstance(typed.type, IntegralType) or typed.value is None:
            raise ValidationError(f"{clause} must be a constant whole number")
        return int(typed.value)  # type: ignore[call-overload, no-any-return]

    @contextmanager
    def _known(self, node: relations.With, outer: RelationScope | None) -> Iterator[None]:
        if node.is_recursive:
            raise UnsupportedError("WITH RECURSIVE is not supported")
        before = list(self.common)
        for table in node.tables:
            plan = self.query(table.query, outer)
            if table.columns:
                plan = self.relations.renamed(plan, table.columns)
            self.common.append(CommonTable(table.name, plan))
        try:
            yield
        finally:
            self.common = before


def _items(row: Sequence[syntax.Expression]) -> Sequence[syntax.Expression]:
    return row[0].items if len(row) == 1 and isinstance(row[0], syntax.RowValue) else row


def _flat(part: nodes.Node, is_all: bool) -> tuple[nodes.Node, ...]:
    nested = isinstance(part, nodes.SetOperation) and part.operator == "UNION" and part.is_all and is_all
    return part.parts if nested and isinstance(part, nodes.SetOperation) else (part,)


def _ordinal(expression: syntax.Expression, count: int) -> int | None:
    """Return the index of a column that is given by its ordinal, otherwise None."""
    if not isinstance(expression, syntax.NumberLiteral) or not expression.text.isdigit():
        return None
    if not 1 <= int(expression.text) <= count:
        raise ValidationError(f"Ordinal out of range: ORDER BY {expression.text}, and there are {count} columns")
    return int(expression.text) - 1


def _parts(condition: syntax.Expression) -> list[syntax.Expression]:
    if isinstance(condition, syntax.Call) and condition.name == "AND":
        return [part for operand in condition.operands for part in _parts(operand)]
    return [condition]
