"""The console on which commands print tables and pictures."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

#: The line width (characters) without a terminal. Tables use only the width that they need.
_PIPED_WIDTH: Final = 2_000


def result_console() -> Console:
    """Return the console for tables and pictures on stdout; it does not truncate them in a file or a pipe."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=_PIPED_WIDTH)
