"""The definition of an SQL function: its name, its signature, its result type, and its kernel.

**Signatures.** A signature consists of the operands that a function accepts and the type that it returns. The check of
an operand takes the type that is passed and returns the type to cast it to. A result rule sees the operands after these
casts.

**Kernels.** There are three ways to build the kernel of a function, fastest first: an Arrow kernel, one Python call for
each distinct value, and kernels that a module implements itself. Kernels take columns or scalars; a result that is the
same for all rows may be a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any, Final

import pyarrow as pa

from penstock.base.errors import WrongTimeError
from penstock.sql.data.arrow import Datum, Kernel, to_column, to_scalar, to_values
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BigIntType,
    BitmapType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    NullType,
    NumericType,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    VariantType,
)
from penstock.sql.functions.type_rules import BYTES, INTERVALS, TEXTS, TIMES, can_cast_implicitly, common_type
from penstock.sql.user_functions.definition import OpenFunctions


class _Unknown:
    """Marks the value of an operand that varies from row to row."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __reduce__(self) -> str:
        return "UNKNOWN"


#: The value of an operand that is not constant.
UNKNOWN: Final = _Unknown()


def _no_clock() -> int:
    raise WrongTimeError("this expression asks for the time, and nobody gave it a clock")


@dataclass(frozen=True, slots=True)
class Session:
    """The session as functions see it: its time zone, and `now`, which returns nanoseconds since 1970."""

    zone: tzinfo = UTC
    now: Callable[[], int] = _no_clock
    #: the watermark (ms since 1970) where the expression runs; None before the first one
    watermark: Callable[[], int | None] = lambda: None
    #: whether failing casts return NULL, as in old versions of Flink
    legacy_cast: bool = False
    current_catalog: str = "default_catalog"
    current_database: str = "default_database"
    #: the user-defined functions at run time; None while queries are planned
    functions: OpenFunctions | None = None


@dataclass(frozen=True, slots=True)
class Operands:
    """The operands of one call: their types and, where they are constant, their values."""

    types: tuple[DataType, ...]
    values: tuple[object, ...] = ()
    options: tuple[str, ...] = ()
    session: Session = field(default_factory=Session)
    _found: dict[object, DataType | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, rule: Callable[[Operands], DataType | None]) -> DataType | None:
        """Return the result of a rule for all operands together, computed only once."""
        if rule not in self._found:
            self._found[rule] = rule(self)
        return self._found[rule]

    def __len__(self) -> int:
        return len(self.types)

    def value(self, index: int) -> object:
        """Return the value of a constant operand, else `UNKNOWN`."""
        return self.values[index] if index < len(self.values) else UNKNOWN

    def any_nullable(self) -> bool:
        """Return whether any operand may be NULL."""
        return any(data_type.is_nullable for data_type in self.types)


