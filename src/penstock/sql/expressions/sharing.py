"""Evaluates repeated subexpressions of an operator once per batch.

SPLIT_INDEX calls with the same text and separator share one split.

Repeated calls of user-defined functions, evaluated once per row.

`x BETWEEN a AND b` uses `x` twice, and CASE its operand at each WHEN. A function that is not deterministic would return
a different result each time.

Whether expressions give the same result at each evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sql.data.arrow import Datum, to_full_array
from penstock.sql.data.types import ArrayType, DecimalType, VarCharType
from penstock.sql.expressions.columns import Columns
from penstock.sql.functions.registry import SCALAR_FUNCTIONS
from penstock.sql.typed import Constant, Field, FunctionCall, Lambda, Typed, UserCall, transformed

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


class Once:
    """Caches the values of the rows of one batch. `run` computes the values of any rows."""

    def __init__(self, run: Callable[[Columns], Datum]) -> None:
        self._run = run
        self._origin: Columns | None = None

    def __call__(self, columns: Columns) -> Datum:
        """Return the values of these rows, computing only the unknown ones."""
        origin = columns.origin
        if self._origin is not origin:
            self._origin = origin
            self._places = np.full(origin.rows, -1, np.int64)
            self._known: list[pa.Array] = []
            self._count = 0
        row_numbers = np.arange(origin.rows) if columns.numbers is None else columns.numbers
        missing = row_numbers[self._places[row_numbers] < 0]
        if len(missing) or not self._known:
            rows = origin if len(missing) == origin.rows else origin.take(pa.array(missing, pa.int64()))
            self._known.append(to_full_array(self._run(rows), len(missing)))
            self._places[missing] = np.arange(self._count, self._count + len(missing))
            self._count += len(missing)
        if len(self._known) > 1:
            self._known = [pa.concat_arrays(self._known)]
        (known,) = self._known
        return known.take(pa.array(self._places[row_numbers], pa.int64()))
