"""Evaluates repeated subexpressions of an operator once per batch.

SPLIT_INDEX calls with the same text and separator share one split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.logical_types import ArrayType, DecimalType, VarCharType
from penstock.table.data.values import Datum
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.stability import is_stable
from penstock.table.typed.nodes import Constant, Field, FunctionCall, Lambda, Typed, transformed
from penstock.table.typed.user_call import UserCall

#: Functions that are as cheap as a cache lookup.
_CHEAP: Final = frozenset(
    ["FIELD", "AND", "OR", "NOT", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "IS NULL", "IS NOT NULL", "CAST"]
)
#: Functions that are cheap except for decimals, whose operands are converted first.
_ARITHMETIC: Final = ("+", "-", "*")
_PARTS: Final = ArrayType(VarCharType(2147483647))


@dataclass(frozen=True, slots=True)
class Split(Typed):
    """All parts of a text between separators; an empty text has none."""

    text: Typed
    separator: str

    def children(self) -> tuple[Typed, ...]:
        """Return the text."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class PartOf(Typed):
    """One of the parts, from 0; NULL past the last one."""

    parts: Split
    index: int

    def children(self) -> tuple[Typed, ...]:
        """Return the split."""
        return (self.parts,)


class Shared:
    """Evaluates an expression once per batch. `run` evaluates it for any rows."""

    def __init__(self, run: Callable[[Columns], Datum]) -> None:
        self._run = run
        self._columns: Columns | None = None
        self._value: Datum | None = None

    def __call__(self, columns: Columns) -> Datum:
        """Return the values of these rows."""
        if columns is self._columns:
            return self._value
        if self._columns is not None and self._columns in (columns.parent, columns.origin):
            return columns.take_chosen(self._columns, self._value) if isinstance(self._value, pa.Array) else self._value
        self._columns, self._value = columns, self._run(columns)
        return self._value


def with_shared_splits(expressions: Sequence[Typed]) -> list[Typed]:
    """Return the expressions with one split for all parts of a text, if there are several."""
    splits = Counter(
        candidate for expression in _walked(expressions) if (candidate := _to_split(expression)) is not None
    )

    def changed(expression: Typed) -> Typed:
        split = _to_split(expression)
        if split is None or splits[split] < 2:
            return expression
        assert isinstance(expression, FunctionCall)
        index = expression.operands[2]
        assert isinstance(index, Constant)
        assert isinstance(index.value, int)
        return PartOf(expression.type, split, index.value)

    if all(count < 2 for count in splits.values()):
        return list(expressions)
    return [transformed(expression, changed) for expression in expressions]


def repeated(expressions: Sequence[Typed]) -> set[Typed]:
    """Return the calls that occur more than once and are worth sharing."""
    calls = Counter(expression for expression in _walked(expressions) if _is_worth_it(expression))
    return {call for call, count in calls.items() if count > 1}


def _walked(expressions: Iterable[Typed]) -> list[Typed]:
    """Return all hashable subexpressions whose values depend only on the row, so not those inside lambdas."""
    parts: list[Typed] = []
    for expression in expressions:
        if isinstance(expression, Lambda):
            continue
        if _is_known(expression):
            parts.append(expression)
        parts += _walked(expression.children())
    return parts


def _is_known(expression: Typed) -> bool:
    try:
        hash(expression)
    except TypeError:
        return False
    return True


def _has_zero(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_zero, value))
    return isinstance(value, float) and not value


def _is_worth_it(expression: Typed) -> bool:
    if isinstance(expression, Split):
        return True
    if not isinstance(expression, FunctionCall) or isinstance(expression, UserCall):
        return False
    if expression.function in _CHEAP and (
        expression.function not in _ARITHMETIC or not isinstance(expression.type, DecimalType)
    ):
        return False
    parts = list(expression.walk())
    # The two zeros are equal, but give different quotients.
    has_zero = any(isinstance(part, Constant) and _has_zero(part.value) for part in parts)
    return is_stable(expression) and not has_zero and any(isinstance(part, Field) for part in parts)


def _to_split(expression: Typed) -> Split | None:
    """Return the split that an expression takes a part from, if separator and index are constant."""
    if not isinstance(expression, FunctionCall) or expression.function != "SPLIT_INDEX":
        return None
    text, separator, index = expression.operands
    if isinstance(text, Constant) or not isinstance(separator, Constant) or not isinstance(index, Constant):
        return None
    if not isinstance(separator.value, str) or not separator.value or not isinstance(index.value, int):
        return None
    return Split(_PARTS, text, separator.value) if index.value >= 0 else None


def split_kernel(separator: str) -> Callable[[Datum], Datum]:
    """Return a kernel that splits texts into all their parts."""
    return lambda texts: pc.split_pattern(texts, separator)
