"""Type information: users declare the types of their streams, states and fields through `Types`.

The classes are immutable value objects: equal when they describe the same type, hashable, picklable.

**Single values**: numbers, text, dates, pickled objects.

**Values that contain other values**: rows, tuples, lists, arrays, maps. Fields of rows, values of maps, and elements of
object and basic arrays may be None; fields of tuples, elements of lists and of primitive arrays, and keys of maps may
not.

**Dataclasses and NamedTuples**: fields are known by name, so state of such a class can evolve.

`TypeSerializer` is the interface of serializers that work on binary streams.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, BinaryIO, Final, Generic, TypeVar

from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.time import Instant
from penstock.base.types import Row

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "ClassTypeInfo",
    "DateTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "class_fields",
    "class_path",
]


class TypeInformation(ABC):
    """Describes the type of the values in a stream, a state or a field.

    Subclasses are immutable. `repr` is the `Types` expression for the type; `str` is the short form shown in plans.

    Examples:
        >>> from penstock.common import Types
        >>> Types.SHORT().accepts(40_000), Types.INT().accepts(40_000)
        (False, True)
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


_PRIMITIVES = {
    BasicType.BOOLEAN,
    BasicType.BYTE,
    BasicType.SHORT,
    BasicType.INT,
    BasicType.LONG,
    BasicType.FLOAT,
    BasicType.DOUBLE,
    BasicType.CHAR,
}


class RowTypeInfo(TypeInformation):
    """The type of `Row`s: a type and a name for each field.

    Args:
        field_types: the types, in order.
        field_names: a distinct name for each field; None for `f0`, `f1`, and so on.

    Raises:
        ValueError: if the number of names differs from that of types, or a name is repeated.
        TypeError: if a field type is not a TypeInformation.
    """

    __slots__ = ("_names", "_types")

    def __init__(self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None) -> None:
        self._types = _checked(field_types)
        self._names = tuple(f"f{i}" for i in range(len(self._types))) if field_names is None else tuple(field_names)
        if len(self._names) != len(self._types):
            raise WrongValueError(f"{len(self._names)} field names for {len(self._types)} field types")
        if len(set(self._names)) != len(self._names):
            raise WrongValueError(f"field names must be distinct: {list(self._names)}")

    def get_field_names(self) -> list[str]:
        """Return the field names, in order."""
        return list(self._names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of the field called `field_name`, counted from 0, or -1 if no field has that name."""
        return self._names.index(field_name) if field_name in self._names else -1

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types, in order."""
        return list(self._types)

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a Row, tuple or list with valid fields, or a dict of valid fields by name."""
        if isinstance(value, dict):
            return set(value) <= set(self._names) and _fit(self._types, map(value.get, self._names))
        if not isinstance(value, (Row, tuple, list)) or len(value) != len(self._types):
            return False
        return _fit(self._types, value)

    def _key(self) -> tuple[Any, ...]:
        return self._types, self._names

    def __repr__(self) -> str:
        return f"Types.ROW_NAMED({list(self._names)!r}, {list(self._types)!r})"

    def __str__(self) -> str:
        fields = zip(self._names, self._types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field_type}' for name, field_type in fields)})"


class TupleTypeInfo(TypeInformation):
    """The type of fixed-length tuples.

    Raises:
        TypeError: if a field type is not a TypeInformation.
    """

    __slots__ = ("_types",)

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._types = _checked(field_types)

    def get_field_types(self) -> list[TypeInformation]:
        """Return the field types, in order."""
        return list(self._types)

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a tuple of the right length with a valid value in each field."""
        return (
            isinstance(value, tuple)
            and len(value) == len(self._types)
            and all(field_type.accepts(item) for field_type, item in zip(self._types, value, strict=True))
        )

    def _key(self) -> tuple[Any, ...]:
        return self._types

    def __repr__(self) -> str:
        return f"Types.TUPLE({list(self._types)!r})"

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._types))})"


