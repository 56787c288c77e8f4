"""Type information of values that contain other values: rows, tuples, lists, arrays, maps.

Nulls: fields of rows, values of maps, and elements of object and basic arrays may be None; fields of tuples, elements
of lists and of primitive arrays, and keys of maps may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.base.basic_types import BasicType, BasicTypeInfo, TypeInformation
from penstock.base.errors import WrongTypeError, WrongValueError
from penstock.base.types import Row

__all__ = [
    "BasicArrayTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "TupleTypeInfo",
]

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
