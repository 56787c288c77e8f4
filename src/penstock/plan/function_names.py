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
        part = waiting.pop(0)
        if isinstance(part, partial):
            waiting = [*part.args, *waiting]
        elif isinstance(part, OperatorNode):
            waiting = [*part.parts(), *waiting]
        elif name := _infer_name(part):
            names.append(name)
    return ", ".join(dict.fromkeys(names))


def _infer_name(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str, bytes, tuple, list, dict, set, enum.Enum, type)):
        return ""
    name: str = value.__qualname__ if hasattr(value, "__qualname__") else type(value).__qualname__
    name = name.removeprefix("_").replace("<locals>.", "")
    return "" if "<lambda>" in name else name
