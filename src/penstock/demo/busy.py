"""What is said while something takes a while."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console


def busy(console: Console, what: str) -> AbstractContextManager[Any]:
    """Says what takes a while: on a terminal as long as it lasts, elsewhere as a line."""
    if console.is_terminal:
        return console.status(what)
    console.print(what)
    return nullcontext()
