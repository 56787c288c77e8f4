"""The types of columns: Flink's logical types, under PyFlink's names.

A type describes the values of a column and whether they may be NULL, not their storage: the runtime stores columns in
Arrow. Types are compared by value, and `str` returns the SQL text of a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import ClassVar, Final, Self, overload

from penstock.base.errors import UnknownNameError, WrongValueError

#: The length of STRING and BYTES.
LENGTH_MAX: Final = 2**31 - 1
PRECISION_MAX: Final = 38
FRACTION_DIGITS_MAX: Final = 9


class DataType:
    """The type of a column or of a part of one. `nullable`: whether values may be NULL."""

    #: the type's name in SQL
    root: ClassVar[str] = ""

    def __init__(self, nullable: bool = True) -> None:
        self._nullable = nullable

    @property
    def is_nullable(self) -> bool:
        """Whether values may be NULL."""
        return self._nullable

    @classmethod
    def type_name(cls) -> str:
        """Return the class name without `Type`, in upper case."""
        return cls.__name__.removesuffix("Type").upper()

    def nullable(self) -> Self:
        """Return the nullable variant of the type."""
        return self._replace_nullability(True)

    def not_null(self) -> Self:
        """Return the NOT NULL variant of the type."""
        return self._replace_nullability(False)

    def _replace_nullability(self, nullable: bool) -> Self:
        if self._nullable is nullable:
            return self
        other = object.__new__(type(self))  # `copy` is several times slower, and plans call this often
        vars(other).update(vars(self), _nullable=nullable)
        return other

    def children(self) -> Iterator[DataType]:
        """Return the types that this one consists of."""
        return iter(self._children())

    def _children(self) -> Iterable[DataType]:
        return ()

    def _text(self) -> str:
        """Return the SQL text of the type, without NOT NULL."""
        return self.root

    def __str__(self) -> str:
        return self._text() if self._nullable else f"{self._text()} NOT NULL"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(str(self))


class AtomicType(DataType):
    """A type without component types."""


class NullType(AtomicType):
    """The type of NULL alone, before its actual type is known."""

    root = "NULL"

    def __init__(self) -> None:
        super().__init__(True)


class BooleanType(AtomicType):
    """TRUE and FALSE."""

    root = "BOOLEAN"


class NumericType(AtomicType):
    """A number."""


class IntegralType(NumericType):
    """An integer with a fixed number of bytes."""


class TinyIntType(IntegralType):
    """One byte."""

    root = "TINYINT"


class SmallIntType(IntegralType):
    """Two bytes."""

    root = "SMALLINT"


class IntType(IntegralType):
    """Four bytes."""

    root = "INT"


class BigIntType(IntegralType):
    """Eight bytes."""

    root = "BIGINT"


class FractionalType(NumericType):
    """A number with a fraction."""


class FloatType(FractionalType):
    """Four bytes."""

    root = "FLOAT"


class DoubleType(FractionalType):
    """Eight bytes."""

    root = "DOUBLE"


class DecimalType(FractionalType):
    """A decimal number with `precision` digits in total (1 to 38), `scale` of them after the decimal point."""

    root = "DECIMAL"

    def __init__(self, precision: int = 10, scale: int = 0, nullable: bool = True) -> None:
        super().__init__(nullable)
        _check("DECIMAL", "precision", precision, 1, PRECISION_MAX)
        _check("DECIMAL", "scale", scale, 0, precision)
        self.precision, self.scale = precision, scale

    def _text(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


class _LengthType(AtomicType):
    """Characters or bytes, with a `length`."""

    #: the type's name in SQL at its greatest length
    longest: ClassVar[str] = ""

    def __init__(self, length: int = 1, nullable: bool = True) -> None:
        super().__init__(nullable)
        _check(self.root, "length", length, 0 if type(self) in (CharType, BinaryType) else 1, LENGTH_MAX)
        self.length = length

    def _text(self) -> str:
        is_longest = bool(self.longest) and self.length == LENGTH_MAX
        return self.longest if is_longest else f"{self.root}({self.length})"


class CharType(_LengthType):
    """Text of exactly `length` characters."""

    root = "CHAR"


class VarCharType(_LengthType):
    """Text of at most `length` characters."""

    root, longest = "VARCHAR", "STRING"


class BinaryType(_LengthType):
    """Exactly `length` bytes."""

    root = "BINARY"


class VarBinaryType(_LengthType):
    """At most `length` bytes."""

    root, longest = "VARBINARY", "BYTES"


class DateType(AtomicType):
    """A date."""

    root = "DATE"


class _FractionType(AtomicType):
    """A time with `precision` fractional digits of a second, 0 to 9."""

    def __init__(self, precision: int = 6, nullable: bool = True) -> None:
        super().__init__(nullable)
        _check(self.root, "precision", precision, 0, FRACTION_DIGITS_MAX)
        self.precision = precision

    def _text(self) -> str:
        return f"{self.root}({self.precision})"


class TimeType(_FractionType):
    """A time of day."""

    root = "TIME"

    def __init__(self, precision: int = 0, nullable: bool = True) -> None:
        super().__init__(precision, nullable)


class TimestampType(_FractionType):
    """A date and a time of day, without a time zone."""

    root = "TIMESTAMP"


class LocalZonedTimestampType(_FractionType):
    """An instant, shown in the session time zone."""

    root = "TIMESTAMP_LTZ"


class ZonedTimestampType(_FractionType):
    """An instant with the time zone that it is shown in."""

    root = "TIMESTAMP"

    def _text(self) -> str:
        return f"TIMESTAMP({self.precision}) WITH TIME ZONE"


class IntervalResolution(Enum):
    """The fields of an interval, from the first to the last."""

    YEAR = "YEAR"
    YEAR_TO_MONTH = "YEAR TO MONTH"
    MONTH = "MONTH"
    DAY = "DAY"
    DAY_TO_HOUR = "DAY TO HOUR"
    DAY_TO_MINUTE = "DAY TO MINUTE"
    DAY_TO_SECOND = "DAY TO SECOND"
    HOUR = "HOUR"
    HOUR_TO_MINUTE = "HOUR TO MINUTE"
    HOUR_TO_SECOND = "HOUR TO SECOND"
    MINUTE = "MINUTE"
    MINUTE_TO_SECOND = "MINUTE TO SECOND"
    SECOND = "SECOND"

    @property
    def is_of_months(self) -> bool:
        """Whether it counts months, whose lengths differ, rather than milliseconds."""
        return self in (IntervalResolution.YEAR, IntervalResolution.YEAR_TO_MONTH, IntervalResolution.MONTH)


class YearMonthIntervalType(AtomicType):
    """A number of months. `precision`: digits of the years."""

    root = "INTERVAL"
    DEFAULT_PRECISION: ClassVar = 2

    def __init__(
        self,
        resolution: IntervalResolution = IntervalResolution.YEAR_TO_MONTH,
        precision: int = 2,
        nullable: bool = True,
    ) -> None:
        super().__init__(nullable)
        _check("INTERVAL", "precision", precision, 1, 4)
        self.resolution, self.precision = resolution, precision

    def _text(self) -> str:
        if self.resolution is IntervalResolution.MONTH:
            return "INTERVAL MONTH"
        first, to, last = self.resolution.value.partition(" ")
        return f"INTERVAL {first}({self.precision}){to}{last}"


class DayTimeIntervalType(AtomicType):
    """A duration. `day_precision`: digits of the days; `fractional_precision`: fractional digits of a second."""

    root = "INTERVAL"
    DEFAULT_DAY_PRECISION: ClassVar = 2
    DEFAULT_FRACTIONAL_PRECISION: ClassVar = 6

    def __init__(
        self,
        resolution: IntervalResolution = IntervalResolution.DAY_TO_SECOND,
        day_precision: int = 2,
        fractional_precision: int = 6,
        nullable: bool = True,
    ) -> None:
        super().__init__(nullable)
        _check("INTERVAL", "precision of days", day_precision, 1, 6)
        _check("INTERVAL", "precision of seconds", fractional_precision, 0, FRACTION_DIGITS_MAX)
        self.resolution, self.day_precision = resolution, day_precision
        self.fractional_precision = fractional_precision

    def _text(self) -> str:
        words = self.resolution.value.split(" ")
        digits = {"DAY": f"({self.day_precision})", "SECOND": f"({self.fractional_precision})"}
        return "INTERVAL " + " ".join(word + digits.get(word, "") for word in words)


class ArrayType(DataType):
    """Elements of one type, in order."""

    root = "ARRAY"

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.element_type = element_type

    def _children(self) -> Iterable[DataType]:
        return (self.element_type,)

    def _text(self) -> str:
        return f"{self.root}<{self.element_type}>"


class MultisetType(ArrayType):
    """Elements of one type, each with the number of its occurrences."""

    root = "MULTISET"


class MapType(DataType):
    """Keys, and a value for each."""

    root = "MAP"

    def __init__(self, key_type: DataType, value_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.key_type, self.value_type = key_type, value_type

    def _children(self) -> Iterable[DataType]:
        return (self.key_type, self.value_type)

    def _text(self) -> str:
        return f"{self.root}<{self.key_type}, {self.value_type}>"


class RowField:
    """A field of a row: its name, its type and a description."""

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        self.name, self.data_type, self.description = name, data_type, description

    def __str__(self) -> str:
        text = f"{quoted(self.name)} {self.data_type}"
        return text if self.description is None else f"{text} {literal(self.description)}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(str(self))


class RowType(DataType):
    """Named fields of any types."""

    root = "ROW"

    def __init__(self, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        super().__init__(nullable)
        self.fields = tuple(fields)

    def field_names(self) -> list[str]:
        """Return the names of the fields, in order."""
        return [field.name for field in self.fields]

    def field_types(self) -> list[DataType]:
        """Return the types of the fields, in order."""
        return [field.data_type for field in self.fields]

    def add(self, field: RowField | str, data_type: DataType | None = None) -> Self:
        """Add a field, given directly or by its name and type. Modifies and returns the type itself.

        Raises:
            ValueError: for a name without a type.
        """
        if isinstance(field, str):
            if data_type is None:
                raise WrongValueError(f"Must specify DataType if passing name of field: {field!r} has none")
            field = RowField(field, data_type)
        self.fields = (*self.fields, field)
        return self

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __bool__(self) -> bool:
        return True

    @overload
    def __getitem__(self, key: str | int) -> RowField: ...

    @overload
    def __getitem__(self, key: slice) -> RowType: ...

    def __getitem__(self, key: str | int | slice) -> RowField | RowType:
        """Return the field with a name or an index, or a ROW of the fields of a slice.

        Raises:
            KeyError: if no field has this name.
            IndexError: if no field has this index.
        """
        if isinstance(key, str):
            match = next((field for field in self.fields if field.name == key), None)
            if match is None:
                raise UnknownNameError(f"No RowField named {key}: there are {', '.join(self.field_names())}")
            return match
        if isinstance(key, slice):
            return RowType(self.fields[key])
        return self.fields[key]

    def _children(self) -> Iterable[DataType]:
        return self.field_types()

    def _text(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>"


class StructuredType(RowType):
    """Fields of a user-defined class, identified by `class_name`."""

    root = "STRUCTURED"

    def __init__(self, class_name: str, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        super().__init__(fields, nullable)
        self.class_name = class_name

    def _text(self) -> str:
        return f"STRUCTURED<{', '.join([literal(self.class_name), *map(str, self.fields)])}>"


class RawType(AtomicType):
    """A Python object that only user-defined functions inspect."""

    root = "RAW"

    def __init__(self, class_name: str = "object", serializer: str = "", nullable: bool = True) -> None:
        super().__init__(nullable)
        self.class_name, self.serializer = class_name, serializer

    def _text(self) -> str:
        return f"RAW({literal(self.class_name)}, {literal(self.serializer)})"


class VariantType(AtomicType):
    """A value that carries its own type."""

    root = "VARIANT"


class BitmapType(AtomicType):
    """A set of integers."""

    root = "BITMAP"


class DescriptorType(AtomicType):
    """Column names, as a function argument."""

    root = "DESCRIPTOR"


class NamedType(AtomicType):
    """A type that only a catalog knows, identified by its path."""

    def __init__(self, path: tuple[str, ...], nullable: bool = True) -> None:
        super().__init__(nullable)
        self.path = path

    def _text(self) -> str:
        return ".".join(map(quoted, self.path))


class ListViewType(ArrayType):
    """A list in the accumulator of an aggregate function, kept as separate state."""

    root = "LIST_VIEW"


class MapViewType(MapType):
    """A map in the accumulator of an aggregate function, kept as separate state."""

    root = "MAP_VIEW"


#: types whose columns hold something that only this project understands
_NOT_OF_SPARK: Final = (TimeType, DayTimeIntervalType, YearMonthIntervalType, RawType, BitmapType)
_SPARK_DIGITS_MAX: Final = 6


def is_of_spark(data_type: DataType) -> bool:
    """Return whether Spark itself has the type, so that a column means the same to Spark programs."""
    if isinstance(data_type, TimestampType | LocalZonedTimestampType):
        return data_type.precision <= _SPARK_DIGITS_MAX
    return not isinstance(data_type, _NOT_OF_SPARK) and all(map(is_of_spark, data_type.children()))


def has_variants(data_type: DataType) -> bool:
    """Return whether values of a type are variants, or contain any."""
    return isinstance(data_type, VariantType) or any(map(has_variants, data_type.children()))


def quoted(name: str) -> str:
    """Return a name quoted as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _check(root: str, attribute: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise WrongValueError(f"the {attribute} of {root} must be {least} to {most}, not {value}")
