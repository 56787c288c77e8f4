"""Typed function calls and literals: resolves the function, casts its operands and finds its result type.

An `InlineCall` calls a user-defined function that is in no catalog: the Table API passes the function itself.
`constant` finds the type and value of an SQL literal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, reduce
from typing import Final

from penstock.base.errors import WrongValueError, did_you_mean
from penstock.sql.data import datetimes as temporal_text
from penstock.sql.data.arrow import to_column, to_values
from penstock.sql.data.errors import TableRuntimeError, UnknownNameError, ValidationError
from penstock.sql.data.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)
from penstock.sql.expressions.columns import LAZY, Columns
from penstock.sql.expressions.evaluator import CASTS, Evaluator, bind_operands
from penstock.sql.functions.casts import supports_cast
from penstock.sql.functions.characters import without_halves
from penstock.sql.functions.definition import ScalarFunction, Session
from penstock.sql.functions.json import embedded_operands
from penstock.sql.functions.registry import SCALAR_FUNCTIONS, find_scalar
from penstock.sql.functions.type_rules import TIMES, can_cast_implicitly, is_text
from penstock.sql.functions.value_casts import refusal
from penstock.sql.parser import syntax
from penstock.sql.parser.syntax import Call, Expression
from penstock.sql.typed import Constant, Constants, Field, FunctionCall, Lambda, Typed, UserCall
from penstock.sql.user_functions.definition import TABLES, FunctionKind, UserFunction


@dataclass(frozen=True, slots=True)
class InlineCall(Call):
    """A call of a function. Its `name` cannot occur in SQL; its `path` is the function's name."""

    user: UserFunction = field(kw_only=True)


def inline_call(function: UserFunction, operands: Sequence[Expression]) -> InlineCall:
    """Return a call of a function with these operands."""
    return InlineCall(f"*{function.name}*", tuple(operands), (function.name,), user=function)


#: finds a user-defined function by its path; the second argument includes one that a built-in function hides
FindFunction = Callable[[tuple[str, ...], bool], UserFunction | None]


_SHORT_CHAIN_MAX: Final = 16
#: IN keeps up to this many constants as separate operands, from which filters for connectors are made
_SEPARATE_CONSTANTS_MAX: Final = 64


def _none(path: tuple[str, ...], hidden: bool) -> UserFunction | None:
    return None


