"""What was parsed, as short text: every operation in brackets, so that precedence shows."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from penstock.sql.data.types import DataType
from penstock.sql.parser import syntax


def shown(node: Any) -> str:
    """An expression such as `[+ a 1]`, and anything else as its class with what is not at its default."""
    if isinstance(node, syntax.Reference):
        return ".".join(node.path)
    if isinstance(node, syntax.NumberLiteral):
        return node.text
    if isinstance(node, syntax.TextLiteral):
        return repr(node.value)
    if isinstance(node, syntax.NullLiteral):
        return "NULL"
    if isinstance(node, syntax.Star):
        return ".".join([*node.path, "*"])
    if isinstance(node, syntax.Call):
        options = [shown(value) for name, value in changed(node) if name not in ("name", "operands", "path")]
        return f"[{' '.join([node.name, *map(shown, node.operands), *options])}]"
    if isinstance(node, (DataType, str, int)) or node is None:
        return str(node)
    if isinstance(node, Enum):
        return str(node.value)
    if isinstance(node, tuple):
        return f"({', '.join(map(shown, node))})"
    values = [shown(value) if name == "operand" else f"{name}={shown(value)}" for name, value in changed(node)]
    return f"{type(node).__name__}({', '.join(values)})"


def changed(node: Any) -> list[tuple[str, Any]]:
    """The fields that are not at their defaults."""
    assert is_dataclass(node)
    return [
        (field.name, getattr(node, field.name))
        for field in fields(node)
        if field.name != "at" and getattr(node, field.name) != field.default
    ]
