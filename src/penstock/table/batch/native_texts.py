"""Text functions in Spark SQL. Positions and lengths count characters, as in Penstock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.table.batch.literals import text_literal
from penstock.table.data.logical_types import CharType, VarCharType
from penstock.table.typed.nodes import Constant, FunctionCall, Typed

_TEXTS: Final = (CharType, VarCharType)


def _are_texts(operands: Sequence[Typed]) -> bool:
    return all(isinstance(operand.type, _TEXTS) for operand in operands)


def _like(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return LIKE for constant patterns without `_` and without escapes."""
    if len(operands) != 2 or not _are_texts(call.operands):
        return None
    pattern = call.operands[1]
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return None
    if "_" in pattern.value or "\\" in pattern.value:
        return None
    return f"({operands[0]} LIKE {text_literal(pattern.value)})"


def _substring(call: FunctionCall, operands: Sequence[str]) -> str | None:
    """Return a substring at a constant position, counted from the beginning, and of a constant length."""
    if not isinstance(call.operands[0].type, _TEXTS):
        return None
    for operand, least in zip(call.operands[1:], (1, 0), strict=False):
        if not isinstance(operand, Constant) or not isinstance(operand.value, int) or operand.value < least:
            return None
    numbers = [str(number.value) for number in call.operands[1:] if isinstance(number, Constant)]
    return f"substring({', '.join([operands[0], *numbers])})"


def _joined(call: FunctionCall, operands: Sequence[str]) -> str | None:
    return f"concat({', '.join(operands)})" if _are_texts(call.operands) else None


def _length(call: FunctionCall, operands: Sequence[str]) -> str | None:
    return f"char_length({operands[0]})" if _are_texts(call.operands) else None


Native = Callable[[FunctionCall, Sequence[str]], str | None]

NATIVE: Final[dict[str, Native]] = {
    "LIKE": _like,
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "||": _joined,
    "CONCAT": _joined,
    "CHAR_LENGTH": _length,
    "CHARACTER_LENGTH": _length,
}
