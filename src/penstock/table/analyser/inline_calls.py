"""Calls of user-defined functions that are in no catalog: the Table API passes the function itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.table.sql.syntax import Call, Expression
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class InlineCall(Call):
    """A call of a function. Its `name` cannot occur in SQL; its `path` is the function's name."""

    user: UserFunction = field(kw_only=True)


def inline_call(function: UserFunction, operands: Sequence[Expression]) -> InlineCall:
    """Return a call of a function with these operands."""
    return InlineCall(f"*{function.name}*", tuple(operands), (function.name,), user=function)
