"""Rows, structured objects, arrays, maps and multisets: constructors, updates, and access to their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import UnsupportedError
from penstock.sql.data.arrow import Datum, Kernel, arrow_type, to_full_array
from penstock.sql.data.errors import TableRuntimeError, ValidationError
from penstock.sql.data.types import (
    ArrayType,
    DataType,
    IntegralType,
    MapType,
    MultisetType,
    NullType,
    RowField,
    RowType,
    StructuredType,
    VariantType,
)
from penstock.sql.functions import arrays, definition
from penstock.sql.functions.type_rules import can_cast_implicitly, is_text, least_restrictive
from penstock.sql.functions.variants import variant_item


def _row_type(call: definition.Operands) -> DataType:
    """Return a row type. The options name its fields; by default they are f0, f1 and so on, as in the Table API."""
    names = call.options or tuple(f"f{index}" for index in range(len(call)))
    return RowType([RowField(name, data_type) for name, data_type in zip(names, call.types, strict=True)], False)


def _row(call: definition.Call) -> Kernel:
    fields = list(arrow_type(call.result))
    return arrays.by_columns(lambda _: lambda *columns: pa.StructArray.from_arrays(columns, fields=fields))(call)


# --- fields ----------------------------------------------------------------------------------------------------------


def _composite(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, RowType) else None


def _position(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if not isinstance(data_type, IntegralType) or call.value(index) is definition.UNKNOWN:
        return None
    assert isinstance(call.types[0], RowType)
    return data_type if 0 <= _number(call) < len(call.types[0].fields) else None


def _number(call: definition.Operands) -> int:
    index = call.value(1)
    assert isinstance(index, int)  # checked by the signature
    return index


def _field_type(call: definition.Operands) -> DataType:
    row = call.types[0]
    assert isinstance(row, RowType)
    field_type = row.fields[_number(call)].data_type
    return field_type.nullable() if row.is_nullable else field_type


def field_kernel(index: int) -> Kernel:
    """Return a kernel that reads a field of rows."""

    def kernel(row: Datum, _: Datum | None = None) -> Datum:
        return pc.struct_field(row, [index])

    return kernel


# --- structured objects ----------------------------------------------------------------------------------------------


def _text_literal(call: definition.Operands, index: int, label: str) -> str:
    if not is_text(call.types[index]):
        raise ValidationError(f"{label} must be a character string that is not NULL, but was {call.types[index]}.")
    value = call.value(index)
    if not isinstance(value, str):
        raise ValidationError(f"{label} must be a literal character string that is not NULL.")
    return value


def _class_name(call: definition.Operands, index: int) -> DataType | None:
    _text_literal(call, index, "The first argument, the name of the class,")
    return call.types[index]


def _names(call: definition.Operands) -> list[str]:
    """Return the names of the fields being set."""
    return [
        _text_literal(call, index, f"The name of a field at position {index + 1}") for index in range(1, len(call), 2)
    ]


def _field_name(call: definition.Operands, index: int) -> DataType | None:
    """Accept a string literal that names a field. Raises `ValidationError` if an earlier pair has the same name."""
    names = _names(call)
    name, before = names[index // 2], names[: index // 2]
    if name in before:
        raise ValidationError(f"The field name '{name}' at position {index + 1} is repeated.")
    return call.types[index]


def _known_field(call: definition.Operands, index: int) -> DataType | None:
    row = call.types[0]
    if not isinstance(row, StructuredType):
        return None  # the first operand's check reports this
    data_type = _field_name(call, index)
    name = _names(call)[index // 2]
    if name not in row.field_names():
        raise ValidationError(
            f"The field name '{name}' at position {index + 1} is not part of the structured type. "
            f"It has: {', '.join(row.field_names())}."
        )
    return data_type


def _structured(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    if not isinstance(data_type, StructuredType):
        raise ValidationError(f"The first argument must be a structured type, but was {data_type}.")
    return data_type


def _object_type(call: definition.Operands) -> DataType:
    fields = [RowField(name, data_type) for name, data_type in zip(_names(call), call.types[2::2], strict=True)]
    return StructuredType(str(call.value(0)), fields)


def _updated_type(call: definition.Operands) -> DataType:
    row = call.types[0]
    assert isinstance(row, StructuredType)
    changed = dict(zip(_names(call), call.types[2::2], strict=True))
    return StructuredType(
        row.class_name, [RowField(field.name, changed.get(field.name, field.data_type)) for field in row.fields]
    )


def _object(call: definition.Call) -> Kernel:
    fields = list(arrow_type(call.result))

    def kernel(rows: int, _: Datum, *pairs: Datum) -> Datum:
        if not fields:
            return pa.array([{}] * rows, pa.struct([]))
        return pa.StructArray.from_arrays([to_full_array(value, rows) for value in pairs[1::2]], fields=fields)

    return kernel


def _update(call: definition.Call) -> Kernel:
    assert isinstance(call.result, StructuredType)
    fields = list(arrow_type(call.result))
    pair_indices = {name: index for index, name in enumerate(_names(call.operands))}
    sources = [pair_indices.get(name) for name in call.result.field_names()]

    def update(row: pa.Array, *pairs: pa.Array) -> pa.Array:
        columns = [
            pc.struct_field(row, [index]) if pair_index is None else pairs[2 * pair_index + 1]
            for index, pair_index in enumerate(sources)
        ]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=row.is_null())

    return arrays.by_columns(lambda _: update)(call)


_KEY = definition.where("<STRING>", _field_name)
_KNOWN_KEY = definition.where("<STRING>", _known_field)
_OBJECT = definition.where("<STRUCTURED_TYPE>", _structured)
_CLASS = definition.where("<STRING>", _class_name)

ROWS_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "ROW",
        definition.takes(definition.ANY, repeated=1),
        _row_type,
        _row,
        "Creates a row of the values.",
        section="value construction",
        usage="ROW(value, ...)",
    ),
    definition.scalar(
        "FIELD",
        definition.takes(
            definition.where("<COMPOSITE>", _composite), definition.where("<INTEGER NOT NULL>", _position)
        ),
        _field_type,
        lambda call: field_kernel(_number(call.operands)),
        "Returns the field of the row.",
        python_name="get",
        section="value access",
        usage="row.field",
    ),
    definition.scalar(
        "OBJECT_OF",
        (definition.takes(_CLASS), definition.takes(_CLASS, _KEY, definition.ANY, repeated=2)),
        _object_type,
        _object,
        "Creates an object of a structured type from its class name and the names and values of its fields.",
        section="structured types",
        usage="OBJECT_OF(class, name, value, ...)",
        takes_rows=True,
    ),
    definition.scalar(
        "OBJECT_UPDATE",
        definition.takes(_OBJECT, _KNOWN_KEY, definition.ANY, repeated=2),
        _updated_type,
        _update,
        "Returns the object with new values for some of its fields.",
        section="structured types",
        usage="OBJECT_UPDATE(object, name, value, ...)",
    ),
)


def _element(call: definition.Operands, index: int) -> DataType | None:
    return _as(call.once(_common_element), call.types[index].is_nullable)


def _entry(call: definition.Operands, index: int) -> DataType | None:
    return _as(call.once(_common_value if index % 2 else _common_key), call.types[index].is_nullable)


def _as(common: DataType | None, is_nullable: bool) -> DataType | None:
    """Return the type of an operand after the cast to a common type; None if that is the type of NULL."""
    if common is None or isinstance(common, NullType):
        return None
    return common.nullable() if is_nullable else common.not_null()


def _common_element(call: definition.Operands) -> DataType | None:
    return least_restrictive(call.types)


def _common_key(call: definition.Operands) -> DataType | None:
    return least_restrictive(_parts_of_map(call)[0])


def _common_value(call: definition.Operands) -> DataType | None:
    return least_restrictive(_parts_of_map(call)[1])


def _parts_of_map(call: definition.Operands) -> tuple[Sequence[DataType], Sequence[DataType]]:
    """Return the types of keys and of values. If all values are NULL, they get the types of the keys, as in Flink."""
    keys, values = call.types[::2], call.types[1::2]
    if all(isinstance(value_type, NullType) for value_type in values):
        values = tuple(key_type.nullable() for key_type in keys)
    return keys, values


def _map_type(call: definition.Operands) -> DataType:
    keys, values = _parts_of_map(call)
    return MapType(_known_common(keys), _known_common(values), False)


def _known_common(types: Sequence[DataType]) -> DataType:
    common = least_restrictive(types)
    assert common is not None  # the signature has checked it
    return common


def _interleaved(columns: Sequence[Datum], rows: int) -> pa.Array:
    """Interleave columns: the values of the first row, then the values of the second one, and so on."""
    parts = [column if isinstance(column, pa.Array) else to_full_array(column, 1) for column in columns]
    offsets = arrays.begins(np.array([len(part) for part in parts]))
    steps = np.array([isinstance(column, pa.Array) for column in columns], np.int64)
    indices = np.arange(rows)[:, np.newaxis] * steps + offsets
    return pa.concat_arrays(parts).take(pa.array(indices.ravel()))


def _of_length(values: pa.Array, rows: int, length: int) -> arrays.Lists:
    lengths = np.full(rows, length, np.int64)
    return arrays.Lists(values, arrays.begins(lengths), lengths, np.ones(rows, np.bool_))


def _find_row_count(columns: Sequence[Datum]) -> int | None:
    return next((len(column) for column in columns if isinstance(column, pa.Array)), None)


def _array(call: definition.Call) -> Kernel:
    def kernel(*columns: Datum) -> Datum:
        rows = _find_row_count(columns)
        values = _interleaved(columns, 1 if rows is None else rows)
        column = _of_length(values, 1 if rows is None else rows, len(columns)).column(call.result)
        return column[0] if rows is None else column

    return kernel


def _map(call: definition.Call) -> Kernel:
    assert isinstance(call.result, MapType)
    result = call.result

    def kernel(*columns: Datum) -> Datum:
        rows = _find_row_count(columns)
        count = 1 if rows is None else rows
        keys = _of_length(_interleaved(columns[::2], count), count, len(columns) // 2)
        column = keys.map_column(_interleaved(columns[1::2], count), result)
        return column[0] if rows is None else column

    return kernel


def _multiset(call: definition.Call) -> Kernel:
    """Return a kernel that counts how often each element occurs."""
    assert isinstance(call.result, MultisetType)
    element = call.result.element_type
    as_map = MapType(element, definition.INT)

    def count(*columns: pa.Array) -> pa.Array:
        rows = len(columns[0])
        keys = _of_length(_interleaved(columns, rows), rows, len(columns))
        element_codes = arrays.codes(keys.values, element).reshape(rows, len(columns))
        counts = (element_codes[:, :, np.newaxis] == element_codes[:, np.newaxis, :]).sum(axis=2).ravel()
        first = arrays.first_of_equals(keys.parents(), element_codes.ravel())
        return keys.kept(first).map_column(pa.array(counts[first], pa.int32()), as_map)

    return arrays.by_columns(lambda _: count)(call)


# --- an element ------------------------------------------------------------------------------------------------------


def _indexed(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    is_collection = isinstance(data_type, ArrayType | MapType | VariantType | RowType)
    return data_type if is_collection and not isinstance(data_type, MultisetType) else None


def _index(call: definition.Operands, index: int) -> DataType | None:
    within, index_type = call.types[0], call.types[index]
    if isinstance(within, MapType):
        return _key_type(within.key_type, index_type)
    if isinstance(index_type, NullType):
        return definition.INT if isinstance(within, ArrayType) else None
    if isinstance(within, RowType):
        return index_type if _field_index(within, call.value(index)) is not None else None
    if isinstance(within, VariantType) and is_text(index_type):
        return index_type
    if not isinstance(index_type, IntegralType):
        return None
    value = call.value(index)
    if isinstance(value, int) and value < 1 and not isinstance(within, VariantType):
        raise ValidationError(f"Array element access needs an index starting at 1 but was {value}.")
    return index_type


def _key_type(key: DataType, index_type: DataType) -> DataType | None:
    if is_text(key) and is_text(index_type):
        return index_type  # casting a key to another length would change it
    if not can_cast_implicitly(index_type, key):
        return None
    return key.nullable() if index_type.is_nullable else key.not_null()


def _field_index(row: RowType, value: object) -> int | None:
    """Return the index of a row's field, given by its name or by its number from 1."""
    if isinstance(value, str):
        names = row.field_names()
        return names.index(value) if value in names else None
    if isinstance(value, int) and 1 <= value <= len(row.fields):
        return value - 1
    return None


