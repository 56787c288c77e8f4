"""Calls of user-defined functions in typed expressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.table.typed.nodes import FunctionCall, Typed
from penstock.table.user_functions.definition import UserFunction


@dataclass(frozen=True, slots=True)
class UserCall(FunctionCall):
    """A call of a user-defined function. `at`: its position in the query, which distinguishes identical calls."""

    user: UserFunction = field(kw_only=True)
    at: int = field(default=-1, kw_only=True, compare=False)

    def is_same(self, other: UserCall) -> bool:
        """Return whether both calls can share one value; each call of a nondeterministic function has its own."""
        return self == other and (self.user.is_deterministic or self.at == other.at)


def collect_user_calls(expression: Typed) -> list[UserCall]:
    """Return all calls of user-defined functions in an expression."""
    return [node for node in expression.walk() if isinstance(node, UserCall)]
