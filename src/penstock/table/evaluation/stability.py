"""Whether expressions give the same result at each evaluation."""

from __future__ import annotations

from typing import Final

from penstock.table.functions.registry import SCALAR_FUNCTIONS
from penstock.table.typed.nodes import FunctionCall, Typed
from penstock.table.typed.user_call import UserCall

#: Conversions, which are not in the registry of functions.
CASTS: Final = ("CAST", "TRY_CAST")


def is_stable(expression: Typed) -> bool:
    """Return whether all functions called in an expression are deterministic."""
    return all(_is_deterministic(call) for call in expression.walk() if isinstance(call, FunctionCall))


def _is_deterministic(call: FunctionCall) -> bool:
    if isinstance(call, UserCall):
        return call.user.is_deterministic
    return call.function in CASTS or SCALAR_FUNCTIONS[call.function].is_deterministic


def is_pure(expression: Typed) -> bool:
    """Return whether an expression depends only on its row and calls no user-defined function."""
    calls = [call for call in expression.walk() if isinstance(call, FunctionCall)]
    return all(call.function in CASTS or _is_pure(call) for call in calls)


def _is_pure(call: FunctionCall) -> bool:
    if isinstance(call, UserCall):
        return False
    function = SCALAR_FUNCTIONS[call.function]
    return function.is_deterministic and not function.is_dynamic
