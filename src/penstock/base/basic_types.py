"""Type information of single values: numbers, text, dates, pickled objects.

The classes here are immutable value objects: equal when they describe the same type, hashable, picklable. Users create
them through `Types` in `typeinfo.py`.
"""

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any

from penstock.base.time import Instant

__all__ = [
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "PickledBytesTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TypeInformation",
]


class TypeInformation(ABC):
    """Describes the type of the values in a stream, a state or a field.

    Subclasses are immutable. `repr` is the `Types` expression for the type; `str` is the short form shown in plans.
    """

    __slots__ = ()

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether `value` is of this type. None is accepted only by nullable types."""

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """Return the key that decides equality between instances of the same class."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeInformation):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


class BasicType(Enum):
    """The basic types; the values are their names in plans."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Character"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


def _integer(bits: int | None) -> Callable[[Any], bool]:
    """Return a test for ints (not bools) that fit into `bits` bits, two's complement; None means any size."""
    if bits is None:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    high = 1 << (bits - 1)
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and -high <= value < high


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_ACCEPTS: dict[BasicType, Callable[[Any], bool]] = {
    BasicType.STRING: lambda value: isinstance(value, str),
    BasicType.BYTE: _integer(8),
    BasicType.BOOLEAN: lambda value: isinstance(value, bool),
    BasicType.SHORT: _integer(16),
    BasicType.INT: _integer(32),
    BasicType.LONG: _integer(64),
    BasicType.FLOAT: _is_number,
    BasicType.DOUBLE: _is_number,
    BasicType.CHAR: lambda value: isinstance(value, str) and len(value) == 1,
    BasicType.BIG_INT: _integer(None),
    BasicType.BIG_DEC: lambda value: isinstance(value, decimal.Decimal),
    BasicType.INSTANT: lambda value: isinstance(value, Instant),
}


class BasicTypeInfo(TypeInformation):
    """A basic type. Integers must be in range; floating-point types also accept ints; None is not accepted.

    Attributes:
        basic_type: the basic type.
    """

    __slots__ = ("basic_type",)

    def __init__(self, basic_type: BasicType) -> None:
        self.basic_type = basic_type

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is of this basic type and in its range."""
        return _ACCEPTS[self.basic_type](value)

    def _key(self) -> tuple[Any, ...]:
        return (self.basic_type,)

    def __repr__(self) -> str:
        return f"Types.{self.basic_type.name}()"

    def __str__(self) -> str:
        return self.basic_type.value


class _SingletonTypeInfo(TypeInformation):
    """A type without parameters."""

    __slots__ = ()

    def _key(self) -> tuple[Any, ...]:
        return ()

    def __str__(self) -> str:
        return type(self).__name__


class DateTypeInfo(_SingletonTypeInfo):
    """A calendar date: `datetime.date`."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a date but not a datetime."""
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)

    def __repr__(self) -> str:
        return "Types.SQL_DATE()"


class TimeTypeInfo(_SingletonTypeInfo):
    """A time of day: `datetime.time`."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a time of day."""
        return isinstance(value, datetime.time)

    def __repr__(self) -> str:
        return "Types.SQL_TIME()"


class TimestampTypeInfo(_SingletonTypeInfo):
    """A date and time: `datetime.datetime`."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a date and time."""
        return isinstance(value, datetime.datetime)

    def __repr__(self) -> str:
        return "Types.SQL_TIMESTAMP()"


class PickledBytesTypeInfo(_SingletonTypeInfo):
    """Any Python object, serialized with pickle; the type of a stream for which no type is given."""

    __slots__ = ()

    def accepts(self, value: Any) -> bool:
        """Return True for every value, including None."""
        return True

    def __repr__(self) -> str:
        return "Types.PICKLED_BYTE_ARRAY()"