def _item_type(call: definition.Operands) -> DataType:
    within = call.types[0]
    if isinstance(within, ArrayType):
        return within.element_type.nullable()
    if isinstance(within, MapType):
        return within.value_type.nullable()
    if isinstance(within, RowType):
        index = _field_index(within, call.value(1))
        assert index is not None
        field_type = within.fields[index].data_type
        return field_type.nullable() if within.is_nullable else field_type
    return VariantType()


def _item(call: definition.Call) -> Kernel:
    within = call.types[0]
    if isinstance(within, ArrayType):
        return _item_of_array(call)
    if isinstance(within, MapType):
        return arrays.by_columns(lambda _: _item_of_map(within))(call)
    if isinstance(within, RowType):
        index = _field_index(within, call.value(1))
        assert index is not None
        return field_kernel(index)
    return definition.per_value(variant_item)(call)


def _item_of_array(call: definition.Call) -> Kernel:
    def item(column: pa.Array, index: pa.Array | int) -> pa.Array:
        lists = arrays.to_lists(column)
        if isinstance(index, int):
            indices, inside = index - 1, np.ones(len(column), np.bool_)
        else:
            indices = pc.fill_null(index, 0).to_numpy(zero_copy_only=False).astype(np.int64) - 1
            inside = indices >= 0
        inside = inside & (indices < lists.lengths)
        return lists.values.take(pa.array(lists.starts + indices, mask=~inside))

    constant = call.value(1)
    if isinstance(constant, int):
        return arrays.by_columns(lambda _: lambda column, _: item(column, constant))(call)
    return arrays.by_columns(lambda _: item)(call)


