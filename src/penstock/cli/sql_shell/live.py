"""TABLE mode on a terminal: the table that a query produces, redrawn as its changes arrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.sql_shell.display import MaterializedTable

REFRESHES_PER_SECOND: Final = 4
#: borders, column names, the title and the line below
_LINES_AROUND: Final = 7


def show_live(
    table: MaterializedTable,
    changes: Iterable[tuple[str, Sequence[str]]],
    names: Sequence[str],
    width: int,
    console: Console | None = None,
) -> None:
    """Draw the table until its changes end. A thread of rich draws while this thread waits for changes."""
    console = Console() if console is None else console
    is_running = True

    def drawn() -> Group:
        return drawing(table, names, width, max(console.height - _LINES_AROUND, 1), is_running)

    with Live(get_renderable=drawn, console=console, refresh_per_second=REFRESHES_PER_SECOND):
        for kind, texts in changes:
            table.apply(kind, texts)
        is_running = False


def drawing(table: MaterializedTable, names: Sequence[str], width: int, rows_max: int, is_running: bool) -> Group:
    """Return a drawing of the last rows of the table, as many as fit."""
    rows = table.rows(rows_max)
    count = len(table)
    caption = f"{count} {'row' if count == 1 else 'rows'} after {table.changes} changes"
    if len(rows) < count:
        caption += f"; the last {len(rows)} are shown"
    caption += ". Ctrl-C ends the query." if is_running else "."
    drawn = Table()
    for name in names:
        drawn.add_column(Text(name), max_width=max(width, len(name)), no_wrap=True, overflow="ellipsis")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return Group(drawn, Text(caption))
