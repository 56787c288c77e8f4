"""A function of the program as queries know it: the object that runs, and what was declared of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from penstock.table.data.errors import ValidationError
from penstock.table.data.logical_types import DataType


class FunctionKind(Enum):
    """What a function takes and gives."""

    SCALAR = "scalar function"
    ASYNC_SCALAR = "asynchronous scalar function"
    TABLE = "table function"
    AGGREGATE = "aggregate function"
    TABLE_AGGREGATE = "table aggregate function"


AGGREGATES: Final = (FunctionKind.AGGREGATE, FunctionKind.TABLE_AGGREGATE)
#: values row by row, columns as pandas has them, columns as Arrow has them
GENERAL, PANDAS, ARROW = "general", "pandas", "arrow"
FUNC_TYPES: Final = (GENERAL, PANDAS, ARROW)


class UserFunction:
    """See the module's text. It travels to workers with the expressions that call it.

    No dataclass: two functions are the same only where they are one object, and nothing looks into it.

    Args:
        name: what messages and plans call it.
        kind: what it takes and gives.
        function: has `eval`, or the methods of aggregate functions, and perhaps `open` and `close`.
        result_type: of its values; for functions that give rows, a ROW of their columns.
        input_types: to which its operands are cast; None to take all as they are.
        func_type: `general`, `pandas` or `arrow`.
        is_deterministic: whether the same operands give the same result each time.
        accumulator_type: of what an aggregate function keeps of a group; None for others.
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
        """The same under the name by which queries know it."""
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
        """Raise `ValidationError` where it does not take so many operands."""
        if self.input_types is not None and count != len(self.input_types):
            types = ", ".join(map(str, self.input_types))
            raise ValidationError(f"{self} takes {len(self.input_types)} operands ({types}), and gets {count}")
        # What aggregates row by row takes the accumulator first.
        is_row_by_row = not hasattr(self.function, "eval")
        signature = signature_of(self.function.accumulate if is_row_by_row else self.function.eval)
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


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function; None of one in C that does not tell them."""
    try:
        return inspect.signature(function).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):
        return None