#: checks one operand of a call; returns the type to cast it to, or None if it is rejected
Check = Callable[[Operands, int], DataType | None]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a signature. `label`: its text in error messages."""

    label: str
    check: Check


@dataclass(frozen=True, slots=True)
class Signature:
    """The operands of a call, in order. The last `optional` ones may be omitted, the last `repeated` ones repeated."""

    operands: tuple[Operand, ...] = ()
    optional: int = 0
    repeated: int = 0

    def match(self, call: Operands) -> tuple[DataType, ...] | None:
        """Return the types that the operands are cast to, or None if they do not match."""
        expected = self._expected(len(call))
        if expected is None:
            return None
        types = [operand.check(call, index) for index, operand in enumerate(expected)]
        return None if None in types else tuple(data_type for data_type in types if data_type is not None)

    def takes(self, count: int) -> bool:
        """Return whether it accepts `count` operands."""
        return self._expected(count) is not None

    def _expected(self, count: int) -> tuple[Operand, ...] | None:
        least = len(self.operands) - self.optional
        if least <= count <= len(self.operands):
            return self.operands[:count]
        if self.repeated and count > len(self.operands):
            again, rest = divmod(count - len(self.operands), self.repeated)
            return None if rest else self.operands + self.operands[-self.repeated :] * again
        return None

    def __str__(self) -> str:
        labels = [operand.label for operand in self.operands]
        return f"({', '.join([*labels, '...'] if self.repeated else labels)})"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, for creating its kernel: the operands after their implicit casts, and the result type."""

    operands: Operands
    result: DataType

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of the operands."""
        return self.operands.types

    @property
    def session(self) -> Session:
        """The session."""
        return self.operands.session

    @property
    def options(self) -> tuple[str, ...]:
        """The keywords of its own syntax."""
        return self.operands.options

    def value(self, index: int) -> object:
        """Return the value of a constant operand, else `UNKNOWN`."""
        return self.operands.value(index)


ResultRule = Callable[[Operands], DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A scalar function, or an operator.

    `name`: the SQL name, in capitals. `python_name`: the method or function of the Table API, if it differs.
    """

    name: str
    signatures: tuple[Signature, ...]
    result: ResultRule
    #: creates the kernel of a call
    bind: Callable[[Call], Kernel]
    python_name: str = ""
    #: other names in SQL
    aliases: tuple[str, ...] = ()
    #: whether a call may fail for some values, or a function of its operands that decides it; such calls run only for
    #: the rows that need them
    can_fail: bool | Callable[[Operands], bool] = False
    is_deterministic: bool = True
    #: whether a call with constants becomes a constant at planning time
    is_folded: bool = True
    #: whether its value is constant within a batch query, and varies from row to row in a stream
    is_dynamic: bool = False
    #: the indexes of the operands that the kernel takes, if it has absorbed the constant ones
    evaluated_operands: Callable[[Operands], Sequence[int]] | None = None
    #: whether the kernel's first argument is the number of rows
    takes_rows: bool = False
    #: the section in the function reference
    section: str = ""
    #: its syntax, and a sentence about its result
    usage: str = ""
    summary: str = ""

    def may_fail(self, call: Operands) -> bool:
        """Return whether a call with these operands may fail."""
        return self.can_fail if isinstance(self.can_fail, bool) else self.can_fail(call)


def scalar(
    name: str,
    signatures: Signature | Sequence[Signature],
    result: ResultRule,
    bind: Callable[[Call], Kernel],
    summary: str = "",
    **more: object,
) -> ScalarFunction:
    """Define a function."""
    all_signatures = tuple(signatures) if isinstance(signatures, Sequence) else (signatures,)
    return ScalarFunction(name=name, signatures=all_signatures, result=result, bind=bind, summary=summary, **more)  # type: ignore[arg-type]


STRING = VarCharType(LENGTH_MAX)
BYTES_TYPE = VarBinaryType(LENGTH_MAX)
BOOLEAN_TYPE = BooleanType()
INT = IntType()
BIGINT = BigIntType()
DOUBLE = DoubleType()


def takes(*operands: Operand, optional: int = 0, repeated: int = 0) -> Signature:
    """Create a signature."""
    return Signature(operands, optional, repeated)


def family(label: str, kinds: type[DataType] | tuple[type[DataType], ...], default: DataType) -> Operand:
    """Accept operands of these type classes without a cast. `default`: the type for a NULL literal."""

    def check(call: Operands, index: int) -> DataType | None:
        data_type = call.types[index]
        return default if isinstance(data_type, NullType) else data_type if isinstance(data_type, kinds) else None

    return Operand(f"<{label}>", check)


def exactly(target: DataType) -> Operand:
    """Accept operands that can be cast to a type without loss."""

    def check(call: Operands, index: int) -> DataType | None:
        data_type = call.types[index]
        if not can_cast_implicitly(data_type, target):
            return None
        return target.nullable() if data_type.is_nullable else target.not_null()

    return Operand(str(target.nullable()), check)


def literal(operand: Operand) -> Operand:
    """Require a constant operand."""

    def check(call: Operands, index: int) -> DataType | None:
        return None if call.value(index) is UNKNOWN else operand.check(call, index)

    return Operand(operand.label.replace(">", " NOT NULL>"), check)


