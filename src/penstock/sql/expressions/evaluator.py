"""`Evaluator`, which evaluates typed expressions on columns, and `Condition`, which selects the rows that satisfy one.

An expression is compiled once to nested Python functions, which run for each batch. Constants become scalars at that
time. Operators that choose among their operands are in `columns`.

**Stability.** `is_stable` and `is_pure` decide whether expressions give the same result at each evaluation.

**Repeated parts.** SPLIT_INDEX calls with the same text and separator share one split. `Shared` evaluates a repeated
subexpression of an operator once per batch. `Once` evaluates repeated calls of user-defined functions once per row: `x
BETWEEN a AND b` uses `x` twice, and CASE its operand at each WHEN. A function that is not deterministic would return a
different result each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.copies import repeats_if_deep
from penstock.base.errors import UnsupportedError, WrongTimeError
from penstock.sql import typed
from penstock.sql.data.arrow import Datum, to_column, to_full_array, to_scalar, truths
from penstock.sql.data.types import ArrayType, DataType, DecimalType, NullType, VarCharType
from penstock.sql.expressions.columns import LAZY, Columns, Part, explained
from penstock.sql.functions.casts import cast_kernel
from penstock.sql.functions.definition import UNKNOWN, Call, Operands, Session
from penstock.sql.functions.registry import SCALAR_FUNCTIONS
from penstock.sql.functions.strings import part_kernel
from penstock.sql.user_functions.calls import row_kernel, vector_kernel
from penstock.sql.user_functions.definition import GENERAL

#: Conversions, which are not in the registry of functions.
CASTS: Final = ("CAST", "TRY_CAST")


def is_stable(expression: typed.Typed) -> bool:
    """Return whether all functions called in an expression are deterministic."""
    return all(_is_deterministic(call) for call in expression.walk() if isinstance(call, typed.FunctionCall))


def _is_deterministic(call: typed.FunctionCall) -> bool:
    if isinstance(call, typed.UserCall):
        return call.user.is_deterministic
    return call.function in CASTS or SCALAR_FUNCTIONS[call.function].is_deterministic


def is_pure(expression: typed.Typed, but: Collection[str] = ()) -> bool:
    """Return whether an expression depends only on its row and calls no user-defined function.

    `but`: functions that it may call nevertheless.
    """
    calls = [call for call in expression.walk() if isinstance(call, typed.FunctionCall)]
    return all(call.function in CASTS or call.function in but or _is_pure(call) for call in calls)


def _is_pure(call: typed.FunctionCall) -> bool:
    if isinstance(call, typed.UserCall):
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
class Split(typed.Typed):
    """All parts of a text between separators; an empty text has none."""

    text: typed.Typed
    separator: str

    def children(self) -> tuple[typed.Typed, ...]:
        """Return the text."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class PartOf(typed.Typed):
    """One of the parts, from 0; NULL past the last one."""

    parts: Split
    index: int

    def children(self) -> tuple[typed.Typed, ...]:
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


def with_shared_splits(expressions: Sequence[typed.Typed]) -> list[typed.Typed]:
    """Return the expressions with one split for all parts of a text, if there are several."""
    splits = Counter(
        candidate for expression in _walked(expressions) if (candidate := _to_split(expression)) is not None
    )

    def changed(expression: typed.Typed) -> typed.Typed:
        split = _to_split(expression)
        if split is None or splits[split] < 2:
            return expression
        assert isinstance(expression, typed.FunctionCall)
        index = expression.operands[2]
        assert isinstance(index, typed.Constant)
        assert isinstance(index.value, int)
        return PartOf(expression.type, split, index.value)

    if all(count < 2 for count in splits.values()):
        return list(expressions)
    return [typed.transformed(expression, changed) for expression in expressions]


def repeated(expressions: Sequence[typed.Typed]) -> set[typed.Typed]:
    """Return the calls that occur more than once and are worth sharing."""
    calls = Counter(expression for expression in _walked(expressions) if _is_worth_it(expression))
    return {call for call, count in calls.items() if count > 1}


def _walked(expressions: Iterable[typed.Typed]) -> list[typed.Typed]:
    """Return all hashable subexpressions whose values depend only on the row, so not those inside lambdas."""
    parts: list[typed.Typed] = []
    for expression in expressions:
        if isinstance(expression, typed.Lambda):
            continue
        if _is_known(expression):
            parts.append(expression)
        parts += _walked(expression.children())
    return parts


def _is_known(expression: typed.Typed) -> bool:
    try:
        hash(expression)
    except TypeError:
        return False
    return True


def has_zero(value: object) -> bool:
    """Return whether a constant is or contains a floating-point zero."""
    if isinstance(value, list | tuple):
        return any(map(has_zero, value))
    return isinstance(value, float) and not value