def _item_of_map(within: MapType) -> Any:
    def item(column: pa.Array, key: pa.Array) -> pa.Array:
        keys, items = arrays.to_lists(column), arrays.to_map_values(column)
        packed = keys.packed()
        all_codes = arrays.codes(pa.concat_arrays([packed.values, key]), within.key_type)
        mine, lookup_codes = all_codes[: len(packed.values)], all_codes[len(packed.values) :]
        parents = keys.parents()
        hits = np.flatnonzero((mine == lookup_codes[parents]) & (mine >= 0))
        indices = np.full(len(column), -1, np.int64)
        indices[parents[hits]] = items.places()[hits]
        return items.values.take(pa.array(indices, mask=indices < 0))

    return item


# --- how many --------------------------------------------------------------------------------------------------------


def _collection(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, ArrayType | MapType) else None


def _cardinality(call: definition.Call) -> Kernel:
    within = call.types[0]
    if isinstance(within, MultisetType):
        return arrays.by_columns(lambda _: _count_of_multiset)(call)
    if isinstance(within, MapType):
        return arrays.by_columns(lambda _: lambda column: _numbers(arrays.to_lists(column)))(call)
    return lambda column: pc.list_value_length(column)


def _numbers(lists: arrays.Lists) -> pa.Array:
    return pa.array(lists.lengths, pa.int32(), mask=~lists.valid)


