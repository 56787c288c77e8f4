"""Messages during lengthy operations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console


def busy(console: Console, message: str) -> AbstractContextManager[Any]:
    """Show a message about a lengthy operation: on a terminal while it runs, elsewhere as a line."""
    if console.is_terminal:
        return console.status(message)
    console.print(message)
    return nullcontext()
