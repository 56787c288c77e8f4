"""Calls that Spark evaluates exactly like Penstock's functions, and their texts in Spark SQL.

The table `NATIVE` maps each function to the builder of its text. Each builder accepts certain operand types, described
beside it, and returns None for others. Such expressions, and functions that are not in the table, run in the kernels of
`penstock.table.functions`. An expression is native as a whole or not at all, because its parts decide which other parts
are evaluated. Texts mean the same with and without Spark's ANSI mode: they check for overflow and division by zero
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.table.batch import native_casts, native_numbers, native_texts, native_times, native_truths
from penstock.table.batch.literals import literal_text
from penstock.table.data.logical_types import NullType
from penstock.table.streaming.joins.join_conditions import is_key
from penstock.table.typed.nodes import Constant, Constants, Field, FunctionCall, Typed
from penstock.table.typed.user_call import UserCall

#: the text of a column
ColumnText = Callable[[int], str]
#: builds the text of a call from the texts of its operands; None if Spark's result may differ
Native = Callable[[FunctionCall, Sequence[str]], str | None]


def _moved_or_number(operator: str, call: FunctionCall, operands: Sequence[str]) -> str | None:
    return native_times.moved(operator, call, operands) or native_numbers.NATIVE[operator](call, operands)


NATIVE: Final[dict[str, Native]] = {
    **native_truths.NATIVE,
    **native_numbers.NATIVE,
    **native_casts.NATIVE,
    **native_texts.NATIVE,
    **native_times.NATIVE,
    **{operator: partial(_moved_or_number, operator) for operator in ("+", "-")},
}
#: A text repeats some operands; a kernel evaluates expressions whose text grows longer than this.
_LENGTH_MAX: Final = 20_000
#: Spark's parser recurses at each parenthesis, and a call may have several around each operand.
_LEVELS_MAX: Final = 32
#: more constants than this are always too long
_CONSTANTS_MAX: Final = _LENGTH_MAX // 2


def join_text(part: Typed, width: int, name: ColumnText) -> str | None:
    """Return a part of a join condition: `native_text` with the equality of keys. The left side has `width` columns."""
    if isinstance(part, FunctionCall) and part.function == "=" and is_key(part, width):
        operands = [native_text(operand, name) for operand in part.operands]
        return (
            native_truths.equality_of_keys([text for text in operands if text is not None]) if all(operands) else None
        )
    return native_text(part, name)


def native_text(expression: Typed, column: ColumnText) -> str | None:
    """Return an expression in Spark SQL, or None if a kernel has to run it."""
    return None if _levels(expression) > _LEVELS_MAX else _text(expression, column)


def _levels(expression: Typed) -> int:
    """Return the nesting depth of calls."""
    levels, below = 0, [expression]
    while below:
        levels += 1
        below = [child for parent in below for child in parent.children()]
    return levels


def _text(expression: Typed, column: ColumnText) -> str | None:
    if isinstance(expression, Field):
        return column(expression.index)
    if isinstance(expression, Constant):
        if isinstance(expression.type, NullType) and expression.value is not None:
            return ""  # a keyword of a function's syntax, such as a unit of time
        return literal_text(expression.value, expression.type)
    if isinstance(expression, Constants):
        texts = [literal_text(value, expression.type) for value in expression.values[:_CONSTANTS_MAX]]
        written = [text for text in texts if text is not None]
        return ", ".join(written) if len(written) == len(expression.values) else None
    if not isinstance(expression, FunctionCall) or isinstance(expression, UserCall):
        return None
    make = NATIVE.get(expression.function)
    if make is None:
        return None
    operands: list[str] = []
    for operand in expression.operands:
        operand_text = _text(operand, column)
        if operand_text is None:
            return None
        operands.append(operand_text)
    text = make(expression, operands)
    return text if text is not None and len(text) <= _LENGTH_MAX else None