def _is_worth_it(expression: typed.Typed) -> bool:
    if isinstance(expression, Split):
        return True
    if not isinstance(expression, typed.FunctionCall) or isinstance(expression, typed.UserCall):
        return False
    if expression.function in _CHEAP and (
        expression.function not in _ARITHMETIC or not isinstance(expression.type, DecimalType)
    ):
        return False
    parts = list(expression.walk())
    # The two zeros are equal, but give different quotients.
    is_signed = any(isinstance(part, typed.Constant) and has_zero(part.value) for part in parts)
    return is_stable(expression) and not is_signed and any(isinstance(part, typed.Field) for part in parts)


def _to_split(expression: typed.Typed) -> Split | None:
    """Return the split that an expression takes a part from, if separator and index are constant."""
    if not isinstance(expression, typed.FunctionCall) or expression.function != "SPLIT_INDEX":
        return None
    text, separator, index = expression.operands
    if (
        isinstance(text, typed.Constant)
        or not isinstance(separator, typed.Constant)
        or not isinstance(index, typed.Constant)
    ):
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


class Evaluator:
    """Evaluates expressions on batches of rows. `session` provides the time zone and the clock."""

    def __init__(
        self, expressions: Sequence[typed.Typed], session: Session, shared: Sequence[Part] | None = None
    ) -> None:
        self._parts = compile_expressions(expressions, session) if shared is None else list(shared)

    def __call__(self, columns: Columns) -> list[pa.Array]:
        """Return a column for each expression; raise `TableRuntimeError` for values that a function cannot process."""
        try:
            return [to_full_array(part.run(columns), columns.rows) for part in self._parts]
        except pa.ArrowInvalid as error:
            raise explained(error) from error


def columns_of_rows(
    rows: Sequence[Sequence[typed.Typed]], types: Sequence[DataType], session: Session
) -> list[pa.Array]:
    """Return the columns of rows of expressions that read no columns; raise `TableRuntimeError` if one fails."""
    columns = []
    for index, kind in enumerate(types):
        cells = [row[index] for row in rows]
        known = [cell for cell in cells if isinstance(cell, typed.Constant)]
        if len(known) == len(cells):
            columns.append(to_column([constant.value for constant in known], kind))
        else:
            columns.append(pa.concat_arrays([Evaluator([cell], session)(Columns((), 1))[0] for cell in cells]))
    return columns


@repeats_if_deep
def compile_expressions(expressions: Sequence[typed.Typed], session: Session) -> list[Part]:
    """Compile expressions to functions of columns that evaluate repeated subexpressions once."""
    expressions = with_shared_splits(expressions)
    known = _Repeated(expressions)
    return [compile_expression(expression, session, known) for expression in expressions]


class _Repeated:
    """The repeated subexpressions of expressions, and their compiled parts."""

    def __init__(self, expressions: Sequence[typed.Typed]) -> None:
        self._shared = repeated(expressions)
        self._parts: dict[typed.Typed, Part] = {}
        calls = [call for expression in expressions for call in typed.collect_user_calls(expression)]
        self._calls = [call for call in calls if sum(call.is_same(other) for other in calls) > 1]
        self._made: list[tuple[typed.UserCall, Part]] = []

    def shared(self, expression: typed.Typed, make: Callable[[], Part]) -> Part:
        """Return the part of an expression, which all its occurrences share."""
        if not self._shared or not isinstance(expression, typed.FunctionCall | Split) or expression not in self._shared:
            return make()
        part = self._parts.get(expression)
        if part is None:
            inner = make()
            part = self._parts[expression] = Part(Shared(inner.run), inner.can_fail)
        return part

    def part(self, call: typed.UserCall, make: Callable[[], Part]) -> Part:
        """Return the part of a call, which all identical calls share."""
        if not any(call.is_same(other) for other in self._calls):
            return make()
        for known_call, part in self._made:
            if call.is_same(known_call):
                return part
        shared_part = Part(Once(make().run), True)
        self._made.append((call, shared_part))
        return shared_part


def compile_expression(expression: typed.Typed, session: Session, known: _Repeated | None = None) -> Part:
    """Compile an expression to a function of columns."""
    shared_parts = known or _Repeated(())
    if isinstance(expression, typed.UserCall):
        call = expression
        return shared_parts.part(call, lambda: _user_part(call, session, shared_parts))
    return shared_parts.shared(expression, lambda: _compile_uncached(expression, session, shared_parts))


