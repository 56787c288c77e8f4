"""The names of Flink's built-in functions."""

from __future__ import annotations

from penstock.table.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.table.functions.registry import SCALAR_FUNCTIONS


def is_built_in(name: str) -> bool:
    """Return whether a function or an aggregate of Flink has this name, in any case."""
    return name.upper() in SCALAR_FUNCTIONS or name.upper() in AGGREGATE_FUNCTIONS
