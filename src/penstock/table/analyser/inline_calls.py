"""Calls of functions of the program that have no name in any catalog: the Table API has the function itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.table.sql.syntax import Call, Expression
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class InlineCall(Call):
    """A call of a function. Its `name` is none that SQL knows; its `path` is what the function is called."""

    user: UserFunction = field(kw_only=True)


def inline_call(function: UserFunction, operands: Sequence[Expression]) -> InlineCall:
    """A call of a function with these operands."""
    return InlineCall(f"*{function.name}*", tuple(operands), (function.name,), user=function)
