"""Scalar expressions: from syntax to typed expressions.

`rewritten` replaces some nodes of a syntax expression. `SqlRules` marks Table API expressions that follow SQL's type
rules: `call_sql`, and join keys. A `ScalarAnalyser` finds the types of expressions in one `Scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Protocol

from penstock.base.errors import UnsupportedError
from penstock.sql.analyzer.calls import Calls, constant, no_function, number
from penstock.sql.data import types
from penstock.sql.data.errors import ValidationError
from penstock.sql.functions.json import EMBEDDING, MISPLACED_JSON
from penstock.sql.functions.registry import find_scalar
from penstock.sql.logical.nodes import Filter, Join, JoinType, Node, Project
from penstock.sql.parser import syntax, to_sql
from penstock.sql.parser.lexer import BARE_FUNCTIONS
from penstock.sql.parser.syntax import Expression, Query
from penstock.sql.typed import Constant, Field, Lambda, Typed

#: returns the replacements of a node; for None, the node stays and its children are visited
Change = Callable[[Expression], Iterable[Expression] | None]


def rewritten(node: Expression, change: Change) -> list[Expression]:
    """Return the replacements of an expression. Queries in it are left unchanged."""
    replacements = change(node)
    return [_rebuilt(node, change)] if replacements is None else list(replacements)


def _rebuilt(value: Any, change: Change) -> Any:
    if isinstance(value, tuple):
        return tuple(expression for part in value for expression in _parts(part, change))
    if isinstance(value, Query) or not _is_node(value):
        return value
    changes = {}
    for field in fields(value):
        before = getattr(value, field.name)
        after = _only(before, change) if isinstance(before, Expression) else _rebuilt(before, change)
        if after is not before and after != before:
            changes[field.name] = after
    return replace(value, **changes) if changes else value


def _is_node(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _parts(part: Any, change: Change) -> list[Any]:
    return list(rewritten(part, change)) if isinstance(part, Expression) else [_rebuilt(part, change)]


def _only(node: Expression, change: Change) -> Expression:
    expressions = rewritten(node, change)
    if len(expressions) != 1:
        raise ValidationError(f"{len(expressions)} columns stand where there must be one expression")
    return expressions[0]


@dataclass(frozen=True, slots=True)
class SqlRules(syntax.Expression):
    """A Table API expression that is typed by the rules of SQL."""

    expression: syntax.Expression


to_sql.register(SqlRules, lambda node: to_sql(node.expression))

#: calls that depend on the rules; IF and NULLIF are built from others
_CALLS: Final = frozenset({"+", "-", "*", "/", "=", "<>", "IF", "NULLIF"})


def by_sql(node: syntax.Expression) -> syntax.Expression:
    """Mark the parts of a SQL expression that depend on SQL's rules, for use in the Table API."""

    def change(expression: syntax.Expression) -> Iterable[syntax.Expression] | None:
        is_query = isinstance(expression, syntax.In | syntax.Collection) and isinstance(
            _list_members(expression), Query
        )
        is_call = isinstance(expression, syntax.Call) and expression.name in _CALLS
        if is_call or (isinstance(expression, syntax.Case | syntax.In | syntax.Collection) and not is_query):
            return (SqlRules(expression),)
        return None

    return rewritten(node, change)[0]


def _list_members(node: syntax.In | syntax.Collection) -> object:
    return node.among if isinstance(node, syntax.In) else node.items


def join_condition(node: syntax.Expression, is_of_both: Callable[[str, str], bool]) -> syntax.Expression:
    """Return a Table API condition on the rows of two tables.

    Flink's planner turns comparisons by `==` between columns of both tables into keys, and casts keys by the rules of
    SQL.

    `is_of_both`: returns whether two columns, by name, belong to different tables.
    """
    if isinstance(node, syntax.Call) and node.name == "AND":
        return replace(node, operands=tuple(join_condition(operand, is_of_both) for operand in node.operands))
    if isinstance(node, syntax.Call) and node.name == "=":
        names = [
            operand.path[0]
            for operand in node.operands
            if isinstance(operand, syntax.Reference) and len(operand.path) == 1
        ]
        if len(names) == 2 and is_of_both(*names):
            return SqlRules(node)
    return node


