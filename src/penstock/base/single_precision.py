"""Rounding of values with a declared type of FLOAT to single precision, like PyFlink's four-byte serializer.

Only types that contain a FLOAT have a rounding function; others cost nothing. Changed values are copied, because the
function that created them may still hold them. Values that do not match their declared type are left unchanged.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from copy import copy
from typing import Any, Final

from penstock.base.basic_types import BasicType, BasicTypeInfo
from penstock.base.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.base.typeinfo import TypeInformation
from penstock.base.types import Row

Rounding = Callable[[Any], Any]

_FOUR_BYTES: Final = struct.Struct("f")
_ELEMENTS: Final = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


def single(value: Any) -> Any:
    """Return the nearest single-precision number, as a Python float; infinite beyond its range. None stays None."""
    try:
        rounded: float = _FOUR_BYTES.unpack(_FOUR_BYTES.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    except struct.error:
        return value
    return rounded


def rounding(type_info: TypeInformation | None) -> Rounding | None:
    """Return the function that rounds the FLOATs in values of this type, or None if the type contains no FLOAT."""
    if isinstance(type_info, BasicTypeInfo):
        return single if type_info.basic_type is BasicType.FLOAT else None
    if isinstance(type_info, RowTypeInfo):
        return _of_fields(type_info.get_field_types(), type_info.get_field_names())
    if isinstance(type_info, TupleTypeInfo):
        return _of_fields(type_info.get_field_types(), [])
    if isinstance(type_info, _ELEMENTS):
        return _of_elements(rounding(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        return _of_maps(rounding(type_info.key_type_info), rounding(type_info.value_type_info))
    return None


def _of_fields(types: list[TypeInformation], names: list[str]) -> Rounding | None:
    roundings = [
        (index, round_value) for index, round_value in enumerate(map(rounding, types)) if round_value is not None
    ]
    if not roundings:
        return None

    def fields(record: Any) -> Any:
        if isinstance(record, dict):
            return {
                **record,
                **{names[i]: round_field(record[names[i]]) for i, round_field in roundings if names[i] in record},
            }
        if not isinstance(record, Row | tuple | list):
            return record
        changed: Any = copy(record) if isinstance(record, Row) else list(record)
        for index, round_value in roundings:
            if index < len(changed):
                changed[index] = round_value(changed[index])
        if not isinstance(record, tuple):
            return changed
        return record._make(changed) if hasattr(record, "_make") else tuple(changed)

    return fields


def _of_elements(round_element: Rounding | None) -> Rounding | None:
    if round_element is None:
        return None

    def elements(items: Any) -> Any:
        if isinstance(items, list):
            return list(map(round_element, items))
        return tuple(map(round_element, items)) if isinstance(items, tuple) else items

    return elements


def _of_maps(keys: Rounding | None, values: Rounding | None) -> Rounding | None:
    if keys is None and values is None:
        return None

    def entries(items: Any) -> Any:
        if not isinstance(items, dict):
            return items
        return {keys(k) if keys else k: values(v) if values else v for k, v in items.items()}

    return entries