def either(*operands: Operand) -> Operand:
    """Accept an operand that matches any of several; the first match wins."""

    def check(call: Operands, index: int) -> DataType | None:
        return next((data_type for operand in operands if (data_type := operand.check(call, index)) is not None), None)

    return Operand(f"[{' | '.join(operand.label for operand in operands)}]", check)


def where(label: str, accepts: Callable[[Operands, int], DataType | None]) -> Operand:
    """Accept an operand by a custom check."""
    return Operand(label, accepts)


def alike(label: str = "COMMON") -> Operand:
    """Cast the operand to the common type of all operands."""

    def check(call: Operands, index: int) -> DataType | None:
        common = call.once(all_in_common)
        if common is None:
            return None
        nullable = call.types[index].is_nullable
        return common.nullable() if nullable else common.not_null()

    return Operand(f"<{label}>", check)


def all_in_common(call: Operands) -> DataType | None:
    """Return the common type of all operands."""
    return common_type(call.types)


def _anything(call: Operands, index: int) -> DataType | None:
    return call.types[index]


ANY = Operand("<ANY>", _anything)
TEXT = family("CHARACTER_STRING", TEXTS, STRING)
BINARY = family("BINARY_STRING", BYTES, BYTES_TYPE)
NUMERIC = family("NUMERIC", NumericType, INT)
INTEGER = family("INTEGER_NUMERIC", IntegralType, INT)
EXACT = family("EXACT_NUMERIC", (IntegralType, DecimalType), INT)
APPROXIMATE = family("APPROXIMATE_NUMERIC", (FloatType, DoubleType), DOUBLE)
DECIMAL = family("DECIMAL", DecimalType, DecimalType())
BOOLEAN = family("BOOLEAN", BooleanType, BOOLEAN_TYPE)
DATE = family("DATE", DateType, DateType())
TIME = family("TIME", TimeType, TimeType())
TIMESTAMP = family("TIMESTAMP", TimestampType, TimestampType(3))
TIMESTAMP_LTZ = family("TIMESTAMP_LTZ", LocalZonedTimestampType, LocalZonedTimestampType(3))
POINT_IN_TIME = family("DATETIME", TIMES, TimestampType(3))
INTERVAL = family("INTERVAL", INTERVALS, DataType())
ARRAY = family("ARRAY", ArrayType, ArrayType(NullType()))
MAP = family("MAP", MapType, MapType(NullType(), NullType()))
MULTISET = family("MULTISET", MultisetType, MultisetType(NullType()))
ROW = family("ROW", RowType, RowType())
VARIANT = family("VARIANT", VariantType, VariantType())
BITMAP = family("BITMAP", BitmapType, BitmapType())
TINYINT_TO_INT = family("INTEGER", (TinyIntType, SmallIntType, IntType), INT)
AS_STRING = exactly(STRING)
AS_INT = exactly(INT)
AS_BIGINT = exactly(BIGINT)
AS_DOUBLE = exactly(DOUBLE)
AS_BOOLEAN = exactly(BOOLEAN_TYPE)


# --- what a function gives -------------------------------------------------------------------------------------------


def returns(data_type: DataType) -> ResultRule:
    """Return this type, nullable if any operand is."""

    def rule(call: Operands) -> DataType:
        return data_type.nullable() if call.any_nullable() else data_type.not_null()

    return rule


def returns_nullable(data_type: DataType) -> ResultRule:
    """Return this type, always nullable."""
    return lambda call: data_type.nullable()


def returns_not_null(data_type: DataType) -> ResultRule:
    """Return this type, never nullable."""
    return lambda call: data_type.not_null()


def returns_operand(index: int) -> ResultRule:
    """Return the type of an operand, nullable if any operand is."""

    def rule(call: Operands) -> DataType:
        data_type = call.types[index]
        return data_type.nullable() if call.any_nullable() else data_type.not_null()

    return rule


