"""Selects the rows of a batch that satisfy a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.table.data.flat import truths
from penstock.table.data.values import to_full_array
from penstock.table.evaluation.columns import Columns
from penstock.table.evaluation.failures import explained
from penstock.table.evaluation.lazy import Part

#: Few rows remain if at most one in this many does.
_FEW_OF: Final = 8


class Condition:
    """The conjuncts of a condition, in order.

    A conjunct that cannot fail is evaluated for all rows, which is cheaper than filtering columns, unless few rows
    remain. A conjunct that may fail is evaluated only for rows where no earlier conjunct is false.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def chosen(self, columns: Columns) -> Columns:
        """Select the rows that satisfy all conjuncts; return the columns themselves if all rows do.

        Raises `TableRuntimeError` for values that a function cannot process.
        """
        rows: Columns = columns
        answers: pa.Array | None = None
        try:
            for part in self._parts:
                if answers is not None:
                    rows, answers = _narrowed(rows, answers, part.can_fail)
                    if not rows.rows:
                        return rows
                answer = to_full_array(part.run(rows), rows.rows)
                answers = answer if answers is None else pc.and_kleene(answers, answer)
        except pa.ArrowInvalid as error:
            raise explained(error) from error
        return rows if answers is None else _where(rows, truths(answers))


def _narrowed(rows: Columns, answers: pa.Array, can_fail: bool) -> tuple[Columns, pa.Array | None]:
    """Return the rows for the next conjunct, and the results so far; None if they are all true."""
    if can_fail and answers.null_count:
        # NULL is not false.
        left = _where(rows, pc.fill_null(answers, True))
        return left, answers if left is rows else left.cut(answers)
    if can_fail or answers.true_count * _FEW_OF <= rows.rows:
        return _where(rows, truths(answers)), None
    return rows, answers


def _where(rows: Columns, mask: pa.Array) -> Columns:
    return rows if mask.true_count == rows.rows else rows.where(mask)
