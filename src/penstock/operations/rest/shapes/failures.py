"""An error as the answer to an operation, as Flink's clients read it."""

from __future__ import annotations

import traceback

import msgspec


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """The class of an error, and its text with the traceback."""

    class_: str = msgspec.field(name="class")
    stack_trace: str


def failure_cause(error: BaseException) -> FailureCause:
    """Of any error; those that Penstock raises on purpose have no traceback of Penstock's own."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return FailureCause(name, "".join(traceback.format_exception_only(error)).strip())
