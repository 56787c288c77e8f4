"""Plans with other nodes in place of some of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.table.plan.logical import Node, SetOperation


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """A node over what `change` makes of its inputs; the same object where they stay the same."""
    if isinstance(node, SetOperation):
        parts = tuple(map(change, node.parts))
        same = all(one is other for one, other in zip(parts, node.parts, strict=True))
        return node if same else replace(node, parts=parts)
    changes: dict[str, Any] = {}
    for name in ("input", "left", "right"):
        before = getattr(node, name, None)
        if isinstance(before, Node):
            after = change(before)
            if after is not before:
                changes[name] = after
    return replace(node, **changes) if changes else node
