"""Calls of functions of the program, in typed expressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.table.typed.nodes import FunctionCall, Typed
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class UserCall(FunctionCall):
    """A call of a function of the program. `at`: where it is written, which tells two calls apart."""

    user: UserFunction = field(kw_only=True)
    at: int = field(default=-1, kw_only=True, compare=False)

    def is_same(self, other: UserCall) -> bool:
        """Whether one value of both is enough: a function that is not deterministic gives one for each call."""
        return self == other and (self.user.is_deterministic or self.at == other.at)


def calls_in(expression: Typed) -> list[UserCall]:
    """All calls of functions of the program in an expression."""
    return [one for one in expression.walk() if isinstance(one, UserCall)]