def are_of_both_sides(plan: Node, column: int, other_column: int) -> bool:
    """Return whether a join in a plan has one of two columns, by index, on the left and the other on the right."""
    while True:
        match plan:
            case Filter():
                plan = plan.input
            case Project(expressions=expressions):
                fields = expressions[column], expressions[other_column]
                if not isinstance(fields[0], Field) or not isinstance(fields[1], Field):
                    return False
                column, other_column, plan = fields[0].index, fields[1].index, plan.input
            case Join(join_type=JoinType.SEMI | JoinType.ANTI):
                plan = plan.left
            case Join():
                width = len(plan.left.schema)
                if (column < width) != (other_column < width):
                    return True
                plan, column, other_column = (
                    (plan.left, column, other_column)
                    if column < width
                    else (plan.right, column - width, other_column - width)
                )
            case _:
                return False


class Scope(Protocol):
    """The meaning of names at one place in a query."""

    def resolve(self, path: tuple[str, ...], at: int) -> tuple[Typed, tuple[str, ...]]:
        """Return the column that a path begins with, and the rest of the path: its nested fields.

        Raises `ValidationError` if no column matches, or several do.
        """

    def subquery(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed:
        """Return the value of a query in an expression."""

    def special(self, node: syntax.Expression, analyser: ScalarAnalyser) -> Typed | None:
        """Return an expression that is special in this scope, such as an aggregate or a grouping key, or None."""


class ScalarAnalyser:
    """Finds the types of expressions in one scope."""

    def __init__(self, scope: Scope, calls: Calls) -> None:
        self.scope = scope
        self.calls = calls
        self._parameters: dict[str, Typed] = {}

    def typed(self, node: syntax.Expression) -> Typed:
        """Return the typed expression. Raises `ValidationError` for expressions that are invalid here."""
        special = self.scope.special(node, self)
        if special is not None:
            return special
        literal = constant(node)
        if literal is not None:
            return literal
        match node:
            case syntax.Reference(path):
                return self._reference(path, node.at)
            case syntax.Call():
                return self._call(node)
            case syntax.Cast(operand, to, is_try):
                return self.calls.cast(self.typed(operand), to, is_try)
            case syntax.Case():
                return self._case(node)
            case syntax.Between():
                return self._between(node)
            case syntax.In(operand, among) if not isinstance(among, Query):
                return self._negated(self._analyse_membership(operand, among), node.is_negated)
            case syntax.Like():
                return self._like(node)
            case syntax.Quantified(operator, operand, quantifier, among) if not isinstance(among, Query):
                return self._quantified(operator, operand, quantifier, among)
            case syntax.RowValue(items, names):
                names = names or tuple(f"EXPR${position}" for position in range(len(items)))
                return self.calls.call("ROW", [self.typed(item) for item in items], names)
            case syntax.Collection(root, items) if not isinstance(items, Query):
                return self.calls.call(root, [self.typed(item) for item in items])
            case syntax.Item(operand, index):
                return self.calls.call("ITEM", [self.typed(operand), self.typed(index)])
            case syntax.FieldAccess(operand, name):
                return self.field(self.typed(operand), name)
            case SqlRules(expression):
                return self._by_sql(expression)
            case syntax.Unit(word):
                return Constant(types.NullType(), word)
            case syntax.In() | syntax.Quantified() | syntax.Exists() | syntax.Subquery() | syntax.Collection():
                return self.scope.subquery(node, self)
            case syntax.NamedArgument():
                raise ValidationError("The function does not support named arguments. Pass them by their positions.")
            case syntax.Over():
                raise ValidationError("OVER windows can only be among the selected columns")
            case _:
                raise UnsupportedError(f"{type(node).__name__} cannot be used in an expression")

    def _by_sql(self, node: syntax.Expression) -> Typed:
        before, self.calls = self.calls, self.calls.of_sql
        try:
            return self.typed(node)
        finally:
            self.calls = before

    def field(self, row: Typed, name: str) -> Typed:
        """Return a field of a row."""
        if not isinstance(row.type, types.RowType):
            raise ValidationError(f"{row} is a {row.type}, which has no field {name!r}")
        names = row.type.field_names()
        if name not in names:
            raise ValidationError(f"{row} has no field {name!r}, but {', '.join(names)}")
        return self.calls.call("FIELD", [row, Constant(types.IntType(False), names.index(name))])

    def _reference(self, path: tuple[str, ...], at: int) -> Typed:
        if path[0] in self._parameters:
            typed, rest = self._parameters[path[0]], path[1:]
        else:
            typed, rest = self.scope.resolve(path, at)
        for name in rest:
            typed = self.field(typed, name)
        return typed

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call(self, node: syntax.Call) -> Typed:
        user = self.calls.user_function(node)
        if user is not None:
            _check_plain(node)
            return self.calls.user_call(user, [self.typed(operand) for operand in node.operands], node.at)
        if not node.operands and node.path and node.name in BARE_FUNCTIONS and find_scalar(node.name) is None:
            # A word such as USER is a column name if no such function exists.
            return self._reference(node.path, node.at)
        if node.path and (node.name in _NAMES_OF_FORMS or not node.name.replace("_", "").isalnum()):
            raise no_function(node.name)
        if node.name == "=" and (rows := self._rows(node.operands)):
            return self._equal_fields("=", *rows)
        _check_plain(node)
        if node.name == "MINUS_DATE":
            return self._difference(node)
        make = _SHORT_FORMS.get(node.name)
        if make is not None and not node.options:
            return make(self, node.operands)
        if node.name in _SIGNS and isinstance(node.operands[0], syntax.NumberLiteral):
            return number(f"-{node.operands[0].text}" if node.name == "MINUS_PREFIX" else node.operands[0].text)
        if node.name == "JSON":
            raise ValidationError(MISPLACED_JSON if node.operands else "No match found for function signature JSON()")
        options = (*node.options, str(node.returns)) if node.returns is not None else node.options
        if node.name in _CHAINED and not node.path:
            return self.calls.chain(node.name, self._operands(node))
        return self.calls.call(node.name, self._operands(node), options)

    def _difference(self, node: syntax.Call) -> Typed:
        """Return `(a - b) unit`. Only whether the unit is months matters: as in Flink, the rest is not truncated."""
        left, right, unit = node.operands
        assert isinstance(unit, syntax.IntervalLiteral)
        of_months = unit.qualifier.resolution.is_of_months
        resolution = types.IntervalResolution.MONTH if of_months else types.IntervalResolution.SECOND
        interval = self.typed(syntax.IntervalLiteral("1", syntax.IntervalQualifier(resolution)))
        return self.calls.call("MINUS_DATE", [self.typed(left), self.typed(right), interval])

    def _operands(self, node: syntax.Call) -> list[Typed]:
        if node.name in EMBEDDING:
            return [self._embedded(node, index, operand) for index, operand in enumerate(node.operands)]
        before = [self.typed(operand) for operand in node.operands if not isinstance(operand, syntax.LambdaFunction)]
        remaining = iter(before)
        return [
            self._lambda(operand, before) if isinstance(operand, syntax.LambdaFunction) else next(remaining)
            for operand in node.operands
        ]

    def _embedded(self, parent: syntax.Call, index: int, node: syntax.Expression) -> Typed:
        """Type an operand of JSON_OBJECT or JSON_ARRAY, which alone accept JSON() as an operand."""
        is_value = parent.name == "JSON_ARRAY" or index % 2 == 1
        if isinstance(node, syntax.Call) and node.name == "JSON" and is_value:
            return self.calls.call("JSON", self._operands(node))
        return self.typed(node)

    def _lambda(self, node: syntax.LambdaFunction, operands: Sequence[Typed]) -> Typed:
        """Type a lambda over the elements of the first operand, or over its keys and values."""
        elements = list(operands[0].type.children()) if operands else []
        if len(elements) < len(node.parameters):
            first = f"does not fit {operands[0].type}" if operands else "has to follow an array or a map"
            raise ValidationError(f"a function of {len(node.parameters)} parameters {first}")
        outer, self._parameters = self._parameters, dict(self._parameters)
        for index, (name, element) in enumerate(zip(node.parameters, elements, strict=False)):
            self._parameters[name] = Field(element, index, name)
        body = self.typed(node.body)
        self._parameters = outer
        return Lambda(body.type, node.parameters, body)

    # --- forms of their own ------------------------------------------------------------------------------------------

    def _case(self, node: syntax.Case) -> Typed:
        operands: list[Typed] = []
        subject = None if node.operand is None else self.typed(node.operand)
        for when, then in node.branches:
            operands.append(self.typed(when) if subject is None else self._is_case(subject, when))
            operands.append(self.typed(then))
        otherwise = Constant(types.NullType(), None) if node.otherwise is None else self.typed(node.otherwise)
        return self.case([*operands, otherwise])

    def _is_case(self, subject: Typed, when: syntax.Expression) -> Typed:
        """Return whether the operand of CASE equals the value after WHEN, or one of a list of values."""
        if isinstance(when, syntax.RowValue) and not isinstance(subject.type, types.RowType):
            return self.calls.membership(subject, [self.typed(item) for item in when.items])
        return self.calls.call("=", [subject, self.typed(when)])

    def case(self, operands: list[Typed]) -> Typed:
        """Return a CASE of alternating conditions and values, followed by the ELSE value."""
        return self.calls.call("CASE", operands)

    def _between(self, node: syntax.Between) -> Typed:
        operand, low, high = map(self.typed, (node.operand, node.low, node.high))
        result = self._within(operand, low, high)
        if node.is_symmetric:
            result = self.calls.call("OR", [result, self._within(operand, high, low)])
        return self._negated(result, node.is_negated)

    def _within(self, operand: Typed, low: Typed, high: Typed) -> Typed:
        bounds = [self.calls.call(">=", [operand, low]), self.calls.call("<=", [operand, high])]
        return self.calls.call("AND", bounds)

    def _analyse_membership(self, operand: syntax.Expression, among: Sequence[syntax.Expression]) -> Typed:
        if rows := self._rows((operand, *among)):
            return self.calls.together("OR", [self._equal_fields("IN", rows[0], row) for row in rows[1:]])
        return self.calls.membership(self.typed(operand), [constant(member) or self.typed(member) for member in among])

    def _rows(self, nodes: Sequence[syntax.Expression]) -> list[list[Typed]]:
        """Return the fields of row constructors, if all nodes are row constructors of equal length."""
        rows = [node.items for node in nodes if isinstance(node, syntax.RowValue)]
        if len(rows) < len(nodes) or not rows[0] or len(set(map(len, rows))) > 1:
            return []
        return [[self.typed(item) for item in items] for items in rows]

    def _equal_fields(self, operator: str, first: list[Typed], second: list[Typed]) -> Typed:
        """Compare row constructors field by field, so a NULL in them is unknown, not a value.

        With `=`, a FLOAT next to a DOUBLE is compared as a DOUBLE.
        """
        pairs = list(zip(first, second, strict=True))
        if operator == "=":
            pairs = [(self._double_beside(left, right), self._double_beside(right, left)) for left, right in pairs]
        return self.calls.together("AND", [self.calls.call(operator, pair) for pair in pairs])

    def _double_beside(self, operand: Typed, other: Typed) -> Typed:
        if not isinstance(operand.type, types.FloatType) or not isinstance(other.type, types.DoubleType):
            return operand
        return self.calls.implicit(operand, types.DoubleType(operand.type.is_nullable))

    def _negated(self, condition: Typed, is_negated: bool) -> Typed:
        return self.calls.call("NOT", [condition]) if is_negated else condition

    def _like(self, node: syntax.Like) -> Typed:
        operands = [self.typed(operand) for operand in (node.operand, node.pattern, node.escape) if operand is not None]
        return self._negated(self.calls.call(node.kind, operands), node.is_negated)

    def _quantified(
        self, operator: str, operand: syntax.Expression, quantifier: str, among: Sequence[syntax.Expression]
    ) -> Typed:
        tested = self.typed(operand)
        comparisons = [self.calls.call(operator, [tested, self.typed(member)]) for member in among]
        return self.calls.together("AND" if quantifier == "ALL" else "OR", comparisons)


def _check_plain(node: syntax.Call) -> None:
    """Raise `ValidationError` for clauses that only aggregate calls accept."""
    words = {
        "DISTINCT": node.is_distinct,
        "ORDER BY and WITHIN GROUP": node.order,
        "WITHIN DISTINCT": node.within_distinct,
        "FILTER": node.condition is not None,
        "IGNORE NULLS and RESPECT NULLS": node.respects_nulls is not None,
    }
    for word, is_given in words.items():
        if is_given:
            raise ValidationError(f"{word} is only for aggregate functions, and {node.name} is none")


#: the parser turns a run of one of these operators into one call
_CHAINED = ("AND", "OR", "||")
_SIGNS = ("MINUS_PREFIX", "PLUS_PREFIX")
#: internal names of forms without a function name, and operators, which SQL cannot call by name even in backticks
_NAMES_OF_FORMS = frozenset(
    [*_SIGNS, "FIELD", "ITEM", "MINUS_DATE", "AND", "OR", "NOT", "CASE", "IN", "LIKE", "OVERLAPS", "ARRAY", "MAP"]
) | {"MULTISET", "ROW"}


def _if(analyser: ScalarAnalyser, operands: Sequence[syntax.Expression]) -> Typed:
    if len(operands) != 3:
        raise ValidationError(f"IF takes a condition and two values, not {len(operands)} operands")
    condition, true_value, false_value = map(analyser.typed, operands)
    for kinds in (types.TimeType, types.TimestampType | types.LocalZonedTimestampType):
        if isinstance(true_value.type, kinds) and isinstance(
            false_value.type, kinds
        ):  # the first value determines the precision
            nullable = false_value.type.is_nullable
            false_value = analyser.calls.implicit(
                false_value, true_value.type.nullable() if nullable else true_value.type.not_null()
            )
    if condition.type.is_nullable:
        false_value = analyser.calls.implicit(false_value, false_value.type.nullable())
    return analyser.case([condition, true_value, false_value])


def _null_if(analyser: ScalarAnalyser, operands: Sequence[syntax.Expression]) -> Typed:
    if len(operands) != 2:
        raise ValidationError(f"NULLIF takes two values, not {len(operands)}")
    left, right = map(analyser.typed, operands)
    return analyser.case([analyser.calls.call("=", [left, right]), Constant(left.type.nullable(), None), left])


def _if_null(analyser: ScalarAnalyser, operands: Sequence[syntax.Expression]) -> Typed:
    if len(operands) != 2:
        raise ValidationError(f"IFNULL takes two values, not {len(operands)}")
    value, default = map(analyser.typed, operands)
    coalesced = analyser.calls.call("COALESCE", [value, default])
    is_string = isinstance(value.type, types.CharType | types.VarCharType | types.BinaryType | types.VarBinaryType)
    return value if is_string and not value.type.is_nullable else coalesced


def _overlaps(analyser: ScalarAnalyser, operands: Sequence[syntax.Expression]) -> Typed:
    pairs = [operand.items for operand in operands if isinstance(operand, syntax.RowValue) and len(operand.items) == 2]
    if len(pairs) != 2:
        raise ValidationError("OVERLAPS takes two periods, each two points in time, or one and an interval")
    return analyser.calls.call("OVERLAPS", [analyser.typed(item) for pair in pairs for item in pair])


#: calls that are shorthand for other expressions
_SHORT_FORMS: dict[str, Callable[[ScalarAnalyser, Sequence[syntax.Expression]], Typed]] = {
    "IF": _if,
    "NULLIF": _null_if,
    "IFNULL": _if_null,
    "OVERLAPS": _overlaps,
}
