"""Which forms of operators a run uses: those that the planner chooses, or others that have to give the same.

The option `table.optimizer.excluded-optimizations` makes the planner take the general form of each optimised one. Some
operators also have a form for few rows and one for many; here the number that separates them is changed, so that the
small tables of these tests reach both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, NamedTuple

from penstock.sql.stream.planning.options import EXCLUDED, Optimization

CHOSEN, GENERAL, FEW, MANY = "chosen", "general", "few rows", "many rows"


class Threshold(NamedTuple):
    """A number of rows that separates two forms.

    Args:
        module: that compares with it.
        name: of the number there.
        few: the value with which the form for few rows serves any number.
        many: the value with which the form for many rows serves any number.
    """

    module: str
    name: str
    few: int
    many: int

    def value(self) -> int:
        """The number at present. Raises `AttributeError` where the module has no such number."""
        value: int = getattr(import_module(self.module), self.name)
        return value


_NEVER: Final = 1 << 40
THRESHOLDS: Final = (
    Threshold("penstock.sql.stream.groups.operators", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.groups.columnar", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.ranking.indexed_last_row", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.ranking.indexed_top_n", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.ranking.indexed_top_n", "_PARTITIONS_MIN", _NEVER, 1),
    Threshold("penstock.sql.stream.ranking.top_n", "MANY", _NEVER, 0),
    Threshold("penstock.sql.stream.rows.columns", "_FEW", 0, _NEVER),
    Threshold("penstock.sql.stream.joins.regular", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.joins.sides", "FEW_PAIRS", _NEVER, 0),
    Threshold("penstock.sql.stream.joins.sides", "_NEW_MAX", _NEVER, 0),
    Threshold("penstock.sql.stream.joins.sides", "_KNOWN_MAX", _NEVER, 0),
    Threshold("penstock.sql.stream.joins.sides", "_MANY", _NEVER, 0),
    Threshold("penstock.sql.stream.joins.sides", "_ASKED_MAX", _NEVER, 0),
    Threshold("penstock.sql.stream.windows.columnar", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.stream.windows.columnar", "_WAITING_MAX", _NEVER, 1),
    Threshold("penstock.sql.stream.lookups.pairing", "FEW_ROWS", _NEVER, 0),
    Threshold("penstock.sql.data.arrow", "_FEW", _NEVER, 0),
    Threshold("penstock.sql.expressions.columns", "_FEW", _NEVER, 1),
    Threshold("penstock.sql.functions.conditions", "_MANY", _NEVER, 1),
    Threshold("penstock.sql.functions.definition", "_FEW", _NEVER, 0),
    Threshold("penstock.sql.expressions.row_program", "ROWS_MAX", _NEVER, 0),
    Threshold("penstock.sql.expressions.row_program", "TUPLES_MAX", _NEVER, 0),
    Threshold("penstock.sql.stream.rows.watermarks", "_FEW", _NEVER, 0),
    Threshold("penstock.state.key_columns", "_FEW", _NEVER, 0),
    Threshold("penstock.runtime.columns", "_FEW", _NEVER, 0),
    Threshold("penstock.runtime.task.channels.result_partition", "_FEW", _NEVER, 0),
    # How many rows are put together before they are sent, or before rows that have left are removed.
    Threshold("penstock.sql.stream.over.operators", "_BATCH_ROWS", 1, _NEVER),
    Threshold("penstock.sql.stream.rows.columns", "ROWS_GONE_MAX", 1, _NEVER),
    Threshold("penstock.sql.stream.ranking.columnar", "ROWS_GONE_MAX", 1, _NEVER),
    Threshold("penstock.sql.stream.groups.columns", "ROWS_GONE_MAX", 1, _NEVER),
    Threshold("penstock.sql.stream.aggregates.columns", "ROWS_GONE_MAX", 1, _NEVER),
    Threshold("penstock.sql.stream.aggregates.pairs", "ROWS_GONE_MAX", 1, _NEVER),
    Threshold("penstock.sql.stream.joins.window", "_PAIRS_MAX", 2, _NEVER),
    Threshold("penstock.sql.stream.joins.interval", "_PAIRS_MAX", 2, _NEVER),
    Threshold("penstock.sql.stream.joins.sides", "_PAIRS_MAX", 2, _NEVER),
    Threshold("penstock.sql.stream.joins.regular", "_PAIRS_MAX", 2, _NEVER),
    Threshold("penstock.sql.stream.joins.window", "_ROWS_AT_ONCE", 2, _NEVER),
    Threshold("penstock.sql.stream.joins.regular", "_ROWS_AT_ONCE", 2, _NEVER),
)


def get_planner_options(operators: str) -> dict[str, str]:
    """The options of the planner."""
    if operators != GENERAL:
        return {}
    return {
        EXCLUDED.key(): ";".join(optimization.value for optimization in Optimization),
        "table.optimizer.reuse-sub-plan-enabled": "false",
    }


@contextmanager
def operators_of(operators: str) -> Iterator[None]:
    """Changes the thresholds while it is open."""
    if operators not in (FEW, MANY):
        yield
        return
    before = [(threshold, threshold.value()) for threshold in THRESHOLDS]
    try:
        for threshold in THRESHOLDS:
            number = threshold.few if operators == FEW else threshold.many
            setattr(import_module(threshold.module), threshold.name, number)
        yield
    finally:
        for threshold, value in before:
            setattr(import_module(threshold.module), threshold.name, value)
