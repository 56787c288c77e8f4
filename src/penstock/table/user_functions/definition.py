"""The definition of a user-defined function: the object that runs, and its declared properties."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType


class FunctionKind(Enum):
    """The kind of a user-defined function."""

    SCALAR = "scalar function"
    ASYNC_SCALAR = "asynchronous scalar function"
    TABLE = "table function"
    AGGREGATE = "aggregate function"
    TABLE_AGGREGATE = "table aggregate function"


AGGREGATES: Final = (FunctionKind.AGGREGATE, FunctionKind.TABLE_AGGREGATE)
#: values row by row; columns as pandas objects; columns as Arrow arrays
GENERAL, PANDAS, ARROW = "general", "pandas", "arrow"
FUNC_TYPES: Final = (GENERAL, PANDAS, ARROW)


class UserFunction:
    """The definition of a user-defined function, which is sent to workers with the expressions that call it.

    Not a dataclass: functions compare by identity, and their contents are never inspected.

    Args:
        name: the name in messages and plans.
        kind: the kind of function.
        function: has `eval`, or the methods of aggregate functions, and optionally `open` and `close`.
        result_type: the type of its values; for functions that return rows, a ROW of their columns.
        input_types: the types that its operands are cast to; None to pass them uncast.
        func_type: `general`, `pandas` or `arrow`.
        is_deterministic: whether the same operands always give the same result.
        accumulator_type: the type of an aggregate function's accumulator; None for other functions.
    """

    def __init__(
        self,
        name: str,
        kind: FunctionKind,
        function: Any,
        result_type: DataType,
        input_types: tuple[DataType, ...] | None = None,
        func_type: str = GENERAL,
        is_deterministic: bool = True,
        accumulator_type: DataType | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.function = function
        self.result_type = result_type
        self.input_types = input_types
        self.func_type = func_type
        self.is_deterministic = is_deterministic
        self.accumulator_type = accumulator_type

    def called(self, name: str) -> UserFunction:
        """Return the same function under the name that queries use."""
        return UserFunction(
            name,
            self.kind,
            self.function,
            self.result_type,
            self.input_types,
            self.func_type,
            self.is_deterministic,
            self.accumulator_type,
        )

    def check_count(self, count: int) -> None:
        """Raise `ValidationError` if the function does not accept `count` operands."""
        if self.input_types is not None and count != len(self.input_types):
            types = ", ".join(map(str, self.input_types))
            raise ValidationError(f"{self} takes {len(self.input_types)} operands ({types}), and gets {count}")
        # Aggregate functions that work row by row take the accumulator first.
        is_row_by_row = not hasattr(self.function, "eval")
        signature = inspect_signature(self.function.accumulate if is_row_by_row else self.function.eval)
        if signature is None:
            return
        try:
            signature.bind(*[None] * (count + is_row_by_row))
        except TypeError as error:
            raise ValidationError(f"{self} takes the operands {signature}, and gets {count}: {error}") from error
        if not count and self.func_type != GENERAL:
            raise ValidationError(f"{self} works on columns ({self.func_type}), so it needs an operand at least")

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name!r}"


def inspect_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a function; None for a C function without a signature."""
    try:
        return inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return None
