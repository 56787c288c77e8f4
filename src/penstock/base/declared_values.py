"""Conversion of values to their declared type: rows get its fields in its order, and FLOATs get single precision.

PyFlink's serializers do the same, at every depth: they write a FLOAT in four bytes. Only types that contain a ROW or a
FLOAT have a conversion function; others cost nothing. Changed values are copied, because the function that created them
may still hold them. The rounding of FLOATs leaves values that do not match their declared type unchanged.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Final

from penstock.base import typeinfo
from penstock.base.errors import WrongValueError, short_repr
from penstock.base.types import Row

Rounding = Callable[[Any], Any]

_FOUR_BYTES: Final = struct.Struct("f")
_LISTS_AND_ARRAYS: Final = (
    typeinfo.BasicArrayTypeInfo,
    typeinfo.ListTypeInfo,
    typeinfo.ObjectArrayTypeInfo,
    typeinfo.PrimitiveArrayTypeInfo,
)


def single(value: Any) -> Any:
    """Return the nearest single-precision number, as a Python float; infinite beyond its range. None stays None."""
    try:
        rounded: float = _FOUR_BYTES.unpack(_FOUR_BYTES.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    except struct.error:
        return value
    return rounded


def rounding(type_info: typeinfo.TypeInformation | None) -> Rounding | None:
    """Return the function that rounds the FLOATs in values of this type, or None if the type contains no FLOAT."""
    if isinstance(type_info, typeinfo.BasicTypeInfo):
        return single if type_info.basic_type is typeinfo.BasicType.FLOAT else None
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return _rounding_fields(type_info.get_field_types(), type_info.get_field_names())
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        return _rounding_fields(type_info.get_field_types(), [])
    if isinstance(type_info, _LISTS_AND_ARRAYS):
        return _rounding_elements(rounding(type_info.element_type))
    if isinstance(type_info, typeinfo.MapTypeInfo):
        return _rounding_maps(rounding(type_info.key_type_info), rounding(type_info.value_type_info))
    return None


def _rounding_fields(types: list[typeinfo.TypeInformation], names: list[str]) -> Rounding | None:
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


def _rounding_elements(round_element: Rounding | None) -> Rounding | None:
    if round_element is None:
        return None

    def elements(items: Any) -> Any:
        if isinstance(items, list):
            return list(map(round_element, items))
        return tuple(map(round_element, items)) if isinstance(items, tuple) else items

    return elements


def _rounding_maps(keys: Rounding | None, values: Rounding | None) -> Rounding | None:
    if keys is None and values is None:
        return None

    def entries(items: Any) -> Any:
        if not isinstance(items, dict):
            return items
        return {keys(k) if keys else k: values(v) if values else v for k, v in items.items()}

    return entries


Change = Callable[[Any], Any]

_ELEMENTS: Final = (typeinfo.ListTypeInfo, typeinfo.ObjectArrayTypeInfo)


def fitting(type_info: typeinfo.TypeInformation | None, keeps_form: bool = False) -> Change | None:
    """Return the function that makes values conform to a type, or None if the type contains neither a ROW nor a FLOAT.

    The function returns the value itself if none of its rows change. It leaves alone values of a form unlike the
    type's.

    Args:
        type_info: the type; None for any.
        keeps_form: whether tuples, lists, dicts and rows without names are kept instead of becoming rows, as in state.
    """
    make_rows, round_floats = row_making(type_info, keeps_form), rounding(type_info)
    if make_rows is None or round_floats is None:
        return make_rows or round_floats
    return lambda value: round_floats(make_rows(value))


def row_making(type_info: typeinfo.TypeInformation | None, keeps_form: bool = False) -> Change | None:
    """Return a function that puts the rows in a value into a type's order, or None if the type contains no ROW."""
    if isinstance(type_info, typeinfo.RowTypeInfo):
        return RowMaker(type_info, keeps_form)
    if isinstance(type_info, typeinfo.TupleTypeInfo):
        return _of_tuples(_changes(type_info.get_field_types(), keeps_form))
    if isinstance(type_info, _ELEMENTS):
        return _of_elements(row_making(type_info.element_type, keeps_form))
    if isinstance(type_info, typeinfo.MapTypeInfo):
        keys, values = type_info.key_type_info, type_info.value_type_info
        return _of_maps(row_making(keys, keeps_form), row_making(values, keeps_form))
    return None


