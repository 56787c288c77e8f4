"""Identity of plans: everything that determines rows and state, but not column names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeAlias

import xxhash

from penstock.table.data.logical_types import DataType
from penstock.table.plan.logical import ArrowRows, Node, Scan, StreamRows, Values, Write, rejected_rows
from penstock.table.plan.row_schema import PlanColumn
from penstock.table.typed.nodes import Constant, Constants, Field, Typed
from penstock.table.user_functions.definition import UserFunction

#: returns the text of a value; None to build it from the value's parts
_Special = Callable[[Any], str | None]
#: nodes by their `id()`, each with its text
Known: TypeAlias = dict[int, tuple[Node, str]]
#: above this number of constant rows, the text has only their values, which is ten times as fast
_MANY_ROWS: Final = 1_000
_LIFETIME: Final = "state_ttl_ms"
#: the role of a step that reads a table
SOURCE: Final = "Source"
#: the role of a step that writes a table
SINK: Final = "Sink"
#: the role of the step that commits for all subtasks of a sink
COMMITTER: Final = "Committer"


def rows_text(node: Node, known: Known | None = None) -> str:
    """Return a text that is equal for plans with the same rows, provided they call only deterministic functions.

    `known`: a cache of these texts, so that each input is visited once.
    """
    return _text(node, _of_rows, {} if known is None else known)


def state_id(node: Node, role: str, known: Known | None = None) -> str:
    """Return the id, 32 hexadecimal digits, of the state of a node's step in a `role`.

    The id is the same in other processes, and does not depend on names of results, options of tables or lifetimes of
    state. It changes with the node and all its inputs, because state is only valid for the query that created it. The
    position in a table, which is the state of a `SOURCE`, is valid for any query that reads the table, and the state of
    a `SINK` or `COMMITTER` for any query that writes it. `known`: a cache of the hashed texts.
    """
    known = {} if known is None else known
    if isinstance(node, Scan) and role.startswith(SOURCE):
        text = f"{node.path}"
    elif isinstance(node, Write) and role.rpartition(" ")[0] not in (SINK, COMMITTER):
        text = f"Write({node.path},{node.key},{node.conflict},{_text(node.input, _of_state, known)})"
    else:
        text = _text(node, _of_state, known)
    return xxhash.xxh3_128_hexdigest(f"{role}:{text}".encode())


def collect_expressions(node: Node) -> Iterator[Typed]:
    """Yield the expressions of a node, without those of its inputs."""
    for name in _names(type(node)):  # type: ignore[arg-type]
        if name not in ("input", "left", "right", "parts"):
            yield from _expressions(getattr(node, name))


def _expressions(value: Any) -> Iterator[Typed]:
    if isinstance(value, Typed):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
    elif not isinstance(value, DataType):
        for name in _names(type(value)):  # type: ignore[arg-type]
            yield from _expressions(getattr(value, name))


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the fields of a class; empty unless it is a dataclass."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


@cache
def _compared(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


def _text(value: Any, special: _Special, known: Known) -> str:
    if not isinstance(value, Node):
        return _made(value, special, known)
    entry = known.get(id(value))
    if entry is None:
        # Keep a reference to the node, so that its `id()` is not reused.
        entry = known[id(value)] = value, _made(value, special, known)
    return entry[1]


def _made(value: Any, special: _Special, known: Known) -> str:
    special_text = special(value)
    if special_text is not None:
        return special_text
    match value:
        case PlanColumn():
            return f"{value.type}:{value.time}"
        case Field():
            return f"${value.index}:{value.type}"
        case Values(rows=rows) if len(rows) > _MANY_ROWS and all(
            isinstance(cell, Constant) for row in rows for cell in row
        ):
            values = [[cell.value for cell in row if isinstance(cell, Constant)] for row in rows]
            return f"Values({_text(value.schema, special, known)},{values!r})"
        case Constants():
            return f"Constants({value.type},{value.values!r})"
        case DataType():
            return str(value)
        case Enum():
            return value.name
        case tuple() | list():
            return f"[{','.join([_text(item, special, known) for item in value])}]"
        case _ if is_dataclass(value):
            compared = _compared(type(value))  # type: ignore[arg-type]
            names = [name for name in compared if special is not _of_state or name != _LIFETIME]
            inner = [f"{name}={_text(getattr(value, name), special, known)}" for name in names]
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
            return f"ArrowRows({_text(value.schema, _of_state, {})})"
        case StreamRows():
            return f"StreamRows({value.title},{_text(value.schema, _of_state, {})},{value.key})"
        case Scan():
            columns = [f"{column.name}:{column.type}" for column in value.schema]
            suffix = f",{value.taken}" if value.taken else ""
            return f"Scan({value.path},{columns},{value.key}{suffix})"
        case Write():
            # The sink of a route has its own id, so an INSERT into the same table keeps its id.
            rejected = rejected_rows(value)
            return f"Write({value.path})" if rejected is None else f"Write({value.path},{rejected.table.path})"
        case UserFunction():
            return f"UserFunction({value.name},{value.result_type})"
    return None
