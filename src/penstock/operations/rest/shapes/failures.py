"""An error as the result of an operation, in the form that Flink's clients read."""

from __future__ import annotations

import traceback

import msgspec

from penstock.base.secrets import hide
from penstock.operations.rest.shapes.java_errors import serialized_throwable


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """The class of an error, its text, and both as a Java object (base64) for Flink's client."""

    class_: str = msgspec.field(name="class")
    stack_trace: str
    serialized_throwable: bytes


def failure_cause(error: BaseException) -> FailureCause:
    """Convert an error to its class and text; Python's own traceback is left out."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = hide("".join(traceback.format_exception_only(error)).strip())
    return FailureCause(name, text, serialized_throwable(name, text))
