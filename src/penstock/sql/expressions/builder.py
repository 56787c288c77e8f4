"""Converts Python values to SQL literals.

The base of all Table API expressions: an SQL syntax node with its column names and sort order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from penstock.base.errors import WrongTypeError
from penstock.base.types import Row
from penstock.sql.data import datetimes as temporal_text
from penstock.sql.data.errors import ValidationError
from penstock.sql.data.types import (
    PRECISION_MAX,
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntervalResolution,
    LocalZonedTimestampType,
    MapType,
    NumericType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.parser import syntax, to_sql


def to_literal(value: object, data_type: DataType | None = None) -> syntax.Expression:
    """Return a value as a literal of the given type, or of the type inferred from the value.

    Raises `WrongTypeError` if the value cannot be a literal, and `ValidationError` if the type does not accept it.
    """
    if value is None:
        return syntax.NullLiteral() if data_type is None else syntax.TypedLiteral(None, data_type.nullable())
    for kinds, make, fits in _LITERALS:
        if isinstance(value, kinds):
            if data_type is None:
                return make(value)
            if not isinstance(data_type, fits):
                raise ValidationError(
                    f"Data type '{data_type}' does not support a value literal of a class '{type(value).__name__}'."
                )
            return syntax.Cast(make(value), data_type)
    raise WrongTypeError(f"{value!r} cannot be a literal: take a column, an expression or a plain value of Python")


def _whole_number(value: int) -> syntax.Expression:
    return _signed(str(abs(value)), value < 0)


def _float(value: float) -> syntax.Expression:
    if not math.isfinite(value):
        return syntax.TypedLiteral(value, DoubleType(False))
    digits = repr(abs(value))
    return _signed(digits if "e" in digits else f"{digits}E0", math.copysign(1, value) < 0)


def _signed(digits: str, is_negative: bool) -> syntax.Expression:
    number = syntax.NumberLiteral(digits)
    return syntax.Call("MINUS_PREFIX", (number,)) if is_negative else number


def _decimal(value: Decimal) -> syntax.Expression:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValidationError(f"{value} is no decimal number of SQL")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > PRECISION_MAX:
        raise ValidationError(f"the number {value} has more than {PRECISION_MAX} digits")
    return syntax.TypedLiteral(value.quantize(Decimal(1).scaleb(-scale)), DecimalType(precision, scale, False))


def _moment(value: datetime) -> syntax.Expression:
    if value.tzinfo is None:
        return syntax.TemporalLiteral("TIMESTAMP", _without_zeros(value.isoformat(" "), value.microsecond))
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    nanoseconds = since // timedelta(microseconds=1) * 1_000
    digits = temporal_text.fraction_digits(_without_zeros(value.replace(tzinfo=None).isoformat(), value.microsecond))
    return syntax.TypedLiteral(nanoseconds, LocalZonedTimestampType(digits, False))


def _time(value: time) -> syntax.Expression:
    text = value.replace(tzinfo=None).isoformat()
    return syntax.TemporalLiteral("TIME", _without_zeros(text, value.microsecond))


def _without_zeros(text: str, microsecond: int) -> str:
    return text.rstrip("0") if microsecond else text


def _length_of_time(value: timedelta) -> syntax.Expression:
    is_negative = value < timedelta()
    value = abs(value)
    seconds, minutes, hours = value.seconds % 60, value.seconds // 60 % 60, value.seconds // 3600
    fraction = f".{value.microseconds:06d}" if value.microseconds else ""
    text = f"{value.days} {hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"
    qualifier = syntax.IntervalQualifier(IntervalResolution.DAY_TO_SECOND, max(len(str(value.days)), 2))
    return syntax.IntervalLiteral(text, qualifier, is_negative)


def _map(value: Mapping[Any, Any]) -> syntax.Expression:
    return syntax.Collection("MAP", tuple(to_literal(item) for pair in value.items() for item in pair))


#: Python types, their converters, and the SQL types that accept them; bool comes first because it is a subclass of int
_LITERALS: Final[tuple[tuple[Any, Callable[[Any], syntax.Expression], tuple[type[DataType], ...]], ...]] = (
    (bool, syntax.BooleanLiteral, (BooleanType,)),
    (int, _whole_number, (NumericType,)),
    (float, _float, (NumericType,)),
    (Decimal, _decimal, (NumericType,)),
    (str, syntax.TextLiteral, (CharType, VarCharType)),
    ((bytes, bytearray), lambda value: syntax.BinaryLiteral(value.hex().upper()), (BinaryType, VarBinaryType)),
    (datetime, _moment, (TimestampType, LocalZonedTimestampType)),
    (date, lambda value: syntax.TemporalLiteral("DATE", value.isoformat()), (DateType,)),
    (time, _time, (TimeType,)),
    (timedelta, _length_of_time, (DayTimeIntervalType,)),
    (list, lambda value: syntax.Collection("ARRAY", tuple(map(to_literal, value))), (ArrayType,)),
    (Mapping, _map, (MapType,)),
    ((tuple, Row), lambda value: syntax.numbered_row(map(to_literal, value)), (RowType,)),
)


OperandT = TypeVar("OperandT", bound="Operand")


class Operand:
    """An SQL syntax node.

    `names`: the column names, if any; `is_descending`: the sort order, if any.
    """

    def __init__(self, node: syntax.Expression, names: tuple[str, ...] = (), is_descending: bool | None = None) -> None:
        self._node = node
        self._names = names
        self._is_descending = is_descending

    def _new(self, node: syntax.Expression) -> Self:
        return type(self)(node)

    def _called(self, name: str, *operands: object, **more: Any) -> Self:
        """Call an SQL function on the expression and further operands. Operands that are None are omitted."""
        given = (operand for operand in operands if operand is not None)
        return self._new(build_call(name, self, *given, **more))

    def _operated(self, operator: str, *operands: object) -> Self:
        """Apply an SQL operator to the expression and others."""
        return self._new(syntax.Call(operator, (self._node, *map(to_node, operands))))

    def _chained(self, operator: str, other: object) -> Self:
        """Combine two expressions with AND or OR. An existing chain of the same operator is extended."""
        node = self._node
        is_chain = isinstance(node, syntax.Call) and node.name == operator and not node.path
        before = node.operands if is_chain and isinstance(node, syntax.Call) else (node,)
        return self._new(syntax.Call(operator, (*before, to_node(other))))

    def __str__(self) -> str:
        order = {None: "", False: " ASC", True: " DESC"}[self._is_descending]
        names = f" AS {', '.join(self._names)}" if self._names else ""
        return to_sql(self._node) + names + order

    __repr__ = __str__


class Derived(property):
    """A property of expressions that returns another expression."""

    def __init__(self, make: Callable[[Operand], Operand], text: str) -> None:
        super().__init__(make)
        self.__doc__ = text

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, instance: OperandT, owner: type | None = None) -> OperandT: ...
        def __get__(self, instance: Operand | None, owner: type | None = None) -> Any: ...


class Unary(Derived):
    """A property that calls an SQL function on the expression alone."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._called(name), text)


class Test(Derived):
    """A property that applies a postfix operator such as IS NULL."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(lambda operand: operand._operated(name), text)


def to_node(value: object) -> syntax.Expression:
    """Return the node of an expression, or a Python value as a literal."""
    return value._node if isinstance(value, Operand) else to_literal(value)


def build_call(name: str, *operands: object, **more: Any) -> syntax.Call:
    """Create a call of an SQL function. `more`: further fields of the node, such as `options`."""
    return syntax.Call(name, tuple(map(to_node, operands)), (name,), **more)