def _count_of_multiset(column: pa.Array) -> pa.Array:
    counts = arrays.to_map_values(column).packed()
    weights = pc.fill_null(counts.values, 0).to_numpy(zero_copy_only=False)
    total = np.bincount(counts.parents(), weights, minlength=len(column)).astype(np.int64)
    return pa.array(total, pa.int32(), mask=~arrays.get_valid_flags(column))


def _array_only(call: definition.Operands, index: int) -> DataType | None:
    data_type = call.types[index]
    return data_type if isinstance(data_type, ArrayType) and not isinstance(data_type, MultisetType) else None


def _element_type(call: definition.Operands) -> DataType:
    data_type = call.types[0]
    assert isinstance(data_type, ArrayType)
    return data_type.element_type.nullable()


def _single(column: pa.Array) -> pa.Array:
    lists = arrays.to_lists(column)
    if (lists.lengths > 1).any():
        raise TableRuntimeError("Array has more than one element.")
    return lists.values.take(pa.array(lists.starts, mask=lists.lengths == 0))


# --- operators of multisets ------------------------------------------------------------------------------------------


def _refused(name: str) -> Any:
    def rule(call: definition.Operands) -> DataType:
        raise UnsupportedError(f"the operator {name} is not supported")

    return rule


_SET_OPERATORS = (
    *(f"{negation}{name}" for negation in ("", "NOT ") for name in ("MEMBER OF", "SUBMULTISET OF")),
    *(f"MULTISET {name}{mode}" for name in ("UNION", "EXCEPT", "INTERSECT") for mode in ("", " ALL")),
)
_SET_TESTS = tuple(f"IS {negation}{name}" for negation in ("", "NOT ") for name in ("A SET", "EMPTY"))

