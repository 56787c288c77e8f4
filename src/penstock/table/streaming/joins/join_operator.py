"""Joins of two changelogs. Outer joins emit a row without a match padded with NULL.

The NULL-padded row is retracted before the first match is emitted, and emitted again after the last match is retracted.
Each row is emitted right after the row that it replaces, because downstream operators show intermediate states. Inner
joins keep the kinds of their input rows. Outer joins emit inserts and deletes, except that retractions from the inner
side keep their kind.
"""

from __future__ import annotations

from penstock.table.plan.changes import DELETE, INSERT, UPDATE_BEFORE
from penstock.table.streaming.joins.join_sides import COUNT, MATCHES, Pairs
from penstock.table.streaming.joins.joining_operator import JoiningOperator, Sent


class JoinOperator(JoiningOperator):
    """INNER, LEFT, RIGHT and FULL. See the module docstring."""

    def open(self) -> None:
        """See `JoiningOperator`."""
        super().open()
        self._keeps = (self._join_type.keeps_left, self._join_type.keeps_right)

    def changes_matches(self, is_left: bool) -> bool:
        """See `JoiningOperator`."""
        return self._keeps[1 if is_left else 0]

    def join_row(self, row: int, kind: int, pairs: Pairs, is_left: bool, counts: bool, sent: Sent) -> int:
        """See `JoiningOperator`."""
        keeps_mine, keeps_other = self._keeps if is_left else self._keeps[::-1]
        entries, positions = pairs.entries, pairs.of(row)
        matches = sum(entries[index][COUNT] for index in positions)
        goes = kind in (UPDATE_BEFORE, DELETE)
        as_kind = kind
        if keeps_mine or (keeps_other and not goes):
            as_kind = DELETE if goes else INSERT
        if not (keeps_other and counts):
            for position in positions:
                sent.add(row, position, as_kind, entries[position][COUNT])
        else:
            for position in positions:
                entry = entries[position]
                is_alone = entry[MATCHES] == (1 if goes else 0)
                entry[MATCHES] += -1 if goes else 1
                _swap(row, position, as_kind, entry[COUNT], is_alone, sent)
        if keeps_mine and matches <= 0:
            sent.add(row, None, as_kind)
        return matches


def _swap(row: int, position: int, kind: int, times: int, is_alone: bool, sent: Sent) -> None:
    """Emit a pair once per copy of the other row.

    If `is_alone`, each copy of the pair replaces a NULL-padded row, or is replaced by one.
    """
    if not is_alone or times < 0:
        sent.add(row, position, kind, times)
    goes = kind in (UPDATE_BEFORE, DELETE)
    if is_alone and times < 0:
        sent.add(None, position, INSERT if goes else DELETE, times)
    for _ in range(times if is_alone else 0):
        if not goes:
            sent.add(None, position, DELETE)
        sent.add(row, position, kind)
        if goes:
            sent.add(None, position, INSERT)
