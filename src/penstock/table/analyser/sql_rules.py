"""Table API expressions that follow SQL's type rules: `call_sql`, and join keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from penstock.table.analyser.rewriting import rewritten
from penstock.table.plan.logical import Filter, Join, JoinType, Node, Project
from penstock.table.sql import syntax, to_sql
from penstock.table.sql.syntax import Query
from penstock.table.typed.nodes import Field


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
