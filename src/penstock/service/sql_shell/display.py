"""The shell's options, by Flink's keys."""

from __future__ import annotations

from typing import Any, Final

from penstock.base.config_options import ConfigOption
from penstock.base.value_types import BOOLEAN, INTEGER, choice
from penstock.table.data.errors import ValidationError
from penstock.table.session.table_config import MAX_COLUMN_WIDTH, TableConfig

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
