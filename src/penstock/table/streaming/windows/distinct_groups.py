"""Finds groups without aggregates, with less work than grouping rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns.expressions import full


def distinct_groups(table: pa.Table, keys: Sequence[str]) -> list[Any]:
    """Return the columns of the keys, with one row for each group.

    The window is usually the same for all rows, and an integer that is different in each row makes each a group.
    """
    columns = {name: full(table.column(name), 0) for name in keys}
    varying = [name for name, column in columns.items() if not _is_same(column)] or [keys[-1]]
    for name in varying:
        if not pa.types.is_integer(columns[name].type):
            continue
        values = pc.unique(columns[name])
        if len(values) == table.num_rows:
            return list(columns.values())
        if len(varying) == 1:
            return _fill_columns(columns, {name: values})
        break
    grouped = pa.TableGroupBy(table, varying, use_threads=False).aggregate([])
    return _fill_columns(columns, {name: grouped.column(name) for name in varying})


def _is_same(column: pa.Array) -> bool:
    """Return whether all rows of an integer column have the same value."""
    if not len(column) or not pa.types.is_integer(column.type) or column.null_count:
        return False
    numbers = column.to_numpy()
    return bool(numbers[0] == numbers[-1] and (numbers == numbers[0]).all())


def _fill_columns(columns: dict[str, Any], distinct: dict[str, Any]) -> list[Any]:
    """Return the columns of the groups. Columns that are not in `distinct` have one value for all groups."""
    rows = len(next(iter(distinct.values())))
    return [distinct[name] if name in distinct else pa.repeat(column[0], rows) for name, column in columns.items()]
