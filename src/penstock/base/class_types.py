"""Type information of dataclasses and NamedTuples: fields are known by name, so state of such a class can evolve."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Final

from penstock.base.basic_types import BasicType, BasicTypeInfo, TypeInformation
from penstock.base.composite_types import ListTypeInfo, MapTypeInfo
from penstock.base.errors import WrongTypeError

__all__ = ["ClassTypeInfo", "class_fields", "class_path"]

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
