"""A state's schema: its kind, the types of its keys and values, and whether its values carry times (D1, H4).

A snapshot stores it as JSON text, which is empty for states of the runtime (windows, timers):

    {"kind": "map", "key": "STRING", "value": {"ROW": [["a", "INT"]]}, "ttl": 60000}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

from penstock.base.typeinfo import TypeInformation
from penstock.state.schema.nodes import Node, collect_classes, format_type_node, to_type_node


class Expiry(Protocol):
    """The time to live of entries."""

    @property
    def ttl_ms(self) -> int: ...


class Declaration(Protocol):
    """A state as declared by the program: a descriptor. Descriptors of map state also have a `key_type_info`."""

    @property
    def kind(self) -> str: ...

    @property
    def type_info(self) -> TypeInformation | None: ...

    @property
    def ttl_config(self) -> Expiry | None: ...


@dataclass(frozen=True)
class StateSchema:
    """See the module docstring. `key` is set for map state; `ttl_ms` is None if values carry no time."""

    kind: str
    key: Node
    value: Node
    ttl_ms: int | None = None

    def to_json(self) -> str:
        """Return the JSON text for snapshots; equal schemas have equal texts."""
        parts = {"kind": self.kind, "key": self.key, "value": self.value, "ttl": self.ttl_ms}
        return json.dumps({name: part for name, part in parts.items() if part is not None})

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the classes in the schema, with the fields that they had."""
        return {**dict(collect_classes(self.key)), **dict(collect_classes(self.value))}

    def __str__(self) -> str:
        types = (
            f"{format_type_node(self.key)}, {format_type_node(self.value)}"
            if self.kind == "map"
            else format_type_node(self.value)
        )
        ttl = "" if self.ttl_ms is None else f" (TTL {self.ttl_ms} ms)"
        return f"{self.kind.capitalize()}State<{types}>{ttl}"


def schema_from_json(text: str) -> StateSchema:
    """Return the schema that `to_json` wrote."""
    parts = json.loads(text)
    return StateSchema(parts["kind"], parts.get("key"), parts.get("value"), parts.get("ttl"))


def to_state_schema(declaration: Declaration) -> StateSchema:
    """Return the schema of a declared state."""
    ttl = declaration.ttl_config
    return StateSchema(
        declaration.kind,
        to_type_node(getattr(declaration, "key_type_info", None)),
        to_type_node(declaration.type_info),
        None if ttl is None else ttl.ttl_ms,
    )
