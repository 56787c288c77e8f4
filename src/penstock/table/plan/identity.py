"""What makes two plans the same: all that decides about rows and state, and no names of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

import xxhash

from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import ArrowRows, Node, Scan, StreamRows, Write
from penstock.table.plan.row_schema import PlanColumn
from penstock.table.typed.nodes import Field, Typed
from penstock.table.user_functions.definition import UserFunction

#: what stands for a value in a text; None for what it consists of
_Special = Callable[[Any], str | None]
_LIFETIME: Final = "state_ttl_ms"
#: the role of a step that reads a table
SOURCE: Final = "Source"
#: the role of a step that writes a table
SINK: Final = "Sink"


def rows_text(node: Node) -> str:
    """A text that is the same for plans that give the same rows, if they only call deterministic functions."""
    return _text(node, _of_rows)


def state_id(node: Node, role: str) -> str:
    """32 hexadecimal digits for the state that a step of a node has: what `role` it has for the node.

    They stay the same in other processes, and when names of results, options of tables or lifetimes of state change;
    they change with the node and all that it reads, because state is only good for the query that made it. The position
    in a table, which is the state of a `SOURCE`, is good for any query that reads it, and that
    of a `SINK` for any query that writes its table.
    """
    if isinstance(node, Scan) and role.startswith(SOURCE):
        text = f"{node.path}"
    elif isinstance(node, Write) and role.rpartition(" ")[0] != SINK:
        text = f"Write({node.path},{node.key},{node.conflict},{_text(node.input, _of_state)})"
    else:
        text = _text(node, _of_state)
    return xxhash.xxh3_128_hexdigest(f"{role}:{text}".encode())


def expressions_in(node: Node) -> Iterator[Typed]:
    """The expressions of a node, without those of its inputs."""
    for one in fields(node):
        if one.name not in ("input", "left", "right", "parts"):
            yield from _expressions(getattr(node, one.name))


def _expressions(value: Any) -> Iterator[Typed]:
    if isinstance(value, Typed):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _expressions(one)
    elif is_dataclass(value) and not isinstance(value, DataType):
        for inner in fields(value):
            yield from _expressions(getattr(value, inner.name))


def _text(value: Any, special: _Special) -> str:
    found = special(value)
    if found is not None:
        return found
    match value:
        case PlanColumn():
            return f"{value.type}:{value.time}"
        case Field():
            return f"${value.index}:{value.type}"
        case DataType():
            return str(value)
        case Enum():
            return value.name
        case tuple() | list():
            return f"[{','.join(_text(one, special) for one in value)}]"
        case _ if is_dataclass(value):
            shown = [one.name for one in fields(value) if one.compare]
            names = [name for name in shown if special is not _of_state or name != _LIFETIME]
            inner = (f"{name}={_text(getattr(value, name), special)}" for name in names)
            return f"{type(value).__name__}({','.join(inner)})"
        case _:
            return f"{type(value).__name__}:{value!r}"


def _of_rows(value: Any) -> str | None:
    match value:
        case ArrowRows():
            return f"ArrowRows({id(value.data)})"
        case StreamRows():
            return f"StreamRows({id(value.stream)})"
        case UserFunction():
            return f"UserFunction({id(value)})"
    return None


def _of_state(value: Any) -> str | None:
    match value:
        case ArrowRows():
            return f"ArrowRows({_text(value.schema, _of_state)})"
        case StreamRows():
            return f"StreamRows({value.title},{_text(value.schema, _of_state)},{value.key})"
        case Scan():
            columns = [f"{column.name}:{column.type}" for column in value.schema]
            taken = f",{value.taken}" if value.taken else ""
            return f"Scan({value.path},{columns},{value.key}{taken})"
        case Write():
            return f"Write({value.path})"
        case UserFunction():
            return f"UserFunction({value.name},{value.result_type})"
    return None
