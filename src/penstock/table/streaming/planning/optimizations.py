"""Optimizations of the planner that a session can exclude: a query then runs in the general form.

Excluding one never changes the rows of a result. It shows whether an unexpected result comes from an optimization, and
lets tests compare each optimized form with the general one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from penstock.base.config_options import ConfigOption
from penstock.base.value_types import build_list_type, choice


class Optimization(Enum):
    """An optimization. Its value is its name in the option."""

    #: window aggregates with Arrow kernels, over panes that windows share
    COLUMN_WINDOWS = "column-windows"
    #: an aggregate directly above a window table assigns the windows of its rows itself
    WINDOWS_IN_AGGREGATES = "windows-in-aggregates"
    #: append-only joins that store rows as columns
    COLUMN_JOINS = "column-joins"
    #: joins that find the previous row of an update by its key
    KEYED_JOINS = "keyed-joins"
    #: top-N and deduplication that store rows as columns
    COLUMN_RANKS = "column-ranks"
    #: top-N over updates that only move rows up, without UPDATE_BEFORE
    UPDATING_RANKS = "updating-ranks"
    #: no step for DISTINCT if no two rows are equal
    DISTINCT_REMOVAL = "distinct-removal"
    #: filters in the step that completes upserts
    FILTERED_UPSERTS = "filtered-upserts"
    #: deletions with only their key, for a sink that deletes by key
    KEYED_DELETIONS = "keyed-deletions"
    #: filters, limits, columns and fields that are pushed down into tables
    PUSH_DOWN = "push-down"


EXCLUDED: Final[ConfigOption[list[str]]] = ConfigOption(
    "table.optimizer.excluded-optimizations",
    build_list_type(choice(*(optimization.value for optimization in Optimization))),
    [],
)