class Calls:
    """Builds typed calls. Calls of constants are folded at once, except calls of user-defined functions.

    `functions` finds user-defined functions by path, unless a built-in function hides them.
    """

    def __init__(self, session: Session, functions: FindFunction = _none) -> None:
        self.session = session
        self._functions = functions

    @property
    def of_sql(self) -> Calls:
        """Calls by the rules of SQL; the same object unless the Table API has its own rules."""
        return self

    def user_function(self, call: syntax.Call, gives_rows: bool = False) -> UserFunction | None:
        """Return the user-defined function that is called, or None.

        `gives_rows`: whether the call is used where rows are expected. A built-in function, such as SPLIT, does not
        hide a user-defined function of the same name there.
        """
        if isinstance(call, InlineCall):
            return call.user
        return self._functions(call.path, gives_rows) if call.path else None

    def user_call(self, user: UserFunction, operands: Sequence[Typed], at: int = -1) -> Typed:
        """Return a call of a user-defined scalar function. Raises `ValidationError` if it cannot be used here."""
        if user.kind in TABLES:
            raise ValidationError(
                f"{user} gives rows: call it as LATERAL TABLE({user.name}(…)) in FROM, or by join_lateral"
            )
        if user.kind is FunctionKind.PROCESS_TABLE:
            raise ValidationError(f"{user} gives a table: call it in FROM, or by process() in the Table API")
        if user.kind is FunctionKind.TABLE_AGGREGATE:
            raise ValidationError(f"{user} gives rows: call it in the Table API, by flat_aggregate")
        if user.kind is FunctionKind.AGGREGATE:
            raise ValidationError(f"{user} cannot be called here: it is for columns that are selected, HAVING and OVER")
        casts = self.user_operands(user, operands)
        is_taken = find_scalar(user.name) is not None or user.name in (*CASTS, *LAZY)
        name = f"`{user.name}`" if is_taken else user.name
        return UserCall(user.result_type, name, tuple(casts), user=user, at=at)

    def user_operands(self, user: UserFunction, operands: Sequence[Typed]) -> list[Typed]:
        """Cast the operands of a user-defined function to its declared types."""
        user.check_count(len(operands))
        casts = []
        for index, operand in enumerate(operands):
            if isinstance(operand, Lambda):
                raise ValidationError(f"{user} takes values, and no function as its operand {index + 1}")
            if user.input_types is None:
                casts.append(operand)
                continue
            expected = user.input_types[index]
            if not isinstance(operand.type, NullType) and not can_cast_implicitly(operand.type, expected):
                raise ValidationError(
                    f"Invalid input arguments: operand {index + 1} of {user} is {operand.type}, and it takes {expected}"
                )
            is_nullable = operand.type.is_nullable
            if is_nullable and not expected.is_nullable:
                raise ValidationError(
                    f"Invalid input arguments: operand {index + 1} of {user} may be NULL, and it takes {expected}"
                )
            casts.append(self.implicit(operand, expected.nullable() if is_nullable else expected.not_null()))
        return casts

    def together(self, operator: str, conditions: Sequence[Typed]) -> Typed:
        """Join one or more conditions with AND or OR."""
        return conditions[0] if len(conditions) == 1 else self.call(operator, conditions)

    def chain(self, operator: str, operands: Sequence[Typed]) -> Typed:
        """Join two or more operands with AND, OR or `||`.

        A short chain becomes nested calls of two operands. A long chain becomes a single call, because nested calls are
        slow and deep. Both mean the same. Short chains stay nested to keep the ids of their state stable.
        """
        if len(operands) > _SHORT_CHAIN_MAX:
            return self.call(operator, operands)
        return reduce(lambda left, right: self.call(operator, (left, right)), operands)

    def membership(self, operand: Typed, among: Sequence[Typed]) -> Typed:
        """Return an IN test of a value. Many constants become one operand.

        Raises `ValidationError` if the values have no common type, or a constant cannot be cast to it.
        """
        groups: dict[DataType, list[object]] = {}
        non_constants: list[Typed] = []
        kind: DataType | None = None
        group: list[object] = []
        for member in among:
            if not isinstance(member, Constant):
                non_constants.append(member)
                continue
            if member.type is not kind:
                kind, group = member.type, groups.setdefault(member.type, [])
            group.append(member.value)
        if sum(map(len, groups.values())) <= _SEPARATE_CONSTANTS_MAX:
            return self.call("IN", [operand, *among])
        compared = [operand, *non_constants, *(Constant(kind, values[0]) for kind, values in groups.items())]
        function, types = self._matched("IN", compared, ())
        casts = [self.implicit(typed, to) for typed, to in zip(compared[: 1 + len(non_constants)], types, strict=False)]
        values: list[object] = []
        for (kind, group), to in zip(groups.items(), types[len(casts) :], strict=True):
            values += self._cast_values(group, kind, to)
        element = types[0].nullable() if any(value is None for value in values) else types[0].not_null()
        casts.append(Constants(element, tuple(dict.fromkeys(values))))
        result = function.result(bind_operands(casts, (), self.session))
        return self.folded(FunctionCall(result, function.name, tuple(casts)))

    def implicit_all(self, operands: Sequence[Typed], to: DataType) -> list[Typed]:
        """Apply `implicit` to many operands. Constants of one type are cast in one call."""
        groups: dict[DataType, list[int]] = {}
        for index, operand in enumerate(operands):
            if isinstance(operand, Constant) and operand.type != to:
                groups.setdefault(operand.type, []).append(index)
        casts = list(operands)
        for kind, indexes in groups.items():
            if len(indexes) <= _SEPARATE_CONSTANTS_MAX or isinstance(kind, NullType):
                continue
            result = to.nullable() if kind.is_nullable else to.not_null()
            values = [operand.value for position in indexes if isinstance(operand := operands[position], Constant)]
            for index, value in zip(indexes, self._cast_values(values, kind, to), strict=True):
                casts[index] = Constant(result, value)
        return [
            typed
            if isinstance(typed, Constant) and typed.type.nullable() == to.nullable()
            else self.implicit(typed, to)
            for typed in casts
        ]

    def _cast_values(self, values: Sequence[object], kind: DataType, to: DataType) -> Sequence[object]:
        """Cast constants of one type to another type in one call."""
        if kind.nullable() == to.nullable() or isinstance(kind, NullType):
            return values
        cast = FunctionCall(to, "CAST", (Field(kind, 0),))
        try:
            (column,) = Evaluator([cast], self.session)(Columns((to_column(values, kind),), len(values)))
        except TableRuntimeError:
            # One of the casts fails, and the error must name its constant.
            casts = [self.implicit(Constant(kind, value), to) for value in values]
            return [typed.value for typed in casts if isinstance(typed, Constant)]
        return to_values(column, to)

    def call(self, name: str, operands: Sequence[Typed], options: tuple[str, ...] = ()) -> Typed:
        """Return a call of a registered function. Raises `ValidationError` if it does not accept the operands."""
        if name in _EQUALITIES and _mixes_text_and_boolean(operands):
            return self._unequal(name, operands)
        options = (*options, *embedded_operands(name, operands))
        function, types = self._matched(name, operands, options)
        casts = tuple(self.implicit(operand, to) for operand, to in zip(operands, types, strict=True))
        result = function.result(bind_operands(casts, options, self.session))
        return self.folded(FunctionCall(result, function.name, casts, options))

    def _matched(
        self, name: str, operands: Sequence[Typed], options: tuple[str, ...]
    ) -> tuple[ScalarFunction, tuple[DataType, ...]]:
        """Return a registered function and the types to which its operands must be cast."""
        function = find_scalar(name)
        if function is None:
            raise no_function(name)
        call_operands = bind_operands(operands, options, self.session)
        for signature in function.signatures:
            types = signature.match(call_operands)
            if types is not None:
                return function, types
        raise ValidationError(_mismatch(function, operands))

    def _unequal(self, name: str, operands: Sequence[Typed]) -> Typed:
        """Compare text with a BOOLEAN: as in Flink, they are never equal."""
        if name in ("IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            word, operator = ("IS NOT NULL", "OR") if name == "IS DISTINCT FROM" else ("IS NULL", "AND")
            return self.together(operator, [self.call(word, [operand]) for operand in operands])
        answer = Constant(BooleanType(False), name == "<>")
        nulls = [self.call("IS NULL", [operand]) for operand in operands if operand.type.is_nullable]
        if not nulls:
            return answer
        return self.call("CASE", [self.together("OR", nulls), Constant(BooleanType(), None), answer])

    def cast(self, operand: Typed, to: DataType, is_try: bool = False) -> Typed:
        """Return an explicit cast. Raises `ValidationError` if the types cannot be cast."""
        if not supports_cast(operand.type, to):
            raise ValidationError(refusal(operand.type, to))
        nullable = operand.type.is_nullable or is_try
        result = to.nullable() if nullable else to.not_null()
        folded = self.folded(FunctionCall(result, "TRY_CAST" if is_try else "CAST", (operand,)))
        if isinstance(folded, FunctionCall) and isinstance(operand, Constant):
            self._fails_for_certain(folded)
        return folded

    def implicit(self, operand: Typed, to: DataType) -> Typed:
        """Add an implicit cast if one is needed.

        Non-constant text that is not a valid point in time then becomes NULL.
        """
        if isinstance(operand, Lambda) or operand.type == to:
            return operand
        if isinstance(operand.type, NullType) and isinstance(operand, Constant):
            return Constant(to.nullable(), None)
        if operand.type.nullable() == to.nullable():
            return replace(operand, type=to) if isinstance(operand, Constant | Field) else operand
        is_try = is_text(operand.type) and isinstance(to, TIMES) and not isinstance(operand, Constant)
        return self.cast(operand, to, is_try)

    def folded(self, call: FunctionCall) -> Typed:
        """Return the value of a call if all operands are constant and it does not fail; otherwise the call."""
        if not all(isinstance(operand, Constant | Constants) for operand in call.operands) or not _is_stable(
            call.function
        ):
            return call
        try:
            (column,) = Evaluator([call], self.session)(Columns((), 1))
        except TableRuntimeError:
            return call
        (value,) = to_values(column, call.type)
        return Constant(call.type, value)

    def _fails_for_certain(self, call: FunctionCall) -> None:
        """Raise an error during planning for a cast of a constant that fails, because it fails for every row."""
        if call.function != "CAST":
            return
        try:
            Evaluator([call], self.session)(Columns((), 1))
        except TableRuntimeError as error:
            message = f"Error when casting {call.operands[0].type} to {call.type.nullable()}: {error}"
            raise ValidationError(message) from error


_EQUALITIES: Final = frozenset({"=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"})


def _mixes_text_and_boolean(operands: Sequence[Typed]) -> bool:
    return any(is_text(operand.type) for operand in operands) and any(
        isinstance(operand.type, BooleanType) for operand in operands
    )


def _is_stable(name: str) -> bool:
    """Return whether a call of constants may be folded."""
    function = find_scalar(name)
    return function is None or (function.is_folded and function.is_deterministic and not function.is_dynamic)


def no_function(name: str) -> UnknownNameError:
    """Return the error for an unknown function."""
    near = "" if name in SCALAR_FUNCTIONS else did_you_mean(name, SCALAR_FUNCTIONS)
    reason = f"No match found for function signature {name}: there is no function of this name{near}"
    return UnknownNameError(reason, name=f"{name}(")


def _mismatch(function: ScalarFunction, operands: Sequence[Typed]) -> str:
    types = ", ".join(str(operand.type) for operand in operands)
    expected = "\n".join(f"{function.name}{signature}" for signature in function.signatures)
    return (
        f"Invalid function call:\n{function.name}({types})\n"
        f"Invalid input arguments. Expected signatures are:\n{expected}"
    )


_INT: Final = IntType(False)
#: number of digits of the greatest INT
_INT_DIGITS: Final = 10


def number(text: str) -> Constant:
    """Return the value of a numeric literal.

    Whole numbers are INT if they fit, else BIGINT. A literal with a point is a DECIMAL, one with an E a DOUBLE. The
    precision of a DECIMAL counts the digits as written: 2 for `0.5`, and 1 for `.5`.

    Raises:
        ValidationError: if the digits, without the point, do not fit into 64 bits.
    """
    if text.isdecimal() and len(text) < _INT_DIGITS:
        return Constant(_INT, int(text))
    if "e" in text.lower():
        return Constant(DoubleType(False), float(text))
    before, _, after = text.lstrip("+-").partition(".")
    unscaled = int(text.replace(".", ""))
    if not -(2**63) <= unscaled < 2**63:
        raise ValidationError(f"Numeric literal '{text}' out of range")
    if not after:
        return Constant(IntType(False) if -(2**31) <= unscaled < 2**31 else BigIntType(False), unscaled)
    return Constant(_decimal_type(len(before) + len(after), len(after)), Decimal(text))


@cache
def _decimal_type(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision, scale, False)


def constant(node: syntax.Expression) -> Constant | None:
    """Return the constant of a literal, or None for other nodes."""
    match node:
        case syntax.NullLiteral():
            return Constant(NullType(), None)
        case syntax.BooleanLiteral(value):
            return Constant(BooleanType(value is None), value)
        case syntax.NumberLiteral(text):
            return number(text)
        case syntax.TextLiteral(value):
            return Constant(CharType(len(value), False), without_halves(value))
        case syntax.BinaryLiteral(digits):
            raw = bytes.fromhex(digits)
            return Constant(BinaryType(len(raw), False), raw)
        case syntax.TemporalLiteral(root, text):
            return _point_in_time(root, text)
        case syntax.IntervalLiteral(text, qualifier, is_negative):
            return _interval(text, qualifier, is_negative)
        case syntax.TypedLiteral(value, data_type):
            return Constant(data_type, value)
        case _:
            return None


def _point_in_time(root: str, text: str) -> Constant:
    digits = temporal_text.fraction_digits(text)
    value: int | None
    kind: DataType
    if root == "DATE":
        value, kind = temporal_text.parse_date(text), DateType(False)
    elif root == "TIME":
        value, kind = temporal_text.parse_time(text), TimeType(digits, False)
        value = None if value is None else value // 1_000_000
    else:
        value = temporal_text.parse_timestamp(text)
        kind = (LocalZonedTimestampType if "LTZ" in root else TimestampType)(digits, False)
        if value is not None and temporal_text.is_far(value, digits):
            raise ValidationError(f"Illegal {root} literal {text!r}: {temporal_text.FAR_NANOSECONDS}")
    if value is None:
        raise ValidationError(f"Illegal {root} literal {text!r}: it is not of the form {_FORMS[root.split('_')[0]]}")
    return Constant(kind, value)


_FORMS = {"DATE": "2020-01-31", "TIME": "12:34:56", "TIMESTAMP": "2020-01-31 12:34:56"}
#: milliseconds
_UNITS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_ORDER = ("DAY", "HOUR", "MINUTE", "SECOND")


def interval_type(qualifier: syntax.IntervalQualifier) -> DataType:
    """Return the type of an interval with this qualifier."""
    resolution = qualifier.resolution
    precision = qualifier.precision
    if resolution.is_of_months:
        return YearMonthIntervalType(resolution, 2 if precision is None else precision, False)
    fraction = 6 if qualifier.fraction is None else qualifier.fraction
    return DayTimeIntervalType(resolution, 2 if precision is None else precision, fraction, False)


def _interval(text: str, qualifier: syntax.IntervalQualifier, is_negative: bool) -> Constant:
    kind = interval_type(qualifier)
    written = text.strip()
    sign = -1 if is_negative else 1
    if written[:1] in ("-", "+"):
        sign *= -1 if written[0] == "-" else 1
        written = written[1:].strip()
    try:
        if qualifier.resolution.is_of_months:
            value = _months(written, qualifier.resolution.value)
        else:
            value = _milliseconds(written, qualifier.resolution.value)
    except ValueError as error:
        raise ValidationError(f"Illegal interval literal format {text!r} for {kind}") from error
    return Constant(kind, sign * value * qualifier.times)


def _months(text: str, resolution: str) -> int:
    if resolution == "YEAR TO MONTH":
        years, months = text.split("-")
        return int(years) * 12 + int(months)
    return int(text) * (12 if resolution == "YEAR" else 1)


def _milliseconds(text: str, resolution: str) -> int:
    first, _, last = resolution.partition(" TO ")
    names = _ORDER[_ORDER.index(first) : _ORDER.index(last or first) + 1]
    parts: list[str] = []
    if names[0] == "DAY" and len(names) > 1:
        day, text = text.split()
        parts.append(day)
        parts += text.split(":")
    else:
        parts = text.split(":")
    if len(parts) != len(names):
        raise WrongValueError(f"{text!r} has not as many parts as {resolution}")
    total = Decimal(0)
    for name, part in zip(names, parts, strict=True):
        total += Decimal(part) * _UNITS[name] if name == "SECOND" else Decimal(int(part)) * _UNITS[name]
    return int(total)
