"""The shell's display: its options by Flink's keys, log lines, and the live table of a query.

`MaterializedTable` is the table of a changelog, as texts. Rows that look alike are one row with a count.

`limit_log` and `hold_log` keep log lines away from statements and result tables.

`show_live` is the TABLE mode on a terminal: the table that a query produces, redrawn as its changes arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.base.config_options import BOOLEAN, INTEGER, ConfigOption, choice
from penstock.drivers.logs import KEEPS, log_to_stderr_by_default
from penstock.sql.data.errors import ValidationError
from penstock.sql.session.session import MAX_COLUMN_WIDTH, TableConfig

SCHEMES: Final = ("DEFAULT", "CHESTER", "DARK", "DRACULA", "LIGHT", "OBSIDIAN", "SOLARIZED", "VS2010")

RESULT_MODE: Final = ConfigOption("sql-client.execution.result-mode", choice("TABLE", "CHANGELOG", "TABLEAU"), "TABLE")
MAX_TABLE_ROWS: Final = ConfigOption("sql-client.execution.max-table-result.rows", INTEGER, 1_000_000)
VERBOSE: Final = ConfigOption("sql-client.verbose", BOOLEAN, False)
PRINT_TIME_COST: Final = ConfigOption("sql-client.display.print-time-cost", BOOLEAN, True)
COLOR_SCHEMA: Final = ConfigOption("sql-client.display.color-schema", choice(*SCHEMES), "DEFAULT")
SHOW_LINE_NUMBERS: Final = ConfigOption("sql-client.display.show-line-numbers", BOOLEAN, False)
#: the older name of `table.display.max-column-width`
OLD_COLUMN_WIDTH: Final = ConfigOption("sql-client.display.max-column-width", INTEGER, 30)

OPTIONS: Final[dict[str, ConfigOption[Any]]] = {
    option.key(): option
    for option in (
        *(RESULT_MODE, MAX_TABLE_ROWS, VERBOSE),
        *(PRINT_TIME_COST, COLOR_SCHEMA, SHOW_LINE_NUMBERS, OLD_COLUMN_WIDTH),
    )
}
_PREFIX: Final = "sql-client."


def check_option(key: str, value: str) -> None:
    """Reject keys with the shell's prefix that are not options, and invalid values.

    Raises:
        ValidationError: for an unknown key, or a number below 1.
        ConfigurationError: for a value that the option does not accept.
    """
    if not key.startswith(_PREFIX):
        return
    if key not in OPTIONS:
        raise ValidationError(f"There is no option '{key}'. The shell has {', '.join(sorted(OPTIONS))}.")
    option = OPTIONS[key]
    option.convert(value)
    if option in (MAX_TABLE_ROWS, OLD_COLUMN_WIDTH) and int(value) < 1:
        raise ValidationError(f"Option '{key}' must be at least 1, not {value}.")


def result_mode(config: TableConfig, is_terminal: bool) -> str:
    """Return how query rows are shown. Only a terminal can redraw a table, so elsewhere TABLEAU is the default."""
    if config.get(RESULT_MODE.key()) is None and not is_terminal:
        return "TABLEAU"
    return config.read(RESULT_MODE)


def column_width(config: TableConfig) -> int:
    """Return the maximum width of a column."""
    is_new = config.get(MAX_COLUMN_WIDTH.key()) is not None
    return config.read(MAX_COLUMN_WIDTH if is_new else OLD_COLUMN_WIDTH)


class MaterializedTable:
    """Turns changes into rows. One thread may change the table while another reads it.

    Args:
        rows_max: how many rows to keep; the oldest are dropped first.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._counts: dict[tuple[str, ...], int] = {}
        self._total = 0
        self._lock = Lock()
        #: how many changes have arrived
        self.changes = 0

    def apply(self, kind: str, texts: Sequence[str]) -> None:
        """Apply a change, of a kind such as `+I`. A retraction may arrive before its insert."""
        row = tuple(texts)
        with self._lock:
            self.changes += 1
            before = self._counts.pop(row, 0)
            after = before + (1 if kind in ("+I", "+U") else -1)
            if after:
                self._counts[row] = after
            self._total += max(after, 0) - max(before, 0)
            while self._total > self._rows_max:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        row = next(row for row, count in self._counts.items() if count > 0)
        self._total -= 1
        self._counts[row] -= 1
        if not self._counts[row]:
            del self._counts[row]

    def __len__(self) -> int:
        return self._total

    def rows(self, last: int | None = None) -> list[tuple[str, ...]]:
        """Return the current rows, the most recently changed last; with `last`, at most that many of the last rows."""
        with self._lock:
            newest = (row for row in reversed(self._counts) for _ in range(self._counts[row]))
            return list(islice(newest, last))[::-1]


def limit_log() -> None:
    """Log only warnings at a terminal, so that the logs of jobs do not appear between the lines of statements.

    Two lines remain, for the user who waits: that Spark starts, and the address of the REST API.
    """
    log_to_stderr_by_default()
    logging.getLogger("penstock").setLevel(logging.WARNING)
    for name in ("penstock.rest", "penstock.spark"):
        logging.getLogger(name).setLevel(logging.INFO)


@contextmanager
def hold_log() -> Iterator[None]:
    """Hold back lines below the level of a warning until the block ends, so that they do not appear inside a table."""
    buffered: list[tuple[logging.Handler, logging.LogRecord]] = []
    filters: list[tuple[logging.Handler, Callable[[logging.LogRecord], bool]]] = []
    for handler in logging.getLogger("penstock").handlers:
        if not (handler.name or "").startswith(KEEPS):

            def passes(record: logging.LogRecord, handler: logging.Handler = handler) -> bool:
                if record.levelno < logging.WARNING:
                    buffered.append((handler, record))
                return record.levelno >= logging.WARNING

            handler.addFilter(passes)
            filters.append((handler, passes))
    try:
        yield
    finally:
        for handler, passes_ in filters:
            handler.removeFilter(passes_)
        for handler, record in buffered:
            handler.handle(record)


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
