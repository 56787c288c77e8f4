"""What all user functions share."""

from __future__ import annotations

from types import GenericAlias
from typing import Any

from penstock.core.operators.runtime_context import RuntimeContext


class Function:
    """Base of all user functions: `open` runs before the first record, `close` after the last, on every path."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get ready: look up state, connect. Runs on the worker, once per subtask and attempt."""

    def close(self) -> None:
        """Release what `open` took."""


class Subscripted:
    """A class that may be named with types, as `AsyncFunction[Row, str]` of PyFlink. Nobody looks at them."""

    __slots__ = ()

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)
