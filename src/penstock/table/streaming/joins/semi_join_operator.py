"""Semi and anti joins: left rows with, or without, a match on the right side.

A change of a left row that qualifies is passed on unchanged. A change on the right side emits the left rows that gain
their first match or lose their last one.
"""

from __future__ import annotations

from penstock.table.plan.changes import DELETE, INSERT, UPDATE_BEFORE
from penstock.table.plan.logical import JoinType
from penstock.table.streaming.joins.join_sides import COUNT, MATCHES, Pairs
from penstock.table.streaming.joins.joining_operator import JoiningOperator, Sent


class SemiJoinOperator(JoiningOperator):
    """SEMI and ANTI. See the module docstring."""

    gives_right = False

    def changes_matches(self, is_left: bool) -> bool:
        """See `JoiningOperator`."""
        return not is_left

    def join_row(self, row: int, kind: int, pairs: Pairs, is_left: bool, counts: bool, sent: Sent) -> int:
        """See `JoiningOperator`."""
        entries, positions, is_anti = pairs.entries, pairs.of(row), self._join_type is JoinType.ANTI
        if is_left:
            matches = sum(entries[index][COUNT] for index in positions)
            if (matches <= 0) == is_anti:
                sent.add(row, None, kind)
            return matches
        goes = kind in (UPDATE_BEFORE, DELETE)
        if is_anti:
            kind = INSERT if goes else DELETE
        for position in positions if counts else ():
            entry = entries[position]
            before = entry[MATCHES]
            entry[MATCHES] += -1 if goes else 1
            if (before <= 0) != (entry[MATCHES] <= 0):
                sent.add(None, position, kind, entry[COUNT])
        return 0
