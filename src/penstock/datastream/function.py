"""The base class of user-defined functions."""

from __future__ import annotations

from types import GenericAlias
from typing import Any

from penstock.core.operators.runtime_context import RuntimeContext


class Function:
    """Base class of user-defined functions. `open` runs before the first record, `close` at the end on every path."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function: look up state, open connections. Runs on the worker, once per subtask and attempt."""

    def close(self) -> None:
        """Release the resources that `open` acquired."""


class Subscripted:
    """A class that accepts type arguments, like PyFlink's `AsyncFunction[Row, str]`, and ignores them."""

    __slots__ = ()

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)