COLLECTION_VALUES_FUNCTIONS: tuple[definition.ScalarFunction, ...] = (
    definition.scalar(
        "ARRAY",
        definition.takes(definition.where("<COMMON>", _element), repeated=1),
        lambda call: ArrayType(_known_common(call.types), False),
        _array,
        "Creates an array of the elements.",
        section="value construction",
        usage="ARRAY[element, ...]",
    ),
    definition.scalar(
        "MAP",
        definition.takes(definition.where("<KEY>", _entry), definition.where("<VALUE>", _entry), repeated=2),
        _map_type,
        _map,
        "Creates a map of the keys and values.",
        section="value construction",
        usage="MAP[key, value, ...]",
        can_fail=True,
    ),
    definition.scalar(
        "MULTISET",
        definition.takes(definition.where("<COMMON>", _element), repeated=1),
        lambda call: MultisetType(_known_common(call.types), False),
        _multiset,
        "Creates a multiset of the elements.",
        section="value construction",
        usage="MULTISET[element, ...]",
        can_fail=True,
    ),
    definition.scalar(
        "ITEM",
        definition.takes(
            definition.where("[<ARRAY> | <MAP> | <ROW> | <VARIANT>]", _indexed), definition.where("<INDEX>", _index)
        ),
        _item_type,
        _item,
        "Returns the array element at a position, counted from 1, or the map value for a key; NULL if it does not "
        "exist.",
        python_name="at",
        section="collection",
        usage="collection[index]",
    ),
    definition.scalar(
        "CARDINALITY",
        definition.takes(definition.where("[<COLLECTION> | <MAP>]", _collection)),
        definition.returns(definition.INT),
        _cardinality,
        "Returns the number of elements of an array or entries of a map.",
        section="collection",
        usage="CARDINALITY(collection)",
    ),
    definition.scalar(
        "ELEMENT",
        definition.takes(definition.where("<ARRAY>", _array_only)),
        _element_type,
        arrays.by_columns(lambda _: _single),
        "Returns the only element of the array, or NULL for an empty array.",
        section="collection",
        usage="ELEMENT(array)",
        can_fail=True,
    ),
    *(
        definition.scalar(name, definition.takes(definition.ANY, definition.ANY), _refused(name), _item)
        for name in _SET_OPERATORS
    ),
    *(definition.scalar(name, definition.takes(definition.ANY), _refused(name), _item) for name in _SET_TESTS),
)


FUNCTIONS: tuple[definition.ScalarFunction, ...] = (*ROWS_FUNCTIONS, *COLLECTION_VALUES_FUNCTIONS)
