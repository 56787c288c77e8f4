"""Shows the rows of a query to the user: as a tableau, as changes, or as the materialized table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.service.sql_shell.display import MAX_TABLE_ROWS, PRINT_TIME_COST, column_width, result_mode
from penstock.service.sql_shell.logs import hold_log
from penstock.service.sql_shell.materialized import MaterializedTable
from penstock.table.plan.executor import ChangelogRow
from penstock.table.plan.row_schema import PlanColumn, RowSchema
from penstock.table.session.table_config import TableConfig
from penstock.table.session.table_result import CloseableIterator, TableResult
from penstock.table.session.tableau import NULL_TEXT, Tableau
from penstock.table.session.value_text import format_value
from penstock.table.statements.results import STRING

Write = Callable[[str], object]


def write_out(text: str) -> None:
    """Print a text and flush, because rows may arrive slowly."""
    sys.stdout.write(text)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class QueryView:
    """Shows query rows as this session's options say.

    Args:
        config: the session's options.
        is_terminal: whether the output is a terminal, which can be redrawn.
        clock: a clock (s), for the duration of a query.
    """

    config: TableConfig
    is_terminal: bool
    clock: Callable[[], float] = time.monotonic

    def show(self, result: TableResult, begun: float) -> bool:
        """Show all rows of a query. Ctrl-C cancels it; returns whether it ran to its end.

        Args:
            result: the query.
            begun: when it was submitted, by the clock.
        """
        changes = _Changes(result.collect())
        resolved = result.get_resolved_schema()
        columns = zip(resolved.get_column_names(), resolved.get_column_data_types(), strict=True)
        schema = RowSchema(tuple(PlanColumn(name, kind) for name, kind in columns))
        try:
            with hold_log():
                self._show(changes, schema, begun)
        except KeyboardInterrupt:
            changes.is_cancelled = True
        finally:
            changes.rows.close()
        if changes.is_cancelled:
            write_out("[INFO] The query is cancelled.\n")
        return not changes.is_cancelled

    def _show(self, changes: Iterable[ChangelogRow], schema: RowSchema, begun: float) -> None:
        mode = result_mode(self.config, self.is_terminal)
        is_streaming, width = self.config.is_streaming(), column_width(self.config)
        if mode == "CHANGELOG":
            show_changes(changes, schema, write_out)
        elif mode == "TABLEAU":
            style = Tableau(schema, not is_streaming, is_streaming, width, counts_received=is_streaming)
            times = not is_streaming and self.config.read(PRINT_TIME_COST)
            write = _Timed(lambda: self.clock() - begun) if times else write_out
            style.print(changes, write)
        else:
            self._show_table(changes, schema, width)

    def _show_table(self, changes: Iterable[ChangelogRow], schema: RowSchema, width: int) -> None:
        table = MaterializedTable(self.config.read(MAX_TABLE_ROWS))
        if self.is_terminal:
            from penstock.service.sql_shell.live import show_live

            show_live(table, format_changes(changes, schema), schema.names, width)
            return
        for kind, texts in format_changes(changes, schema):
            table.apply(kind, texts)
        draw_table(table, schema, width)


class _Changes:
    """The rows of a query as changes, until the query ends or is interrupted."""

    def __init__(self, rows: CloseableIterator) -> None:
        self.rows = rows
        self.is_cancelled = False

    def __iter__(self) -> Iterator[ChangelogRow]:
        try:
            for row in self.rows:
                yield row.get_row_kind().short_string, tuple(row)
        except KeyboardInterrupt:  # the frame around the rows is still completed
            self.is_cancelled = True


class _Timed:
    """Writes lines, and appends the elapsed time to the last one, which is the row count."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def __call__(self, text: str) -> None:
        is_count = text.endswith((" in set\n", "Empty set\n")) and not text.startswith("|")
        write_out(f"{text[:-1]} ({self._seconds():.2f} seconds)\n" if is_count else text)


def format_changes(changes: Iterable[ChangelogRow], schema: RowSchema) -> Iterator[tuple[str, list[str]]]:
    """Yield changes with their values as text."""
    for kind, values in changes:
        yield kind, [format_value(value, type_, NULL_TEXT) for value, type_ in zip(values, schema.types, strict=True)]


def show_changes(changes: Iterable[ChangelogRow], schema: RowSchema, write: Write) -> None:
    """Write a line for each change, of any width."""
    write(f"op {', '.join(schema.names)}\n")
    count = 0
    for kind, texts in format_changes(changes, schema):
        write(f"{kind} {', '.join(texts)}\n")
        count += 1
    write(f"Received a total of {count} {'row' if count == 1 else 'rows'}\n")


def draw_table(table: MaterializedTable, schema: RowSchema, width: int) -> None:
    """Draw the table that results from the changes, with borders."""
    # The cells are already text.
    texts = RowSchema(tuple(PlanColumn(name, STRING) for name in schema.names))
    Tableau(texts, fits_rows=True, width_max=width).print((("+I", row) for row in table.rows()), write_out)
