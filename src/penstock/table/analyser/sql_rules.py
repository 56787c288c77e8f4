"""Expressions of the Table API that follow the rules of SQL for types: `call_sql`, and keys of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from penstock.table.analyser.rewriting import rewritten
from penstock.table.plan.logical import Filter, Join, JoinType, Node, Project
from penstock.table.sql import sql_of, syntax
from penstock.table.sql.syntax import Query
from penstock.table.typed.nodes import Field


@dataclass(frozen=True, slots=True)
class SqlRules(syntax.Expression):
    """An expression in the Table API that finds its types by the rules of SQL."""

    expression: syntax.Expression


sql_of.register(SqlRules, lambda node: sql_of(node.expression))

#: calls that depend on the rules; IF and NULLIF are made of others
_CALLS: Final = frozenset({"+", "-", "*", "/", "=", "<>", "IF", "NULLIF"})


def by_sql(node: syntax.Expression) -> syntax.Expression:
    """An expression that was written in SQL, for the Table API: what depends on the rules of SQL says so."""

    def change(one: syntax.Expression) -> Iterable[syntax.Expression] | None:
        is_query = isinstance(one, syntax.In | syntax.Collection) and isinstance(_parts_of(one), Query)
        is_call = isinstance(one, syntax.Call) and one.name in _CALLS
        if is_call or (isinstance(one, syntax.Case | syntax.In | syntax.Collection) and not is_query):
            return (SqlRules(one),)
        return None

    return rewritten(node, change)[0]


def _parts_of(node: syntax.In | syntax.Collection) -> object:
    return node.among if isinstance(node, syntax.In) else node.items


def join_condition(node: syntax.Expression, is_of_both: Callable[[str, str], bool]) -> syntax.Expression:
    """A condition of the Table API on the rows of two tables.

    Flink's planner makes keys of columns of both tables that are compared by `==`, and casts keys by the rules of SQL.

    `is_of_both`: whether two columns, by their names, are of different tables.
    """
    if isinstance(node, syntax.Call) and node.name == "AND":
        return replace(node, operands=tuple(join_condition(one, is_of_both) for one in node.operands))
    if isinstance(node, syntax.Call) and node.name == "=":
        names = [one.path[0] for one in node.operands if isinstance(one, syntax.Reference) and len(one.path) == 1]
        if len(names) == 2 and is_of_both(*names):
            return SqlRules(node)
    return node


def are_of_both_sides(plan: Node, one: int, other: int) -> bool:
    """Whether a join in a plan has one of two columns, by their places, on the left and the other on the right."""
    while True:
        match plan:
            case Filter():
                plan = plan.input
            case Project(expressions=expressions):
                fields = expressions[one], expressions[other]
                if not isinstance(fields[0], Field) or not isinstance(fields[1], Field):
                    return False
                one, other, plan = fields[0].index, fields[1].index, plan.input
            case Join(join_type=JoinType.SEMI | JoinType.ANTI):
                plan = plan.left
            case Join():
                width = len(plan.left.schema)
                if (one < width) != (other < width):
                    return True
                plan, one, other = (plan.left, one, other) if one < width else (plan.right, one - width, other - width)
            case _:
                return False
