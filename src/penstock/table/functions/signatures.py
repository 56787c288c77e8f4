"""Which operands functions take, and which types they give.

An operand is checked by the type of what is passed, and says the type to which that is cast; a result rule sees the
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
    """A signature."""
    return Signature(operands, optional, repeated)


def family(label: str, kinds: type[DataType] | tuple[type[DataType], ...], default: DataType) -> Operand:
    """An operand of one of these classes of types, taken as it is. `default`: the type of a NULL."""

    def check(call: Operands, index: int) -> DataType | None:
        found = call.types[index]
        return default if isinstance(found, NullType) else found if isinstance(found, kinds) else None

    return Operand(f"<{label}>", check)


def exactly(wanted: DataType) -> Operand:
    """An operand that is cast to this type, where that loses nothing."""

    def check(call: Operands, index: int) -> DataType | None:
        found = call.types[index]
        if not can_cast_implicitly(found, wanted):
            return None
        return wanted.nullable() if found.is_nullable else wanted.not_null()

    return Operand(str(wanted.nullable()), check)


def literal(operand: Operand) -> Operand:
    """An operand that must be constant."""

    def check(call: Operands, index: int) -> DataType | None:
        return None if call.value(index) is UNKNOWN else operand.check(call, index)

    return Operand(operand.label.replace(">", " NOT NULL>"), check)


def either(*operands: Operand) -> Operand:
    """An operand that one of these takes: the first that does."""

    def check(call: Operands, index: int) -> DataType | None:
        return next((found for one in operands if (found := one.check(call, index)) is not None), None)

    return Operand(f"[{' | '.join(one.label for one in operands)}]", check)


def where(label: str, accepts: Callable[[Operands, int], DataType | None]) -> Operand:
    """An operand with a check of its own."""
    return Operand(label, accepts)


def alike(label: str = "COMMON") -> Operand:
    """One of operands that are all cast to the type that they have in common."""

    def check(call: Operands, index: int) -> DataType | None:
        found = call.once(all_in_common)
        if found is None:
            return None
        nullable = call.types[index].is_nullable
        return found.nullable() if nullable else found.not_null()

    return Operand(f"<{label}>", check)


def all_in_common(call: Operands) -> DataType | None:
    """The type that all operands have in common."""
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


def returns(found: DataType) -> ResultRule:
    """This type, with NULL where an operand has it."""

    def rule(call: Operands) -> DataType:
        return found.nullable() if call.any_nullable() else found.not_null()

    return rule


def returns_nullable(found: DataType) -> ResultRule:
    """This type with NULL."""
    return lambda call: found.nullable()


def returns_not_null(found: DataType) -> ResultRule:
    """This type without NULL."""
    return lambda call: found.not_null()


def returns_operand(index: int) -> ResultRule:
    """The type of an operand, with NULL where any operand has it."""

    def rule(call: Operands) -> DataType:
        found = call.types[index]
        return found.nullable() if call.any_nullable() else found.not_null()

    return rule


def returns_common(call: Operands) -> DataType:
    """The type that all operands have in common, with NULL where any operand has it."""
    found = common_type(call.types)
    assert found is not None  # the signature has checked it
    return found


def nullable(rule: ResultRule) -> ResultRule:
    """What another rule gives, with NULL."""
    return lambda call: rule(call).nullable()


def returns_text(call: Operands) -> DataType:
    """The first operand's text with any length up to its own, with NULL where an operand has it."""
    length = max(getattr(call.types[0], "length", LENGTH_MAX), 1)
    return VarCharType(length, call.any_nullable())
