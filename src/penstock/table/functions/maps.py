"""Map functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.table.data.arrow_types import arrow_type
from penstock.table.data.errors import TableRuntimeError
from penstock.table.data.logical_types import ArrayType, DataType, MapType, MultisetType, RowField, RowType
from penstock.table.functions.arrays import find_common_type
from penstock.table.functions.definition import Call, Operands, ScalarFunction, scalar
from penstock.table.functions.lists import Lists, by_columns, joined, to_lists, to_map_values
from penstock.table.functions.signatures import returns_common, takes, where


def _any_map(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, MapType) else None


def _any_array(call: Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType) else None


def _keys_type(call: Operands) -> DataType:
    return ArrayType(_map_type(call).key_type, call.any_nullable())


def _values_type(call: Operands) -> DataType:
    return ArrayType(_map_type(call).value_type, call.any_nullable())


def _entries_type(call: Operands) -> DataType:
    map_type = _map_type(call)
    row = RowType([RowField("key", map_type.key_type), RowField("value", map_type.value_type)])
    return ArrayType(row, call.any_nullable())


def _map_type(call: Operands) -> MapType:
    map_type = call.types[0]
    assert isinstance(map_type, MapType)  # checked by the signature
    return map_type


def _from_arrays_type(call: Operands) -> DataType:
    key, item = call.types
    assert isinstance(key, ArrayType)
    assert isinstance(item, ArrayType)
    return MapType(key.element_type, item.element_type, call.any_nullable())


def _keys(call: Call, column: pa.Array) -> pa.Array:
    return to_lists(column).column(call.result)


def _values(call: Call, column: pa.Array) -> pa.Array:
    return to_map_values(column).column(call.result)


def _entries(call: Call, column: pa.Array) -> pa.Array:
    assert isinstance(call.result, ArrayType)
    keys, items = to_lists(column).packed(), to_map_values(column).packed()
    fields = list(arrow_type(call.result.element_type))
    rows = pa.StructArray.from_arrays([keys.values, items.values], fields=fields)
    return Lists(rows, keys.starts, keys.lengths, keys.valid).column(call.result)


def _from_arrays(call: Call, keys: pa.Array, items: pa.Array) -> pa.Array:
    assert isinstance(call.result, MapType)
    key_lists, other = to_lists(keys), to_lists(items)
    key_lists, other = key_lists.with_valid(other.valid).packed(), other.with_valid(key_lists.valid).packed()
    differs = (key_lists.lengths != other.lengths).nonzero()[0]
    if len(differs):
        row = differs[0]
        raise TableRuntimeError(
            f"Invalid function MAP_FROM_ARRAYS call: the length of the keys array {key_lists.lengths[row]} "
            f"is not equal to the length of the values array {other.lengths[row]}"
        )
    return key_lists.map_column(other.values, call.result)


def _union(call: Call, *maps: pa.Array) -> pa.Array:
    """Merge maps. For equal keys the last map wins."""
    assert isinstance(call.result, MapType)
    items = joined([to_map_values(column) for column in maps])
    return joined([to_lists(column) for column in maps]).map_column(items.values, call.result)


_MAP = where("<MAP>", _any_map)
_ARRAY = where("<ARRAY>", _any_array)
_COMMON = where("<COMMON>", partial(find_common_type, lambda data_type: isinstance(data_type, MapType)))


def _define(
    name: str, operands: Any, result: Any, function: Callable[..., pa.Array], usage: str, summary: str, **more: object
) -> ScalarFunction:
    kernel = by_columns(lambda call: partial(function, call))
    return scalar(name, operands, result, kernel, summary, section="collection", usage=f"{name}({usage})", **more)


FUNCTIONS: tuple[ScalarFunction, ...] = (
    _define("MAP_KEYS", takes(_MAP), _keys_type, _keys, "map", "Returns the keys of the map as an array."),
    _define("MAP_VALUES", takes(_MAP), _values_type, _values, "map", "Returns the values of the map as an array."),
    _define(
        "MAP_ENTRIES",
        takes(_MAP),
        _entries_type,
        _entries,
        "map",
        "Returns the entries of the map as an array of rows.",
    ),
    _define(
        "MAP_FROM_ARRAYS",
        takes(_ARRAY, _ARRAY),
        _from_arrays_type,
        _from_arrays,
        "keys, values",
        "Creates a map from an array of keys and an array of values.",
        can_fail=True,
    ),
    _define(
        "MAP_UNION",
        takes(_COMMON, repeated=1),
        returns_common,
        _union,
        "map, ...",
        "Merges the maps; if several have the same key, the last one wins.",
    ),
)
