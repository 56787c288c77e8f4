"""Which names Flink's own functions have."""

from __future__ import annotations

from penstock.table.functions.aggregates import AGGREGATE_FUNCTIONS
from penstock.table.functions.registry import SCALAR_FUNCTIONS


def is_built_in(name: str) -> bool:
    """Whether a function or an aggregate of Flink has this name, in whatever case."""
    return name.upper() in SCALAR_FUNCTIONS or name.upper() in AGGREGATE_FUNCTIONS
