"""Table API expressions, literals from Python values, and the kernel that joins rows with table functions or UNNEST.

`Operand` is the base of all Table API expressions: an SQL syntax node with its column names and sort order.
`to_literal` converts Python values to SQL literals.

`Correlation` joins each row of a batch with the rows that a table function or UNNEST produces from it. UNNEST returns
the elements of arrays and multisets, and the entries of maps, as rows, computed on whole columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError, WrongTimeError, WrongTypeError
from penstock.base.types import Row
from penstock.codecs.arrow_columns import get_map_keys
from penstock.sql.data import datetimes as temporal_text
from penstock.sql.data.arrow import Datum, arrow_type, to_full_array
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
    MultisetType,
    NumericType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
)
from penstock.sql.expressions.columns import Columns
from penstock.sql.expressions.evaluator import Evaluator
from penstock.sql.functions.definition import Session
from penstock.sql.logical.nodes import Correlate
from penstock.sql.parser import syntax, to_sql
from penstock.sql.user_functions.calls import Made, TableKernel, table_kernel


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


def unnest_kernel(collection: DataType, with_ordinality: bool) -> TableKernel:
    """Return the kernel of UNNEST for a collection type. `with_ordinality`: add each element's position, from 1."""

    def kernel(rows: int, column: Datum) -> Made:
        full = to_full_array(column, rows)
        starts, lengths = _spans(full)
        parents = np.repeat(np.arange(rows), lengths)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        indices = np.repeat(starts, lengths) + within
        entries = [get_map_keys(full), full.items] if isinstance(collection, MapType | MultisetType) else [full.values]
        columns = [entry.take(pa.array(indices)) for entry in entries]
        if isinstance(collection, MultisetType):
            times = columns.pop().to_numpy(zero_copy_only=False).astype(np.int64)
            parents = np.repeat(parents, times)
            columns = [columns[0].take(pa.array(np.repeat(np.arange(len(times)), times)))]
        if not isinstance(collection, MapType):
            (element,) = collection.children()
            if isinstance(element, RowType):
                if columns[0].null_count and not with_ordinality:
                    # A NULL row produces no result, as in Flink; a row of NULLs does.
                    is_there = columns[0].is_valid()
                    parents, columns = parents[is_there.to_numpy(zero_copy_only=False)], [columns[0].filter(is_there)]
                columns = columns[0].flatten()
        if with_ordinality:
            columns.append(_numbered(parents))
        return parents, columns

    return kernel


def _spans(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the start and the number of each row's elements; zero elements for NULL."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return offsets[:-1], lengths


def _numbered(parents: npt.NDArray[np.int64]) -> pa.Array:
    """Number the rows of each parent from 1; the rows of a parent are adjacent."""
    numbers = np.arange(len(parents))
    is_first = np.diff(parents, prepend=-1) != 0
    return pa.array(numbers - np.maximum.accumulate(np.where(is_first, numbers, 0)) + 1, pa.int32())


class Correlation:
    """Runs a `Correlate` on columns, with functions opened by `session`."""

    def __init__(self, node: Correlate, session: Session) -> None:
        self._operands = Evaluator(node.operands, session)
        self._kernel = _kernel(node, session)
        self._where = None if node.condition is None else Evaluator([node.condition], session)
        self._keeps = node.keeps
        self._types = [arrow_type(data_type) for data_type in node.schema.types[len(node.input.schema) :]]

    def __call__(self, columns: Columns) -> tuple[Any, list[pa.Array]]:
        """Return, for each result row, the index of its input row (an ascending NumPy array), and the new columns."""
        parents, arrays = self._kernel(columns.rows, *self._operands(columns))
        arrays = [
            array if array.type == kind else array.cast(kind) for array, kind in zip(arrays, self._types, strict=True)
        ]
        if self._where is not None:
            parents, arrays = self._kept(columns, parents, arrays)
        if self._keeps:
            return _with_lonely(columns.rows, parents, arrays)
        return parents, arrays

    def _kept(self, columns: Columns, parents: Any, arrays: list[pa.Array]) -> tuple[Any, list[pa.Array]]:
        """Keep the pairs that satisfy the condition."""
        assert self._where is not None
        rows = columns.take(pa.array(parents, pa.int64()))
        (answers,) = self._where(Columns([*rows.arrays(), *arrays], rows.rows))
        indices = np.flatnonzero(pc.fill_null(answers, False).to_numpy(zero_copy_only=False))
        return parents[indices], [array.take(pa.array(indices)) for array in arrays]


def _kernel(node: Correlate, session: Session) -> TableKernel:
    types = [operand.type for operand in node.operands]
    if node.user is None:
        if node.function != "UNNEST":
            raise UnsupportedError(f"table function {node.function} is not supported")
        return unnest_kernel(types[0], "WITH ORDINALITY" in node.options)
    if session.functions is None:
        raise WrongTimeError(f"{node.user} runs in jobs alone, and not while a query is planned")
    return table_kernel(node.user, types, session.functions)


def _with_lonely(rows: int, parents: Any, arrays: list[pa.Array]) -> tuple[Any, list[pa.Array]]:
    """Add the rows without results, padded with NULL."""
    lonely = np.ones(rows, bool)
    lonely[parents] = False
    indices = np.flatnonzero(lonely)
    if not len(indices):
        return parents, arrays
    both = np.concatenate([parents, indices])
    order = np.argsort(both, kind="stable")
    # An index past the produced rows means NULL.
    chosen = pa.array(order, pa.int64(), mask=order >= len(parents))
    return both[order], [array.take(chosen) for array in arrays]
