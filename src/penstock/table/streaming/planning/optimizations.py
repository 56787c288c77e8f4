"""Optimizations of the planner that a session can exclude: a query then runs in the general form.

Excluding one never changes the rows of a result. It shows whether an unexpected result comes from an optimization, and
lets tests compare each optimized form with the general one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.value_types import choice, list_of


class Optimization(Enum):
    """An optimization, by the name that the option has for it."""

    #: aggregates of windows by Arrow's kernels, over panes that windows share
    COLUMN_WINDOWS = "column-windows"
    #: an aggregate right above a window table finds the windows of its rows itself
    WINDOWS_IN_AGGREGATES = "windows-in-aggregates"
    #: append-only joins that hold their rows as columns
    COLUMN_JOINS = "column-joins"
    #: joins that find the previous row of an update by its key
    KEYED_JOINS = "keyed-joins"
    #: top-N and deduplication that hold their rows as columns
    COLUMN_RANKS = "column-ranks"
    #: top-N over updates that only move rows up, without the previous row
    UPDATING_RANKS = "updating-ranks"
    #: no step for DISTINCT where no two rows are equal
    DISTINCT_REMOVAL = "distinct-removal"
    #: filters within the step that completes upserts
    FILTERED_UPSERTS = "filtered-upserts"
    #: deletions that have their key alone on the way to a sink that deletes by key
    KEYED_DELETIONS = "keyed-deletions"
    #: filters, limits, columns and fields that are pushed into tables
    PUSH_DOWN = "push-down"


EXCLUDED: Final[ConfigOption[list[str]]] = ConfigOption(
    "table.optimizer.excluded-optimizations",
    list_of(choice(*(optimization.value for optimization in Optimization))),
    [],
)
