"""Which calls Spark answers just as the functions of Penstock do, and how its SQL writes them.

The table `NATIVE` says for each function what makes its text. What that takes is said beside it, by the types of the
operands; for others it gives None, and so does everything that is not in the table: such expressions run in the kernels
of `penstock.table.functions`. An expression is native as a whole or not at all, because its parts decide which others
are worked out. Texts mean the same with Spark's ANSI mode and without: what overflows, or is divided by zero, is asked
before.
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
#: makes the text of a call of the texts of its operands; None where Spark may answer otherwise
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
#: A text names some operands twice; one that has grown longer than this is left to a kernel.
_LENGTH_MAX: Final = 20_000
#: Spark's parser calls itself for each parenthesis, and a call may have several around each operand.
_LEVELS_MAX: Final = 32
#: more constants than this are too long in any case
_CONSTANTS_MAX: Final = _LENGTH_MAX // 2


def join_text(part: Typed, width: int, name: ColumnText) -> str | None:
    """A part of the condition of a join, whose left side has `width` columns: `native_text` by the equality of keys."""
    if isinstance(part, FunctionCall) and part.function == "=" and is_key(part, width):
        operands = [native_text(operand, name) for operand in part.operands]
        return (
            native_truths.equality_of_keys([text for text in operands if text is not None]) if all(operands) else None
        )
    return native_text(part, name)


def native_text(expression: Typed, column: ColumnText) -> str | None:
    """An expression in Spark's SQL, or None where a kernel has to run it."""
    return None if _levels(expression) > _LEVELS_MAX else _text(expression, column)


def _levels(expression: Typed) -> int:
    """How deep calls are in calls."""
    levels, below = 0, [expression]
    while below:
        levels += 1
        below = [child for one in below for child in one.children()]
    return levels


def _text(expression: Typed, column: ColumnText) -> str | None:
    if isinstance(expression, Field):
        return column(expression.index)
    if isinstance(expression, Constant):
        if isinstance(expression.type, NullType) and expression.value is not None:
            return ""  # a word of a function's syntax, such as a unit of time
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
    for one in expression.operands:
        found = _text(one, column)
        if found is None:
            return None
        operands.append(found)
    text = make(expression, operands)
    return text if text is not None and len(text) <= _LENGTH_MAX else None
