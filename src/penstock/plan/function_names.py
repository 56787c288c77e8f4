"""Names of an operator's user functions, so that people and restores can tell `Keyed Process` operators apart."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

from penstock.plan.nodes import Node, OperatorNode


def function_name(node: Node) -> str:
    """Return the names of the functions, sources and sinks that a node passes to its operator, or of their classes.

    Lambdas have no name, and settings do not count. Both are left out, so the result may be "".
    """
    names = []
    waiting: list[Any] = [node]
    while waiting:
        found = waiting.pop(0)
        if isinstance(found, partial):
            waiting = [*found.args, *waiting]
        elif isinstance(found, OperatorNode):
            waiting = [*found.parts(), *waiting]
        elif name := _name_of(found):
            names.append(name)
    return ", ".join(dict.fromkeys(names))


def _name_of(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str, bytes, tuple, list, dict, set, enum.Enum, type)):
        return ""
    name: str = value.__qualname__ if hasattr(value, "__qualname__") else type(value).__qualname__
    name = name.removeprefix("_").replace("<locals>.", "")
    return "" if "<lambda>" in name else name
