"""Columns with maps as keys in Spark SQL.

Spark neither compares nor groups maps. A map therefore becomes an array of its entries sorted by key, which is the same
for equal maps (`penstock.state.equality`). Spark compares such arrays like rows: NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.base.errors import UnsupportedError
from penstock.table.data.logical_types import (
    ArrayType,
    BitmapType,
    DataType,
    IntType,
    MapType,
    MultisetType,
    NullType,
    RawType,
    RowType,
    VariantType,
)

#: types stored as bytes that may differ for equal values
_WITHOUT_EQUALITY: Final = (RawType, VariantType, BitmapType, NullType)


def has_maps(data_type: DataType) -> bool:
    """Return whether values of a type are maps or multisets, or contain any."""
    return isinstance(data_type, MapType | MultisetType) or any(map(has_maps, data_type.children()))


def group_text(text: str, data_type: DataType) -> str:
    """Return a column as a comparable key. Raises `UnsupportedError` for maps of values that cannot be compared."""
    if not has_maps(data_type):
        return text
    key = key_text(text, data_type)
    if key is None:
        raise UnsupportedError(
            f"a column of type {data_type} cannot be compared in batch: group, partition or match rows by a part of it "
            "that has a simpler type"
        )
    return key


def key_text(text: str, data_type: DataType) -> str | None:
    """Return a value as a key that Spark compares and groups by. None for types that Spark cannot compare."""
    if isinstance(data_type, _WITHOUT_EQUALITY):
        return None
    if not has_maps(data_type):
        return None if any(map(_lacks_equality, data_type.children())) else text
    if isinstance(data_type, MapType | MultisetType):
        key, item = _entry_types(data_type)
        entry = _struct((("key", "e.key", key), ("value", "e.value", item)))
        if entry is None or has_maps(key):
            return None
        entries = f"map_entries({text})"
        return f"array_sort({entries if not has_maps(item) else f'transform({entries}, e -> {entry})'})"
    if isinstance(data_type, ArrayType):
        element = key_text("e", data_type.element_type)
        return None if element is None else f"transform({text}, e -> {element})"
    assert isinstance(data_type, RowType)
    kinds = enumerate(data_type.field_types())
    row = _struct([(f"f{index}", f"{text}.f{index}", kind) for index, kind in kinds])
    return None if row is None else f"if({text} IS NULL, NULL, {row})"


def value_text(text: str, data_type: DataType) -> str:
    """Return the value of a key that `key_text` made."""
    if not has_maps(data_type):
        return text
    if isinstance(data_type, MapType | MultisetType):
        _, item = _entry_types(data_type)
        if not has_maps(item):
            return f"map_from_entries({text})"
        return f"map_from_entries(transform({text}, e -> named_struct('k', e.key, 'v', {value_text('e.value', item)})))"
    if isinstance(data_type, ArrayType):
        return f"transform({text}, e -> {value_text('e', data_type.element_type)})"
    assert isinstance(data_type, RowType)
    kinds = enumerate(data_type.field_types())
    fields = ", ".join(f"'f{index}', {value_text(f'{text}.f{index}', kind)}" for index, kind in kinds)
    return f"if({text} IS NULL, NULL, named_struct({fields}))"


def _lacks_equality(data_type: DataType) -> bool:
    return isinstance(data_type, _WITHOUT_EQUALITY) or any(map(_lacks_equality, data_type.children()))


def _struct(parts: Sequence[tuple[str, str, DataType]]) -> str | None:
    texts = [(name, key_text(text, data_type)) for name, text, data_type in parts]
    if any(text is None for _, text in texts):
        return None
    return f"named_struct({', '.join(f'{name!r}, {text}' for name, text in texts)})"


def _entry_types(data_type: MapType | MultisetType) -> tuple[DataType, DataType]:
    if isinstance(data_type, MultisetType):
        return data_type.element_type, IntType(False)
    return data_type.key_type, data_type.value_type