class _ElementsTypeInfo(TypeInformation):
    """A type with one parameter, the type of its elements.

    Attributes:
        element_type: the type of each element.
    """

    __slots__ = ("element_type",)

    _maker = ""
    _nullable = False

    def __init__(self, element_type: TypeInformation) -> None:
        (self.element_type,) = _checked([element_type])

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a list or tuple whose elements are all valid."""
        if not isinstance(value, (list, tuple)):
            return False
        accepts = self.element_type.accepts
        return all((item is None and self._nullable) or accepts(item) for item in value)

    def _key(self) -> tuple[Any, ...]:
        return (self.element_type,)

    def __repr__(self) -> str:
        return f"Types.{self._maker}({self.element_type!r})"

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self.element_type}>"


class ListTypeInfo(_ElementsTypeInfo):
    """The type of lists."""

    __slots__ = ()
    _maker = "LIST"


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """The type of arrays with elements of any type."""

    __slots__ = ()
    _maker = "OBJECT_ARRAY"
    _nullable = True


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """The type of arrays of a basic type, with nulls.

    Raises:
        TypeError: if the element type is not a basic type.
    """

    __slots__ = ()
    _maker = "BASIC_ARRAY"
    _nullable = True

    def __init__(self, element_type: TypeInformation) -> None:
        if not isinstance(element_type, BasicTypeInfo):
            raise WrongTypeError(f"the elements of a basic array must be of a basic type, not {element_type!r}")
        super().__init__(element_type)


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """The type of arrays of numbers, booleans or characters, without nulls. An array of BYTE is `bytes`.

    Raises:
        TypeError: if the element type is a different one.
    """

    __slots__ = ()
    _maker = "PRIMITIVE_ARRAY"

    def __init__(self, element_type: TypeInformation) -> None:
        if not isinstance(element_type, BasicTypeInfo) or element_type.basic_type not in _PRIMITIVES:
            raise WrongTypeError(f"the elements of a primitive array must be of a primitive type, not {element_type!r}")
        super().__init__(element_type)

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a list or tuple of valid elements, or `bytes` if the elements are BYTE."""
        if isinstance(value, (bytes, bytearray)):
            return self.element_type == BasicTypeInfo(BasicType.BYTE)
        return super().accepts(value)


