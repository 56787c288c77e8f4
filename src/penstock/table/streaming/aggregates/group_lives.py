"""The life cycle of groups within a batch: after which rows each group exists, and the changes that result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.equality import canonical_values
from penstock.table.data.logical_types import ArrayType, DataType, MapType, MultisetType, RawType, RowType, VariantType
from penstock.table.data.values import to_values
from penstock.table.plan.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from penstock.table.streaming.rows.held_rows import RowEquality

#: types whose columns Arrow cannot compare
_BY_VALUE: Final = (ArrayType, MapType, MultisetType, RowType, VariantType, RawType)


@dataclass(frozen=True, slots=True)
class Sent:
    """Changes to emit: for each, the row of the batch, the index of its values, and its row kind."""

    rows: Sequence[int]
    places: Sequence[int]
    kinds: Sequence[int]


@dataclass(frozen=True, slots=True)
class Lives:
    """The rows of a batch, as arrays with one entry for each row."""

    #: the group number of each row
    groups: Any
    #: nonzero for retractions; None if there are none
    goes: bytes | None = None
    #: rows after which their group is empty
    ends: frozenset[int] = field(default_factory=frozenset)
    #: whether the group has rows after each row; None if all have
    alive: Any = None

    def last_rows(self, groups: int) -> list[int]:
        """Return the last row of each group."""
        rows = np.zeros(groups, np.int64)
        rows[self.groups] = np.arange(len(self.groups))
        return rows.tolist()

    def _rows_before(self) -> Any:
        """Return the previous row of the same group for each row; -1 if there is none."""
        order = np.argsort(self.groups, kind="stable")
        ordered = self.groups[order]
        previous = np.full(len(order), -1, np.int64)
        previous[order[1:]] = np.where(ordered[1:] == ordered[:-1], order[:-1], -1)
        return previous

    def changes(self, was_there: Any, differ: Callable[[Any, Any], Any], sends_before: bool) -> Sent:
        """Return the changes that the rows cause.

        Args:
            was_there: whether each group existed before the batch.
            differ: tests whether the results at two arrays of indexes differ. The indexes count the groups before the
                batch, and then the rows.
            sends_before: whether updates include the previous row (UPDATE_BEFORE).
        """
        rows = np.arange(len(self.groups))
        prior = self._rows_before()
        is_first = prior < 0
        old = np.where(is_first, self.groups, prior + len(was_there))
        new = rows + len(was_there)
        had = np.where(is_first, was_there[self.groups], True if self.alive is None else self.alive[prior])
        has = np.ones(len(rows), np.bool_) if self.alive is None else self.alive
        both = np.flatnonzero(had & has)
        updated = np.zeros(len(rows), np.bool_)
        updated[both] = differ(old[both], new[both])
        # Each row has a slot for a retraction and one for an addition; unused slots are filtered out.
        goes = (had & ~has) | (updated if sends_before else False)
        comes = (has & ~had) | updated
        used = np.column_stack((goes, comes)).ravel()
        kinds = np.column_stack((np.where(updated, UPDATE_BEFORE, DELETE), np.where(updated, UPDATE_AFTER, INSERT)))
        return Sent(
            np.repeat(rows, 2)[used], np.column_stack((old, new)).ravel()[used], kinds.astype(np.uint8).ravel()[used]
        )

    def few_changes(
        self,
        before: Sequence[tuple[Any, ...] | None],
        after: Sequence[tuple[Any, ...] | None],
        sends_before: bool,
        sends_same: bool = False,
        equality: RowEquality | None = None,
    ) -> tuple[Sent, list[tuple[Any, ...]]]:
        """Like `changes`, but row by row, for results as tuples. Returns the results to emit instead of their indexes.

        Args:
            before: the previous result of each group.
            after: the result of each row's group after the row.
            sends_before: as in `changes`.
            sends_same: whether a row that does not change the result emits an update.
            equality: the equality of results; None if tuples compare directly.
        """
        now = list(before)
        rows, kinds, sent = [], [], []
        for row, (group, values) in enumerate(zip(self.groups.tolist(), after, strict=True)):
            old, new = now[group], values if self.alive is None or self.alive[row] else None
            is_same = old == new if equality is None else equality.same(old, new)
            if is_same and not (sends_same and new is not None):
                continue
            now[group] = new
            if old is not None and (new is None or sends_before):
                rows.append(row)
                kinds.append(DELETE if new is None else UPDATE_BEFORE)
                sent.append(old)
            if new is not None:
                rows.append(row)
                kinds.append(INSERT if old is None else UPDATE_AFTER)
                sent.append(new)
        return Sent(rows, (), kinds), sent


def differing(array: pa.Array, other: pa.Array, data_type: DataType) -> Any:
    """Return where two columns differ under Penstock's equality (`penstock.state.equality`); NULL equals NULL."""
    if isinstance(data_type, _BY_VALUE):
        lists = (canonical_values(to_values(column, data_type), column.type) for column in (array, other))
        return np.array([value != another for value, another in zip(*lists, strict=True)], np.bool_)
    differences = pc.fill_null(pc.not_equal(array, other), False)
    if pa.types.is_floating(array.type):
        differences = pc.and_not(differences, pc.fill_null(pc.and_(pc.is_nan(array), pc.is_nan(other)), False))
    if array.null_count or other.null_count:
        differences = pc.or_(differences, pc.xor(pc.is_null(array), pc.is_null(other)))
    return differences.to_numpy(zero_copy_only=False)