def _compile_uncached(expression: typed.Typed, session: Session, known: _Repeated) -> Part:
    if isinstance(expression, typed.Field):
        index = expression.index
        return Part(lambda columns: columns[index], False)
    if isinstance(expression, typed.Constant):
        is_word = isinstance(expression.type, NullType)  # such as a unit of time
        scalar = to_scalar(None if is_word else expression.value, expression.type)
        return Part(lambda columns: scalar, False)
    if isinstance(expression, Split):
        text = compile_expression(expression.text, session, known)
        return Part(_calling(split_kernel(expression.separator), [text], False), text.can_fail)
    if isinstance(expression, PartOf):
        parts = compile_expression(expression.parts, session, known)
        return Part(_calling(part_kernel(expression.index), [parts], False), parts.can_fail)
    if not isinstance(expression, typed.FunctionCall):
        raise UnsupportedError(f"{type(expression).__name__} is no expression of single values")
    path = column_path(expression)
    if path is not None:
        return Part(lambda columns: columns.field(path), False)
    function = SCALAR_FUNCTIONS.get(expression.function)
    call = bind_operands(expression.operands, expression.options, session)
    evaluated: Iterable[typed.Typed] = expression.operands
    if function is not None and function.evaluated_operands is not None:
        evaluated = [expression.operands[index] for index in function.evaluated_operands(call)]
    operands = [
        compile_expression(operand, session, known) for operand in evaluated if not isinstance(operand, typed.Lambda)
    ]
    fails = any(part.can_fail for part in operands)
    if expression.function in LAZY:
        return Part(LAZY[expression.function](operands), fails)
    if expression.function in CASTS:
        (operand,) = expression.operands
        is_try = expression.function == "TRY_CAST"
        kernel = cast_kernel(operand.type, expression.type, session, is_try)
        return Part(_calling(kernel, operands, False), fails or not is_try)
    function = SCALAR_FUNCTIONS[expression.function]
    kernel = function.bind(Call(call, expression.type))
    return Part(_calling(kernel, operands, function.takes_rows), fails or function.may_fail(call))


def column_path(expression: typed.Typed) -> tuple[int, ...] | None:
    """Return the index of a column and of the fields read from it; None for other expressions."""
    if isinstance(expression, typed.Field):
        return (expression.index,)
    if not isinstance(expression, typed.FunctionCall) or expression.function != "FIELD":
        return None
    row, index = expression.operands
    path = column_path(row)
    if path is None or not isinstance(index, typed.Constant) or not isinstance(index.value, int):
        return None
    return (*path, index.value)


def _user_part(call: typed.UserCall, session: Session, known: _Repeated) -> Part:
    if session.functions is None:
        raise WrongTimeError(f"{call.user} runs in jobs alone, and not while a query is planned")
    parts = [compile_expression(operand, session, known) for operand in call.operands]
    make = row_kernel if call.user.func_type == GENERAL else vector_kernel
    kernel = make(call.user, [operand.type for operand in call.operands], session.functions)
    return Part(_calling(kernel, parts, True), True)


def bind_operands(operands: Sequence[typed.Typed], options: tuple[str, ...], session: Session) -> Operands:
    """Return the operands as a function sees them before it runs."""
    values = tuple(
        operand.value
        if isinstance(operand, typed.Constant)
        else operand
        if isinstance(operand, typed.Constants)
        else UNKNOWN
        for operand in operands
    )
    return Operands(tuple(operand.type for operand in operands), values, options, session)


def _calling(kernel: Callable[..., Datum], parts: list[Part], takes_rows: bool) -> Callable[[Columns], Datum]:
    if takes_rows:
        return lambda columns: kernel(columns.rows, *[part.run(columns) for part in parts])
    if len(parts) == 1:
        only = parts[0].run
        return lambda columns: kernel(only(columns))
    if len(parts) == 2:
        left, right = parts[0].run, parts[1].run
        return lambda columns: kernel(left(columns), right(columns))
    return lambda columns: kernel(*[part.run(columns) for part in parts])


#: Few rows remain if at most one in this many does.
_FEW_OF: Final = 8


class Condition:
    """The conjuncts of a condition, in order.

    A conjunct that cannot fail is evaluated for all rows, which is cheaper than filtering columns, unless few rows
    remain. A conjunct that may fail is evaluated only for rows where no earlier conjunct is false.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def chosen(self, columns: Columns) -> Columns:
        """Select the rows that satisfy all conjuncts; return the columns themselves if all rows do.

        Raises `TableRuntimeError` for values that a function cannot process.
        """
        rows: Columns = columns
        answers: pa.Array | None = None
        try:
            for part in self._parts:
                if answers is not None:
                    rows, answers = _narrowed(rows, answers, part.can_fail)
                    if not rows.rows:
                        return rows
                answer = to_full_array(part.run(rows), rows.rows)
                answers = answer if answers is None else pc.and_kleene(answers, answer)
        except pa.ArrowInvalid as error:
            raise explained(error) from error
        return rows if answers is None else _where(rows, truths(answers))


def _narrowed(rows: Columns, answers: pa.Array, can_fail: bool) -> tuple[Columns, pa.Array | None]:
    """Return the rows for the next conjunct, and the results so far; None if they are all true."""
    if can_fail and answers.null_count:
        # NULL is not false.
        left = _where(rows, pc.fill_null(answers, True))
        return left, answers if left is rows else left.cut(answers)
    if can_fail or answers.true_count * _FEW_OF <= rows.rows:
        return _where(rows, truths(answers)), None
    return rows, answers


def _where(rows: Columns, mask: pa.Array) -> Columns:
    return rows if mask.true_count == rows.rows else rows.where(mask)