class RowMaker:
    """Converts a value to a row of a type, with the type's names unless they are the default `f0`, `f1`, ….

    A row with the type's names in another order is reordered, and so are rows nested in its fields. With `keeps_form`,
    only rows with names change.
    """

    def __init__(self, type_info: typeinfo.RowTypeInfo, keeps_form: bool = False) -> None:
        names = tuple(type_info.get_field_names())
        self._names = names
        self._is_named = names != tuple(f"f{index}" for index in range(len(names)))
        #: functions for fields that are or contain rows
        self._inner = _changes(type_info.get_field_types(), keeps_form)
        self._gives_names = self._is_named and not keeps_form
        self._of_other_forms = (_of_tuples(self._inner) or _stays) if keeps_form else None

    def __call__(self, value: Any) -> Any:
        """Return the row; a value without fields is returned unchanged.

        Raises:
            WrongValueError: if a row's names differ from those of a type with names.
        """
        if isinstance(value, Row):
            if self.leaves(value):
                return value
            row = copy(value)  # the emitted row may be in its function's state
            row._values = self._in_order(value)
        elif self._of_other_forms is not None:
            return self._of_other_forms(value)
        elif isinstance(value, dict):
            row = Row(*[value.get(name) for name in self._names])
        elif isinstance(value, tuple | list):
            row = Row(*value)
        else:
            return value
        if self._gives_names or (row._fields is not None and (self._is_named or {*row._fields} == {*self._names})):
            row.set_field_names(self._names)
        values = row._values
        for index, change in self._inner:
            if index < len(values):
                values[index] = change(values[index])
        return row

    def leaves(self, row: Row) -> bool:
        """Return whether a row needs no change: it has the type's names or needs none, and so do its nested rows.

        Raises:
            WrongValueError: if a nested row has other names than its type.
        """
        fields = row._fields
        if fields is None:
            if self._gives_names:
                return False
        elif fields != self._names and (self._is_named or {*fields} == {*self._names}):
            return False
        if not self._inner:
            return True
        values = row._values
        return all(index >= len(values) or change(values[index]) is values[index] for index, change in self._inner)

    def _in_order(self, row: Row) -> list[Any]:
        fields, names, values = row._fields, self._names, row._values
        if fields is None or fields == names:
            return list(values)
        if not self._is_named and {*fields} != {*names}:
            return list(values)
        if len(fields) != len(names) or len(values) != len(names) or {*fields} != {*names}:
            raise _other_fields(row, names)
        indices = {name: index for index, name in enumerate(fields)}
        return [values[indices[name]] for name in names]


def _other_fields(row: Row, names: tuple[str, ...]) -> WrongValueError:
    fields = row._fields or ()
    missing = [name for name in names if name not in fields]
    unknown = [name for name in fields if name not in names]
    problems = [f"it has no field {name!r}" for name in missing]
    problems += [f"the type has no field {name!r}" for name in unknown]
    if not problems:
        problems = [f"it has {len(fields)} names and {len(row)} values"]
    return WrongValueError(
        f"{short_repr(row)} does not fit its declared type, whose fields are {', '.join(names)}: "
        f"{', and '.join(problems)}. Give the row the fields of the type, or declare another type"
    )


def _changes(types: Sequence[typeinfo.TypeInformation], keeps_form: bool) -> list[tuple[int, Change]]:
    """Return the positions and conversion functions of the fields that contain a ROW."""
    candidates = ((index, row_making(type_info, keeps_form)) for index, type_info in enumerate(types))
    return [(index, change) for index, change in candidates if change is not None]


def _stays(value: Any) -> Any:
    return value


def _of_tuples(changes: list[tuple[int, Change]]) -> Change | None:
    if not changes:
        return None

    def fields(record: Any) -> Any:
        if not isinstance(record, tuple):
            return record
        converted: list[Any] | None = None
        for index, change in changes:
            if index < len(record):
                item = change(record[index])
                if item is not record[index]:
                    converted = list(record) if converted is None else converted
                    converted[index] = item
        if converted is None:
            return record
        return record._make(converted) if hasattr(record, "_make") else tuple(converted)

    return fields


def _of_elements(change: Change | None) -> Change | None:
    if change is None:
        return None

    def elements(items: Any) -> Any:
        if not isinstance(items, list | tuple):
            return items
        converted = list(map(change, items))
        if all(item is other for item, other in zip(converted, items, strict=True)):
            return items
        return converted if isinstance(items, list) else tuple(converted)

    return elements


def _of_maps(keys: Change | None, values: Change | None) -> Change | None:
    if keys is None and values is None:
        return None

    def entries(items: Any) -> Any:
        if not isinstance(items, dict):
            return items
        converted = {keys(key) if keys else key: values(item) if values else item for key, item in items.items()}
        if all(
            key is old_key and item is old_item
            for (key, item), (old_key, old_item) in zip(converted.items(), items.items(), strict=False)
        ):
            return items
        return converted

    return entries


class TypedKey:
    """A key selector that converts keys to their declared type, so that the order of a row's fields does not matter."""

    def __init__(self, selector: Change, type_info: typeinfo.TypeInformation) -> None:
        change = row_making(type_info)
        if change is None:
            raise WrongValueError(f"{type_info!r} holds no ROW")
        self._selector = selector
        self._type_info = type_info
        self._change = change

    def __call__(self, record: Any) -> Any:
        """Return a record's key."""
        return self._change(self._selector(record))

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedKey, (self._selector, self._type_info)


def typed_key(selector: Change, type_info: typeinfo.TypeInformation | None) -> Change:
    """Return the key selector, with keys in the type's order if the type contains a ROW."""
    return selector if type_info is None or row_making(type_info) is None else TypedKey(selector, type_info)
