"""Declared types as JSON nodes, as stored in snapshots, and as text for people.

A node is None if nothing is declared (values are pickled), a string for a type without parameters (`"INT"`), and
otherwise an object with one entry, from the type's name to its parameters:

    {"ROW": [["a", "INT"]]}
    {"MAP": ["STRING", "LONG"]}
    {"CLASS": ["shop.model:Order", "dataclass", [["id", "STRING"]]]}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.base.basic_types import (
    BasicTypeInfo,
    DateTypeInfo,
    PickledBytesTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from penstock.base.class_types import ClassTypeInfo, class_path
from penstock.base.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

Node = Any

_PLAIN: Final = {DateTypeInfo: "SQL_DATE", TimeTypeInfo: "SQL_TIME", TimestampTypeInfo: "SQL_TIMESTAMP"}
_OF_ELEMENTS: Final[dict[type, str]] = {
    ListTypeInfo: "LIST",
    ObjectArrayTypeInfo: "OBJECT_ARRAY",
    BasicArrayTypeInfo: "BASIC_ARRAY",
    PrimitiveArrayTypeInfo: "PRIMITIVE_ARRAY",
}
#: The names of the Python API that differ from Flink's notation.
_FLINK_NAMES: Final = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "SQL_DATE": "DATE",
    "SQL_TIME": "TIME",
    "SQL_TIMESTAMP": "TIMESTAMP",
}


def to_type_node(info: TypeInformation | None) -> Node:
    """Return the node of a type; None for None and for pickled objects."""
    if info is None or isinstance(info, PickledBytesTypeInfo):
        return None
    if isinstance(info, BasicTypeInfo):
        return info.basic_type.name
    kind = type(info)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(info, RowTypeInfo):
        return {
            "ROW": [
                list(f) for f in zip(info.get_field_names(), map(to_type_node, info.get_field_types()), strict=True)
            ]
        }
    if isinstance(info, TupleTypeInfo):
        return {"TUPLE": [to_type_node(field) for field in info.get_field_types()]}
    if kind in _OF_ELEMENTS:
        return {_OF_ELEMENTS[kind]: to_type_node(info.element_type)}  # type: ignore[attr-defined]
    if isinstance(info, MapTypeInfo):
        return {"MAP": [to_type_node(info.key_type_info), to_type_node(info.value_type_info)]}
    if isinstance(info, ClassTypeInfo):
        family = "tuple" if issubclass(info.cls, tuple) else "dataclass"
        fields = [[name, to_type_node(field)] for name, field in info.field_types.items()]
        return {"CLASS": [class_path(info.cls), family, fields]}
    return {"OTHER": repr(info)}


def get_type_name(node: Node) -> str | None:
    """Return the name of a node's type, such as `INT` or `ROW`; None if nothing is declared."""
    if isinstance(node, dict):
        (name,) = node
        return str(name)
    return None if node is None else str(node)


def format_type_node(node: Node) -> str:
    """Return a type in Flink's notation, such as `ROW<a INT, b STRING>`; `PICKLED` if nothing is declared."""
    if node is None:
        return "PICKLED"
    if isinstance(node, str):
        return _FLINK_NAMES.get(node, node)
    ((name, parameters),) = node.items()
    if name == "ROW":
        return f"ROW<{_fields_text(parameters)}>"
    if name == "CLASS":
        path, _, fields = parameters
        return f"{path}<{_fields_text(fields)}>"
    if name == "OTHER":
        return str(parameters)
    return f"{name}<{', '.join(map(format_type_node, parameters if isinstance(parameters, list) else [parameters]))}>"


def _fields_text(fields: list[list[Any]]) -> str:
    return ", ".join(f"{name} {format_type_node(field)}" for name, field in fields)


def collect_classes(node: Node) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the classes within a type, each as (path, its field names when the snapshot was taken)."""
    if not isinstance(node, dict):
        return
    ((name, parameters),) = node.items()
    if name == "CLASS":
        path, _, fields = parameters
        yield path, tuple(field for field, _ in fields)
        parts = [part for _, part in fields]
    elif name == "ROW":
        parts = [part for _, part in parameters]
    elif name == "OTHER":
        parts = []
    else:
        parts = parameters if isinstance(parameters, list) else [parameters]
    for part in parts:
        yield from collect_classes(part)
