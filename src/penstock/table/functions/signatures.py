"""Signatures of functions: the operands that they accept and the types that they return.

The check of an operand takes the type that is passed and returns the type to cast it to. A result rule sees the
operands after these casts.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.table.data.logical_types import (
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
from penstock.table.functions.definition import UNKNOWN, Operand, Operands, ResultRule, Signature
from penstock.table.functions.type_rules import BYTES, INTERVALS, TEXTS, TIMES, can_cast_implicitly, common_type

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