class MapTypeInfo(TypeInformation):
    """The type of dicts.

    Attributes:
        key_type_info: the type of each key.
        value_type_info: the type of each value that is not None.
    """

    __slots__ = ("key_type_info", "value_type_info")

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self.key_type_info, self.value_type_info = _checked([key_type_info, value_type_info])

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is a dict whose keys and values are all valid."""
        return isinstance(value, dict) and all(
            self.key_type_info.accepts(key) and (item is None or self.value_type_info.accepts(item))
            for key, item in value.items()
        )

    def _key(self) -> tuple[Any, ...]:
        return self.key_type_info, self.value_type_info

    def __repr__(self) -> str:
        return f"Types.MAP({self.key_type_info!r}, {self.value_type_info!r})"

    def __str__(self) -> str:
        return f"MapTypeInfo<{self.key_type_info}, {self.value_type_info}>"


def _checked(types: Sequence[TypeInformation]) -> tuple[TypeInformation, ...]:
    for item in types:
        if not isinstance(item, TypeInformation):
            raise WrongTypeError(f"expected a TypeInformation such as Types.INT(), not {item!r}")
    return tuple(types)


def _fit(types: Sequence[TypeInformation], values: Iterable[Any]) -> bool:
    return all(value is None or field.accepts(value) for field, value in zip(types, values, strict=True))


_BASIC: Final[Mapping[Any, BasicType]] = {
    str: BasicType.STRING,
    bool: BasicType.BOOLEAN,
    int: BasicType.BIG_INT,
    float: BasicType.DOUBLE,
}


def class_path(cls: type) -> str:
    """Return a class's path, as `module:qualified name`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_fields(cls: type) -> tuple[str, ...] | None:
    """Return the field names of a dataclass or NamedTuple in order, or None for other classes."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, tuple):
        return getattr(cls, "_fields", None)
    return None


class ClassTypeInfo(TypeInformation):
    """The type of instances of a dataclass or a NamedTuple.

    Attributes:
        cls: the class.
        field_types: the type of each field's annotation, by field name in order: `str`, `bool`, `int` (BIG_INT),
            `float`, lists and dicts of these, and classes with fields, each optionally with `| None`; None for anything
            else.

    Raises:
        TypeError: if the class is neither a dataclass nor a NamedTuple.
    """

    __slots__ = ("cls", "field_types")

    def __init__(self, cls: Any) -> None:
        fields = class_fields(cls) if isinstance(cls, type) else None
        if fields is None:
            raise WrongTypeError(f"expected a dataclass or a NamedTuple, not {cls!r}")
        self.cls = cls
        self.field_types = _field_types(cls, fields, ())

    def accepts(self, value: Any) -> bool:
        """Return whether `value` is an instance of the class or a subclass."""
        return isinstance(value, self.cls)

    def _key(self) -> tuple[Any, ...]:
        return (self.cls,)

    def __repr__(self) -> str:
        return f"Types.CLASS({self.cls.__qualname__})"

    def __str__(self) -> str:
        return f"ClassTypeInfo<{class_path(self.cls)}>"


def _field_types(cls: type, fields: tuple[str, ...], within: tuple[type, ...]) -> dict[str, TypeInformation | None]:
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 - evaluating annotations runs user code; without them the types are unknown
        hints = {}
    return {name: _infer_type(hints.get(name), (*within, cls)) for name in fields}


def _infer_type(hint: Any, within: tuple[type, ...]) -> TypeInformation | None:
    """Return the type for an annotation, or None if it is unknown or a class that contains itself."""
    parameters = typing.get_args(hint)
    if type(None) in parameters and len(parameters) == 2:
        return _infer_type(parameters[parameters[0] is type(None)], within)
    if hint in _BASIC:
        return BasicTypeInfo(_BASIC[hint])
    if typing.get_origin(hint) in (list, dict):
        types = [_infer_type(parameter, within) for parameter in parameters]
        if len(types) == 1 and types[0] is not None:
            return ListTypeInfo(types[0])
        if len(types) == 2 and types[0] is not None and types[1] is not None:
            return MapTypeInfo(types[0], types[1])
    if isinstance(hint, type) and hint not in within and (fields := class_fields(hint)) is not None:
        info = ClassTypeInfo.__new__(ClassTypeInfo)
        info.cls, info.field_types = hint, _field_types(hint, fields, within)
        return info
    return None


class Types:
    """The types that a program can declare; each method returns an immutable `TypeInformation`.

    Examples:
        >>> from penstock.common import Types
        >>> cup = Types.ROW_NAMED(["drink", "milk"], [Types.STRING(), Types.BOOLEAN()])
        >>> cup.accepts(("tea", True)), cup.accepts(("tea", "a drop"))
        (True, False)
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of text: `str`."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of signed 8-bit integers: `int`."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of booleans: `bool`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of signed 16-bit integers: `int`."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of signed 32-bit integers: `int`."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of signed 64-bit integers: `int`."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of 32-bit floating-point numbers: `float`."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of 64-bit floating-point numbers: `float`."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of single characters: `str` of length 1."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of integers of any size: `int`."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of decimal numbers: `decimal.Decimal`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of points in time: `penstock.common.Instant`."""
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of calendar dates: `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of times of day: `datetime.time`."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of dates with times: `datetime.datetime`."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any Python object, serialized with pickle."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of `Row`s with fields named `f0`, `f1`, and so on."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """Return the type of `Row`s with the given names.

        Raises:
            ValueError: if the number of names differs from that of types, or a name is repeated.
        """
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Return the type of fixed-length tuples."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """Return the type of arrays of numbers, booleans or characters without nulls: `list`, or `bytes` for BYTE.

        Raises:
            TypeError: if the element type is a different one.
        """
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """Return the type of arrays of a basic type, with nulls: `list`.

        Raises:
            TypeError: if the element type is not a basic type.
        """
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """Return the type of arrays of any type, with nulls: `list`."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """Return the type of dicts."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """Return the type of lists without nulls."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def CLASS(cls: type) -> ClassTypeInfo:
        """Return the type of a dataclass's or NamedTuple's instances; its field names go into the state's schema.

        Raises:
            TypeError: if the class is neither.
        """
        return ClassTypeInfo(cls)


T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes elements of one type to a binary stream and reads them back.

    Examples:
        >>> import io
        >>> from penstock.common import TypeSerializer
        >>> class Number(TypeSerializer):
        ...     def serialize(self, element, stream):
        ...         _ = stream.write(element.to_bytes(8))
        ...     def deserialize(self, stream):
        ...         return int.from_bytes(stream.read(8))
        >>> file = io.BytesIO()
        >>> Number().serialize(42, file)
        >>> Number().deserialize(io.BytesIO(file.getvalue()))
        42
    """

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write one element at the stream's position."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read the element at the stream's position."""
