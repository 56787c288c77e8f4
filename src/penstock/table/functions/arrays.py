"""Functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.table.data.logical_types import ArrayType, DataType, MultisetType, NullType, NumericType
from penstock.table.functions import array_kernels
from penstock.table.functions.definition import Operands, ScalarFunction, scalar
from penstock.table.functions.lists import by_columns
from penstock.table.functions.signatures import (
    AS_BOOLEAN,
    AS_INT,
    BOOLEAN_TYPE,
    INT,
    STRING,
    TEXT,
    all_in_common,
    returns,
    returns_common,
    returns_operand,
    takes,
    where,
)
from penstock.table.functions.type_rules import BYTES, TEXTS, TIMES, can_cast_implicitly, is_text

# --- types -----------------------------------------------------------------------------------------------------------


def _is_array(data_type: DataType) -> bool:
    return isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType)


def _element(data_type: DataType) -> DataType:
    assert isinstance(data_type, ArrayType)
    return data_type.element_type


def _any_array(call: Operands, index: int) -> DataType | None:
    return call.types[index] if _is_array(call.types[index]) else None


def _ordered_array(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    ordered = (NumericType, NullType, *TEXTS, *BYTES, *TIMES)
    return data_type if _is_array(data_type) and isinstance(_element(data_type), ordered) else None


def _array_of_text(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if _is_array(data_type) and is_text(_element(data_type)) else None


def _needle(call: Operands, index: int) -> DataType | None:
    """Accept an element, which is cast to the type of the array's elements."""
    if not _is_array(call.types[0]):
        return None
    element, data_type = _element(call.types[0]), call.types[index]
    if not can_cast_implicitly(data_type, element):
        return None
    if is_text(element) and is_text(data_type):
        return data_type  # casting a text to another length would change it
    return element.nullable() if data_type.is_nullable else element.not_null()


def find_common_type(is_wanted: Callable[[DataType], bool], call: Operands, index: int) -> DataType | None:
    """Accept one of several operands of a kind, which are all cast to their common type."""
    return call.once(all_in_common) if is_wanted(call.types[index]) else None


def _extended(call: Operands) -> DataType:
    """Return the type of an array with one more element."""
    array, added = call.types
    element = _element(array)
    nullable = call.any_nullable()
    if added.is_nullable and not element.is_nullable:
        return ArrayType(element.nullable(), nullable)
    return array.nullable() if nullable else array.not_null()


def _by_first(result_type: DataType | None = None) -> Callable[[Operands], DataType]:
    """Return a rule whose result is nullable only if the first operand is."""

    def rule(call: Operands) -> DataType:
        result = call.types[0] if result_type is None else result_type
        return result.nullable() if call.types[0].is_nullable else result.not_null()

    return rule


_ARRAY = where("<ARRAY>", _any_array)
_ORDERED = where("<ARRAY<COMPARABLE>>", _ordered_array)
_TEXTS = where("ARRAY<STRING>", _array_of_text)
_NEEDLE = where("<ARRAY ELEMENT>", _needle)
_COMMON = where("<COMMON>", partial(find_common_type, _is_array))


def _define(
    name: str, operands: Any, result: Any, function: Callable[..., pa.Array], usage: str, summary: str
) -> ScalarFunction:
    kernel = by_columns(lambda call: partial(function, call))
    return scalar(name, operands, result, kernel, summary, section="collection", usage=f"{name}({usage})")


def _nullable_element(call: Operands) -> DataType:
    return _element(call.types[0]).nullable()


FUNCTIONS: tuple[ScalarFunction, ...] = (
    _define(
        "ARRAY_APPEND",
        takes(_ARRAY, _NEEDLE),
        _extended,
        array_kernels.append,
        "array, element",
        "Appends the element to the array.",
    ),
    _define(
        "ARRAY_PREPEND",
        takes(_ARRAY, _NEEDLE),
        _extended,
        array_kernels.prepend,
        "array, element",
        "Prepends the element to the array.",
    ),
    _define(
        "ARRAY_CONTAINS",
        takes(_ARRAY, _NEEDLE),
        _by_first(BOOLEAN_TYPE),
        array_kernels.contains,
        "array, element",
        "Returns TRUE if the array contains the element, which may be NULL.",
    ),
    _define(
        "ARRAY_POSITION",
        takes(_ARRAY, _NEEDLE),
        returns(INT),
        array_kernels.position,
        "array, element",
        "Returns the position of the element's first occurrence, counted from 1, or 0 if it is not found.",
    ),
    _define(
        "ARRAY_REMOVE",
        takes(_ARRAY, _NEEDLE),
        _by_first(),
        array_kernels.remove,
        "array, element",
        "Removes all elements equal to the given one from the array.",
    ),
    _define(
        "ARRAY_DISTINCT",
        takes(_ARRAY),
        returns_operand(0),
        array_kernels.distinct,
        "array",
        "Removes duplicates from the array, keeping the first occurrence of each element.",
    ),
    _define(
        "ARRAY_REVERSE",
        takes(_ARRAY),
        returns_operand(0),
        array_kernels.reverse,
        "array",
        "Reverses the array.",
    ),
    _define(
        "ARRAY_SLICE",
        takes(_ARRAY, AS_INT, AS_INT, optional=1),
        returns_operand(0),
        array_kernels.slice_array,
        "array, start[, end]",
        "Returns the elements from `start` to `end`, both inclusive; negative positions count from the end.",
    ),
    _define(
        "ARRAY_SORT",
        takes(_ORDERED, AS_BOOLEAN, AS_BOOLEAN, optional=2),
        returns_operand(0),
        array_kernels.sort,
        "array[, ascending[, nulls_first]]",
        "Sorts the array in ascending order, or in descending order if the second argument is FALSE.",
    ),
    _define(
        "ARRAY_CONCAT",
        takes(_COMMON, repeated=1),
        returns_common,
        array_kernels.concat,
        "array, ...",
        "Concatenates the arrays.",
    ),
    _define(
        "ARRAY_UNION",
        takes(_COMMON, _COMMON),
        returns_common,
        array_kernels.union,
        "array1, array2",
        "Returns the distinct elements of both arrays.",
    ),
    _define(
        "ARRAY_EXCEPT",
        takes(_COMMON, _COMMON),
        returns_common,
        partial(array_kernels.compared, False),
        "array1, array2",
        "Returns the distinct elements of array1 that are not in array2.",
    ),
    _define(
        "ARRAY_INTERSECT",
        takes(_COMMON, _COMMON),
        returns_common,
        partial(array_kernels.compared, True),
        "array1, array2",
        "Returns the distinct elements that are in both arrays.",
    ),
    _define(
        "ARRAY_MAX",
        takes(_ORDERED),
        _nullable_element,
        partial(array_kernels.extreme, True),
        "array",
        "Returns the greatest element, or NULL for an empty array.",
    ),
    _define(
        "ARRAY_MIN",
        takes(_ORDERED),
        _nullable_element,
        partial(array_kernels.extreme, False),
        "array",
        "Returns the least element, or NULL for an empty array.",
    ),
    _define(
        "ARRAY_JOIN",
        takes(_TEXTS, TEXT, TEXT, optional=1),
        returns(STRING),
        array_kernels.join,
        "array, delimiter[, replacement]",
        "Joins the strings of the array with the delimiter; NULL elements become the replacement or are omitted.",
    ),
)
