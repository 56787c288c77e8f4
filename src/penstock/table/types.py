"""Column types: `DataTypes` creates them, under PyFlink's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.types import Row, RowKind
from penstock.codecs.variant import Variant
from penstock.sql.data.types import (
    LENGTH_MAX,
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntervalResolution,
    IntType,
    ListViewType,
    LocalZonedTimestampType,
    MapType,
    MapViewType,
    MultisetType,
    NullType,
    RowField,
    RowType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    VariantType,
    YearMonthIntervalType,
)

__all__ = [
    "ArrayType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DataType",
    "DataTypes",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "FloatType",
    "IntType",
    "ListViewType",
    "LocalZonedTimestampType",
    "MapType",
    "MapViewType",
    "MultisetType",
    "NullType",
    "Resolution",
    "Row",
    "RowField",
    "RowKind",
    "RowType",
    "SmallIntType",
    "TimeType",
    "TimestampType",
    "TinyIntType",
    "VarBinaryType",
    "VarCharType",
    "Variant",
    "VariantType",
    "YearMonthIntervalType",
]


class Resolution(NamedTuple):
    """A field of an interval and its precision: digits of years and days, or of fractional seconds."""

    unit: str
    precision: int | None = None


class DataTypes:
    """Creates types. Each method has the SQL name of its type; `nullable` says whether the type includes NULL.

    Examples:
        >>> from penstock.table import DataTypes
        >>> DataTypes.DECIMAL(10, 2)
        DECIMAL(10, 2)
        >>> DataTypes.ROW([DataTypes.FIELD("drink", DataTypes.STRING()), DataTypes.FIELD("n", DataTypes.INT())])
        ROW<`drink` STRING, `n` INT>
    """

    @staticmethod
    def NULL() -> NullType:
        """The type of NULL alone."""
        return NullType()

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> CharType:
        """Text of exactly `length` characters."""
        return CharType(length, nullable)

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> VarCharType:
        """Text of at most `length` characters."""
        return VarCharType(length, nullable)

    @staticmethod
    def STRING(nullable: bool = True) -> VarCharType:
        """Text of any length."""
        return VarCharType(LENGTH_MAX, nullable)

    @staticmethod
    def VARIANT(nullable: bool = True) -> VariantType:
        """A value that carries its own type, such as one that PARSE_JSON returns; in Python, a `Variant`."""
        return VariantType(nullable)

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> BooleanType:
        """TRUE and FALSE."""
        return BooleanType(nullable)

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> BinaryType:
        """Exactly `length` bytes."""
        return BinaryType(length, nullable)

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> VarBinaryType:
        """At most `length` bytes."""
        return VarBinaryType(length, nullable)

    @staticmethod
    def BYTES(nullable: bool = True) -> VarBinaryType:
        """Any number of bytes."""
        return VarBinaryType(LENGTH_MAX, nullable)

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DecimalType:
        """A decimal number of `precision` digits in total (1 to 38), `scale` of them after the decimal point."""
        return DecimalType(precision, scale, nullable)

    @staticmethod
    def TINYINT(nullable: bool = True) -> TinyIntType:
        """A one-byte integer."""
        return TinyIntType(nullable)

    @staticmethod
    def SMALLINT(nullable: bool = True) -> SmallIntType:
        """A two-byte integer."""
        return SmallIntType(nullable)

    @staticmethod
    def INT(nullable: bool = True) -> IntType:
        """A four-byte integer."""
        return IntType(nullable)

    @staticmethod
    def BIGINT(nullable: bool = True) -> BigIntType:
        """An eight-byte integer."""
        return BigIntType(nullable)

    @staticmethod
    def FLOAT(nullable: bool = True) -> FloatType:
        """A four-byte floating-point number."""
        return FloatType(nullable)

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DoubleType:
        """An eight-byte floating-point number."""
        return DoubleType(nullable)

    @staticmethod
    def DATE(nullable: bool = True) -> DateType:
        """A calendar date."""
        return DateType(nullable)

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> TimeType:
        """A time of day with `precision` digits of fractional seconds, 0 to 9."""
        return TimeType(precision, nullable)

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> TimestampType:
        """A date and a time of day, without a time zone."""
        return TimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """An instant, displayed in the session's time zone."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> LocalZonedTimestampType:
        """A synonym of `TIMESTAMP_WITH_LOCAL_TIME_ZONE`."""
        return LocalZonedTimestampType(precision, nullable)

    @staticmethod
    def ARRAY(element_type: DataType, nullable: bool = True) -> ArrayType:
        """Elements of one type, in order."""
        return ArrayType(element_type, nullable)

    @staticmethod
    def LIST_VIEW(element_type: DataType) -> ListViewType:
        """A list in the accumulator of an aggregate function."""
        return ListViewType(element_type)

    @staticmethod
    def MAP(key_type: DataType, value_type: DataType, nullable: bool = True) -> MapType:
        """A map from keys to values."""
        return MapType(key_type, value_type, nullable)

    @staticmethod
    def MAP_VIEW(key_type: DataType, value_type: DataType) -> MapViewType:
        """A map in the accumulator of an aggregate function."""
        return MapViewType(key_type, value_type)

    @staticmethod
    def MULTISET(element_type: DataType, nullable: bool = True) -> MultisetType:
        """Elements of one type, each with its number of occurrences."""
        return MultisetType(element_type, nullable)

    @staticmethod
    def ROW(row_fields: Sequence[RowField | DataType] = (), nullable: bool = True) -> RowType:
        """Fields, created by `FIELD`; types alone are named f0, f1 and so on."""
        fields = [
            field if isinstance(field, RowField) else RowField(f"f{index}", field)
            for index, field in enumerate(row_fields)
        ]
        return RowType(fields, nullable)

    @staticmethod
    def FIELD(name: str, data_type: DataType, description: str | None = None) -> RowField:
        """A field of a row."""
        if not isinstance(data_type, DataType):
            raise WrongTypeError(f"the type of field {name!r} must be one of DataTypes, not {data_type!r}")
        return RowField(name, data_type, description)

    @staticmethod
    def SECOND(precision: int = 6) -> Resolution:
        """Seconds with `precision` digits of fractional seconds, 0 to 9; for `INTERVAL`."""
        return Resolution("SECOND", precision)

    @staticmethod
    def MINUTE() -> Resolution:
        """Minutes; for `INTERVAL`."""
        return Resolution("MINUTE")

    @staticmethod
    def HOUR() -> Resolution:
        """Hours; for `INTERVAL`."""
        return Resolution("HOUR")

    @staticmethod
    def DAY(precision: int = 2) -> Resolution:
        """Days of `precision` digits, 1 to 6; for `INTERVAL`."""
        return Resolution("DAY", precision)

    @staticmethod
    def MONTH() -> Resolution:
        """Months; for `INTERVAL`."""
        return Resolution("MONTH")

    @staticmethod
    def YEAR(precision: int = 2) -> Resolution:
        """Years of `precision` digits, 1 to 4; for `INTERVAL`."""
        return Resolution("YEAR", precision)

    @staticmethod
    def INTERVAL(upper_resolution: Resolution, lower_resolution: Resolution | None = None) -> DataType:
        """A length of time from one field to another: years to months, or days to seconds."""
        words = (
            upper_resolution.unit if lower_resolution is None else f"{upper_resolution.unit} TO {lower_resolution.unit}"
        )
        if words not in [interval.value for interval in IntervalResolution]:
            raise WrongValueError(
                f"there is no interval {words}: it goes from a field down to a shorter one of its kind"
            )
        resolution = IntervalResolution(words)
        digits = {bound.unit: bound.precision for bound in (upper_resolution, lower_resolution) if bound is not None}
        if resolution.is_of_months:
            return YearMonthIntervalType(resolution, _or_default(digits.get("YEAR"), 2))
        return DayTimeIntervalType(resolution, _or_default(digits.get("DAY"), 2), _or_default(digits.get("SECOND"), 6))


def _or_default(digits: int | None, default: int) -> int:
    return default if digits is None else digits