def returns_common(call: Operands) -> DataType:
    """Return the common type of all operands, nullable if any operand is."""
    common = common_type(call.types)
    assert common is not None  # checked by the signature
    return common


def nullable(rule: ResultRule) -> ResultRule:
    """Return the result of another rule, made nullable."""
    return lambda call: rule(call).nullable()


def returns_text(call: Operands) -> DataType:
    """Return VARCHAR of the first operand's length, nullable if any operand is."""
    length = max(getattr(call.types[0], "length", LENGTH_MAX), 1)
    return VarCharType(length, call.any_nullable())


def arrow(function: Callable[..., Datum], **options: object) -> Callable[[Call], Kernel]:
    """Wrap an Arrow function that already returns the Arrow type of the function's result."""

    def kernel(*columns: Datum) -> Datum:
        return function(*columns, **options)

    return lambda call: kernel


def per_value(function: Callable[..., object], takes_null: bool = False) -> Callable[[Call], Kernel]:
    """Wrap a Python function of single values (`penstock.sql.data.arrow`), called once for each distinct value.

    Any NULL among the operands yields NULL without a call, unless `takes_null` is set.
    """

    def bind(call: Call) -> Kernel:
        return value_kernel(function, call.types, call.result, takes_null)

    return bind


class ValueKernel:
    """A kernel, and the Python function that gives the same for single values.

    `takes_null`: whether the function is called with NULL. Otherwise any NULL gives NULL.
    """

    __slots__ = ("_kernel", "function", "takes_null")

    def __init__(self, kernel: Kernel, function: Callable[..., object], takes_null: bool = False) -> None:
        self._kernel = kernel
        self.function = function
        self.takes_null = takes_null

    def __call__(self, *columns: Datum) -> Datum:
        """Run the kernel."""
        return self._kernel(*columns)

    def made_faster(self, kernel: Kernel) -> ValueKernel:
        """Return a faster kernel with the same results."""
        return ValueKernel(kernel, self.function, self.takes_null)


def value_kernel(
    function: Callable[..., object], types: Sequence[DataType], result: DataType, takes_null: bool = False
) -> ValueKernel:
    """Return the kernel of a Python function of single values."""

    def checked(*operands: object) -> object:
        return function(*operands) if takes_null or None not in operands else None

    def of_one(column: Datum, constants: list[object], position: int) -> Datum:
        """Evaluate with one column; the other operands are the same for all rows."""

        def made(value: object) -> object:
            return checked(*constants[:position], value, *constants[position:])

        if _can_be_encoded(column.type) and len(column) > _FEW:
            encoded = column.dictionary_encode(null_encoding="encode")
            if len(encoded.dictionary) <= len(column) // 2:
                distinct = to_column([made(value) for value in to_values(encoded.dictionary, types[position])], result)
                return distinct.take(encoded.indices)
        return to_column([made(value) for value in to_values(column, types[position])], result)

    def kernel(*columns: Datum) -> Datum:
        full = [index for index, column in enumerate(columns) if isinstance(column, pa.Array)]
        if not full:
            single = [to_values(column, data_type)[0] for column, data_type in zip(columns, types, strict=True)]
            return to_scalar(checked(*single), result)
        if len(full) == 1:
            position = full[0]
            constants: list[Any] = [
                to_values(column, data_type)[0]
                for index, (column, data_type) in enumerate(zip(columns, types, strict=True))
                if index != position
            ]
            return of_one(columns[position], constants, position)
        rows = len(columns[full[0]])
        listed = [
            to_values(column, data_type) if isinstance(column, pa.Array) else to_values(column, data_type) * rows
            for column, data_type in zip(columns, types, strict=True)
        ]
        return to_column([checked(*operands) for operands in zip(*listed, strict=True)], result)

    return ValueKernel(kernel, function, takes_null)


#: with fewer rows, distinct values are not looked for
_FEW = 16


def _can_be_encoded(data_type: pa.DataType) -> bool:
    return not pa.types.is_nested(data_type) and not pa.types.is_null(data_type) and not pa.types.is_floating(data_type)
