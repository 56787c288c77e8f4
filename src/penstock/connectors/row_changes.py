"""Changes of rows by value, for DELETE, UPDATE and MERGE in formats whose rows have no address.

A query yields a row for each row that changes: what happens to it, its columns before, and its columns after. Equal
rows have equal outcomes, because conditions and new values are computed from the row. So the row itself is its address:
every row that equals one of the changed rows gets its outcome. `RowChanges` has each changed row once. A row of the
table that several rows of a MERGE's source match would have several outcomes; it is found by counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import PenstockError

#: the column that says what happens to a row, and the values of it
KIND: Final = "kind"
DELETE: Final = 0
UPDATE: Final = 1
INSERT: Final = 2
_PLACE: Final = "__penstock_place"


class RowChangeError(PenstockError, RuntimeError):
    """Rows cannot be changed as a statement says; trying again does not help."""

    suppresses_restart = True


def before(name: str) -> str:
    """Return the name of the column that has the values before the change."""
    return f"before_{name}"


def after(name: str) -> str:
    """Return the name of the column that has the values after the change."""
    return f"after_{name}"


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of one statement.

    Attributes:
        old: each changed row once.
        counts: how many rows of the query have this row.
        is_deleted: whether the row is deleted; otherwise it is replaced.
        new: the rows that replace them, for deleted ones NULLs.
        inserted: new rows beside them.
    """

    old: pa.Table
    counts: np.ndarray
    is_deleted: np.ndarray
    new: pa.Table
    inserted: pa.Table

    @staticmethod
    def of(changes: pa.Table, names: Sequence[str], title: str) -> RowChanges:
        """Return the changes that a query has found.

        Raises:
            RowChangeError: if equal rows have several outcomes.
        """
        changes = changes.combine_chunks()
        is_inserted = pc.equal(changes.column(KIND), INSERT)
        inserted = changes.filter(is_inserted).select([after(name) for name in names]).rename_columns(names)
        changes = changes.filter(pc.invert(is_inserted)).combine_chunks()
        old = changes.select([before(name) for name in names]).rename_columns(names)
        firsts, numbers = _number_rows(old)
        outcomes = changes.select([KIND, *(after(name) for name in names)])
        if len(_number_rows(pa.table([*outcomes.columns, numbers], [*outcomes.column_names, _PLACE]))[0]) > len(firsts):
            raise RowChangeError(
                f"a row of table {title} has several outcomes: several rows of the source match it in MERGE, or its "
                "new values are drawn by chance. Let each row of the table match one row of the source"
            )
        return RowChanges(
            old.take(firsts),
            np.bincount(numbers, minlength=len(firsts)),
            outcomes.column(KIND).take(firsts).to_numpy() == DELETE,
            outcomes.drop_columns([KIND]).take(firsts).rename_columns(names),
            inserted,
        )

    def find(self, rows: pa.Table) -> np.ndarray:
        """Return for each row of a table the number of the changed row that it equals, else -1."""
        if not self.old.num_rows or not rows.num_rows:
            return np.full(rows.num_rows, -1)
        both = pa.concat_tables([self.old, rows.select(self.old.column_names)], promote_options="permissive")
        firsts, numbers = _number_rows(both)
        # Changed rows come first and differ from each other, so the first row of a group is the changed one.
        of_group = np.where(firsts < self.old.num_rows, firsts, -1)
        return np.asarray(of_group[numbers[self.old.num_rows :]])

    def check_nulls(self, required: Sequence[str], title: str) -> None:
        """Raise `RowChangeError` for NULL in a column that must have a value."""
        for name in required:
            new = self.new.column(name).filter(pa.array(~self.is_deleted))
            if new.null_count or self.inserted.column(name).null_count:
                raise RowChangeError(f"column '{name}' of table {title} may not be NULL, and is in a new row")

    def check_counts(self, present: np.ndarray, title: str) -> None:
        """Compare how often the changed rows were found in the table with how often the query has found them.

        Raises:
            RowChangeError: if they differ.
        """
        if np.any(present < self.counts):
            index = int(np.flatnonzero(present < self.counts)[0])
            raise RowChangeError(
                f"several rows of the source match one row of table {title}: "
                f"{self.old.slice(index, 1).to_pylist()[0]}. Let each row of the table match one row of the source"
            )
        if np.any(present > self.counts):
            index = int(np.flatnonzero(present > self.counts)[0])
            raise RowChangeError(
                f"of equal rows of table {title} some are to change and others not: "
                f"{self.old.slice(index, 1).to_pylist()[0]}. A condition that is drawn by chance cannot tell them apart"
            )


def _number_rows(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of the first row of each group of equal rows, and the number of the group of each row."""
    names = [f"c{index}" for index in range(rows.num_columns)]
    keys = pa.table([_comparable(column) for column in rows.columns], names)
    keys = keys.append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    grouped = keys.group_by(names, use_threads=False).aggregate([(_PLACE, "min"), (_PLACE, "list")])
    numbers = np.zeros(rows.num_rows, np.int64)
    positions = grouped.column(f"{_PLACE}_list").combine_chunks()
    numbers[pc.list_flatten(positions).to_numpy()] = pc.list_parent_indices(positions).to_numpy()
    return grouped.column(f"{_PLACE}_min").to_numpy(), numbers


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """Return a column that Arrow can group by: rows with equal values in it have equal values in the other."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_nested(array.type):
        return pa.array([None if value is None else repr(value) for value in array.to_pylist()], pa.string())
    if pa.types.is_floating(array.type):
        return array.view(pa.int64() if array.type == pa.float64() else pa.int32())  # -0.0 and 0.0 differ
    return array
